from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest

import cvgnn.reference.optimizers
from cvgnn.errors import CvgnnError
from cvgnn.reference.optimizers import ReferenceOptimizer
from tests.optim.variants import HAND, HAND_GRADIENTS, HAND_NUMBERS, VARIANTS, used

MOMENTS = {  # M_2 and V_2 of the steps in HAND
    ("sgd", "paper"): ([2.75, 0.0], [1.0, 1.0]),
    ("heavy-ball", "paper"): ([1.875, 0.5], [1.0, 1.0]),
    ("adam", "paper"): ([1.875, 0.5], [2.640625, 0.75]),
    ("amsgrad", "paper"): ([1.875, 0.5], [2.640625, 1.0]),
    ("adagrad", "paper"): ([1.875, 0.5], [5.78125, 2.0]),
    ("sgd", "torch"): ([2.75, 0.0], [1.0, 1.0]),
    ("heavy-ball", "torch"): ([2.375, 1.0], [1.0, 1.0]),
    ("adam", "torch"): ([1.875, 0.5], [2.640625, 0.75]),
    ("amsgrad", "torch"): ([1.875, 0.5], [2.640625, 1.0]),
    ("adagrad", "torch"): ([2.75, 0.0], [11.5625, 4.0]),
}


@pytest.mark.parametrize(("name", "form"), VARIANTS)
def test_two_steps_by_hand(name: str, form: str) -> None:
    optimizer = ReferenceOptimizer(name, form, lr=0.1, **used(name, form, **HAND_NUMBERS))
    W = [np.ones(2)]
    for G, expected in zip(HAND_GRADIENTS, HAND[name, form], strict=True):
        W = optimizer.step(W, [np.array(G)])
        np.testing.assert_allclose(W[0], expected, rtol=1e-14)
    M, V = MOMENTS[name, form]
    np.testing.assert_array_equal(optimizer.M[0], M)
    np.testing.assert_array_equal(optimizer.V[0], V)


@pytest.mark.parametrize(("name", "form"), VARIANTS)
def test_weight_decay_adds_to_the_gradient(name: str, form: str) -> None:
    plain = ReferenceOptimizer(name, form, lr=0.1)
    decayed = ReferenceOptimizer(name, form, lr=0.1, weight_decay=0.5)
    W, G = [np.array([1.0, -2.0]), np.array(3.0)], [np.array([0.25, 4.0]), np.array(-1.0)]
    expected = plain.step(W, [np.array([0.75, 3.0]), np.array(0.5)])
    for new, old in zip(decayed.step(W, G), expected, strict=True):
        np.testing.assert_array_equal(new, old)


def test_inputs_are_not_changed() -> None:
    W, G = [np.ones(2)], [np.full(2, 2.0)]
    ReferenceOptimizer("adagrad", "paper", lr=0.1, weight_decay=0.1).step(W, G)
    np.testing.assert_array_equal(W[0], np.ones(2))
    np.testing.assert_array_equal(G[0], np.full(2, 2.0))


@pytest.mark.parametrize("name", ["adam", "amsgrad"])
def test_the_bound_of_assumption_2(name: str) -> None:
    optimizer = ReferenceOptimizer(name, "paper", lr=1.0, beta1=0.0, nu_min=0.01)
    np.testing.assert_allclose(optimizer.step([np.zeros(1)], [np.array([1e-6])])[0], [-1e-4], rtol=1e-14)


def test_torch_amsgrad_may_shrink_its_denominator() -> None:
    # A fact of torch's form that the theorem's proof forbids: V is monotone, V / (1 - beta2^t) is not.
    optimizer = ReferenceOptimizer("amsgrad", "torch", lr=1.0, beta1=0.0, beta2=0.75)
    denominators = []
    for G in (2.0, 0.0, 0.0):
        optimizer.step([np.zeros(1)], [np.array([G])])
        denominators.append(optimizer.V[0].item() / (1 - 0.75**optimizer.t))
    assert denominators[0] > denominators[1] > denominators[2]


@pytest.mark.parametrize(("name", "form"), [("adan", "paper"), ("adam", "papers")])
def test_unknown_names_are_refused(name: str, form: str) -> None:
    with pytest.raises(CvgnnError, match=f"unknown optimizer and form '{name}, {form}'; known: "):
        ReferenceOptimizer(name, form, lr=0.1)


def test_it_does_not_lean_on_torch() -> None:
    tree = ast.parse(Path(cvgnn.reference.optimizers.__file__).read_text())
    imported = [node.names[0].name for node in ast.walk(tree) if isinstance(node, ast.Import)]
    imported += [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert sorted(imported) == ["__future__", "cvgnn.errors", "dataclasses", "numpy", "numpy.typing", "typing"]
