"""Compiled products with rows of a sparse matrix `X`: `X[ids] W` is a weighted sum of rows of `W`."""

from __future__ import annotations

from cvgnn.ops.compilation import njit


@njit(cache=True, nogil=True, fastmath={"contract"}, error_model="numpy")
def multiply(ids, indptr, indices, values, W, Z, add, first, last):  # type: ignore[no-untyped-def]
    """`Z[i] = X[ids[i]] W` for `first <= i < last`, or `Z[i] += ...`; rows of a CSR matrix `X`."""
    for i in range(first, last):
        z = Z[i]
        if not add:
            z[:] = 0
        for e in range(indptr[ids[i]], indptr[ids[i] + 1]):
            x, w = values[e], W[indices[e]]
            for c in range(z.size):
                z[c] += x * w[c]


@njit(cache=True, nogil=True, fastmath={"contract"}, error_model="numpy")
def accumulate(ids, indptr, indices, values, dZ, dW, first, last):  # type: ignore[no-untyped-def]
    """`dW += X[ids]^T dZ` in columns `first..last-1`; rows are added in the order of `ids`."""
    for i in range(ids.size):
        dz = dZ[i, first:last]
        for e in range(indptr[ids[i]], indptr[ids[i] + 1]):
            x, dw = values[e], dW[indices[e], first:last]
            for c in range(dz.size):
                dw[c] += x * dz[c]
