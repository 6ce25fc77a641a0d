from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from cvgnn.errors import CvgnnError
from cvgnn.optim.checks import check_beta, check_eps, check_lr, check_nu_min, check_weight_decay

INF, NAN = float("inf"), float("nan")
RANGES = {
    "lr": (check_lr, [1e-30, 0.1, 1e3], [0.0, -0.1, INF, NAN]),
    "beta1": (partial(check_beta, "beta1"), [0.0, 0.9, 0.999999], [-1e-9, 1.0, 2.0, INF, NAN]),
    "weight_decay": (check_weight_decay, [0.0, 5e-4, 2.0], [-5e-4, INF, NAN]),
    "nu_min": (check_nu_min, [2.0**-63, 1e-8, 1.0], [0.0, -1e-8, 1e-20, INF, NAN]),
    "nu_min in torch's form": (check_eps, [0.0, 1e-20, 1e-8], [-1e-8, INF, NAN]),
}
Check = Callable[[float], None]


@pytest.mark.parametrize(("check", "value"), [(check, value) for check, good, _ in RANGES.values() for value in good])
def test_values_in_range_pass(check: Check, value: float) -> None:
    check(value)


@pytest.mark.parametrize(
    ("name", "check", "value"),
    [(name, check, value) for name, (check, _, bad) in RANGES.items() for value in bad],
)
def test_values_out_of_range_are_named(name: str, check: Check, value: float) -> None:
    with pytest.raises(CvgnnError) as caught:
        check(value)
    assert str(caught.value).startswith(name.split()[0] + " must be ")
    assert f"got {value!r}; " in str(caught.value)
