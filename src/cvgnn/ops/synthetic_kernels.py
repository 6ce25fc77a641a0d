"""The compiled part of `cvgnn.data.named.synthetic`: draw distinct edges, lay them out as CSR rows, draw features.

Every draw is a pure function of a 64-bit key and its own coordinates (SplitMix64 read at any place of its stream), so
nothing depends on how the work is cut into pieces. The kernels hold no state and release the GIL.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import numpy as np

from cvgnn.errors import require
from cvgnn.ops.compilation import njit
from cvgnn.ops.row_sum import row_blocks
from cvgnn.ops.sampling_kernels import word
from cvgnn.utils.progress import ProgressCallback

WORDS_PER_DRAW = 4  # 64-bit words of the stream that one draw of an edge may use

_S32 = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_NONE = np.uint64(0)  # no edge: an edge has low < high
_AHEAD = 512  # draws that are looked up together
_DRAWS_PER_PIECE = 1 << 20
_ENTRIES_PER_PIECE = 1 << 26
_MOST_DRAWS = 100  # for each edge that is wanted
_TO_UNIT = np.float32(2.0**-32)
_TWO_PI = np.float32(2.0 * np.pi)


@njit(cache=True, nogil=True)
def alias_tables(weight, start):  # type: ignore[no-untyped-def]
    """Walker's alias tables (Vose's construction), one for each group of positions.

    Args:
        weight: float64 `[n]`, positive; group `g` holds the positions `start[g]..start[g+1]-1`.
        start: int64 `[groups + 1]`.

    Returns:
        keep uint32 `[n]` (chance to stay at a position, times 2^32) and other int32 `[n]` (where to go else).
    """
    n = weight.size
    keep = np.empty(n, np.uint32)
    other = np.empty(n, np.int32)
    scaled = np.empty(n, np.float64)
    small, large = np.empty(n, np.int32), np.empty(n, np.int32)
    for g in range(start.size - 1):
        first, last = start[g], start[g + 1]
        total = 0.0
        for i in range(first, last):
            total += weight[i]
        num_small, num_large = 0, 0
        for i in range(first, last):
            keep[i] = _LOW  # by default a draw stays at its position
            other[i] = i
            scaled[i] = weight[i] * (last - first) / total
            if scaled[i] < 1.0:
                small[num_small] = i
                num_small += 1
            else:
                large[num_large] = i
                num_large += 1
        while num_small > 0 and num_large > 0:
            num_small -= 1
            s, t = small[num_small], large[num_large - 1]
            keep[s] = np.uint32(scaled[s] * 4294967296.0)
            other[s] = t
            scaled[t] -= 1.0 - scaled[s]
            if scaled[t] < 1.0:
                num_large -= 1
                small[num_small] = t
                num_small += 1
    return keep, other


@njit(cache=True, nogil=True)
def pick(bits, first, last, keep, other):  # type: ignore[no-untyped-def]
    """A position in `first..last-1`, by its weight: the high half of the bits proposes, the low half decides."""
    i = first + np.int64(((bits >> _S32) * np.uint64(last - first)) >> _S32)
    return i if (bits & _LOW) < np.uint64(keep[i]) else np.int64(other[i])


@njit(cache=True, nogil=True)
def draw_edge(key, i, inside, blocks, members, per_class):  # type: ignore[no-untyped-def]
    """Draw `i` of a stream, packed as `low << 32 | high`; 0 for a draw that is passed over. See `draw_edges`."""
    start, block_keep, block_other = blocks
    node, keep, other = members
    place = WORDS_PER_DRAW * i
    b = pick(word(key, place), 0, start.size - 1, block_keep, block_other)
    u = node[pick(word(key, place + 1), start[b], start[b + 1], keep, other)]
    if not inside:
        c = b // per_class
        b = pick(word(key, place + 2), 0, start.size - 1, block_keep, block_other)
        if b // per_class == c:
            return _NONE
    v = node[pick(word(key, place + 3), start[b], start[b + 1], keep, other)]
    if u == v:
        return _NONE
    return (np.uint64(min(u, v)) << _S32) | np.uint64(max(u, v))


@njit(cache=True, nogil=True)
def draw_edges(table, found, wanted, key, first, last, inside, blocks, members, per_class):  # type: ignore[no-untyped-def]
    """Put the draws `first..last-1` of one stream into a hash set of edges, until `wanted` distinct ones are in.

    Draw `i` uses the words `4 i..4 i + 3`: the block of the source, the source in it, across classes the block of the
    target, and the target in its block. Passed over are self loops and, across, targets of the source's class.

    Args:
        table: uint64 `[2^b]`, the set, 0 where empty; open addressing with linear steps.
        found, wanted: distinct edges of this stream, before the call and in the end.
        key: uint64, of the stream.
        first, last: range of draws.
        inside: whether both ends come from one block.
        blocks: (start, keep, other): alias table over the blocks, whose members are `start[b]..start[b+1]-1`.
        members: (node, keep, other): nodes by block, with the alias table of each block.
        per_class: blocks `c per_class..(c + 1) per_class - 1` make up class `c`.

    Returns:
        How many distinct edges of this stream are in.
    """
    mask = np.uint64(table.size - 1)
    edges, seen = np.empty(_AHEAD, np.uint64), np.empty(_AHEAD, np.uint64)
    for base in range(first, last, _AHEAD):
        size = min(_AHEAD, last - base)
        for j in range(size):
            edges[j] = draw_edge(key, base + j, inside, blocks, members, per_class)
        # Reads that wait for nothing: the processor fetches many slots from memory at once, and the loop below finds
        # them in its cache.
        for j in range(size):
            seen[j] = table[word(edges[j], 0) & mask]
        for j in range(size):
            if found == wanted:
                return found
            edge = edges[j]
            if edge == _NONE or edge == seen[j]:
                continue
            slot = word(edge, 0) & mask
            while table[slot] != _NONE and table[slot] != edge:
                slot = (slot + np.uint64(1)) & mask
            if table[slot] == _NONE:
                table[slot] = edge
                found += 1
    return found


@njit(cache=True, nogil=True)
def count_entries(edges, degree):  # type: ignore[no-untyped-def]
    """Add both directions of every edge to `degree`, int64 `[N]`."""
    for edge in edges:
        degree[edge >> _S32] += 1
        degree[edge & _LOW] += 1


@njit(cache=True, nogil=True)
def fill_rows(edges, indptr, first, last, out):  # type: ignore[no-untyped-def]
    """The CSR rows `first..last-1`, columns ascending: `out` becomes `indices[indptr[first]:indptr[last]]`."""
    cursor = indptr[first:last] - indptr[first]
    for edge in edges:
        u, v = np.int64(edge >> _S32), np.int64(edge & _LOW)
        if first <= u < last:
            out[cursor[u - first]] = v
            cursor[u - first] += 1
        if first <= v < last:
            out[cursor[v - first]] = u
            cursor[v - first] += 1
    for row in range(first, last):
        out[indptr[row] - indptr[first] : indptr[row + 1] - indptr[first]].sort()


@njit(cache=True, nogil=True)
def fill_features(out, first, block, centre, noise, key):  # type: ignore[no-untyped-def]
    """Rows `first..` of the features: `out[i] = centre[block[i]] + noise g`, `g` standard normal (Box, Muller 1958).

    Args:
        out: float32 `[n, F]`.
        first: node id of `out`'s first row.
        block: int64 `[n]`, block of each of these nodes.
        centre: float32 `[blocks, F]`.
        noise: float32, standard deviation in each column.
        key: uint64; entry `(v, f)` is a pure function of (key, v, f).
    """
    n, width = out.shape
    pairs = (width + 1) // 2
    for i in range(n):
        mean = centre[block[i]]
        for p in range(pairs):
            bits = word(key, np.int64(first + i) * pairs + p)
            u = (np.float32(bits >> _S32) + np.float32(0.5)) * _TO_UNIT  # in (0, 1]
            radius = noise * np.sqrt(np.float32(-2.0) * np.log(u))
            angle = _TWO_PI * (np.float32(bits & _LOW) * _TO_UNIT)
            out[i, 2 * p] = mean[2 * p] + radius * np.cos(angle)
            if 2 * p + 1 < width:
                out[i, 2 * p + 1] = mean[2 * p + 1] + radius * np.sin(angle)


@final
class EdgeSet:
    """The edges of a graph while they are drawn: a hash set of 12 to 24 bytes for each.

    Args:
        num_edges: how many undirected edges there will be.
        node: int32 `[N]`, nodes by block.
        start: int64 `[blocks + 1]`; block `b` is `node[start[b]:start[b + 1]]`.
        per_class: blocks `c per_class..(c + 1) per_class - 1` make up class `c`.
        listed: int32 `[num_edges, 2]`; gets the edges as they are drawn, repeated ones too, and there is no set.
    """

    def __init__(
        self, num_edges: int, node: np.ndarray, start: np.ndarray, per_class: int, *, listed: np.ndarray | None = None
    ) -> None:
        self._num_edges, self._found = num_edges, 0
        self._node, self._start, self._per_class = node, start, per_class
        self._listed = listed
        if listed is not None:
            return
        self._table = np.zeros(1 << (3 * num_edges // 2).bit_length(), dtype=np.uint64)  # at most two thirds full

    def draw(
        self, key: np.uint64, wanted: int, weight: np.ndarray, *, inside: bool, progress: ProgressCallback
    ) -> None:
        """Add the first `wanted` distinct edges of an endless stream of draws.

        Args:
            key: of the stream.
            wanted: how many.
            weight: float64 `[N]`, propensity of each of `node`.
            inside: whether the two ends are of one block, or of two classes.
            progress: progress.
        """
        if wanted == 0:  # all weights may be zero
            return
        of_block = np.add.reduceat(weight, self._start[:-1])
        blocks = (self._start, *alias_tables(of_block, np.array([0, of_block.size])))
        members = (self._node, *alias_tables(weight, self._start))
        found, first = 0, 0
        while found < wanted:
            require(
                first < _MOST_DRAWS * wanted + _DRAWS_PER_PIECE,
                f"{first} draws gave only {found} of {wanted} edges; lower num_edges, homophily or max_degree",
            )
            last = first + _DRAWS_PER_PIECE
            if self._listed is not None:
                part = self._listed[self._found + found : self._found + wanted]
                # Only here: `cvgnn warmup` compiles what is imported.
                from cvgnn.ops.edge_stream import list_edges, piece_ranges

                ranges = piece_ranges(first, _DRAWS_PER_PIECE)
                found += list_edges(part, key, ranges, inside, blocks, members, self._per_class)
                first = ranges[-1][1]
                progress("edges", (self._found + found) / self._num_edges)
                continue
            found = draw_edges(self._table, found, wanted, key, first, last, inside, blocks, members, self._per_class)
            first = last
            progress("edges", (self._found + found) / self._num_edges)
        self._found += found

    def write_rows(self, new_array: Callable[..., np.ndarray], *, progress: ProgressCallback) -> None:
        """Make the arrays `indptr` and `indices`, a range of rows at a time; the set is used up."""
        n = self._node.size
        edges = self._table[self._table != _NONE]
        del self._table
        indptr = np.zeros(n + 1, dtype=np.int64)
        count_entries(edges, indptr[1:])
        np.cumsum(indptr, out=indptr)
        new_array("indptr", (n + 1,), np.int64)[:] = indptr
        indices = new_array("indices", (2 * self._num_edges,), np.int32)
        for first, last in row_blocks(indptr, _ENTRIES_PER_PIECE):
            piece = np.empty(indptr[last] - indptr[first], dtype=np.int32)
            fill_rows(edges, indptr, first, last, piece)
            indices[indptr[first] : indptr[last]] = piece
            progress("rows", last / n)
