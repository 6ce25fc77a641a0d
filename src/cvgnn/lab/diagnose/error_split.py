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

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple, final

import numpy as np

from cvgnn.errors import require
from cvgnn.lab.diagnose.estimates import Array, Estimate, Index, jackknife


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


class Units(ABC):
    """Independent pieces of a sample that the jackknife can leave out one by one: batches, or draws."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def split(self, keep: Index | None = None) -> ErrorSplit:
        """The parts of the squared error, from the units at these positions, from all if none are given."""

    def part(self, name: str) -> Estimate:
        """One part of the squared error, by its name in `ErrorSplit`, with its interval."""
        at = ErrorSplit._fields.index(name)
        return jackknife(lambda keep: self.split(keep)[at], len(self), positive=name in ("neighbors", "mse"))


@final
class Batches(Units):
    """Batches of a sample, or all there are.

    Args:
        found: the moments of each.
        probabilities: of the batches, if these are all there are, with all outcomes each.
        alike: whether all have the same nodes, so that the batch's part is known to be 0.

    >>> zero = np.zeros(1)
    >>> Batches([batch_moments(np.array([[v], [v + 2.0]]), zero, zero) for v in (0.0, 4.0)]).split()
    ErrorSplit(bias2=5.0, batch=7.0, neighbors=2.0, mse=14.0)
    """

    def __init__(
        self, found: Sequence[BatchMoments], probabilities: Array | None = None, *, alike: bool = False
    ) -> None:
        draws = {m.draws for m in found}
        require(len(draws) == 1, "all batches must have the same number of draws")
        self._draws = draws.pop()
        require((self._draws is None) == (probabilities is not None), "give all outcomes of all batches, or a sample")
        means, own = np.stack([m.mean for m in found]), np.stack([m.own for m in found])
        self._products, self._own = means @ means.T, own @ own.T  # of all pairs: all that the parts depend on
        self._within = np.array([m.within for m in found])
        self._probabilities, self._alike = probabilities, alike

    def __len__(self) -> int:
        return len(self._within)

    def __add__(self, other: Batches) -> Batches:
        """The same batches, with the entries of `G` that the other has besides."""
        total = copy.copy(self)
        total._products, total._own = self._products + other._products, self._own + other._own
        total._within = self._within + other._within
        return total

    def split(self, keep: Index | None = None) -> ErrorSplit:
        """See `Units.split`."""
        keep = np.arange(len(self)) if keep is None else keep
        p = np.full(len(keep), 1.0 / len(keep)) if self._probabilities is None else self._probabilities[keep]
        bias2, between_own = _mean_and_spread(self._own[np.ix_(keep, keep)], p)
        _, between = _mean_and_spread(self._products[np.ix_(keep, keep)], p)
        neighbors = float(p @ self._within[keep])
        if self._probabilities is None:
            assert self._draws is not None
            n, r = len(keep), self._draws
            neighbors = neighbors * r / (r - 1) if r > 1 else 0.0
            unbiased = n / (n - 1) if n > 1 else 0.0
            between = unbiased * between - neighbors / r  # the spread of means has 1/r of the neighbors' part
            bias2 -= unbiased * between_own / n
        between = 0.0 if self._alike else between
        return ErrorSplit(bias2, between, neighbors, bias2 + between + neighbors)


@final
class Draws(Units):
    """Draws of neighbors for one given batch: all variance is the neighbors' part.

    Args:
        deviations: `[R_n, d]`, `G - g_b` of each.
    """

    def __init__(self, deviations: Array) -> None:
        nothing = np.empty(0)
        self._each = Batches([BatchMoments(row, row, 0.0, 1, nothing, nothing) for row in deviations])

    def __len__(self) -> int:
        return len(self._each)

    def split(self, keep: Index | None = None) -> ErrorSplit:
        """See `Units.split`."""
        bias2, between, _, mse = self._each.split(keep)
        return ErrorSplit(bias2, 0.0, between, mse)


@final
class GivenBatches(Units):
    """Errors of what is estimated for each batch's own nodes: the batch decides what is estimated, not how well.

    Args:
        splits: of each batch, from its draws alone.
    """

    def __init__(self, splits: Sequence[ErrorSplit]) -> None:
        self._splits = np.array(splits)

    def __len__(self) -> int:
        return len(self._splits)

    def split(self, keep: Index | None = None) -> ErrorSplit:
        """See `Units.split`."""
        chosen = self._splits if keep is None else self._splits[keep]
        return ErrorSplit(*map(float, chosen.mean(axis=0)))


def _mean_and_spread(products: Array, p: Array) -> tuple[float, float]:
    """`||m||^2` of the mean `m` of vectors with these inner products, and their mean squared distance from it."""
    mean2 = float(p @ products @ p)
    return mean2, float(p @ products.diagonal()) - mean2
