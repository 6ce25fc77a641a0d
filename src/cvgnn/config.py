"""The options of a training run in one frozen dataclass, from which the command line is generated.

This module imports no torch, so that `cvgnn train --help` is fast. Hence the names of the choices are repeated here; a
test keeps them equal to those of the other modules.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Self, final, get_args, get_type_hints

from cvgnn.data.table_options import TableOptions
from cvgnn.errors import CvgnnError, require, require_integer, require_known, require_number, unknown_name
from cvgnn.limits import MAX_BATCH, MAX_DRAWS, MAX_EPOCHS, MAX_HIDDEN, MAX_LAYERS, MAX_THREADS, check_fan_out

IN_MEMORY = "in-memory"
"""The data set name in config.json of a run whose graph was made in Python."""

CUSTOM = "custom:"
"""Begins the name, in config.json, of a part that was given to `fit` as a Python object."""

METRIC_NAMES = (
    "accuracy", "balanced_accuracy", "micro_f1", "macro_f1", "roc_auc", "average_precision", "mse", "mae", "r2",
    "hits_at_k", "mrr",
)  # fmt: skip
LOSSES = ("auto", "cross-entropy")
REGISTERED: dict[str, dict[str, Callable[..., Any]]] = {
    kind: {} for kind in ("model", "estimator", "optimizer", "loss", "task")
}
"""The user's own parts by option and name; `cvgnn.registry` fills it."""


@final
@dataclass(frozen=True, kw_only=True)
class GraphSource(TableOptions):
    """Where a graph comes from: a named data set, or the user's own file or folder."""

    dataset: str | None = None
    """Name of a data set (see cvgnn datasets); the bundled citeseer if neither dataset nor graph is given."""

    root: Path | None = None
    """Folder with the data set's raw files; citeseer needs none."""

    graph: Path | None = None
    """Your own graph: a store, an .npz or .pt file, or a folder of CSV, Parquet or Arrow files (see docs/files.md)."""

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
        super().__post_init__()
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
        """All fields as JSON values; folders as absolute paths, so that they are valid from any working directory."""
        paths = {n: None if (p := getattr(self, n)) is None else str(p.resolve()) for n in ("root", "graph")}
        lists = {n: list(value) for n, value in self.table_options().items() if isinstance(value, tuple)}
        return {**asdict(self), **paths, **lists, "dataset": self.name}

    @property
    def name(self) -> str | None:
        """The data set's name; None for a graph of the user's."""
        return self.dataset or ("citeseer" if self.graph is None else None)


@final
@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Train a graph neural network by Algorithm 1.

    The defaults train the bundled CiteSeer graph in a few seconds. `num_neighbors` may be given as a number or any
    sequence of them, `class_weight` as a list of numbers.

    >>> TrainConfig(num_neighbors=5).num_neighbors
    (5,)
    """

    estimator: Literal["cvd", "cv", "ns", "exact"] = "cvd"
    """How neighbors are aggregated. cvd = sampling with the control variate, dropout separated; cv = the paper's form,
    in which dropout adds variance that grows with the degree; ns = sampling alone; exact = all neighbors."""

    control: float = 1.0
    """Share of the control variate that is used (cvd, cv), from 0 (none, as ns) to 1 (all). Every value is unbiased; a
    smaller one leaves more sampling noise, which can act as a regulariser."""

    scheme: Literal["without-replacement", "with-replacement", "paper", "released"] = "without-replacement"
    """How neighbors are drawn. The first two are unbiased, the paper's footnote and the released code are not."""

    num_neighbors: tuple[int, ...] = (2,)
    """Neighbors drawn for a node, -1 for all: one number, or one for each sampled hop, the batch's own hop first. There
    are layers - 1 hops, because layer 0 is exact; layers of them behind an input layer."""

    sampled_start: int = 0
    """Neighbors drawn for a node at layer 0 in the first epoch, -1 for all. That epoch needs neither P X nor histories
    (its estimator is ns), so training begins at once; both are computed after it. 0 = layer 0 is exact from the first
    step. Pays where P X takes many seconds; 10 is a good value."""

    optimizer: Literal["sgd", "heavy-ball", "adam", "amsgrad", "adagrad", "adamw", "nadam"] = "adam"
    """The rule that turns gradients into steps: the paper's five; adamw and nadam are torch.optim's, which the paper's
    theory does not cover."""

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

    task: Literal["auto", "node", "multilabel", "regression", "edge", "link", "graph"] = "auto"
    """What is learned: node = one class a node, multilabel = any number of labels a node, regression = numbers, edge =
    classes of labelled edges, link = which pairs of nodes are edges, graph = one class a graph of a set; auto = what
    the labels are: classes, a matrix of 0 and 1, or floating point numbers."""

    pool: Literal["mean", "sum", "set"] = "mean"
    """Task graph: what a graph is classified by: mean or sum of the embeddings of its nodes, which are as wide as
    hidden; set = an MLP of mean, maximum and sum."""

    metric: str | None = None
    """Metric on the validation nodes that selects the best epoch; accuracy, micro_f1 or mse if not given, by task (see
    docs/tasks.md)."""

    loss: str = "auto"
    """The loss, a function of logits and labels; auto = the task's: cross entropy or mean squared error; others are
    registered by a --plugin."""

    class_weight: str | None = None
    """Weight of each class in the loss: balanced = the same total for every class, or numbers separated by commas. With
    several labels a node, the weight of the nodes that have the label; balanced = negatives / positives."""

    label_smoothing: float = 0.0
    """Share of each label that the loss spreads over all classes."""

    calibrate: bool = False
    """Whether to divide the logits by a temperature that is fitted on the validation nodes after training, so that the
    probabilities that are predicted agree with how often they are right (task node)."""

    head: Literal["dot", "hadamard-mlp", "concat-mlp"] = "hadamard-mlp"
    """Tasks edge and link: the score of a pair, from the embeddings of its nodes, which are as wide as hidden: their
    inner product, or an MLP on their entrywise product or on both."""

    negatives: Literal["uniform", "degree"] = "uniform"
    """Task link: which pairs are drawn as negatives, one for each edge, never an edge of the graph: any with the same
    probability, or nodes in proportion to their degrees."""

    val_edges: float = 0.05
    """Tasks edge and link: share of the edges that are for validation; link removes them from the graph."""

    test_edges: float = 0.1
    """Tasks edge and link: share of the edges that are for testing; link removes them from the graph."""

    edge_seed: int = 0
    """Tasks edge and link: seed of the random split of the edges, and of the negatives that it is evaluated with."""

    hits_k: int = 50
    """Task link: K of the metric hits_at_k, the share of edges that score above the K-th highest negative."""

    inductive: bool = False
    """Whether the training nodes and the edges among them are all that training sees. Evaluation and prediction are on
    the whole graph in any case."""

    batch_size: int = 512
    """Training nodes in a batch, or edges, or graphs."""

    batches: Literal["shuffle", "replacement"] = "shuffle"
    """shuffle = epochs over a permutation of the training nodes, replacement = independent draws (Algorithm 1)."""

    epochs: int = 100
    """Passes over the training nodes."""

    schedule: Literal["constant", "cosine", "linear"] = "constant"
    """Learning rate along the epochs: constant, or falling to zero by a half cosine or a line."""

    patience: int = 0
    """Stop early if the validation metric has not improved for so many epochs; 0 = train all epochs."""

    model: Literal["gcn", "sage", "gin", "gcnii"] = "gcn"
    """Kind of layers: gcn = the paper's; sage = mean of the neighbors, a separate weight for the node itself; gin = sum
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
    """Whether each layer adds its input, times a separate weight matrix, to its output."""

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

    histories: Literal["memory", "disk"] = "memory"
    """Where histories are kept: disk = in a mapped file, of which the system keeps in memory what fits, in the run's
    folder or that for temporary files. The results are the same."""

    output: Literal["best", "last", "tau"] = "best"
    """Which weights to return: best by validation metric, last, or tau = a uniformly drawn iterate (Algorithm 1)."""

    ema: float = 0.0
    """Decay of an average of the weights over the steps, such as 0.99, that is evaluated and returned instead of the
    weights themselves; 0 = none."""

    eval_every: int = 1
    """Evaluate after every n-th epoch, and after the last."""

    seed: int = 0
    """Seed of weights, batches, neighbor draws and dropout."""

    clip_norm: float | None = None
    """Scale down gradients whose norm over all parameters is larger than this."""

    bad_step: Literal["stop", "skip"] = "stop"
    """What to do with a step whose loss or gradient is infinite or NaN: stop the run, or skip the step."""

    device: str = "cpu"
    """Device to train on: cpu, which has compiled kernels, or another torch device, such as cuda."""

    threads: int | None = None
    """Threads for torch; if not given, one for small steps, else all cores."""

    def __new__(cls, **options: Any) -> Self:
        """A config; a name that is no option is refused with the nearest one, which a dataclass would not name."""
        for name in options:
            require_known("option", name, cls.__dataclass_fields__)
        return super().__new__(cls)

    def __post_init__(self) -> None:
        self._store_sequences()
        for name, hint in get_type_hints(TrainConfig).items():
            choices = get_args(hint)
            if choices and isinstance(choices[0], str) and getattr(self, name) not in choices:
                self._check_own_part(name, choices)
        bounds: dict[str, tuple[int, int | None]] = {
            "batch_size": (1, MAX_BATCH), "epochs": (1, MAX_EPOCHS), "layers": (1, MAX_LAYERS),
            "hidden": (1, MAX_HIDDEN), "eval_every": (1, MAX_EPOCHS), "norm_every": (1, MAX_EPOCHS),
            "threads": (1, MAX_THREADS), "seed": (0, None), "patience": (0, MAX_EPOCHS),
            "edge_seed": (0, None), "hits_k": (1, None),
        }  # fmt: skip
        for name, (at_least, at_most) in bounds.items():
            if (value := getattr(self, name)) is not None or name != "threads":
                number = require_integer(name, value, at_least=at_least, at_most=at_most)
                object.__setattr__(self, name, number)  # numpy's integers become Python's, which JSON can hold
        for name in ("bias", "residual", "input_layer", "calibrate", "inductive"):
            flag = getattr(self, name)
            require(isinstance(flag, bool), f"{name} must be True or False, not {flag!r}")
        require(
            isinstance(self.device, str) and self.device != "",
            f"device must be the name of a torch device, such as cpu or cuda, not {self.device!r}",
        )
        require(
            self.normalization == "symmetric" or self.model not in ("sage", "gin"),
            f"normalization has no use with model {self.model!r}, which takes the mean or the sum of the neighbors; "
            "leave it out",
        )
        require(
            self.ema == 0.0 or (self.norm != "batch" and self.output != "tau"),
            "ema returns an average of the weights, which goes neither with norm='batch', whose statistics belong to "
            "single weights, nor with output='tau'",
        )
        self._check_fan_out()
        self._check_sampled_start()
        require_number("control", self.control, "a number in [0, 1]", at_least=0.0, at_most=1.0)
        require(
            self.control == 1.0 or self.estimator not in ("ns", "exact"),
            f"control has no use with estimator {self.estimator!r}, which has no control variate; leave it out",
        )
        self._check_own_part("loss", LOSSES)
        if self.metric is not None:
            require_known("metric", self.metric, METRIC_NAMES)
        self._check_class_weight()
        require_number("lr", self.lr, "a number above 0", above=0.0)
        require_number("weight_decay", self.weight_decay, "zero or a positive number", at_least=0.0)
        for name in (
            "dropout", "input_dropout", "label_smoothing", "ema", "beta1", "beta2", "val_edges", "test_edges",
        ):  # fmt: skip
            if (value := getattr(self, name)) is not None or not name.startswith("beta"):
                require_number(name, value, "a number in [0, 1)", at_least=0.0, below=1.0)
        for name in ("nu_min", "clip_norm"):
            if (value := getattr(self, name)) is not None:
                require_number(name, value, "a number above 0", above=0.0)

    def _store_sequences(self) -> None:
        """Turn what may be given in several forms into the one that JSON and the command line have."""
        fan_outs: Any = self.num_neighbors
        several = isinstance(fan_outs, Sequence) and not isinstance(fan_outs, str)
        object.__setattr__(self, "num_neighbors", tuple(fan_outs) if several else (fan_outs,))
        weights: Any = self.class_weight
        if weights is not None and not isinstance(weights, str):
            if not isinstance(weights, Iterable) or isinstance(weights, Mapping):  # the numbers of a dict are its keys
                raise CvgnnError(
                    "class_weight must be 'balanced' or a list of numbers, one for each class in their order, not "
                    f"{weights!r}"
                )
            numbers = (getattr(w, "item", lambda w=w: w)() for w in weights)
            object.__setattr__(self, "class_weight", ",".join(map(str, numbers)))

    def _check_fan_out(self) -> None:
        given, hops = self.num_neighbors, self.hops
        require(len(given) > 0, "num_neighbors is empty, (); give one number, or layers - 1 of them")
        for fan_out in given:
            check_fan_out(fan_out, self.scheme)
        require(
            len(given) in (1, hops),
            f"num_neighbors has {len(given)} entries, {given}, but {self.layers} layers sample at {hops} hops "
            f"({'layer 0 is exact' if hops < self.layers else 'an input layer comes first'}): give "
            f"{f'{hops} entries or ' if hops > 1 else ''}one number",
        )

    def _check_sampled_start(self) -> None:
        start = require_integer("sampled_start", self.sampled_start, at_least=-1, at_most=MAX_DRAWS)
        object.__setattr__(self, "sampled_start", start)
        if start == 0:
            return
        for refused, what in (
            (self.hops == self.layers, "an input layer (that of gcnii, too), behind which every layer is sampled"),
            (self.norm == "batch", "norm='batch', whose statistics come from an exact pass before the first step"),
            (self.device != "cpu", f"device={self.device!r}"),
        ):
            require(not refused, f"sampled_start does not go with {what}; leave it out")

    def _check_own_part(self, name: str, built_in: Sequence[str]) -> None:
        """Raise unless the part is built in, registered, or was given as an object."""
        value = getattr(self, name)
        known = [*built_in, *REGISTERED.get(name, ())]  # not the dict: a value may be unhashable
        # Bounded, because the name may come from anybody's config.json and is printed.
        custom = name in REGISTERED and isinstance(value, str) and value.startswith(CUSTOM) and len(value) <= 120
        if value not in known and not custom:
            raise unknown_name(name, value, known)

    def _check_class_weight(self) -> None:
        given = self.class_weight
        if given is None or given == "balanced":
            return
        try:
            valid = all(0 <= float(number) < math.inf for number in given.split(","))
        except (AttributeError, ValueError):
            valid = False
        require(valid, f"class_weight must be 'balanced' or one number of at least 0 for each class, not {given!r}")

    @property
    def hops(self) -> int:
        """Number of layers that sample neighbors."""
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
