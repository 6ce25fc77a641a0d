from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from cvgnn.cli.main import main
from cvgnn.config import GraphSource
from cvgnn.errors import CvgnnError
from cvgnn.training.run import read_run
from tests.build import graph_from_dense
from tests.tiny import GRAPHS


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("saved") / "run"
    words = "train --epochs 3 --hidden 8 --normalization random-walk --norm layer --num-neighbors 3"
    assert main([*words.split(), "--out", str(out)]) == 0
    return out


def test_a_restored_run_predicts_as_it_did(folder: Path) -> None:
    run = read_run(folder)
    assert run.config.num_neighbors == (3,)
    assert run.propagation.normalization == "random-walk"
    correct = (run.predict(run.graph.test_ids) == run.graph.y[run.graph.test_ids]).double().mean()
    assert float(correct) == run.result["output_test_accuracy"]


def damage_json(name: str, **changes: object) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        value = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps({**value, **changes}))

    return damage


def put(name: str, text: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_text(text)  # type: ignore[func-returns-value, return-value]


def nan_weights(folder: Path) -> None:
    weights = load_file(folder / "weights.safetensors")
    weights["layers.0.bias"][0] = float("nan")
    save_file(weights, folder / "weights.safetensors")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda f: (f / "result.json").unlink(), r"result\.json is missing: the run is not finished"),
        (lambda f: (f / "config.json").unlink(), r"config\.json is missing"),
        (lambda f: (f / "weights.safetensors").unlink(), r"weights\.safetensors is missing"),
        (
            put("weights.safetensors", "x"),
            r"cannot read .*weights\.safetensors: weights\.safetensors (is damaged|states a header)",
        ),
        (nan_weights, r"weights\.safetensors holds NaN or infinite values in layers\.0\.bias"),
        (damage_json("result.json", num_classes="six"), r"result\.json: num_classes must be a whole number"),
        (put("config.json", "{"), r"config\.json is not valid JSON"),
        (put("config.json", "[1]"), r"config\.json is not a JSON object"),
        (put("config.json", "[" * 100_000), r"config\.json is not valid JSON"),
        (damage_json("config.json", lr=-1), r"config\.json: lr must be a number above 0, not -1"),
        (damage_json("config.json", colour="red"), r"config\.json: unknown option 'colour'"),
        (damage_json("config.json", root=3), r"config\.json: root must be a path, not 3"),
        (damage_json("config.json", dataset="none"), "unknown dataset 'none'; known: citeseer"),
        (
            damage_json("config.json", hidden=9),
            r"does not fit the graph 'citeseer': layers\.0\.bias is \[8\] in the file",
        ),
        (damage_json("config.json", norm="none"), r"layers\.0\.norm\.bias is \[8\] in the file, .* ask for nothing"),
    ],
)
def test_damaged_folders(folder: Path, tmp_path: Path, damage: Callable[[Path], None], said: str) -> None:
    copy = tmp_path / "run"
    shutil.copytree(folder, copy)
    damage(copy)
    with pytest.raises(CvgnnError, match=said):
        read_run(copy)


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(CvgnnError, match="no run folder at"):
        read_run(tmp_path / "none")


def test_another_graph(folder: Path) -> None:
    other = graph_from_dense(GRAPHS["path"], features=5)
    with pytest.raises(CvgnnError, match="the model reads 3703 features a node, but the graph 'graph' has 5"):
        read_run(folder, other)


def test_another_place(folder: Path, shared_data: Path) -> None:
    """The raw CiteSeer files elsewhere give the same graph, so the same predictions."""
    moved = read_run(folder, source=GraphSource(dataset="citeseer", root=shared_data))
    assert torch.equal(moved.predict(), read_run(folder).predict())
