"""Memory that this process can still allocate, given the machine, its control groups and its resource limits."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


def available_memory() -> int | None:
    """Bytes that can still be allocated under the tightest limit; None if the system does not report any."""
    return min([*_machine_memory(), *_cgroup_memory(), *_rlimit_memory()], default=None)


def _machine_memory() -> list[int]:
    # MemAvailable, not MemFree: the kernel gives back its file cache when a program asks for memory.
    available = [line for line in _lines("/proc/meminfo") if line.startswith("MemAvailable:")]
    if available:
        return [int(available[0].split()[1]) * 1024]
    total = total_memory()
    return [] if total is None else [total]  # not Linux: the total is an upper bound


def total_memory() -> int | None:
    """Bytes of memory of the machine; None where the system does not report them."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


def _cgroup_memory() -> list[int]:
    """Free bytes of each control group around this process (a container, a batch job); every limit applies."""
    # The line of cgroup 2 names the group; folders above the root of the groups have no such files.
    name = next((line[3:].strip() for line in _lines("/proc/self/cgroup") if line.startswith("0::")), "")
    own, v1 = _CGROUP / name.lstrip("/"), _CGROUP / "memory"
    pairs = [(folder / "memory.max", folder / "memory.current") for folder in (own, *own.parents)]
    pairs.append((v1 / "memory.limit_in_bytes", v1 / "memory.usage_in_bytes"))
    free = []
    for files in pairs:
        limit, usage = (next(iter(_lines(str(file))), "").strip() for file in files)
        if limit.isdigit() and usage.isdigit():  # "max": no limit
            free.append(max(0, int(limit) - int(usage) + _file_cache(files[0].parent)))
    return free


def _file_cache(group: Path) -> int:
    """Bytes of the file cache of a group: counted as used, but given back when memory is needed."""
    stat = dict(line.split(" ", 1) for line in _lines(str(group / "memory.stat")) if " " in line)
    prefix = "total_" if "total_inactive_file" in stat else ""  # cgroup 1: the sums over subgroups
    texts = [stat.get(f"{prefix}{kind}_file", "").strip() for kind in ("active", "inactive")]
    return sum(int(text) for text in texts if text.isdigit())


def _rlimit_memory() -> list[int]:
    try:
        import resource
    except ImportError:  # Windows
        return []
    status = dict(line.split(":", 1) for line in _lines("/proc/self/status") if ":" in line)
    free = []
    for kind, name in ((resource.RLIMIT_DATA, "VmData"), (resource.RLIMIT_AS, "VmSize")):
        limit = resource.getrlimit(kind)[0]
        if 0 <= limit < sys.maxsize:  # no limit is -1, or the largest number
            free.append(max(0, limit - int(status.get(name, "0 kB").split()[0]) * 1024))
    return free


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
