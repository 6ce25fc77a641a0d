"""Compiled kernels: draw neighbors, relabel and transpose in one pass over the batch.

Legend: `v` a target node, `deg` its number of neighbors, `D` the fan-out (-1 = all), `P[v,u] = left[v] w right[u]`.
`cvgnn.reference` holds the literal twins. The kernels hold no state and release the GIL.
"""

from __future__ import annotations

import numpy as np

from cvgnn.ops.compilation import njit
from cvgnn.ops.history_write import prefetch
from cvgnn.rng import FACTORS, GOLDEN

WITHOUT_REPLACEMENT, WITH_REPLACEMENT, PAPER, RELEASED = range(4)  # the order of cvgnn.sampling.schemes.SCHEMES

_GOLDEN = np.uint64(GOLDEN)
_M1, _M2 = np.uint64(FACTORS[0]), np.uint64(FACTORS[1])
_S27, _S30, _S31, _S32 = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_PREFETCHED = 64  # neighbors of a node, at most


@njit(cache=True, nogil=True, fastmath=False)
def mix(z):  # type: ignore[no-untyped-def]
    """`cvgnn.rng.mix` on uint64."""
    z = (z ^ (z >> _S30)) * _M1
    z = (z ^ (z >> _S27)) * _M2
    return z ^ (z >> _S31)


@njit(cache=True, nogil=True, fastmath=False)
def word(key, place):  # type: ignore[no-untyped-def]
    """64 random bits at one place of a key's stream: `cvgnn.rng.mix(key + (place + 1) GOLDEN)`."""
    return mix(key + (np.uint64(place) + np.uint64(1)) * _GOLDEN)


@njit(cache=True, nogil=True)
def chain(key, value):  # type: ignore[no-untyped-def]
    """`cvgnn.rng.chain` of a uint64 and a number that is not negative."""
    return mix((key ^ mix(np.uint64(value) + _GOLDEN)) + _GOLDEN)


@njit(cache=True, nogil=True)
def uniform_below(bits, bound):  # type: ignore[no-untyped-def]
    """floor(bits · bound / 2^64): uniform on `0..bound-1` up to 2^-33, for `bound < 2^31`."""
    n = np.uint64(bound)
    return np.int64(((bits >> _S32) * n + (((bits & _LOW) * n) >> _S32)) >> _S32)


@njit(cache=True, nogil=True)
def takes_all(scheme, deg, D):  # type: ignore[no-untyped-def]
    """Whether the row of `P^` is the row of `P`, so that nothing is drawn."""
    return D == -1 or (scheme == WITHOUT_REPLACEMENT and deg <= D)


@njit(cache=True, nogil=True)
def draw_bound(scheme, deg, D, i):  # type: ignore[no-untyped-def]
    """Raw draw `i` is uniform on `0..draw_bound-1`; without replacement it is a step of Floyd's algorithm."""
    return deg - D + i + 1 if scheme == WITHOUT_REPLACEMENT else deg


@njit(cache=True, nogil=True)
def choose(scheme, deg, D, draws, position, factor):  # type: ignore[no-untyped-def]
    """Turn `D` raw draws into distinct neighbor positions and the factor of `P[v,u]` at each; returns how many."""
    m = 0
    for i in range(D):
        t = draws[i]
        seen = -1
        for j in range(m):
            if position[j] == t:
                seen = j
                break
        if seen == -1:
            position[m] = t
            factor[m] = 1.0
            m += 1
        elif scheme == WITHOUT_REPLACEMENT:
            position[m] = deg - D + i  # Floyd: the newest position cannot have been chosen before
            factor[m] = 1.0
            m += 1
        elif scheme == WITH_REPLACEMENT:
            factor[seen] += 1.0
    scale = (deg + 1.0) / D if scheme == RELEASED else deg / D
    for j in range(m):
        factor[j] *= scale
    return m


@njit(cache=True, nogil=True)
def self_factor(scheme, deg, D):  # type: ignore[no-untyped-def]
    """The factor of `P[v,v]` in `P^`: 1, but for the published code's scheme."""
    return (deg + 1.0) / D if scheme == RELEASED and D != -1 else 1.0


@njit(cache=True, nogil=True)
def transpose(indptr, indices, weight, mask_weight, num_columns):  # type: ignore[no-untyped-def]
    """The transpose of rows with two weights an entry, the second of which may be empty.

    Returns:
        indptr int32 `[num_columns + 1]`, indices int32 `[nnz]`, both weights `[nnz]`.
    """
    nnz = indptr[-1]
    t_indptr = np.zeros(num_columns + 1, np.int32)
    t_indices = np.empty(nnz, np.int32)
    t_weight = np.empty(nnz, weight.dtype)
    t_mask = np.empty(mask_weight.size, weight.dtype)
    for e in range(nnz):
        t_indptr[indices[e] + 1] += 1
    for c in range(num_columns):
        t_indptr[c + 1] += t_indptr[c]
    cursor = t_indptr[:-1].copy()
    for i in range(indptr.size - 1):
        for e in range(indptr[i], indptr[i + 1]):
            place = cursor[indices[e]]
            cursor[indices[e]] = place + 1
            t_indices[place] = i
            t_weight[place] = weight[e]
            if mask_weight.size > 0:
                t_mask[place] = mask_weight[e]
    return t_indptr, t_indices, t_weight, t_mask


@njit(cache=True, nogil=True)
def sample_block(  # type: ignore[no-untyped-def]
    targets, indptr, indices, edge_weight, left, right, self_loop, draw_ids, D, scheme, key, step, layer, control, local
):
    """Draw `P^` for the rows `targets`, relabel its columns, transpose it and, on request, form `P - P^`.

    Args:
        targets: int64 `[n]`, distinct node ids, `r^(k+1)`.
        indptr, indices, edge_weight: CSR of `A`; `edge_weight` is empty for an unweighted graph.
        left, right: `P`'s separable scales `[N]`.
        self_loop: whether `P` has the diagonal `left right`, which is never sampled; else it has none.
        draw_ids: int32 `[N]`, the ids that draws are functions of; empty where they are the node ids.
        D, scheme: fan-out (-1 = all) and scheme number.
        key: uint64, from the seed.
        step, layer: with the key and the id, what the draws of `v` are a pure function of.
        control: whether to form the rows of `P - P^` (over all node ids) and the weights of the dropout mask.
        local: int32 `[N]` scratch, all -1 before and after.

    Returns:
        sources int64 (`r^(k)`: targets first, then new nodes in the order drawn); the rows of `P^` over positions in
        sources; its transpose; the rows of `P - P^` over node ids (each a tuple of indptr, indices, weight);
        `sqrt(f) P` for the entries `f P` of `P^` and of its transpose, which estimator `cvd` gives to the dropout mask.
    """
    n = targets.size
    key = chain(chain(key, step), layer)
    weighted = edge_weight.size > 0
    bound, control_bound = n, 0
    for i in range(n):
        start = indptr[targets[i]]
        deg = indptr[targets[i] + 1] - start
        # After a step no cache holds the rows of A: without prefetches a draw takes 1.3 times as long.
        for place in range(start, start + min(deg, _PREFETCHED), 64 // indices.itemsize):
            prefetch(indices.ctypes.data + indices.itemsize * place)
        if takes_all(scheme, deg, D):
            bound += deg
        else:
            bound += min(deg, D)
            if control:
                control_bound += deg + 1
    if bound > 2147483647 or control_bound > 2147483647:
        raise OverflowError("offsets are 32 bits wide")
    sources = np.empty(bound, np.int64)
    s_indptr = np.zeros(n + 1, np.int32)
    s_indices = np.empty(bound, np.int32)
    s_weight = np.empty(bound, left.dtype)
    s_mask = np.empty(bound if control else 0, left.dtype)
    c_indptr = np.zeros(n + 1, np.int32)
    c_indices = np.empty(control_bound, np.int32)
    c_weight = np.empty(control_bound, left.dtype)
    size = max(D, 1)
    draws, position, factor = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.float64)

    for i in range(n):
        sources[i] = targets[i]
        local[targets[i]] = i
    num_sources = n
    e, c = 0, 0
    for i in range(n):
        v = targets[i]
        start = indptr[v]
        deg = indptr[v + 1] - start
        if control and i + 2 < n:
            first = indptr[targets[i + 2]]
            for place in range(first, min(first + _PREFETCHED, indptr[targets[i + 2] + 1])):
                prefetch(right.ctypes.data + right.itemsize * indices[place])
        loop = self_factor(scheme, deg, D)
        if self_loop:
            s_indices[e] = i
            s_weight[e] = loop * left[v] * right[v]
            if control:
                s_mask[e] = np.sqrt(loop) * left[v] * right[v]
            e += 1
        everything = takes_all(scheme, deg, D)
        c_base = c
        if everything:
            m = deg
        else:
            m = 0
            if deg > 0:
                name = draw_ids[v] if draw_ids.size > 0 else v
                state = mix(key ^ mix(np.uint64(name) + _GOLDEN))
                for r in range(D):
                    draws[r] = uniform_below(word(state, r), draw_bound(scheme, deg, D, r))
                m = choose(scheme, deg, D, draws, position, factor)
            if control:
                row_left = left[v]
                row_indices, row_weight = c_indices[c : c + deg], c_weight[c : c + deg]
                for j in range(deg):  # separate, plain loops: they are compiled to vector instructions
                    row_indices[j] = indices[start + j]
                for j in range(deg):
                    row_weight[j] = row_left * right[np.uint32(row_indices[j])]
                if weighted:
                    for j in range(deg):
                        row_weight[j] *= edge_weight[start + j]
                c += deg
                if self_loop and loop != 1.0:
                    c_indices[c] = v
                    c_weight[c] = (1.0 - loop) * left[v] * right[v]
                    c += 1
        for j in range(m):
            p = j if everything else position[j]
            f = 1.0 if everything else factor[j]
            u = indices[start + p]
            a = edge_weight[start + p] if weighted else 1.0
            w = f * left[v] * a * right[u]
            if control and not everything:
                c_weight[c_base + p] -= w
            if local[u] == -1:
                local[u] = num_sources
                sources[num_sources] = u
                num_sources += 1
            s_indices[e] = local[u]
            s_weight[e] = w
            if control:
                s_mask[e] = np.sqrt(f) * left[v] * a * right[u]
            e += 1
        s_indptr[i + 1] = e
        c_indptr[i + 1] = c
    for i in range(num_sources):
        local[sources[i]] = -1
    s_mask = s_mask[:e] if control else s_mask
    t_indptr, t_indices, t_weight, t_mask = transpose(s_indptr, s_indices, s_weight, s_mask, num_sources)
    sampled, remainder = (s_indptr, s_indices[:e], s_weight[:e]), (c_indptr, c_indices[:c], c_weight[:c])
    return sources[:num_sources], sampled, (t_indptr, t_indices, t_weight), remainder, s_mask, t_mask
