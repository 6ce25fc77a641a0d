"""One step of an Adam-type optimizer: weight decay, both moments and the weights in one pass over each parameter.

Legend, the paper's letters, as in `cvgnn.optim`; each is a list with one tensor per parameter:

    W, G     parameters and their gradients
    M        the first moments; without them the step goes along G
    V        the second moments; without them there is no root and no division
    V_hat    AMSGrad's averages, of which V is the running maximum; without them V itself is the average

    G <- G + weight_decay W
    M <- M + m_gain (G - M)
    A <- v_keep A + v_gain G^2                   A is V_hat where there is one, else V
    V <- max(V, V_hat)
    W <- W - lr M / (scale sqrt(max(V, floor) + added) + eps)

Five names in two forms are one formula: they differ in the moments that exist and in the coefficients.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numba import carray, types  # type: ignore[attr-defined]
from numba.extending import intrinsic
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.graph import increment_version

from cvgnn.errors import require
from cvgnn.ops.backend import use_compiled
from cvgnn.ops.compilation import njit

Tensors = list[Tensor]


class StepCoefficients(NamedTuple):
    """The numbers in the formula above."""

    lr: float
    weight_decay: float = 0.0
    m_gain: float = 1.0
    v_keep: float = 0.0
    v_gain: float = 0.0
    floor: float = 0.0
    added: float = 0.0
    scale: float = 1.0
    eps: float = 0.0


class Placement(NamedTuple):
    """Where the compiled kernel finds some parameters and their moments.

    Args:
        addresses: of W, M, V and V_hat, in this order.
        sizes: of the parameters.
        moments: for each of M, V and V_hat True if it exists, else None: numba compiles a kernel for each combination.
        table: one row per parameter: its size, and the addresses of W, G, M, V and V_hat; 0 for none.
        zero: a number of the type of all of them.
        aliases: tensors of the same memory. They keep it allocated, so that no other tensor can get one of the
            addresses; equal addresses therefore prove that the placement is still valid.
    """

    addresses: list[int]
    sizes: list[int]
    moments: list[bool | None]
    table: NDArray[np.int64]
    zero: np.floating[Any]
    aliases: Tensors


def optimizer_step(
    W: Tensors,
    G: Tensors,
    M: Tensors,
    V: Tensors,
    V_hat: Tensors,
    coefficients: StepCoefficients,
    placement: Placement | None = None,
) -> Placement | None:
    """Move parameters and their moments by one step, in place.

        W <- W - lr M / (scale sqrt(max(V, floor) + added) + eps)

    Args:
        W: the parameters, any shapes.
        G: their gradients, of the same shapes; only read.
        M, V, V_hat: the moments, of the same shapes; empty lists for those that the method does not have.
        coefficients: of this step; see the head of this file.
        placement: the result of the last call; it saves most checks if the tensors are the same.

    Returns:
        The placement for the next call; None where the compiled kernel cannot be used.

    >>> W = torch.tensor([1.0, 1.0])
    >>> half = StepCoefficients(lr=0.5)
    >>> _ = optimizer_step([W], [torch.tensor([1.0, -1.0])], [], [], [], half)
    >>> W
    tensor([0.5000, 1.5000])
    """
    if use_compiled(G[0]):
        addresses = [t.data_ptr() for t in (*W, *M, *V, *V_hat)]
        if placement is None or placement.addresses != addresses:
            placement = _place(W, M, V, V_hat, addresses)
        if placement is not None and _are_arrays(G, W[0].dtype) and [g.numel() for g in G] == placement.sizes:
            placement.table[:, 2] = [g.data_ptr() for g in G]
            _compiled_step(placement.zero, placement.table, *placement.moments, *coefficients)
            # torch does not see the kernel's writes; autograd must, to reject a backward pass with the old W.
            increment_version(W)
            return placement
    plain_optimizer_step(W, G, M, V, V_hat, coefficients)
    return placement


def sum_of_squares(tensors: Tensors) -> float:
    """Of all entries; not finite if one of them is not, or where a square overflows in the dtype of its tensor.

    >>> sum_of_squares([torch.tensor([3.0]), torch.tensor([4.0])])
    25.0
    """
    zero = _ZEROS.get(tensors[0].dtype) if tensors else None
    if zero is not None and use_compiled(tensors[0]) and _are_arrays(tensors, tensors[0].dtype):
        table = np.array(([t.numel() for t in tensors], [t.data_ptr() for t in tensors]))
        return _compiled_squares(zero, table)  # type: ignore[no-any-return]
    norms = [float(torch.linalg.vector_norm(t)) for t in tensors]
    return sum(norm * norm for norm in norms)  # not norm**2, which raises where this overflows to infinity


@torch.no_grad()
def plain_optimizer_step(
    W: Tensors, G: Tensors, M: Tensors, V: Tensors, V_hat: Tensors, coefficients: StepCoefficients
) -> None:
    """`optimizer_step` in public torch calls: any device, layout in memory and floating dtype; see there."""
    c = coefficients
    for i, (w, g) in enumerate(zip(W, G, strict=True)):
        require(
            g.layout is torch.strided,
            f"the gradient of a parameter must be dense, got the layout {g.layout} for the shape {list(w.shape)}; "
            "build the layer with sparse=False, or call to_dense() on the gradient",
        )
        if c.weight_decay:
            g = g.add(w, alpha=c.weight_decay)  # a new tensor: the gradient belongs to the caller
        m = M[i].lerp_(g, c.m_gain) if M else g
        if not V:
            w.add_(m, alpha=-c.lr)
            continue
        average = V_hat[i] if V_hat else V[i]
        average.mul_(c.v_keep).addcmul_(g, g, value=c.v_gain)
        if V_hat:
            torch.maximum(V[i], V_hat[i], out=V[i])
        root = V[i].clamp_min(c.floor).add_(c.added).sqrt_()
        w.addcdiv_(m, root.mul_(c.scale).add_(c.eps), value=-c.lr)


_ZEROS: dict[torch.dtype, np.floating[Any]] = {torch.float32: np.float32(0), torch.float64: np.float64(0)}
"""The types that the kernel is compiled for, each by a number of it."""


def _place(W: Tensors, M: Tensors, V: Tensors, V_hat: Tensors, addresses: list[int]) -> Placement | None:
    """The placement of parameters and moments; None unless all are arrays of one type, and as long as their parameter.

    A kernel would read and write past the end of a moment that is too short.
    """
    zero, tensors, sizes = _ZEROS.get(W[0].dtype), [*W, *M, *V, *V_hat], [w.numel() for w in W]
    if zero is None or not _are_arrays(tensors, W[0].dtype):
        return None
    table = np.zeros((len(W), 6), np.int64)
    table[:, 0] = sizes
    for column, group in ((1, W), (3, M), (4, V), (5, V_hat)):
        if group and [t.numel() for t in group] != sizes:
            return None
        if group:
            table[:, column] = [t.data_ptr() for t in group]
    moments = [True if moment else None for moment in (M, V, V_hat)]
    return Placement(addresses, sizes, moments, table, zero, [t.detach() for t in tensors])


def _are_arrays(tensors: Tensors, dtype: torch.dtype) -> bool:
    """Whether each tensor is of that dtype and contiguous in memory, and no view whose signs torch flips lazily."""
    return all(
        t.is_cpu and t.dtype is dtype and t.layout is torch.strided and t.is_contiguous() and not t.is_neg()
        for t in tensors
    )


def _pointer_of(typing_context, address, like):  # type: ignore[no-untyped-def]
    """The pointer to numbers of the type of `like` at an integer address.

    Addresses, because `Tensor.data_ptr` takes a tenth of the time of `Tensor.numpy`: to wrap the tensors of a small
    network in arrays takes longer than its step.
    """

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

    return types.CPointer(like)(address, like), codegen  # type: ignore[no-untyped-call]


_pointer: Any = intrinsic(_pointer_of)


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"}, error_model="numpy")
def _compiled_squares(zero, table):  # type: ignore[no-untyped-def]
    """The sum of squares of arrays, a column of `table` each: length, address; in float64 after every 1024 of them."""
    total = 0.0
    for i in range(table.shape[1]):
        values = carray(_pointer(table[1, i], zero), table[0, i])
        for first in range(0, values.size, 1024):
            part = zero
            for value in values[first : first + 1024]:
                part += value * value
            total += part
    return total


# The loop over the entries is not a function of its own. If a kernel that another one calls had fast math, a process
# that compiles the kernels would get other bits than one that loads them (CONTRIBUTING.md).
@njit(cache=True, nogil=True, fastmath={"contract", "nsz"}, error_model="numpy")  # not "nnan": a diverged run must show
def _compiled_step(  # type: ignore[no-untyped-def]
    zero, table, has_M, has_V, has_V_hat, lr, weight_decay, m_gain, v_keep, v_gain, floor, added, scale, eps
):
    """The formula at the head of this file for the parameters of a `Placement`'s table.

    numba compiles it once for every set of moments that exist (`has_...` is not None) and drops the branches of the
    others, so that what is left of the loop is vectorised.
    """
    T = type(zero)
    lr, weight_decay, m_gain, v_keep, v_gain = T(lr), T(weight_decay), T(m_gain), T(v_keep), T(v_gain)
    floor, added, scale, eps = T(floor), T(added), T(scale), T(eps)
    for row in table:
        n = row[0]
        W, G = carray(_pointer(row[1], zero), n), carray(_pointer(row[2], zero), n)
        # Never read where there is no such moment.
        M, V = carray(_pointer(row[3], zero), n), carray(_pointer(row[4], zero), n)
        V_hat = carray(_pointer(row[5], zero), n)
        for i in range(n):
            g = G[i] + weight_decay * W[i] if weight_decay else G[i]  # no 0 times infinity
            m = g
            if has_M is not None:
                m = M[i] + m_gain * (g - M[i])
                M[i] = m
            if has_V is None:
                W[i] -= lr * m
            else:
                if has_V_hat is None:
                    v = v_keep * V[i] + v_gain * g * g
                else:
                    v_hat = v_keep * V_hat[i] + v_gain * g * g
                    V_hat[i] = v_hat
                    v = V[i]
                    if v_hat > v or np.isnan(v_hat):  # as torch.maximum: NaN wins
                        v = v_hat
                V[i] = v
                bounded = floor if v < floor else v  # NaN stays NaN
                W[i] -= lr * m / (np.sqrt(bounded + added) * scale + eps)
