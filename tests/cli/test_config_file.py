"""`--config FILE`, `cvgnn train --print-config` and `cvgnn completion`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cvgnn.cli import diagnose_options, options
from cvgnn.cli.config_file import option_types, with_config
from cvgnn.cli.diagnose_command import COMMANDS as DIAGNOSES
from cvgnn.cli.main import COMMANDS, main
from cvgnn.cli.options import ConvertCommand, PredictCommand, SweepCommand, TrainCommand
from cvgnn.errors import CvgnnError
from tests.data.io.broken_files import npz

LISTED = json.loads((Path(__file__).parent / "options.json").read_text(encoding="utf-8"))


def write(folder: Path, text: str) -> Path:
    file = folder / "options.toml"
    file.write_text(text)
    return file


def merged(kind: type, name: str, argv: list[str], file: Path) -> list[str]:
    return with_config(kind, name, argv, file, commands=COMMANDS)


@pytest.mark.parametrize("command", [name for name in LISTED if name not in ("", "diagnose")])
def test_a_file_may_have_every_option(command: str) -> None:
    """The names in a file are those of `--help`."""
    first, _, what = command.partition(" ")
    kind = getattr(diagnose_options, DIAGNOSES[what][0]) if what else getattr(options, f"{first.capitalize()}Command")
    listed = {option.split()[0].removeprefix("--").replace("-", "_") for option in LISTED[command]}
    assert {name for name, _ in option_types(kind)} == listed - {"help", "seeds"}


def test_forms_of_values(tmp_path: Path) -> None:
    file = write(
        tmp_path, 'lr = 1e-3\nnum-neighbors = [2, -1]\nresidual = true\ngraph = "a.npz"\nloss = "--x"\nignore = []\n'
    )
    assert merged(TrainCommand, "train", ["--seed", "1"], file) == [
        "--seed", "1", "--lr=0.001", "--num-neighbors", "2", "-1", "--residual", "True", f"--graph={tmp_path / 'a.npz'}",
        "--loss=--x", "--ignore",
    ]  # fmt: skip
    flags = write(tmp_path, "directed = true\nunlabelled = false")
    assert merged(ConvertCommand, "convert", ["a", "b"], flags) == ["a", "b", "--directed"]
    both = write(tmp_path, "lr = 1.0\n[train]\nlr = 2.0\n[predict]\nnodes = '3'")
    assert merged(TrainCommand, "train", [], both) == ["--lr=2.0"]


def test_the_command_line_counts_more(tmp_path: Path) -> None:
    file = write(tmp_path, 'lr = 1.0\nbatch_size = 3\ndataset = "cora"\n')
    assert merged(TrainCommand, "train", ["--lr", "2", "--batch-size=4", "--graph", "g.npz"], file) == [
        "--lr", "2", "--batch-size=4", "--graph", "g.npz",
    ]  # fmt: skip
    assert merged(SweepCommand, "sweep", ["--seeds", "5"], write(tmp_path, "runs = 3")) == ["--seeds", "5"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epoch = 3", r"options.toml: unknown option of cvgnn train 'epoch'; .*did you mean 'epochs'"),
        ("learning_rate = 3", "did you mean 'lr'"),
        ("lr = 2020-01-01", "--lr must be a text, a number, true, false, or a list of these"),
        ("train = 3", r"train must be a table of options, \[train\]"),
        ("[model]\na = 1", "--model must be a text"),
        ("[predit]\nnodes = 1", "unknown option of cvgnn train 'predit'"),
        ("lr = ", "options.toml is not valid TOML"),
    ],
)
def test_mistakes(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(CvgnnError, match=message):
        merged(TrainCommand, "train", [], write(tmp_path, text))


def test_no_positional_argument(tmp_path: Path) -> None:
    with pytest.raises(CvgnnError, match="unknown option of cvgnn predict 'run'"):
        merged(PredictCommand, "predict", [], write(tmp_path, 'run = "runs/a"'))


def test_errors_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--config"]) == 2
    assert (
        capsys.readouterr().err == "cvgnn: --config expected one argument; name a file, such as --config options.toml\n"
    )
    assert main(["train", "--config", str(tmp_path / "none.toml")]) == 2
    assert "there is no file" in capsys.readouterr().err


def test_every_kind_of_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One file for a training run, its predictions and a diagnosis."""
    graph = npz()(tmp_path)
    file = str(write(tmp_path, (
        f"[train]\ngraph = {str(graph)!r}\nepochs = 1\nhidden = 4\nout = 'run'\n[predict]\nnodes = '0,2'\ncolumns = ['node', 'class']\n"
        f"[diagnose]\ngraph = {str(graph)!r}\nepochs = 1\nhidden = 4\n"
    )))  # fmt: skip
    assert main(["--config", file, "--quiet", "train"]) == 0
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert "--epochs=1 --hidden=4" in result["command"]  # the command is complete without the file
    capsys.readouterr()
    assert main(["predict", str(tmp_path / "run"), "--config", file]) == 0
    assert [line.split(",")[0] for line in capsys.readouterr().out.splitlines()] == ["node", "0", "2"]
    assert main(["diagnose", "history", "--config", file, "--json", "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out)["kind"] == "history"


def test_print_config_repeats_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The options that were chosen for the graph are in it; with it the same options come out, and the same weights."""
    words = ["train", "--epochs", "2", "--hidden", "8", "--seed", "7", "--residual", "--num-neighbors", "3", "--quiet"]
    assert main([*words, "--print-config", "--out", str(tmp_path / "nothing")]) == 0
    text = capsys.readouterr().out
    assert not (tmp_path / "nothing").exists()
    assert 'defaults = "fixed"' in text
    file = write(tmp_path, text)
    assert main(["train", "--config", str(file), "--print-config", "--quiet"]) == 0
    assert capsys.readouterr().out == text
    assert main([*words, "--out", str(tmp_path / "a")]) == 0
    assert main(["train", "--config", str(file), "--out", str(tmp_path / "b"), "--quiet"]) == 0
    for name in ("weights.safetensors", "config.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_none_and_paths(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A path is printed absolute; a graph of one's own with a split of its own is read again."""
    graph = npz()(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert main(["train", "--graph", graph.name, "--ignore", "x", "--print-config", "--quiet"]) in (0, 2)
    capsys.readouterr()
    assert main(["train", "--graph", graph.name, "--print-config", "--quiet"]) == 0
    assert f'graph = "{graph.resolve()}"' in capsys.readouterr().out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = tmp_path / "script"
    script.write_text(capsys.readouterr().out)
    if shutil.which(shell) is not None:
        subprocess.run([shell, "-n", str(script)], check=True, timeout=60)
    if shell != "bash":
        return
    asked = {
        "tr": "train", "train --opti": "--optimizer", "train --optimizer ": "sgd heavy-ball adam amsgrad adagrad adamw nadam",
        "serve --to": "--token", "diagnose hi": "history", "train --conf": "--config",
    }  # fmt: skip
    lines = [f"source {script}"]
    for words in asked:
        # An empty last word is what bash completes after a space.
        listed = " ".join(f"'{word}'" for word in ["cvgnn", *words.split(" ")])
        lines.append(
            f'COMP_WORDS=({listed}); COMP_CWORD={len(words.split(" "))}; _tyro_cvgnn; echo "${{COMPREPLY[@]}}"'
        )
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", "\n".join(lines)], capture_output=True, text=True, env=environment, check=True, timeout=60
    )
    assert done.stdout.splitlines() == list(asked.values())
    bad = main(["completion", "powershell"])
    assert bad == 2
