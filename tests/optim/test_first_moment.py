from __future__ import annotations

import pytest
import torch

from cvgnn.ops.optimizer_step import StepCoefficients, optimizer_step
from cvgnn.optim import CorrectedMomentum, FirstMoment, Momentum, UndampedMomentum

# G = (2, 4, 0) with beta1 = 0.75: M_t by hand, and M_t as it enters the step.
RULES = {
    "paper": (Momentum(), [0.5, 1.375, 1.03125], [0.5, 1.375, 1.03125]),
    "torch's Adam": (CorrectedMomentum(), [0.5, 1.375, 1.03125], [2.0, 1.375 / 0.4375, 1.03125 / 0.578125]),
    "torch's SGD": (UndampedMomentum(), [2.0, 2.5, 1.875], [2.0, 2.5, 1.875]),
}


@pytest.mark.parametrize(("rule", "moments", "entering"), RULES.values(), ids=RULES)
def test_three_steps_by_hand(rule: FirstMoment, moments: list[float], entering: list[float]) -> None:
    M = torch.zeros(1, dtype=torch.float64)
    for t, G in enumerate([2.0, 4.0, 0.0], start=1):
        W = torch.zeros(1, dtype=torch.float64)
        lr, gain = 1 / rule.correction(0.75, t), rule.gain(0.75, t)
        optimizer_step(
            [W], [torch.full_like(W, G)], [M], [], [], StepCoefficients(lr, 0, gain, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0)
        )
        assert M.item() == moments[t - 1]
        assert -W.item() == pytest.approx(entering[t - 1], rel=1e-15)


@pytest.mark.parametrize("rule", [row[0] for row in RULES.values()], ids=RULES)
def test_without_a_past_it_is_the_gradient(rule: FirstMoment) -> None:
    for t in range(1, 4):
        assert (rule.gain(0.0, t), rule.correction(0.0, t)) == (1.0, 1.0)


def test_the_base_is_abstract() -> None:
    with pytest.raises(TypeError):
        FirstMoment()
