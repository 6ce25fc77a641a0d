"""A run's folder: nothing overwritten, everything readable."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import cvgnn
from cvgnn.config import GraphSource, TrainConfig
from cvgnn.errors import CvgnnError
from cvgnn.training.run_folder import RunFolder


def test_the_folder_is_made_with_its_parents_when_the_first_file_is_written(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b"
    folder = RunFolder(path)
    assert not (tmp_path / "a").exists()
    with folder.opened():
        folder.write_config(GraphSource(), TrainConfig(seed=3))
    config = json.loads((path / "config.json").read_text(encoding="utf-8"))
    assert config == {"version": cvgnn.__version__, **GraphSource().to_dict(), **TrainConfig(seed=3).to_dict()}
    assert folder.metrics == path / "metrics.jsonl"


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    with folder.opened():
        folder.write_config(GraphSource(), TrainConfig())
    assert [p.name for p in tmp_path.iterdir()] == ["config.json"]


@pytest.mark.parametrize("name", ["result.json", ".hidden", "folder"])
def test_a_folder_that_holds_anything_is_refused_and_left_alone(tmp_path: Path, name: str) -> None:
    if name == "folder":
        (tmp_path / name).mkdir()
    else:
        (tmp_path / name).write_text("mine", encoding="utf-8")
    with pytest.raises(CvgnnError) as caught:
        RunFolder(tmp_path)
    assert str(caught.value) == f"output folder {tmp_path} is not empty; choose another --out, or empty it first"
    assert [p.name for p in tmp_path.iterdir()] == [name]
    assert name == "folder" or (tmp_path / name).read_text(encoding="utf-8") == "mine"


def test_a_file_in_its_place_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("mine", encoding="utf-8")
    with pytest.raises(CvgnnError, match=r"cannot use .*notes\.txt as output folder: Not a directory; choose another"):
        RunFolder(path)
    with pytest.raises(CvgnnError, match=r"cannot use .*notes\.txt/run as output folder: Not a directory; choose"):
        RunFolder(path / "run").opened().__enter__()
    assert path.read_text(encoding="utf-8") == "mine"


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o555)
    if os.access(locked, os.W_OK):
        pytest.skip("this user may write everywhere")
    for path in (locked, locked / "run"):
        with pytest.raises(CvgnnError, match=r"cannot use .* as output folder: Permission denied; choose another"):
            RunFolder(path).opened().__enter__()


@pytest.mark.parametrize("method", ["mkdir", "open"])
def test_what_the_system_refuses_is_told_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """As above, for a user who may write everywhere."""

    def refuse(*args: object, **kwargs: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, method, refuse)
    folder = RunFolder(tmp_path / "run")

    def begin() -> None:
        with folder.opened():
            folder.write_config(GraphSource(), TrainConfig())

    with pytest.raises(CvgnnError, match=r"cannot use .* as output folder: Permission denied; choose another --out"):
        begin()


def test_result_and_weights(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 2), nn.LayerNorm(2))
    model[0].weight.data = torch.arange(6.0).reshape(3, 2).T  # not contiguous
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    folder.write_config(GraphSource(), TrainConfig())
    folder.write_result({"test_accuracy": 0.7, "best_epoch": None}, model)
    assert sorted(p.name for p in folder.path.iterdir()) == ["config.json", "result.json", "weights.safetensors"]
    result = json.loads((folder.path / "result.json").read_text(encoding="utf-8"))
    assert result == {"test_accuracy": 0.7, "best_epoch": None}
    weights = load_file(folder.path / "weights.safetensors")
    assert weights.keys() == model.state_dict().keys()
    assert all(torch.equal(weights[name], tensor) for name, tensor in model.state_dict().items())


def test_the_result_is_written_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with a result.json is complete."""

    def fail(*args: object) -> None:
        raise RuntimeError("no space")

    monkeypatch.setattr("cvgnn.training.run_folder.save", fail)
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    with pytest.raises(RuntimeError, match="no space"):
        folder.write_result({}, nn.Linear(1, 1))
    assert not (folder.path / "result.json").exists()


def test_one_process_at_a_time(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    with (
        folder.opened(),
        pytest.raises(CvgnnError, match=r"run is in use: another cvgnn process is writing to it; wait"),
    ):
        RunFolder(tmp_path / "run").opened().__enter__()
    assert list(folder.path.iterdir()) == []  # no lock file is left
    with RunFolder(tmp_path / "run").opened():
        pass


def test_another_run_that_was_faster_is_left_alone(tmp_path: Path) -> None:
    first, second = RunFolder(tmp_path / "run"), RunFolder(tmp_path / "run")
    with first.opened():
        first.write_config(GraphSource(), TrainConfig(seed=1))
    with pytest.raises(CvgnnError, match=r"is not empty; .* or continue its run: cvgnn train --resume .*run"):
        second.opened().__enter__()
    with RunFolder(tmp_path / "run", resume=True).opened():
        pass


def test_what_a_killed_process_left_half_written_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".config.json.77.partial").write_text("{", encoding="utf-8")
    with RunFolder(tmp_path).opened():
        assert list(tmp_path.iterdir()) == []


def test_only_a_folder_can_be_resumed(tmp_path: Path) -> None:
    with pytest.raises(CvgnnError, match=r"no run folder at .*nowhere; give a folder that cvgnn train --out"):
        RunFolder(tmp_path / "nowhere", resume=True)


def test_a_result_that_cannot_be_written_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("cvgnn.utils.atomic_files.write", full)
    folder = RunFolder(tmp_path)
    with pytest.raises(
        CvgnnError, match=r"the run is done, but .* free some space, then get it .* cvgnn train --resume"
    ):
        folder.write_result({}, nn.Linear(1, 1))
    assert list(tmp_path.iterdir()) == []
