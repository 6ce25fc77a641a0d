"""A test of `E[P^] = P`: whether the sampled matrix is unbiased, by projections of `P^ H` onto numbers.

Legend: a projection is `T = sum_v a_v sum_u (P^ - P)[v, u] h_u` over all nodes `v`, for fixed signs `a` and a fixed
column `h`. If `P^` is unbiased, `E[T] = 0` for every one of them. All-ones projections find weights that shrink or
grow everywhere (`paper`, `released`); random signs and directions find what would cancel in a sum. A column of
`H - Hbar` tests what the control variate adds to `P Hbar`; columns of ones and of `H` test the matrix itself, so that
a biased scheme shows even where the histories are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from cvgnn.data import Propagation, weighted_sum
from cvgnn.lab.diagnose.estimates import Array
from cvgnn.lab.diagnose.gradient_errors import Variant
from cvgnn.lab.diagnose.trainers import FIRST_STEP
from cvgnn.nn import ControlVariate, exact_hidden
from cvgnn.rng import Purpose, numpy_generator
from cvgnn.sampling import NeighborSampler
from cvgnn.sampling.neighbor import fan_outs as fan_outs_by_layer
from cvgnn.training import Trainer
from cvgnn.utils.progress import ProgressCallback

LEVEL = 0.01  # of all tests of a command together; docs/diagnose.md has what it was before, and why
_RANDOM = 3  # projections with random signs and directions, of each matrix
_ROUNDING = 1e-12


class ZTest(NamedTuple):
    """A test of whether the values of a projection have the mean zero.

    Args:
        mean, deviation: of the values.
        z: None where nothing varies.
        p: its p-value; None where nothing varies and the mean is zero.
        name: of the projection.
        adjusted_p: `p` corrected for all tests together.
    """

    mean: float
    deviation: float
    z: float | None
    p: float | None
    name: str = ""
    adjusted_p: float | None = None


def z_test(values: Array, *, scale: float = 0.0) -> ZTest:
    """Test whether the mean of independent values is zero: `z = mean / (deviation / sqrt(R))`, two-sided.

    Args:
        values: `[R]`, one for each draw.
        scale: the size of the numbers that were added up; what is smaller by 10^12 is their rounding.

    >>> found = z_test(np.array([1.0, 2.0, 3.0]))
    >>> None if found.z is None else round(found.z, 3)
    3.464
    """
    from scipy.special import stdtr

    count, mean, deviation = len(values), float(values.mean()), float(values.std(ddof=1))
    if deviation <= _ROUNDING * scale:
        return ZTest(mean, deviation, None, None if abs(mean) <= _ROUNDING * scale else 0.0)
    z = mean / (deviation / count**0.5)
    return ZTest(mean, deviation, z, 2.0 * float(stdtr(count - 1, -abs(z))))


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """p-values that hold for all tests together: Holm's step-down form of Bonferroni's correction.

    >>> holm([0.01, 0.04, None, 0.03])
    [0.03, 0.06, None, 0.06]
    """
    order = sorted((p, i) for i, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    highest = 0.0
    for place, (p, i) in enumerate(order):
        highest = max(highest, min(1.0, (len(order) - place) * p))
        adjusted[i] = highest
    return adjusted


@final
class Projections:
    """Fixed projections for one layer: pairs of `a` and `h`, with names.

    Args:
        H: exact representations, `[N, d]`.
        Hbar: their history, None where there is none.
        seed: of the random signs and directions.
    """

    def __init__(self, H: Tensor, Hbar: Tensor | None, *, seed: int) -> None:
        rng = numpy_generator(seed, Purpose.NEIGHBORS, FIRST_STEP)
        matrices = {"H": H} | ({} if Hbar is None else {"H - Hbar": H - Hbar})
        n, d = H.shape
        ones = torch.ones(n, dtype=H.dtype)
        named = {"row sums": (ones, ones)}
        for name, matrix in matrices.items():
            named[f"sum of {name}"] = (ones, matrix.sum(dim=1))
            for i in range(1, _RANDOM + 1):
                signs = torch.from_numpy(rng.choice([-1.0, 1.0], size=n)).to(H.dtype)
                direction = torch.from_numpy(rng.choice([-1.0, 1.0], size=d)).to(H.dtype)
                named[f"random {i} of {name}"] = (signs, matrix @ direction)
        self.names = list(named)
        self.a = torch.stack([a for a, _ in named.values()], dim=1)
        self.h = torch.stack([h for _, h in named.values()], dim=1)

    def of(self, rows: Tensor) -> Array:
        """`sum_v a_v rows[v]` for each projection, from `P^ h` of all nodes, `[N, number of projections]`."""
        found: Array = (self.a * rows).sum(dim=0).numpy()
        return found


def projections_at(trainer: Trainer, seed: int) -> list[Projections]:
    """The projections of the test of unbiasedness for each hidden layer, at the trainer's weights and histories."""
    estimator = trainer.estimator
    hidden = exact_hidden(trainer.model, estimator.features, trainer.loader.sampler.propagation)
    histories = estimator.histories if isinstance(estimator, ControlVariate) else [None] * len(hidden)
    return [
        Projections(H, None if history is None else history.values.to(H.dtype), seed=seed)
        for H, history in zip(hidden, histories, strict=True)
    ]


Tests = dict[tuple[str, int, int], list[ZTest]]
"""All projections, by scheme, layer and fan-out."""


def smallest_p(tests: Sequence[ZTest]) -> float | None:
    """The smallest adjusted p-value; None where nothing is random and nothing is off."""
    return min((test.adjusted_p for test in tests if test.adjusted_p is not None), default=None)


def unbiased(tests: Sequence[ZTest]) -> bool:
    """Whether no projection distinguishes `E[P^]` from `P`."""
    p = smallest_p(tests)
    return p is None or p >= LEVEL


def corrected(tests: Tests) -> Tests:
    """The same tests with p-values that hold for all schemes, layers, fan-outs and projections together."""
    adjusted = iter(holm([test.p for found in tests.values() for test in found]))
    return {key: [test._replace(adjusted_p=next(adjusted)) for test in found] for key, found in tests.items()}


def aggregation_test(
    propagation: Propagation, projections: Projections, *, scheme: str, fan_out: int, draws: int, seed: int
) -> list[ZTest]:
    """Draw all rows of `P^` again and again, and test whether their mean is that of `P`, with each projection.

    Args:
        propagation: `P`.
        projections: what is tested.
        scheme, fan_out: how neighbors are drawn.
        draws: `R`.
        seed: of the draws.
    """
    sampler = NeighborSampler(
        propagation, num_neighbors=fan_out, num_layers=2, scheme=scheme, control=False, seed=seed  # type: ignore[arg-type]
    )  # fmt: skip
    everyone = torch.arange(propagation.num_nodes)
    exact = projections.of(propagation.product(projections.h))
    scales = projections.a.abs().mul(propagation.product(projections.h.abs())).sum(dim=0).numpy()
    values = np.empty((draws, len(projections.names)))
    for r in range(draws):
        block = sampler.sample(everyone, FIRST_STEP + r)[0]
        values[r] = projections.of(weighted_sum(block.sampled, projections.h[block.sources])) - exact
    tests = [
        z_test(column, scale=float(scale))._replace(name=name)
        for name, column, scale in zip(projections.names, values.T, scales, strict=True)
    ]
    return corrected({(scheme, 0, fan_out): tests})[scheme, 0, fan_out]


def all_tests(
    P: Propagation,
    chosen: Sequence[Variant],
    projections: Sequence[Projections],
    *,
    draws: int,
    seed: int,
    progress: ProgressCallback,
) -> Tests:
    """The test of unbiasedness for each scheme, layer and fan-out of some variants; see `aggregation_test`."""
    wanted: dict[tuple[str, int, int], None] = {}
    for v in chosen:
        if v.estimator != "exact":
            fan_out = list(v.fan_out) if len(v.fan_out) > 1 else v.fan_out[0]
            by_layer = fan_outs_by_layer(fan_out, len(projections) + 1, v.scheme)
            wanted |= {(v.scheme, k, D): None for k, D in enumerate(by_layer, start=1)}
    found: Tests = {}
    for i, (scheme, k, D) in enumerate(wanted):
        progress(f"testing {scheme}", 0.9 + 0.1 * i / len(wanted))
        found[scheme, k, D] = aggregation_test(P, projections[k - 1], scheme=scheme, fan_out=D, draws=draws, seed=seed)
    return corrected(found)
