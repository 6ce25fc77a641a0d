"""Malformed files: each error is one line that names the file and the place, and nothing is left behind."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest

from cvgnn.data.io import read_graph
from cvgnn.data.table_options import TableOptions
from cvgnn.errors import CvgnnError
from tests.data.io import broken_files
from tests.data.io.broken_files import FILES, PLAIN, Make, as_arrow, npz, parquet, tables


def everything(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.rglob("*"))


def error_of(path: Path, tables: TableOptions | None = None) -> str:
    with pytest.raises(CvgnnError) as caught:
        read_graph(path, tables=tables)
    return str(caught.value)


@pytest.mark.parametrize(("make", "expected"), [case[1:] for case in PLAIN], ids=[case[0] for case in PLAIN])
def test_without_preprocessing_every_feature_must_be_a_number(make: Make, expected: str, tmp_path: Path) -> None:
    assert expected in error_of(make(tmp_path), TableOptions(preprocess="none"))


@pytest.mark.parametrize(("make", "expected"), [case[1:] for case in FILES], ids=[case[0] for case in FILES])
def test_a_malformed_file_is_told_in_one_sentence(make: Make, expected: str, tmp_path: Path) -> None:
    path = make(tmp_path)
    before = everything(tmp_path)
    message = error_of(path)
    assert expected in message
    assert str(path) in message
    assert "\n" not in message
    assert len(message) < 500 + len(str(path))
    assert everything(tmp_path) == before  # nothing written, and no code run that makes a folder
    assert not Path("owned").exists()


def test_the_table_is_long_enough() -> None:
    assert len(FILES) >= 150
    assert len({name for name, _, _ in FILES}) == len(FILES)


@pytest.mark.parametrize("make", [npz(), tables(), parquet(), broken_files.pt(lambda _: broken_files.fields())])
def test_the_unbroken_files_are_valid(make: Make, tmp_path: Path) -> None:
    assert read_graph(make(tmp_path)).num_classes == 2


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (npz(), "graph.npz: it holds "),
        (parquet(f=[[1.0] * 9] * 3), "nodes.parquet: it holds 108 bytes of data, "),
        (as_arrow(parquet(f=[[1.0] * 9] * 3)), "nodes.arrow: it holds 108 bytes of data, "),
        (broken_files.pt(lambda _: broken_files.fields()), "graph.pt: it holds "),
    ],
    ids=["npz", "parquet", "arrow", "pt"],
)
def test_more_than_memory_holds_is_refused_before_reading(
    make: Make, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cvgnn.data.io.size_checks.available_memory", lambda: 100)
    message = error_of(make(tmp_path))
    assert expected in message
    assert message.endswith("more than the 100 bytes of memory that are free")


@pytest.mark.parametrize("make", [npz(), tables(), parquet(), broken_files.pt(lambda _: broken_files.fields())])
def test_a_file_without_read_permission(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make(tmp_path)
    target = path if path.is_file() else min(path.glob("nodes.*"))
    target.chmod(0)
    if os.access(target, os.R_OK):
        pytest.skip("this user may read everything")
    assert error_of(path) == f"cannot read {target}: Permission denied"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("make", [npz(), tables(), parquet(), broken_files.pt(lambda _: broken_files.fields())])
def test_random_damage_is_read_or_refused_but_never_crashes(make: Make, tmp_path: Path) -> None:
    path = make(tmp_path)
    files = [path] if path.is_file() else sorted(path.iterdir())
    rng = np.random.default_rng(0)
    messages: list[str] = []
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
            messages.append(str(error))
        file.write_bytes(good)
    assert len(messages) > 30
    # Several mistakes are told in a line each.
    assert [m for m in messages if "\n" in m and "mistakes in the tables:\n  " not in m] == []
    assert read_graph(path).num_classes == 2


def test_a_disk_that_fails_halfway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("cvgnn.data.io.npz.read_content", fail)
    path = npz()(tmp_path)
    assert error_of(path) == f"cannot read {path}: Input/output error"


@pytest.mark.parametrize(
    ("package", "make", "message"),
    [
        (
            "torch_geometric",
            broken_files.pt(lambda _: broken_files.pyg_data().Data()),
            "a file with a torch_geometric Data needs the package torch_geometric: pip install 'cvgnn[pyg]'",
        ),
    ],
    ids=["torch_geometric"],
)
def test_a_missing_package(
    package: str, make: Make, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make(tmp_path)
    for name in [name for name in sys.modules if name == package or name.startswith(f"{package}.")]:
        monkeypatch.setitem(sys.modules, name, None)
    assert message in error_of(path)


@pytest.mark.parametrize(("make", "num_nodes"), [(tables(), 4), (parquet(), 3)], ids=["csv", "parquet"])
def test_tables_need_no_optional_package(
    make: Make, num_nodes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("torch_geometric", "networkx"):
        monkeypatch.setitem(sys.modules, package, None)
    assert read_graph(make(tmp_path)).num_nodes == num_nodes
