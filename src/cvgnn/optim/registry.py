"""The paper's five optimizers by name, each in the paper's own form and in the form torch ships (Table 1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch.optim import SGD, Adagrad, Adam, Optimizer
from torch.optim.optimizer import ParamsT

from cvgnn.errors import require, unknown_name
from cvgnn.optim.adam_type import AdamType
from cvgnn.optim.checks import check_beta, check_eps, check_lr, check_nu_min, check_weight_decay
from cvgnn.optim.light import light
from cvgnn.optim.second_moment import ExponentialAverage, Mean, Ones, RunningMaximum, SecondMoment

OPTIMIZERS = ("sgd", "heavy-ball", "adam", "amsgrad", "adagrad")
FORMS = ("paper", "torch")

_SGD, _Adam, _Adagrad = light(SGD), light(Adam), light(Adagrad)


@dataclass(frozen=True, kw_only=True)
class _Numbers:
    """The hyperparameters of one optimizer, checked and complete; one that it does not use is 0."""

    lr: float
    beta1: float
    beta2: float
    nu_min: float
    weight_decay: float


@dataclass(frozen=True)
class _Recipe:
    """How one optimizer is built, and the optional numbers it uses, by name, with their defaults."""

    build: Callable[[ParamsT, _Numbers], Optimizer]
    defaults: Mapping[str, float]


def _plain(params: ParamsT, n: _Numbers) -> Optimizer:
    return AdamType(params, lr=n.lr, beta1=n.beta1, second_moment=Ones(), weight_decay=n.weight_decay)


def _adaptive(params: ParamsT, n: _Numbers, rule: SecondMoment) -> Optimizer:
    return AdamType(params, lr=n.lr, beta1=n.beta1, second_moment=rule, nu_min=n.nu_min, weight_decay=n.weight_decay)


def _torch_sgd(params: ParamsT, n: _Numbers) -> Optimizer:
    return _SGD(params, lr=n.lr, momentum=n.beta1, dampening=n.beta1, weight_decay=n.weight_decay, fused=True)


def _torch_adam(params: ParamsT, n: _Numbers, amsgrad: bool) -> Optimizer:
    return _Adam(
        params,
        lr=n.lr,
        betas=(n.beta1, n.beta2),
        eps=n.nu_min,
        weight_decay=n.weight_decay,
        amsgrad=amsgrad,
        fused=True,
    )


def _torch_adagrad(params: ParamsT, n: _Numbers) -> Optimizer:
    return _Adagrad(params, lr=n.lr, eps=n.nu_min, weight_decay=n.weight_decay, fused=True)


_ADAM_DEFAULTS = {"beta1": 0.9, "beta2": 0.999, "nu_min": 1e-8}
_RECIPES = {
    "paper": {
        "sgd": _Recipe(_plain, {}),
        "heavy-ball": _Recipe(_plain, {"beta1": 0.9}),
        "adam": _Recipe(lambda params, n: _adaptive(params, n, ExponentialAverage(n.beta2)), _ADAM_DEFAULTS),
        "amsgrad": _Recipe(lambda params, n: _adaptive(params, n, RunningMaximum(n.beta2)), _ADAM_DEFAULTS),
        "adagrad": _Recipe(lambda params, n: _adaptive(params, n, Mean()), {"beta1": 0.9, "nu_min": 1e-8}),
    },
    # Here nu_min is torch's eps, with torch's own defaults.
    "torch": {
        "sgd": _Recipe(_torch_sgd, {}),
        "heavy-ball": _Recipe(_torch_sgd, {"beta1": 0.9}),
        "adam": _Recipe(lambda params, n: _torch_adam(params, n, amsgrad=False), _ADAM_DEFAULTS),
        "amsgrad": _Recipe(lambda params, n: _torch_adam(params, n, amsgrad=True), _ADAM_DEFAULTS),
        "adagrad": _Recipe(_torch_adagrad, {"nu_min": 1e-10}),
    },
}


def make_optimizer(
    name: str,
    params: ParamsT,
    *,
    form: str = "torch",
    lr: float,
    beta1: float | None = None,
    beta2: float | None = None,
    nu_min: float | None = None,
    weight_decay: float = 0.0,
) -> Optimizer:
    """One of the paper's optimizers, `W_{t+1} = W_t - lr M_t / sqrt(V_t)` with the `M_t`, `V_t` of its name.

    | name         | paper: beta1, V_t               | torch                                   |
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
        An `AdamType` in the paper's form, one of torch's optimizers in torch's.

    >>> import torch
    >>> make_optimizer("adam", [torch.zeros(3, requires_grad=True)], form="paper", lr=0.01).defaults
    {'lr': 0.01, 'beta1': 0.9, 'nu_min': 1e-08, 'weight_decay': 0.0}
    """
    options = {"beta1": beta1, "beta2": beta2, "nu_min": nu_min}
    numbers = check_options(name, form=form, lr=lr, weight_decay=weight_decay, **options)
    return _RECIPES[form][name].build(params, numbers)


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
    used = dict.fromkeys(given, 0.0) | dict(recipe.defaults)
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
    if "nu_min" in recipe.defaults:
        {"paper": check_nu_min, "torch": check_eps}[form](used["nu_min"])
    return _Numbers(lr=float(lr), weight_decay=float(weight_decay), **used)


def _users(argument: str) -> str:
    """The optimizers that use an argument, for the way out of an error.

    >>> _users("beta2")
    'paper: adam, amsgrad; torch: adam, amsgrad'
    """
    users = {form: [name for name in OPTIMIZERS if argument in _RECIPES[form][name].defaults] for form in FORMS}
    return "; ".join(f"{form}: {', '.join(names)}" for form, names in users.items())
