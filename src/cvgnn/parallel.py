"""Compiled kernels on as many threads as torch uses: ranges of rows, one for each thread.

Kernels release the GIL, so plain Python threads run them side by side. numba's own threading layers are not used: the
one that comes with it aborts the process when two Python threads call it at once.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch

_WORTH_SHARING = 1 << 17  # elements; waking a thread takes as long as some 50,000 of them
_pools: dict[int, ThreadPoolExecutor] = {}
os.register_at_fork(after_in_child=_pools.clear)  # a child has no threads but its own


def over_rows(kernel: Callable[[int, int], object], num_rows: int, *, width: int, multiple: int = 1) -> None:
    """Call `kernel(first, last)` on ranges that together are `0..num_rows`, at the same time where that pays.

    Args:
        kernel: computes rows `first..last-1`; releases the GIL; ranges must not depend on each other.
        num_rows: how many rows there are.
        width: elements in a row, to tell what pays.
        multiple: ranges begin at multiples of this.

    >>> seen = []
    >>> over_rows(lambda first, last: seen.append((first, last)), 10, width=1)
    >>> seen
    [(0, 10)]
    """
    threads = torch.get_num_threads()
    if threads == 1 or num_rows * width < _WORTH_SHARING:
        kernel(0, num_rows)
        return
    pool = _pools.get(threads)
    if pool is None:
        pool = _pools[threads] = ThreadPoolExecutor(threads - 1, thread_name_prefix="cvgnn")
    share = -(-num_rows // (threads * multiple)) * multiple
    waiting = [pool.submit(kernel, first, min(first + share, num_rows)) for first in range(share, num_rows, share)]
    kernel(0, min(share, num_rows))
    for other in waiting:
        other.result()
