"""Malformed files: each is refused in one sentence that names the file and the place, and nothing is left behind."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest

from cvgnn.errors import CvgnnError
from cvgnn.files import read_graph
from tests.files import broken_files
from tests.files.broken_files import FILES, Make, npz, parquet, tables


def everything(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.rglob("*"))


def sentence_of(path: Path) -> str:
    with pytest.raises(CvgnnError) as caught:
        read_graph(path)
    return str(caught.value)


@pytest.mark.parametrize(("make", "expected"), [case[1:] for case in FILES], ids=[case[0] for case in FILES])
def test_a_malformed_file_is_told_in_one_sentence(make: Make, expected: str, tmp_path: Path) -> None:
    path = make(tmp_path)
    before = everything(tmp_path)
    said = sentence_of(path)
    assert expected in said
    assert str(path) in said
    assert "\n" not in said
    assert len(said) < 500 + len(str(path))
    assert everything(tmp_path) == before  # nothing written, and no code run that makes a folder
    assert not Path("owned").exists()


def test_the_table_is_long_enough() -> None:
    assert len(FILES) >= 150
    assert len({name for name, _, _ in FILES}) == len(FILES)


@pytest.mark.parametrize("make", [npz(), tables(), parquet(), broken_files.pt(lambda _: broken_files.fields())])
def test_what_the_cases_are_made_from_is_sound(make: Make, tmp_path: Path) -> None:
    assert read_graph(make(tmp_path)).num_classes == 2


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (npz(), "graph.npz: it holds "),
        (parquet(f=[[1.0] * 9] * 3), "nodes.parquet: it holds 108 bytes of data, "),
        (broken_files.pt(lambda _: broken_files.fields()), "graph.pt: it holds "),
    ],
    ids=["npz", "parquet", "pt"],
)
def test_more_than_memory_holds_is_refused_before_reading(
    make: Make, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cvgnn.files.limits.available_memory", lambda: 100)
    said = sentence_of(make(tmp_path))
    assert expected in said
    assert said.endswith("more than the 100 bytes of memory that are free")


@pytest.mark.parametrize("make", [npz(), tables(), parquet(), broken_files.pt(lambda _: broken_files.fields())])
def test_what_the_system_refuses(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make(tmp_path)
    target = path if path.is_file() else min(path.glob("nodes.*"))
    target.chmod(0)
    if os.access(target, os.R_OK):
        pytest.skip("this user may read everything")
    assert sentence_of(path) == f"cannot read {target}: Permission denied"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("make", [npz(), tables(), parquet(), broken_files.pt(lambda _: broken_files.fields())])
def test_random_damage_is_read_or_refused_but_never_crashes(make: Make, tmp_path: Path) -> None:
    path = make(tmp_path)
    files = [path] if path.is_file() else sorted(path.iterdir())
    rng = np.random.default_rng(0)
    said: list[str] = []
    for _ in range(100):
        file = files[rng.integers(len(files))]
        good = file.read_bytes()
        data = bytearray(good)
        for at in rng.integers(len(data), size=3):
            data[at] = rng.integers(256)
        file.write_bytes(data[: rng.integers(len(data))] if rng.random() < 0.2 else data)
        try:
            read_graph(path)
        except CvgnnError as error:
            said.append(str(error))
        file.write_bytes(good)
    assert len(said) > 30
    assert [sentence for sentence in said if "\n" in sentence] == []
    assert read_graph(path).num_classes == 2


def test_a_disk_that_fails_halfway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("cvgnn.files.npz.read_array", fail)
    path = npz()(tmp_path)
    assert sentence_of(path) == f"cannot read {path}: Input/output error"


@pytest.mark.parametrize(
    ("package", "make", "sentence"),
    [
        ("pyarrow", parquet(), "needs the package pyarrow: pip install 'cvgnn[parquet]'"),
        (
            "torch_geometric",
            broken_files.pt(lambda _: broken_files.pyg_data().Data()),
            "a file with a torch_geometric Data needs the package torch_geometric: pip install 'cvgnn[pyg]'",
        ),
    ],
    ids=["pyarrow", "torch_geometric"],
)
def test_a_missing_package(
    package: str, make: Make, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make(tmp_path)
    for name in [name for name in sys.modules if name == package or name.startswith(f"{package}.")]:
        monkeypatch.setitem(sys.modules, name, None)
    assert sentence in sentence_of(path)


def test_csv_needs_no_optional_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("pyarrow", "torch_geometric", "networkx"):
        monkeypatch.setitem(sys.modules, package, None)
    assert read_graph(tables()(tmp_path)).num_nodes == 4
