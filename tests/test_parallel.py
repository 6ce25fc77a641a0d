"""Threads: every row once, errors are not lost, and torch gets its number back."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch

from cvgnn.parallel import WORTH_SHARING, mostly_one_thread, over_rows, team_size, wide


@pytest.fixture(autouse=True)
def three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("multiple", [1, 4, 256])
@pytest.mark.parametrize("num_rows", [0, 1, 2, 3, 7, 255, 257, 1000])
def test_every_row_once(num_rows: int, multiple: int) -> None:
    seen: list[tuple[int, int]] = []
    over_rows(lambda first, last: seen.append((first, last)), num_rows, width=WORTH_SHARING, multiple=multiple)
    rows = [row for first, last in sorted(seen) for row in range(first, last)]
    assert rows == list(range(num_rows))
    assert all(first % multiple == 0 for first, _ in seen)
    assert len(seen) <= 3


def test_small_work_stays_on_one_thread() -> None:
    names = []
    over_rows(lambda first, last: names.append((first, last, threading.current_thread())), 100, width=10)
    assert names == [(0, 100, threading.main_thread())]


def test_an_error_in_another_thread_is_raised() -> None:
    def fail(first: int, last: int) -> None:
        if first > 0:
            raise ValueError("in a thread")

    with pytest.raises(ValueError, match="in a thread"):
        over_rows(fail, 1000, width=WORTH_SHARING)


def test_torch_has_one_thread_but_for_wide_work() -> None:
    with mostly_one_thread():
        assert (torch.get_num_threads(), team_size()) == (1, 3)
        with wide(WORTH_SHARING - 1):
            assert torch.get_num_threads() == 1
        with wide(WORTH_SHARING):
            assert torch.get_num_threads() == 3
        assert torch.get_num_threads() == 1
    assert (torch.get_num_threads(), team_size()) == (3, 3)
    with wide(WORTH_SHARING):
        assert torch.get_num_threads() == 3


def test_torch_gets_its_threads_back_after_an_error() -> None:
    with pytest.raises(KeyError), mostly_one_thread(), wide(WORTH_SHARING):
        raise KeyError
    assert (torch.get_num_threads(), team_size()) == (3, 3)
