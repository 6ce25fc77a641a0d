"""Who wants to know that kernels are being compiled. The command line registers here without importing numba."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Listener = Callable[[str, bool], None]
"""Gets the name of a kernel and whether its compilation has ended (True) or begins (False)."""

_listeners: list[Listener] = []


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Call `listener` before and after each kernel that is compiled, and not for kernels from the cache."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def notify(name: str, *, ended: bool) -> None:
    """Tell the listeners that the compilation of a kernel begins or has ended.

    >>> with listening(lambda name, ended: print(name, ended)):
    ...     notify("forward", ended=False)
    forward False
    """
    for listener in _listeners:
        listener(name, ended)
