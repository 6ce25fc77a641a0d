"""Builds a trainer and its parts from a graph and a config, and refuses what cannot work."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from cvgnn.config import TrainConfig
from cvgnn.data import Graph, Propagation
from cvgnn.errors import CvgnnError, require
from cvgnn.nn import (
    MODELS,
    ControlVariate,
    Estimator,
    Network,
    SampledSum,
    each_hidden,
    refresh_statistics,
    require_exact,
)
from cvgnn.optim import check_options, make_optimizer
from cvgnn.sampling import BatchLoader, FeatureSource, NeighborSampler, propagate_features
from cvgnn.training.evaluation import Evaluator
from cvgnn.training.guard import Guard
from cvgnn.training.machine import check_memory
from cvgnn.training.parts import Parts, call_factory
from cvgnn.training.schedules import make_schedule
from cvgnn.training.trainer import Trainer

OptimizerFactory = Callable[[Iterable[Tensor]], torch.optim.Optimizer]
NO_PARTS = Parts()


def check(graph: object, config: TrainConfig, *, memory: bool, parts: Parts = NO_PARTS) -> None:
    """Refuse a graph and a config that cannot be trained together, before any work.

    Args:
        graph: a `cvgnn.Graph`.
        config: of the run.
        memory: whether to check also that the run fits into the memory that is free now.
        parts: that are given as objects.
    """
    if not isinstance(graph, Graph):
        raise CvgnnError(f"graph must be a cvgnn.Graph, not {graph!r}; see cvgnn.load and cvgnn.from_edges")
    require(graph.train_ids.numel() > 0, "the training split is empty, so there is nothing to train on")
    found = {kind: parts.find(kind, config) for kind in ("model", "estimator", "optimizer", "loss")}
    if found["optimizer"] is None:
        check_options(config.optimizer, **_optimizer_options(config))
    require(
        found["loss"] is None or (config.class_weight is None and config.label_smoothing == 0),
        f"class_weight and label_smoothing are for the cross entropy, not for loss {config.loss!r}; leave them out",
    )
    _class_weight(graph, config)
    torch_device(config.device)
    if config.output == "best" and graph.val_ids.numel() == 0:
        raise CvgnnError("output 'best' needs validation nodes and this graph has none; use output 'last'")
    if config.patience and graph.val_ids.numel() == 0:
        raise CvgnnError("patience needs validation nodes and this graph has none; use patience 0")
    if memory:
        check_memory(graph, config)


def build_trainer(
    graph: Graph,
    config: TrainConfig,
    *,
    parts: Parts = NO_PARTS,
    optimizer_factory: OptimizerFactory | None = None,
    initialize: bool = True,
) -> Trainer:
    """A trainer before its first step, `P X` and the histories computed.

    Args:
        graph, config: of the run.
        parts: that are given as objects.
        optimizer_factory: the same as `Parts(optimizer=optimizer_factory)`.
        initialize: whether to compute the histories at `W_1`; not needed for a trainer that will be restored.
    """
    device = torch_device(config.device)
    if optimizer_factory is not None:
        parts = dataclasses.replace(parts, optimizer=optimizer_factory)
    model = build_model(graph, config, dtype=graph.x.dtype, parts=parts).to(device)
    propagation = build_propagation(graph, config, model)
    features = build_features(graph, propagation, config, model)
    on_device = propagation.to(device)
    # Here too, and not only in the Trainer: an estimator's histories start from an exact pass.
    require_exact(model, features, propagation, graph.train_ids)
    # The sampler works on the CPU's P: draws are the same on every device.
    sampler = NeighborSampler(
        propagation,
        num_neighbors=-1 if config.estimator == "exact" else config.fan_out,  # -1: all neighbors, so P^ = P
        num_layers=model.num_layers,
        scheme=config.scheme,
        control=config.estimator not in ("ns", "exact"),  # whether blocks hold P - P^ too, for the histories
        seed=config.seed,
    )
    return Trainer(
        model=model,
        estimator=build_estimator(model, features, on_device, config, initialize=initialize, parts=parts),
        loader=BatchLoader(
            graph.train_ids, sampler, batch_size=config.batch_size, mode=config.batches, seed=config.seed
        ),
        optimizer=build_optimizer(model, config, parts=parts),
        labels=graph.y,
        loss=parts.find("loss", config) or cross_entropy,
        class_weight=_class_weight(graph, config, dtype=propagation.dtype, device=device),
        evaluator=Evaluator(graph, features, on_device),
        seed=config.seed,
        keep_tau=config.output == "tau",
        ema=config.ema,
        guard=Guard(clip_norm=config.clip_norm, skip_bad=config.bad_step == "skip"),
        schedule=make_schedule(config.schedule, epochs=config.epochs),
        label_smoothing=config.label_smoothing,
        statistics_every=config.norm_every,
        device=device,
    )


def torch_device(name: str) -> torch.device:
    """The device of that name, if this machine has it."""
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).add_(1)  # torch knows the names of devices that have no driver or no kernels
    except Exception as error:  # torch raises a dozen types
        reason = str(error).splitlines()[0].rstrip(".")
        raise CvgnnError(f"device {name!r} cannot be used here ({reason}); device='cpu' always can") from None
    return device


def build_features(graph: Graph, propagation: Propagation, config: TrainConfig, model: Network) -> FeatureSource:
    """Rows of `P X`, and of `X` if the model reads them, on the config's device."""
    # bfloat16 halves the bytes of P X, which layer 0 reads for every node of the receptive field.
    storage = torch.bfloat16 if config.feature_dtype == "bfloat16" else None
    aggregated, own = model.reads
    features = propagate_features(
        graph, propagation, feature_norm=config.feature_norm, storage=storage, aggregated=aggregated, own=own
    )
    return features if config.device == "cpu" else features.to(torch_device(config.device))


def build_propagation(graph: Graph, config: TrainConfig, model: Network) -> Propagation:
    """`P` with the aggregation that the model needs, or the config's normalization."""
    return Propagation(graph, normalization=model.normalization or config.normalization)  # type: ignore[arg-type]


def build_model(
    graph: Graph,
    config: TrainConfig,
    *,
    dtype: torch.dtype,
    num_classes: int | None = None,
    parts: Parts = NO_PARTS,
) -> Network:
    """The network at `W_1`; `num_classes` defaults to the graph's."""
    made = parts.find("model", config)
    classes = num_classes or graph.num_classes
    if isinstance(made, Network):
        require(
            (made.in_channels, made.out_channels) == (graph.num_features, classes),
            f"model has {made.in_channels} inputs and {made.out_channels} outputs; the graph needs "
            f"in_channels={graph.num_features}, out_channels={classes}",
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
        out_channels=classes,
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
    )
    estimator.to(propagation.left.device)
    if initialize:
        estimator.initialize(each_hidden(model, features, propagation))
    return estimator


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
    # An exact pass costs a pass over all edges for each layer: not for an estimator that does not want it.
    if initialize and type(estimator).initialize is not Estimator.initialize:
        estimator.initialize(each_hidden(model, features, propagation))
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


def _class_weight(
    graph: Graph, config: TrainConfig, *, dtype: torch.dtype = torch.float32, device: torch.device | None = None
) -> Tensor | None:
    """`[C]`: the weight of each class in the loss; None for 1."""
    given, classes = config.class_weight, graph.num_classes
    if given is None:
        return None
    if given == "balanced":
        counts = torch.bincount(graph.y[graph.train_ids], minlength=classes)
        weights = (graph.train_ids.numel() / (classes * counts.clamp(min=1))).tolist()
    else:
        weights = [float(number) for number in given.split(",")]
    require(len(weights) == classes, f"class_weight has {len(weights)} numbers, but the graph has {classes} classes")
    return torch.tensor(weights, dtype=dtype, device=device)


def _optimizer_options(config: TrainConfig) -> dict[str, Any]:
    return {name: getattr(config, name) for name in ("form", "lr", "beta1", "beta2", "nu_min", "weight_decay")}
