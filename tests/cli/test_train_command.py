"""`cvgnn train`: from words to a trained model in a folder."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from cvgnn import __version__
from cvgnn.cli.main import main
from cvgnn.config import CheckpointPlan, GraphSource, TrainConfig
from cvgnn.data import Graph, Propagation
from cvgnn.data.named import load
from cvgnn.sampling import propagate_features
from cvgnn.training import Evaluator, NodeClassification
from cvgnn.training.defaults import choose_config
from cvgnn.training.run import train
from cvgnn.training.trainer_builder import build_model

FILES = ["checkpoints", "config.json", "metrics.jsonl", "result.json", "weights.safetensors"]
CHOSEN = "cvgnn: options chosen for this graph: weight_decay=0.005, feature_norm=l2\n"
SHORT = ["--epochs", "3", "--hidden", "8", "--batch-size", "20", "--norm", "layer", "--threads", "1"]
Captured = pytest.CaptureFixture[str]


def of_training(config: dict[str, Any]) -> dict[str, Any]:
    """The part of config.json that makes a TrainConfig."""
    return {field.name: config[field.name] for field in fields(TrainConfig)}


@cache
def citeseer() -> Graph:
    return load("citeseer")


def run(*words: object) -> int:
    """The exit code of `cvgnn train WORDS`."""
    try:
        return main(["train", *map(str, words)])
    except SystemExit as end:
        return int(end.code or 0)


def read(folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any]]:
    """config, metrics, result; anything that is not strict JSON fails."""
    strict = {"parse_constant": pytest.fail}
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"), **strict)
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"), **strict)
    return config, [json.loads(line, **strict) for line in lines], result


def trained(folder: Path, *words: object) -> tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any]]:
    """Run for a few epochs into a folder and read it."""
    assert run(*SHORT, *words, "--out", folder) == 0
    assert sorted(p.name for p in folder.iterdir()) == FILES
    return read(folder)


def weights(folder: Path) -> bytes:
    return (folder / "weights.safetensors").read_bytes()


# What a run leaves.


def test_the_folder_of_a_run(tmp_path: Path, capsys: Captured) -> None:
    config, metrics, result = trained(tmp_path / "a" / "run", "--epochs", "6", "--seed", "5", "--optimizer", "amsgrad")
    given = {"epochs": 6, "hidden": 8, "batch_size": 20, "norm": "layer", "threads": 1, "seed": 5}
    expected = choose_config(citeseer(), "auto", {**given, "optimizer": "amsgrad"})
    assert config == {"version": __version__, **GraphSource().to_dict(), **expected.to_dict()}

    assert [row["epoch"] for row in metrics] == [1, 2, 3, 4, 5, 6]
    assert [row["iterations"] for row in metrics] == [6, 12, 18, 24, 30, 36]
    for row in metrics:
        assert set(row) == {
            "epoch", "iterations", "loss", "train_accuracy", "val_accuracy", "test_accuracy", "train_seconds",
            "eval_seconds", "skipped_steps",
        }  # fmt: skip
        assert all(0 <= row[f"{split}_accuracy"] <= 1 for split in ("train", "val", "test"))
        assert row["train_seconds"] > 0
        assert row["eval_seconds"] > 0

    types = {
        "dataset": str, "estimator": str, "scheme": str, "optimizer": str, "form": str, "seed": int, "epochs": int,
        "iterations": int, "best_epoch": int, "val_accuracy": float, "test_accuracy": float,
        "max_test_accuracy": float, "setup_seconds": float, "train_seconds": float, "eval_seconds": float, "peak_rss_bytes": int,
    }  # fmt: skip
    assert {name: type(result[name]) for name in types} == types
    said = {name: result[name] for name in ("dataset", "estimator", "scheme", "optimizer", "form", "seed", "epochs")}
    assert said == {name: config[name] for name in said}
    val = [row["val_accuracy"] for row in metrics]
    test = [row["test_accuracy"] for row in metrics]
    best = int(np.argmax(val))  # the earliest of the highest
    assert (result["best_epoch"], result["val_accuracy"]) == (best + 1, max(val))
    assert (result["test_accuracy"], result["max_test_accuracy"]) == (test[best], max(test))
    assert result["output_test_accuracy"] == test[best]
    assert result["iterations"] == 36
    assert result["train_seconds"] == pytest.approx(sum(row["train_seconds"] for row in metrics), abs=1e-4)
    assert result["eval_seconds"] == pytest.approx(sum(row["eval_seconds"] for row in metrics), abs=1e-4)
    assert result["peak_rss_bytes"] > 10**7

    out, err = capsys.readouterr()
    assert err.removeprefix(CHOSEN) == ""  # that it is printed: test_a_piped_run
    assert f"test accuracy {100 * test[best]:.2f}% at the best validation epoch, {best + 1} " in out
    assert f"highest test accuracy of any epoch {100 * max(test):.2f}%" in out
    assert out.endswith(f"written to {tmp_path / 'a' / 'run'}\n")


def test_plain_lines_when_piped(capsys: Captured, tmp_path: Path) -> None:
    _, metrics, _ = trained(tmp_path / "run")
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\r" not in out
    shown = [line for line in out.splitlines() if line.startswith("epoch ")]
    assert shown == [
        f"epoch {m['epoch']}/3  loss {m['loss']:.4f}  train {100 * m['train_accuracy']:.2f}%  "
        f"val {100 * m['val_accuracy']:.2f}%  test {100 * m['test_accuracy']:.2f}%"
        for m in metrics
    ]
    assert out.splitlines()[0] == (
        "Graph(citeseer: 3327 nodes, 4552 edges, 3703 sparse features, 6 classes, split 120/500/1000)"
    )


def test_without_out_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(*SHORT) == 0
    assert list(tmp_path.iterdir()) == []
    assert "written to" not in capsys.readouterr().out


def rebuilt_test_accuracy(folder: Path) -> float | None:
    """Of the weights in the folder, in a network built from its config alone."""
    config = of_training(read(folder)[0])
    graph = citeseer()
    propagation = Propagation(graph, normalization=config["normalization"])
    model = build_model(NodeClassification(graph), TrainConfig(**config), dtype=torch.float32)
    model.load_state_dict(load_file(folder / "weights.safetensors"), strict=True)
    features = propagate_features(graph, propagation, feature_norm=config["feature_norm"])
    return Evaluator(NodeClassification(graph), features, propagation)(model)["test_accuracy"]


@pytest.mark.parametrize("output", ["best", "last", "tau"])
def test_outputs(tmp_path: Path, capsys: Captured, output: str) -> None:
    _, metrics, result = trained(tmp_path / "run", "--output", output, "--epochs", "5", "--seed", "2")
    out = capsys.readouterr().out
    assert result["output"] == output
    assert rebuilt_test_accuracy(tmp_path / "run") == result["output_test_accuracy"]
    if output == "best":
        assert result["output_test_accuracy"] == result["test_accuracy"]
        assert "returned weights" not in out
    if output == "last":
        assert result["output_test_accuracy"] == metrics[-1]["test_accuracy"]
        assert "test accuracy of the returned weights, last: " in out
    if output == "tau":
        assert 1 <= result["output_iteration"] <= result["iterations"] + 1
        assert f"test accuracy of the returned weights, tau (iterate {result['output_iteration']}): " in out


METHODS = [
    ["--estimator", "cv"],
    ["--estimator", "ns"],
    ["--estimator", "exact"],
    ["--batches", "replacement", "--output", "tau"],
    ["--layers", "1"],
    ["--layers", "3"],
    ["--layers", "3", "--num-neighbors", "3", "1"],
    ["--num-neighbors", "-1"],
    ["--layers", "3", "--num-neighbors", "-1", "2", "--normalization", "random-walk"],
    ["--scheme", "released", "--form", "paper", "--optimizer", "adagrad", "--beta1", "0.5", "--nu-min", "1e-6"],
    ["--bias", "False", "--norm", "none", "--dropout", "0", "--weight-decay", "0"],
    ["--history-dtype", "bfloat16", "--scheme", "with-replacement", "--lr", "1e-3", "--batch-size", "50"],
]


def as_words(config: dict[str, Any]) -> list[str]:
    """A config.json as the words of a command line."""
    words = []
    for name, value in config.items():
        if name not in ("version",) and value is not None:
            values = value if isinstance(value, list) else [value]
            words += [f"--{name.replace('_', '-')}", *map(str, values)]
    return words


@pytest.mark.parametrize("words", METHODS, ids=" ".join)
def test_a_run_can_be_repeated_from_its_config(tmp_path: Path, words: list[str]) -> None:
    config, metrics, result = trained(tmp_path / "first", *words)
    assert rebuilt_test_accuracy(tmp_path / "first") == result["output_test_accuracy"]

    assert run(*as_words(config), "--out", tmp_path / "shell") == 0
    assert read(tmp_path / "shell")[0] == config
    assert weights(tmp_path / "shell") == weights(tmp_path / "first")

    options = of_training(config)
    again = train(citeseer(), TrainConfig(**options))
    kept = load_file(tmp_path / "first" / "weights.safetensors")
    assert kept.keys() == again.model.state_dict().keys()
    assert all(torch.equal(kept[name], tensor) for name, tensor in again.model.state_dict().items())
    assert [row["loss"] for row in metrics] == [record.loss for record in again.records]


def test_methods_and_seeds_give_different_weights(tmp_path: Path) -> None:
    choices = [["--estimator", e] for e in ("cv", "ns", "exact")] + [["--seed", "1"], ["--batches", "replacement"]]
    kept = set()
    for i, words in enumerate(choices):
        trained(tmp_path / str(i), *words)
        kept.add(weights(tmp_path / str(i)))
    assert len(kept) == len(choices)


def test_eval_every(tmp_path: Path, capsys: Captured) -> None:
    _, metrics, result = trained(tmp_path / "run", "--eval-every", "3", "--epochs", "7")
    evaluated = [row["epoch"] for row in metrics if row["test_accuracy"] is not None]
    assert evaluated == [3, 6, 7]
    assert result["best_epoch"] in evaluated
    assert result["epochs"] == 7
    shown = [line for line in capsys.readouterr().out.splitlines() if line.startswith("epoch ")]
    assert ["test" in line for line in shown] == [False, False, True, False, False, True, True]
    assert rebuilt_test_accuracy(tmp_path / "run") == result["output_test_accuracy"]


def test_a_diverged_run_says_where_and_what_to_try(tmp_path: Path, capsys: Captured) -> None:
    folder = tmp_path / "run"
    assert run(*SHORT, "--lr", "1e38", "--optimizer", "sgd", "--checkpoint-epochs", "1", "--out", folder) == 2
    err = capsys.readouterr().err.removeprefix(CHOSEN)
    assert re.match(
        r"cvgnn: training diverged at step \d+ on a batch of 20 nodes \(\d+, .*\.\.\.\): .* has \d+ of \d+ entries that "
        r"are infinite or NaN; try a smaller lr, clip_norm=1, or bad_step='skip', in a new folder; ",
        err,
    )
    assert not (folder / "result.json").exists()


def test_no_words_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    """`cvgnn train`, as the help begins."""
    monkeypatch.chdir(tmp_path)
    assert main(["train"]) == 0
    assert "test" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_defaults_train_citeseer_well(tmp_path: Path) -> None:
    assert run("--epochs", "30", "--out", tmp_path / "run") == 0
    assert read(tmp_path / "run")[2]["test_accuracy"] > 0.65


def test_cora_from_its_raw_files(tmp_path: Path, shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shared_data)
    config, _, result = trained(tmp_path / "run", "--dataset", "cora", "--root", "planetoid")
    assert result["dataset"] == "cora"
    assert config["root"] == str((shared_data / "planetoid").resolve())  # absolute: the config is good from any folder


# What is refused.

IMPOSSIBLE = [
    (["--num-neighbors", "0"], "num_neighbors must be whole numbers of at least 1, or -1 for all neighbors, not 0"),
    (["--num-neighbors", "-2"], "num_neighbors must be whole numbers of at least 1, or -1 for all neighbors, not -2"),
    (["--num-neighbors", "2.5"], "num_neighbors must be whole numbers of at least 1, or -1 for all neighbors, not '2.5'"),
    (["--num-neighbors"], "num_neighbors is empty, (); give one number, or layers - 1 of them"),
    (["--num-neighbors", "2", "3"], "num_neighbors has 2 entries, (2, 3), but 2 layers sample at 1 hops (layer 0 is exact)"),
    (["--lr", "0"], "lr must be a number above 0, not 0.0"),
    (["--lr", "-0.1"], "lr must be a number above 0, not -0.1"),
    (["--lr", "nan"], "lr must be a number above 0, not nan"),
    (["--lr", "inf"], "lr must be a number above 0, not inf"),
    (["--lr", "fast"], "lr must be a number above 0, not 'fast'"),
    (["--beta1", "1"], "beta1 must be a number in [0, 1), not 1.0"),
    (["--beta1", "-0.1"], "beta1 must be a number in [0, 1), not -0.1"),
    (["--beta2", "1.5"], "beta2 must be a number in [0, 1), not 1.5"),
    (["--nu-min", "0"], "nu_min must be a number above 0, not 0.0"),
    (["--weight-decay", "-1"], "weight_decay must be zero or a positive number, not -1.0"),
    (["--dropout", "1"], "dropout must be a number in [0, 1), not 1.0"),
    (["--layers", "0"], "layers must be a whole number of at least 1, not 0"),
    (["--hidden", "0"], "hidden must be a whole number of at least 1, not 0"),
    (["--hidden", "many"], "hidden must be a whole number of at least 1, not 'many'"),
    (["--batch-size", "0"], "batch_size must be a whole number of at least 1, not 0"),
    (["--epochs", "0"], "epochs must be a whole number of at least 1, not 0"),
    (["--epochs", "1.5"], "epochs must be a whole number of at least 1, not '1.5'"),
    (["--eval-every", "0"], "eval_every must be a whole number of at least 1, not 0"),
    (["--threads", "0"], "threads must be a whole number of at least 1, not 0"),
    (["--seed", "-1"], "seed must be a whole number of at least 0, not -1"),
    (["--bias", "maybe"], "bias must be True or False, not 'maybe'"),
    (["--estimator", "cvx"], "unknown estimator 'cvx'; known: cvd, cv, ns, exact"),
    (["--scheme", "x"], "unknown scheme 'x'; known: without-replacement, with-replacement, paper, released"),
    (["--optimizer", "rmsprop"], "unknown optimizer 'rmsprop'; known: sgd, heavy-ball, adam, amsgrad, adagrad"),
    (["--form", "x"], "unknown form 'x'; known: torch, paper"),
    (["--batches", "x"], "unknown batches 'x'; known: shuffle, replacement"),
    (["--norm", "group"], "unknown norm 'group'; known: layer, batch, none"),
    (["--normalization", "x"], "unknown normalization 'x'; known: symmetric, random-walk"),
    (["--history-dtype", "int8"], "unknown history_dtype 'int8'; known: float32, bfloat16"),
    (["--feature-dtype", "float16"], "unknown feature_dtype 'float16'; known: float32, bfloat16"),
    (["--output", "worst"], "unknown output 'worst'; known: best, last, tau"),
    (["--dataset", "reddit2"], "unknown dataset 'reddit2'; known: citeseer, cora, pubmed"),
    (["--dataset", "cora"], "dataset 'cora' is not bundled and CVGNN_OFFLINE=1 forbids downloading it"),
    (["--dataset", "cora", "--root", "/nowhere"], "no raw files of 'cora' in any of /nowhere, "),
    (["--root", "/nowhere"], "no raw files of 'citeseer' in any of /nowhere, "),
    (["--optimizer", "sgd", "--beta2", "0.9"], "beta2 has no use in sgd in the torch form, got 0.9"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "sentence"), IMPOSSIBLE, ids=[" ".join(words) for words, _ in IMPOSSIBLE])
def test_a_mistake_is_told_in_one_sentence_before_any_work(
    tmp_path: Path, capsys: Captured, words: list[str], sentence: str
) -> None:
    assert run(*words, "--out", tmp_path / "run") == 2
    out, err = capsys.readouterr()
    err = err.removeprefix(CHOSEN)
    assert out == ""
    assert err.startswith(f"cvgnn: {sentence}")
    assert err.endswith("\n")
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--epoch", "3"], ["Unrecognized", "--epoch", "Perhaps you meant", "--epochs"]),
        (["--nonsense"], ["Unrecognized", "--nonsense"]),
        (["extra"], ["Unrecognized", "extra"]),
        (["--seed"], ["Missing value", "--seed"]),
    ],
    ids=str,
)
def test_an_unknown_option_is_refused(tmp_path: Path, capsys: Captured, words: list[str], parts: list[str]) -> None:
    assert run("--out", tmp_path / "run", *words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert all(part in err for part in parts)
    assert "cvgnn train --help" in err
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_holds_something_is_refused_and_left_alone(tmp_path: Path, capsys: Captured) -> None:
    trained(tmp_path / "run")
    before = {p: p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file()}
    capsys.readouterr()
    assert run(*SHORT, "--seed", "9", "--out", tmp_path / "run") == 2
    sentence = (
        f"cvgnn: output folder {tmp_path / 'run'} is not empty; choose another --out, or empty it first, or continue its run: "
        f"cvgnn train --resume {tmp_path / 'run'}\n"
    )
    assert capsys.readouterr() == ("", sentence)
    assert {p: p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file()} == before


def test_an_occupied_folder_is_told_before_the_data_is_read(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cvgnn.data.named.load", lambda *args: pytest.fail("the data was read"))
    (tmp_path / "mine").write_text("", encoding="utf-8")
    assert run("--out", tmp_path) == 2


@pytest.mark.parametrize("below", ["", "run"])
def test_a_file_in_the_folders_place_is_refused_and_left_alone(tmp_path: Path, capsys: Captured, below: str) -> None:
    path = tmp_path / "notes"
    path.write_text("mine", encoding="utf-8")
    assert run("--out", path / below) == 2
    sentence = f"cvgnn: cannot use {path / below} as output folder: Not a directory; choose another --out\n"
    assert capsys.readouterr() == ("", sentence)
    assert path.read_text(encoding="utf-8") == "mine"


def test_a_parent_that_cannot_be_written(tmp_path: Path, capsys: Captured) -> None:
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o555)
    if os.access(locked, os.W_OK):
        pytest.skip("this user may write everywhere")
    assert run("--out", locked / "run") == 2
    sentence = f"cvgnn: cannot use {locked / 'run'} as output folder: Permission denied; choose another --out\n"
    assert capsys.readouterr() == ("", sentence)


# The help.


def test_help_shows_every_option_with_its_meaning(capsys: Captured) -> None:
    assert run("--help") == 0
    out, err = capsys.readouterr()
    assert err == ""
    own = ["out", "resume", "settings"]
    parts = (*fields(GraphSource), *fields(CheckpointPlan), *fields(TrainConfig))
    names = [*own, "check_memory", *(field.name for field in parts)]
    starts = [out.find(f"--{name.replace('_', '-')} ", out.index("--help")) for name in names]
    assert min(starts) > 0
    starts.sort()
    for a, b in zip(starts, [*starts[1:], len(out)], strict=True):
        entry = re.sub(r"[│\s]+", " ", out[a:b])
        kinds = r"(\S+|\[INT \[INT \.\.\.\]\]) [A-Za-z].{10,}\. \(default: .+\)|\[TEXT \[TEXT \.\.\.\]\] [A-Z].{10,}\. \(default: \)"
        assert re.match(rf"--\S+ ({kinds})", entry), entry
    text = re.sub(r"[│\s]+", " ", out)
    assert all(name in text for name in ("citeseer", "cvgnn datasets"))
    assert "{None}" not in text


def test_the_flags_of_the_issue() -> None:
    """As promised: flat, and under these names."""
    flags = [
        "dataset",
        "estimator",
        "scheme",
        "optimizer",
        "form",
        "lr",
        "num-neighbors",
        "batch-size",
        "epochs",
        "hidden",
        "layers",
        "norm",
        "dropout",
        "weight-decay",
        "batches",
        "output",
        "seed",
        "threads",
        "out",
    ]
    names = {field.name.replace("_", "-") for field in fields(TrainConfig)} | {"dataset", "out"}
    assert set(flags) <= names


@pytest.mark.parametrize("word", ["True", "true", "False", "false"])
def test_bias_is_a_word(tmp_path: Path, word: str) -> None:
    config, _, _ = trained(tmp_path / "run", "--bias", word)
    assert config["bias"] is (word.lower() == "true")
    assert ("layers.0.bias" in load_file(tmp_path / "run" / "weights.safetensors")) is config["bias"]


# In a process of its own.


def test_a_piped_run(tmp_path: Path) -> None:
    out = tmp_path / "run"
    environment = {**os.environ, "FORCE_COLOR": "1", "COLUMNS": "40"}  # as CI systems have it
    done = subprocess.run(
        [sys.executable, "-m", "cvgnn", "train", *SHORT, "--out", str(out)],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
    )
    assert (done.returncode, done.stderr) == (0, CHOSEN)
    assert "\x1b" not in done.stdout
    assert re.findall(r"^epoch (\d+)/3  loss ", done.stdout, flags=re.MULTILINE) == ["1", "2", "3"]
    assert sorted(p.name for p in out.iterdir()) == FILES
    trained(tmp_path / "here")
    assert weights(out) == weights(tmp_path / "here")
