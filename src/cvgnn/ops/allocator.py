"""A setting of the C library's memory allocator: keep the memory that a training step frees for the next step."""

from __future__ import annotations

import ctypes
import functools

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # names of glibc's malloc.h
_KEPT_BYTES, _LARGEST = 512 << 20, 32 << 20


@functools.cache
def keep_freed_memory() -> bool:
    """Keep up to 512 MiB of freed memory in the process; False where the C library has no such setting.

    A step allocates and frees matrices of some MiB. glibc returns them to the system at once or not, as they happen to
    lie, and memory that comes from the system is paged in at its first use: 700 page faults and up to 2 ms in a step
    of 10 ms at arxiv size on two threads, 2 faults with this. Allocations above 32 MiB are returned as before.

    >>> keep_freed_memory() in (True, False)
    True
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library than glibc
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _LARGEST)) and bool(mallopt(_TRIM_THRESHOLD, _KEPT_BYTES))
