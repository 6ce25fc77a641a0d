"""Compiled: the draws of `synthetic_kernels` as a list, for graphs whose edges do not fit into memory."""

from __future__ import annotations

from cvgnn.ops.compilation import njit
from cvgnn.ops.synthetic_kernels import _LOW, _NONE, _S32, draw_edge


@njit(cache=True, nogil=True)
def list_edges(out, key, first, last, inside, blocks, members, per_class):  # type: ignore[no-untyped-def]
    """Write the draws `first..last-1` of a stream to `out`, int32 `[n, 2]`, until it is full; returns how many."""
    count = 0
    for i in range(first, last):
        edge = draw_edge(key, i, inside, blocks, members, per_class)
        if edge != _NONE and count < out.shape[0]:
            out[count, 0], out[count, 1] = edge >> _S32, edge & _LOW
            count += 1
    return count
