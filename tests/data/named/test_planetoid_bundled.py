from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import zipfile
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
import torch

from cvgnn.data import Graph, SparseFeatures
from cvgnn.data.named import planetoid
from cvgnn.data.named.planetoid import load_bundled_citeseer, read_planetoid
from cvgnn.errors import CvgnnError

REPOSITORY = Path(__file__).resolve().parents[3]
DATA = REPOSITORY / "src" / "cvgnn" / "data" / "named" / "data"
TOOL = REPOSITORY / "tools" / "make_bundled_citeseer.py"


@pytest.fixture(scope="module")
def citeseer() -> Graph:
    return load_bundled_citeseer()


def test_counts(citeseer: Graph) -> None:
    assert (citeseer.name, citeseer.num_nodes, citeseer.num_edges) == ("citeseer", 3327, 2 * 4552)
    assert isinstance(citeseer.x, SparseFeatures)
    assert (citeseer.num_features, citeseer.num_classes, len(citeseer.x.indices)) == (3703, 6, 105165)
    assert [len(ids) for ids in (citeseer.train_ids, citeseer.val_ids, citeseer.test_ids)] == [120, 500, 1000]
    assert len(citeseer.y) == 3327
    assert len(citeseer.x.indptr) == 3328


def test_it_equals_the_raw_files(citeseer: Graph, planetoid_folder: Path) -> None:
    raw = read_planetoid(planetoid_folder, "citeseer")
    assert (citeseer.name, citeseer.num_classes, citeseer.split) == (raw.name, raw.num_classes, raw.split)
    assert tuple(citeseer.x.shape) == tuple(raw.x.shape)
    for name in ("indptr", "indices", "y", "train_ids", "val_ids", "test_ids"):
        here, there = getattr(citeseer, name), getattr(raw, name)
        assert here.dtype == there.dtype, name
        assert torch.equal(here, there), name
    for name in ("indptr", "indices", "values"):
        here, there = getattr(citeseer.x, name), getattr(raw.x, name)
        assert here.dtype == there.dtype, name
        assert torch.equal(here, there), name


def test_no_pickle_inside() -> None:
    with zipfile.ZipFile(DATA / "citeseer.npz") as archive:
        members = archive.namelist()
        assert archive.testzip() is None
    assert all(member.endswith(".npy") for member in members)
    with np.load(DATA / "citeseer.npz", allow_pickle=False) as stored:
        assert all(not stored[key].dtype.hasobject for key in stored)


def test_the_package_reads_the_file_of_this_checkout() -> None:
    packaged = resources.files("cvgnn.data.named") / "data" / "citeseer.npz"
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
    monkeypatch.setattr(planetoid, "DATA_FOLDER", tmp_path)
    with pytest.raises(CvgnnError, match="is missing: this installation is incomplete; reinstall cvgnn"):
        load_bundled_citeseer()
