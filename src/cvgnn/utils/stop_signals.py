"""SIGINT, SIGTERM and SIGHUP as requests to stop: a run ends after its current step and saves its state."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import final

from cvgnn.errors import Interrupted

_log = logging.getLogger(__name__)


@final
@dataclass
class StopRequest:
    """The signal that asked the run to stop; `signal_number` is None before."""

    signal_number: int | None = None


@contextmanager
def stop_requests(names: Sequence[str] = ("SIGINT", "SIGTERM", "SIGHUP")) -> Iterator[StopRequest]:
    """Inside the block, these signals are requests to stop; a second one ends the program.

    Python handles signals in the main thread only; in any other thread this does nothing.

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

    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    # A signal that is ignored stays ignored: a shell ignores SIGINT for background jobs, nohup ignores SIGHUP.
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    wanted = [number for number in numbers if signal.getsignal(number) not in (signal.SIG_IGN, None)]
    before = {number: signal.signal(number, handle) for number in wanted}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
