"""Threads: every row once, errors are not lost, and torch gets its number back."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
import torch

from cvgnn.ops.threads import (
    WORTH_SHARING,
    WORTH_TWO_ROUNDS,
    num_threads,
    one_torch_thread,
    row_ranges,
    run_ranges,
    run_rows,
    torch_threads,
)


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
    run_rows(lambda first, last: seen.append((first, last)), num_rows, width=WORTH_SHARING, multiple=multiple)
    rows = [row for first, last in sorted(seen) for row in range(first, last)]
    assert rows == list(range(num_rows))
    assert all(first % multiple == 0 for first, _ in seen)
    assert len(seen) <= 3


def test_small_work_stays_on_one_thread() -> None:
    names = []
    run_rows(lambda first, last: names.append((first, last, threading.current_thread())), 100, width=10)
    assert names == [(0, 100, threading.main_thread())]


def test_an_error_in_another_thread_is_raised() -> None:
    def fail(first: int, last: int) -> None:
        if first > 0:
            raise ValueError("in a thread")

    with pytest.raises(ValueError, match="in a thread"):
        run_rows(fail, 1000, width=WORTH_SHARING)


def test_torch_has_one_thread_but_for_wide_work() -> None:
    with one_torch_thread():
        assert (torch.get_num_threads(), num_threads()) == (1, 3)
        with torch_threads(WORTH_SHARING - 1):
            assert torch.get_num_threads() == 1
        with torch_threads(WORTH_SHARING):
            assert torch.get_num_threads() == 3
        assert torch.get_num_threads() == 1
    assert (torch.get_num_threads(), num_threads()) == (3, 3)
    with torch_threads(WORTH_SHARING):
        assert torch.get_num_threads() == 3


def test_torch_gets_its_threads_back_after_an_error() -> None:
    with pytest.raises(KeyError), one_torch_thread(), torch_threads(WORTH_SHARING):
        raise KeyError
    assert (torch.get_num_threads(), num_threads()) == (3, 3)


@pytest.mark.parametrize("multiple", [1, 4, 256])
@pytest.mark.parametrize("work", [1, WORTH_SHARING, WORTH_TWO_ROUNDS])
@pytest.mark.parametrize("num_rows", [0, 1, 2, 3, 7, 255, 257, 1000])
def test_every_row_is_in_one_part(num_rows: int, work: int, multiple: int) -> None:
    ranges = row_ranges(num_rows, work, multiple=multiple)
    assert [row for first, last in ranges for row in range(first, last)] == list(range(num_rows))
    assert all(first % multiple == 0 for first, _ in ranges)
    assert (
        1 <= len(ranges) <= (1 if num_rows * work < WORTH_SHARING else 3 if num_rows * work < WORTH_TWO_ROUNDS else 6)
    )
    largest = max(last - first for first, last in ranges)
    assert len(ranges) == 1 or largest * len(ranges) <= 1.5 * num_rows  # even shares, but for the last
    if num_rows == 1000 and multiple < 256:
        assert len(ranges) == {1: 1, WORTH_SHARING: 6, WORTH_TWO_ROUNDS: 6}[work]
    seen = []
    run_ranges(lambda i, first, last: seen.append((i, (first, last))), ranges)
    assert sorted(seen) == list(enumerate(ranges))


@pytest.mark.parametrize("inside", [False, True])
def test_a_part_has_one_thread_and_no_gradients(inside: bool) -> None:
    """Also for what it calls, in every thread, whether torch was on one thread before or on three."""
    W = torch.ones(2, 2, requires_grad=True)
    together = threading.Barrier(3)
    seen = []

    def part(i: int, first: int, last: int) -> None:
        together.wait(timeout=60)
        ranges: list[tuple[int, int]] = []
        run_rows(lambda a, b: ranges.append((a, b)), 1000, width=WORTH_SHARING)
        with torch_threads(WORTH_SHARING):
            inner = (torch.get_num_threads(), num_threads(), ranges)
        seen.append((threading.get_ident(), inner, torch.is_grad_enabled(), (W @ W).requires_grad))

    def run() -> None:
        with torch.no_grad():
            run_ranges(part, [(0, 1), (1, 2), (2, 3)])

    if inside:
        with one_torch_thread():
            run()
            assert (torch.get_num_threads(), num_threads()) == (1, 3)
    else:
        run()
    assert len({ident for ident, *_ in seen}) == 3
    assert all(what == ((1, 1, [(0, 1000)]), False, False) for _, *rest in seen for what in [tuple(rest)])
    assert (torch.get_num_threads(), num_threads(), torch.is_grad_enabled()) == (3, 3, True)


@pytest.mark.parametrize("bad", [0, 1, 5])
def test_an_error_in_a_part_is_raised(bad: int) -> None:
    def part(i: int, first: int, last: int) -> None:
        if i == bad:
            raise ValueError(f"part {i}")

    with pytest.raises(ValueError, match=f"part {bad}"):
        run_ranges(part, [(i, i + 1) for i in range(6)])
    assert (torch.get_num_threads(), num_threads()) == (3, 3)


def test_all_threads_are_waited_for_after_errors_and_nothing_new_is_begun() -> None:
    together, running, begun = threading.Barrier(3), threading.Semaphore(0), []

    def part(i: int, first: int, last: int) -> None:
        begun.append(i)
        together.wait(timeout=60)
        if i < 2:
            raise ValueError("one of two")
        time.sleep(0.2)
        running.release()

    with pytest.raises(ValueError, match="one of two"):
        run_ranges(part, [(i, i + 1) for i in range(30)])
    assert running.acquire(blocking=False)  # the third was done
    assert sorted(begun) == [0, 1, 2]


def test_threads_that_are_started_later_have_all_of_torchs() -> None:
    """torch begins a thread with what was set last, by whichever thread."""
    seen: list[int] = []
    run_ranges(lambda i, first, last: None, [(i, i + 1) for i in range(6)])
    run_rows(lambda first, last: None, 1000, width=WORTH_SHARING)
    later = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    later.start()
    later.join()
    assert seen == [3]
