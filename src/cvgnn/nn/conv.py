"""Convolutions with a fixed linear aggregation: what a layer does with its aggregated and its own rows.

Legend: `S` the aggregate of `H` (or of `X`), `H` the node's own row after dropout, `H_0` the first layer's own row,
`W`, `b` parameters, `Z` what goes into norm and activation. A layer of your own is one subclass of `Conv`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import ClassVar, Literal, NamedTuple, final, get_args

import torch
from torch import Tensor, nn

from cvgnn.ops.affine import Affine
from cvgnn.ops.fused_layer import EPS, Activation, activation_function, affine
from cvgnn.ops.row_input import LayerInput

Init = Literal["uniform", "glorot"]
INITS: tuple[str, ...] = get_args(Init)


class Inputs(NamedTuple):
    """What a layer reads, a row for each of its nodes. An input supports `input @ W`; layer 0's are no tensors.

    What a layer does not use may be None: the annotations are those of the inputs that it declares.

    Args:
        aggregate: `S`: rows of `P X` at layer 0, else the estimate of `P H`; for a layer that `uses_aggregate`.
        own: `H`: rows of `X` at layer 0; for a layer that `uses_own`.
        initial: `H_0`; for a layer that `uses_initial`.
    """

    aggregate: LayerInput
    own: LayerInput
    initial: Tensor


class Conv(nn.Module, ABC):
    """One layer: `Z` from the aggregated rows and, if it wants them, the node's own.

    Args:
        in_channels: `d_k`.
        out_channels: `d_{k+1}`.
        bias: whether there is a `b`.
        position: which of the network's convolutions this is, from 1.
        activation: of the network, for layers with one inside.
        dtype: of the parameters.
    """

    normalization: ClassVar[str | None] = None
    """The matrix that aggregates: "mean" or "sum"; None for the network's `P`, symmetric or random-walk."""

    uses_aggregate: ClassVar[bool] = True
    uses_own: ClassVar[bool] = False
    uses_initial: ClassVar[bool] = False
    """An input layer computes `H_0`, and in_channels = out_channels."""

    only_multiplies: ClassVar[bool] = False
    """Whether `forward` does nothing with the aggregate but multiply it: then it is summed together with the product,
    and in layers above the first it is no tensor either."""

    bias: Tensor | None
    residual_weight: Tensor | None

    def __init_subclass__(cls) -> None:
        if "forward" in vars(cls):  # what a base class says of its forward does not hold for another one
            cls.only_multiplies = vars(cls).get("only_multiplies", False)

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        bias: bool = True,
        position: int = 1,
        activation: Activation = "relu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.position = position
        self.activation = activation
        self.weight = nn.Parameter(torch.empty(in_channels, out_channels, dtype=dtype))
        self.register_parameter("bias", nn.Parameter(torch.empty(out_channels, dtype=dtype)) if bias else None)
        self.norm: nn.Module | None = None  # set by the network, as is the residual weight
        self.register_parameter("residual_weight", None)

    @abstractmethod
    def forward(self, x: Inputs) -> Affine | Tensor:
        """`Z`, `[n, d_{k+1}]`: an `Affine`, which is computed together with what follows, or any tensor."""

    def reset_parameters(self, generator: torch.Generator, init: Init = "uniform") -> None:
        """Draw the parameters.

        `"uniform"`: on +-1/sqrt(d_k) for `W` and `b`, as `torch.nn.Linear`; `"glorot"`: on +-sqrt(6/(d_k + d_{k+1}))
        for `W` and 0 for `b`, as most GCNs. What is neither a matrix nor named bias starts at 0.
        """
        # A bias takes the bound of the matrix registered before it, as in torch.nn.Linear.
        bound = 0.0
        with torch.no_grad():
            for name, p in self.named_parameters(recurse=False):
                if p.dim() == 2:
                    d_in, d_out = p.shape
                    bound = math.sqrt(6.0 / (d_in + d_out)) if init == "glorot" else 1.0 / math.sqrt(d_in)
                if p.dim() == 2 or name.endswith("bias"):
                    p.uniform_(-bound, bound, generator=generator)
                    # glorot's biases are drawn, then zeroed: both inits consume the same random numbers.
                    p.mul_(p.dim() == 2 or init != "glorot")
                else:
                    p.zero_()
            if self.norm is not None:
                self.norm.reset_parameters()  # type: ignore[operator]


@final
class Linear(Conv):
    """`Z = H W + b`: an input layer, which aggregates nothing."""

    uses_aggregate = False
    uses_own = True

    def forward(self, x: Inputs) -> Affine:
        """See `Conv.forward`."""
        return Affine(((x.own, self.weight),), self.bias)


@final
class GCNConv(Conv):
    """`Z = S W + b` (eq. 5)."""

    only_multiplies = True

    def forward(self, x: Inputs) -> Affine:
        """See `Conv.forward`."""
        return Affine(((x.aggregate, self.weight),), self.bias)


@final
class SAGEConv(Conv):
    """`Z = S W + H W_own + b`, `S` the mean over the neighbors (Hamilton et al. 2017)."""

    only_multiplies = True
    normalization = "mean"
    uses_own = True

    def __init__(self, in_channels: int, out_channels: int, **options: object) -> None:
        super().__init__(in_channels, out_channels, **options)  # type: ignore[arg-type]
        # Not empty_like, which imports sympy on the meta device.
        self.own_weight = nn.Parameter(torch.empty(self.weight.shape, dtype=self.weight.dtype))

    def forward(self, x: Inputs) -> Affine:
        """See `Conv.forward`."""
        return Affine(((x.aggregate, self.weight), (x.own, self.own_weight)), self.bias)


@final
class GINConv(Conv):
    """`Z = act((S + (1 + eps) H) W + b) W_out + b_out`, `S` the sum over the neighbors (Xu et al. 2019).

    The first product is linear in `S` and `H`, so layer 0 needs `A X` and `X` and nothing is sampled for it.
    """

    only_multiplies = True
    normalization = "sum"
    uses_own = True
    out_bias: Tensor | None

    def __init__(self, in_channels: int, out_channels: int, *, bias: bool = True, **options: object) -> None:
        super().__init__(in_channels, out_channels, bias=bias, **options)  # type: ignore[arg-type]
        like = self.weight
        self.out_weight = nn.Parameter(like.new_empty(out_channels, out_channels))
        self.register_parameter("out_bias", nn.Parameter(like.new_empty(out_channels)) if bias else None)
        self.eps = nn.Parameter(like.new_zeros(1))

    def forward(self, x: Inputs) -> Affine:
        """See `Conv.forward`."""
        # (S + (1 + eps) H) W as two products, so that layer 0's rows of A X and X are never added up as matrices.
        terms = ((x.aggregate, self.weight), (x.own, (1 + self.eps) * self.weight))
        U = activation_function(self.activation)(affine(Affine(terms, self.bias)))
        return Affine(((U, self.out_weight),), self.out_bias)


@final
class GCNIIConv(Conv):
    """`Z = ((1 - alpha) S + alpha H_0) ((1 - beta) I + beta W)`, `beta = log(theta / position + 1)` (Chen et al. 2020).

    Args:
        alpha: share of the initial residual.
        theta: how much of `W` there is beside the identity; it falls with the depth.
    """

    only_multiplies = True
    uses_initial = True

    def __init__(
        self, in_channels: int, out_channels: int, *, bias: bool = False, alpha: float = 0.1, theta: float = 0.5,
        **options: object,
    ) -> None:  # fmt: skip
        super().__init__(in_channels, out_channels, bias=False, **options)  # type: ignore[arg-type]
        self.alpha = alpha
        self.beta = math.log(theta / self.position + 1)

    def forward(self, x: Inputs) -> Affine:
        """See `Conv.forward`."""
        # The identity mapping is folded into the weight, [d, d], instead of a sum of two matrices of n rows.
        M = self.beta * self.weight
        M = M + (1 - self.beta) * torch.eye(len(M), dtype=M.dtype, device=M.device)
        return Affine(((x.aggregate, (1 - self.alpha) * M), (x.initial, self.alpha * M)))


@final
class BatchNorm(nn.Module):
    """`(Z - mean) / sqrt(var + eps) gain + shift` by columns, with the mean and variance of an exact pass.

    A batch holds targets and sampled neighbors, whose mixture has other statistics than the graph. So mean and variance
    are constants, taken over all nodes by `Network.refresh_statistics` and kept until the next time. Training and
    inference then compute the same function, and the norm costs a step nothing: it is folded into weights and bias.

    Args:
        channels: `d`.
        dtype: of the parameters.
    """

    mean: Tensor
    var: Tensor

    def __init__(self, channels: int, *, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels, dtype=dtype))
        self.bias = nn.Parameter(torch.zeros(channels, dtype=dtype))
        self.register_buffer("mean", torch.zeros(channels, dtype=dtype))
        self.register_buffer("var", torch.ones(channels, dtype=dtype))

    def reset_parameters(self) -> None:
        """The identity."""
        for tensor, value in ((self.weight, 1.0), (self.bias, 0.0), (self.mean, 0.0), (self.var, 1.0)):
            nn.init.constant_(tensor, value)

    @torch.no_grad()
    def refresh(self, Z: Tensor) -> None:
        """Take the statistics of `Z`, `[N, d]`, all nodes."""
        var, mean = torch.var_mean(Z, dim=0, correction=0)  # biased, as BatchNorm normalises with
        self.var.copy_(var)
        self.mean.copy_(mean)

    def forward(self, Z: Affine) -> Affine:
        """The same as an affine map: `sum_j A_j (W_j s) + (b - mean) s + shift` with `s = gain / sqrt(var + eps)`."""
        s = self.weight * torch.rsqrt(self.var + EPS)
        # Scaling the columns of W_j scales those of Z: the norm costs d_j d multiplications, whatever the rows.
        bias = -self.mean if Z.bias is None else Z.bias - self.mean
        terms = tuple((A * s, None) if W is None else (A, W * s) for A, W in Z.terms)  # type: ignore[operator]
        return Affine(terms, bias * s + self.bias)
