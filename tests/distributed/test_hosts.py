"""Two hosts: ranks in two network namespaces that a slow link joins. All traffic stays inside these namespaces."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.distributed.forked_ranks import Starter
from tests.distributed.test_sharded_run import SMALL, result, wait_for
from tests.distributed.test_sharded_run import folder as folder  # a fixture

NAMES = [f"cvgnn-{os.getpid()}-{end}" for end in "ab"]


@pytest.fixture
def hosts() -> Iterator[list[str]]:
    """Two namespaces, each with one end of a link of 100 Mbit/s and, where the kernel has netem, 2 ms of delay."""
    if shutil.which("ip") is None or shutil.which("tc") is None:
        pytest.skip("ip and tc are not installed (iproute2)")
    if (refused := run("ip", "netns", "add", NAMES[0])) is not None:
        pytest.skip(f"network namespaces are not allowed here: {refused}")
    with ExitStack() as cleanup:
        cleanup.callback(run, "ip", "netns", "del", NAMES[0])
        assert run("ip", "netns", "add", NAMES[1]) is None
        cleanup.callback(run, "ip", "netns", "del", NAMES[1])
        pair = ["type", "veth", "peer", "name", "veth0", "netns", NAMES[1]]
        if (refused := run("ip", "link", "add", "veth0", "netns", NAMES[0], *pair)) is not None:
            pytest.skip(f"the kernel has no veth: {refused}")
        for i, name in enumerate(NAMES):
            inside = ("ip", "-n", name)
            for arguments in (["addr", "add", f"10.77.0.{i + 1}/24", "dev", "veth0"], ["link", "set", "veth0", "up"]):
                assert run(*inside, *arguments) is None
            assert run(*inside, "link", "set", "lo", "up") is None
            slow = ["tc", "-n", name, "qdisc", "add", "dev", "veth0", "root"]
            if run(*slow, "netem", "delay", "2ms", "rate", "100mbit") is not None:
                print("the kernel has no netem: 100 Mbit/s without delay")
                if (refused := run(*slow, "tbf", "rate", "100mbit", "burst", "64kb", "latency", "400ms")) is not None:
                    pytest.skip(f"the kernel shapes no traffic: {refused}")
        yield NAMES


def run(*command: str) -> str | None:
    """None, or what went wrong."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else done.stderr.strip()


def start(forked: Starter, hosts: list[str], log: Path, *arguments: object) -> None:
    """One rank on each host."""
    words = ["train", "--quiet", *arguments]
    forked.start([words] * len(hosts), log, port=29500, address="10.77.0.1", hosts=hosts)


@pytest.mark.slow
def test_two_hosts_end_with_the_bits_of_one_process(
    hosts: list[str], forked: Starter, folder: Path, tmp_path: Path
) -> None:
    start(forked, hosts, tmp_path / "log", "--graph", folder / "p", "--out", tmp_path / "r", "--epochs", 4, *SMALL)
    assert forked.wait() == [0, 0], (tmp_path / "log").read_text()
    assert result(tmp_path / "r") == result(folder / "whole")


@pytest.mark.slow
def test_a_cut_link_ends_both_ranks_within_the_timeout(
    hosts: list[str], forked: Starter, folder: Path, tmp_path: Path
) -> None:
    limit = 6
    words = ["--graph", folder / "p", "--out", tmp_path / "r", "--epochs", 9999, *SMALL, "--timeout", limit]
    start(forked, hosts, tmp_path / "log", *words)
    wait_for(lambda: (tmp_path / "r" / "checkpoints" / "000002").exists(), 300)
    assert run("ip", "-n", hosts[0], "link", "set", "veth0", "down") is None
    cut = time.monotonic()
    codes = forked.wait()
    seconds = time.monotonic() - cut
    said = (tmp_path / "log").read_text()
    print(f"both ranks ended {seconds:.1f} s after the cut, with a time-out of {limit} s")
    assert codes == [2, 2], said
    for number in range(2):
        named = f"rank {number} on {os.uname().nodename} lost rank {1 - number} on {os.uname().nodename}"
        assert named in said
    assert said.count("continue the run from its last checkpoint with --resume") == 2
    assert seconds < 3 * limit  # one time-out for the message, and time for a busy machine
    checkpoints = (tmp_path / "r" / "checkpoints").glob("[0-9]*")
    assert all((checkpoint / "checkpoint.json").exists() for checkpoint in checkpoints)  # complete or absent
