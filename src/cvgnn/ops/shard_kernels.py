"""Compiled kernels of sharded graphs: draws restricted to the columns of a shard, and a one-pass partitioner.

Legend as in `sampling_kernels`. A shard has the columns `low..high-1` of `A`; a draw is a position in the whole row of
a target, and `before[v]`, the number of its neighbors in earlier shards, says whether that position lies here.
"""

from __future__ import annotations

import numpy as np

from cvgnn.ops.compilation import njit
from cvgnn.ops.sampling_kernels import (
    _GOLDEN,
    chain,
    choose,
    draw_bound,
    mix,
    self_factor,
    takes_all,
    transpose,
    uniform_below,
    word,
)


@njit(cache=True, nogil=True)
def sample_shard(  # type: ignore[no-untyped-def]
    targets, low, high, indptr, indices, edge_weight, before, degree, left, right, self_loop, D, scheme, key, step,
    layer, control, local,
):  # fmt: skip
    """`sample_block` for the columns of one shard: the same draws, of which those elsewhere are passed over.

    Args:
        targets: int64 `[m]`, distinct node ids of all shards.
        low, high: the nodes of this shard.
        indptr: int64 `[N + 1]`; entries of row `v` in this shard are `indices[indptr[v]:indptr[v + 1]]`.
        indices: int32, node ids less `low`.
        edge_weight: of the entries; empty for an unweighted graph.
        before: int32 `[N]`, neighbors of `v` in the shards before.
        degree: int32 `[N]`, neighbors of `v` in all shards.
        left, right: `P`'s scales `[N]`.
        local: int32 `[high - low]` scratch, all -1 before and after.

    Returns:
        As `sample_block`: rows of all targets, sources and columns of this shard, counted from `low`. Sources are the
        targets of this shard first.
    """
    m = targets.size
    key = chain(chain(key, step), layer)
    weighted = edge_weight.size > 0
    bound, control_bound = 0, 0
    for i in range(m):
        v = targets[i]
        own = indptr[v + 1] - indptr[v]
        if takes_all(scheme, degree[v], D):
            bound += own + 1
        else:
            bound += min(own, D) + 1
            if control:
                control_bound += own + 1
    if bound > 2147483647 or control_bound > 2147483647:
        raise OverflowError("offsets are 32 bits wide")
    sources = np.empty(bound, np.int64)
    s_indptr = np.zeros(m + 1, np.int32)
    s_indices = np.empty(bound, np.int32)
    s_weight = np.empty(bound, left.dtype)
    s_mask = np.empty(bound if control else 0, left.dtype)
    c_indptr = np.zeros(m + 1, np.int32)
    c_indices = np.empty(control_bound, np.int32)
    c_weight = np.empty(control_bound, left.dtype)
    size = max(D, 1)
    draws, position, factor = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.float64)

    num_sources = 0
    for i in range(m):
        if low <= targets[i] < high:
            sources[num_sources] = targets[i] - low
            local[targets[i] - low] = num_sources
            num_sources += 1
    e, c = 0, 0
    for i in range(m):
        v = targets[i]
        start = indptr[v]
        own = indptr[v + 1] - start
        deg = np.int64(degree[v])
        mine = low <= v < high
        loop = self_factor(scheme, deg, D)
        if self_loop and mine:
            s_indices[e] = local[v - low]
            s_weight[e] = loop * left[v] * right[v]
            if control:
                s_mask[e] = np.sqrt(loop) * left[v] * right[v]
            e += 1
        everything = takes_all(scheme, deg, D)
        c_base = c
        if everything:
            drawn = own
        else:
            drawn = 0
            if deg > 0:
                state = mix(key ^ mix(np.uint64(v) + _GOLDEN))
                for r in range(D):
                    draws[r] = uniform_below(word(state, r), draw_bound(scheme, deg, D, r))
                drawn = choose(scheme, deg, D, draws, position, factor)
            if control:
                for j in range(own):
                    u = indices[start + j]
                    c_indices[c + j] = u
                    c_weight[c + j] = left[v] * right[low + u] * (edge_weight[start + j] if weighted else 1.0)
                c += own
                if self_loop and mine and loop != 1.0:
                    c_indices[c] = v - low
                    c_weight[c] = (1.0 - loop) * left[v] * right[v]
                    c += 1
        for j in range(drawn):
            p = j if everything else position[j] - before[v]
            if p < 0 or p >= own:
                continue  # a neighbor in another shard
            f = 1.0 if everything else factor[j]
            u = indices[start + p]
            a = edge_weight[start + p] if weighted else 1.0
            w = f * left[v] * a * right[low + u]
            if control and not everything:
                c_weight[c_base + p] -= w
            if local[u] == -1:
                local[u] = num_sources
                sources[num_sources] = u
                num_sources += 1
            s_indices[e] = local[u]
            s_weight[e] = w
            if control:
                s_mask[e] = np.sqrt(f) * left[v] * a * right[low + u]
            e += 1
        s_indptr[i + 1] = e
        c_indptr[i + 1] = c
    for i in range(num_sources):
        local[sources[i]] = -1
    s_mask = s_mask[:e] if control else s_mask
    t_indptr, t_indices, t_weight, t_mask = transpose(s_indptr, s_indices, s_weight, s_mask, num_sources)
    sampled, remainder = (s_indptr, s_indices[:e], s_weight[:e]), (c_indptr, c_indices[:c], c_weight[:c])
    return sources[:num_sources].copy(), sampled, (t_indptr, t_indices, t_weight), remainder, s_mask, t_mask


@njit(cache=True, nogil=True)
def stream_partition(indptr, indices, weight, num_parts, capacity, part):  # type: ignore[no-untyped-def]
    """Linear deterministic greedy (Stanton and Kliot 2012): each node joins the part with most of its neighbors.

    The count is multiplied by the free share of the part's capacity, so that parts fill evenly; ties go to
    the emptiest.

    Args:
        indptr, indices: CSR of `A`.
        weight: float64 `[N]`, what a node adds to the load of its part.
        num_parts: how many parts.
        capacity: float64, the load of a full part.
        part: int32 `[N]`, all -1; gets the part of each node.
    """
    load, count = np.zeros(num_parts), np.zeros(num_parts, np.int64)
    for v in range(indptr.size - 1):
        count[:] = 0
        for e in range(indptr[v], indptr[v + 1]):
            if part[indices[e]] >= 0:
                count[part[indices[e]]] += 1
        best, best_score = -1, -1.0
        for p in range(num_parts):
            free = 1.0 - load[p] / capacity
            if free <= 0.0:
                continue
            score = count[p] * free
            if score > best_score or (score == best_score and load[p] < load[best]):
                best, best_score = p, score
        if best == -1:
            best = int(np.argmin(load))
        part[v] = best
        load[best] += weight[v]
