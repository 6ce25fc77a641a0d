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
        e, end = indptr[ids[i]], indptr[ids[i] + 1]
        # Four rows of W at a time, so that z is read and written once for them. They are added in order: the bits are
        # those of one at a time.
        while e + 4 <= end:
            x0, x1, x2, x3 = values[e], values[e + 1], values[e + 2], values[e + 3]
            w0, w1, w2, w3 = W[indices[e]], W[indices[e + 1]], W[indices[e + 2]], W[indices[e + 3]]
            for c in range(z.size):
                z[c] = (((z[c] + x0 * w0[c]) + x1 * w1[c]) + x2 * w2[c]) + x3 * w3[c]
            e += 4
        while e < end:
            x, w = values[e], W[indices[e]]
            for c in range(z.size):
                z[c] += x * w[c]
            e += 1


@njit(cache=True, nogil=True, fastmath={"contract"}, error_model="numpy")
def accumulate(ids, indptr, indices, values, dZ, dW, first, last):  # type: ignore[no-untyped-def]
    """`dW += X[ids]^T dZ` in columns `first..last-1`; rows are added in the order of `ids`."""
    for i in range(ids.size):
        dz = dZ[i, first:last]
        for e in range(indptr[ids[i]], indptr[ids[i] + 1]):
            x, dw = values[e], dW[indices[e], first:last]
            for c in range(dz.size):
                dw[c] += x * dz[c]
