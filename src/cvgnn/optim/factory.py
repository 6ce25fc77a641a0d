"""The paper's five optimizers by name, each in the paper's own form and in the form torch ships (Table 1).

A new optimizer is one line in `_VARIANTS` for each form, and a rule in `moment_rules` if its moments are new.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.optim.optimizer import ParamsT

from cvgnn.errors import require, require_known
from cvgnn.optim import moment_rules as rules
from cvgnn.optim.adam_type import AdamType

OPTIMIZERS = ("sgd", "heavy-ball", "adam", "amsgrad", "adagrad")
FORMS = ("paper", "torch")
# Those of torch.optim itself. The paper's theory does not cover them, so they have the torch form only.
TORCH_OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adamw": torch.optim.AdamW,
    "nadam": torch.optim.NAdam,
}


class _Variant(NamedTuple):
    """The two rules of one optimizer in one form, and the optional hyperparameters that it uses, with their defaults.

    The second rule is called with `beta2` where that is one of them.
    """

    first_moment: rules.FirstMoment
    second_moment: Callable[..., rules.SecondMoment]
    defaults: dict[str, float]


_ADAM_DEFAULTS = {"beta1": 0.9, "beta2": 0.999, "nu_min": 1e-8}
_VARIANTS = {
    ("paper", "sgd"): _Variant(rules.Momentum(), rules.Ones, {}),
    ("paper", "heavy-ball"): _Variant(rules.Momentum(), rules.Ones, {"beta1": 0.9}),
    ("paper", "adam"): _Variant(rules.Momentum(), rules.ExponentialAverage, _ADAM_DEFAULTS),
    ("paper", "amsgrad"): _Variant(rules.Momentum(), rules.RunningMaximum, _ADAM_DEFAULTS),
    ("paper", "adagrad"): _Variant(rules.Momentum(), rules.Mean, {"beta1": 0.9, "nu_min": 1e-8}),
    # Here nu_min is torch's eps, with torch's own defaults.
    ("torch", "sgd"): _Variant(rules.UndampedMomentum(), rules.Ones, {}),
    ("torch", "heavy-ball"): _Variant(rules.UndampedMomentum(), rules.Ones, {"beta1": 0.9}),
    ("torch", "adam"): _Variant(rules.CorrectedMomentum(), rules.CorrectedAverage, _ADAM_DEFAULTS),
    ("torch", "amsgrad"): _Variant(rules.CorrectedMomentum(), rules.CorrectedMaximum, _ADAM_DEFAULTS),
    ("torch", "adagrad"): _Variant(rules.CorrectedMomentum(), rules.Sum, {"nu_min": 1e-10}),
}


def make_optimizer(
    name: str,
    params: ParamsT,
    *,
    form: str = "torch",
    lr: float = 0.01,
    beta1: float | None = None,
    beta2: float | None = None,
    nu_min: float | None = None,
    weight_decay: float = 0.0,
) -> torch.optim.Optimizer:
    """One of the paper's optimizers, `W_{t+1} = W_t - lr M_t / sqrt(V_t)` with the `M_t`, `V_t` of its name.

    ================  ============================  =======================================
    name              paper: beta1, V_t             torch, equal to
    ================  ============================  =======================================
    `sgd`             0, 1                          `SGD`
    `heavy-ball`      0.9, 1                        `SGD(momentum=beta1, dampening=beta1)`
    `adam`            0.9, average of G^2           `Adam`, bias-corrected
    `amsgrad`         0.9, running maximum of that  `Adam(amsgrad=True)`, bias-corrected
    `adagrad`         0.9, mean of all G^2          `Adagrad`: sum of all G^2, no momentum
    `adamw`, `nadam`  none                          `torch.optim.AdamW`, `NAdam` themselves
    ================  ============================  =======================================

    Args:
        name: one of `OPTIMIZERS`.
        params: parameters of any shapes or parameter groups.
        form: `paper` (Algorithm 1 and Table 1 to the letter) or `torch` (what the published numbers used).
        lr: the learning rate alpha > 0.
        beta1: the momentum's decay rate, 0.9 by default.
        beta2: the second moment's decay rate, 0.999 by default.
        nu_min: Assumption 2's bound, 1e-8 by default; in torch's form its `eps`, with torch's default.
        weight_decay: the factor of the L2 term.

    Returns:
        The optimizer with the two rules of its name and form; in torch's form equal to torch's own up to round-off.

    >>> import torch
    >>> make_optimizer("adam", [torch.zeros(3, requires_grad=True)], form="paper", lr=0.01).defaults
    {'lr': 0.01, 'beta1': 0.9, 'nu_min': 1e-08, 'weight_decay': 0.0}
    """
    given = {"beta1": beta1, "beta2": beta2, "nu_min": nu_min}
    options = check_options(name, form=form, lr=lr, weight_decay=weight_decay, **given)
    return TORCH_OPTIMIZERS.get(name, AdamType)(params, **options)


def check_options(name: str, *, form: str, lr: float, weight_decay: float, **given: float | None) -> dict[str, Any]:
    """Check the arguments of `make_optimizer`, before anything else is computed.

    Args:
        name, form, lr, weight_decay: see `make_optimizer`.
        given: `beta1`, `beta2` and `nu_min`; None for the default.

    Returns:
        The arguments of `AdamType`, or of torch's class.
    """
    for kind, value, known in (("form", form, FORMS), ("optimizer", name, (*OPTIMIZERS, *TORCH_OPTIMIZERS))):
        require_known(kind, value, known)
    if name in TORCH_OPTIMIZERS:
        require(form == "torch", f"{name} has no paper form: the paper does not cover it; use form='torch'")
        beta1, beta2, eps = (
            default if given.get(key) is None else given[key] for key, default in _ADAM_DEFAULTS.items()
        )
        return {"lr": float(lr), "betas": (beta1, beta2), "eps": eps, "weight_decay": float(weight_decay)}
    variant = _VARIANTS[form, name]
    used = dict(variant.defaults)
    for argument, number in given.items():
        # beta1 = 0 means "no momentum", which holds for every optimizer without a beta1.
        if number is None or (argument == "beta1" and number == 0 and argument not in used):
            continue
        require(
            argument in used,
            f"{argument} has no use in {name} in the {form} form, got {number!r}; leave it out, or choose an "
            f"optimizer that uses it ({_users(argument)})",
        )
        used[argument] = float(number)
    second_moment = variant.second_moment(used.pop("beta2")) if "beta2" in used else variant.second_moment()
    # Where they have no use: no momentum, and AdamType's default bound.
    numbers = {"beta1": 0.0, "nu_min": 1e-8, **used, "lr": float(lr), "weight_decay": float(weight_decay)}
    second_moment.check(**numbers)
    return {"first_moment": variant.first_moment, "second_moment": second_moment, **numbers}


def _users(argument: str) -> str:
    """The optimizers that use an argument, for the way out of an error.

    >>> _users("beta2")
    'paper: adam, amsgrad; torch: adam, amsgrad'
    """
    users = {form: [name for name in OPTIMIZERS if argument in _VARIANTS[form, name].defaults] for form in FORMS}
    return "; ".join(f"{form}: {', '.join(names)}" for form, names in users.items())
