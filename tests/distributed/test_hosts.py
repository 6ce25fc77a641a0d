"""Two hosts: ranks in two network namespaces that a slow link joins. All traffic stays inside these namespaces."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.distributed.test_same_bits import ENVIRONMENT
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


def start(hosts: list[str], *arguments: object) -> list[subprocess.Popen[str]]:
    """One rank on each host."""
    environment = {
        **ENVIRONMENT, "WORLD_SIZE": "2", "MASTER_ADDR": "10.77.0.1", "MASTER_PORT": "29500", "GLOO_SOCKET_IFNAME": "veth0"
    }  # fmt: skip
    command = [sys.executable, "-m", "cvgnn", "train", "--quiet", *map(str, arguments)]
    return [
        subprocess.Popen(
            ["ip", "netns", "exec", name, *command],
            env={**environment, "RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, name in enumerate(hosts)
    ]


@pytest.mark.slow
def test_two_hosts_end_with_the_bits_of_one_process(hosts: list[str], folder: Path, tmp_path: Path) -> None:
    ranks = start(hosts, "--graph", folder / "p", "--out", tmp_path / "r", "--epochs", 4, *SMALL)
    errors = [rank.communicate(timeout=500)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], errors
    assert result(tmp_path / "r") == result(folder / "whole")


@pytest.mark.slow
def test_a_cut_link_ends_both_ranks_within_the_timeout(hosts: list[str], folder: Path, tmp_path: Path) -> None:
    limit = 12
    ranks = start(
        hosts, "--graph", folder / "p", "--out", tmp_path / "r", "--epochs", 9999, *SMALL, "--timeout", limit
    )  # fmt: skip
    try:
        wait_for(lambda: (tmp_path / "r" / "checkpoints" / "000002").exists(), 300)
        assert run("ip", "-n", hosts[0], "link", "set", "veth0", "down") is None
        cut = time.monotonic()
        errors = [rank.communicate(timeout=300)[1] for rank in ranks]
        seconds = time.monotonic() - cut
    finally:
        for rank in ranks:
            rank.kill()
    print(f"both ranks ended {seconds:.1f} s after the cut, with a time-out of {limit} s")
    for number, (rank, error) in enumerate(zip(ranks, errors, strict=True)):
        assert rank.returncode not in (0, -signal.SIGKILL)
        assert f"rank {number} on {os.uname().nodename} lost " in error
        assert "continue the run from its last checkpoint with --resume" in error
    assert seconds < 3 * limit  # one time-out for the message, one for the store, and time for a busy machine
    checkpoints = tmp_path / "r" / "checkpoints"
    assert all((checkpoint / "checkpoint.json").exists() for checkpoint in checkpoints.iterdir())  # complete or absent
