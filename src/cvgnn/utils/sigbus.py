"""A handler for SIGBUS, which the kernel sends if a memory-mapped file is truncated or its disk fails while we read.

Without it the process dies with no message. A Python handler cannot help: it runs after the instruction that failed,
which would fail again forever. So the handler is compiled code that calls only `write` and `_exit`, which are
async-signal-safe. Work since the last checkpoint is lost; the checkpoints are not.
"""

from __future__ import annotations

import ctypes
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def exit_on_sigbus(advice: str) -> Iterator[None]:
    """Inside the block, SIGBUS prints an error and ends the program with exit code 2.

    Args:
        advice: how to continue, the end of the error message.
    """
    if not hasattr(signal, "SIGBUS"):  # Windows
        yield
        return
    message = (
        f"cvgnn: a file of the graph was cut or lost while it was being read from disk; restore it, then {advice}\n"
    )
    text = ctypes.create_string_buffer(message.encode())  # must outlive the handler, which holds its address only
    handler = _compile_handler(ctypes.addressof(text), len(text) - 1)
    set_handler = ctypes.CDLL(None).signal
    set_handler.argtypes, set_handler.restype = (ctypes.c_int, ctypes.c_void_p), ctypes.c_void_p
    before = set_handler(signal.SIGBUS, handler.address)
    try:
        yield
    finally:
        set_handler(signal.SIGBUS, before)


def _compile_handler(address: int, length: int) -> Any:
    from numba import cfunc, types

    # The pointer is declared as an integer of the same size: numba can then pass the address as a constant.
    write: Any = types.ExternalFunction("write", types.intp(types.int32, types.uintp, types.uintp))
    leave: Any = types.ExternalFunction("_exit", types.void(types.int32))

    def handle(number):  # type: ignore[no-untyped-def]
        write(2, address, length)
        leave(2)

    return cfunc(types.void(types.int32))(handle)
