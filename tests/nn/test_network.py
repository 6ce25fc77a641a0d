from __future__ import annotations

import math

import pytest
import torch

from cvgnn.errors import CvgnnError
from cvgnn.nn import GCN


def make(**more: object) -> GCN:
    return GCN(**{"in_channels": 6, "hidden_channels": 4, "out_channels": 3, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("more", "names"),
    [
        ({"norm": "layer"}, ["0.weight", "0.bias", "0.norm.weight", "0.norm.bias", "1.weight", "1.bias"]),
        ({"norm": "none", "bias": False}, ["0.weight", "1.weight"]),
        ({"num_layers": 1}, ["0.weight", "0.bias"]),
        ({"num_layers": 3, "norm": "none"}, ["0.weight", "0.bias", "1.weight", "1.bias", "2.weight", "2.bias"]),
    ],
)
def test_parameters(more: dict[str, object], names: list[str]) -> None:
    net = make(**more)
    assert [name for name, _ in net.named_parameters()] == [f"layers.{name}" for name in names]
    assert net.layer(0).weight.shape == (6, 3 if net.num_layers == 1 else 4)
    assert net.hidden_widths == [4] * (net.num_layers - 1)


def test_initial_weights_are_a_function_of_the_seed_alone() -> None:
    torch.manual_seed(0)
    a = make(seed=7)
    torch.manual_seed(99)
    state = torch.get_rng_state()
    b = make(seed=7)
    assert torch.equal(torch.get_rng_state(), state)  # the global generator is left alone
    assert all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))
    assert not torch.equal(a.layer(0).weight, make(seed=8).layer(0).weight)


def test_initial_weights_fill_the_interval_of_torch_linear() -> None:
    W = GCN(in_channels=400, hidden_channels=50, out_channels=3).layer(0).weight.detach()
    bound = 1 / math.sqrt(400)
    assert 0.99 * bound < float(W.abs().max()) <= bound
    assert abs(float(W.mean())) < 0.02 * bound
    assert float(W.std()) == pytest.approx(bound / math.sqrt(3), rel=0.02)


def test_glorot_weights_fill_their_interval_and_biases_are_zero() -> None:
    layer = GCN(in_channels=400, hidden_channels=200, out_channels=3, init="glorot").layer(0)
    bound = math.sqrt(6 / 600)
    W = layer.weight.detach()
    assert 0.99 * bound < float(W.abs().max()) <= bound
    assert abs(float(W.mean())) < 0.02 * bound
    assert layer.bias is not None
    assert not layer.bias.any()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"init": "he"}, "unknown init 'he'"),
        ({"input_dropout": 1.0}, r"input_dropout must be a number in \[0, 1\), not 1.0"),
        ({"num_layers": 0}, "num_layers must be a whole number of at least 1, not 0"),
        ({"hidden_channels": 0}, "hidden_channels must be a whole number of at least 1, not 0"),
        ({"dropout": 1.0}, r"dropout must be a number in \[0, 1\), not 1.0"),
        ({"dropout": -0.1}, r"dropout must be a number in \[0, 1\), not -0.1"),
        ({"dropout": "a"}, r"dropout must be a number in \[0, 1\), not 'a'"),
        ({"in_channels": 0}, "in_channels must be a whole number of at least 1, not 0"),
        ({"out_channels": 0}, "out_channels must be a whole number of at least 1, not 0"),
        ({"hidden_channels": 2.5}, r"hidden_channels must be a whole number of at least 1, not 2\.5"),
        ({"bias": "no"}, "bias must be True or False, not 'no'"),
        ({"norm": "instance"}, "unknown norm 'instance'; known: layer, batch, none"),
    ],
)
def test_refused(more: dict[str, object], said: str) -> None:
    with pytest.raises(CvgnnError, match=said):
        make(**more)
