from __future__ import annotations

import numpy as np
import pytest
import torch

from cvgnn.errors import CvgnnError
from cvgnn.optim import (
    FORMS,
    OPTIMIZERS,
    AdamType,
    ExponentialAverage,
    Mean,
    Momentum,
    Ones,
    RunningMaximum,
    make_optimizer,
)
from cvgnn.reference.optimizers import ReferenceOptimizer

from .variants import (
    HAND,
    HAND_GRADIENTS,
    HAND_NUMBERS,
    STATE_NAMES,
    USES,
    VARIANTS,
    arrays,
    pair,
    parameters,
    set_gradients,
    used,
)


def test_names() -> None:
    assert OPTIMIZERS == ("sgd", "heavy-ball", "adam", "amsgrad", "adagrad")
    assert FORMS == ("paper", "torch")


@pytest.mark.parametrize(("name", "form"), VARIANTS)
@pytest.mark.parametrize("weight_decay", [0.0, 0.05])
@pytest.mark.parametrize("numbers", [{}, {"beta1": 0.6, "beta2": 0.95, "nu_min": 1e-2}], ids=["default", "other"])
def test_sixty_steps_agree_with_the_reference(name: str, form: str, weight_decay: float, numbers: dict) -> None:
    W = parameters()
    numbers = {"nu_min": 1e-10 if (name, form) == ("adagrad", "torch") else 1e-8, **numbers}
    fast, reference = pair(name, form, W, lr=0.02, weight_decay=weight_decay, **numbers)
    expected = arrays(W)
    for t in range(60):
        G = set_gradients(W, t, scale=10.0 ** (t % 5 - 3))
        fast.step()
        expected = reference.step(expected, arrays(G))
        for j, (w, value) in enumerate(zip(W, expected, strict=True)):
            np.testing.assert_allclose(w.detach().numpy(), value, rtol=1e-12, atol=1e-14)
            M, V = STATE_NAMES.get((name, form), (None, None))
            if M is not None:
                np.testing.assert_allclose(fast.state[w][M].numpy(), reference.M[j], rtol=1e-12, atol=1e-16)
            if V is not None:
                np.testing.assert_allclose(fast.state[w][V].numpy(), reference.V[j], rtol=1e-12, atol=0)


@pytest.mark.parametrize(("name", "form"), VARIANTS)
def test_two_steps_by_hand(name: str, form: str) -> None:
    W = torch.ones(2, dtype=torch.float64, requires_grad=True)
    optimizer = make_optimizer(name, [W], form=form, lr=0.1, **used(name, form, **HAND_NUMBERS))
    for G, expected in zip(HAND_GRADIENTS, HAND[name, form], strict=True):
        W.grad = torch.tensor(G, dtype=torch.float64)
        optimizer.step()
        np.testing.assert_allclose(W.detach().numpy(), expected, rtol=1e-14)


@pytest.mark.parametrize(("name", "form"), VARIANTS)
def test_float32_agrees_with_the_reference(name: str, form: str) -> None:
    W = parameters(dtype=torch.float32)
    fast, reference = pair(name, form, W, lr=0.02, weight_decay=0.01, nu_min=1e-8)
    expected = arrays(W)
    for t in range(60):
        G = set_gradients(W, t)
        fast.step()
        expected = reference.step(expected, arrays(G))
    for w, value in zip(W, expected, strict=True):
        assert w.dtype == torch.float32
        np.testing.assert_allclose(w.detach().numpy(), value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "beta1", "rule"),
    [
        ("sgd", 0.0, Ones),
        ("heavy-ball", 0.9, Ones),
        ("adam", 0.9, ExponentialAverage),
        ("amsgrad", 0.9, RunningMaximum),
        ("adagrad", 0.9, Mean),
    ],
)
def test_defaults_of_the_paper_form(name: str, beta1: float, rule: type) -> None:
    optimizer = make_optimizer(name, parameters(), form="paper", lr=0.3, weight_decay=0.1)
    assert type(optimizer) is AdamType
    assert type(optimizer.first_moment) is Momentum
    assert type(optimizer.second_moment) is rule
    assert getattr(optimizer.second_moment, "beta2", 0.999) == 0.999
    assert optimizer.defaults == {"lr": 0.3, "beta1": beta1, "nu_min": 1e-8, "weight_decay": 0.1}


@pytest.mark.parametrize(
    ("name", "equal"),
    [
        ("sgd", lambda W: torch.optim.SGD(W, lr=0.3, weight_decay=0.1, fused=True)),
        (
            "heavy-ball",
            lambda W: torch.optim.SGD(W, lr=0.3, momentum=0.9, dampening=0.9, weight_decay=0.1, fused=True),
        ),
        ("adam", lambda W: torch.optim.Adam(W, lr=0.3, weight_decay=0.1, fused=True)),
        ("amsgrad", lambda W: torch.optim.Adam(W, lr=0.3, weight_decay=0.1, amsgrad=True, fused=True)),
        ("adagrad", lambda W: torch.optim.Adagrad(W, lr=0.3, weight_decay=0.1, fused=True)),
    ],
)
def test_defaults_of_the_torch_form_are_torchs_own(name: str, equal) -> None:
    optimizer, expected = make_optimizer(name, parameters(), lr=0.3, weight_decay=0.1), equal(parameters()).defaults
    assert type(optimizer) is AdamType
    beta1, beta2 = expected.get("betas", (expected.get("momentum", 0.0), None))
    assert expected.get("dampening", beta1) == beta1
    assert optimizer.defaults == {
        "lr": expected["lr"],
        "beta1": beta1,
        "nu_min": expected.get("eps", 1e-8),
        "weight_decay": expected["weight_decay"],
    }
    assert getattr(optimizer.second_moment, "beta2", None) == beta2


@pytest.mark.parametrize(("name", "form"), VARIANTS)
def test_given_numbers_arrive(name: str, form: str) -> None:
    numbers = used(name, form, beta1=0, beta2=0, nu_min=1)  # ints, as a config file may have them
    optimizer = make_optimizer(name, parameters(), form=form, lr=1, **numbers)
    found = {**optimizer.defaults, **vars(optimizer.second_moment)}
    assert {key: found[key] for key in numbers} == numbers
    assert found["lr"] == 1.0


@pytest.mark.parametrize(("name", "form"), VARIANTS)
def test_parameters_may_come_from_a_module_or_in_groups(name: str, form: str) -> None:
    model = torch.nn.Linear(3, 2)
    assert len(make_optimizer(name, model.parameters(), form=form, lr=0.1).param_groups[0]["params"]) == 2
    groups = [{"params": [model.weight], "lr": 0.5}, {"params": [model.bias]}]
    assert [g["lr"] for g in make_optimizer(name, groups, form=form, lr=0.1).param_groups] == [0.5, 0.1]


NO_USE = [
    (name, form, argument, value)
    for (name, form), uses in USES.items()
    for argument, value in (("beta1", 0.9), ("beta2", 0.999), ("beta2", 0.0), ("nu_min", 1e-8))
    if argument not in uses
]


@pytest.mark.parametrize(("name", "form", "argument", "value"), NO_USE)
def test_a_number_without_use_is_refused(name: str, form: str, argument: str, value: float) -> None:
    with pytest.raises(CvgnnError) as caught:
        make_optimizer(name, parameters(), form=form, lr=0.1, **{argument: value})
    sentence = str(caught.value)
    assert sentence.startswith(f"{argument} has no use in {name} in the {form} form, got {value!r}; leave it out, or ")
    assert "heavy-ball" in sentence if argument == "beta1" else "adam, amsgrad" in sentence


@pytest.mark.parametrize(("name", "form"), [key for key, uses in USES.items() if "beta1" not in uses])
def test_no_momentum_may_be_said_aloud(name: str, form: str) -> None:
    make_optimizer(name, parameters(), form=form, lr=0.1, beta1=0.0)


INF, NAN = float("inf"), float("nan")
BAD = {
    "lr": (0.0, -0.1, INF, NAN),
    "weight_decay": (-1e-4, INF, NAN),
    "beta1": (-0.1, 1.0, NAN),
    "beta2": (-0.1, 1.0, NAN),
    "nu_min": (-1e-8, INF, NAN),
}
OUT_OF_RANGE = [
    (name, form, argument, value)
    for name, form in VARIANTS
    for argument in ("lr", "weight_decay", *USES[name, form])
    for value in BAD[argument]
]


@pytest.mark.parametrize(("name", "form", "argument", "value"), OUT_OF_RANGE)
def test_a_number_out_of_range_is_refused(name: str, form: str, argument: str, value: float) -> None:
    with pytest.raises(CvgnnError, match=f"^{argument} must be .*, got {value!r}; "):
        make_optimizer(name, parameters(), form=form, **{"lr": 0.1, argument: value})


@pytest.mark.parametrize("name", ["adam", "amsgrad", "adagrad"])
def test_the_paper_form_needs_a_bound_above_zero(name: str) -> None:
    with pytest.raises(CvgnnError, match=r"^nu_min must be finite and at least 1.1e-19, .*, got 0.0; "):
        make_optimizer(name, parameters(), form="paper", lr=0.1, nu_min=0.0)
    assert make_optimizer(name, parameters(), form="torch", lr=0.1, nu_min=0.0).defaults["nu_min"] == 0.0


def test_unknown_names_are_refused() -> None:
    with pytest.raises(CvgnnError, match=r"unknown optimizer 'amsgrd'; .* \(did you mean 'amsgrad'\?\)"):
        make_optimizer("amsgrd", parameters(), lr=0.1)
    with pytest.raises(CvgnnError, match="unknown form 'pytorch'; known: paper, torch"):
        make_optimizer("adam", parameters(), form="pytorch", lr=0.1)


def test_the_two_forms_of_heavy_ball_differ_by_the_first_buffer_alone() -> None:
    # torch starts at M_1 = G_1, the paper at M_0 = 0; so torch's is the paper's recursion from M_0 = G_1.
    W = parameters()
    optimizer = make_optimizer("heavy-ball", W, lr=0.1, beta1=0.9)
    paper = ReferenceOptimizer("heavy-ball", "paper", lr=0.1, beta1=0.9)
    paper.t, paper.M, paper.V = 1, arrays(set_gradients(W, 0)), [np.ones(w.shape) for w in W]
    paper._V_hat = paper._S = paper.V
    expected = arrays(W)
    for t in range(10):
        G = set_gradients(W, t)
        optimizer.step()
        expected = paper.step(expected, arrays(G))
    for w, value in zip(W, expected, strict=True):
        np.testing.assert_allclose(w.detach().numpy(), value, rtol=1e-12)
