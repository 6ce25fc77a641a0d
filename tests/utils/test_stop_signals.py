"""Signals as requests to stop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from cvgnn.utils import stop_signals as stop
from cvgnn.utils.stop_signals import StopRequest, stop_requests
from tests.logs import logged

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Whatever a test does, pytest has its handlers back."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def handlers() -> list[object]:
    return [signal.getsignal(number) for number in SIGNALS]


def test_handlers_are_there_inside_and_gone_outside() -> None:
    before = handlers()
    with stop_requests() as request:
        assert all(now is not then for now, then in zip(handlers(), before, strict=True))
        assert request.signal_number is None
    assert handlers() == before


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_handlers_are_gone_after_an_error(error: type[BaseException]) -> None:
    before = handlers()
    with pytest.raises(error), stop_requests():
        raise error
    assert handlers() == before


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_is_a_request(number: signal.Signals) -> None:
    with logged() as messages, stop_requests() as request:
        os.kill(os.getpid(), number)
        assert request.signal_number == number
        assert messages == ["stopping after this step; once more to stop at once"]


@pytest.mark.parametrize("first", SIGNALS)
@pytest.mark.parametrize("second", SIGNALS)
def test_the_second_signal_stops_at_once(first: signal.Signals, second: signal.Signals) -> None:
    before = handlers()
    seen: list[StopRequest] = []

    def run() -> None:
        with stop_requests() as request:
            seen.append(request)
            os.kill(os.getpid(), first)
            os.kill(os.getpid(), second)

    with logged() as messages, pytest.raises(KeyboardInterrupt):
        run()
    assert seen[0].signal_number == first
    assert len(messages) == 1
    assert handlers() == before


@pytest.mark.parametrize("ignored", SIGNALS)
def test_an_ignored_signal_stays_ignored(ignored: signal.Signals) -> None:
    """As a shell starts its background jobs, and nohup its command."""
    signal.signal(ignored, signal.SIG_IGN)
    (other,) = (number for number in SIGNALS if number != ignored)
    with stop_requests() as request:
        for _ in range(3):
            os.kill(os.getpid(), ignored)
        assert signal.getsignal(ignored) is signal.SIG_IGN
        assert request.signal_number is None
        os.kill(os.getpid(), other)
        assert request.signal_number == other
    assert signal.getsignal(ignored) is signal.SIG_IGN


def test_handlers_of_ones_own_come_back() -> None:
    seen: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
    with stop_requests():
        os.kill(os.getpid(), signal.SIGTERM)
    assert seen == []
    os.kill(os.getpid(), signal.SIGTERM)
    assert seen == [signal.SIGTERM]


def test_one_inside_another() -> None:
    with logged() as messages, stop_requests() as outer:
        with stop_requests() as inner:
            os.kill(os.getpid(), signal.SIGINT)
        assert (outer.signal_number, inner.signal_number) == (None, signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        assert outer.signal_number == signal.SIGINT
    assert len(messages) == 2


def test_another_thread_changes_nothing() -> None:
    """Only the main thread may; a run in another one, as in a notebook's server, must still work."""
    before = handlers()
    seen: list[object] = []

    def work() -> None:
        with stop_requests() as request:
            seen.extend([request.signal_number, handlers() == before])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [None, True]
    assert handlers() == before


def test_a_signal_wakes_a_program_that_waits() -> None:
    """In a process of its own: a request while it sleeps is seen when it wakes, and the program ends by itself."""
    code = (
        "import runpy, sys, time\n"
        "stop_requests = runpy.run_path(sys.argv[1])['stop_requests']\n"  # without torch, which takes seconds
        "with stop_requests() as request:\n"
        "    print('ready', flush=True)\n"
        "    while request.signal_number is None:\n"
        "        time.sleep(0.01)\n"
        "print('number', request.signal_number)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, stop.__file__], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert err == "stopping after this step; once more to stop at once\n"  # what Python does with a warning by default
    assert out == f"number {int(signal.SIGTERM)}\n"
