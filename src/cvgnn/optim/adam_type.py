"""The generalized Adam-type update of Algorithm 1 as a `torch.optim.Optimizer`.

Legend, the paper's letters:

    W, G     the parameters W_t and their stochastic gradients G_t
    M, V     the first and the second moment M_t, V_t, of the shapes of W; V_t as in `second_moment`
    R        1 / sqrt(V_t), entry by entry
    lr       the learning rate alpha
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final, overload

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT, StateDict

from cvgnn.errors import require
from cvgnn.optim import light
from cvgnn.optim.checks import check_beta, check_lr, check_nu_min, check_weight_decay
from cvgnn.optim.second_moment import SecondMoment, State, Tensors

HYPERPARAMETERS = ("lr", "beta1", "nu_min", "weight_decay")
"""What a parameter group may set for itself."""


@final
class AdamType(Optimizer):
    """The Adam-type optimizer of the paper: momentum times a rule for the second moment (Algorithm 1).

        G_t     = gradient + weight_decay W_t
        M_t     = beta1 M_{t-1} + (1 - beta1) G_t           M_0 = 0
        V_t     = h_t(G_1, ..., G_t)                        the rule
        W_{t+1} = W_t - lr M_t / sqrt(V_t)

    Nothing is bias-corrected: with `beta1 = 0.9` the first step has a tenth of the gradient, as in the paper.
    A parameter without a gradient is skipped, and its state stays as it is. The state holds "M" (unless beta1 is 0)
    and the rule's `names`. `lr`, `beta1`, `nu_min` and `weight_decay` may differ from group to group.

    Args:
        params: real tensors (float32 or float64) of any shapes, or parameter groups, as for any torch optimizer.
        lr: the learning rate alpha > 0.
        second_moment: the rule h_t, for all groups.
        beta1: the momentum's decay rate, in [0, 1).
        nu_min: Assumption 2's bound: `V_t >= nu_min^2`.
        weight_decay: the factor of the L2 term, 0 or above.

    >>> from cvgnn.optim.second_moment import Mean
    >>> W = torch.tensor([1.0, 1.0], requires_grad=True)
    >>> optimizer = AdamType([W], lr=0.5, beta1=0.0, second_moment=Mean())
    >>> W.grad = torch.tensor([3.0, -0.1])
    >>> optimizer.step()  # V_1 = G_1^2, so every entry moves by lr
    >>> W.detach()
    tensor([0.5000, 1.5000])
    """

    def __init__(
        self,
        params: ParamsT,
        *,
        lr: float,
        second_moment: SecondMoment,
        beta1: float = 0.9,
        nu_min: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        require(
            isinstance(second_moment, SecondMoment),
            f"second_moment must be a rule such as Mean() or ExponentialAverage(0.999), not {second_moment!r}",
        )
        self.second_moment = second_moment
        super().__init__(params, {"lr": lr, "beta1": beta1, "nu_min": nu_min, "weight_decay": weight_decay})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with their own hyperparameters; what is left out comes from the constructor."""
        values = {**self.defaults, **param_group}
        check_lr(values["lr"])
        check_beta("beta1", values["beta1"])
        check_nu_min(values["nu_min"])
        check_weight_decay(values["weight_decay"])
        light.add_param_group(self, param_group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients; see `torch.optim.Optimizer.zero_grad`."""
        light.zero_grad(self, set_to_none)

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Continue from a `state_dict()` of an optimizer with the same rule; as in torch, tensors are not copied."""
        rule = type(self.second_moment).__name__
        for group in state_dict["param_groups"]:
            missing = [name for name in HYPERPARAMETERS if name not in group]
            require(
                not missing,
                f"state_dict must come from an AdamType optimizer, but a parameter group of it has no "
                f"{', '.join(missing)}; load it into an optimizer of the class that saved it",
            )
        for state in state_dict["state"].values():
            names = sorted(name for name in state if name != "M")
            require(
                names == sorted(self.second_moment.names),
                f"state_dict must hold {list(self.second_moment.names)} for the rule {rule}, got {names}; "
                "build the optimizer with the rule of the run that saved it",
            )
        super().load_state_dict(state_dict)

    def __getstate__(self) -> dict[str, Any]:
        # torch copies its own fields only; without the rule a copy of the optimizer could not step.
        return {**super().__getstate__(), "second_moment": self.second_moment}

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Take one step from `W_t` to `W_{t+1}`.

        Args:
            closure: computes the loss and the gradients again.

        Returns:
            What the closure returned, or None.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with torch.no_grad():
            for group in self.param_groups:
                self._step_group(group)
        return loss

    def _step_group(self, group: dict[str, Any]) -> None:
        """`W_{t+1}` for the parameters of one group that have a gradient."""
        W: list[Tensor] = [w for w in group["params"] if w.grad is not None]
        G: Tensors = [w.grad for w in group["params"] if w.grad is not None]
        if not W:
            return
        if group["weight_decay"]:
            G = torch._foreach_add(G, W, alpha=group["weight_decay"])  # a new list: w.grad belongs to the user

        beta1 = group["beta1"]
        states = [self._state_of(w, beta1) for w in W] if beta1 or self.second_moment.names else []
        M = G
        if beta1:
            M = [state["M"] for state in states]
            torch._foreach_lerp_(M, G, 1 - beta1)

        R = self.second_moment.inverse_root(states, G, group["nu_min"])
        if R is None:
            torch._foreach_add_(W, M, alpha=-group["lr"])
        else:
            torch._foreach_addcmul_(W, M, R, -group["lr"])

    def _state_of(self, w: Tensor, beta1: float) -> State:
        """The state of one parameter, made when its first gradient comes: `M_0 = 0` and the rule's own."""
        state: State = self.state[w]
        if beta1 and "M" not in state:
            state["M"] = torch.zeros_like(w)
        if "V" not in state:
            state.update(self.second_moment.initial_state(w))
        return state
