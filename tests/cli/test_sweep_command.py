"""`cvgnn sweep`: the runs of a command, and their progress. Nothing is trained here."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import rich.console

from cvgnn.cli import runs_progress
from cvgnn.cli.main import main
from cvgnn.config import GraphSource, TrainConfig
from cvgnn.errors import CvgnnError
from cvgnn.lab.sweep import Job, Outcome

Captured = pytest.CaptureFixture[str]
Asked = Callable[..., tuple[list[Job], int]]


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asked:
    """The runs, and how many of them at a time, that a command asks for."""
    monkeypatch.setattr(runs_progress, "cores", lambda: 4)

    def ask(*words: str) -> tuple[list[Job], int]:
        def run_all(jobs: Sequence[Job], out: Path, *, workers: int, **rest: Any) -> None:
            found.append((list(jobs), workers))
            raise CvgnnError("seen")

        found: list[tuple[list[Job], int]] = []
        monkeypatch.setattr("cvgnn.lab.sweep.run_all", run_all)
        assert main([*words, "--out", str(tmp_path / "out")]) == 2
        return found[0]

    return ask


def seeds(found: tuple[list[Job], int]) -> list[int]:
    return sorted({job.config.seed for job in found[0]})


def test_seeds(asked: Asked) -> None:
    assert seeds(asked("sweep", "--paper", "citeseer")) == [0, 1, 2]
    assert seeds(asked("sweep", "--paper", "citeseer", "--runs", "1")) == [0]
    assert seeds(asked("sweep", "--paper", "citeseer", "--set", "seed=7")) == [7]
    assert seeds(asked("sweep", "--grid", "lr=0.1", "--set", "seed=7")) == [7]
    assert seeds(asked("sweep", "--grid", "seed=3,5")) == [3, 5]
    assert seeds(asked("sweep", "--runs", "2")) == [0, 1]
    assert seeds(asked("sweep", "--seeds", "2")) == [0, 1]  # the old name


def test_as_many_workers_as_cores_for_the_most_threads(asked: Asked, tmp_path: Path) -> None:
    assert asked("sweep", "--runs", "2")[1] == 4
    assert asked("sweep", "--runs", "2", "--set", "threads=2")[1] == 2
    assert asked("sweep", "--grid", "threads=1,3")[1] == 1
    assert asked("sweep", "--grid", "threads=1,3", "--workers", "5")[1] == 5
    (tmp_path / "a.toml").write_text("[base]\nthreads = 4\n", encoding="utf-8")
    assert asked("sweep", "--file", str(tmp_path / "a.toml"))[1] == 1
    assert asked("reproduce", "--optimizer", "sgd", "--threads", "2")[1] == 2


def test_reproduce_runs_as_often_as_the_paper(asked: Asked) -> None:
    assert seeds(asked("reproduce", "--optimizer", "sgd")) == [0, 1, 2]
    assert seeds(asked("reproduce", "--optimizer", "sgd", "--runs", "1", "--first", "4")) == [4]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--grid", "seed=1,2", "--runs", "2"], "seed and --runs are both given; leave one of them out"),
        (["--set", "seed=1", "--runs", "2"], "seed and --runs are both given; leave one of them out"),
        (["--grid", "lr=1,2", "--set", "lr=3"], "lr is in --set and in --grid; leave one of them out"),
        (["--paper", "cora", "--dataset", "pubmed"], "--paper names the data set; leave --dataset out"),
        (["--runs", "2", "--set", "threads=2", "--threads", "1"], "threads is an option of the runs and --threads is"),
        (["--runs", "2", "--seeds", "3"], "--runs and --seeds are two names of the same option; leave one of them out"),
        (["--runs", "2", "--workers", "0"], "workers must be a whole number of at least 1, not 0"),
    ],
)
def test_errors_have_one_sentence(tmp_path: Path, capsys: Captured, words: list[str], message: str) -> None:
    assert main(["sweep", *words, "--out", str(tmp_path / "out")]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"cvgnn: {message}")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("words", [["reproduce"], ["sweep", "--runs", "2"]])
def test_an_unusable_folder_is_refused_before_anything_runs(tmp_path: Path, capsys: Captured, words: list[str]) -> None:
    (tmp_path / "file").touch()
    assert main([*words, "--out", str(tmp_path / "file")]) == 2
    message = f"cvgnn: cannot use {tmp_path / 'file'} as output folder: Not a directory; choose another --out\n"
    assert capsys.readouterr() == ("", message)


def outcomes(count: int) -> list[Outcome]:
    job = Job(GraphSource(), TrainConfig(), "name", "label")
    return [Outcome(job, "done", {"val_accuracy": 0.5, "test_accuracy": 0.5}, None)] * count


def test_a_table_that_is_higher_than_the_terminal_shows_where_a_run_ended() -> None:
    def shown() -> list[str]:
        console = rich.console.Console(file=io.StringIO(), width=40, height=12)
        with console.capture() as captured:
            console.print(table)
        assert len(captured.get().splitlines()) <= 11  # and the bar
        return [line.split()[1] for line in captured.get().splitlines() if line.startswith("│")]

    def rows(ended: Sequence[Outcome]) -> list[list[str]]:
        return [[f"row{i}", str(i < len(ended))] for i in range(20)]

    table = runs_progress.LiveTable(["name", "done"], rows)
    assert shown() == [f"row{i}" for i in range(6)]
    table.outcomes += outcomes(11)
    assert shown() == [f"row{i}" for i in range(7, 13)]
    table.outcomes += outcomes(9)
    assert shown() == [f"row{i}" for i in range(14, 20)]


def test_a_live_table_on_a_terminal_and_lines_in_a_pipe(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    def run() -> str:
        table = runs_progress.LiveTable(["dataset", "runs"], lambda ended: [["cora", f"{len(ended)}/2"]])
        with runs_progress.RunsProgress(2, "runs", table=table) as view:
            for each in outcomes(2):
                view.show(each)
        return capsys.readouterr().out

    plain = run()
    assert plain.splitlines()[1] == "2/2  label  val 50.00%  test 50.00%  (0:00:00 left)"
    assert "dataset" not in plain
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    live = run()
    assert "│ cora    │ 2/2  │" in live
    assert "2/2" in live.split("┘")[-1]
    assert "0:00:00 left" in live
    assert live.endswith("\x1b[2K") or live.rstrip().endswith("\x1b[2K")  # it is wiped away
