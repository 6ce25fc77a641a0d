"""What the system says about free memory, on machines of several kinds."""

from __future__ import annotations

import os
import platform
import resource

import pytest

from cvgnn.utils import free_memory
from cvgnn.utils.free_memory import available_memory

GIB = 2**30
needs_linux = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs Linux and its C library")

MEMINFO = ["MemTotal:       16000000 kB", "MemFree:         1000000 kB", "MemAvailable:    8000000 kB"]


class Machine:
    """Files and limits as some machine would show them."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.files: dict[str, list[str]] = {}
        self.limits = {resource.RLIMIT_DATA: resource.RLIM_INFINITY, resource.RLIMIT_AS: resource.RLIM_INFINITY}
        patch.setattr(free_memory, "_lines", lambda path: self.files.get(path, []))
        patch.setattr(os, "sysconf", self.sysconf)
        self.pages: int | None = None
        patch.setattr(resource, "getrlimit", lambda kind: (self.limits[kind], resource.RLIM_INFINITY))

    def sysconf(self, name: str) -> int:
        if self.pages is None:
            raise ValueError("unrecognized configuration name")
        return 4096 if name == "SC_PAGE_SIZE" else self.pages

    def group(self, folder: str, limit: object, usage: object) -> None:
        self.files[f"{folder}/memory.max"] = [str(limit)]
        self.files[f"{folder}/memory.current"] = [str(usage)]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def test_nothing_is_known(machine: Machine) -> None:
    assert available_memory() is None


def test_elsewhere_than_on_linux(machine: Machine) -> None:
    machine.pages = 1000
    assert available_memory() == 4_096_000


def test_the_machine(machine: Machine) -> None:
    machine.files["/proc/meminfo"] = MEMINFO
    assert available_memory() == 8_000_000 * 1024


@pytest.mark.parametrize(
    ("limit", "usage", "expected"),
    [
        (GIB, GIB // 4, GIB * 3 // 4),
        (GIB, 2 * GIB, 0),
        ("max", GIB, 8_000_000 * 1024),
        (100 * GIB, 0, 8_000_000 * 1024),
        ("", "", 8_000_000 * 1024),
        ("-1", "0", 8_000_000 * 1024),
    ],
)
@pytest.mark.parametrize("folder", ["/sys/fs/cgroup", "/sys/fs/cgroup/user.slice/job 7.scope"])
def test_the_control_group(machine: Machine, folder: str, limit: object, usage: object, expected: int) -> None:
    machine.files["/proc/meminfo"] = MEMINFO
    machine.files["/proc/self/cgroup"] = ["1:name=systemd:/x", "0::/user.slice/job 7.scope"]
    machine.group(folder, limit, usage)
    assert available_memory() == expected


def test_the_old_kind_of_control_group(machine: Machine) -> None:
    machine.files["/sys/fs/cgroup/memory/memory.limit_in_bytes"] = ["1000000"]
    machine.files["/sys/fs/cgroup/memory/memory.usage_in_bytes"] = ["400000"]
    assert available_memory() == 600_000
    machine.files["/sys/fs/cgroup/memory/memory.limit_in_bytes"] = ["9223372036854771712"]  # its way to say: none
    machine.files["/proc/meminfo"] = MEMINFO
    assert available_memory() == 8_000_000 * 1024


def test_the_tightest_counts(machine: Machine) -> None:
    machine.files["/proc/meminfo"] = MEMINFO
    machine.files["/proc/self/cgroup"] = ["0::/a"]
    machine.group("/sys/fs/cgroup", 5 * GIB, 0)
    machine.group("/sys/fs/cgroup/a", 3 * GIB, 0)
    assert available_memory() == 3 * GIB
    machine.files["/proc/self/status"] = ["Name:\tpython", f"VmData:\t {GIB // 1024} kB"]
    machine.limits[resource.RLIMIT_DATA] = 2 * GIB
    assert available_memory() == GIB
    machine.limits[resource.RLIMIT_DATA] = GIB // 2  # set after the memory was taken
    assert available_memory() == 0


def test_a_group_around_the_group(machine: Machine) -> None:
    """As systemd nests them: the limit of a slice holds for the services in it."""
    machine.files["/proc/meminfo"] = MEMINFO
    machine.files["/proc/self/cgroup"] = ["0::/jobs.slice/job.scope"]
    machine.group("/sys/fs/cgroup/jobs.slice", GIB, 0)
    machine.group("/sys/fs/cgroup/jobs.slice/job.scope", "max", 0)
    assert available_memory() == GIB


def test_the_file_cache_of_a_group_is_free(machine: Machine) -> None:
    """A container that has read a large store has little else in its memory."""
    machine.group("/sys/fs/cgroup", 4 * GIB, 4 * GIB - 4096)
    machine.files["/sys/fs/cgroup/memory.stat"] = ["anon 1000000", f"inactive_file {3 * GIB}", "active_file 0"]
    found = available_memory()
    assert found is not None
    assert found >= 3 * GIB


def test_a_limit_of_the_address_space(machine: Machine) -> None:
    machine.files["/proc/self/status"] = [f"VmData:\t {GIB // 1024} kB", f"VmSize:\t {GIB // 1024} kB"]
    machine.limits[resource.RLIMIT_AS] = 4 * GIB
    assert available_memory() == 3 * GIB


def test_the_address_space_holds_what_is_mapped(machine: Machine) -> None:
    machine.files["/proc/self/status"] = [f"VmData:\t {GIB // 1024} kB", f"VmSize:\t {3 * GIB // 1024} kB"]
    machine.limits[resource.RLIMIT_AS] = 4 * GIB
    assert available_memory() == GIB


@needs_linux
def test_this_machine() -> None:
    found = available_memory()
    assert found is not None
    assert 0 < found < 2**50
    assert free_memory._lines("/no/such/file") == []
    assert free_memory._lines("/proc/self") == []  # a folder
