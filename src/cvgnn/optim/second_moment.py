"""The rules `V_t = h_t(G_1, ..., G_t)` that tell the Adam-type methods apart (Algorithm 1, Table 1), and torch's.

Legend, the paper's letters:

    t        how many gradients a parameter has had, this one included
    G        the stochastic gradient G_t of a parameter (weight decay included)
    V        the second moment V_t, of the shape of G; powers, roots and maxima are entry by entry
    V_hat    AMSGrad's exponential average, of which V_t is the running maximum
    nu_min   Assumption 2's bound: V_t >= nu_min^2 > 0 in every entry; in torch's rules its `eps`

A rule gives numbers only; `cvgnn.ops.optimizer_step` computes with them. It keeps nothing between steps: the tensors
live in the optimizer's state, so one rule may serve many groups and many optimizers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple, final

from cvgnn.optim.checks import check_beta, check_eps, check_nu_min


class Average(NamedTuple):
    """`keep V_{t-1} + gain G_t^2`."""

    keep: float
    gain: float


class Root(NamedTuple):
    """`scale sqrt(max(V_t, floor) + added) + eps`, what the step divides by."""

    floor: float = 0.0
    added: float = 0.0
    scale: float = 1.0
    eps: float = 0.0


class SecondMoment(ABC):
    """One choice of `h_t`: how `V_t` follows from the gradients so far (Table 1, column V_t)."""

    names: ClassVar[tuple[str, ...]]
    """What a parameter's state holds for this rule: some of "V", "V_hat", "t". With "V_hat", `V_t` is its maximum."""

    @abstractmethod
    def average(self, t: int) -> Average:
        """The weights in `V_t` (in `V_hat_t` where there is one); `t` is 0 where the rule does not count."""

    @abstractmethod
    def root(self, nu_min: float, t: int) -> Root:
        """What the step divides by, with the bound `nu_min`."""

    def check_nu_min(self, nu_min: float) -> None:
        """Refuse a `nu_min` that this rule cannot work with."""
        check_nu_min(nu_min)


@final
class Ones(SecondMoment):
    """`V_t = 1`: SGD and Heavy-Ball SGD (Table 1, first two rows); Assumption 2 holds by itself."""

    names = ()

    def average(self, t: int) -> Average:
        """Nothing is averaged."""
        return Average(0.0, 0.0)

    def root(self, nu_min: float, t: int) -> Root:
        """Nothing is divided by."""
        return Root()


@final
class ExponentialAverage(SecondMoment):
    """`V_t = beta2 V_{t-1} + (1 - beta2) G_t^2`, not bias-corrected: Adam; the root is of `max(V_t, nu_min^2)`.

    Args:
        beta2: the weight of the past, in [0, 1).

    >>> ExponentialAverage(0.75).average(t=0)
    Average(keep=0.75, gain=0.25)
    """

    names = ("V",)

    def __init__(self, beta2: float) -> None:
        check_beta("beta2", beta2)
        self.beta2 = beta2

    def average(self, t: int) -> Average:
        """`beta2` and `1 - beta2`."""
        return Average(self.beta2, 1 - self.beta2)

    def root(self, nu_min: float, t: int) -> Root:
        """`sqrt(max(V_t, nu_min^2))`."""
        return Root(floor=nu_min**2)


@final
class RunningMaximum(SecondMoment):
    """`V_hat_t = beta2 V_hat_{t-1} + (1 - beta2) G_t^2`, `V_t = max(V_{t-1}, V_hat_t)`: AMSGrad (Table 1).

    The root is of `max(V_t, nu_min^2)`, which is the paper's remark after Assumption 2 (start at `nu_min^2`).

    Args:
        beta2: the weight of the past, in [0, 1).
    """

    names = ("V", "V_hat")

    def __init__(self, beta2: float) -> None:
        check_beta("beta2", beta2)
        self.beta2 = beta2

    def average(self, t: int) -> Average:
        """`beta2` and `1 - beta2`."""
        return Average(self.beta2, 1 - self.beta2)

    def root(self, nu_min: float, t: int) -> Root:
        """`sqrt(max(V_t, nu_min^2))`."""
        return Root(floor=nu_min**2)


@final
class Mean(SecondMoment):
    """`V_t = 1/t sum_{i<=t} G_i^2`, the mean and not the sum: AdaGrad (Table 1); the root is of `V_t + nu_min^2`.

    `t` counts a parameter's own gradients, so that a step in which it has none does not dilute its mean.

    >>> Mean().average(t=1), Mean().average(t=4)
    (Average(keep=0.0, gain=1.0), Average(keep=0.75, gain=0.25))
    """

    names = ("V", "t")

    def average(self, t: int) -> Average:
        """`1 - 1/t` and `1/t`."""
        return Average(1 - 1 / t, 1 / t)

    def root(self, nu_min: float, t: int) -> Root:
        """`sqrt(V_t + nu_min^2)` (the remark after Assumption 2)."""
        return Root(added=nu_min**2)


@final
class CorrectedAverage(SecondMoment):
    """`ExponentialAverage` as in `torch.optim.Adam`: `V_t / (1 - beta2^t)` under the root, `nu_min` added to it.

    Args:
        beta2: the weight of the past, in [0, 1).
    """

    names = ("V", "t")

    def __init__(self, beta2: float) -> None:
        check_beta("beta2", beta2)
        self.beta2 = beta2

    def average(self, t: int) -> Average:
        """`beta2` and `1 - beta2`."""
        return Average(self.beta2, 1 - self.beta2)

    def root(self, nu_min: float, t: int) -> Root:
        """`sqrt(V_t / (1 - beta2^t)) + nu_min`."""
        return Root(scale=(1 - self.beta2**t) ** -0.5, eps=nu_min)

    def check_nu_min(self, nu_min: float) -> None:
        """As torch: 0 is allowed."""
        check_eps(nu_min)


@final
class CorrectedMaximum(SecondMoment):
    """`RunningMaximum` as in `torch.optim.Adam(amsgrad=True)`: the maximum is of the averages before their correction.

    So `V_t` never falls, but what is divided by, `sqrt(V_t / (1 - beta2^t)) + nu_min`, may.

    Args:
        beta2: the weight of the past, in [0, 1).
    """

    names = ("V", "V_hat", "t")

    def __init__(self, beta2: float) -> None:
        check_beta("beta2", beta2)
        self.beta2 = beta2

    def average(self, t: int) -> Average:
        """`beta2` and `1 - beta2`."""
        return Average(self.beta2, 1 - self.beta2)

    def root(self, nu_min: float, t: int) -> Root:
        """`sqrt(V_t / (1 - beta2^t)) + nu_min`."""
        return Root(scale=(1 - self.beta2**t) ** -0.5, eps=nu_min)

    def check_nu_min(self, nu_min: float) -> None:
        """As torch: 0 is allowed."""
        check_eps(nu_min)


@final
class Sum(SecondMoment):
    """`V_t = V_{t-1} + G_t^2`, `nu_min` added to its root: `torch.optim.Adagrad`."""

    names = ("V",)

    def average(self, t: int) -> Average:
        """1 and 1."""
        return Average(1.0, 1.0)

    def root(self, nu_min: float, t: int) -> Root:
        """`sqrt(V_t) + nu_min`."""
        return Root(eps=nu_min)

    def check_nu_min(self, nu_min: float) -> None:
        """As torch: 0 is allowed."""
        check_eps(nu_min)
