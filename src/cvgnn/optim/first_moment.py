"""The rules for the first moment `M_t`: the paper's, and the two that torch's Adam and torch's SGD have instead.

Legend, the paper's letters:

    t        how many gradients a parameter has had, this one included
    G, M     the stochastic gradient G_t (weight decay included) and the first moment M_t
    beta1    the weight of the past, in [0, 1); with beta1 = 0 every rule is M_t = G_t, and nothing is kept

A rule gives numbers only; `cvgnn.ops.optimizer_step` computes with them. It keeps nothing between steps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, final


class FirstMoment(ABC):
    """How `M_t = (1 - gain) M_{t-1} + gain G_t` starts, and what the step divides it by."""

    names: ClassVar[tuple[str, ...]]
    """What a parameter's state holds for this rule where `beta1 > 0`."""

    @abstractmethod
    def gain(self, beta1: float, t: int) -> float:
        """The weight of `G_t` in `M_t`."""

    @abstractmethod
    def correction(self, beta1: float, t: int) -> float:
        """What the step divides `M_t` by."""


@final
class Momentum(FirstMoment):
    """`M_t = beta1 M_{t-1} + (1 - beta1) G_t` from `M_0 = 0`: the paper's, line 12 of Algorithm 1.

    >>> Momentum().gain(0.75, t=1), Momentum().correction(0.75, t=1)
    (0.25, 1.0)
    """

    names = ("M",)

    def gain(self, beta1: float, t: int) -> float:
        """`1 - beta1`."""
        return 1 - beta1

    def correction(self, beta1: float, t: int) -> float:
        """1: the first step has `1 - beta1` of the gradient."""
        return 1.0


@final
class CorrectedMomentum(FirstMoment):
    """`Momentum`, divided in the step by `1 - beta1^t`, the sum of its weights: `torch.optim.Adam`.

    >>> CorrectedMomentum().gain(0.75, t=2), CorrectedMomentum().correction(0.75, t=2)
    (0.25, 0.4375)
    """

    names = ("M", "t")

    def gain(self, beta1: float, t: int) -> float:
        """`1 - beta1`."""
        return 1 - beta1

    def correction(self, beta1: float, t: int) -> float:
        """`1 - beta1^t`."""
        return 1 - beta1**t


@final
class UndampedMomentum(FirstMoment):
    """`Momentum` from `M_1 = G_1`: `torch.optim.SGD(momentum=beta1, dampening=beta1)`, which damps from step 2 on.

    >>> UndampedMomentum().gain(0.75, t=1), UndampedMomentum().gain(0.75, t=2)
    (1.0, 0.25)
    """

    names = ("M", "t")

    def gain(self, beta1: float, t: int) -> float:
        """1 at the first gradient, then `1 - beta1`."""
        return 1.0 if t == 1 else 1 - beta1

    def correction(self, beta1: float, t: int) -> float:
        """1: nothing is to correct where the past does not start at 0."""
        return 1.0
