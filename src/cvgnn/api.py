"""Train, save, load and resume a run with one Python call each. The command line calls the same functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from cvgnn.config import IN_MEMORY, CheckpointPlan, GraphSource, TrainConfig
from cvgnn.data import Graph, as_graph
from cvgnn.data.io.dense_features import features_of_run, standardize
from cvgnn.data.store import is_store
from cvgnn.errors import CvgnnError, require, unknown_name
from cvgnn.nn import Estimator, Network
from cvgnn.training.callbacks import Callback, EpochPrinter, OnEpoch
from cvgnn.training.defaults import Defaults, choose_options
from cvgnn.training.graph_source import load_source
from cvgnn.training.parts import Parts
from cvgnn.training.resume import check_resume_options
from cvgnn.training.run import Run, read_preprocessing, read_run, train
from cvgnn.training.run_folder import RunFolder, read_settings
from cvgnn.training.tasks import LossFunction, Task, is_of_pairs
from cvgnn.training.trainer import EpochRecord
from cvgnn.training.trainer_builder import OptimizerFactory, check


def fit(
    graph: Any = None,
    *,
    x: Any = None,
    y: Any = None,
    train_ids: Any = None,
    val_ids: Any = None,
    test_ids: Any = None,
    model: str | Network | Callable[..., Network] | None = None,
    estimator: str | Estimator | Callable[..., Estimator] | None = None,
    optimizer: str | torch.optim.Optimizer | Callable[..., torch.optim.Optimizer] | None = None,
    loss: str | LossFunction | None = None,
    task: str | Task | Callable[..., Task] | None = None,
    class_weight: str | Sequence[float] | None = None,
    config: TrainConfig | None = None,
    defaults: Defaults = "auto",
    out: str | Path | None = None,
    resume: str | Path | bool = False,
    callbacks: Sequence[Callback] = (),
    on_epoch: Callable[[EpochRecord], None] | None = None,
    verbose: bool | int = False,
    make_optimizer: OptimizerFactory | None = None,
    check_memory: bool = True,
    checkpoint_minutes: float = 10.0,
    checkpoint_epochs: int = 0,
    exact: bool = False,
    **options: Any,
) -> Run:
    """Train a network on a graph in one call.

    Ctrl-C stops after the current step and returns the best so far, with a logged warning; with `out` the state is
    saved too, and `resume` continues from it.

    Args:
        graph: a `cvgnn.Graph`, a PyG `Data`, a NetworkX graph, or a SciPy adjacency matrix. A resumed run may leave it
            out if it was read from a file or by name.
        x, y: features `[N, F]` and labels, for a SciPy matrix or a NetworkX graph; the latter may have node attributes
            `x`, `y` and `split` instead. Labels are classes `[N]`, a 0/1 matrix `[N, L]`, or floating point numbers.
        train_ids, val_ids, test_ids: node ids of the splits, for the same; a random split if not given.
        model: a name, a subclass of `Network`, a function that takes the same arguments and returns a network, or a
            network, which is trained in place.
        estimator: a name, or a class or function that gets the feature source and the widths of the hidden layers and
            returns an `Estimator`, or an `Estimator`.
        optimizer: a name; an optimizer class, which gets `lr` and `weight_decay`; a function of the parameters; or an
            optimizer over the parameters of the network given as `model`.
        loss: a function of logits `[B, C]` and labels `[B]`; the task's own if not given.
        task: a name, such as `"multilabel"`, a `cvgnn.Task` for this graph, or a class or function that gets the graph
            and the config; what the labels are for if not given.
        class_weight: of each class in the cross entropy: a number for each, or `"balanced"`.
        config: all options of the run; `cvgnn.config_from` reads them from a file.
        defaults: values of the options that are not given: `"auto"` (chosen from the graph's size and labels),
            `"fixed"` (those of `cvgnn.TrainConfig`) or `"paper"`; without effect if there is a config. `"auto"` also
            standardises dense features whose columns differ in scale by more than 100, fitted on the training nodes.
        out: new or empty folder for config, metrics, result, weights and checkpoints; nothing is written without one.
        resume: folder of a run to continue, with its own options; `epochs` may grow. `True` continues the run in
            `out`, or starts it there.
        callbacks: called along the run; see `cvgnn.Callback`.
        on_epoch: called with each epoch's record.
        verbose: print a line for each epoch; a number n prints every n-th.
        make_optimizer: the same as `optimizer` given as a function of the parameters.
        check_memory: refuse a run that does not fit into memory before it starts.
        checkpoint_minutes, checkpoint_epochs: how often to save a checkpoint in the folder; 0 = never.
        exact: refuse to resume where other versions or another processor could change the last bits.
        options: fields of `cvgnn.TrainConfig`, such as `epochs=50, optimizer="amsgrad", num_neighbors=5`. They
            override those of `config`.
    """
    if resume is True:
        require(out is not None, "resume=True continues the run in out; give out, or resume=FOLDER")
        earlier = Path(str(out)) if Path(str(out), "config.json").is_file() else None
    else:
        require(not resume or out is None, "a resumed run continues in its own folder; leave out= out")
        earlier = Path(resume) if resume else None
    name = task if isinstance(task, str) else config.task if isinstance(config, TrainConfig) else "auto"
    ids = {"train_ids": train_ids, "val_ids": val_ids, "test_ids": test_ids}
    graph = as_graph(graph, x=x, y=y, **ids, allow_unlabelled=is_of_pairs(name))
    given: dict[str, Any] = {
        "model": model,
        "estimator": estimator,
        "optimizer": make_optimizer or optimizer,
        "loss": loss,
        "task": task,
    }
    parts = Parts(**{name: part for name, part in given.items() if not isinstance(part, str)})
    if class_weight is not None:
        options["class_weight"] = class_weight
    options |= {name: part for name, part in given.items() if isinstance(part, str)}
    options = _options_of_parts(parts, options, lenient=make_optimizer is not None) | parts.names()
    source = GraphSource(dataset=IN_MEMORY)
    if isinstance(graph, Graph):
        if earlier is not None:
            graph = features_of_run(graph, read_preprocessing(earlier))
        elif defaults == "auto" and config is None and graph.PX is None:  # a stored P X is of the features as they are
            graph = standardize(graph)
    if earlier is None:
        if config is None and isinstance(graph, Graph):
            options = choose_options(graph, defaults, options)
        config = _with_options(config or TrainConfig(), options)
    else:
        source, stored = read_settings(earlier / "config.json")
        config = _with_options(config or stored, options)
        check_resume_options(stored.to_dict(), config.to_dict(), folder=earlier)
        # The identity of a graph in a store is that of its header, which a graph in memory does not have.
        in_store = source.graph is not None and is_store(source.graph)
        require(
            graph is None or not in_store,
            f"the run in {earlier} was trained on the store {source.graph}, which is opened again; leave graph out",
        )
        graph = load_source(source, task=config.task) if graph is None else graph
    check(graph, config, memory=check_memory, parts=parts)
    assert graph is not None
    path = earlier or out
    return train(
        graph,
        config,
        callbacks=[
            *callbacks,
            *([] if on_epoch is None else [OnEpoch(on_epoch)]),
            *([EpochPrinter(config.epochs, every=int(verbose))] if verbose else []),
        ],
        parts=parts,
        folder=None if path is None else RunFolder(Path(path), resume=earlier is not None),
        source=source,
        plan=CheckpointPlan(checkpoint_minutes=checkpoint_minutes, checkpoint_epochs=checkpoint_epochs),
        exact=exact,
        return_on_interrupt=True,
    )


def load_run(
    path: str | Path,
    graph: Any = None,
    *,
    model: Network | Callable[..., Network] | None = None,
    task: Task | Callable[..., Task] | None = None,
) -> Run:
    """A finished run from its folder, to predict and embed with; `fit(resume=path, epochs=...)` continues its training.

    Args:
        path: folder of `fit(out=...)`, `Run.save` or `cvgnn train --out`.
        graph: the graph it was trained on, or another one with the same features. Needed for a graph that was made in
            Python; otherwise it is read from where the run read it.
        model: the class, function or network that was given to `fit`; its name if it was a name.
        task: the task that was given to `fit` as an object, class or function.
    """
    return read_run(Path(path), as_graph(graph, allow_unlabelled=True), parts=Parts(model=model, task=task))


def config_from(file: str | Path) -> TrainConfig:
    """The options in a .toml file, or in the config.json of a run."""
    return read_settings(Path(file))[1]


def _options_of_parts(parts: Parts, options: dict[str, Any], *, lenient: bool) -> dict[str, Any]:
    """The options that a part given as an object decides; an error for options that it would ignore.

    `lenient` ignores those of the optimizer, as `make_optimizer` always has.
    """
    options = dict(options)
    fixed: tuple[str, ...]
    if isinstance(parts.model, Network):
        fixed = (
            "layers", "hidden", "norm", "residual", "activation", "jk", "input_layer", "bias", "dropout",
            "input_dropout", "init",
        )  # fmt: skip
        _refuse_options(fixed, options, "model is a network, which is built already")
        # So that fan-outs and memory are checked for this network.
        widths = parts.model.hidden_widths
        options |= {"layers": parts.model.num_layers, "hidden": max(widths, default=1)}
    if parts.optimizer is not None and not lenient:
        fixed = ("form", "beta1", "beta2", "nu_min")
        if not isinstance(parts.optimizer, type):
            fixed = (*fixed, "lr", "weight_decay")
        _refuse_options(fixed, options, "optimizer is an object or function with its own settings")
    return options


def _refuse_options(names: Sequence[str], options: dict[str, Any], why: str) -> None:
    for name in names:
        require(name not in options, f"{name} has no use: {why}; leave it out")


def _with_options(config: TrainConfig, options: dict[str, Any]) -> TrainConfig:
    if not isinstance(config, TrainConfig):
        raise CvgnnError(f"config must be a cvgnn.TrainConfig, not {config!r}; cvgnn.config_from reads one from a file")
    known = (*TrainConfig.__dataclass_fields__, *inspect.signature(fit).parameters)
    for name in options:
        if name not in TrainConfig.__dataclass_fields__:
            raise unknown_name("option", name, (known_name for known_name in known if known_name != "options"))
    return TrainConfig(**vars(config) | options)
