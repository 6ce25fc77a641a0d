"""What cvgnn logs while something runs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


class _Messages(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


@contextmanager
def logged(level: int = logging.INFO) -> Iterator[list[str]]:
    """The messages that cvgnn logs at this level and above, in a list that grows."""
    logger, handler = logging.getLogger("cvgnn"), _Messages()
    before = logger.level
    logger.setLevel(level)
    logger.addHandler(handler)
    try:
        yield handler.messages
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
