"""The squared error of an estimate, split into bias, the variance of batches and that of neighbor draws.

Legend: `G` the estimate, given a batch `b` and neighbor draws `r`; `g` what it should be, over all batches, and `g_b`
for batch `b`, with `E[g_b] = g`; `e_b` and `e'_b` the means over draws of `G - g` and of `G - g_b` in batch `b`. By the
law of total variance

    E||G - g||^2 = ||E[G] - g||^2 + Var_b(E[G | b]) + E_b[Var(G | b)]        bias^2, the batch's part, the neighbors'

From a sample of `R_b` batches with `R_n` draws each all three are estimated without bias (analysis of variance with
random effects), so that the first two may come out a little negative where they are zero. The bias is that of `e'_b`,
which is the bias of `e_b` without the noise of the batch. From all outcomes with their probabilities the same functions
give the exact values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cvgnn.errors import require
from cvgnn.lab.diagnose.estimates import Array, Estimate, Index, jackknife, leave_one_out


class BatchMoments(NamedTuple):
    """The moments of `G - g` given a batch.

    Args:
        mean: `e_b`, `[d]`.
        own: `e'_b`, `[d]`.
        within: the draws' mean squared distance from their mean.
        draws: how many there are; None for all outcomes, weighted by their probabilities.
        products: `<G, g>` of each draw.
        squares: `||G||^2` of each draw.
    """

    mean: Array
    own: Array
    within: float
    draws: int | None
    products: Array
    squares: Array


class ErrorSplit(NamedTuple):
    """The parts of a mean squared error."""

    bias2: float
    batch: float
    neighbors: float
    mse: float


def batch_moments(estimates: Array, g: Array, g_b: Array, probabilities: Array | None = None) -> BatchMoments:
    """The moments of `G - g` given a batch.

    Args:
        estimates: `G`, `[R_n, d]`, a row for each draw, or for each outcome.
        g, g_b: `[d]`, the exact value over all batches, and that of this batch.
        probabilities: of the outcomes, if they are all there are.

    >>> found = batch_moments(np.array([[1.0], [3.0]]), np.array([0.0]), np.array([1.5]))
    >>> found.mean.tolist(), found.own.tolist(), found.within
    ([2.0], [0.5], 1.0)
    """
    draws = len(estimates)
    weights = np.full(draws, 1.0 / draws) if probabilities is None else probabilities
    own, square = np.zeros_like(g), 0.0
    products, squares = np.empty(draws), np.empty(draws)
    for r, (weight, row) in enumerate(zip(weights, estimates, strict=True)):  # a row stays in the processor's cache
        products[r], squares[r] = _dot(row, g), _dot(row, row)
        noise = row - g_b
        square += float(weight) * _dot(noise, noise)
        own += np.multiply(noise, weight, out=noise)
    within = max(0.0, square - _dot(own, own))
    return BatchMoments(own + (g_b - g), own, within, draws if probabilities is None else None, products, squares)


def _dot(a: Array, b: Array) -> float:
    return float(np.einsum("d,d->", a, b))  # on one thread: waking another takes longer than the sum


def batch_errors(found: Sequence[BatchMoments], probabilities: Array | None = None, *, alike: bool = False) -> Array:
    """The split of the squared error from all batches, then without each of them: `[1 + batches, 4]`.

    All parts are linear in the inner products of `e_b`, `e'_b`, so those of a vector are the sums of its pieces' parts.

    Args:
        found: the moments of each batch.
        probabilities: of the batches, if these are all there are, with all outcomes each.
        alike: whether all have the same nodes, so that the batch's part is known to be 0.

    >>> zero = np.zeros(1)
    >>> found = batch_errors([batch_moments(np.array([[v], [v + 2.0]]), zero, zero) for v in (0.0, 4.0)])
    >>> ErrorSplit(*found[0].tolist())
    ErrorSplit(bias2=5.0, batch=7.0, neighbors=2.0, mse=14.0)
    """
    (r, *others) = {m.draws for m in found}
    require(not others, "all batches must have the same number of draws")
    require((r is None) == (probabilities is not None), "give all outcomes of all batches, or a sample")
    means, own = np.stack([m.mean for m in found]), np.stack([m.own for m in found])
    products, own_products = means @ means.T, own @ own.T  # of all pairs: all that the parts depend on
    within = np.array([m.within for m in found])

    def split(keep: Index) -> ErrorSplit:
        n = len(keep)
        p = np.full(n, 1.0 / n) if probabilities is None else probabilities[keep]
        bias2, between_own = _mean_and_spread(own_products[np.ix_(keep, keep)], p)
        _, between = _mean_and_spread(products[np.ix_(keep, keep)], p)
        neighbors = float(p @ within[keep])
        if r is not None:  # a sample: the sums of squares have these shares of the variances in expectation
            neighbors = neighbors * r / (r - 1) if r > 1 else 0.0
            unbiased = n / (n - 1) if n > 1 else 0.0
            between = unbiased * between - neighbors / r  # the spread of means has 1/r of the neighbors' part
            bias2 -= unbiased * between_own / n
        between = 0.0 if alike else between
        return ErrorSplit(bias2, between, neighbors, bias2 + between + neighbors)

    return leave_one_out(split, len(found))


def draw_errors(deviations: Array) -> Array:
    """The same for one given batch, from all draws and without each: all variance is the neighbors' part.

    Args:
        deviations: `[R_n, d]`, `G - g_b` of each.
    """
    nothing = np.empty(0)
    bias2, between, zero, mse = batch_errors([BatchMoments(e, e, 0.0, 1, nothing, nothing) for e in deviations]).T
    return np.stack(ErrorSplit(bias2=bias2, batch=zero, neighbors=between, mse=mse), axis=1)


def given_batch_errors(splits: Array) -> Array:
    """The same for what is estimated for each batch's own nodes: the batch decides what is estimated, not how well.

    Args:
        splits: of each batch, from its draws alone, `[batches, 4]`.
    """
    return leave_one_out(lambda keep: splits[keep].mean(axis=0), len(splits))


def part(errors: Array, name: str) -> Estimate:
    """One part of the squared error, by its name in `ErrorSplit`, with its interval."""
    return jackknife(errors[:, ErrorSplit._fields.index(name)], positive=name in ("neighbors", "mse"))


def _mean_and_spread(products: Array, p: Array) -> tuple[float, float]:
    """`||m||^2` of the mean `m` of vectors with these inner products, and their mean squared distance from it."""
    mean2 = float(p @ products @ p)
    return mean2, float(p @ products.diagonal()) - mean2
