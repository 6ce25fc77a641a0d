"""The constants of Theorem 1 and the right-hand sides of Theorems 1 to 4, as the paper states them.

Legend, the paper's letters:

    rho              Lipschitz constant of `grad F` (Assumption 1)
    nu_min           `V_t >= nu_min^2` in every entry (Assumption 2)
    H_F, H_inf, H_1  bounds of the Frobenius norm, the largest entry and the sum of entries of gradients (Assumption 3)
    beta1, d         momentum, number of parameters
    C                Lemma 6: `||E delta||_inf <= C alpha / nu_min H_inf`
    S_1, S_2         `E sum_{i>=2} ||alpha/sqrt(V_i) - alpha/sqrt(V_{i-1})||`, the 1-norm and the squared 2-norm
    gap              `E[F(W_1) - F*]`

Theorems 2 and 4 divide Theorem 1 by the largest `sqrt(V_t)`. The paper puts `H_inf` for it, which leaves out that `V_t`
is bounded from below: the bound of Assumption 2 is in it here, as the optimizers have it (docs/diagnose_theory.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import ParamSpec, final

P = ParamSpec("P")


def _or_infinite(formula: Callable[P, float]) -> Callable[P, float]:
    """The formula, infinite where Python would raise: a power too large for a float, a `nu_min` whose square is 0."""

    @wraps(formula)
    def value(*args: P.args, **kwargs: P.kwargs) -> float:
        try:
            return formula(*args, **kwargs)
        except (OverflowError, ZeroDivisionError):
            return math.inf

    return value


@final
@dataclass(frozen=True, kw_only=True)
class Constants:
    """What Theorem 1's constants are made of; see the legend.

    >>> c = Constants(rho=1.0, nu_min=1.0, H_F=2.0, H_inf=1.0, H_1=3.0, beta1=0.5, C=1.0, d=10)
    >>> c.C_1, c.C_2, c.C_3, c.C_4
    (3.0, 1.0, 11.0, 3.0)
    """

    rho: float
    nu_min: float
    H_F: float
    H_inf: float
    H_1: float
    beta1: float
    C: float
    d: int

    @property
    def momentum(self) -> float:
        """`beta1 / (1 - beta1)`."""
        return self.beta1 / (1 - self.beta1)

    @property
    @_or_infinite
    def C_1(self) -> float:
        """Of `S_1`."""
        return self.H_inf**2 * self.momentum + 2 * self.H_inf**2

    @property
    @_or_infinite
    def C_2(self) -> float:
        """Of `S_2`."""
        return self.rho * self.momentum**2 * self.H_inf**2

    @property
    @_or_infinite
    def C_3(self) -> float:
        """Of `alpha^2 T`."""
        smooth = self.rho * self.H_F**2 + 0.5 * self.H_F**2 * (self.rho**2 * self.momentum**2 + 1)
        return (smooth + self.C * self.H_1 * self.H_inf) / self.nu_min**2

    @property
    @_or_infinite
    def C_4(self) -> float:
        """Of `alpha`, as printed; the proof needs twice that (docs/diagnose_theory.md)."""
        return self.H_1 * self.H_inf / self.nu_min

    @_or_infinite
    def theorem1(self, *, alpha: float, T: int, S_1: float, S_2: float, gap: float) -> float:
        """Bound of `E sum_{i<=T} alpha <grad F(W_i), grad F(W_i) / sqrt(V_i)>`."""
        return self.C_1 * S_1 + self.C_2 * S_2 + self.C_3 * alpha**2 * T + self.C_4 * alpha + gap

    @_or_infinite
    def theorem2(self, *, eta: float, T: int, gap: float) -> float:
        """AMSGrad, `sqrt(V_t) <= max(H_inf, nu_min)`: bound of `E||grad F(W_tau)||^2`."""
        root = max(self.H_inf, self.nu_min)
        return root * ((self.C_1 * self.d / self.nu_min + self.C_4) / T + self._slow(eta, T, gap))

    @_or_infinite
    def theorem3(self, *, eta: float, T: int, gap: float) -> float:
        """SGD and heavy-ball: bound of `E||grad F(W_tau)||^2`."""
        return self.C_4 / T + (self.C_3 * eta + gap / eta) / math.sqrt(T)

    @_or_infinite
    def theorem4(self, *, eta: float, T: int, gap: float) -> float:
        """AdaGrad, `V_t <= H_inf^2 + nu_min^2`: bound of `E||grad F(W_tau)||^2`."""
        root = math.hypot(self.H_inf, self.nu_min)
        fast = math.log(T) / T * self.C_1 * self.d * self.H_inf**2 / self.nu_min**3 + self.C_4 / T
        return root * (fast + self._slow(eta, T, gap))

    def _slow(self, eta: float, T: int, gap: float) -> float:
        """What falls like `1 / sqrt(T)` in Theorems 2 and 4, but for the bound of `sqrt(V_t)`."""
        parts = self.C_2 * eta * self.d / self.nu_min**2 + self.C_3 * eta + gap / eta
        return parts / math.sqrt(T)


THEOREMS = {"sgd": 3, "heavy-ball": 3, "amsgrad": 2, "adagrad": 4}
"""Which theorem speaks of an optimizer; none does of Adam."""


def theorem(constants: Constants, optimizer: str, *, eta: float, T: int, gap: float) -> float | None:
    """The right-hand side of the optimizer's theorem; None for Adam."""
    number = THEOREMS.get(optimizer)
    if number is None:
        return None
    bounds = {2: constants.theorem2, 3: constants.theorem3, 4: constants.theorem4}
    return bounds[number](eta=eta, T=T, gap=gap)
