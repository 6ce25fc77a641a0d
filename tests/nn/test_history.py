from __future__ import annotations

import pytest
import torch

from cvgnn.data import Rows
from cvgnn.errors import CvgnnError
from cvgnn.nn import History


def rows(seed: int, num_rows: int, num_nodes: int) -> Rows:
    generator = torch.Generator().manual_seed(seed)
    counts = torch.randint(0, 40, (num_rows,), generator=generator)
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)]).int()
    indices = torch.randint(0, num_nodes, (int(indptr[-1]),), generator=generator).int()
    return Rows(indptr, indices, torch.randn(indices.numel(), generator=generator))


def test_pull_push_age() -> None:
    h = History(5, 3)
    h.fill(torch.arange(15.0).reshape(5, 3), step=0)
    h.push(torch.tensor([4, 1]), torch.tensor([[1.0, 2, 3], [4, 5, 6]]), step=3)
    assert h.pull(torch.tensor([1, 0, 4])).tolist() == [[4, 5, 6], [0, 1, 2], [1, 2, 3]]
    assert h.age(step=5).tolist() == [5, 2, 5, 5, 2]
    h.pull(torch.tensor([0])).zero_()
    assert h.values[0].tolist() == [0, 1, 2]  # what is pulled is a copy


@pytest.mark.parametrize("width", [1, 4, 33, 128])
def test_bfloat16_storage_sums_in_float32(width: int) -> None:
    """Only the stored values are rounded; weights and sums are not."""
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(9, width, generator=generator)
    h = History(9, width, storage=torch.bfloat16)
    h.fill(values, step=0)
    assert h.values.dtype == torch.bfloat16
    assert h.pull(torch.arange(9)).dtype == torch.float32
    S = rows(1, 70, 9)
    expected = S.dense(9).double() @ values.bfloat16().double()
    torch.testing.assert_close(h.weighted_sum(S).double(), expected, rtol=0, atol=2e-5)
    exact = History(9, width)
    exact.fill(values, step=0)
    torch.testing.assert_close(exact.weighted_sum(S).double(), S.dense(9) @ values.double(), rtol=0, atol=2e-5)


@pytest.mark.parametrize("storage", [None, torch.bfloat16])
def test_state_round_trip(storage: torch.dtype | None) -> None:
    a, b = History(4, 2, storage=storage), History(4, 2, storage=storage)
    a.push(torch.tensor([2]), torch.tensor([[1.5, 2.5]]), step=7)
    b.load_state_dict({name: t.clone() for name, t in a.state_dict().items()})
    assert torch.equal(a.values, b.values)
    assert torch.equal(a.age(9), b.age(9))


def test_a_foreign_state_is_refused() -> None:
    state = History(4, 3).state_dict()
    history = History(4, 2)
    with pytest.raises(RuntimeError, match="size mismatch for values"):  # torch's own words
        history.load_state_dict(state)
    with pytest.raises(RuntimeError, match=r"Missing key\(s\) in state_dict: \"values\""):
        history.load_state_dict({})
    assert not history.values.any()
    with pytest.raises(CvgnnError, match=r"cannot take values of shape \[4, 3\]"):
        History(4, 2).fill(torch.zeros(4, 3), step=0)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"width": 0}, "width must be a whole number of at least 1, not 0"),
        ({"width": 2.5}, r"width must be a whole number of at least 1, not 2\.5"),
        ({"storage": torch.int8}, r"storage must be one of .* not torch\.int8"),
        ({"storage": torch.float64}, r"storage must be one of .* not torch\.float64"),
    ],
)
def test_impossible_histories(arguments: dict[str, object], said: str) -> None:
    with pytest.raises(CvgnnError, match=said):
        History(**{"num_nodes": 3, "width": 2, **arguments})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ids", "shape", "said"),
    [
        ([0, 3], (2, 2), r"ids must lie in 0\.\.2; found 3"),
        ([-1, 0], (2, 2), r"ids must lie in 0\.\.2; found -1"),
        ([0, 1], (2, 3), r"values must have the shape \[2, 2\], not \[2, 3\]"),
        ([0, 1], (1, 2), r"values must have the shape \[2, 2\], not \[1, 2\]"),
    ],
)
def test_what_cannot_be_written_is_refused(ids: list[int], shape: tuple[int, int], said: str) -> None:
    """Compiled code checks nothing, so `push` does; nothing is written."""
    history = History(3, 2)
    with pytest.raises(CvgnnError, match=said):
        history.push(torch.tensor(ids), torch.ones(shape), step=1)
    assert not history.values.any()


def test_a_sum_of_rows_that_do_not_exist_is_refused() -> None:
    h = History(3, 2, storage=torch.bfloat16)
    S = Rows(torch.tensor([0, 1]).int(), torch.tensor([3]).int(), torch.ones(1))
    with pytest.raises(CvgnnError, match=r"indices must lie in 0\.\.2; found 3"):
        h.weighted_sum(S)
