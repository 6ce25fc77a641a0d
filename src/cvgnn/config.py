"""Everything that defines a training run, in one frozen dataclass; the command line is made from it.

This file imports no torch, so that `cvgnn train --help` answers at once. The names of the choices are spelled out here
and a test holds them equal to those of the parts.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal, final, get_args, get_type_hints

from cvgnn.errors import CvgnnError, require, unknown_name


@final
@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Train a graph convolutional network by Algorithm 1.

    The defaults train the bundled CiteSeer graph in a few seconds.
    """

    estimator: Literal["cv", "ns", "exact"] = "cv"
    """How neighbors are aggregated: cv = sampling with the control variate over historical embeddings (the method),
    ns = neighbor sampling alone, exact = all neighbors."""

    scheme: Literal["without-replacement", "with-replacement", "paper", "released"] = "without-replacement"
    """How neighbors are drawn. The first two are unbiased; paper and released reproduce the paper's footnote and the
    published code, which are not."""

    num_neighbors: tuple[int, ...] = (2,)
    """Fan-out: neighbors drawn for a node, -1 for all. One number, or one per hop (layers - 1 of them), the hop next
    to the batch first. Layer 0 is exact and draws nothing."""

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

    batch_size: int = 20
    """Training nodes in a batch."""

    batches: Literal["shuffle", "replacement"] = "shuffle"
    """shuffle = epochs over a permutation of the training nodes, replacement = independent draws (Algorithm 1)."""

    epochs: int = 100
    """Passes over the training nodes."""

    layers: int = 2
    """Depth K of the network."""

    hidden: int = 32
    """Width of the hidden layers."""

    norm: Literal["layer", "none"] = "layer"
    """Normalisation in hidden layers: layer = LayerNorm (the paper's experiments), none = the paper's text."""

    bias: bool = True
    """Whether layers have a bias (the paper's experiments do, its text does not)."""

    dropout: float = 0.5
    """Share of hidden entries dropped in training."""

    normalization: Literal["symmetric", "random-walk"] = "symmetric"
    """Of the propagation matrix P."""

    history_dtype: Literal["float32", "bfloat16"] = "float32"
    """How histories are stored; bfloat16 halves their memory."""

    output: Literal["best", "last", "tau"] = "best"
    """Which weights to return: best by validation accuracy, last, or tau = a uniformly drawn iterate (Algorithm 1)."""

    eval_every: int = 1
    """Evaluate after every n-th epoch, and after the last."""

    seed: int = 0
    """Of weights, batches, neighbor draws and dropout."""

    threads: int | None = None
    """Threads for torch; torch's own choice if not given."""

    def __post_init__(self) -> None:
        for name, hint in get_type_hints(TrainConfig).items():
            choices = get_args(hint)
            if choices and isinstance(choices[0], str) and getattr(self, name) not in choices:
                raise unknown_name(name, getattr(self, name), choices)
        for name in ("batch_size", "epochs", "layers", "hidden", "eval_every"):
            _require_integer(name, getattr(self, name), at_least=1)
        if self.threads is not None:
            _require_integer("threads", self.threads, at_least=1)
        _require_integer("seed", self.seed, at_least=0)
        require(len(self.num_neighbors) > 0, "num_neighbors is empty; give one number, or layers - 1 of them")
        for fan_out in self.num_neighbors:
            require(
                isinstance(fan_out, int) and (fan_out == -1 or fan_out >= 1),
                f"num_neighbors must be at least 1, or -1 for all neighbors; it is {fan_out}",
            )
        hops = self.layers - 1
        require(
            len(self.num_neighbors) in (1, hops),
            f"num_neighbors has {len(self.num_neighbors)} entries, but {self.layers} layers sample at {hops} hops "
            f"(layer 0 is exact): give {f'{hops} entries or ' if hops > 1 else ''}one number",
        )
        require(_is_finite(self.lr) and self.lr > 0, f"lr must be a positive number, not {self.lr}")
        require(0 <= self.dropout < 1, f"dropout must lie in [0, 1), not {self.dropout}")
        require(
            _is_finite(self.weight_decay) and self.weight_decay >= 0,
            f"weight_decay must be zero or positive, not {self.weight_decay}",
        )
        for name in ("beta1", "beta2"):
            beta = getattr(self, name)
            require(beta is None or 0 <= beta < 1, f"{name} must lie in [0, 1), not {beta}")
        require(
            self.nu_min is None or (_is_finite(self.nu_min) and self.nu_min > 0),
            f"nu_min must be a positive number, not {self.nu_min}",
        )

    @property
    def fan_out(self) -> int | tuple[int, ...]:
        """`num_neighbors` as samplers take it: one number for all hops, or one per hop."""
        return self.num_neighbors[0] if len(self.num_neighbors) == 1 else self.num_neighbors

    def to_dict(self) -> dict[str, Any]:
        """All fields as JSON values."""
        return {**asdict(self), "num_neighbors": list(self.num_neighbors)}


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
        options["num_neighbors"] = (given,) if isinstance(given, int) else tuple(given)
    return TrainConfig(**options)


def _require_integer(name: str, value: object, *, at_least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < at_least:
        raise CvgnnError(f"{name} must be a whole number of at least {at_least}, not {value!r}")


def _is_finite(value: float) -> bool:
    return math.isfinite(value)
