"""Builds a trainer and its parts from a graph and a config, and refuses what cannot work."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cvgnn.config import TrainConfig
from cvgnn.data import Graph, Propagation, SparseFeatures
from cvgnn.data.labels import labelled
from cvgnn.data.subgraph import induced_subgraph, within
from cvgnn.errors import CvgnnError, require
from cvgnn.nn import (
    MODELS,
    ControlVariate,
    Estimator,
    Network,
    SampledSum,
    each_hidden,
    first_hidden,
    has_own_forward,
    refresh_statistics,
    require_exact,
)
from cvgnn.nn.sampled_start import SampledStart
from cvgnn.optim import check_options, make_optimizer
from cvgnn.sampling import BatchLoader, FeatureSource, NeighborSampler, propagate_features
from cvgnn.sampling.features import LateSource
from cvgnn.training.evaluation import Evaluator, few_labelled
from cvgnn.training.guard import Guard
from cvgnn.training.machine import check_memory
from cvgnn.training.parts import Parts, call_factory
from cvgnn.training.schedules import make_schedule
from cvgnn.training.tasks import Task, make_task
from cvgnn.training.tasks import check_options as check_task_options
from cvgnn.training.trainer import Trainer
from cvgnn.utils.mapped_memory import mapped_zeros
from cvgnn.utils.progress import ProgressReporter

OptimizerFactory = Callable[[Iterable[Tensor]], torch.optim.Optimizer]
NO_PARTS = Parts()
_FEW_ROWS = 0.75  # of all: with more, finding out which are needed costs more than leaving the others out saves


def check(graph: object, config: TrainConfig, *, memory: bool, parts: Parts = NO_PARTS) -> None:
    """Refuse a graph and a config that cannot be trained together, before any work.

    Args:
        graph: a `cvgnn.Graph`.
        config: of the run.
        memory: whether to check also that the run fits into the memory that is free now.
        parts: that are given as objects.
    """
    if not isinstance(graph, Graph):
        kinds = "a cvgnn.Graph, a PyG Data, a NetworkX graph or a SciPy matrix"
        raise CvgnnError(f"graph must be {kinds}, not {graph!r}; see cvgnn.load and cvgnn.data.io.read_graph")
    found = {kind: parts.find(kind, config) for kind in ("model", "estimator", "optimizer", "task")}
    if found["optimizer"] is None:
        check_options(config.optimizer, **_optimizer_options(config))
    task = build_task(graph, config, parts)
    sizes, kind = task.sizes(), task.items.kind
    if graph.cutout is not None:
        whole = "a compact graph is trained with labels at nodes, and not with inductive; use the whole graph"
        require(kind == "node" and not config.inductive, whole)
    if config.inductive:
        require(kind == "node", f"inductive hides nodes, so it needs a task with labels at nodes, not {task.name!r}")
        given = isinstance(found["task"], Task)
        require(not given, "inductive makes the task for the training nodes; give a class or a function as task")
    if found["task"] is None:
        check_task_options(task.name, config)
    require(
        kind != "node" or graph.cutout is not None or bool(labelled(graph.y.numpy()).any()),
        f"task {task.name!r} needs labels at nodes, and {graph.name!r} has none",
    )
    require(sizes["train"] > 0, "the training split is empty, so there is nothing to train on")
    if config.calibrate and sizes["val"] == 0:
        raise CvgnnError(f"calibrate needs validation {kind}s and this graph has none; leave it out")
    torch_device(config.device)
    require(config.device == "cpu" or config.histories == "memory", "histories on disk need device='cpu'")
    if config.output == "best" and sizes["val"] == 0:
        raise CvgnnError(f"output 'best' needs validation {kind}s and this graph has none; use output 'last'")
    if config.patience and sizes["val"] == 0:
        raise CvgnnError(f"patience needs validation {kind}s and this graph has none; use patience 0")
    if memory:
        check_memory(graph, config)


def build_trainer(
    graph: Graph,
    config: TrainConfig,
    *,
    parts: Parts = NO_PARTS,
    optimizer_factory: OptimizerFactory | None = None,
    initialize: bool = True,
    scratch: Path | None = None,
    all_rows: bool = True,
) -> Trainer:
    """A trainer before its first step, `P X` and the histories computed.

    Args:
        graph, config: of the run.
        parts: that are given as objects.
        optimizer_factory: the same as `Parts(optimizer=optimizer_factory)`.
        initialize: whether to compute the histories at `W_1`; not needed for a trainer that will be restored.
        scratch: folder for histories on disk; that for temporary files if None.
        all_rows: whether to compute rows of `P X` and of the histories that neither training nor evaluation reads, too.
            Without, those of `P X` are computed when they are asked for, and those of the histories are NaN.
    """
    device = torch_device(config.device)
    if optimizer_factory is not None:
        parts = dataclasses.replace(parts, optimizer=optimizer_factory)
    whole = task = build_task(graph, config, parts)
    if config.inductive:
        # Labels, classes and weights of classes are the same; P, P X, histories and batches are of these nodes alone.
        task = build_task(induced_subgraph(whole.graph, whole.items.nodes.sort().values), config, parts)
    graph = task.graph
    model = build_model(task, config, dtype=graph.x.dtype, parts=parts).to(device)
    _check_cutout(graph, config, model)
    propagation = build_propagation(graph, config, model)
    needed = None if all_rows else needed_rows(task, config, model)
    features = _late_features(graph, propagation, config, model, needed=needed)
    on_device = propagation.to(device)
    # Here too, and not only in the Trainer: an estimator's histories start from an exact pass.
    require_exact(model, features, propagation, task.items.nodes)
    evaluator = Evaluator(task, features, on_device)
    if config.inductive:
        P = build_propagation(whole.graph, config, model)
        evaluator = Evaluator(whole, _late_features(whole.graph, P, config, model), P.to(device))
    # The sampler works on the CPU's P: draws are the same on every device.
    sampler = NeighborSampler(
        propagation,
        num_neighbors=-1 if config.estimator == "exact" else config.fan_out,  # -1: all neighbors, so P^ = P
        num_layers=model.num_layers,
        scheme=config.scheme,
        control=config.estimator not in ("ns", "exact"),  # whether blocks hold P - P^ too, for the histories
        seed=config.seed,
    )
    at_once = initialize and config.sampled_start == 0
    estimator = build_estimator(model, features, on_device, config, initialize=at_once, parts=parts, scratch=scratch)
    loader = BatchLoader(task.items, sampler, batch_size=config.batch_size, mode=config.batches, seed=config.seed)
    start = None
    if config.sampled_start != 0:
        start = SampledStart(
            features,
            NeighborSampler(
                propagation, num_neighbors=config.sampled_start, scheme=config.scheme, control=False, seed=config.seed
            ),
            steps=loader.steps_per_epoch,
            finish=functools.partial(_initialize, estimator, model, features, on_device),
        )
    if config.histories == "disk" and isinstance(estimator, ControlVariate):
        loader.read_ahead = estimator.read_ahead
    return Trainer(
        model=model,
        estimator=estimator,
        loader=loader,
        optimizer=build_optimizer(model, config, parts=parts),
        task=task,
        evaluator=evaluator,
        seed=config.seed,
        keep_tau=config.output == "tau",
        ema=config.ema,
        guard=Guard(clip_norm=config.clip_norm, skip_bad=config.bad_step == "skip"),
        schedule=make_schedule(config.schedule, epochs=config.epochs),
        statistics_every=config.norm_every,
        device=device,
        start=start,
    )


def _check_cutout(graph: Graph, config: TrainConfig, model: Network) -> None:
    """Refuse a part of a graph that lacks something the model reads: it would be taken as zero."""
    if graph.cutout is None:
        return
    hops, needed = graph.cutout.hops, model.num_layers - 1
    again = "compact the whole graph again with"
    require(
        needed <= hops,
        f"this compact graph has the rows of {hops} hops, and a network of {model.num_layers} layers samples at "
        f"{needed}; {again} --compact {needed}, or use fewer layers",
    )
    normalization = model.normalization or config.normalization
    require(
        not model.reads[0] or graph.PX_normalization == normalization,
        f"this compact graph has P X for {graph.PX_normalization!r}, and the model needs {normalization!r}; {again} "
        f"--propagate {normalization}",
    )
    require(config.sampled_start == 0, "sampled_start needs the features of the whole graph, not of a compact one")
    unscaled = config.feature_norm == "none"
    require(unscaled, "feature_norm needs the features of the whole graph; a compact one has P X of them as they are")


def torch_device(name: str) -> torch.device:
    """The device of that name, if this machine has it."""
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).add_(1)  # torch knows the names of devices that have no driver or no kernels
    except Exception as error:  # torch raises a dozen types
        reason = str(error).splitlines()[0].rstrip(".")
        raise CvgnnError(f"device {name!r} cannot be used here ({reason}); device='cpu' always can") from None
    return device


def needed_rows(task: Task, config: TrainConfig, model: Network) -> Tensor | None:
    """bool `[N]`: the nodes whose rows of `P X` training and evaluation read; None where that saves too little.

    A training batch reads at most the neighborhood of its nodes at `K - 1` hops, evaluation that of the split. With
    all nodes in the split, and for what computes all nodes at once, no row can be left out.
    """
    graph = task.graph
    dense_or_stored = not isinstance(graph.x, SparseFeatures) or graph.PX is not None
    whole = config.inductive or model.has_statistics or has_own_forward(model) or config.device != "cpu"
    if dense_or_stored or whole or task.items.kind != "node":
        return None
    ids = few_labelled(graph, model.num_layers)
    if ids is None:
        return None
    needed = torch.from_numpy(within(graph, ids.numpy(), model.num_layers - 1)[0])
    return needed if needed.count_nonzero() < _FEW_ROWS * graph.num_nodes else None


def build_features(
    graph: Graph, propagation: Propagation, config: TrainConfig, model: Network, *, needed: Tensor | None = None
) -> FeatureSource:
    """Rows of `P X`, and of `X` if the model reads them, on the config's device; `needed` as in `needed_rows`."""
    # bfloat16 halves the bytes of P X, which layer 0 reads for every node of the receptive field.
    storage = torch.bfloat16 if config.feature_dtype == "bfloat16" else None
    aggregated, own = model.reads
    features = propagate_features(
        graph, propagation, feature_norm=config.feature_norm, storage=storage, aggregated=aggregated, own=own,
        needed=needed,
    )  # fmt: skip
    return features if config.device == "cpu" else features.to(torch_device(config.device))


def _late_features(
    graph: Graph, propagation: Propagation, config: TrainConfig, model: Network, *, needed: Tensor | None = None
) -> FeatureSource:
    """`build_features`; with a sampled start, when the first row of `P X` is asked for, and with the rows of `X`."""
    compute = functools.partial(build_features, graph, propagation, config, model, needed=needed)
    if config.sampled_start == 0:
        return compute()
    own = propagate_features(graph, propagation, feature_norm=config.feature_norm, aggregated=False)
    return LateSource(own, compute)


def build_propagation(graph: Graph, config: TrainConfig, model: Network) -> Propagation:
    """`P` with the aggregation that the model needs, or the config's normalization."""
    return Propagation(graph, normalization=model.normalization or config.normalization)  # type: ignore[arg-type]


def build_task(graph: Graph, config: TrainConfig, parts: Parts = NO_PARTS) -> Task:
    """The task that the config names, that the labels are for, or that is given."""
    made, loss = parts.find("task", config), parts.find("loss", config)
    if made is None:
        return make_task(graph, config, loss=loss)
    require(loss is None and config.metric is None, "loss and metric are those of the given task; leave them out")
    task: Task = made if isinstance(made, Task) else call_factory("task", config.task, made, Task, graph, config)
    require(task.graph.num_nodes == graph.num_nodes, "task was made for another graph; make it for this one")
    return task


def build_model(task: Task, config: TrainConfig, *, dtype: torch.dtype, parts: Parts = NO_PARTS) -> Network:
    """The network and the task's readout at `W_1`."""
    model = _build_network(task, config, dtype, parts)
    if model.readout is None:
        model.readout = task.make_readout(seed=config.seed, dtype=dtype)
    return model


def _build_network(task: Task, config: TrainConfig, dtype: torch.dtype, parts: Parts) -> Network:
    made = parts.find("model", config)
    graph, outputs = task.graph, task.out_channels
    if isinstance(made, Network):
        require(
            (made.in_channels, made.out_channels) == (graph.num_features, outputs),
            f"model has {made.in_channels} inputs and {made.out_channels} outputs; the graph needs "
            f"in_channels={graph.num_features}, out_channels={outputs}",
        )
        found = {parameter.dtype for parameter in made.parameters()}
        require(found <= {dtype}, f"model has weights of {found}, the graph's features are {dtype}; make them the same")
        return made
    same = ("norm", "bias", "residual", "activation", "jk", "input_layer", "dropout", "input_dropout", "init", "seed")
    factory: Callable[..., Network] = made or MODELS[config.model]
    return call_factory(  # type: ignore[no-any-return]
        "model",
        config.model,
        factory,
        Network,
        in_channels=graph.num_features,
        hidden_channels=config.hidden,
        out_channels=outputs,
        num_layers=config.layers,
        dtype=dtype,
        **{name: getattr(config, name) for name in same},
    )


def build_estimator(
    model: Network,
    features: FeatureSource,
    propagation: Propagation,
    config: TrainConfig,
    *,
    initialize: bool = True,
    parts: Parts = NO_PARTS,
    scratch: Path | None = None,
) -> Estimator:
    """The estimator; with `initialize`, its histories hold an exact pass at `W_1` (Algorithm 1, line 2)."""
    # BatchNorm's statistics come first: the exact pass that initialises the histories uses them.
    if initialize and model.has_statistics:
        refresh_statistics(model, features, propagation)
    if (made := parts.find("estimator", config)) is not None:
        return _own_estimator(made, model, features, propagation, config, initialize=initialize)
    if config.estimator in ("ns", "exact"):
        return SampledSum(features)
    storage = torch.bfloat16 if config.history_dtype == "bfloat16" else propagation.dtype
    estimator = ControlVariate(
        features,
        model.hidden_widths,
        separate_dropout=config.estimator == "cvd",
        control=config.control,
        dtype=propagation.dtype,
        storage=storage,
        zeros=functools.partial(mapped_zeros, folder=scratch) if config.histories == "disk" else None,
    )
    estimator.to(propagation.left.device)
    if initialize:
        _initialize(estimator, model, features, propagation)
    return estimator


@torch.no_grad()
def _initialize(estimator: Estimator, model: Network, features: FeatureSource, propagation: Propagation) -> None:
    """Give an estimator's histories an exact pass at the present weights, if it has any."""
    if type(estimator) is not ControlVariate:
        # An exact pass costs a pass over all edges for each layer: not for an estimator that does not want it.
        if type(estimator).initialize is not Estimator.initialize:
            estimator.initialize(each_hidden(model, features, propagation))
    elif model.num_layers == 2 and not has_own_forward(model):
        # The only hidden layer needs no neighbors: by blocks, no second matrix of the histories' size exists.
        with ProgressReporter("before training") as progress:
            hidden = first_hidden(model, features.incomplete, propagation, progress=progress)
            estimator.initialize_blocks(hidden)
    else:
        estimator.initialize(each_hidden(model, features.incomplete, propagation))


def _own_estimator(
    made: Estimator | Callable[..., Estimator],
    model: Network,
    features: FeatureSource,
    propagation: Propagation,
    config: TrainConfig,
    *,
    initialize: bool,
) -> Estimator:
    if isinstance(made, Estimator):
        theirs, mine = ((source.num_nodes, source.num_features) for source in (made.features, features))
        require(theirs == mine, f"estimator was made for features of shape {theirs}, the graph's have shape {mine}")
        estimator = made
    else:
        estimator = call_factory("estimator", config.estimator, made, Estimator, features, model.hidden_widths)
    estimator.to(propagation.left.device)
    if initialize:
        _initialize(estimator, model, features, propagation)
    return estimator


def build_optimizer(model: Network, config: TrainConfig, *, parts: Parts = NO_PARTS) -> torch.optim.Optimizer:
    """The optimizer over the model's parameters."""
    made = parts.find("optimizer", config)
    if made is None:
        return make_optimizer(config.optimizer, model.parameters(), **_optimizer_options(config))
    if not isinstance(made, torch.optim.Optimizer):
        options: dict[str, Any] = {}
        if parts.optimizer is None or isinstance(made, type):  # registered, or a class: not a function of parameters
            options = _optimizer_options(config)
            del options["form"]
            options = {name: value for name, value in options.items() if value is not None}
        kind = torch.optim.Optimizer
        return call_factory("optimizer", config.optimizer, made, kind, model.parameters(), **options)  # type: ignore[no-any-return]
    mine = {id(parameter) for parameter in model.parameters()}
    strangers = [p for group in made.param_groups for p in group["params"] if id(p) not in mine]
    require(
        not strangers,
        "optimizer is over other parameters than the model's; give model=... as the object whose parameters it has, or "
        "optimizer=... as a function of the parameters",
    )
    return made


def _optimizer_options(config: TrainConfig) -> dict[str, Any]:
    return {name: getattr(config, name) for name in ("form", "lr", "beta1", "beta2", "nu_min", "weight_decay")}
