"""Runs in processes: finished once, whatever is killed, with any number of workers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from cvgnn.cli.main import main
from cvgnn.config import GraphSource, TrainConfig
from cvgnn.lab.process_pool import Ended
from cvgnn.lab.sweep import make_jobs, pool
from cvgnn.utils.file_lock import lock_folder

WORDS = [
    "--grid",
    "lr=0.01,0.05",
    "optimizer=adam,sgd",
    "--set",
    "epochs=40",
    "hidden=8",
    "batch_size=20",
    "--runs",
    "2",
]
Captured = pytest.CaptureFixture[str]


def sweep(*words: object) -> int:
    return main(["sweep", *map(str, words)])


def start(*words: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "cvgnn", "sweep", *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)


def table(out: Path) -> list[dict[str, Any]]:
    """The settings of table.json without their seconds."""
    content = json.loads((out / "table.json").read_text(encoding="utf-8"))
    return [{k: v for k, v in s.items() if "seconds" not in k} for s in content["settings"]]


def finished(out: Path) -> dict[str, int]:
    """When each result was written, by run."""
    return {p.parent.name: p.stat().st_mtime_ns for p in out.glob("runs/*/result.json")}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sweep that nobody disturbs, one run at a time."""
    out = tmp_path_factory.mktemp("undisturbed")
    assert sweep(*WORDS, "--workers", "1", "--out", out) == 0
    return out


def test_results_do_not_depend_on_the_number_of_workers(tmp_path: Path, undisturbed: Path, capsys: Captured) -> None:
    assert sweep(*WORDS, "--workers", "3", "--out", tmp_path) == 0
    assert table(tmp_path) == table(undisturbed)
    shown = capsys.readouterr().out
    assert "best of 4 settings for each optimizer, chosen by validation accuracy:" in shown
    assert "8/8  citeseer " in shown

    before = finished(tmp_path)
    assert len(before) == 8
    assert sweep(*WORDS, "--out", tmp_path) == 0
    assert finished(tmp_path) == before  # nothing is run again
    assert "8 of 8 runs were finished before" in capsys.readouterr().out
    assert sweep(*WORDS, "--runs", "3", "--out", tmp_path) == 0
    assert len(finished(tmp_path)) == 12
    assert {name: finished(tmp_path)[name] for name in before} == before


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_sweep_that_is_stopped_ends_with_the_same_table(
    tmp_path: Path, undisturbed: Path, number: signal.Signals
) -> None:
    process = start(*WORDS, "--out", tmp_path)
    while len(finished(tmp_path)) < 3 and process.poll() is None:
        time.sleep(0.01)
    if number == signal.SIGINT:
        os.killpg(process.pid, number)  # as a terminal does
    else:
        process.send_signal(number)
    out, err = process.communicate(timeout=120)
    before = finished(tmp_path)
    assert 3 <= len(before) < 8, (out, err)
    if number == signal.SIGKILL:
        assert process.returncode == -number
    else:
        assert process.returncode == 128 + number
        assert err.decode().endswith("runs left; the same command continues\n")
    assert sweep(*WORDS, "--out", tmp_path) == 0
    after = finished(tmp_path)
    assert {name: after[name] for name in before} == before  # no finished run is repeated
    assert table(tmp_path) == table(undisturbed)


ONE_LONG_RUN = ["--grid", "seed=0", "--set", "epochs=100000", "hidden=8", "batch_size=20", "--workers", "1"]


def training(words: list[str], out: Path) -> tuple[subprocess.Popen[bytes], int]:
    """A sweep whose only run has begun, and the process of that run."""
    process = start(*words, "--out", out)
    while not any(p.read_text(encoding="utf-8") for p in out.glob("runs/*/metrics.jsonl")):
        assert process.poll() is None
        time.sleep(0.01)
    workers = _workers(process.pid)
    if workers is None:
        process.kill()
        pytest.skip("pgrep is not here to find the worker")
    assert len(workers) == 1
    return process, workers[0]


def test_a_killed_worker_is_noticed_and_its_run_tried_again(tmp_path: Path) -> None:
    words = [w.replace("100000", "3000") for w in ONE_LONG_RUN]
    process, worker = training(words, tmp_path)
    os.kill(worker, signal.SIGKILL)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, (out, err)
    assert "its process was killed (SIGKILL); starting it again" in err.decode()
    assert len(finished(tmp_path)) == 1
    (result,) = (json.loads(p.read_text(encoding="utf-8")) for p in tmp_path.glob("runs/*/result.json"))
    assert result["command"].startswith("cvgnn sweep --grid seed=0 --set epochs=3000 ")


def test_no_run_outlives_a_sweep_that_was_killed(tmp_path: Path) -> None:
    process, _ = training(ONE_LONG_RUN, tmp_path)
    process.kill()
    process.communicate(timeout=60)  # what it has started writes to the same pipes, and keeps them open while it lives
    assert _workers(process.pid) == []
    assert list(tmp_path.glob("runs/*/checkpoints/*"))  # its state was saved


def _workers(session: int) -> list[int] | None:
    """The processes of a sweep's session that train; None if they cannot be found."""
    found = subprocess.run(["pgrep", "-s", str(session)], capture_output=True, text=True)
    if found.returncode not in (0, 1):
        return None
    return [int(p) for p in found.stdout.split() if _trains(int(p), session)]


def _trains(process: int, parent: int) -> bool:
    """Whether a process of the session holds a run's log: the worker, not the sweep or its fork server."""
    try:
        links = [os.readlink(p) for p in Path(f"/proc/{process}/fd").iterdir()]
    except OSError:
        return False
    return process != parent and any(link.endswith("log.txt") for link in links)


@pytest.mark.parametrize("content", ["{}", "[]", '{"test_accuracy"', ""])
def test_an_incomplete_result_is_none(tmp_path: Path, content: str) -> None:
    (tmp_path / "result.json").write_text(content, encoding="utf-8")
    assert pool.read_result(tmp_path) is None
    (tmp_path / "result.json").write_text('{"test_accuracy": null}', encoding="utf-8")
    assert pool.read_result(tmp_path) == {"test_accuracy": None}  # of a graph without test nodes


def test_a_failed_run_is_listed_and_does_not_stop_the_rest(tmp_path: Path, capsys: Captured) -> None:
    words = ["--grid", "lr=1e38,0.01", "--set", "epochs=3", "optimizer=sgd", "hidden=8", "--out", tmp_path]
    assert sweep(*words) == 1
    out = capsys.readouterr().out
    assert "lr=1e+38  FAILED: training diverged at step " in out
    assert "1 of 2 runs failed; the reasons are in " in out
    assert len(finished(tmp_path)) == 1
    assert "training diverged" in (tmp_path / "table.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "nothing to sweep over; give --grid, --paper, --file or --runs"),
        (["--grid", "lr=fast"], "lr must be a number above 0, not 'fast' (in the setting lr=fast, seed=0)"),
        (["--set", "lr=1,2", "--runs", "2"], "--set gives one value to lr, not 2; use --grid for several"),
        (["--paper", "imdb"], "unknown paper dataset 'imdb'"),
        (["--file", "no.toml"], "there is no file no.toml"),
        (
            ["--file", "a.toml", "--grid", "lr=1"],
            "--file has all options of a sweep; leave --grid, --set and --paper out",
        ),
        (["--grid", "lr=1", "--runs", "0"], "runs must be a whole number of at least 1, not 0"),
    ],
)
def test_errors_have_one_sentence(tmp_path: Path, capsys: Captured, words: list[str], message: str) -> None:
    assert sweep(*words, "--out", tmp_path / "out") == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"cvgnn: {message}")
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")
def test_a_sweep_continues_without_its_log(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "cvgnn",
        "sweep",
        "--grid",
        "seed=0,1",
        "--set",
        "epochs=2",
        "--out",
        str(tmp_path),
    ]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=full, timeout=120)
    assert done.returncode == 0
    assert len(table(tmp_path)[0]["seeds"]) == 2


def test_a_locked_run_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_LOCK_SECONDS", 0.1)
    (job,) = make_jobs(GraphSource(), [TrainConfig(epochs=1, threads=1)])
    with lock_folder(tmp_path):
        assert pool.train_job(job, tmp_path, None) == "in use"
    assert list(tmp_path.iterdir()) == []  # what is there is not ours
    assert pool.outcome_of(job, tmp_path, Ended("in use", 0), attempt=99) is None
    assert pool.train_job(job, tmp_path, None) == "done"
    done = pool.outcome_of(job, tmp_path, Ended("in use", 0), attempt=99)
    assert done is not None
    assert done.state == "done"
