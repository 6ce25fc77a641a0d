"""The rules `V_t = h_t(G_1, ..., G_t)` that tell the Adam-type methods apart (Algorithm 1, Table 1).

Legend, the paper's letters:

    t        how many gradients a parameter has had, this one included
    W, G     the parameters W_t and their stochastic gradients G_t (weight decay included)
    V        the second moment V_t, of the shape of W; powers, roots and maxima are entry by entry
    V_hat    AMSGrad's exponential average, of which V_t is the running maximum
    nu_min   Assumption 2's bound: V_t >= nu_min^2 > 0 in every entry

A rule works on the lists of one parameter group at once. It keeps nothing between steps: the tensors live in the
optimizer's state, one dictionary per parameter, so one rule may serve many groups and many optimizers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, TypeAlias, final

import torch
from torch import Tensor

from cvgnn.optim.checks import check_beta

Tensors: TypeAlias = list[Tensor] | tuple[Tensor, ...]
"""One tensor per parameter of a group, in the group's order."""

State: TypeAlias = dict[str, Any]
"""What an optimizer remembers of one parameter: a tensor or an int behind each name."""


class SecondMoment(ABC):
    """One choice of `h_t`: how `V_t` follows from the gradients so far (Table 1, column V_t)."""

    names: ClassVar[tuple[str, ...]]
    """The names this rule keeps in a parameter's state; none if it needs no memory."""

    @abstractmethod
    def initial_state(self, W: Tensor) -> State:
        """The state before the first gradient of `W` (any shape): `V_0 = 0`, `t = 0`."""

    @abstractmethod
    def inverse_root(self, states: list[State], G: Tensors, nu_min: float) -> Tensors | None:
        """Move `V_{t-1}` to `V_t` in place and return `1 / sqrt(V_t)`, with the bound of Assumption 2.

        The reciprocal, not the root: on the CPU torch's `rsqrt` takes two thirds of the time of its `sqrt`.

        Args:
            states: the state of each parameter.
            G: the gradient of each parameter, of its shape; only read.
            nu_min: the bound.

        Returns:
            New tensors, one per parameter and of its shape; None stands for ones.
        """


@final
class Ones(SecondMoment):
    """`V_t = 1`: SGD and Heavy-Ball SGD (Table 1, first two rows); Assumption 2 holds by itself."""

    names = ()

    def initial_state(self, W: Tensor) -> State:
        """Nothing to remember."""
        return {}

    def inverse_root(self, states: list[State], G: Tensors, nu_min: float) -> None:
        """None, which stands for ones and costs nothing."""


@final
class ExponentialAverage(SecondMoment):
    """`V_t = beta2 V_{t-1} + (1 - beta2) G_t^2`, not bias-corrected: Adam; the root is of `max(V_t, nu_min^2)`.

    Args:
        beta2: the weight of the past, in [0, 1).
    """

    names = ("V",)

    def __init__(self, beta2: float) -> None:
        check_beta("beta2", beta2)
        self.beta2 = beta2

    def initial_state(self, W: Tensor) -> State:
        """`V_0 = 0`."""
        return {"V": torch.zeros_like(W)}

    def inverse_root(self, states: list[State], G: Tensors, nu_min: float) -> Tensors:
        """`1 / sqrt(max(V_t, nu_min^2))`."""
        V = [state["V"] for state in states]
        _average(V, G, self.beta2)
        return _bounded(V, nu_min)


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

    def initial_state(self, W: Tensor) -> State:
        """`V_0 = V_hat_0 = 0`."""
        return {"V": torch.zeros_like(W), "V_hat": torch.zeros_like(W)}

    def inverse_root(self, states: list[State], G: Tensors, nu_min: float) -> Tensors:
        """`1 / sqrt(max(V_t, nu_min^2))`."""
        V, V_hat = [state["V"] for state in states], [state["V_hat"] for state in states]
        _average(V_hat, G, self.beta2)
        torch._foreach_maximum_(V, V_hat)
        return _bounded(V, nu_min)


@final
class Mean(SecondMoment):
    """`V_t = 1/t sum_{i<=t} G_i^2`, the mean and not the sum: AdaGrad (Table 1); the root is of `V_t + nu_min^2`.

    `t` counts a parameter's own gradients, so that a step in which it has none does not dilute its mean.

    >>> rule, states = Mean(), [{"V": torch.zeros(1), "t": 0}]
    >>> _ = rule.inverse_root(states, [torch.tensor([1.0])], nu_min=1e-8)
    >>> _ = rule.inverse_root(states, [torch.tensor([3.0])], nu_min=1e-8)
    >>> states
    [{'V': tensor([5.]), 't': 2}]
    """

    names = ("V", "t")

    def initial_state(self, W: Tensor) -> State:
        """`V_0 = 0`, `t = 0`."""
        return {"V": torch.zeros_like(W), "t": 0}

    def inverse_root(self, states: list[State], G: Tensors, nu_min: float) -> Tensors:
        """`1 / sqrt(V_t + nu_min^2)` (the remark after Assumption 2)."""
        for state in states:
            state["t"] += 1
        V, share = [state["V"] for state in states], [1 / state["t"] for state in states]
        torch._foreach_mul_(V, [1 - s for s in share])
        torch._foreach_addcmul_(V, G, G, share)
        R = torch._foreach_add(V, nu_min**2)
        torch._foreach_rsqrt_(R)
        return R


def _average(V: Tensors, G: Tensors, beta2: float) -> None:
    """`V = beta2 V + (1 - beta2) G^2` in place."""
    # Not mul_ and addcmul_: torch's mul_ by a number wraps that number anew for every tensor, lerp_ does not.
    torch._foreach_lerp_(V, torch._foreach_mul(G, G), 1 - beta2)


def _bounded(V: Tensors, nu_min: float) -> Tensors:
    """`1 / sqrt(max(V, nu_min^2))` as new tensors."""
    R = torch._foreach_clamp_min(V, nu_min**2)
    torch._foreach_rsqrt_(R)
    return R
