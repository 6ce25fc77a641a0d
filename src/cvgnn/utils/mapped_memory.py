"""Memory that is a file: arrays larger than the machine's memory, of which the kernel keeps the pages in use."""

from __future__ import annotations

import errno
import mmap
import os
import tempfile
from math import prod
from pathlib import Path

import torch
from torch import Tensor

from cvgnn.utils import atomic_files


def allocate(handle: int, size: int) -> None:
    """Allocate the disk space of a file: a full disk is an error now, and not a SIGBUS when a page is written."""
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(handle, 0, size)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                raise


def mapped_zeros(shape: tuple[int, ...], dtype: torch.dtype, folder: Path | None) -> Tensor:
    """A tensor of zeros in a new file, which has no name and is gone when the tensor is, or its process.

    Args:
        shape, dtype: of the tensor.
        folder: of the file; the system's folder for temporary files if None.

    >>> mapped_zeros((2, 3), torch.bfloat16, None).shape
    torch.Size([2, 3])
    """
    size = prod(shape) * dtype.itemsize
    place = tempfile.gettempdir() if folder is None else folder
    with (
        atomic_files.report_errors(f"cannot map a new file of {size} bytes in {place}", "choose memory instead"),
        tempfile.TemporaryFile(dir=folder) as file,
    ):
        file.truncate(size)
        allocate(file.fileno(), size)
        mapped = mmap.mmap(file.fileno(), size)
        if hasattr(mmap, "MADV_RANDOM"):
            # Without it Linux reads ahead in pages of up to 2 MiB, and writes all of one back where a row of 256 bytes
            # changes: training at papers100M's size wrote a terabyte in three minutes.
            mapped.madvise(mmap.MADV_RANDOM)
        return torch.frombuffer(mapped, dtype=dtype).view(shape)
