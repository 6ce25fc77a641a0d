"""The paper's five optimizers by name, each in the paper's own form and in the form torch ships (Table 1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch.optim.optimizer import ParamsT

from cvgnn.errors import require, unknown_name
from cvgnn.optim.adam_type import AdamType
from cvgnn.optim.checks import check_beta, check_lr, check_weight_decay
from cvgnn.optim.first_moment import CorrectedMomentum, FirstMoment, Momentum, UndampedMomentum
from cvgnn.optim.second_moment import (
    CorrectedAverage,
    CorrectedMaximum,
    ExponentialAverage,
    Mean,
    Ones,
    RunningMaximum,
    SecondMoment,
    Sum,
)

OPTIMIZERS = ("sgd", "heavy-ball", "adam", "amsgrad", "adagrad")
FORMS = ("paper", "torch")

_UNUSED = {"beta1": 0.0, "beta2": 0.0, "nu_min": 1e-8}
"""What stands for a number that an optimizer has no use for."""


@dataclass(frozen=True, kw_only=True)
class _Numbers:
    """The hyperparameters of one optimizer, checked and complete."""

    lr: float
    beta1: float
    beta2: float
    nu_min: float
    weight_decay: float


@dataclass(frozen=True)
class _Recipe:
    """The two rules of one optimizer, the second made of beta2, and the optional numbers it uses, with defaults."""

    first_moment: FirstMoment
    second_moment: Callable[[float], SecondMoment]
    defaults: Mapping[str, float]


def _ones(beta2: float) -> Ones:
    return Ones()


_ADAM_DEFAULTS = {"beta1": 0.9, "beta2": 0.999, "nu_min": 1e-8}
_RECIPES = {
    "paper": {
        "sgd": _Recipe(Momentum(), _ones, {}),
        "heavy-ball": _Recipe(Momentum(), _ones, {"beta1": 0.9}),
        "adam": _Recipe(Momentum(), ExponentialAverage, _ADAM_DEFAULTS),
        "amsgrad": _Recipe(Momentum(), RunningMaximum, _ADAM_DEFAULTS),
        "adagrad": _Recipe(Momentum(), lambda beta2: Mean(), {"beta1": 0.9, "nu_min": 1e-8}),
    },
    # Here nu_min is torch's eps, with torch's own defaults.
    "torch": {
        "sgd": _Recipe(UndampedMomentum(), _ones, {}),
        "heavy-ball": _Recipe(UndampedMomentum(), _ones, {"beta1": 0.9}),
        "adam": _Recipe(CorrectedMomentum(), CorrectedAverage, _ADAM_DEFAULTS),
        "amsgrad": _Recipe(CorrectedMomentum(), CorrectedMaximum, _ADAM_DEFAULTS),
        "adagrad": _Recipe(CorrectedMomentum(), lambda beta2: Sum(), {"nu_min": 1e-10}),
    },
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
) -> AdamType:
    """One of the paper's optimizers, `W_{t+1} = W_t - lr M_t / sqrt(V_t)` with the `M_t`, `V_t` of its name.

    | name         | paper: beta1, V_t               | torch, equal to                         |
    |--------------|---------------------------------|-----------------------------------------|
    | `sgd`        | 0, 1                            | `SGD`                                   |
    | `heavy-ball` | 0.9, 1                          | `SGD(momentum=beta1, dampening=beta1)`  |
    | `adam`       | 0.9, average of G^2             | `Adam`, bias-corrected                  |
    | `amsgrad`    | 0.9, running maximum of that    | `Adam(amsgrad=True)`, bias-corrected    |
    | `adagrad`    | 0.9, mean of all G^2            | `Adagrad`: sum of all G^2, no momentum  |

    Args:
        name: one of `OPTIMIZERS`.
        params: parameters of any shapes or parameter groups.
        form: `paper` (Algorithm 1 and Table 1 to the letter) or `torch` (what the published numbers used).
        lr: the learning rate alpha > 0.
        beta1: the momentum's decay rate, 0.9 unless told.
        beta2: the second moment's decay rate, 0.999 unless told.
        nu_min: Assumption 2's bound, 1e-8 unless told; in torch's form its `eps`, torch's own value unless told.
        weight_decay: the factor of the L2 term.

    Returns:
        The optimizer with the two rules of its name and form; in torch's form equal to torch's own up to round-off.

    >>> import torch
    >>> make_optimizer("adam", [torch.zeros(3, requires_grad=True)], form="paper", lr=0.01).defaults
    {'lr': 0.01, 'beta1': 0.9, 'nu_min': 1e-08, 'weight_decay': 0.0}
    """
    options = {"beta1": beta1, "beta2": beta2, "nu_min": nu_min}
    numbers = check_options(name, form=form, lr=lr, weight_decay=weight_decay, **options)
    recipe = _RECIPES[form][name]
    return AdamType(
        params,
        lr=numbers.lr,
        first_moment=recipe.first_moment,
        second_moment=recipe.second_moment(numbers.beta2),
        beta1=numbers.beta1,
        nu_min=numbers.nu_min,
        weight_decay=numbers.weight_decay,
    )


def check_options(
    name: str,
    *,
    form: str,
    lr: float,
    beta1: float | None,
    beta2: float | None,
    nu_min: float | None,
    weight_decay: float,
) -> _Numbers:
    """Refuse what `make_optimizer` would refuse, before anything else is computed; see there."""
    if form not in FORMS:
        raise unknown_name("form", form, FORMS)
    if name not in OPTIMIZERS:
        raise unknown_name("optimizer", name, OPTIMIZERS)
    recipe = _RECIPES[form][name]
    given = {"beta1": beta1, "beta2": beta2, "nu_min": nu_min}
    used = _UNUSED | dict(recipe.defaults)
    for argument, value in given.items():
        # beta1 = 0 says "no momentum", which every optimizer without a beta1 does.
        if value is None or (argument == "beta1" and value == 0 and argument not in recipe.defaults):
            continue
        require(
            argument in recipe.defaults,
            f"{argument} has no use in {name} in the {form} form, got {value!r}; leave it out, or choose an "
            f"optimizer that uses it ({_users(argument)})",
        )
        used[argument] = float(value)

    check_lr(lr)
    check_weight_decay(weight_decay)
    check_beta("beta1", used["beta1"])
    check_beta("beta2", used["beta2"])
    recipe.second_moment(used["beta2"]).check_nu_min(used["nu_min"])
    return _Numbers(lr=float(lr), weight_decay=float(weight_decay), **used)


def _users(argument: str) -> str:
    """The optimizers that use an argument, for the way out of an error.

    >>> _users("beta2")
    'paper: adam, amsgrad; torch: adam, amsgrad'
    """
    users = {form: [name for name in OPTIMIZERS if argument in _RECIPES[form][name].defaults] for form in FORMS}
    return "; ".join(f"{form}: {', '.join(names)}" for form, names in users.items())
