"""Error messages for bad input."""

from __future__ import annotations

import pytest

from cvgnn.errors import CvgnnError, require, unknown_name


def test_require() -> None:
    require(True, "not raised")
    with pytest.raises(CvgnnError) as caught:
        require(False, "hidden must be at least 1, not 0")
    assert str(caught.value) == "hidden must be at least 1, not 0"


def test_a_mistake_is_a_value_error() -> None:
    assert issubclass(CvgnnError, ValueError)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cora ", "unknown dataset 'cora '; known: citeseer, cora (did you mean 'cora'?)"),
        ("citseer", "unknown dataset 'citseer'; known: citeseer, cora (did you mean 'citeseer'?)"),
        ("reddit", "unknown dataset 'reddit'; known: citeseer, cora"),
        ("", "unknown dataset ''; known: citeseer, cora"),
        (None, "unknown dataset None; known: citeseer, cora"),
        (7, "unknown dataset 7; known: citeseer, cora"),
    ],
)
def test_unknown_name(name: object, message: str) -> None:
    error = unknown_name("dataset", name, iter(["citeseer", "cora"]))
    assert isinstance(error, CvgnnError)
    assert str(error) == message
