"""Starts ranks without torchrun: one process that has imported everything forks them, in a tenth of the time.

A line of JSON on stdin, `[port, log, address, arguments of cvgnn for each rank, network namespace of each]`, starts
ranks; their process ids are printed, and when all have ended, their exit codes.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import cvgnn.cli.main
import cvgnn.cli.predict_command  # main imports the command that it runs
import cvgnn.cli.train_command
from cvgnn.utils.process_end import end_process

_NEW_NETWORK = 0x40000000  # CLONE_NEWNET


class Starter:
    """The process that forks the ranks, seen from the tests.

    Args:
        process: this module's.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process, self._running = process, list[int]()

    def start(self, arguments: Sequence[Sequence[object]], log: Path, **how: Any) -> list[int]:
        """Start a rank for each list of arguments; returns their process ids.

        Args:
            arguments: of cvgnn.
            log: what the ranks print.
            how: `port`, `address` of rank 0, and `hosts`, a network namespace for each rank.
        """
        words = [[str(word) for word in each] for each in arguments]
        assert self._process.stdin is not None
        where = [how.get("port", 0) or free_port(), str(log), how.get("address", "127.0.0.1")]
        self._process.stdin.write(json.dumps([*where, words, how.get("hosts") or [None] * len(words)]) + "\n")
        self._process.stdin.flush()
        self._running = self._answer()
        return self._running

    def wait(self) -> list[int]:
        """The exit codes, when all ranks have ended."""
        codes, self._running = self._answer(), []
        return codes

    def end(self) -> None:
        """Kill the ranks that a failed test has left."""
        for pid in self._running:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self._running:
            self.wait()

    def _answer(self) -> list[int]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the process that starts the ranks has ended"
        numbers: list[int] = json.loads(line)
        return numbers


@contextmanager
def starter(environment: dict[str, str]) -> Iterator[Starter]:
    """A `Starter` with its process."""
    command = [sys.executable, "-m", "tests.distributed.forked_ranks"]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )  # fmt: skip
    try:
        yield Starter(process)
    finally:
        process.kill()
        process.communicate()


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def main() -> None:
    for line in sys.stdin:
        port, log, address, arguments, hosts = json.loads(line)
        meet = {"WORLD_SIZE": str(len(arguments)), "MASTER_ADDR": address, "MASTER_PORT": str(port)}
        pids = [
            _fork({**meet, "RANK": str(rank)}, host, Path(log), words)
            for rank, (words, host) in enumerate(zip(arguments, hosts, strict=True))
        ]
        print(json.dumps(pids), flush=True)
        print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]), flush=True)


def _fork(environment: dict[str, str], host: str | None, log: Path, arguments: list[str]) -> int:
    pid = os.fork()
    if pid:
        return pid
    stream = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(stream, 1)
    os.dup2(stream, 2)
    os.environ |= environment
    if host is not None:
        namespace = os.open(f"/var/run/netns/{host}", os.O_RDONLY)
        assert ctypes.CDLL(None, use_errno=True).setns(namespace, _NEW_NETWORK) == 0, os.strerror(ctypes.get_errno())
        os.environ["GLOO_SOCKET_IFNAME"] = "veth0"
    return end_process(cvgnn.cli.main.main(arguments))


if __name__ == "__main__":
    main()
