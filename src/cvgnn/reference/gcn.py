"""The network: exact forward (eq. 1, 2), and the estimators' forward and backward (eq. 5, 6), densely.

The GCN is the default `Spec`; `cvgnn.reference.spec` lists the other kinds of layers, with their letters.

Legend (the paper's letters):
    N, K        number of nodes, of layers
    X           features [N, d_0]; H^(0) = X
    H^(k)       representations [N, d_k] before dropout; H^(K) are the logits of a network without a head
    m^(k)       dropout mask of H^(k) [N, d_k], already scaled; m^(0) acts on P X, m^(x) on X
    Hbar^(k)    histories of H^(k) [N, d_k], constants for the gradient
    P, P^(k)    propagation matrix, sampled propagation matrix of layer k [N, N] (P_hats[k])
    S^(k), agg  the aggregated representations
    own         m^(k) H^(k) at the layer's own nodes r^(k+1), m^(x) X at layer 0; own0: the same of H^(1)
    W^(k), b    weight [d_k, d_{k+1}] "layers.k.weight", optional bias [d_{k+1}] "layers.k.bias"
    J           what the head reads: m^(K) H^(K), or all m^(k) H^(k), k = 1..K, but a linear input layer's, side by side
    r^(k)       receptive field of the batch at layer k, sorted node ids

Missing "bias", "norm", "residual_weight" or "head" keys switch the feature off. Rows of H^(k) outside r^(k) are NaN:
they must never be read, and one that were would show.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from cvgnn.errors import CvgnnError, require, require_known
from cvgnn.reference.layers import ACTIVATIONS, Statistics, sigma, sigma_backward
from cvgnn.reference.losses import Loss, softmax_cross_entropy
from cvgnn.reference.propagation_matrix import Array
from cvgnn.reference.spec import GCN, Spec, num_layers
from cvgnn.reference.tape import Node, concatenate, derivatives

ESTIMATORS = ("exact", "ns", "cv", "cvd")

Ids = npt.NDArray[np.int64]
Masks = Mapping[int | str, Array | None]
Params = Mapping[str, Array]


def _mask(masks: Masks | None, k: int | str, shape: tuple[int, int]) -> Array:
    """The dropout mask m^(k); all ones without dropout."""
    mask = None if masks is None else masks.get(k)
    if mask is None:
        return np.ones(shape)
    require(mask.shape == shape, f"masks[{k!r}], a dropout mask, must have shape {shape}, not {mask.shape}")
    return mask


def _act(Z: Node, activation: str) -> Node:
    f, slope = ACTIVATIONS[activation]
    return Node(f(Z.value), [Z], lambda d: [d * slope(Z.value)])


def _sigma(W: Mapping[str, Node], k: int, Z: Node, activation: str, statistics: Statistics | None) -> Node:
    """H^(k+1) = act(norm(Z^(k+1)))."""
    names = [name for name in (f"layers.{k}.norm.weight", f"layers.{k}.norm.bias") if name in W]
    params = {name: W[name].value for name in names}

    def back(dH: Array) -> list[Array]:
        dZ, grads = sigma_backward(params, k, Z.value, dH, activation, statistics)
        return [dZ, *(grads[name] for name in names)]

    H = sigma(params, k, Z.value, activation, statistics)
    return Node(H, [Z, *(W[name] for name in names)], back)


def _layer(
    W: Mapping[str, Node],
    k: int,
    spec: Spec,
    agg: Callable[[int], Node],
    own: Callable[[int], Node],
    own0: Callable[[int], Node],
) -> Node:
    """Z^(k+1) [r^(k+1), d_{k+1}]; the inputs are functions of k, for a layer reads only those that it needs."""
    name, kind = f"layers.{k}", spec.kind(k)
    W_k, b = W[f"{name}.weight"], W.get(f"{name}.bias", Node(0.0))
    if kind == "linear":
        Z = own(k) @ W_k + b
    elif kind == "gcn":
        Z = agg(k) @ W_k + b
    elif kind == "sage":
        Z = agg(k) @ W_k + own(k) @ W[f"{name}.own_weight"] + b
    elif kind == "gin":
        eps = W.get(f"{name}.eps", Node(0.0))
        U = _act((agg(k) + (1.0 + eps) * own(k)) @ W_k + b, spec.activation)
        Z = U @ W[f"{name}.out_weight"] + W.get(f"{name}.out_bias", Node(0.0))
    else:
        alpha, beta = spec.alpha, spec.beta(k)
        S = (1.0 - alpha) * agg(k) + alpha * own0(k)
        Z = S @ ((1.0 - beta) * np.eye(len(W_k.value)) + beta * W_k)
    return Z + own(k) @ W[f"{name}.residual_weight"] if f"{name}.residual_weight" in W else Z


def _forward(
    W: Mapping[str, Node],
    spec: Spec,
    P: Array,
    Q: Mapping[int, Array],
    r: Sequence[Ids],
    X: Array,
    statistics_of: Callable[[int, Array], Statistics],
    Hbar: Mapping[int, Array] | None = None,
    masks: Masks | None = None,
    separate: bool = False,
) -> list[Node]:
    """[H^(0), ..., H^(K)] and, with a head, the logits; H^(k) at the rows r^(k), the logits at r^(K).

    Args:
        W: Parameters by name.
        spec: The network.
        P: Propagation matrix [N, N].
        Q: The matrix that multiplies H^(k), by k = 1..K-1, and X, k = 0, where that is not P.
        r: [r^(0), ..., r^(K)].
        X: Features [N, d_0].
        statistics_of: From k and Z^(k+1) to the mean and variance of BatchNorm.
        Hbar: Histories by k = 1..K-1; None leaves the control variate out.
        masks: Dropout masks.
        separate: Whether the masks have weights of their own, sqrt(P^ P): "cvd".
    """
    K, N, head = len(r) - 1, len(P), "head.weight" in W
    H = [Node(X[r[0]])]
    mH: dict[int, Node] = {}

    def dropped(k: int, v: Ids) -> Node:
        """m^(k) H^(k) at the rows v, which must lie in r^(k); m^(x) X for k = 0."""
        return mH[k][np.searchsorted(r[k], v)] if k > 0 else Node(_mask(masks, "x", X.shape)[v] * X[v])

    def own(k: int) -> Node:
        return dropped(k, r[k + 1])

    def own0(k: int) -> Node:
        return dropped(1, r[k + 1])

    def agg(k: int) -> Node:
        u, v = r[k], r[k + 1]
        if k == 0:
            return Node(_mask(masks, 0, X.shape)[v] * (Q.get(0, P)[v] @ X))
        Q_k = Node(Q[k][np.ix_(v, u)])
        if separate and Hbar is not None:
            # P^[v,u] = f P[v,u], so sqrt(f) P[v,u] = sqrt(P^[v,u] P[v,u]).
            s = Node(np.sqrt(Q[k] * P)[np.ix_(v, u)])
            m = _mask(masks, k, (N, H[k].value.shape[1]))[u]
            return Q_k @ (H[k] - Hbar[k][u]) + P[v] @ Hbar[k] + s @ ((m - 1.0) * H[k])
        return Q_k @ mH[k] if Hbar is None else Q_k @ (mH[k] - Hbar[k][u]) + P[v] @ Hbar[k]

    for k in range(K):
        v = r[k + 1]
        Z = _layer(W, k, spec, agg, own, own0)
        if k == K - 1 and not head:
            return [*H, Z]
        statistics = statistics_of(k, Z.value) if spec.norm == "batch" else None
        H.append(_sigma(W, k, Z, spec.activation, statistics))
        mH[k + 1] = H[k + 1] * _mask(masks, k + 1, (N, Z.value.shape[1]))[v]
    first = 2 if spec.kind(0) == "linear" else 1
    J = concatenate([dropped(k, r[K]) for k in range(K if spec.jk == "last" else first, K + 1)])
    return [*H, J @ W["head.weight"] + W.get("head.bias", Node(0.0))]


def _exact(params: Params, P: Array, X: Array, spec: Spec, of: Callable[[int, Array], Statistics]) -> list[Array]:
    """The forward pass without sampling and dropout, for all nodes."""
    K = num_layers(params, spec)
    W, every = {name: Node(value) for name, value in params.items()}, [np.arange(len(P))] * (K + 1)
    return [H.value for H in _forward(W, spec, P, dict.fromkeys(range(1, K), P), every, np.asarray(X, np.float64), of)]


def _given(statistics: Mapping[int, Statistics] | None) -> Callable[[int, Array], Statistics]:
    def of(k: int, _: Array) -> Statistics:
        if statistics is None or k not in statistics:
            raise CvgnnError(f"statistics must hold layer {k}, for spec.norm is 'batch'; `batch_statistics` makes them")
        return statistics[k]

    return of


def batch_statistics(params: Params, P: Array, X: Array, spec: Spec) -> dict[int, Statistics]:
    """The mean and the biased variance of each column of Z^(k+1) over all nodes, without sampling and dropout.

    Layer by layer: Z^(k+1) is normalized by its own statistics before the next layer is computed.

    Args:
        params: Parameters by name.
        P: Propagation matrix [N, N].
        X: Features [N, d_0].
        spec: The network.

    Returns:
        k -> (mean [d_{k+1}], var [d_{k+1}]) for every hidden layer; nothing unless `spec.norm` is "batch".

    >>> params = {f"layers.0.{name}": np.ones(1) for name in ("norm.weight", "norm.bias")}
    >>> params |= {f"layers.{k}.weight": np.ones((1, 1)) for k in (0, 1)}
    >>> [a.tolist() for a in batch_statistics(params, np.eye(2), np.array([[1.0], [3.0]]), Spec(norm="batch"))[0]]
    [[2.0], [1.0]]
    """
    statistics: dict[int, Statistics] = {}

    def of(k: int, Z: Array) -> Statistics:
        statistics[k] = Z.mean(axis=0), Z.var(axis=0)
        return statistics[k]

    _exact(params, P, X, spec, of)
    return statistics


def exact_forward(
    params: Params, P: Array, X: Array, K: int, spec: Spec = GCN, statistics: Mapping[int, Statistics] | None = None
) -> tuple[list[Array], Array]:
    """The network without sampling and dropout, for all nodes (eq. 1, 2).

        Z^(k+1) = P H^(k) W^(k) [+ b],    H^(k+1) = sigma(Z^(k+1))        and so for the other kinds

    Args:
        params: Parameters by name.
        P: Propagation matrix [N, N].
        X: Features [N, d_0].
        K: Number of layers.
        spec: The network; a GCN if not given.
        statistics: BatchNorm's (mean, var) by layer, see `batch_statistics`; read only with `spec.norm` "batch".

    Returns:
        [H^(0), ..., H^(K)] with H^(k) [N, d_k] and, with a head, the logits; and the logits, which are the last
        entry, once more.

    >>> exact_forward({"layers.0.weight": np.array([[2.0]])}, np.eye(1), np.array([[3.0]]), 1)[1].tolist()
    [[6.0]]
    """
    found = num_layers(params, spec)
    require(found == K, f"K is {K}, but params has {found} layers")
    H = _exact(params, P, X, spec, _given(statistics))
    return H, H[-1]


def receptive_fields(
    Q: Mapping[int, Array], P: Array, batch: Sequence[int] | Ids, K: int, spec: Spec = GCN
) -> list[Ids]:
    """r^(K) = the batch's distinct ids; r^(k) = r^(k+1) and the nodes that Q^(k) reaches from it.

    Args:
        Q: The matrix that multiplies H^(k), by k = 1..K-1: P^(k), or P for the exact estimator; and layer 0's, k = 0,
            where that is sampled.
        P: Propagation matrix [N, N]; it is layer 0's where Q has none.
        batch: Node ids, repeats allowed.
        K: Number of layers.
        spec: The network.

    Returns:
        [r^(0), ..., r^(K)], each sorted; r^(0) are the rows of X that P X needs for r^(1), and r^(1) itself where layer
        0 is linear.

    >>> [r.tolist() for r in receptive_fields({}, np.eye(3), [2, 0, 2], 1)]
    [[0, 2], [0, 2]]
    """
    r = [np.unique(np.asarray(batch, dtype=np.int64))]
    for k in range(K - 1, -1, -1):
        Q_k = Q.get(0, P) if k == 0 else Q[k]
        reached = np.flatnonzero(Q_k[r[0]].any(axis=0))
        r.insert(0, r[0] if spec.kind(k) == "linear" else np.union1d(r[0], reached))
    return r


def cv_forward_backward(
    params: Mapping[str, Array],
    P: Array,
    P_hats: Mapping[int, Array],
    Hbar: Mapping[int, Array],
    X: Array,
    y: npt.ArrayLike,
    batch: Sequence[int] | Ids,
    masks: Masks | None = None,
    estimator: str = "cv",
    loss: Loss = softmax_cross_entropy,
    spec: Spec = GCN,
    statistics: Mapping[int, Statistics] | None = None,
    control: float = 1.0,
) -> tuple[float, dict[str, Array], list[Array], list[Ids]]:
    """Loss and gradient of one batch by eq. 5 and 6.

        S^(0) = P X
        S^(k) = P^(k) (m^(k) H^(k) - Hbar^(k)) + P Hbar^(k)     "cv"     k = 1..K-1
        S^(k) = P^(k) (H^(k) - Hbar^(k)) + P Hbar^(k)
                + sqrt(P^(k) P) ((m^(k) - 1) H^(k))             "cvd", the root entry by entry
        S^(k) = P^(k) (m^(k) H^(k))                             "ns"
        S^(k) = P (m^(k) H^(k))                                 "exact"
        Z^(k+1) = S^(k) W^(k) [+ b],    H^(k+1) = sigma(Z^(k+1))        and so for the other kinds of layers
        loss = (1/B) sum_{v in batch} f(y_v, logits_v)

    Args:
        params: Parameters by name.
        P: Propagation matrix [N, N].
        P_hats: P^(k) by k = 1..K-1, rows r^(k+1) filled; not read by "exact". P^(0), if there is one, takes the place
            of P at layer 0 (a sampled start).
        Hbar: Histories by k = 1..K-1, [N, d_k]; read by "cv" and "cvd" only.
        X: Features [N, d_0].
        y: Labels [N].
        batch: Node ids, repeats allowed: each entry counts.
        masks: Dropout masks m^(k) [N, d_k] by k = 0..K-1 (and K with a head), already scaled; a missing one or None is
            all ones. That of layer 0 acts on P X, the one named "x" on layer 0's own rows of X, the others on H^(k)
            wherever it is read.
        estimator: "cvd", "cv", "ns" or "exact".
        loss: Of outputs and labels, see `losses`.
        spec: The network; a GCN if not given.
        statistics: BatchNorm's (mean, var) by layer, constants for the gradient; read only with `spec.norm` "batch".
        control: c: with c Hbar in the place of Hbar, P^ H + c (P - P^) Hbar.

    Returns:
        The loss; the gradients, named and ordered as `params`; [H^(0), ..., H^(K)] before dropout, NaN outside
        r^(k) (H^(0) = X whole), and with a head the logits as one more entry; [r^(0), ..., r^(K)].
    """
    require_known("estimator", estimator, ESTIMATORS)
    K, B, X = num_layers(params, spec), np.asarray(batch, dtype=np.int64), np.asarray(X, dtype=np.float64)
    require(B.ndim == 1 and B.size > 0, "batch must be a list of at least one node id")
    require(B.min() >= 0 and B.max() < len(P), f"batch ids must lie in 0..{len(P) - 1}: {B.tolist()}")
    Q = dict.fromkeys(range(1, K), P) if estimator == "exact" else P_hats
    r = receptive_fields(Q, P, B, K, spec)
    W = {name: Node(value) for name, value in params.items()}
    scaled = {k: control * H for k, H in Hbar.items()} if estimator in ("cv", "cvd") else None
    nodes = _forward(W, spec, P, Q, r, X, _given(statistics), scaled, masks, estimator == "cvd")

    logits = nodes[-1][np.searchsorted(r[K], B)]
    value, dlogits = loss(logits.value, np.asarray(y)[B])
    d = derivatives(logits, dlogits)
    H = [X]
    for node, v in zip(nodes[1:], [*r[1:], r[K]], strict=False):
        H.append(np.full((len(P), node.value.shape[1]), np.nan))
        H[-1][v] = node.value
    return value, {name: d[W[name]] for name in params}, H, r
