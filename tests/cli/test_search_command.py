"""`cvgnn search`: real runs, a search that is killed and continued, and errors in the input."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cvgnn.cli.main import main
from cvgnn.lab.sweep.jobs import Job

SPACE = ["--space", "lr=0.001..0.1:log", "hidden=8..32:log", "optimizer=adam,amsgrad"]
BASE = ["--set", "epochs=3", "batch_size=20", "--sampler-seed", "3", "--workers", "1"]
WORDS = [*SPACE, *BASE, "--trials", "2", "--runs", "2"]
Captured = pytest.CaptureFixture[str]


def search(*words: object) -> int:
    return main(["search", *map(str, words)])


def found(out: Path) -> dict[str, Any]:
    content = (out / "search.json").read_text(encoding="utf-8")
    value: dict[str, Any] = json.loads(content, parse_constant=pytest.fail)
    return value


def trials(out: Path) -> list[tuple[Any, ...]]:
    """Settings and accuracies, without what was interrupted and without seconds."""
    keys = ("seed", "run", "val_accuracy", "test_accuracy")
    ended = [trial for trial in found(out)["trials"] if trial["state"] != "interrupted"]
    return [(trial["options"], [[run[key] for key in keys] for run in trial["runs"]]) for trial in ended]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The search that nobody disturbs."""
    pytest.importorskip("optuna", reason="needs Optuna: pip install 'cvgnn[search]'")
    out = tmp_path_factory.mktemp("undisturbed")
    assert search(*WORDS, "--out", out) == 0
    return out


def test_what_a_search_leaves(undisturbed: Path, tmp_path: Path, capsys: Captured) -> None:
    names = ["best.toml", "journal.log", "runs", "search.json", "searching"]
    assert sorted(path.name for path in undisturbed.iterdir()) == names
    content = found(undisturbed)
    means = [trial["val_accuracy_mean"] for trial in content["trials"]]
    assert content["best"]["val_accuracy_mean"] == max(means)
    assert content["best"] == content["trials"][means.index(max(means))]
    runs = {run["run"] for trial in content["trials"] for run in trial["runs"]}
    assert {path.name for path in (undisturbed / "runs").iterdir()} == runs
    assert len(runs) == 4

    assert main(["train", "--settings", str(undisturbed / "best.toml"), "--out", str(tmp_path / "again")]) == 0
    result = json.loads((tmp_path / "again" / "result.json").read_text(encoding="utf-8"))
    first = content["best"]["runs"][0]
    assert (result["val_accuracy"], result["test_accuracy"]) == (first["val_accuracy"], first["test_accuracy"])
    assert main(["report", str(undisturbed), "--out", str(tmp_path / "report.html")]) == 0
    assert "4 runs of 2 settings on citeseer" in capsys.readouterr().out


def test_a_search_continues_and_repeats_nothing(undisturbed: Path, capsys: Captured) -> None:
    before = {path: path.stat().st_mtime_ns for path in undisturbed.glob("runs/*/result.json")}
    then = trials(undisturbed)
    assert search(*WORDS, "--out", undisturbed) == 0
    out = capsys.readouterr().out
    assert "the study has 2 of 2 trials  (best: trial " in out
    assert "best of 2 trials (mean ± standard deviation over seeds, in %; chosen by validation accuracy, test" in out
    assert out.endswith(f"written to {undisturbed}: search.json, best.toml\n")
    assert trials(undisturbed) == then
    assert search(*WORDS, "--trials", "3", "--out", undisturbed) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "\n3/3  trial 2  lr=" in out
    assert trials(undisturbed)[:2] == then
    assert len(trials(undisturbed)) == 3
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert search(*WORDS, "--runs", "3", "--out", undisturbed) == 2
    assert "journal.log is another search: runs was 2 and is 3. Use the same options" in capsys.readouterr().err


def test_a_search_that_is_killed_ends_as_if_it_had_not_been(
    tmp_path: Path, undisturbed: Path, capsys: Captured
) -> None:
    command = [sys.executable, "-m", "cvgnn", "search", *WORDS, "--out", str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not any(tmp_path.glob("runs/*/result.json")) and process.poll() is None:
        time.sleep(0.01)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert len(list((tmp_path / "searching").iterdir())) == 1
    capsys.readouterr()
    assert search(*WORDS, "--out", tmp_path) == 0
    assert "continuing 1 trials of a search in this folder that was killed" in capsys.readouterr().err
    assert trials(tmp_path) == trials(undisturbed)[:2]
    assert list((tmp_path / "searching").iterdir()) == []


def test_a_search_that_is_stopped_gives_its_trials_back(
    undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """Ctrl-C reaches the pool, whose own tests send it; this is what follows."""
    shutil.copytree(undisturbed, tmp_path / "out")

    def stopped(next_job: Callable[[], Job | None], out: Path, **options: object) -> int:
        assert next_job() is not None
        return signal.SIGINT

    monkeypatch.setattr("cvgnn.lab.search.search_loop.run_each", stopped)
    assert search(*WORDS, "--trials", "9", "--out", tmp_path / "out") == 130
    shown = capsys.readouterr()
    assert shown.err.endswith(" of 9 trials left; the same command continues\n")
    assert shown.out.endswith(": search.json, best.toml\n")  # the best so far
    assert [trial["state"] for trial in found(tmp_path / "out")["trials"]][-2:] == ["interrupted", "waiting"]
    assert list((tmp_path / "out" / "searching").iterdir()) == []


def test_a_trial_that_fails_does_not_stop_the_rest(tmp_path: Path, capsys: Captured) -> None:
    pytest.importorskip("optuna", reason="needs Optuna: pip install 'cvgnn[search]'")
    words = ["--space", "lr=0.01,1e38", *BASE, "--sampler-seed", "12", "--out", tmp_path]
    assert search(*words, "--trials", "1") == 1  # there is no best yet
    assert not (tmp_path / "best.toml").exists()
    assert search(*words, "--trials", "2") == 0
    out = capsys.readouterr().out
    assert "1/1  trial 0  lr=1e+38  FAILED: seed 0: training diverged at step " in out
    assert f"1 of 2 trials failed; the reasons are in {tmp_path / 'search.json'}" in out
    failed, done = found(tmp_path)["trials"]
    assert failed["reason"].startswith("seed 0: training diverged")
    assert found(tmp_path)["best"] == done


def test_a_file_is_the_same_as_options(undisturbed: Path, tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "search.toml"
    file.write_text(
        '[base]\ndataset = "citeseer"\nepochs = 3\nbatch_size = 20\n[space]\nlr = "0.001..0.1:log"\n'
        'hidden = "8..32:log"\noptimizer = ["adam", "amsgrad"]\n',
        encoding="utf-8",
    )
    assert search("--file", file, "--runs", "2", "--trials", "2", "--out", undisturbed) == 0
    assert search("--file", file, "--set", "epochs=3", "--out", undisturbed) == 2
    assert capsys.readouterr().err == "cvgnn: --file has all options of a search; leave --space and --set out\n"


def test_a_password_is_not_written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    pytest.importorskip("optuna", reason="needs Optuna: pip install 'cvgnn[search]'")
    monkeypatch.setattr("cvgnn.lab.search.search_loop.run_each", lambda *args, **options: None)
    url = f"sqlite:///{tmp_path / 's.db'}?timeout=54321"  # what stands there in other URLs is secret
    assert search(*WORDS, f"--storage={url}", "--out", tmp_path / "out") == 1
    written = (tmp_path / "out" / "search.json").read_text(encoding="utf-8")
    assert "54321" not in written + "".join(capsys.readouterr())
    assert found(tmp_path / "out")["storage"] == f"sqlite:///{tmp_path / 's.db'}"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "nothing to search over; give --space or --file"),
        (["--space", "lr=1..0.1"], "the range lr=1..0.1 must go up"),
        (["--space", "lrr=0.1..1"], "unknown field 'lrr'; known: estimator"),
        (
            ["--space", "lr=0.1..1", "--set", "epochs=1,2"],
            "--set gives one value to epochs, not 2; use --space for several",
        ),
        (["--space", "lr=0.1..1", "--trials", "0"], "trials must be a whole number of at least 1, not 0"),
        (["--space", "lr=0.1..1", "--runs", "two"], "runs must be a whole number of at least 1, not 'two'"),
        (["--space", "lr=0.1..1", "--workers", "0"], "workers must be a whole number of at least 1, not 0"),
        (["--space", "lr=0.1..1", "--sampler-seed", "-1"], "sampler_seed must be a whole number of at least 0, not -1"),
        (["--space", "lr=0.1..1", "--study", ""], "--study needs a name, such as --study mine"),
        (["--space", "lr=0.1..1", "--storage", "nosuch://x"], "cannot use nosuch://x for the study: Can't load plugin"),
        (["--file", "no.toml"], "there is no file no.toml"),
    ],
)
def test_errors_have_one_sentence(tmp_path: Path, capsys: Captured, words: list[str], message: str) -> None:
    pytest.importorskip("optuna", reason="needs Optuna: pip install 'cvgnn[search]'")
    assert search(*words, "--out", tmp_path / "out") == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"cvgnn: {message}")
    assert err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_without_optuna(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Captured) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert search(*WORDS, "--out", tmp_path / "out") == 2
    assert capsys.readouterr().err == "cvgnn: cvgnn search needs the package optuna: pip install 'cvgnn[search]'\n"
    assert not (tmp_path / "out").exists()
