"""The GCN: exact forward (eq. 1, 2), and the estimators' forward and backward (eq. 5, 6), densely.

Legend (the paper's letters):
    N, K        number of nodes, of layers
    X           features [N, d_0]; H^(0) = X
    H^(k)       representations [N, d_k] before dropout; H^(K) are the logits
    Hbar^(k)    histories of H^(k) [N, d_k], constants for the gradient
    P, P^(k)    normalized adjacency matrix, sampled propagation matrix of layer k [N, N] (P_hats[k])
    S^(k)       what layer k multiplies by W^(k): the aggregated representations
    W^(k), b    weight [d_k, d_{k+1}] "layers.k.weight", optional bias [d_{k+1}] "layers.k.bias"
    r^(k)       receptive field of the batch at layer k, sorted node ids
    dQ          derivative of the batch loss by Q

Missing "bias" or "norm" keys switch the feature off. Rows of H^(k) outside r^(k) are NaN: they must never be
read, and one that were would show.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from cvgnn.errors import require, unknown_name
from cvgnn.reference.layers import sigma, sigma_backward, softmax_cross_entropy
from cvgnn.reference.propagation import Array

ESTIMATORS = ("exact", "ns", "cv")

Ids = npt.NDArray[np.int64]
Masks = Mapping[int, Array | None]


def num_layers(params: Mapping[str, Array]) -> int:
    """K, the number of "layers.k.weight" in the parameters.

    >>> num_layers({"layers.0.weight": np.ones((2, 2)), "layers.0.bias": np.ones(2)})
    1
    """
    K = sum(1 for name in params if name.count(".") == 2 and name.endswith(".weight"))
    require(
        K > 0 and all(f"layers.{k}.weight" in params for k in range(K)),
        f"params must hold 'layers.0.weight' and so on without a gap; it holds {', '.join(params)}",
    )
    known = [f"layers.{k}.{kind}" for k in range(K) for kind in ("weight", "bias")]
    norms = [(f"layers.{k}.norm.weight", f"layers.{k}.norm.bias") for k in range(K - 1)]
    for name in params:
        if name not in known and not any(name in pair for pair in norms):
            raise unknown_name("parameter", name, [*known, *(name for pair in norms for name in pair)])
    for gamma, beta in norms:
        require((gamma in params) == (beta in params), f"params must hold both {gamma} and {beta}, or neither")
    return K


def _affine(params: Mapping[str, Array], k: int, S: Array) -> Array:
    """Z^(k+1) = S^(k) W^(k) [+ b]."""
    Z: Array = S @ params[f"layers.{k}.weight"]
    return Z + params[f"layers.{k}.bias"] if f"layers.{k}.bias" in params else Z


def _mask(masks: Masks | None, k: int, shape: tuple[int, int]) -> Array:
    """The dropout mask m^(k); all ones without dropout."""
    mask = None if masks is None else masks.get(k)
    if mask is None:
        return np.ones(shape)
    require(mask.shape == shape, f"the dropout mask of H^({k}) must have shape {shape}, not {mask.shape}")
    return mask


def exact_forward(params: Mapping[str, Array], P: Array, X: Array, K: int) -> tuple[list[Array], Array]:
    """The network without sampling and dropout, for all nodes (eq. 1, 2).

        Z^(k+1) = P H^(k) W^(k) [+ b],    H^(k+1) = sigma(Z^(k+1))

    Args:
        params: Parameters by name.
        P: Normalized adjacency matrix [N, N].
        X: Features [N, d_0].
        K: Number of layers.

    Returns:
        [H^(0), ..., H^(K)] with H^(k) [N, d_k], and the logits H^(K) once more.

    >>> exact_forward({"layers.0.weight": np.array([[2.0]])}, np.eye(1), np.array([[3.0]]), 1)[1].tolist()
    [[6.0]]
    """
    require(num_layers(params) == K, f"K is {K}, but params has {num_layers(params)} layers")
    H = [np.asarray(X, dtype=np.float64)]
    for k in range(K):
        Z = _affine(params, k, P @ H[k])
        H.append(Z if k == K - 1 else sigma(params, k, Z))
    return H, H[K]


def receptive_fields(Q: Mapping[int, Array], P: Array, batch: Sequence[int] | Ids, K: int) -> list[Ids]:
    """r^(K) = the batch's distinct ids; r^(k) = r^(k+1) and the nodes that Q^(k) reaches from it.

    Args:
        Q: The matrix that multiplies H^(k), by k = 1..K-1: P^(k), or P for the exact estimator.
        P: Normalized adjacency matrix [N, N]; it is layer 0's, which is never sampled.
        batch: Node ids, repeats allowed.
        K: Number of layers.

    Returns:
        [r^(0), ..., r^(K)], each sorted; r^(0) are the rows of X that P X needs for r^(1).

    >>> [r.tolist() for r in receptive_fields({}, np.eye(3), [2, 0, 2], 1)]
    [[0, 2], [0, 2]]
    """
    r = [np.unique(np.asarray(batch, dtype=np.int64))]
    for k in range(K - 1, -1, -1):
        reached = np.flatnonzero((P if k == 0 else Q[k])[r[0]].any(axis=0))
        r.insert(0, np.union1d(r[0], reached))
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
    smoothing: float = 0.0,
) -> tuple[float, dict[str, Array], list[Array], list[Ids]]:
    """Loss and gradient of one batch by eq. 5 and 6.

        S^(0) = P X
        S^(k) = P^(k) (m^(k) H^(k) - Hbar^(k)) + P Hbar^(k)     "cv"     k = 1..K-1
        S^(k) = P^(k) (m^(k) H^(k))                             "ns"
        S^(k) = P (m^(k) H^(k))                                 "exact"
        Z^(k+1) = S^(k) W^(k) [+ b],    H^(k+1) = sigma(Z^(k+1)),    loss = (1/B) sum_{v in batch} f(y_v, h_v^(K))

    Args:
        params: Parameters by name.
        P: Normalized adjacency matrix [N, N].
        P_hats: P^(k) by k = 1..K-1, rows r^(k+1) filled; not read by "exact".
        Hbar: Histories by k = 1..K-1, [N, d_k]; read by "cv" only.
        X: Features [N, d_0].
        y: Labels [N].
        batch: Node ids, repeats allowed: each entry counts.
        masks: Dropout masks m^(k) [N, d_k] by k = 0..K-1, already scaled; a missing one or None is all ones. That of
            layer 0 acts on P X, the others on H^(k).
        estimator: "cv", "ns" or "exact".
        smoothing: Of the labels, see `softmax_cross_entropy`.

    Returns:
        The loss; the gradients, named and ordered as `params`; [H^(0), ..., H^(K)] before dropout, NaN outside
        r^(k); [r^(0), ..., r^(K)].
    """
    if estimator not in ESTIMATORS:
        raise unknown_name("estimator", estimator, ESTIMATORS)
    K, B, X = num_layers(params), np.asarray(batch, dtype=np.int64), np.asarray(X, dtype=np.float64)
    require(B.ndim == 1 and B.size > 0, "batch must be a list of at least one node id")
    require(B.min() >= 0 and B.max() < len(P), f"batch ids must lie in 0..{len(P) - 1}: {B.tolist()}")
    Q = dict.fromkeys(range(1, K), P) if estimator == "exact" else P_hats
    r = receptive_fields(Q, P, B, K)
    m = {k: _mask(masks, k, (len(P), params[f"layers.{k}.weight"].shape[0])) for k in range(K)}

    H, S, Z = [X], [], []
    for k in range(K):
        u, v = r[k], r[k + 1]
        if k == 0:
            S.append(m[0][v] * (P[v] @ X))
        else:
            H_k = m[k][u] * H[k][u]
            Q_k = Q[k][np.ix_(v, u)]
            S.append(Q_k @ (H_k - Hbar[k][u]) + P[v] @ Hbar[k] if estimator == "cv" else Q_k @ H_k)
        Z.append(_affine(params, k, S[k]))
        H.append(np.full((len(P), Z[k].shape[1]), np.nan))
        H[k + 1][v] = Z[k] if k == K - 1 else sigma(params, k, Z[k])
    loss, dlogits = softmax_cross_entropy(H[K][B], np.asarray(y)[B], smoothing)

    grads: dict[str, Array] = {}
    dZ = np.zeros_like(Z[K - 1])
    np.add.at(dZ, np.searchsorted(r[K], B), dlogits)  # entries of a repeated node add up
    for k in range(K - 1, -1, -1):
        grads[f"layers.{k}.weight"] = S[k].T @ dZ
        grads[f"layers.{k}.bias"] = dZ.sum(axis=0)
        if k > 0:
            u, v = r[k], r[k + 1]
            dH = Q[k][np.ix_(v, u)].T @ (dZ @ params[f"layers.{k}.weight"].T)
            dZ, norm_grads = sigma_backward(params, k - 1, Z[k - 1], m[k][u] * dH)
            grads |= norm_grads
    return loss, {name: grads[name] for name in params}, H, r
