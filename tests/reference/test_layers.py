from __future__ import annotations

import numpy as np
import pytest
import torch

from cvgnn.errors import CvgnnError
from cvgnn.reference.layers import layer_norm, sigma, sigma_backward
from cvgnn.reference.losses import softmax_cross_entropy


def test_layer_norm_is_torchs() -> None:
    rng = np.random.default_rng(0)
    Z, gamma, beta = rng.normal(size=(5, 4)) * 0.01, rng.normal(size=4), rng.normal(size=4)
    theirs = torch.nn.functional.layer_norm(torch.tensor(Z), (4,), torch.tensor(gamma), torch.tensor(beta), eps=1e-5)
    np.testing.assert_allclose(layer_norm(Z, gamma, beta), theirs.numpy(), rtol=1e-12, atol=1e-14)


def test_softmax_cross_entropy_is_torchs_and_survives_large_logits() -> None:
    logits = np.array([[1.0, 2.0, -3.0], [1000.0, 0.0, 999.0], [0.5, 0.5, 0.5]])
    labels = np.array([2, 0, 1])
    theirs = torch.tensor(logits, requires_grad=True)
    loss_theirs = torch.nn.functional.cross_entropy(theirs, torch.tensor(labels))
    loss_theirs.backward()
    loss, derivative = softmax_cross_entropy(logits, labels)
    assert loss == pytest.approx(loss_theirs.item(), rel=1e-13)
    assert theirs.grad is not None
    np.testing.assert_allclose(derivative, theirs.grad.numpy(), rtol=1e-12, atol=1e-16)


def test_relu_has_slope_zero_at_zero() -> None:
    Z = np.array([[-1.0, 0.0, 2.0]])
    assert sigma({}, 0, Z).tolist() == [[0, 0, 2]]
    dZ, grads = sigma_backward({}, 0, Z, np.ones((1, 3)))
    assert dZ.tolist() == [[0, 0, 1]]
    assert grads == {}


@pytest.mark.parametrize("label", [-1, 2])
def test_a_label_outside_the_classes(label: int) -> None:
    with pytest.raises(CvgnnError, match=r"0\.\.1"):
        softmax_cross_entropy(np.zeros((1, 2)), np.array([label]))
