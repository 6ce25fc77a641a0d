"""The process of one run of a sweep. It is forked from a server that has imported everything, so it starts at once."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import threading
import time
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from cvgnn import disk
from cvgnn.config import CheckpointPlan, GraphSource, make_config
from cvgnn.errors import CvgnnError, Stopped
from cvgnn.experiments.folder import RunFolder
from cvgnn.experiments.run import check
from cvgnn.experiments.session import train_in
from cvgnn.experiments.source import load_source
from cvgnn.locking import FolderInUse

FAILURE = "failure.json"
FAILED, STOPPED, IN_USE = 3, 4, 5
_WAIT_SECONDS = 30.0


def work(job: str, path: str, command: str | None) -> None:
    """Train a job in its folder, going on where an earlier process stopped. Ends the process; the exit code tells how.

    Args:
        job: as `Job.to_json` gave it.
        path: of the run's folder.
        command: that asked for the run, for the record.

    If the process of the sweep dies, however it does, this one saves its state and stops.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole group; the sweep tells its runs itself
    _stop_with_parent()
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "log.txt").open("a", encoding="utf-8", buffering=1) as log:
        sys.stdout = sys.stderr = log
        sys.exit(_train(json.loads(job), folder, command))


def _train(job: dict[str, dict[str, Any]], path: Path, command: str | None) -> int:
    options: dict[str, Any] = {
        name: Path(v) if name in ("root", "graph") and v else v for name, v in job["source"].items()
    }
    try:
        source, config = GraphSource(**options), make_config(**job["config"])
        graph = load_source(source)
        check(graph, config, memory=True)
        folder = RunFolder(path, resume=True)
        deadline = time.monotonic() + _WAIT_SECONDS
        while True:
            try:
                with folder.opened():
                    plan = CheckpointPlan(checkpoint_minutes=2.0)
                    train_in(folder, graph, source, config, plan=plan, command=command)
                    (path / FAILURE).unlink(missing_ok=True)
                return 0
            except FolderInUse:  # the process of a sweep that was killed a moment ago may still be saving its state
                if time.monotonic() > deadline:
                    return IN_USE
                time.sleep(0.2)
    except Stopped:
        return STOPPED
    except CvgnnError as error:
        disk.write_file(path / FAILURE, (json.dumps({"reason": str(error)}) + "\n").encode())
        return FAILED


def _stop_with_parent() -> None:
    """Send this process SIGTERM when the one that started it ends.

    Linux's PR_SET_PDEATHSIG would not do: this process is the child of a fork server, which lives on until it has none.
    """
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_watch, args=(parent.sentinel,), daemon=True).start()


def _watch(sentinel: int) -> None:
    wait([sentinel])
    os.kill(os.getpid(), signal.SIGTERM)
