"""Scattered rows of a table that no cache holds, written and read: compiled copies that prefetch the rows.

Writing takes half the time of torch's `index_copy_` (`python benchmarks/kernels.py`), reading three quarters of that of
`index_select`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from torch import Tensor

from cvgnn.errors import CvgnnError
from cvgnn.ops.backend import use_compiled
from cvgnn.ops.compilation import njit
from cvgnn.ops.threads import run_rows

_AHEAD = 4  # the distance of the prefetch, in rows


def _prefetch_line(context, address):  # type: ignore[no-untyped-def]
    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        pointer, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, word, word, word])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")  # type: ignore[no-untyped-call]
        read, keep, data = word(0), word(3), word(1)
        builder.call(function, [builder.inttoptr(args[0], pointer), read, keep, data])
        return context.get_dummy_value()

    return types.void(types.intp), codegen


prefetch: Any = intrinsic(_prefetch_line)
"""In compiled code: prefetch the cache line at an address."""


def _round_word(context, value):  # type: ignore[no-untyped-def]
    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        word, half = ir.IntType(32), ir.IntType(16)
        bits = builder.bitcast(args[0], word)
        odd = builder.and_(builder.lshr(bits, word(16)), word(1))
        rounded = builder.lshr(builder.add(bits, builder.add(odd, word(0x7FFF))), word(16))  # a tie to the even one
        is_nan = builder.fcmp_unordered("uno", args[0], args[0])  # its upper half alone may be that of infinity
        return builder.select(is_nan, half(0x7FC0), builder.trunc(rounded, half))

    return types.uint16(types.float32), codegen


bfloat16: Any = intrinsic(_round_word)
"""In compiled code: the bits of the nearest bfloat16 number."""


@njit(cache=True)  # with the GIL: to give it away and to get it back takes longer than to look at a thread's ids
def first_outside(ids, bound):  # type: ignore[no-untyped-def]
    """The position of the first of `ids` that is not in `0..bound-1`, or -1."""
    for i in range(ids.size):
        if ids[i] < 0 or ids[i] >= bound:
            return i
    return -1


@njit(cache=True, nogil=True)
def touch_rows(table, ids):  # type: ignore[no-untyped-def]
    """Read a byte of every page of the rows `ids`, so that those of a mapped file are in memory; returns their sum."""
    total, width = 0, table.shape[1]
    for i in range(ids.size):
        row = table[ids[i]]
        for c in range(0, width, 4096):
            total += row[c]
        total += row[width - 1]  # a row may begin in one page and end in the next
    return total


@njit(cache=True, nogil=True)
def _write(table, ids, rows, written, step, first, last):  # type: ignore[no-untyped-def]
    """`table[ids[i]] = rows[i]` and `written[ids[i]] = step` for `first <= i < last`; a uint16 table gets bfloat16."""
    base, row_bytes = table.ctypes.data, table.shape[1] * table.itemsize
    for i in range(first, last):
        if i + _AHEAD < last:
            address = base + ids[i + _AHEAD] * row_bytes
            for line in range(0, row_bytes, 64):
                prefetch(address + line)
        old, new = table[ids[i]], rows[i]
        if table.itemsize == 2:  # NumPy has no bfloat16
            for c in range(new.size):
                old[c] = bfloat16(np.float32(new[c]))
        else:
            for c in range(new.size):
                old[c] = new[c]
        written[ids[i]] = step


@njit(cache=True, nogil=True)
def _read(table, ids, rows, first, last):  # type: ignore[no-untyped-def]
    """`rows[i] = table[ids[i]]` for `first <= i < last`."""
    base, row_bytes = table.ctypes.data, table.shape[1] * table.itemsize
    for i in range(first, last):
        if i + _AHEAD < last:
            address = base + ids[i + _AHEAD] * row_bytes
            for line in range(0, row_bytes, 64):
                prefetch(address + line)
        row, old = rows[i], table[ids[i]]
        for c in range(row.size):
            row[c] = old[c]


def row_reader(table: Tensor, ids: Tensor) -> Callable[[int, int], Tensor]:
    """What reads `table[ids[first:last]]`, a copy, given `first` and `last`; safe to call from several threads.

    Args:
        table: `[N, d]`, contiguous.
        ids: int64 `[n]`.

    >>> row_reader(torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([2, 0]))(1, 2).tolist()
    [[1.0]]
    """
    if not use_compiled(table):
        return lambda first, last: table.index_select(0, ids[first:last])
    # All that a range does not need is done here: threads that read would wait for each other's Python.
    node_ids, source = checked_ids(ids, table.shape[0]), as_array(table)

    def read(first: int, last: int) -> Tensor:
        rows = np.empty((last - first, source.shape[1]), source.dtype)
        chosen = node_ids[first:last]
        run_rows(lambda a, b: _read(source, chosen, rows, a, b), chosen.size, width=rows.shape[1])
        return torch.from_numpy(rows).view(table.dtype)

    return read


def as_array(table: Tensor) -> np.ndarray[Any, np.dtype[Any]]:
    """The same memory; uint16 stands for bfloat16, which NumPy does not have."""
    return (table.view(torch.uint16) if table.dtype == torch.bfloat16 else table).numpy()


def checked_ids(ids: Tensor, bound: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Node ids as an array: int64 in `0..bound-1`."""
    if ids.dtype != torch.int64:
        raise CvgnnError(f"ids must be int64, not {ids.dtype}")
    node_ids = ids.numpy()
    bad = first_outside(node_ids, bound)
    if bad >= 0:
        raise CvgnnError(f"ids must lie in 0..{bound - 1}; found {int(ids[bad])}")
    return node_ids


def write_rows(table: Tensor, ids: Tensor, rows: Tensor, written: Tensor, step: int) -> None:
    """`table[ids] = rows` and `written[ids] = step`.

    Args:
        table: `[N, d]`, contiguous.
        ids: int64 `[n]`, distinct.
        rows: `[n, d]`, converted to the table's dtype.
        written: int64 `[N]`.
        step: when.

    >>> table, written = torch.zeros(3, 1), torch.zeros(3, dtype=torch.int64)
    >>> write_rows(table, torch.tensor([2, 0]), torch.tensor([[1.0], [2.0]]), written, 7)
    >>> table.tolist(), written.tolist()
    ([[2.0], [0.0], [1.0]], [7, 0, 7])
    """
    if rows.shape != (ids.numel(), table.shape[1]):
        raise CvgnnError(f"values must have the shape {[ids.numel(), table.shape[1]]}, not {list(rows.shape)}")
    if not use_compiled(table):
        if ids.is_cpu:  # on another device a check would wait for it
            checked_ids(ids, table.shape[0])
        table[ids] = rows.to(table.dtype)
        written[ids] = step
        return
    node_ids = checked_ids(ids, table.shape[0])
    new = rows.contiguous() if rows.dtype == torch.float64 else rows.float().contiguous()
    # On one thread: the other draws the next batch meanwhile.
    _write(as_array(table), node_ids, new.numpy(), written.numpy(), step, 0, node_ids.size)
