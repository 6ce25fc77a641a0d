"""`A T` for a float32 table of one cache line a row: `sum_lines`. `row_sum.weighted_sum` is the plain twin.

A table of 16 columns fits the cache that all cores share up to some 400,000 rows, where a wider one is read from memory
for every entry of `A`. There this takes 0.4 to 0.6 of `embedding_bag`'s time (docs/benchmarks/setup.md). Rows are added
in the order of the entries, as `embedding_bag` does: the bits are the same.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from torch import Tensor

from cvgnn.ops.compilation import njit
from cvgnn.ops.row_sum import Array, row_blocks
from cvgnn.ops.threads import num_threads, run_ranges

LINE = 16
"""The columns of a table: a cache line of float32."""

MOST_ROWS = 24 * 2**20 // 64
"""The rows of a table that fit the shared cache: three quarters of 32 MiB."""


def _add_ids(context, out, table, ids, count):  # type: ignore[no-untyped-def]
    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        out, table, ids, count = args
        line, word = ir.VectorType(ir.FloatType(), LINE), ir.IntType(64)

        def at(address: Any, kind: Any) -> Any:
            return builder.inttoptr(address, kind.as_pointer())

        total = cgutils.alloca_once_value(builder, builder.load(at(out, line), align=4))  # type: ignore[no-untyped-call]
        with cgutils.for_range(builder, count) as loop:
            row = builder.zext(builder.load(builder.gep(at(ids, ir.IntType(32)), [loop.index])), word)
            address = builder.add(table, builder.mul(row, word(4 * LINE)))
            builder.store(builder.fadd(builder.load(total), builder.load(at(address, line), align=4)), total)
        builder.store(builder.load(total), at(out, line), align=4)
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, types.intp, types.intp), codegen


_add: Any = intrinsic(_add_ids)
"""In compiled code: add to the line at `out` those of a table at `count` int32 ids. Arguments are addresses.

In LLVM's vectors: numba's own code would store and load the sum for every entry.
"""


def sum_lines(indptr: Array, indices: Array, table: Tensor, out: Tensor) -> None:
    """`out += A T`.

    Args:
        indptr: int64 `[N + 1]`.
        indices: int32 `[E]`, in `0..n-1`, which is not checked.
        table: `T`, float32 `[n, LINE]`, contiguous.
        out: float32 `[N, LINE]`, contiguous.
    """
    T, total = table.numpy(), out.numpy()
    budget = max(1, indices.size // (4 * num_threads()))  # several ranges a thread, because rows differ in length
    run_ranges(lambda _, a, b: _sum(indptr, indices, T, total, a, b), list(row_blocks(indptr, budget)))


@njit(cache=True, nogil=True)
def _sum(indptr, indices, table, out, first, last):  # type: ignore[no-untyped-def]
    """`out += A T` in rows `first..last-1`."""
    source, ids, to = table.ctypes.data, indices.ctypes.data, out.ctypes.data
    for v in range(first, last):
        _add(to + v * (4 * LINE), source, ids + 4 * indptr[v], indptr[v + 1] - indptr[v])
