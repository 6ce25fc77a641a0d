"""The generalized Adam-type update of Algorithm 1 as a `torch.optim.Optimizer`.

Legend, the paper's letters:

    t        how many gradients a parameter has had, this one included
    W, G     the parameters W_t and their stochastic gradients G_t
    M, V     the first and the second moment M_t, V_t, of the shapes of W; as in `moment_rules`
    V_hat    AMSGrad's average, of which V is the running maximum
    lr       the learning rate alpha
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeAlias, final, overload

import torch
from torch import Tensor
from torch.autograd import profiler
from torch.optim import Optimizer, optimizer
from torch.optim.optimizer import ParamsT, StateDict

from cvgnn.errors import CvgnnError, require
from cvgnn.ops.optimizer_step import Placement, StepCoefficients, optimizer_step
from cvgnn.optim.moment_rules import FirstMoment, Momentum, SecondMoment

HYPERPARAMETERS = ("lr", "beta1", "nu_min", "weight_decay")
"""What a parameter group may set for itself."""

State: TypeAlias = dict[str, Any]
"""The state of one parameter: tensors behind "M", "V" and "V_hat", an int behind "t"."""


@final
class AdamType(Optimizer):
    """The Adam-type optimizer of the paper: momentum times a rule for the second moment (Algorithm 1).

        G_t     = gradient + weight_decay W_t
        M_t     = beta1 M_{t-1} + (1 - beta1) G_t           M_0 = 0
        V_t     = h_t(G_1, ..., G_t)                        the rule
        W_{t+1} = W_t - lr M_t / sqrt(V_t)

    Nothing is bias-corrected: with `beta1 = 0.9` the first step has a tenth of the gradient, as in the paper. torch's
    form differs in the two rules alone: how `M_t` starts, what divides it, and the root (see `moment_rules`).
    A parameter without a gradient is skipped, and its state does not change. The state holds the rules' `names`, "M"
    only where beta1 is above 0. `lr`, `beta1`, `nu_min` and `weight_decay` may differ from group to group.

    Args:
        params: real tensors of any shapes, named or not, or parameter groups, as for any torch optimizer. float32 and
            float64 on the CPU are computed by a compiled kernel, everything else by torch.
        lr: the learning rate alpha > 0.
        second_moment: the rule h_t, for all groups.
        first_moment: the rule for M_t, for all groups; the paper's by default.
        beta1: the momentum's decay rate, in [0, 1).
        nu_min: Assumption 2's bound: `V_t >= nu_min^2`; with torch's rules its `eps`.
        weight_decay: the factor of the L2 term, 0 or above.

    >>> from cvgnn.optim import Mean
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
        first_moment: FirstMoment | None = None,
        beta1: float = 0.9,
        nu_min: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        first_moment = first_moment or Momentum()
        for name, rule, kind, example in (
            ("first_moment", first_moment, FirstMoment, "Momentum()"),
            ("second_moment", second_moment, SecondMoment, "ExponentialAverage(0.999)"),
        ):
            require(isinstance(rule, kind), f"{name} must be a rule such as {example}, not {rule!r}")
        self.first_moment = first_moment
        self.second_moment = second_moment
        self._placements: dict[int, Placement | None] = {}  # by the number of the group
        super().__init__(params, {"lr": lr, "beta1": beta1, "nu_min": nu_min, "weight_decay": weight_decay})

    @staticmethod
    def profile_hook_step(func: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap `step` as torch does, to call hooks and to record the step for torch's profiler, where there are any.

        In a step on Cora the wrapper takes 16 to 19 µs, more than the kernel of the update.
        """
        wrapped = Optimizer.profile_hook_step(func)

        @functools.wraps(func)
        def step(self: AdamType, *args: Any, **options: Any) -> Any:
            # These names are private in torch. Where one is missing, torch's own wrapper runs.
            watched = (
                getattr(self, "_optimizer_step_pre_hooks", True)
                or getattr(self, "_optimizer_step_post_hooks", True)
                or getattr(optimizer, "_global_optimizer_pre_hooks", True)
                or getattr(optimizer, "_global_optimizer_post_hooks", True)
                or getattr(profiler, "_is_profiler_enabled", True)
            )
            return (wrapped if watched else func)(self, *args, **options)

        return step

    # torch's own add_param_group and zero_grad are decorated for torch.compile: their first call imports
    # torch._dynamo, which takes two seconds. These do the same without it.

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with their own hyperparameters; what is left out comes from the constructor.

        Args:
            param_group: "params", a tensor or a list of tensors or of (name, tensor), and any of `HYPERPARAMETERS`.
        """
        require(
            isinstance(param_group, dict) and "params" in param_group,
            f"param_group must be a dict with the key 'params', got {param_group!r}; "
            "write {'params': [W], 'lr': 0.1}",
        )
        defaults = {name: self.defaults[name] for name in HYPERPARAMETERS}
        group = {**defaults, **param_group, **_named(param_group["params"])}
        self.second_moment.check(**{name: group[name] for name in HYPERPARAMETERS})

        known = {id(w) for other in self.param_groups for w in other["params"]}
        for place, w in enumerate(group["params"]):
            _check_parameter(place, w)
            require(
                id(w) not in known,
                f"params must hold every parameter once, but number {place} of the group, of shape {list(w.shape)}, "
                "is there already; leave it out of one of the places",
            )
            known.add(id(w))
        for other in self.param_groups[:1]:
            require(
                ("param_names" in group) == ("param_names" in other),
                f"params must be named in all groups or in none, and the first group has "
                f"{'names' if 'param_names' in other else 'none'}; pass model.named_parameters() or "
                "model.parameters() for all",
            )
        self.param_groups.append(group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Reset the gradients.

        Args:
            set_to_none: drop the tensors instead of filling them with zeros.
        """
        for group in self.param_groups:
            for w in group["params"]:
                if set_to_none or w.grad is None:
                    w.grad = None
                elif w.grad.grad_fn is not None:  # of backward(create_graph=True)
                    w.grad.detach_().zero_()
                else:
                    w.grad.requires_grad_(False).zero_()

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Continue from a `state_dict()` of an optimizer with the same rules; as in torch, tensors are not copied."""
        rule = type(self.second_moment).__name__
        for group in state_dict["param_groups"]:
            missing = [name for name in HYPERPARAMETERS if name not in group]
            require(
                not missing,
                f"state_dict must come from an AdamType optimizer, but a parameter group of it has no "
                f"{', '.join(missing)}; load it into an optimizer of the class that saved it",
            )
        for state in state_dict["state"].values():
            expected = {*self.second_moment.names, *(self.first_moment.names if "M" in state else ())} - {"M"}
            names = sorted(name for name in state if name != "M")
            require(
                names == sorted(expected),
                f"state_dict must hold {sorted(expected)} for the rule {rule}, got {names}; "
                "build the optimizer with the rule of the run that saved it",
            )
        super().load_state_dict(state_dict)

    def __getstate__(self) -> dict[str, Any]:
        # torch copies its own fields only; without the rules a copy of the optimizer could not step.
        rules = {"first_moment": self.first_moment, "second_moment": self.second_moment}
        return {**super().__getstate__(), **rules}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._placements = {}  # of the original, or of the tensors before load_state_dict

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
        for place, group in enumerate(self.param_groups):
            self._step_group(place, group)
        return loss

    def _step_group(self, place: int, group: dict[str, Any]) -> None:
        """`W_{t+1}` for the parameters of one group, the number `place`, that have a gradient."""
        names = dict.fromkeys((*(self.first_moment.names if group["beta1"] else ()), *self.second_moment.names))
        # By t, which decides the coefficients; a group mostly has one t for all.
        by_t: dict[int, list[tuple[Tensor, Tensor, State]]] = {}
        for w in group["params"]:
            if (g := w.grad) is not None:
                # Without names there is no state, not even an empty one.
                state: State = self.state[w] if names else {}
                for name in names:
                    if name not in state:  # the first gradient: t = 0, M_0 = V_0 = 0
                        state[name] = 0 if name == "t" else torch.zeros_like(w)
                t = 0
                if "t" in names:
                    t = state["t"] = state["t"] + 1
                by_t.setdefault(t, []).append((w, g, state))
        for t, members in by_t.items():
            W, G, states = map(list, zip(*members, strict=True))
            M, V, V_hat = ([s[name] for s in states] if name in names else [] for name in ("M", "V", "V_hat"))
            coefficients = self._coefficients(group, t)
            self._placements[place] = optimizer_step(W, G, M, V, V_hat, coefficients, self._placements.get(place))

    def _coefficients(self, group: dict[str, Any], t: int) -> StepCoefficients:
        """The numbers of step `t`; float, because numba would compile again for an int."""
        lr, beta1, nu_min, weight_decay = [float(group[name]) for name in HYPERPARAMETERS]
        gain, divisor = self.first_moment.gain_and_divisor(beta1, t) if beta1 else (1.0, 1.0)
        return StepCoefficients(lr / divisor, weight_decay, gain, **self.second_moment.coefficients(nu_min, t))


def _named(params: Any) -> dict[str, list[Any]]:
    """The "params" of a group as a list, and its "param_names" if it came as pairs (name, tensor)."""
    if isinstance(params, Tensor):
        return {"params": [params]}
    if isinstance(params, set):
        raise CvgnnError(f"params must have an order, got a set of {len(params)}; pass a list")
    members = list(params)
    pairs = [member for member in members if isinstance(member, tuple)]
    if not pairs:
        return {"params": members}
    require(
        len(pairs) == len(members),
        f"params must be named all or none, got {len(pairs)} names for {len(members)} tensors; pass "
        "model.named_parameters() or model.parameters()",
    )
    return {"params": [w for _, w in pairs], "param_names": [name for name, _ in pairs]}


def _check_parameter(place: int, w: object) -> None:
    """Refuse what cannot be stepped."""
    if not isinstance(w, Tensor):
        raise CvgnnError(f"params must hold tensors, got {type(w).__name__} at number {place}; pass model.parameters()")
    require(
        w.is_leaf or w.retains_grad,
        f"params must hold leaf tensors, got the result of an operation of shape {list(w.shape)} at number {place}; "
        "pass the tensor it was computed from, or call detach().requires_grad_() on it",
    )
