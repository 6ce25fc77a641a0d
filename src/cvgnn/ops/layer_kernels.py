"""Compiled kernels of a hidden layer: bias, LayerNorm, ReLU and dropout in one pass over each row, `P^`, and back.

Legend: `z` a row of `A W`, `b` the bias, `m` and `r` LayerNorm's mean and 1/sqrt(variance + eps) of `z + b`, `x` the
normalised row `(z + b - m) r`, `y` LayerNorm's output `x gain + shift`, `h = max(y, 0)`, `o` what is propagated: `h`
after dropout. `cvgnn.reference` holds the literal twin; `cvgnn.ops.dropout` the one of the mask.

A row is summed in the lanes of the processor's vectors (`reassoc`); rows do not depend on each other, and sums over
rows are taken in parts of `rows_in_part`, whatever the number of threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from cvgnn.ops.dropout import SCRAMBLE
from cvgnn.ops.sampling_kernels import mix
from cvgnn.rng import GOLDEN

PART = 256
"""Rows in a part of a small batch; in a large one an eighth of it, because threads take whole parts each."""

_GOLDEN = np.uint64(GOLDEN)
FAST = {"reassoc", "contract", "nsz"}  # not "nnan" nor "ninf": a diverged run must show


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


@njit(cache=True, nogil=True)
def rows_in_part(n):  # type: ignore[no-untyped-def]
    """How many of `n` rows are summed before their sum is added to others."""
    return PART if n <= 4 * PART else PART // 8


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def _drop(h, o, state, threshold, scale):  # type: ignore[no-untyped-def]
    """`o = h mask / (1 - p)` for a row whose 64 random bits are `state`."""
    start, stride = np.uint32(state), np.uint32(state >> np.uint64(32)) | np.uint32(1)
    zero = h.dtype.type(0)
    for c in range(h.size):
        kept = h[c] * scale
        o[c] = kept if _scramble(np.uint32(c) * stride + start) >= threshold else zero


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def forward(Z, bias, gain, shift, eps, key, threshold, scale, H, sent, mean, inverse, first, last):  # type: ignore[no-untyped-def]
    """`H` (which may be `Z` itself) and, where `threshold > 0`, `sent` for rows `first..last-1`.

    Args:
        Z: `[n, d]`, contiguous.
        bias: `[d]`.
        gain, shift: LayerNorm's, `[d]`; empty where there is none.
        eps: LayerNorm's.
        key, threshold: of dropout: an entry is dropped where its 32 random bits are below `threshold = p 2^32`.
        scale: 1/(1-p).
        H, sent: `[n, d]`; `sent` may be empty without dropout.
        mean, inverse: `[n]`, for the backward pass; may be empty without LayerNorm.
    """
    d = Z.shape[1]
    one = Z.dtype.type(1)
    kept = Z.dtype.type(scale)
    limit = np.uint32(threshold)
    zero = Z.dtype.type(0)
    for i in range(first, last):
        z, h = Z[i], H[i]
        if gain.size > 0:
            total = zero
            for c in range(d):
                total += z[c] + bias[c]
            m = total / Z.dtype.type(d)
            total = zero
            for c in range(d):
                t = z[c] + bias[c] - m
                total += t * t
            r = one / np.sqrt(total / Z.dtype.type(d) + Z.dtype.type(eps))
            mean[i], inverse[i] = m, r
            for c in range(d):
                y = (z[c] + bias[c] - m) * r * gain[c] + shift[c]
                h[c] = zero if y <= zero else y
        else:
            for c in range(d):
                y = z[c] + bias[c]
                h[c] = zero if y <= zero else y
        if threshold > 0:
            _drop(h, sent[i], mix(key + np.uint64(i + 1) * _GOLDEN), limit, kept)


@njit(cache=True, nogil=True, error_model="numpy")
def drop_rows(A, start, key, threshold, scale, first, last):  # type: ignore[no-untyped-def]
    """Dropout on the rows `first..last-1` of a dense `A`, in place; arguments as in `forward`.

    `A` begins with row `start` of the matrix that is dropped out.
    """
    for i in range(first, last):
        _drop(A[i], A[i], mix(key + np.uint64(start + i + 1) * _GOLDEN), np.uint32(threshold), A.dtype.type(scale))


@njit(cache=True, nogil=True, error_model="numpy")
def kept_entries(ids, indptr, indices, values, key, threshold, scale, out_indptr, out_indices, out_values):  # type: ignore[no-untyped-def]
    """Dropout on rows `ids` of a CSR matrix: the entries that are kept, scaled, as rows `0..n-1` of another.

    An entry is kept exactly if `drop_rows` keeps it where row `i` is `X[ids[i]]` written out.
    """
    limit, factor = np.uint32(threshold), values.dtype.type(scale)
    place = 0
    out_indptr[0] = 0
    for i in range(ids.size):
        state = mix(key + np.uint64(i + 1) * _GOLDEN)
        start, stride = np.uint32(state), np.uint32(state >> np.uint64(32)) | np.uint32(1)
        for e in range(indptr[ids[i]], indptr[ids[i] + 1]):
            if _scramble(np.uint32(indices[e]) * stride + start) >= limit:
                out_indices[place] = indices[e]
                out_values[place] = values[e] * factor
                place += 1
        out_indptr[i + 1] = place


@njit(cache=True, nogil=True, fastmath={"contract"}, error_model="numpy")
def aggregate(indptr, indices, weight, sent, out, first, last):  # type: ignore[no-untyped-def]
    """`out += P^ sent` for rows `first..last-1` of the sampled matrix `P^` (indptr, indices, weight)."""
    for i in range(first, last):
        a = out[i]
        for e in range(indptr[i], indptr[i + 1]):
            w, o = weight[e], sent[indices[e]]
            for c in range(a.size):
                a[c] += w * o[c]


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def backward(d_out, indptr, indices, weight, sent, Z, bias, gain, mean, inverse, scale, dZ, sums, first, last):  # type: ignore[no-untyped-def]
    """`dZ` for rows `first..last-1`, and the sums over each part of them that make the parameters' gradients.

    Args:
        d_out: `[m, d]`, the gradient of the aggregate.
        indptr, indices, weight: `P^` transposed, `[n, m]`: `d_sent = P^T d_out`, formed row by row.
        sent: `[n, d]`, what was propagated: positive exactly where the gradient passes.
        Z, bias, gain, mean, inverse: as in `forward`.
        scale: 1/(1-p).
        dZ: `[n, d]`.
        sums: `[parts, 3, d]`, zero: the gradients of bias, gain and shift, part by part.
    """
    d = d_out.shape[1]
    zero = d_out.dtype.type(0)
    s = d_out.dtype.type(scale)
    y = np.empty(d, d_out.dtype)
    part = rows_in_part(Z.shape[0])
    for i in range(first, last):
        o, z, dz = sent[i], Z[i], dZ[i]
        d_bias, d_gain, d_shift = sums[i // part, 0], sums[i // part, 1], sums[i // part, 2]
        y[:] = zero
        for e in range(indptr[i], indptr[i + 1]):
            w, g = s * weight[e], d_out[indices[e]]
            for c in range(d):
                y[c] += w * g[c]
        if gain.size > 0:
            m, r = mean[i], inverse[i]
            total, product = zero, zero
            for c in range(d):
                t = y[c] if o[c] > zero else zero
                y[c] = t
                t *= gain[c]
                total += t
                product += t * ((z[c] + bias[c] - m) * r)
            total /= d_out.dtype.type(d)
            product /= d_out.dtype.type(d)
            for c in range(d):
                x = (z[c] + bias[c] - m) * r
                t = r * (y[c] * gain[c] - total - x * product)
                d_gain[c] += y[c] * x
                d_shift[c] += y[c]
                d_bias[c] += t
                dz[c] = t
        else:
            for c in range(d):
                t = y[c] if o[c] > zero else zero
                d_bias[c] += t
                dz[c] = t


@njit(cache=True, nogil=True, error_model="numpy")
def cross_entropy(log_p, p, labels, ids, place, placed, smoothing, dZ, start):  # type: ignore[no-untyped-def]
    """The mean over the batch of -sum_c q[c] log softmax(z)[c], and its gradient by the logits `z` added to `dZ`.

    `q` is 1 at the label, less `smoothing`, which is spread over all classes. Of the batch's distinct nodes, those are
    looked at whose logits are given: the `n` from the `start`-th on.

    Args:
        log_p, p: `[n, C]`, log softmax of the logits and softmax.
        labels: `[N]`.
        ids: `[B]`, the batch's node ids.
        place: `[B]`, the row of each if `placed`; else row `i` is the `i`-th's.
        smoothing: in `[0, 1)`.
        dZ: `[n, C]`, zero.
        start: which row of all is the first here.

    Returns:
        The sum over these nodes, in float64, by the number of all `ids`; the position in `ids` of the first node whose
        label is no class, or -1.
    """
    total = 0.0
    n, C = p.shape
    share, sure = p.dtype.type(1.0 / ids.size), p.dtype.type((1.0 - smoothing) / ids.size)
    spread = p.dtype.type(smoothing / (C * ids.size))
    for i in range(0 if placed else start, ids.size if placed else start + n):
        row = (place[i] if placed else i) - start
        if row < 0 or row >= n:
            continue
        if ids[i] < 0 or ids[i] >= labels.size:
            return np.nan, i
        label = labels[ids[i]]
        if label < 0 or label >= C:
            return np.nan, i
        total -= (1.0 - smoothing) * log_p[row, label]
        softmax, dz = p[row], dZ[row]
        for c in range(C):
            dz[c] += share * softmax[c]
        dz[label] -= sure
        if smoothing > 0.0:
            for c in range(C):
                total -= smoothing / C * log_p[row, c]
                dz[c] -= spread
    return total / ids.size, -1


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def top(A, W, bias, labels, ids, place, placed, smoothing, dW, d_bias, dA):  # type: ignore[no-untyped-def]
    """The last layer on a small batch, forward and back: logits `A W + b`, mean cross entropy, and its gradients.

    What `cvgnn.model.gradient` otherwise makes of a dozen calls of torch, each of which takes longer than the sums.

    Args:
        A: `[n, d]`, the aggregate.
        W, bias: `[d, C]` and `[C]`.
        labels, ids, place, placed, smoothing: as in `cross_entropy`.
        dW, d_bias, dA: the gradients, of the shapes of `W`, `bias` and `A`.

    Returns:
        As `cross_entropy`.
    """
    n, d = A.shape
    C = W.shape[1]
    zero, share, sure = A.dtype.type(0), A.dtype.type(1.0 / ids.size), A.dtype.type((1.0 - smoothing) / ids.size)
    spread = smoothing / C
    count = np.zeros(n, np.int64)  # how often a node was drawn
    P = np.empty((n, C), A.dtype)  # the logits less their row's largest, then their gradient
    total = 0.0
    for i in range(ids.size):  # labels first: nothing may be written for one that is none
        if ids[i] < 0 or ids[i] >= labels.size or labels[ids[i]] < 0 or labels[ids[i]] >= C:
            return np.nan, i
        count[place[i] if placed else i] += 1
    for i in range(n):
        z, a = P[i], A[i]
        for c in range(C):
            z[c] = bias[c]
        for j in range(d):
            w, x = W[j], a[j]
            for c in range(C):
                z[c] += x * w[c]
        largest = z[0]
        for c in range(C):
            largest = z[c] if z[c] > largest or z[c] != z[c] else largest
        for c in range(C):
            z[c] -= largest
    for i in range(ids.size):
        total -= (1.0 - smoothing) * P[place[i] if placed else i, labels[ids[i]]]
    for i in range(n):
        z, mass = P[i], zero
        if smoothing > 0.0:
            for c in range(C):
                total -= count[i] * spread * z[c]
        for c in range(C):
            z[c] = np.exp(z[c])
            mass += z[c]
        total += count[i] * np.log(float(mass))
        scale = share * A.dtype.type(count[i]) / mass
        less = share * A.dtype.type(count[i] * spread)
        for c in range(C):
            z[c] = z[c] * scale - less
    for i in range(ids.size):
        P[place[i] if placed else i, labels[ids[i]]] -= sure
    dW[:] = zero
    d_bias[:] = zero
    for i in range(n):
        z, a, da = P[i], A[i], dA[i]
        for c in range(C):
            d_bias[c] += z[c]
        for j in range(d):
            w, dw, x = W[j], dW[j], a[j]
            t = zero
            for c in range(C):
                dw[c] += x * z[c]
                t += z[c] * w[c]
            da[j] = t
    return total / ids.size, -1
