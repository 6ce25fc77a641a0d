"""The network: one forward pass for every layer type and estimator, for training and for exact inference.

Legend: `Z^(k+1) = conv(aggregate of H^(k), own H^(k))`, `H^(k+1) = sigma(Z^(k+1))` (eq. 5 and 6); in hidden layers
`sigma` is [norm,] activation, then dropout on what is used of it; the last layer's `Z^(K)` are the logits.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from cvgnn.errors import CvgnnError, require, require_integer, require_known, require_number
from cvgnn.nn.conv import INITS, BatchNorm, Conv, GCNConv, GCNIIConv, GINConv, Init, Inputs, Linear, SAGEConv
from cvgnn.nn.estimators import Estimator
from cvgnn.ops.affine import Affine
from cvgnn.ops.dropout import Dropout
from cvgnn.ops.fused_layer import ACTIVATIONS, EPS, Activation, Sigma, affine
from cvgnn.rng import Purpose, derive
from cvgnn.sampling import Batch

Norm = Literal["layer", "batch", "none"]
NORMS: tuple[str, ...] = get_args(Norm)
JumpingKnowledge = Literal["last", "concat"]
JUMPS: tuple[str, ...] = get_args(JumpingKnowledge)


class Network(nn.Module):
    """Layers of one kind of convolution.

    Args:
        conv: the class of the layers, a subclass of `Conv`; that of the subclass if not given.
        in_channels: `d_0`, the number of features.
        hidden_channels: the width of the hidden layers.
        out_channels: the number of classes.
        num_layers: how many convolutions.
        norm: in hidden layers: `"layer"` (the paper's experiments), `"batch"` (see `BatchNorm`) or `"none"` (its text).
        bias: whether layers have a bias (the paper's experiments: yes; its text: no).
        residual: whether each layer adds its own input, times a matrix, to `Z`.
        activation: `"relu"`, `"elu"` or `"gelu"`.
        jk: what the logits are made of: `"last"`: the last layer; `"concat"`: the outputs of all convolutions, by a
            linear head (jumping knowledge).
        input_layer: whether a linear layer on `X` comes first. Then the first convolution is sampled, too.
        dropout: probability that an entry of a hidden layer's output is dropped in training.
        input_dropout: the same for the rows of `P X` and `X` that layer 0 reads.
        init: how `W_1` is drawn, see `Conv.reset_parameters`.
        seed: of the initial weights and of dropout.
        dtype: float32 or float64.
        conv_options: further arguments of `conv`, such as `alpha` and `theta` of GCNII.
    """

    conv: type[Conv]

    def __init__(
        self,
        conv: type[Conv] | None = None,
        *,
        in_channels: int,
        hidden_channels: int = 64,
        out_channels: int,
        num_layers: int = 2,
        norm: Norm = "none",
        bias: bool = True,
        residual: bool = False,
        activation: Activation = "relu",
        jk: JumpingKnowledge = "last",
        input_layer: bool = False,
        dropout: float = 0.5,
        input_dropout: float = 0.0,
        init: Init = "uniform",
        seed: int = 0,
        dtype: torch.dtype = torch.float32,
        **conv_options: float,
    ) -> None:
        super().__init__()
        conv = conv or self.conv
        choices = (("norm", norm, NORMS), ("init", init, INITS), ("activation", activation, ACTIVATIONS))
        for name, value, allowed in (*choices, ("jk", jk, JUMPS)):
            require_known(name, value, allowed)
        sizes = {"in_channels": in_channels, "hidden_channels": hidden_channels, "out_channels": out_channels}
        for name, size in {**sizes, "num_layers": num_layers}.items():
            require_integer(name, size, at_least=1)
        require_integer("seed", seed, at_least=0)
        require_number("dropout", dropout, "a number in [0, 1)", at_least=0.0, below=1.0)
        require_number("input_dropout", input_dropout, "a number in [0, 1)", at_least=0.0, below=1.0)
        require(dtype in (torch.float32, torch.float64), f"dtype must be torch.float32 or torch.float64, not {dtype}")
        for name, flag in (("bias", bias), ("residual", residual), ("input_layer", input_layer)):
            require(isinstance(flag, bool), f"{name} must be True or False, not {flag!r}")
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.dropout = dropout
        self.input_dropout = input_dropout
        self.activation = activation
        self.jk = jk
        self.init = init
        self.seed = seed
        # GCNII is H_0 = act(X W), convolutions of one width, and a linear head (Chen et al. 2020).
        input_layer = input_layer or conv.uses_initial
        headed = jk == "concat" or conv.uses_initial
        width = hidden_channels if input_layer else in_channels
        layers: list[Conv] = [Linear(in_channels, width, bias=bias, dtype=dtype)] if input_layer else []
        for i in range(num_layers):
            d = hidden_channels if headed or i < num_layers - 1 else out_channels
            layers.append(conv(width, d, bias=bias, position=i + 1, activation=activation, dtype=dtype, **conv_options))
            if residual:
                layers[-1].residual_weight = nn.Parameter(torch.empty(width, d, dtype=dtype))
            width = d
        for layer in layers if headed else layers[:-1]:
            d = _out_channels(layer)
            if norm != "none":
                layer.norm = BatchNorm(d, dtype=dtype) if norm == "batch" else nn.LayerNorm(d, dtype=dtype, eps=EPS)
        self.layers = nn.ModuleList(layers)
        self.head: Linear | None = None
        if headed:
            self.head = Linear(num_layers * width if jk == "concat" else width, out_channels, bias=bias, dtype=dtype)
        # A task's own weights on top of the outputs: used by the task, trained, saved and averaged with the others.
        self.readout: nn.Module | None = None
        self.has_statistics = norm == "batch"  # a BatchNorm's must be refreshed
        self._aggregated = layers[0].uses_aggregate
        # Whether anything reads the own rows of H^(k), of X for k = 0: the layer above, the head, or all of them.
        everywhere = jk == "concat" or conv.uses_initial
        reads = [layer.uses_own or layer.residual_weight is not None for layer in layers]
        self._own = [(k > 0 and everywhere) or own for k, own in enumerate([*reads, headed])]
        self.reset_parameters()

    @property
    def num_layers(self) -> int:
        """`K`, a linear input layer included: the sampler's `num_layers`. `K - 1` hops are sampled."""
        return len(self.layers)

    @property
    def hidden_widths(self) -> list[int]:
        """`d_1..d_{K-1}`: the widths of the histories."""
        return [_out_channels(self.layer(k)) for k in range(self.num_layers - 1)]

    @property
    def normalization(self) -> str | None:
        """The aggregation that this network needs, `"mean"` or `"sum"`; None where the choice is the user's."""
        return self.layer(self.num_layers - 1).normalization

    @property
    def reads(self) -> tuple[bool, bool]:
        """Whether layer 0 reads rows of `P X`, and whether it reads rows of `X`."""
        return self._aggregated, self._own[0]

    def layer(self, k: int) -> Conv:
        """Layer `k`, `0 <= k < K`."""
        return self.layers[k]  # type: ignore[return-value]

    def reset_parameters(self) -> None:
        """Draw `W_1`, a pure function of the seed."""
        # A generator of its own, not torch's global one; its seed must fit into an int64.
        generator = torch.Generator().manual_seed(derive(self.seed, Purpose.WEIGHTS) >> 1)
        for k in range(self.num_layers):
            self.layer(k).reset_parameters(generator, self.init)
        if self.head is not None:
            self.head.reset_parameters(generator, self.init)

    def forward(self, batch: Batch, estimator: Estimator) -> Tensor:
        """`Z^(K)[r^(K)]`, the logits of the batch's distinct nodes (Algorithm 1, lines 6 to 9).

        Args:
            batch: the step's ids, receptive fields and sampled matrices.
            estimator: gives the aggregated inputs and stages history writes.

        Returns:
            `[|r^(K)|, C]`.
        """
        try:
            return collections.deque(self.trace(batch, estimator), maxlen=1).pop()[1]
        except BaseException:
            estimator.discard()  # of half a step nothing is written
            raise

    def trace(
        self, batch: Batch | None, estimator: Estimator, *, linear: bool = False, refresh: bool = False
    ) -> Iterator[tuple[str, Tensor]]:
        """The forward pass, layer by layer, with the name of each tensor.

        Args:
            batch: what the step has drawn; None with an estimator that computes all nodes (`nn.inference`).
            estimator: see `forward`.
            linear: whether to compute and yield `Z^(k)` of hidden layers, too.
            refresh: whether each `BatchNorm` takes the statistics of the `Z` that it meets.

        Yields:
            `H^(k)` and `S^(k)`, the estimate of its aggregate, for each hidden layer; at last the logits.
        """
        layers: list[Conv] = list(self.layers)  # type: ignore[arg-type]
        K, (aggregated, own) = len(layers), self.reads
        if batch is not None and len(batch.blocks) != K - 1:
            raise CvgnnError(
                f"the batch was drawn for {len(batch.blocks) + 1} layers, the model has {K}: give the sampler "
                "num_layers=model.num_layers"
            )
        unread: Any = None  # an input that the layer does not use
        x = Inputs(
            estimator.input(batch).dropped(self._dropout_at(estimator, batch, 0)) if aggregated else unread,
            estimator.own_input(batch).dropped(self._dropout_at(estimator, batch, 0, own=True)) if own else unread,
            unread,
        )
        jumps: list[Tensor] = []
        for k, layer in enumerate(layers, start=1):
            # An Affine is not computed here: the fused layer forms Z row by row together with sigma and the sum.
            Z = self.affine_of(layer, x, refresh)
            if k == K and self.head is None:
                yield f"Z^({K})", affine(Z)
                return
            if linear:
                yield f"Z^({k})", affine(Z)
            out = estimator.propagate(
                k, batch, Z, self.sigma_of(layer), drop=self._dropout_at(estimator, batch, k), own=self._own[k],
                lazy=k < K and layers[k].only_multiplies and not linear,
            )  # fmt: skip
            yield f"H^({k})", out.H
            if isinstance(out.aggregate, Tensor):
                yield f"S^({k})", out.aggregate
            own_rows: Any = out.own
            if self.jk == "concat" and layer.uses_aggregate:
                jumps.append(own_rows)
            x = Inputs(unread if out.aggregate is None else out.aggregate, own_rows, own_rows if k == 1 else x.initial)
            if x.initial is not None and own_rows is not None:  # nodes of the layers above come first in all of them
                x = x._replace(initial=x.initial[: len(own_rows)])
        if jumps:
            x = x._replace(own=torch.cat([rows[: len(jumps[-1])] for rows in jumps], dim=1))
        assert self.head is not None
        yield f"Z^({K + 1})", affine(self.head(x))

    def affine_of(self, layer: Conv, x: Inputs, refresh: bool) -> Affine:
        """`Z` of a layer, with its residual and a BatchNorm folded in."""
        Z = layer(x)
        if isinstance(Z, Tensor):
            Z = Affine(((Z, None),))
        if (weight := layer.residual_weight) is not None:
            Z = Affine((*Z.terms, (x.own, weight)), Z.bias)
        norm = layer.norm
        if isinstance(norm, BatchNorm):
            if refresh:
                norm.refresh(affine(Z))
            Z = norm(Z)
        return Z  # type: ignore[no-any-return]

    def sigma_of(self, layer: Conv) -> Sigma:
        """Norm and activation of a hidden layer, a `BatchNorm` left out, which `affine_of` folds in."""
        norm = layer.norm
        if norm is None or isinstance(norm, BatchNorm):
            return Sigma(None, None, self.activation)
        # The kernels have LayerNorm with gain, shift and this eps compiled in; they would ignore another norm silently.
        gain, shift = (norm.weight, norm.bias) if isinstance(norm, nn.LayerNorm) and norm.eps == EPS else (None, None)
        if gain is None or shift is None:
            raise CvgnnError(f"a layer's norm must be the LayerNorm it was built with, not {norm}")
        return Sigma(gain, shift, self.activation)

    def _dropout_at(self, estimator: Estimator, batch: Batch | None, k: int, *, own: bool = False) -> Dropout | None:
        """What is dropped of `H^(k)`, of `P X` or `X` for `k = 0`: a pure function of (seed, step, layer)."""
        p = self.dropout if k else self.input_dropout
        if p == 0.0 or batch is None or not self.training:
            return None
        return Dropout.at(p, seed=self.seed, step=batch.step, k=k, own=own, rows=estimator.row_numbers(k, batch))


class GCN(Network):
    """A graph convolutional network (Kipf and Welling 2017): the paper's. See `Network` for the arguments."""

    conv = GCNConv


class SAGE(Network):
    """GraphSAGE with the mean aggregator. See `Network` for the arguments."""

    conv = SAGEConv


class GIN(Network):
    """A graph isomorphism network with two-layer MLPs and learned eps. See `Network` for the arguments."""

    conv = GINConv


class GCNII(Network):
    """A GCN with initial residual and identity mapping, between linear layers. See `Network` for the arguments."""

    conv = GCNIIConv


MODELS: dict[str, Callable[..., Network]] = {"gcn": GCN, "sage": SAGE, "gin": GIN, "gcnii": GCNII}


def _out_channels(layer: Conv) -> int:
    weight = layer.out_weight if isinstance(layer, GINConv) else layer.weight
    return weight.shape[1]
