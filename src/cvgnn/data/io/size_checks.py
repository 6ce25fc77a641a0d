"""Checks of a file before it is read, and errors that name the file."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cvgnn.errors import CvgnnError, require
from cvgnn.utils.formatting import format_bytes
from cvgnn.utils.free_memory import available_memory

# Compression shrinks real arrays by less than this; a larger archive that shrinks by more is made to fill memory.
_MAX_COMPRESSION = 200
_SMALL = 64 * 2**20


class FileError(CvgnnError):
    """An error whose message names the file."""


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Name `path` in every error inside that does not name its file yet."""
    try:
        yield
    except FileError:
        raise
    except CvgnnError as error:
        raise FileError(f"{path}: {error}") from None
    except OSError as error:
        raise FileError(f"cannot read {error.filename or path}: {error.strerror or error}") from None
    except MemoryError:
        raise FileError(f"{path} does not fit into memory; use a machine with more, or a smaller file") from None


def check_archive(members: Sequence[zipfile.ZipInfo]) -> None:
    """Refuse an archive that unpacks to more than memory holds, or to far more than real data would.

    Args:
        members: the archive's table of contents; no member yields more bytes than it declares there.
    """
    unpacked = sum(member.file_size for member in members)
    packed = max(1, sum(member.compress_size for member in members))
    check_memory(unpacked)
    require(
        unpacked <= _SMALL or unpacked <= _MAX_COMPRESSION * packed,
        f"it unpacks to {format_bytes(unpacked)}, {unpacked // packed} times its size, as a zip bomb does; if it is "
        "your own, write it again uncompressed (numpy.savez)",
    )


def check_memory(num_bytes: int, what: str = "it") -> None:
    """Refuse data that needs more than the free memory."""
    free = available_memory()
    require(
        free is None or num_bytes <= free,
        f"{what} holds {format_bytes(num_bytes)} of data, more than the {format_bytes(free or 0)} of memory that are "
        "free",
    )
