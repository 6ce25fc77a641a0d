"""Starts ranks without torchrun: one process that has imported everything forks them, in a tenth of the time.

A line of JSON on stdin, `[ranks, port, log, arguments of cvgnn]`, starts ranks; their process ids are printed, and when
all have ended, their exit codes.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import cvgnn.cli.main
import cvgnn.cli.train_command  # main imports the command that it runs
from cvgnn.utils.process_end import end_process


def main() -> None:
    for line in sys.stdin:
        ranks, port, log, arguments = json.loads(line)
        pids = [_fork(rank, ranks, port, Path(log), arguments) for rank in range(ranks)]
        print(json.dumps(pids), flush=True)
        print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]), flush=True)


def _fork(rank: int, ranks: int, port: int, log: Path, arguments: list[str]) -> int:
    pid = os.fork()
    if pid:
        return pid
    stream = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(stream, 1)
    os.dup2(stream, 2)
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return end_process(cvgnn.cli.main.main(arguments))


if __name__ == "__main__":
    main()
