"""SIGINT, SIGTERM and SIGHUP as requests to stop: a run ends after its current step and saves its state."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import final

from cvgnn.errors import Interrupted

_log = logging.getLogger(__name__)
NAMES = ("SIGINT", "SIGTERM", "SIGHUP")


@final
@dataclass
class StopRequest:
    """The signal that asked the run to stop; `signal_number` is None before."""

    signal_number: int | None = None


@contextmanager
def stop_requests(names: Sequence[str] = NAMES) -> Iterator[StopRequest]:
    """Inside the block, these signals are requests to stop; a second one ends the program.

    Args:
        names: of the signals.
    """
    request = StopRequest()

    def handle(number: int, frame: FrameType | None) -> None:
        if request.signal_number is not None:
            raise Interrupted(number)
        request.signal_number = number
        with contextlib.suppress(Exception):  # the log's terminal may be gone, or it was interrupted while it wrote
            _log.warning("stopping after this step; once more to stop at once")

    with handling(handle, names):
        yield request


@contextmanager
def handling(handle: Callable[[int, FrameType | None], None], names: Sequence[str] = NAMES) -> Iterator[None]:
    """Inside the block, a function handles these signals.

    Python handles signals in the main thread only; in any other thread this does nothing.

    Args:
        handle: gets the number of the signal.
        names: of the signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # A signal that is ignored stays ignored: a shell ignores SIGINT for background jobs, nohup ignores SIGHUP.
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    wanted = [number for number in numbers if signal.getsignal(number) not in (signal.SIG_IGN, None)]
    before = {number: signal.signal(number, handle) for number in wanted}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
