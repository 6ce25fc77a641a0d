"""The composition root: from a graph and a config to a trained model, the whole data flow on one page."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from cvgnn._version import __version__
from cvgnn.config import TrainConfig, make_config
from cvgnn.errors import CvgnnError, require
from cvgnn.experiments import memory as memory_needs
from cvgnn.experiments.checkpointing import Checkpointer
from cvgnn.experiments.machine import peak_rss_bytes, sensible_threads, thread_count
from cvgnn.graph import Graph, Propagation
from cvgnn.nn import (
    MODELS,
    ControlVariate,
    Estimator,
    Network,
    SampledSum,
    each_hidden,
    exact_embedding,
    exact_logits,
    refresh_statistics,
)
from cvgnn.optim import check_options, make_optimizer
from cvgnn.sampling import BatchLoader, FeatureSource, NeighborSampler, propagate_features
from cvgnn.training import Diverged, EpochRecord, Evaluator, Guard, Trainer, make_schedule

OptimizerFactory = Callable[[Iterable[Tensor]], torch.optim.Optimizer]


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class Run:
    """A finished run: the trained model, what it was trained on, and what was measured.

    Args:
        graph, config: what was asked for.
        model: the network with the weights of the chosen output.
        features, propagation: rows of `P X`, and `P`.
        records: one for each epoch.
        result: the summary, as `result.json` holds it.
    """

    graph: Graph
    config: TrainConfig
    model: Network
    features: FeatureSource
    propagation: Propagation
    records: list[EpochRecord]
    result: dict[str, Any]

    def predict(self, ids: Tensor | list[int] | None = None) -> Tensor:
        """int64: the class of each of `ids` (of all nodes if not given), by exact inference."""
        return self._pick(exact_logits(self.model, self.features, self.propagation), ids).argmax(dim=1)

    def predict_proba(self, ids: Tensor | list[int] | None = None) -> Tensor:
        """`[n, C]`: class probabilities of `ids` (of all nodes if not given)."""
        return self._pick(exact_logits(self.model, self.features, self.propagation), ids).softmax(dim=1)

    def embed(self, layer: int = 1, ids: Tensor | list[int] | None = None) -> Tensor:
        """`H^(layer)[ids]`: hidden representations, `1 <= layer < K`; `layer = K` gives the logits."""
        return self._pick(exact_embedding(self.model, self.features, self.propagation, layer=layer), ids)

    def _pick(self, rows: Tensor, ids: Tensor | list[int] | None) -> Tensor:
        if ids is None:
            return rows
        index, n = torch.as_tensor(ids), self.graph.num_nodes
        if index.dtype == torch.bool and index.shape == (n,):
            return rows[index]
        require(
            index.dim() == 1 and (index.numel() == 0 or index.dtype in (torch.int32, torch.int64)),
            f"ids must be a list of node ids or a mask of {n} booleans, not {index.dtype} of shape {list(index.shape)}",
        )
        bad = index[(index < 0) | (index >= n)].tolist()
        if bad:
            raise CvgnnError(f"node {bad[0]} does not exist; ids must lie in 0..{n - 1}")
        return rows[index.long()]


def fit(
    graph: Graph,
    *,
    on_epoch: Callable[[EpochRecord], None] | None = None,
    make_optimizer: OptimizerFactory | None = None,
    check_memory: bool = True,
    **options: Any,
) -> Run:
    """Train a network on a graph in one call.

    Args:
        graph: what to train on.
        on_epoch: called with each epoch's record.
        make_optimizer: gets the parameters and returns any `torch.optim.Optimizer`; overrides `optimizer=...`.
        check_memory: refuse a run that does not fit into memory before it begins.
        options: fields of `cvgnn.TrainConfig`, such as `epochs=50, optimizer="amsgrad", num_neighbors=5`.
    """
    config = make_config(**options)
    check(graph, config, memory=check_memory)
    return train(graph, config, on_epoch=on_epoch, optimizer_factory=make_optimizer)


def train(
    graph: Graph,
    config: TrainConfig,
    *,
    on_epoch: Callable[[EpochRecord], None] | None = None,
    optimizer_factory: OptimizerFactory | None = None,
    keeper: Checkpointer | None = None,
    threads: int | None = None,
) -> Run:
    """Train a network as `config` says. See `fit`.

    Args:
        graph, config, on_epoch, optimizer_factory: see `fit`.
        keeper: saves the run's state, and gives it back to a run that goes on.
        threads: for torch, the config's if not given.
    """
    check(graph, config, memory=False)
    with thread_count(threads or config.threads or sensible_threads(graph, config)):
        fresh = keeper is None or not keeper.resumes
        trainer = build_trainer(graph, config, optimizer_factory=optimizer_factory, initialize=fresh)
        records = [] if keeper is None else keeper.begin(trainer)
        trainer.warm_up()
        after_step = None if keeper is None else functools.partial(keeper.after_step, trainer, records)
        epochs = trainer.epochs(
            config.epochs, eval_every=config.eval_every, patience=config.patience, after_step=after_step
        )
        try:
            for record in epochs:
                records.append(record)
                if on_epoch is not None:
                    on_epoch(record)
                if keeper is not None:
                    keeper.after_epoch(trainer, records)
        except Diverged:
            if keeper is not None:
                keeper.save(trainer, records)
            raise
        if keeper is not None:
            keeper.save(trainer, records)  # a run that stopped early; another one is saved already
        trainer.model.load_state_dict(trainer.output(config.output))
        trainer.model.eval()
        result = summarize(graph, config, records, trainer)
        if optimizer_factory is not None:
            result |= {"optimizer": type(trainer.optimizer).__name__, "form": "custom"}
    return Run(
        graph=graph,
        config=config,
        model=trainer.model,
        features=trainer.estimator.features,
        propagation=trainer.loader.sampler.propagation.to(trainer.device),
        records=records,
        result=result,
    )


def check(graph: Graph, config: TrainConfig, *, memory: bool) -> None:
    """Refuse, before any work, what the graph and the config cannot do together, here and, with `memory`, now."""
    if not isinstance(graph, Graph):
        raise CvgnnError(f"graph must be a cvgnn.Graph, not {graph!r}; see cvgnn.load and cvgnn.from_edges")
    check_options(config.optimizer, **_optimizer_options(config))
    torch_device(config.device)
    if config.output == "best" and graph.val_ids.numel() == 0:
        raise CvgnnError("output 'best' needs validation nodes and this graph has none; use output 'last'")
    if config.patience and graph.val_ids.numel() == 0:
        raise CvgnnError("patience needs validation nodes and this graph has none; use patience 0")
    if memory:
        memory_needs.check_memory(graph, config)


def build_trainer(
    graph: Graph,
    config: TrainConfig,
    *,
    optimizer_factory: OptimizerFactory | None = None,
    initialize: bool = True,
) -> Trainer:
    """Everything that a run as `config` says needs, `P X` and the histories computed, before its first step.

    Args:
        graph, config: what to train, and how.
        optimizer_factory: see `fit`.
        initialize: whether to compute the histories at `W_1`; not for a trainer that is to be restored.
    """
    device = torch_device(config.device)
    propagation = Propagation(graph, normalization=config.aggregation)
    model = build_model(graph, config, dtype=propagation.dtype).to(device)
    features = build_features(graph, propagation, config, model)
    on_device = propagation.to(device)
    sampler = NeighborSampler(
        propagation,
        num_neighbors=-1 if config.estimator == "exact" else config.fan_out,
        num_layers=model.num_layers,
        scheme=config.scheme,
        control=config.estimator == "cv",
        seed=config.seed,
    )
    return Trainer(
        model=model,
        estimator=build_estimator(model, features, on_device, config, initialize=initialize),
        loader=BatchLoader(
            graph.train_ids, sampler, batch_size=config.batch_size, mode=config.batches, seed=config.seed
        ),
        optimizer=optimizer_factory(model.parameters()) if optimizer_factory else build_optimizer(model, config),
        labels=graph.y,
        evaluator=Evaluator(graph, features, on_device),
        seed=config.seed,
        keep_tau=config.output == "tau",
        guard=Guard(clip_norm=config.clip_norm, skip_bad=config.bad_step == "skip"),
        schedule=make_schedule(config.schedule, epochs=config.epochs),
        label_smoothing=config.label_smoothing,
        statistics_every=config.norm_every,
        device=device,
    )


def torch_device(name: str) -> torch.device:
    """The device of that name, if it is here."""
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).add_(1)  # a device may have a name and no driver, or no kernels
    except Exception as error:  # torch has a dozen ways to say so
        reason = str(error).splitlines()[0].rstrip(".")
        raise CvgnnError(f"device {name!r} cannot be used here ({reason}); device='cpu' always can") from None
    return device


def build_features(graph: Graph, propagation: Propagation, config: TrainConfig, model: Network) -> FeatureSource:
    """Rows of `P X`, and of `X` if the model reads them, on the config's device."""
    storage = torch.bfloat16 if config.feature_dtype == "bfloat16" else None
    aggregated, own = model.reads
    features = propagate_features(
        graph, propagation, feature_norm=config.feature_norm, storage=storage, aggregated=aggregated, own=own
    )
    return features if config.device == "cpu" else features.to(torch_device(config.device))


def build_model(graph: Graph, config: TrainConfig, *, dtype: torch.dtype, num_classes: int | None = None) -> Network:
    """The network at `W_1`, for the graph's classes if not told otherwise."""
    return MODELS[config.model](
        in_channels=graph.num_features,
        hidden_channels=config.hidden,
        out_channels=num_classes or graph.num_classes,
        num_layers=config.layers,
        norm=config.norm,
        bias=config.bias,
        residual=config.residual,
        activation=config.activation,
        jk=config.jk,
        input_layer=config.input_layer,
        dropout=config.dropout,
        input_dropout=config.input_dropout,
        init=config.init,
        seed=config.seed,
        dtype=dtype,
    )


def build_estimator(
    model: Network, features: FeatureSource, propagation: Propagation, config: TrainConfig, *, initialize: bool = True
) -> Estimator:
    """The estimator, its histories initialised at `W_1` if asked to."""
    if initialize and model.has_statistics:
        refresh_statistics(model, features, propagation)
    if config.estimator != "cv":
        return SampledSum(features)
    storage = torch.bfloat16 if config.history_dtype == "bfloat16" else propagation.dtype
    estimator = ControlVariate(features, model.hidden_widths, dtype=propagation.dtype, storage=storage)
    estimator.to(propagation.left.device)
    if initialize:
        estimator.initialize(each_hidden(model, features, propagation))
    return estimator


def build_optimizer(model: Network, config: TrainConfig) -> torch.optim.Optimizer:
    """The optimizer over the model's parameters."""
    return make_optimizer(config.optimizer, model.parameters(), **_optimizer_options(config))


def _optimizer_options(config: TrainConfig) -> dict[str, Any]:
    return {name: getattr(config, name) for name in ("form", "lr", "beta1", "beta2", "nu_min", "weight_decay")}


def summarize(graph: Graph, config: TrainConfig, records: list[EpochRecord], trainer: Trainer) -> dict[str, Any]:
    """The summary of a run. `test_accuracy` is the one at the best validation epoch; `max_test_accuracy` is the paper's
    protocol, a choice by test accuracy."""
    evaluated = [(r.epoch, r.accuracies) for r in records if r.accuracies is not None]
    at_best = next((a for epoch, a in evaluated if epoch == trainer.best.epoch), None)
    tests = [a.test for _, a in evaluated if a.test is not None]
    assert trainer.evaluator is not None
    output = trainer.evaluator(trainer.model)  # the chosen output's weights are loaded by now
    return {
        "version": __version__,
        "dataset": graph.name,
        "split": graph.split,
        "num_classes": graph.num_classes,
        "class_names": None if graph.class_names is None else list(graph.class_names),
        "estimator": config.estimator,
        "scheme": config.scheme,
        "optimizer": config.optimizer,
        "form": config.form,
        "seed": config.seed,
        "epochs": len(records),
        "iterations": trainer.iterations,
        "skipped_steps": sum(r.skipped_steps for r in records),
        "best_epoch": trainer.best.epoch,
        "val_accuracy": None if at_best is None else at_best.val,
        "test_accuracy": None if at_best is None else at_best.test,
        "max_test_accuracy": max(tests, default=None),
        "output": config.output,
        "output_iteration": trainer.tau.tau if trainer.tau is not None else None,
        "output_train_accuracy": output.train,
        "output_val_accuracy": output.val,
        "output_test_accuracy": output.test,
        "threads": torch.get_num_threads(),
        "train_seconds": round(sum(r.train_seconds for r in records), 6),
        "eval_seconds": round(sum(r.eval_seconds for r in records), 6),
        "peak_rss_bytes": peak_rss_bytes(),
    }
