"""The end of a process whose work is done."""

from __future__ import annotations

import atexit
import os
import sys
from typing import NoReturn


def end_process(code: int) -> NoReturn:
    """End this process at once, with what `atexit` runs; its work must be done and its files closed.

    When Python clears up after that, a thread of torch or pyarrow that still wants the GIL is cancelled, which its C++
    code answers with an abort now and then on a busy machine ("terminate called without an active exception": 3 of 16
    runs of two ranks, 1 of 110 of `cvgnn inspect`). A finished command would then have exit code 134.
    """
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:  # the reader, such as head, has read enough
            pass
        except OSError as error:
            os.write(2, f"cvgnn: {stream.name}: {error.strerror}\n".encode())
            code = code or 2
    os._exit(code)
