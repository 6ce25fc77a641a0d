"""Compiled kernels of a hidden layer: bias, LayerNorm, activation and dropout in one pass over a row, `P^`, and back.

Legend: `z` a row of `A W`, `b` the bias, `m` and `r` LayerNorm's mean and 1/sqrt(variance + eps) of `z + b`, `x` the
normalised row `(z + b - m) r`, `v` what the activation gets: `x gain + shift`, or `z + b` without LayerNorm;
`h = act(v)`, `o` what is propagated: `h` after dropout. The plain twin is `fused_layer._plain_hidden_layer`.

A row is summed in the lanes of the processor's vectors (`reassoc`); rows do not depend on each other, and sums over
rows are taken in parts of `rows_in_part`, whatever the number of threads. So results do not depend on the threads.

Kernels that other kernels call say `fastmath=False`; without it numba gives them the fast math of their first caller.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from cvgnn.ops.compilation import njit
from cvgnn.ops.dropout import SCRAMBLE
from cvgnn.ops.history_write import bfloat16
from cvgnn.ops.sampling_kernels import word

RELU, ELU, GELU = range(3)  # the order of `fused_layer.ACTIVATIONS`

EPS = 1e-5
"""LayerNorm's."""

PART = 256
"""The rows of one partial sum; an eighth of it in large batches, because a range of a thread consists of such parts."""

FAST = {"reassoc", "contract", "nsz"}  # not "nnan" nor "ninf": NaN and infinity must propagate


def _scramble_words(context, u):  # type: ignore[no-untyped-def]
    """`cvgnn.ops.dropout.scramble`; numba's own arithmetic would take 64 bits for it, and so half the lanes."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        word = ir.IntType(32)
        (u,) = args
        for shift, factor in SCRAMBLE:
            u = builder.mul(builder.xor(u, builder.lshr(u, word(shift))), word(factor))
        return builder.xor(u, builder.lshr(u, word(16)))

    return types.uint32(types.uint32), codegen


_scramble: Any = intrinsic(_scramble_words)


def rows_in_part(n: int) -> int:
    """How many of `n` rows are summed before their sum is added to others."""
    return PART if n <= 4 * PART else PART // 8


_rows_in_part: Any = njit(fastmath=False)(rows_in_part)  # for kernels; from Python the plain function is twice as fast


@njit(cache=True, nogil=True, fastmath=False, error_model="numpy")
def _drop(h, o, state, threshold, scale):  # type: ignore[no-untyped-def]
    """`o = h mask / (1 - p)` for a row whose 64 random bits are `state`."""
    start, stride = np.uint32(state), np.uint32(state >> np.uint64(32)) | np.uint32(1)
    zero = h.dtype.type(0)
    for c in range(h.size):
        kept = h[c] * scale
        o[c] = kept if _scramble(np.uint32(c) * stride + start) >= threshold else zero


@njit(cache=True, nogil=True, fastmath=False, error_model="numpy")
def _activate(h, kind):  # type: ignore[no-untyped-def]
    """`h = act(h)` for a row; ReLU is part of `forward`'s own loops, which are compiled to vector instructions."""
    for c in range(h.size):
        v = h[c]
        if kind == ELU:
            h[c] = v if v > 0 else math.expm1(v)
        elif kind == GELU:
            h[c] = 0.5 * v * (1.0 + math.erf(v * math.sqrt(0.5)))


@njit(cache=True, nogil=True, fastmath=False, error_model="numpy")
def _slope(v, kind):  # type: ignore[no-untyped-def]
    """The derivative of an activation other than ReLU at `v`."""
    if kind == ELU:
        return 1.0 if v > 0 else math.exp(v)
    return 0.5 * (1.0 + math.erf(v * math.sqrt(0.5))) + v * math.exp(-0.5 * v * v) / math.sqrt(2.0 * math.pi)


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def forward(  # type: ignore[no-untyped-def]
    Z, bias, gain, shift, mean, inverse, kind, key, threshold, scale, rows, H, sent, first, last
):
    """`H` (which may be `Z` itself) and, where `threshold > 0`, `sent` for rows `first..last-1`.

    Args:
        Z: `[n, d]`, contiguous.
        bias, gain, shift: `[d]`; without LayerNorm gain is 1 and shift 0.
        mean, inverse: `[n]`, LayerNorm's, for the backward pass; empty where there is none.
        kind: of the activation: `RELU`, `ELU` or `GELU`.
        key, threshold: of dropout: an entry is dropped where its 32 random bits are below `threshold = p 2^32`.
        scale: 1/(1-p).
        rows: int64 `[n]`, what each row's mask is a function of; empty for its position.
        H, sent: `[n, d]`; `sent` may be empty without dropout.

    Returns:
        The sum of the rows of `H`, which is finite unless an entry is not, or the sum overflows.
    """
    d = Z.shape[1]
    checksum = Z.dtype.type(0)
    one = Z.dtype.type(1)
    kept = Z.dtype.type(scale)
    limit = np.uint32(threshold)
    zero = Z.dtype.type(0)
    floor = zero if kind == RELU else Z.dtype.type(-np.inf)  # ReLU is max(v, 0); the others come after the loop
    for i in range(first, last):
        z, h = Z[i], H[i]
        m, r = zero, one
        if mean.size > 0:
            total = zero
            for c in range(d):
                total += z[c] + bias[c]
            m = total / Z.dtype.type(d)
            total = zero
            for c in range(d):
                t = z[c] + bias[c] - m
                total += t * t
            r = one / np.sqrt(total / Z.dtype.type(d) + Z.dtype.type(EPS))
            mean[i], inverse[i] = m, r
        for c in range(d):
            v = (z[c] + bias[c] - m) * r * gain[c] + shift[c]
            h[c] = floor if v <= floor else v  # NaN stays NaN
        if kind != RELU:
            _activate(h, kind)
        if threshold > 0:
            _drop(h, sent[i], word(key, rows[i] if rows.size > 0 else i), limit, kept)
        for c in range(d):  # while the row is in the cache; a pass of its own would read all of H from memory
            checksum += h[c]
    return checksum


@njit(cache=True, nogil=True, error_model="numpy")
def drop_rows(A, start, key, threshold, scale, rows, first, last):  # type: ignore[no-untyped-def]
    """Dropout on the rows `first..last-1` of a dense `A`, in place; arguments as in `forward`.

    The first row of `A` is row `start` of the mask.
    """
    for i in range(first, last):
        row = rows[start + i] if rows.size > 0 else start + i
        _drop(A[i], A[i], word(key, row), np.uint32(threshold), A.dtype.type(scale))


@njit(cache=True, nogil=True, error_model="numpy")
def kept_entries(  # type: ignore[no-untyped-def]
    ids, indptr, indices, values, key, threshold, scale, rows, out_indptr, out_indices, out_values
):
    """Dropout on rows `ids` of a CSR matrix: the entries that are kept, scaled, as rows `0..n-1` of another.

    An entry is kept exactly if `drop_rows` keeps it where row `i` is `X[ids[i]]` written out.
    """
    limit, factor = np.uint32(threshold), values.dtype.type(scale)
    place = 0
    out_indptr[0] = 0
    for i in range(ids.size):
        state = word(key, rows[i] if rows.size > 0 else i)
        start, stride = np.uint32(state), np.uint32(state >> np.uint64(32)) | np.uint32(1)
        for e in range(indptr[ids[i]], indptr[ids[i] + 1]):
            if _scramble(np.uint32(indices[e]) * stride + start) >= limit:
                out_indices[place] = indices[e]
                out_values[place] = values[e] * factor
                place += 1
        out_indptr[i + 1] = place


@njit(cache=True, nogil=True, fastmath={"contract"}, error_model="numpy")
def aggregate(indptr, indices, weight, mask_weight, H, sent, out, first, last):  # type: ignore[no-untyped-def]
    """`out += P^ sent` for rows `first..last-1` of the sampled matrix `P^` (indptr, indices, weight).

    With `mask_weight`, the entries of `S`, `out += (P^ - S) H + S sent` (estimator `cvd`); it may be empty.
    """
    separated = mask_weight.size > 0
    for i in range(first, last):
        a = out[i]
        for e in range(indptr[i], indptr[i + 1]):
            s, o = mask_weight[e] if separated else weight[e], sent[indices[e]]
            for c in range(a.size):
                a[c] += s * o[c]
            w = weight[e] - s
            if w != 0:  # 0 for self loops and rows with all neighbors, too: then `cvd` is `cv` to the bit
                h = H[indices[e]]
                for c in range(a.size):
                    a[c] += w * h[c]


@njit(cache=True, nogil=True, fastmath=False, error_model="numpy")
def _through_activation(y, z, bias, gain, shift, kind, m, r):  # type: ignore[no-untyped-def]
    """`y *= act'(v)` for a row."""
    for c in range(y.size):
        y[c] *= _slope((z[c] + bias[c] - m) * r * gain[c] + shift[c], kind)


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def backward(  # type: ignore[no-untyped-def]
    d_out, indptr, indices, weight, mask_weight, d_own, H, sent, Z, bias, gain, shift, mean, inverse, kind, key,
    threshold, scale, rows, dZ, sums, first, last,
):  # fmt: skip
    """`dZ` for rows `first..last-1`, and the sums over each part of them that make the parameters' gradients.

    Args:
        d_out: `[m, d]`, the gradient of the aggregate.
        indptr, indices, weight: `P^` transposed, `[n, m]`: `d_sent = P^T d_out + d_own`, formed row by row.
        mask_weight: entries of `S` transposed where `aggregate` had them, else empty. Then
            `d_H = (P^ - S)^T d_out + mask (S^T d_out + d_own)`.
        d_own: `[m', d]`, the gradient of the first `m'` rows of `sent`; no rows for none.
        H, sent: `[n, d]`, before and after dropout. With ReLU the gradient of `sent` passes exactly where `sent` is
            positive, that of `H` where `H` is.
        Z, bias, gain, shift, mean, inverse, kind, key, threshold, scale, rows: as in `forward`.
        dZ: `[n, d]`, of the dtype of `Z`, or uint16 for the bits of bfloat16.
        sums: `[parts, 3, d]`, zero: the gradients of bias, gain and shift, part by part.
    """
    d = dZ.shape[1]
    zero, one = Z.dtype.type(0), Z.dtype.type(1)
    s = Z.dtype.type(scale)
    share = one / Z.dtype.type(d) if mean.size > 0 else zero  # of a row's sums in LayerNorm's gradient
    y = np.empty(d, Z.dtype)  # the gradient of `o`, then of `v`
    separated = mask_weight.size > 0
    unmasked = np.empty(d if separated else 0, Z.dtype)
    passes = np.ones(d, Z.dtype)  # instead of `o` where the activation is not ReLU
    part = _rows_in_part(Z.shape[0])
    for i in range(first, last):
        o, z, dz = (H[i] if separated else sent[i]) if kind == RELU else passes, Z[i], dZ[i]
        m, r = (mean[i], inverse[i]) if mean.size > 0 else (zero, one)
        d_bias, d_gain, d_shift = sums[i // part, 0], sums[i // part, 1], sums[i // part, 2]
        if i < d_own.shape[0]:
            g = d_own[i]
            for c in range(d):
                y[c] = s * g[c]
        else:
            y[:] = zero
        unmasked[:] = zero
        for e in range(indptr[i], indptr[i + 1]):
            w, g = s * (mask_weight[e] if separated else weight[e]), d_out[indices[e]]
            for c in range(d):
                y[c] += w * g[c]
            w = weight[e] - mask_weight[e] if separated else zero
            if w != zero:
                for c in range(d):
                    unmasked[c] += w * g[c]
        if threshold > 0 and kind != RELU:
            # An entry of `sent` may be 0 without being dropped: the mask is drawn again.
            _drop(y, y, word(key, rows[i] if rows.size > 0 else i), np.uint32(threshold), Z.dtype.type(1))
        if separated:
            # With ReLU `sent` shows the mask wherever it counts: where `H` is 0, no gradient passes at all.
            kept = sent[i] if kind == RELU else passes
            for c in range(d):
                y[c] = (y[c] if kept[c] > zero else zero) + unmasked[c]
        if kind != RELU:
            _through_activation(y, z, bias, gain, shift, kind, m, r)
        total, product = zero, zero
        for c in range(d):
            t = y[c] if o[c] > zero else zero
            y[c] = t
            t *= gain[c]
            total += t
            product += t * ((z[c] + bias[c] - m) * r)
        total, product = total * share, product * share
        for c in range(d):
            x = (z[c] + bias[c] - m) * r
            t = r * (y[c] * gain[c] - total - x * product)
            d_gain[c] += y[c] * x
            d_shift[c] += y[c]
            d_bias[c] += t
            if dZ.itemsize == 2:  # NumPy has no bfloat16
                dz[c] = bfloat16(np.float32(t))
            else:
                dz[c] = t
