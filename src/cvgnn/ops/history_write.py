"""Rows scattered over a table that no cache holds: written by a compiled copy that asks for a row before it needs it.

It takes half the time of torch's `index_copy_` (`python benchmarks/kernels.py`). Reading rows is left to torch's
`index_select`, which is as fast.
"""

from __future__ import annotations

from typing import Any

import torch
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from torch import Tensor

from cvgnn.errors import CvgnnError
from cvgnn.ops.backend import use_compiled
from cvgnn.ops.threads import run_rows

_AHEAD = 4  # rows


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
"""In compiled code: ask for the cache line at an address, without waiting for it."""


def _stored_word(context, place, value):  # type: ignore[no-untyped-def]
    def as_it_is(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return args[1]

    def rounded(context, builder, signature, args):  # type: ignore[no-untyped-def]
        word, bits = ir.IntType(32), args[1]
        even = builder.and_(builder.lshr(bits, word(16)), word(1))
        nearest = builder.lshr(builder.add(bits, builder.add(even, word(0x7FFF))), word(16))
        nan = builder.icmp_unsigned(">", builder.and_(bits, word(0x7FFFFFFF)), word(0x7F800000))
        return builder.trunc(builder.select(nan, word(0x7FC0), nearest), ir.IntType(16))

    return place(place, value), as_it_is if place == value else rounded


_stored: Any = intrinsic(_stored_word)
"""In compiled code: the second as it is stored where the first is; the bits of a float32 (uint32) become those of the
nearest bfloat16 (uint16), of two the even one."""


@njit(cache=True, nogil=True)
def first_outside(ids, bound):  # type: ignore[no-untyped-def]
    """The position of the first of `ids` that is not in `0..bound-1`, or -1."""
    for i in range(ids.size):
        if ids[i] < 0 or ids[i] >= bound:
            return i
    return -1


@njit(cache=True, nogil=True)
def _write(table, ids, rows, written, step, first, last):  # type: ignore[no-untyped-def]
    """`table[ids[i]] = rows[i]` and `written[ids[i]] = step` for `first <= i < last`.

    A table of bfloat16 is given as uint16, and then its rows, which are float32, as uint32.
    """
    base, row_bytes = table.ctypes.data, table.shape[1] * table.itemsize
    for i in range(first, last):
        if i + _AHEAD < last:
            address = base + ids[i + _AHEAD] * row_bytes
            for line in range(0, row_bytes, 64):
                prefetch(address + line)
        old, new = table[ids[i]], rows[i]
        for c in range(new.size):
            old[c] = _stored(old[c], new[c])
        written[ids[i]] = step


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
    if ids.dtype != torch.int64:
        raise CvgnnError(f"ids must be int64, not {ids.dtype}")
    if ids.is_cpu:  # on another device a check would wait for it
        bad = first_outside(ids.numpy(), table.shape[0])
        if bad >= 0:
            raise CvgnnError(f"ids must lie in 0..{table.shape[0] - 1}; found {int(ids[bad])}")
    if not use_compiled(table):
        table[ids] = rows.to(table.dtype)
        written[ids] = step
        return
    node_ids = ids.numpy()
    if table.dtype == torch.bfloat16:  # which NumPy does not have
        old, new = table.view(torch.uint16).numpy(), rows.float().contiguous().view(torch.uint32).numpy()
    else:
        old, new = table.numpy(), rows.to(table.dtype).contiguous().numpy()
    steps = written.numpy()
    run_rows(
        lambda first, last: _write(old, node_ids, new, steps, step, first, last), node_ids.size, width=new.shape[1]
    )
