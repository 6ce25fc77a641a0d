from __future__ import annotations

import dataclasses
import hashlib
import re
import subprocess
import sys
import zipfile
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from cvgnn.datasets import bundled
from cvgnn.datasets.arrays import GraphArrays
from cvgnn.datasets.bundled import load_bundled_citeseer
from cvgnn.datasets.planetoid import read_planetoid
from cvgnn.errors import CvgnnError

REPOSITORY = Path(__file__).resolve().parents[2]
DATA = REPOSITORY / "src" / "cvgnn" / "datasets" / "data"
TOOL = REPOSITORY / "tools" / "make_bundled_citeseer.py"


@pytest.fixture(scope="module")
def citeseer() -> GraphArrays:
    return load_bundled_citeseer()


def test_counts(citeseer: GraphArrays) -> None:
    assert (citeseer.name, citeseer.num_nodes, len(citeseer.edges)) == ("citeseer", 3327, 4552)
    assert (citeseer.num_features, citeseer.num_classes, len(citeseer.x_indices)) == (3703, 6, 105165)
    assert [len(ids) for ids in (citeseer.train_ids, citeseer.val_ids, citeseer.test_ids)] == [120, 500, 1000]
    assert len(citeseer.y) == 3327
    assert len(citeseer.x_indptr) == 3328


def test_it_equals_the_raw_files(citeseer: GraphArrays, planetoid_folder: Path) -> None:
    raw = read_planetoid(planetoid_folder, "citeseer")
    for field in dataclasses.fields(GraphArrays):
        here, there = getattr(citeseer, field.name), getattr(raw, field.name)
        assert type(here) is type(there), field.name
        if field.name in {"name", "num_nodes", "num_features", "num_classes"}:
            assert here == there, field.name
        else:
            assert here.dtype == there.dtype, field.name
            np.testing.assert_array_equal(here, there, err_msg=field.name, strict=True)


def test_no_pickle_inside() -> None:
    with zipfile.ZipFile(DATA / "citeseer.npz") as archive:
        members = archive.namelist()
        assert archive.testzip() is None
    assert all(member.endswith(".npy") for member in members)
    with np.load(DATA / "citeseer.npz", allow_pickle=False) as stored:
        assert all(not stored[key].dtype.hasobject for key in stored)


def test_the_package_reads_the_file_of_this_checkout() -> None:
    packaged = resources.files("cvgnn.datasets") / "data" / "citeseer.npz"
    assert packaged.read_bytes() == (DATA / "citeseer.npz").read_bytes()


def test_the_readme_describes_the_file() -> None:
    readme = (DATA / "README.md").read_text(encoding="utf-8")
    data = (DATA / "citeseer.npz").read_bytes()
    assert re.findall(r"\b[0-9a-f]{64}\b", readme) == [hashlib.sha256(data).hexdigest()]
    assert f"{len(data):,} bytes" in readme
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (\[.*?\]) \|", readme, flags=re.MULTILINE)
    with np.load(DATA / "citeseer.npz", allow_pickle=False) as stored:
        found = [(key, str(stored[key].dtype), str(list(stored[key].shape))) for key in stored]
    assert rows == found


def test_the_tool_gives_the_same_arrays(planetoid_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "again.npz"
    command = [sys.executable, str(TOOL), str(planetoid_folder), str(out)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert hashlib.sha256(out.read_bytes()).hexdigest() in result.stdout
    with np.load(out, allow_pickle=False) as again, np.load(DATA / "citeseer.npz", allow_pickle=False) as stored:
        assert list(again) == list(stored)
        for key in stored:
            np.testing.assert_array_equal(again[key], stored[key], strict=True)


def test_the_tool_says_what_is_missing_in_one_sentence(tmp_path: Path) -> None:
    command = [sys.executable, str(TOOL), str(tmp_path), str(tmp_path / "out.npz")]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert result.stderr.startswith("error: the file ind.citeseer.x is missing in the folder")
    assert not (tmp_path / "out.npz").exists()


def test_an_incomplete_installation(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(bundled.resources, "files", lambda package: tmp_path)
    with pytest.raises(CvgnnError, match="this installation is incomplete; reinstall cvgnn"):
        load_bundled_citeseer()
