"""Everything that defines a training run, in one frozen dataclass; the command line is made from it.

This file imports no torch, so that `cvgnn train --help` answers at once. The names of the choices are spelled out here
and a test holds them equal to those of the parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, final, get_args, get_type_hints

from cvgnn.errors import require, require_integer, require_number, unknown_name
from cvgnn.limits import (
    MAX_BATCH,
    MAX_EPOCHS,
    MAX_HIDDEN,
    MAX_LAYERS,
    MAX_THREADS,
    check_fan_out,
)


@final
@dataclass(frozen=True, kw_only=True)
class GraphSource:
    """Where a graph comes from: a named data set, or a file or folder of the user's."""

    dataset: str | None = None
    """Name of a data set (see cvgnn datasets); citeseer, which is bundled, if no graph is named at all."""

    root: Path | None = None
    """Folder with the data set's raw files; citeseer needs none."""

    graph: Path | None = None
    """Your own graph: a store, an .npz or .pt file, or a folder of CSV or Parquet files (see docs/files.md)."""

    directed: bool = False
    """Keep the directions of the edges instead of making the graph undirected."""

    split_seed: int = 0
    """Seed of the random split, for a graph that comes without one."""

    train_fraction: float = 0.6
    """Share of the labelled nodes in a random split's training set."""

    val_fraction: float = 0.2
    """Share of the labelled nodes in a random split's validation set; the rest is for testing."""

    per_class: int | None = None
    """Training nodes of each class in a random split, instead of a share."""

    def __post_init__(self) -> None:
        require(
            self.dataset is None or self.graph is None,
            f"give either dataset or graph, not both ({self.dataset!r} and {str(self.graph)!r})",
        )
        require(
            self.graph is None or self.root is None,
            f"root goes with dataset, not with graph; leave it out (it is {str(self.root)!r})",
        )
        require(isinstance(self.directed, bool), f"directed must be True or False, not {self.directed!r}")
        require_integer("split_seed", self.split_seed, at_least=0)
        require_number("train_fraction", self.train_fraction, "a number in (0, 1)", above=0.0, below=1.0)
        require_number("val_fraction", self.val_fraction, "a number in [0, 1)", at_least=0.0, below=1.0)
        require(
            self.train_fraction + self.val_fraction <= 1,
            f"train_fraction and val_fraction must sum to at most 1, not {self.train_fraction} + {self.val_fraction}",
        )
        if self.per_class is not None:
            require_integer("per_class", self.per_class, at_least=1)

    def to_dict(self) -> dict[str, Any]:
        """All fields as JSON values; folders as absolute paths, so that the record holds from anywhere."""
        paths = {n: None if (p := getattr(self, n)) is None else str(p.resolve()) for n in ("root", "graph")}
        return {**asdict(self), **paths, "dataset": self.name}

    @property
    def name(self) -> str | None:
        """The data set's name; None for a graph of the user's."""
        return self.dataset or ("citeseer" if self.graph is None else None)


@final
@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Train a graph neural network by Algorithm 1.

    The defaults train the bundled CiteSeer graph in a few seconds.
    """

    estimator: Literal["cv", "ns", "exact"] = "cv"
    """How neighbors are aggregated: cv = sampling with the control variate, ns = sampling alone, exact = all."""

    scheme: Literal["without-replacement", "with-replacement", "paper", "released"] = "without-replacement"
    """How neighbors are drawn. The first two are unbiased, the paper's footnote and the released code are not."""

    num_neighbors: tuple[int, ...] = (2,)
    """Neighbors drawn for a node, -1 for all: one number, or one for each sampled hop, the batch's own hop first. There
    are layers - 1 hops, because layer 0 is exact; layers of them behind an input layer."""

    optimizer: Literal["sgd", "heavy-ball", "adam", "amsgrad", "adagrad"] = "adam"
    """The rule that turns gradients into steps."""

    form: Literal["torch", "paper"] = "torch"
    """torch = as torch.optim computes it (what the published numbers used), paper = as Algorithm 1 states it."""

    lr: float = 0.01
    """Learning rate."""

    beta1: float | None = None
    """Momentum; the optimizer's own default if not given."""

    beta2: float | None = None
    """Decay of the second moment (adam, amsgrad); 0.999 if not given."""

    nu_min: float | None = None
    """Lower bound of the square root of the second moment (Assumption 2); torch's form takes it as eps."""

    weight_decay: float = 5e-4
    """L2 coefficient, added to the gradient."""

    label_smoothing: float = 0.0
    """Share of each label that is spread over all classes: the loss is less sure of the labels than they are."""

    batch_size: int = 512
    """Training nodes in a batch."""

    batches: Literal["shuffle", "replacement"] = "shuffle"
    """shuffle = epochs over a permutation of the training nodes, replacement = independent draws (Algorithm 1)."""

    epochs: int = 100
    """Passes over the training nodes."""

    schedule: Literal["constant", "cosine", "linear"] = "constant"
    """Learning rate along the epochs: constant, or falling to zero by a half cosine or a line."""

    patience: int = 0
    """Stop early if the validation accuracy has not risen for so many epochs; 0 = train all epochs."""

    model: Literal["gcn", "sage", "gin", "gcnii"] = "gcn"
    """Kind of layers: gcn = the paper's; sage = mean of the neighbors and an own weight for the node itself; gin = sum
    and a two-layer MLP; gcnii = GCN with initial residual and identity mapping between linear layers, for depth."""

    layers: int = 2
    """Number of convolutions, the depth of the network."""

    hidden: int = 64
    """Width of the hidden layers."""

    norm: Literal["layer", "batch", "none"] = "none"
    """Normalisation in hidden layers: layer = LayerNorm (the paper's experiments), none = the paper's text, batch =
    BatchNorm with mean and variance over all nodes, from an exact pass every norm_every steps."""

    norm_every: int = 100
    """Steps between two exact passes that refresh the statistics of norm=batch."""

    residual: bool = False
    """Whether each layer adds its own input, times a matrix of its own, to its output."""

    activation: Literal["relu", "elu", "gelu"] = "relu"
    """Nonlinearity of hidden layers."""

    jk: Literal["last", "concat"] = "last"
    """Jumping knowledge: last = the last layer gives the logits, concat = a linear head on the outputs of all."""

    input_layer: bool = False
    """Whether a linear layer on the features comes before the first convolution, which is then sampled too; gcnii
    always has one."""

    bias: bool = True
    """Whether layers have a bias (the paper's experiments do, its text does not)."""

    dropout: float = 0.5
    """Share of hidden entries dropped in training."""

    input_dropout: float = 0.0
    """Share of the propagated features' entries dropped in training."""

    feature_norm: Literal["none", "row", "l2"] = "none"
    """Divide the features of each node: row = by the sum of their absolute values, as is usual for bags of words, l2 =
    by their Euclidean norm."""

    feature_dtype: Literal["float32", "bfloat16"] = "float32"
    """How dense propagated features are stored, and multiplied in training: bfloat16 halves their memory, and the time
    of layer 0 where the processor multiplies it (AVX-512 BF16, AMX), and keeps 8 significant bits of each number."""

    init: Literal["uniform", "glorot"] = "uniform"
    """First weights: uniform = as torch.nn.Linear (the paper's experiments), glorot = as most GCNs, biases zero."""

    normalization: Literal["symmetric", "random-walk"] = "symmetric"
    """How the propagation matrix P is normalised."""

    history_dtype: Literal["float32", "bfloat16"] = "float32"
    """How histories are stored; bfloat16 halves their memory."""

    output: Literal["best", "last", "tau"] = "best"
    """Which weights to return: best by validation accuracy, last, or tau = a uniformly drawn iterate (Algorithm 1)."""

    eval_every: int = 1
    """Evaluate after every n-th epoch, and after the last."""

    seed: int = 0
    """Seed of weights, batches, neighbor draws and dropout."""

    clip_norm: float | None = None
    """Shorten gradients whose norm over all parameters is larger than this."""

    bad_step: Literal["stop", "skip"] = "stop"
    """What to do with a step whose loss or gradient is infinite or NaN: stop the run, or leave the step out."""

    device: str = "cpu"
    """Where to train: cpu, where kernels are compiled, or a device that torch has, such as cuda."""

    threads: int | None = None
    """Threads for torch; if not given, one where a step is too small to share, else all cores."""

    def __post_init__(self) -> None:
        for name, hint in get_type_hints(TrainConfig).items():
            choices = get_args(hint)
            if choices and isinstance(choices[0], str) and getattr(self, name) not in choices:
                raise unknown_name(name, getattr(self, name), choices)
        at_most = {
            "threads": MAX_THREADS, "layers": MAX_LAYERS, "hidden": MAX_HIDDEN, "batch_size": MAX_BATCH,
            "epochs": MAX_EPOCHS, "eval_every": MAX_EPOCHS, "patience": MAX_EPOCHS, "norm_every": MAX_EPOCHS,
        }  # fmt: skip
        numbers = (
            "batch_size",
            "epochs",
            "layers",
            "hidden",
            "eval_every",
            "norm_every",
            "threads",
            "seed",
            "patience",
        )
        for name in numbers:
            value = getattr(self, name)
            if name != "threads" or value is not None:
                least = int(name not in ("seed", "patience"))
                whole = require_integer(name, value, at_least=least, at_most=at_most.get(name))
                object.__setattr__(self, name, whole)  # numpy's integers become Python's, which JSON can hold
        for name in ("bias", "residual", "input_layer"):
            flag = getattr(self, name)
            require(isinstance(flag, bool), f"{name} must be True or False, not {flag!r}")
        require(
            isinstance(self.device, str) and self.device != "",
            f"device must be the name of a torch device, such as cpu or cuda, not {self.device!r}",
        )
        require(
            self.normalization == "symmetric" or self.model in ("gcn", "gcnii"),
            f"normalization has no use with model {self.model!r}, which takes the mean or the sum of the neighbors; "
            "leave it out",
        )
        self._check_fan_out()
        require_number("lr", self.lr, "a number above 0", above=0.0)
        require_number("weight_decay", self.weight_decay, "zero or a positive number", at_least=0.0)
        for name in ("dropout", "input_dropout", "label_smoothing"):
            require_number(name, getattr(self, name), "a number in [0, 1)", at_least=0.0, below=1.0)
        for name in ("beta1", "beta2"):
            if getattr(self, name) is not None:
                require_number(name, getattr(self, name), "a number in [0, 1)", at_least=0.0, below=1.0)
        for name in ("nu_min", "clip_norm"):
            if getattr(self, name) is not None:
                require_number(name, getattr(self, name), "a number above 0", above=0.0)

    def _check_fan_out(self) -> None:
        given, hops = self.num_neighbors, self.hops
        require(isinstance(given, tuple), f"num_neighbors must be a tuple of whole numbers, not {given!r}")
        require(len(given) > 0, "num_neighbors is empty, (); give one number, or layers - 1 of them")
        for fan_out in given:
            check_fan_out(fan_out, self.scheme)
        require(
            len(given) in (1, hops),
            f"num_neighbors has {len(given)} entries, {given}, but {self.layers} layers sample at {hops} hops "
            f"({'layer 0 is exact' if hops < self.layers else 'an input layer comes first'}): give "
            f"{f'{hops} entries or ' if hops > 1 else ''}one number",
        )

    @property
    def hops(self) -> int:
        """At how many layers neighbors are sampled."""
        return self.layers - 1 + (self.input_layer or self.model == "gcnii")

    @property
    def aggregation(self) -> Literal["symmetric", "random-walk", "mean", "sum"]:
        """The matrix that aggregates: the model's own, or the normalization of `P`."""
        return "mean" if self.model == "sage" else "sum" if self.model == "gin" else self.normalization

    @property
    def fan_out(self) -> int | tuple[int, ...]:
        """`num_neighbors` as samplers take it: one number for all hops, or one per hop."""
        return self.num_neighbors[0] if len(self.num_neighbors) == 1 else self.num_neighbors

    def to_dict(self) -> dict[str, Any]:
        """All fields as JSON values."""
        return {**asdict(self), "num_neighbors": list(self.num_neighbors)}


@final
@dataclass(frozen=True, kw_only=True)
class CheckpointPlan:
    """When a run that has a folder saves its state; it also does at its end, and when it is stopped."""

    checkpoint_minutes: float = 10.0
    """Save the state every so many minutes, also within an epoch; 0 = not by the clock."""

    checkpoint_epochs: int = 0
    """Save the state after every n-th epoch; 0 = not by epochs."""

    def __post_init__(self) -> None:
        require_number("checkpoint_minutes", self.checkpoint_minutes, "zero or a positive number", at_least=0.0)
        require_integer("checkpoint_epochs", self.checkpoint_epochs, at_least=0)


def make_config(**options: Any) -> TrainConfig:
    """A `TrainConfig` from keyword options; an unknown option is refused with the known ones listed.

    `num_neighbors` may be a number or any sequence of them.

    >>> make_config(num_neighbors=5).fan_out
    5
    """
    known = TrainConfig.__dataclass_fields__
    for name in options:
        if name not in known:
            raise unknown_name("option", name, known)
    if "num_neighbors" in options:
        given = options["num_neighbors"]
        several = isinstance(given, Sequence) and not isinstance(given, str)
        options["num_neighbors"] = tuple(given) if several else (given,)
    return TrainConfig(**options)
