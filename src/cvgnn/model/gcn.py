"""The graph convolutional network: one forward pass for every estimator.

Legend: `Z^(k+1) = (aggregate of H^(k)) W^(k) [+ b]`, `H^(k+1) = sigma(Z^(k+1))` (eq. 5 and 6); in hidden layers
`sigma` is [LayerNorm,] ReLU, then dropout on what is propagated; the last layer's `Z^(K)` are the logits.
"""

from __future__ import annotations

import itertools
import math
from typing import Literal, final, get_args

import torch
from torch import Tensor, nn

from cvgnn.errors import CvgnnError, require, require_integer, require_number, unknown_name
from cvgnn.estimator import Estimator
from cvgnn.model.hidden import EPS, Sigma, activate_and_aggregate
from cvgnn.ops.dropout import Dropout
from cvgnn.ops.input_dropout import dropped
from cvgnn.ops.matmul import linear
from cvgnn.rng import Purpose, derive
from cvgnn.sampling import Batch

Norm = Literal["layer", "none"]
NORMS: tuple[str, ...] = get_args(Norm)
Init = Literal["uniform", "glorot"]
INITS: tuple[str, ...] = get_args(Init)


@final
class GCNLayer(nn.Module):
    """The parameters of one layer: `Z = A W [+ b]` for an aggregated input `A`, and `sigma(Z) = ReLU([LayerNorm] Z)`.

    Args:
        in_channels: `d_k`.
        out_channels: `d_{k+1}`.
        bias: whether there is a `b`.
        norm: whether `sigma` starts with a LayerNorm.
    """

    bias: Tensor | None

    def __init__(self, in_channels: int, out_channels: int, *, bias: bool, norm: bool, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(in_channels, out_channels, dtype=dtype))
        self.register_parameter("bias", nn.Parameter(torch.empty(out_channels, dtype=dtype)) if bias else None)
        self.norm = nn.LayerNorm(out_channels, dtype=dtype) if norm else None

    def reset_parameters(self, generator: torch.Generator, init: Init = "uniform") -> None:
        """`"uniform"`: on +-1/sqrt(d_k) for `W` and `b`, as `torch.nn.Linear`; `"glorot"`: on +-sqrt(6/(d_k + d_{k+1}))
        for `W` and 0 for `b`, as most GCNs. LayerNorm starts as the identity."""
        d_in, d_out = self.weight.shape
        bound = math.sqrt(6.0 / (d_in + d_out)) if init == "glorot" else 1.0 / math.sqrt(d_in)
        with torch.no_grad():
            self.weight.uniform_(-bound, bound, generator=generator)
            if self.bias is not None:
                self.bias.uniform_(-bound, bound, generator=generator)
                self.bias.mul_(init != "glorot")
            if self.norm is not None:
                self.norm.reset_parameters()

    @property
    def sigma(self) -> Sigma:
        """The bias, and LayerNorm's gain and shift."""
        norm = self.norm
        if norm is None:
            return Sigma(self.bias, None, None)
        gain, shift = norm._parameters.get("weight"), norm._parameters.get("bias")
        if type(norm) is not nn.LayerNorm or gain is None or shift is None or norm.eps != EPS:
            raise CvgnnError(f"a layer's norm must be the LayerNorm it was built with, not {norm}")
        return Sigma(self.bias, gain, shift)


@final
class GCN(nn.Module):
    """A `K`-layer GCN.

    Args:
        in_channels: `d_0`, the number of features.
        hidden_channels: `d_1 = ... = d_{K-1}`.
        out_channels: `d_K`, the number of classes.
        num_layers: `K >= 1`.
        norm: `"layer"` (the paper's experiments) or `"none"` (its text).
        bias: whether layers have a bias (the paper's experiments: yes; its text: no).
        dropout: probability that an entry of `H^(k)`, `1 <= k < K`, is dropped in training.
        input_dropout: the same for the rows of `P X` that layer 0 reads.
        init: how `W_1` is drawn, see `GCNLayer.reset_parameters`.
        seed: of the initial weights and of dropout.
        dtype: float32 or float64.
    """

    def __init__(
        self,
        *,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        num_layers: int = 2,
        norm: Norm = "layer",
        bias: bool = True,
        dropout: float = 0.0,
        input_dropout: float = 0.0,
        init: Init = "uniform",
        seed: int = 0,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        if norm not in NORMS:
            raise unknown_name("norm", norm, NORMS)
        if init not in INITS:
            raise unknown_name("init", init, INITS)
        require_integer("layers", num_layers, at_least=1)
        require_integer("in_channels", in_channels, at_least=1)
        require_integer("hidden", hidden_channels, at_least=1)
        require_integer("out_channels", out_channels, at_least=1)
        require_integer("seed", seed, at_least=0)
        require_number("dropout", dropout, "a number in [0, 1)", at_least=0.0, below=1.0)
        require_number("input_dropout", input_dropout, "a number in [0, 1)", at_least=0.0, below=1.0)
        require(dtype in (torch.float32, torch.float64), f"dtype must be torch.float32 or torch.float64, not {dtype}")
        require(isinstance(bias, bool), f"bias must be True or False, not {bias!r}")
        widths = [in_channels, *[hidden_channels] * (num_layers - 1), out_channels]
        self.num_layers = num_layers
        self.dropout = dropout
        self.input_dropout = input_dropout
        self.init = init
        self.seed = seed
        self.layers = nn.ModuleList(
            GCNLayer(d_in, d_out, bias=bias, norm=norm == "layer" and k < num_layers - 1, dtype=dtype)
            for k, (d_in, d_out) in enumerate(itertools.pairwise(widths))
        )
        self.reset_parameters()

    @property
    def hidden_widths(self) -> list[int]:
        """`d_1..d_{K-1}`: the widths of the histories."""
        return [self.layer(k).weight.shape[1] for k in range(self.num_layers - 1)]

    @property
    def in_order(self) -> list[GCNLayer]:
        """The layers, first to last."""
        return list(self.layers._modules.values())  # type: ignore[arg-type]

    def layer(self, k: int) -> GCNLayer:
        """Layer `k`, with `W^(k)`, `0 <= k < K`."""
        return self.in_order[k]

    def reset_parameters(self) -> None:
        """Draw `W_1`, a pure function of the seed."""
        generator = torch.Generator().manual_seed(derive(self.seed, Purpose.WEIGHTS) >> 1)
        for k in range(self.num_layers):
            self.layer(k).reset_parameters(generator, self.init)

    def forward(self, batch: Batch, estimator: Estimator) -> Tensor:
        """`Z^(K)[r^(K)]`, the logits of the batch's distinct nodes (Algorithm 1, lines 6 to 9).

        Args:
            batch: the step's ids, receptive fields and sampled matrices.
            estimator: gives the aggregated inputs and stages history writes.

        Returns:
            `[|r^(K)|, C]`.
        """
        self.check_batch(batch)
        A = dropped(estimator.input(batch), self.dropout_at(batch.step, 0))
        for k in range(1, self.num_layers):
            layer = self.layer(k - 1)
            H, A = activate_and_aggregate(
                linear(A, layer.weight),
                layer.sigma,
                drop=self.dropout_at(batch.step, k),
                block=batch.block(k),
                correction=estimator.correction(k, batch),
            )
            estimator.keep(k, batch, H)
        last = self.layer(self.num_layers - 1)
        return linear(A, last.weight, last.bias)

    def check_batch(self, batch: Batch) -> None:
        """Refuse a batch that was drawn for another number of layers."""
        if len(batch.blocks) != self.num_layers - 1:
            raise CvgnnError(
                f"the batch was drawn for {len(batch.blocks) + 1} layers, the model has {self.num_layers}: give the "
                "sampler the model's num_layers"
            )

    def dropout_at(self, step: int, k: int) -> Dropout | None:
        """What is dropped of `H^(k)`, of `P X` for `k = 0`: a pure function of (seed, step, layer)."""
        p = self.dropout if k else self.input_dropout
        if not self.training or p == 0.0:
            return None
        return Dropout.at(p, seed=self.seed, step=step, k=k)
