"""SIGINT, SIGTERM and SIGHUP as requests: a run ends after its current step, when all it has computed can be saved."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import final

from cvgnn.errors import Interrupted


@final
class StopRequest:
    """Whether somebody asked the run to stop; `signal_number` is None until then."""

    def __init__(self) -> None:
        self.signal_number: int | None = None


@contextmanager
def stop_requests(say: Callable[[str], None]) -> Iterator[StopRequest]:
    """Take SIGINT, SIGTERM and SIGHUP as requests to stop; a second one ends the program at once.

    Elsewhere than in the main thread, where signals cannot be caught, nothing is changed.
    """
    request = StopRequest()

    def handle(number: int, frame: FrameType | None) -> None:
        if request.signal_number is not None:
            raise Interrupted(number)
        request.signal_number = number
        with contextlib.suppress(Exception):  # whoever listened may be gone, or was interrupted in the middle of a word
            say("stopping after this step; once more to stop at once")

    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    # A shell starts its background jobs with SIGINT ignored, and nohup with SIGHUP; that stays so.
    numbers = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
    wanted = [number for number in numbers if signal.getsignal(number) not in (signal.SIG_IGN, None)]
    before = {number: signal.signal(number, handle) for number in wanted}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
