"""Streaming ingest writes the same store, to the byte, as reading into memory, however little memory it has."""

from __future__ import annotations

import gzip
import logging
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from cvgnn.data import RandomSplit
from cvgnn.data.io import read_graph, table_file, table_parts
from cvgnn.data.store import edge_buckets, ingest, write_store
from cvgnn.data.store.ingest import ingest_tables
from cvgnn.data.table_options import TableOptions
from cvgnn.errors import CvgnnError

N, M = 300, 2000
SPLIT = RandomSplit(seed=3)


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that each table has many batches and each array many blocks."""
    monkeypatch.setattr(table_file, "_CSV_BLOCK", 1 << 12)
    monkeypatch.setattr(table_file, "_ARROW_ROWS", 97)
    monkeypatch.setattr(table_file, "_BATCH_ROWS", 89)
    monkeypatch.setattr(table_parts, "_NPY_ENTRIES", 200)
    monkeypatch.setattr(ingest, "_ROWS", 500)
    monkeypatch.setattr(edge_buckets, "_CHUNK", 256)


def ids(kind: str, rng: np.random.Generator) -> list[Any]:
    names: dict[str, Any] = {
        "text": [f"n{i:03}" + "é" * (i % 3) for i in range(N)],
        "integers": (np.unique(rng.integers(0, 10**12, 2 * N))[rng.permutation(N)] - 5 * 10**11).tolist(),
        "numbers": list(range(N)),
        "shuffled": rng.permutation(N).tolist(),
        "mixed": [*range(N - 1), "x7"],
        "floats": [f"{i * 7}.0" for i in range(N)],
    }
    return list(names[kind])


def make(
    kind: str = "text", *, weighted: bool = False, seed: int = 0
) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
    """Columns of nodes and edges, with columns of every kind, gaps, self loops, and edges in both directions."""
    rng = np.random.default_rng(seed)
    names = ids(kind, rng)
    split = rng.choice(["train", "val", "test", ""], N, p=[0.5, 0.2, 0.2, 0.1]).tolist()
    label = [
        c if part or rng.random() < 0.5 else "" for c, part in zip(rng.choice(["b", "a", "c"], N), split, strict=True)
    ]
    nodes: dict[str, list[Any]] = {
        "id": names,
        "age": [*np.round(rng.normal(40, 10, N - 1), 2).tolist(), ""],
        "income": np.round(rng.lognormal(8, 3, N), 3).tolist(),
        "region": rng.choice(["north", "south", "west", ""], N).tolist(),
        "word": [f"w{i}" for i in rng.integers(0, 100, N)],
        "member": rng.choice(["yes", "no"], N).tolist(),
        "since": [f"20{i % 20 + 10}-0{i % 9 + 1}-11" for i in rng.integers(0, 99, N)],
        "same": [1.5] * N,
        "late": [*["1.50"] * (N - 1), "odd"],
        "label": label,
        "split": split,
    }
    ends = np.minimum(rng.integers(0, N, (2, M)), rng.integers(0, N, (2, M)))
    ends[1, :20] = ends[0, :20]
    ends[:, 20:200] = ends[::-1, 200:380]
    pair = np.minimum(*ends) * N + np.maximum(*ends)
    edges: dict[str, list[Any]] = {"source": [names[i] for i in ends[0]], "target": [names[i] for i in ends[1]]}
    if weighted:
        edges["weight"] = (pair % 7 + 0.1).tolist()
    return nodes, edges


def write(folder: Path, tables: dict[str, dict[str, list[Any]]], form: str) -> Path:
    """Write tables as csv, csv.gz, parquet, or as folders of several files of these."""
    folder.mkdir(parents=True)
    for name, columns in tables.items():
        suffix = form.removeprefix("many ")
        length = len(next(iter(columns.values())))
        cuts = [0, length // 3, length // 2, length] if form.startswith("many") else [0, length]
        if len(cuts) > 2:
            (folder / name).mkdir()
        for i, (a, b) in enumerate(zip(cuts, cuts[1:], strict=False)):
            path = folder / (f"{name}/part-{i}.{suffix}" if len(cuts) > 2 else f"{name}.{suffix}")
            part = {column: cells[a:b] for column, cells in columns.items()}
            if suffix == "parquet":
                table = pa.table({c: cells if not _mixed(columns[c]) else [str(v) if v != "" else None for v in cells]
                                  for c, cells in part.items()})  # fmt: skip
                pa.parquet.write_table(table, path, row_group_size=120)
            else:
                rows = [",".join(part), *(",".join(map(str, row)) for row in zip(*part.values(), strict=True))]
                text = ("\n".join(rows) + "\n").encode()
                path.write_bytes(gzip.compress(text) if suffix.endswith("gz") else text)
    return folder


def _mixed(cells: list[Any]) -> bool:
    return len({type(cell) for cell in cells}) > 1 or isinstance(cells[0], str)


def files(store: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in store.iterdir()}


def assert_equal(folder: Path, tmp_path: Path, *, memory: int = 40_000, **options: Any) -> None:
    """The stores of both ways have the same bytes."""
    propagate = options.pop("propagate", None)
    write_store(read_graph(folder, split=SPLIT, **options), tmp_path / "whole", propagate=propagate)
    ingest_tables(folder, tmp_path / "streamed", memory=memory, split=SPLIT, propagate=propagate, **options)
    whole, streamed = files(tmp_path / "whole"), files(tmp_path / "streamed")
    assert whole.keys() == streamed.keys()
    for name, content in whole.items():
        assert content == streamed[name], name
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("form", ["csv", "csv.gz", "parquet", "many csv", "many parquet"])
@pytest.mark.parametrize("kind", ["text", "integers", "numbers", "shuffled", "mixed", "floats"])
def test_equal_to_the_byte(form: str, kind: str, tmp_path: Path) -> None:
    nodes, edges = make(kind)
    assert_equal(write(tmp_path / "in", {"nodes": nodes, "edges": edges}, form), tmp_path)
