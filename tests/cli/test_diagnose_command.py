"""`cvgnn diagnose`: the frame of its subcommands, and `estimator` and `history` from the shell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cvgnn.cli.main import main
from tests.lab.report.folders import write_diagnosis

Captured = pytest.CaptureFixture[str]
SMALL = ["--hidden", "4", "--batch-size", "10"]
QUICK = [*SMALL, "--steps", "2", "--resamples", "3", "--draws", "2", "--test-draws", "10"]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A small graph of the user's."""
    rng = np.random.default_rng(0)
    file = tmp_path_factory.mktemp("graph") / "mine.npz"
    edges = rng.integers(0, 60, size=(2, 200))
    np.savez(file, edges=edges[:, edges[0] != edges[1]].T, x=rng.normal(size=(60, 5)), y=rng.integers(0, 3, size=60))
    return str(file)


def run(*words: object) -> int:
    return main(["diagnose", *map(str, words)])


def test_help(capsys: Captured) -> None:
    for words in ([], ["--help"], ["help"]):
        assert run(*words) == 0
        out = capsys.readouterr().out
        for name in ("estimator", "history", "bias-vs-lr", "rate", "bound"):
            assert f"\n  {name} " in out
    with pytest.raises(SystemExit) as ended:
        run("estimator", "--help")
    assert ended.value.code == 0
    out = capsys.readouterr().out
    for option in ("--dataset", "--graph", "--run", "--seed", "--out", "--estimators", "--num-neighbors", "--fan-outs"):
        assert option in out


def test_estimator(graph: str, tmp_path: Path, capsys: Captured) -> None:
    words = ["estimator", "--graph", graph, *QUICK, "--estimators", "cv", "ns", "--num-neighbors", "2", "--seed", "3"]
    assert run(*words, "--out", tmp_path / "d") == 0
    out, err = capsys.readouterr()
    assert [line for line in err.splitlines() if not line.endswith("% done")] == []  # a busy machine shows progress
    assert "cv 2" in out
    assert f"written to {tmp_path / 'd' / 'diagnosis.json'} in" in out
    stored = json.loads((tmp_path / "d" / "diagnosis.json").read_text(encoding="utf-8"))
    assert (stored["kind"], stored["dataset"], stored["settings"]["seed"]) == ("estimator", "mine", 3)
    assert stored["origin"]["command"].startswith("cvgnn diagnose estimator --graph ")
    assert {"processor", "torch", "cvgnn"} <= stored["origin"]["machine"].keys()
    assert stored["origin"]["seconds"] > 0
    assert out.startswith(stored["verdict"])
    assert run(*words, "--out", tmp_path / "d") == 0  # an earlier one of the same kind is replaced
    again = json.loads((tmp_path / "d" / "diagnosis.json").read_text(encoding="utf-8"))
    assert again["data"] == stored["data"]
    assert main(["report", str(tmp_path / "d"), "--out", str(tmp_path / "report.html")]) == 0


def test_history_without_a_folder(graph: str, capsys: Captured) -> None:
    assert run("history", "--graph", graph, *SMALL, "--steps", "1", "3") == 0
    assert "After step 3, the history of layer 1 is off by" in capsys.readouterr().out


def test_steps_are_never_left_out(graph: str, capsys: Captured) -> None:
    for words in (["history", *SMALL, "--steps", "1"], ["estimator", *QUICK]):
        assert run(*words, "--graph", graph, "--bad-step", "skip") == 0
        assert "cvgnn: ignored, because it has no effect on this measurement: --bad-step\n" in capsys.readouterr().err


def test_a_runs_folder(graph: str, tmp_path: Path, capsys: Captured) -> None:
    a = str(tmp_path / "a")
    assert main(["train", "--graph", graph, *SMALL, "--epochs", "3", "--out", a, "--output", "last"]) == 0
    steps = json.loads((tmp_path / "a" / "result.json").read_text(encoding="utf-8"))["iterations"]
    capsys.readouterr()
    before = sorted((path, path.stat().st_mtime_ns) for path in (tmp_path / "a").rglob("*"))
    assert run("history", "--run", a) == 0
    assert f"After step {steps}, the history" in capsys.readouterr().out
    assert run("history", "--run", a, "--steps", "0", "2") == 0
    assert f"After step {steps + 2}, the history" in capsys.readouterr().out
    words = ["--resamples", "3", "--draws", "2", "--test-draws", "10", "--fan-outs", "1", "3", "--schemes", "paper"]
    assert run("estimator", "--run", a, *words, "--graph", graph) == 0
    out = capsys.readouterr().out
    assert f"After step {steps}, " in out
    assert "cv 3 (paper)" in out
    assert sorted((path, path.stat().st_mtime_ns) for path in (tmp_path / "a").rglob("*")) == before  # only read
    assert run("history", a) == 0  # the folder alone
    assert f"After step {steps}, the history" in capsys.readouterr().out
    for name in ("--hidden", "--batch-size", "--num-neighbors", "--weight-decay", "--seed"):
        assert run("history", "--run", a, name, "7") == 2
        assert f"{name} was " in capsys.readouterr().err
    for name in ("--epochs", "--weight-decay"):
        assert run("estimator", "--run", a, name, "7") == 2
        assert f"{name} was " in capsys.readouterr().err


def test_a_run_without_histories(graph: str, tmp_path: Path, capsys: Captured) -> None:
    a = str(tmp_path / "a")
    assert main(["train", "--graph", graph, *SMALL, "--epochs", "1", "--estimator", "ns", "--out", a]) == 0
    capsys.readouterr()
    assert run("estimator", "--run", a, "--resamples", "3") == 2
    assert "train with --estimator cv, or measure --estimators ns exact" in capsys.readouterr().err
    assert run("estimator", "--run", a, "--estimators", "ns", "--resamples", "3", "--test-draws", "10") == 0
    assert run("history", "--run", a) == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["rates"], "unknown diagnosis 'rates'; known: estimator, history, bias-vs-lr, rate, bound (did you mean 'rate'?)"),
        (["estimator", "--fan-outs", "two"], "--fan-outs must be whole numbers, such as 2 5 or, for two hops, 10,5; not 'two'"),
        (["estimator", "--estimators", "cvv"], "unknown estimator 'cvv'"),
        (["estimator", "--batch", "none"], "unknown batch 'none'; known: resampled, fixed"),
        (["estimator", "--steps", "x"], "steps must be a whole number of at least 0, not 'x'"),
        (["estimator", "--draws", "1"], "draws must be a whole number of at least 2"),
        (["estimator", "--test-draws", "1"], "test_draws must be a whole number of at least 10"),
        (["estimator", "--resamples", "2"], "--resamples must be a whole number of at least 3"),
        (["estimator", "--fan-outs", "0"], "--fan-outs must be whole numbers of at least 1"),
        (["bias-vs-lr", "--stepper", "foo"], "unknown stepper 'foo'; known: sgd"),
        (["history", "nowhere"], "no run folder at nowhere"),
        (["history", "--out", "/proc/nowhere"], "cannot write to /proc/nowhere: "),
        (["history", "--run", "nowhere"], "no run folder at nowhere; give a folder that cvgnn train --out has written"),
        (["history", "--run="], "--run needs the folder of a run"),
        (["history", "--estimator", "ns"], "keeps no histories; train with --estimator cv"),
        (["history", "--dataset", "citeseer", "--graph", "x"], "give either dataset or graph, not both"),
    ],
)  # fmt: skip
def test_mistakes_are_sentences(words: list[str], message: str, capsys: Captured) -> None:
    assert run(*words) == 2
    assert message in capsys.readouterr().err


def test_other_things_are_not_overwritten(tmp_path: Path, capsys: Captured) -> None:
    write_diagnosis(tmp_path / "rate", kind="rate")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("x")
    write_diagnosis(tmp_path / "both")
    (tmp_path / "both" / "thesis.tex").write_text("x")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "diagnosis.json").write_text("[" * 100_000)
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe" / "diagnosis.json")
    for name in ("rate", "full", "both", "bad", "pipe"):
        assert run("estimator", *QUICK, "--out", tmp_path / name) == 2
        assert f"{name} holds other files than a diagnosis of kind estimator; choose another" in capsys.readouterr().err
    (tmp_path / "file").write_text("x")
    assert run("history", "--out", tmp_path / "file") == 2
    assert "--out must be a folder, and" in capsys.readouterr().err


def test_help_loads_nothing_heavy() -> None:
    code = "import sys; from cvgnn.cli.diagnose_command import diagnose_command as d; d([]); print(sorted({'torch', 'numba', 'numpy', 'rich'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
