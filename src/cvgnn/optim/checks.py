"""The ranges of the optimizers' hyperparameters, each refused with one sentence."""

from __future__ import annotations

import math

from cvgnn.errors import require

SMALLEST_NU_MIN = 2.0**-63
"""Its square is the smallest normal float32; below it `nu_min^2` vanishes and `0 / sqrt(0)` is not a number."""


def check_lr(lr: float) -> None:
    """Refuse a learning rate outside `0 < lr < inf`.

    >>> check_lr(0.01)
    """
    require(math.isfinite(lr) and lr > 0, f"lr must be finite and above 0, got {lr!r}; try 0.01 or 0.001")


def check_beta(name: str, beta: float) -> None:
    """Refuse a decay rate, the weight a running average gives its past, outside `0 <= beta < 1`.

    >>> check_beta("beta1", 0.9)
    """
    require(0 <= beta < 1, f"{name} must be in [0, 1), got {beta!r}; usual values are 0.9 for beta1, 0.999 for beta2")


def check_weight_decay(weight_decay: float) -> None:
    """Refuse a weight decay outside `0 <= weight_decay < inf`.

    >>> check_weight_decay(0.0)
    """
    require(
        math.isfinite(weight_decay) and weight_decay >= 0,
        f"weight_decay must be finite and not negative, got {weight_decay!r}; 0 switches it off",
    )


def check_nu_min(nu_min: float) -> None:
    """Refuse a bound `nu_min` (Assumption 2) outside `2^-63 <= nu_min < inf`.

    >>> check_nu_min(1e-8)
    """
    require(
        math.isfinite(nu_min) and nu_min >= SMALLEST_NU_MIN,
        f"nu_min must be finite and at least {SMALLEST_NU_MIN:.2g}, so that its square is above 0 in float32, "
        f"got {nu_min!r}; the default is 1e-8",
    )


def check_eps(nu_min: float) -> None:
    """Refuse a `nu_min` that torch would not take as its `eps`: outside `0 <= nu_min < inf`.

    >>> check_eps(0.0)
    """
    require(
        math.isfinite(nu_min) and nu_min >= 0,
        f"nu_min must be finite and not negative in torch's form (its eps), got {nu_min!r}; leave it out "
        "for torch's own value",
    )
