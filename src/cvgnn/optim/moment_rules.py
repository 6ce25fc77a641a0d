"""The rules for the two moments by which the Adam-type methods differ (Algorithm 1, Table 1), and torch's variants.

Legend, the paper's letters:

    t        how many gradients a parameter has had, this one included
    G        the stochastic gradient G_t of a parameter (weight decay included)
    M        the first moment M_t
    beta1    the weight of the past in M, in [0, 1); with beta1 = 0 every rule is M_t = G_t, and no M is stored
    V        the second moment V_t, of the shape of G; powers, roots and maxima are entry by entry
    V_hat    AMSGrad's exponential average, of which V_t is the running maximum
    nu_min   Assumption 2's bound: V_t >= nu_min^2 > 0 in every entry; in torch's rules its `eps`

A rule returns coefficients only; `cvgnn.ops.optimizer_step` holds the formula. Rules are stateless: the tensors live in
the optimizer's state, so one rule may serve several groups and optimizers.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, final

from cvgnn.errors import require

SMALLEST_NU_MIN = 2.0**-63
"""Its square is the smallest normal float32; below it `nu_min^2` vanishes and `0 / sqrt(0)` is not a number."""

_RANGES: dict[str, tuple[Callable[[float], bool], str]] = {
    "lr": (lambda x: 0 < x < math.inf, "lr must be finite and above 0, got {!r}; try 0.01 or 0.001"),
    "beta1": (lambda x: 0 <= x < 1, "beta1 must be in [0, 1), got {!r}; the usual value is 0.9"),
    "beta2": (lambda x: 0 <= x < 1, "beta2 must be in [0, 1), got {!r}; the usual value is 0.999"),
    "weight_decay": (
        lambda x: 0 <= x < math.inf,
        "weight_decay must be finite and not negative, got {!r}; 0 switches it off",
    ),
    "nu_min": (
        lambda x: SMALLEST_NU_MIN <= x < math.inf,
        f"nu_min must be finite and at least {SMALLEST_NU_MIN:.2g}, so that its square is above 0 in float32, "
        "got {!r}; the default is 1e-8",
    ),
    "eps": (  # nu_min where it is torch's eps, which torch allows to be 0
        lambda x: 0 <= x < math.inf,
        "nu_min must be finite and not negative in torch's form (its eps), got {!r}; leave it out for torch's default",
    ),
}


def check_hyperparameter(name: str, value: float) -> None:
    """Refuse a hyperparameter out of its range; `"eps"` is the `nu_min` of torch's rules.

    >>> check_hyperparameter("lr", 0.01)
    """
    in_range, sentence = _RANGES[name]
    require(in_range(value), sentence.format(value))


class FirstMoment(ABC):
    """How `M_t = (1 - gain) M_{t-1} + gain G_t` starts, and what the step divides it by."""

    names: ClassVar[tuple[str, ...]] = ("M", "t")
    """What a parameter's state holds for this rule where `beta1 > 0`."""

    @abstractmethod
    def gain_and_divisor(self, beta1: float, t: int) -> tuple[float, float]:
        """The weight of `G_t` in `M_t`, and what the step divides `M_t` by."""


@final
class Momentum(FirstMoment):
    """`M_t = beta1 M_{t-1} + (1 - beta1) G_t` from `M_0 = 0`: the paper's, line 12 of Algorithm 1.

    >>> Momentum().gain_and_divisor(0.75, t=1)
    (0.25, 1.0)
    """

    names = ("M",)

    def gain_and_divisor(self, beta1: float, t: int) -> tuple[float, float]:
        """`1 - beta1`, and 1: the first step has `1 - beta1` of the gradient."""
        return 1 - beta1, 1.0


@final
class CorrectedMomentum(FirstMoment):
    """`Momentum`, divided in the step by `1 - beta1^t`, the sum of its weights: `torch.optim.Adam`.

    >>> CorrectedMomentum().gain_and_divisor(0.75, t=2)
    (0.25, 0.4375)
    """

    def gain_and_divisor(self, beta1: float, t: int) -> tuple[float, float]:
        """`1 - beta1` and `1 - beta1^t`."""
        return 1 - beta1, 1 - beta1**t


@final
class UndampedMomentum(FirstMoment):
    """`Momentum` from `M_1 = G_1`: `torch.optim.SGD(momentum=beta1, dampening=beta1)`, which damps from step 2 on.

    >>> UndampedMomentum().gain_and_divisor(0.75, t=1), UndampedMomentum().gain_and_divisor(0.75, t=2)
    ((1.0, 1.0), (0.25, 1.0))
    """

    def gain_and_divisor(self, beta1: float, t: int) -> tuple[float, float]:
        """1 at the first gradient, then `1 - beta1`; no correction, because the average does not start at 0."""
        return 1.0 if t == 1 else 1 - beta1, 1.0


class SecondMoment(ABC):
    """One choice of `h_t`: how `V_t` follows from the gradients so far (Table 1, column V_t)."""

    names: ClassVar[tuple[str, ...]]
    """What a parameter's state holds for this rule: some of "V", "V_hat", "t". With "V_hat", `V_t` is its maximum."""

    nu_min_range: ClassVar[str] = "nu_min"
    """The range of `nu_min`: `"nu_min"`, or `"eps"` where it is torch's `eps`, which may be 0."""

    @abstractmethod
    def coefficients(self, nu_min: float, t: int) -> dict[str, float]:
        """The fields of `StepCoefficients` that this rule sets; `t` is 0 where `names` does not hold it.

        V_t = v_keep V_{t-1} + v_gain G_t^2,    divisor = scale sqrt(max(V_t, floor) + added) + eps
        """

    def check(self, **numbers: float) -> None:
        """Refuse hyperparameters out of their range; that of `nu_min` is this rule's."""
        for name, value in numbers.items():
            check_hyperparameter(self.nu_min_range if name == "nu_min" else name, value)


@final
class Ones(SecondMoment):
    """`V_t = 1`: SGD and Heavy-Ball SGD (Table 1, first two rows); Assumption 2 holds by itself."""

    names = ()

    def coefficients(self, nu_min: float, t: int) -> dict[str, float]:
        """None: nothing is averaged, and the step divides by nothing."""
        return {}


class _Exponential(SecondMoment):
    """An exponential average of `G^2` with the rate `beta2`, in [0, 1), and the paper's bound."""

    def __init__(self, beta2: float) -> None:
        check_hyperparameter("beta2", beta2)
        self.beta2 = beta2

    def coefficients(self, nu_min: float, t: int) -> dict[str, float]:
        """`beta2`, `1 - beta2`; the root is of `max(V_t, nu_min^2)`."""
        # The paper's remark after Assumption 2 starts AMSGrad's V at nu_min^2, which is the same maximum.
        return {"v_keep": self.beta2, "v_gain": 1 - self.beta2, "floor": nu_min**2}


@final
class ExponentialAverage(_Exponential):
    """`V_t = beta2 V_{t-1} + (1 - beta2) G_t^2`, not bias-corrected: Adam; the root is of `max(V_t, nu_min^2)`.

    >>> ExponentialAverage(0.75).coefficients(nu_min=0.5, t=0)
    {'v_keep': 0.75, 'v_gain': 0.25, 'floor': 0.25}
    """

    names = ("V",)


@final
class RunningMaximum(_Exponential):
    """`V_hat_t = beta2 V_hat_{t-1} + (1 - beta2) G_t^2`, `V_t = max(V_{t-1}, V_hat_t)`: AMSGrad (Table 1)."""

    names = ("V", "V_hat")


@final
class Mean(SecondMoment):
    """`V_t = 1/t sum_{i<=t} G_i^2`, the mean and not the sum: AdaGrad (Table 1); the root is of `V_t + nu_min^2`.

    `t` counts a parameter's own gradients, so that a step in which it has none does not dilute its mean.

    >>> Mean().coefficients(nu_min=0.5, t=4)
    {'v_keep': 0.75, 'v_gain': 0.25, 'added': 0.25}
    """

    names = ("V", "t")

    def coefficients(self, nu_min: float, t: int) -> dict[str, float]:
        """`1 - 1/t`, `1/t`; the root is of `V_t + nu_min^2` (the remark after Assumption 2)."""
        return {"v_keep": 1 - 1 / t, "v_gain": 1 / t, "added": nu_min**2}


class _Corrected(_Exponential):
    """The exponential average as in `torch.optim.Adam`: the step divides by `sqrt(V_t / (1 - beta2^t)) + nu_min`."""

    nu_min_range = "eps"

    def coefficients(self, nu_min: float, t: int) -> dict[str, float]:
        """`beta2`, `1 - beta2`, the scale `(1 - beta2^t)^(-1/2)` and `nu_min` as eps."""
        return {"v_keep": self.beta2, "v_gain": 1 - self.beta2, "scale": (1 - self.beta2**t) ** -0.5, "eps": nu_min}


@final
class CorrectedAverage(_Corrected):
    """`ExponentialAverage` as in `torch.optim.Adam`."""

    names = ("V", "t")


@final
class CorrectedMaximum(_Corrected):
    """`RunningMaximum` as in `torch.optim.Adam(amsgrad=True)`: the maximum is of the averages before their correction.

    So `V_t` never falls, but the divisor, `sqrt(V_t / (1 - beta2^t)) + nu_min`, may.
    """

    names = ("V", "V_hat", "t")


@final
class Sum(SecondMoment):
    """`V_t = V_{t-1} + G_t^2`, `nu_min` added to its root: `torch.optim.Adagrad`."""

    names = ("V",)
    nu_min_range = "eps"

    def coefficients(self, nu_min: float, t: int) -> dict[str, float]:
        """1, 1 and `nu_min` as eps."""
        return {"v_keep": 1.0, "v_gain": 1.0, "eps": nu_min}
