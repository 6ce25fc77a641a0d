"""What is asked of a file before it is read, how large it claims to be inside; and what goes wrong, in a sentence."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cvgnn.errors import CvgnnError, require

# Real arrays shrink by less than this; a larger archive that shrinks by more is made to fill memory.
_MOST_SHRINKING = 200
_SMALL = 64 * 2**20


@contextmanager
def told(path: Path) -> Iterator[None]:
    """Put the file's name before whatever is wrong with it."""
    try:
        with readable(path):
            yield
    except CannotReadError:
        raise
    except CvgnnError as error:
        raise CvgnnError(f"{path}: {error}") from None


class CannotReadError(CvgnnError):
    """What the system refuses; the sentence names the file already."""


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """What the system refuses, as a sentence."""
    try:
        yield
    except OSError as error:
        raise CannotReadError(f"cannot read {path}: {error.strerror or error}") from None
    except MemoryError:
        raise CannotReadError(f"{path} does not fit into memory; use a machine with more, or a smaller file") from None


def check_archive(members: Sequence[zipfile.ZipInfo]) -> None:
    """Refuse an archive that unpacks to more than memory holds, or to far more than real data would.

    Args:
        members: the archive's table of contents; no member yields more bytes than it declares there.
    """
    unpacked = sum(member.file_size for member in members)
    packed = max(1, sum(member.compress_size for member in members))
    check_memory(unpacked)
    require(
        unpacked <= _SMALL or unpacked <= _MOST_SHRINKING * packed,
        f"it unpacks to {gib(unpacked)}, {unpacked // packed} times its size, as a zip bomb does; if it is your own, "
        "write it again uncompressed (numpy.savez)",
    )


def check_memory(num_bytes: int) -> None:
    """Refuse what needs more memory than there is."""
    free = available_memory()
    require(
        free is None or num_bytes <= free,
        f"it holds {gib(num_bytes)} of data, more than the {gib(free or 0)} of memory that are free",
    )


def available_memory() -> int | None:
    """Bytes of memory free for a new program, in a container as outside, or None where the system does not say."""
    found = [free for free in (_free_memory(), _container_memory()) if free is not None]
    return min(found, default=None)


def _free_memory() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)
    except (OSError, ValueError):
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


def _container_memory() -> int | None:
    """What a limit of the container (Linux, cgroup 2) leaves."""
    try:
        most, used = (int(Path(f"/sys/fs/cgroup/memory.{what}").read_text()) for what in ("max", "current"))
        return max(0, most - used)
    except (OSError, ValueError):
        return None


def gib(num_bytes: int) -> str:
    """A size as people read it.

    >>> gib(5 * 2**30), gib(300 * 2**20), gib(10)
    ('5.0 GiB', '300.0 MiB', '10 bytes')
    """
    for unit, size in (("GiB", 2**30), ("MiB", 2**20)):
        if num_bytes >= size:
            return f"{num_bytes / size:.1f} {unit}"
    return f"{num_bytes} bytes"
