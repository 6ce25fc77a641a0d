"""The network: the kind of each layer, and the norm and activation between the layers.

Legend:
    K              number of layers, k = 0..K-1
    agg, own       aggregate S^(k) of the neighbors; the rows of the layer's own nodes, both after dropout
    own0           own rows of the input layer's output H^(1), after dropout
    W, b           "layers.k.weight", "layers.k.bias"; likewise W_own "own_weight", W_out "out_weight",
                   b_out "out_bias", W_res "residual_weight", eps "eps" (shape [1]; 0 without it)
    alpha, theta   GCNII's share of own0 and its decay: beta_i = log(theta / i + 1) at the i-th GCNII layer, from 1

The kinds, with Z + own W_res in place of Z where the parameters hold W_res:

    linear    Z = own W + b                    input layer: layer 0 only
    gcn       Z = agg W + b
    sage      Z = agg W + own W_own + b
    gin       Z = act((agg + (1 + eps) own) W + b) W_out + b_out
    gcnii     Z = ((1 - alpha) agg + alpha own0) ((1 - beta_i) I + beta_i W)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from cvgnn.errors import require, require_known
from cvgnn.reference.layers import ACTIVATIONS, NORMS
from cvgnn.reference.propagation_matrix import Array

# The parameters of each kind: those it must have, those it may have.
KINDS = {
    "linear": (("weight",), ("bias",)),
    "gcn": (("weight",), ("bias",)),
    "sage": (("weight", "own_weight"), ("bias",)),
    "gin": (("weight", "out_weight"), ("bias", "eps", "out_bias")),
    "gcnii": (("weight",), ()),
}
JKS = ("last", "concat")


@dataclass(frozen=True)
class Spec:
    """The network, up to its parameters.

    Args:
        kinds: Kind of each layer, of `KINDS`; None is "gcn" for every layer.
        norm: "none", "layer" or "batch", before the activation of hidden layers. "layer" acts in the layers that have
            "layers.k.norm.weight"; "batch" needs it in every hidden layer.
        activation: "relu", "elu" or "gelu".
        jk: What the head reads: "last" is H^(K), "concat" the outputs of all layers but a linear input layer, side by
            side.
        alpha: GCNII's share of own0.
        theta: GCNII's decay.

    >>> Spec(kinds=("linear", "gcnii", "gcnii")).beta(2)
    0.22314355131420976
    """

    kinds: tuple[str, ...] | None = None
    norm: str = "layer"
    activation: str = "relu"
    jk: str = "last"
    alpha: float = 0.1
    theta: float = 0.5

    def __post_init__(self) -> None:
        for argument, value, known in (
            ("norm", self.norm, NORMS),
            ("activation", self.activation, tuple(ACTIVATIONS)),
            ("jk", self.jk, JKS),
        ):
            require_known(argument, value, known)
        require(0 <= self.alpha <= 1, f"alpha must lie in 0..1, the share of the input layer, not {self.alpha}")
        require(self.theta > 0, f"theta must be above 0, not {self.theta}; GCNII's authors take 0.5")
        if self.kinds is None:
            return
        require(len(self.kinds) > 0, "kinds must name at least one layer; None is 'gcn' for every layer")
        for k, kind in enumerate(self.kinds):
            require_known(f"kinds[{k}]", kind, KINDS)
            require(
                kind != "linear" or k == 0 < len(self.kinds) - 1,
                f"kinds[{k}] must not be 'linear', the input layer below others; start kinds with it, or use 'gcn'",
            )
        require(
            "gcnii" not in self.kinds or self.kinds[0] == "linear",
            f"kinds[0] must be 'linear' in a network with 'gcnii', which reads its output, not {self.kinds[0]!r}",
        )

    def kind(self, k: int) -> str:
        """The kind of layer k."""
        return "gcn" if self.kinds is None else self.kinds[k]

    def beta(self, k: int) -> float:
        """beta_i of layer k, the i-th GCNII layer."""
        assert self.kinds is not None
        return math.log(self.theta / self.kinds[: k + 1].count("gcnii") + 1)


GCN = Spec()


def num_layers(params: Mapping[str, Array], spec: Spec = GCN) -> int:
    """K, the number of "layers.k.weight" in the parameters, whose names and shapes must be those of `spec`.

    >>> import numpy as np
    >>> num_layers({"layers.0.weight": np.ones((2, 2)), "layers.0.bias": np.ones(2)})
    1
    """
    K = sum(1 for name in params if name.count(".") == 2 and name.endswith(".weight"))
    require(
        K > 0 and all(f"layers.{k}.weight" in params for k in range(K)),
        f"params must hold 'layers.0.weight' and so on without a gap; it holds {', '.join(params)}",
    )
    require(
        spec.kinds is None or len(spec.kinds) == K,
        f"spec.kinds must have one entry for each of the {K} layers in params, not {len(spec.kinds or ())}",
    )
    head = "head.weight" in params
    require(head or spec.jk == "last", "spec.jk='concat' needs 'head.weight' in params; add it, or use jk='last'")
    known = ["head.weight", "head.bias"] if head else []
    for k in range(K):
        must, may = KINDS[spec.kind(k)]
        known += [f"layers.{k}.{name}" for name in (*must, *may, "residual_weight")]
        for name in must:
            sentence = (
                f"params must hold 'layers.{k}.{name}', for layer {k} is {spec.kind(k)!r}; add it or change spec.kinds"
            )
            require(f"layers.{k}.{name}" in params, sentence)
    norms = [(f"layers.{k}.norm.weight", f"layers.{k}.norm.bias") for k in range(K if head else K - 1)]
    known += [name for pair in norms for name in pair if spec.norm != "none"]
    for name in params:
        require_known("parameter", name, known)
    for gamma, beta in norms:
        require((gamma in params) == (beta in params), f"params must hold both {gamma} and {beta}, or neither")
        require(spec.norm != "batch" or gamma in params, f"params must hold {gamma} with spec.norm='batch'")
    d = params["layers.0.weight"].shape[-1]
    for k in range(K):
        shape = params[f"layers.{k}.weight"].shape
        require(
            spec.kind(k) != "gcnii" or shape == (d, d),
            f"'layers.{k}.weight' must have shape {(d, d)}, for GCNII keeps the input layer's width {d}, not {shape}",
        )
    return K
