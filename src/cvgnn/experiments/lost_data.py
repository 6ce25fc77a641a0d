"""A file that is cut, or a disk that fails, under a memory map: a sentence, where the kernel would kill without a word.

The kernel then sends SIGBUS to the thread that read. Python cannot answer it: its handlers run after the instruction
that failed, which would fail again for ever. So the answer is compiled code that calls nothing but `write` and `_exit`.
What was computed since the last checkpoint is lost; the checkpoints are not.
"""

from __future__ import annotations

import ctypes
import functools
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from llvmlite import ir
from numba import cfunc, types
from numba.extending import intrinsic

_text = np.zeros(4096, np.uint8)
_length = np.zeros(1, np.int64)
_BYTES: Any = types.CPointer(types.uint8)  # type: ignore[no-untyped-call]


@contextmanager
def told_if_data_is_lost(advice: str) -> Iterator[None]:
    """While this lasts, SIGBUS ends the program with a sentence and the exit code 2.

    Args:
        advice: what to do then.
    """
    if not hasattr(signal, "SIGBUS"):  # Windows
        yield
        return
    sentence = (
        f"cvgnn: a file of the graph was cut or lost while it was being read from disk; restore it, then {advice}\n"
    ).encode()[: _text.size]
    _text[: len(sentence)] = np.frombuffer(sentence, np.uint8)
    _length[0] = len(sentence)
    set_handler = ctypes.CDLL(None).signal
    set_handler.argtypes, set_handler.restype = (ctypes.c_int, ctypes.c_void_p), ctypes.c_void_p
    before = set_handler(signal.SIGBUS, _compiled().address)
    try:
        yield
    finally:
        set_handler(signal.SIGBUS, before)


@functools.cache
def _compiled() -> Any:
    write: Any = types.ExternalFunction("write", types.intp(types.int32, _BYTES, types.uintp))
    leave: Any = types.ExternalFunction("_exit", types.void(types.int32))
    text, length = _text.ctypes.data, _length.ctypes.data

    def answer(number):  # type: ignore[no-untyped-def]
        write(2, _bytes_at(text), _word_at(length))
        leave(2)

    return cfunc(types.void(types.int32))(answer)


def _to_pointer(context, address):  # type: ignore[no-untyped-def]
    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.inttoptr(args[0], ir.IntType(8).as_pointer())

    return _BYTES(types.uintp), codegen


def _load_word(context, address):  # type: ignore[no-untyped-def]
    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.load(builder.inttoptr(args[0], ir.IntType(64).as_pointer()))

    return types.uintp(types.uintp), codegen


_bytes_at: Any = intrinsic(_to_pointer)
_word_at: Any = intrinsic(_load_word)
