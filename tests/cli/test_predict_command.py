from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pytest

from cvgnn.cli.main import main
from cvgnn.training.run import read_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("predict") / "run"
    assert main(["train", "--epochs", "3", "--hidden", "8", "--out", str(out)]) == 0
    return out


def test_printed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", str(folder), "--nodes", "7,3326,0"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    run = read_run(folder)
    assert [int(row["node"]) for row in rows] == [7, 3326, 0]
    assert [int(row["class"]) for row in rows] == run.predict([7, 3326, 0]).tolist()
    assert [float(row["probability"]) for row in rows] == run.predict_proba([7, 3326, 0]).max(dim=1).values.tolist()


def test_all_nodes_to_a_file(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", str(folder), "--out", str(tmp_path / "p.npy")]) == 0
    assert capsys.readouterr() == ("", f"3327 nodes written to {tmp_path / 'p.npy'}\n")
    array = np.load(tmp_path / "p.npy")
    np.testing.assert_array_equal(array["class"], read_run(folder).predict().numpy())


def test_columns(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", str(folder), "--nodes", "0,3326", "--columns", "node", "split,label", "p_2"]) == 0
    header, first, last = capsys.readouterr().out.splitlines()
    assert header == "node,split,label,p_2"
    assert first.startswith("0,train,")
    assert last.split(",")[1] == "test"


def test_a_file_is_replaced_only_with_force(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "p.csv"
    file.write_text("mine")
    words = ["predict", str(folder), "--nodes", "1", "--out", str(file)]
    assert main(words) == 2
    assert "p.csv exists; choose another name, or replace it with --force" in capsys.readouterr().err
    assert file.read_text() == "mine"
    assert main([*words, "--force"]) == 0
    assert file.read_text().startswith("node,class,probability,label,split,p_0")


def test_embeddings(folder: Path, tmp_path: Path) -> None:
    assert main(["predict", str(folder), "--embeddings", "1", "--nodes", "1,2", "--out", str(tmp_path / "e.npy")]) == 0
    np.testing.assert_array_equal(np.load(tmp_path / "e.npy"), read_run(folder).embed(1, [1, 2]).numpy())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--nodes", "3327"], "node '3327' is not in the graph; its node ids are 0..3326"),
        (["--embeddings", "3"], "layer must lie in 1..2"),
        (["--embeddings", "one"], "embeddings must be the number of a layer, not 'one'"),
        (["--columns", "clas"], "unknown column 'clas'"),
        (["--columns", "node", "--embeddings", "1"], "--columns chooses columns of predictions"),
        (["--columns", ","], "name a column"),
        (["--force", "maybe"], "force must be True or False"),
        (["--out", "p.txt"], "the ending must be one of"),
        (["--graph", "missing.npz"], "missing.npz"),
        (["--root", "missing"], "no raw files of 'citeseer' in any of missing, "),
    ],
)
def test_mistakes(folder: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", str(folder), *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("cvgnn: ")
    assert said in err


def test_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", str(tmp_path)]) == 2
    assert "config.json is missing" in capsys.readouterr().err
