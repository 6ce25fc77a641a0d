from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cvgnn.data import Graph, SparseFeatures, from_edges
from cvgnn.data.store import describe_store, open_store, verify_store, write_store
from cvgnn.data.store import save_graph as save
from cvgnn.data.store import store_writer as writer
from cvgnn.errors import CvgnnError
from tests.data.store.cases import KINDS, assert_same, make_graph


@pytest.mark.parametrize("kind", KINDS)
def test_round_trip(kind: str, tmp_path: Path) -> None:
    g = make_graph(**KINDS[kind])
    write_store(g, tmp_path / "a")
    opened = open_store(tmp_path / "a")
    assert_same(opened, g)
    opened.check_structure()
    verify_store(tmp_path / "a")
    write_store(opened, tmp_path / "b")  # a store is a source like any other
    assert_same(open_store(tmp_path / "b"), g)
    assert describe_store(tmp_path / "a") == describe_store(tmp_path / "b")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Any small graph: isolated nodes, no edges, repeated columns in sparse rows, strange names."""
    n, f, c = draw(st.integers(1, 7)), draw(st.integers(1, 4)), draw(st.integers(1, 4))
    node, number = st.integers(0, n - 1), st.floats(-(2.0**99), 2.0**99, width=32)
    edges = draw(st.lists(st.tuples(node, node), max_size=12, unique_by=lambda e: (min(e), max(e))))
    part = draw(st.lists(st.integers(0, 3), min_size=n, max_size=n))
    part[draw(node)] = 1
    y = [draw(st.integers(-1 if p == 0 else 0, c - 1)) for p in part]
    dtype = draw(st.sampled_from([torch.float32, torch.float64]))
    x: torch.Tensor | SparseFeatures
    if draw(st.booleans()):
        rows = [draw(st.lists(st.tuples(st.integers(0, f - 1), number), max_size=3)) for _ in range(n)]
        indptr = torch.tensor([0, *np.cumsum([len(row) for row in rows])])
        entries = [entry for row in rows for entry in row]
        x = SparseFeatures(
            indptr,
            torch.tensor([column for column, _ in entries], dtype=torch.int32),
            torch.tensor([value for _, value in entries], dtype=dtype),
            f,
        )
    else:
        x = torch.tensor([[draw(number) for _ in range(f)] for _ in range(n)], dtype=dtype)
    text = st.text(max_size=5)
    names = draw(st.none() | st.lists(st.integers(-(2**63), 2**63 - 1), min_size=n, max_size=n) | st.lists(text, min_size=n, max_size=n))  # fmt: skip
    weights = draw(st.none() | st.lists(st.floats(1e-3, 1e3), min_size=len(edges), max_size=len(edges)))
    return from_edges(
        np.array(edges, dtype=np.int64).reshape(-1, 2).T,
        x=x,
        y=y,
        num_classes=c,
        train_ids=[v for v in range(n) if part[v] == 1],
        val_ids=[v for v in range(n) if part[v] == 2],
        test_ids=[v for v in range(n) if part[v] == 3],
        edge_weight=weights,
        directed=draw(st.booleans()),
        name=draw(st.text(max_size=10)),
        node_names=None if names is None else np.array(names),
        class_names=draw(st.none() | st.lists(text, min_size=c, max_size=c)),
        split=draw(st.text(max_size=10)),
    )


@given(g=graphs(), propagate=st.sampled_from([None, "symmetric", "random-walk"]))
@settings(max_examples=30, deadline=None, derandomize=True)
def test_round_trip_of_any_graph(g: Graph, propagate: Any) -> None:
    with tempfile.TemporaryDirectory() as folder, mock.patch("os.fsync"):  # the disk's pace is not what is tried here
        write_store(g, Path(folder) / "a", propagate=propagate)
        opened = open_store(Path(folder) / "a")
        assert_same(dataclasses.replace(opened, PX=None, PX_normalization=None, validated=True), g)
        write_store(opened, Path(folder) / "b")
        assert_same(open_store(Path(folder) / "b"), opened)


def test_pieces_do_not_matter_and_views_are_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    g = make_graph(n=41, features=5)
    turned = dataclasses.replace(g, x=g.x.T.contiguous().T if isinstance(g.x, torch.Tensor) else g.x)
    monkeypatch.setattr(writer, "_PIECE", 12)
    write_store(turned, tmp_path / "a")
    assert_same(open_store(tmp_path / "a"), g)


def test_progress_goes_from_file_to_file(tmp_path: Path) -> None:
    steps: list[tuple[str, float]] = []
    write_store(make_graph(), tmp_path / "a", propagate="symmetric", progress=lambda *step: steps.append(step))
    stages = list(dict.fromkeys(stage for stage, _ in steps))
    assert stages == [*(f"{n}.npy" for n in ("indptr", "indices", "y", "train_ids", "val_ids", "test_ids", "x")), "P X", "checksums"]  # fmt: skip
    for stage in stages:
        shares = [share for of, share in steps if of == stage]
        assert shares == sorted(shares)
        assert shares[-1] == 1.0


@pytest.mark.parametrize(
    ("names", "stored"),
    [
        (np.array([3, 1], dtype=np.int16), "<i8"),
        (np.array([3, 2**63 - 1], dtype=np.uint64), "<i8"),
        (np.array(["", ""]), "<U1"),
        (np.array(["x", "long"], dtype=object), "<U4"),
        (np.array(["x", "long"], dtype=np.dtypes.StringDType()), "<U4"),
        (np.array(["ab", "c"], dtype=">U2"), "<U2"),
    ],
    ids=str,
)
def test_names_are_stored_plainly(names: np.ndarray, stored: str) -> None:
    plain = save.plain_names(names)
    assert plain.dtype.str == stored
    assert plain.tolist() == list(names)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (np.array([1, 2**63], dtype=np.uint64), "node_names must fit 64-bit signed integers"),
        (np.array([1.5, 2.0]), "node_names must be integers or strings to be stored, not float64"),
        (np.array(["a", 3], dtype=object), "node_names must be integers or strings to be stored, not object"),
        (np.array([b"a", b"b"]), r"not \|S1; turn them into strings"),
        (np.array(["a", "b\0"], dtype=object), "ends in a NUL character"),
    ],
    ids=str,
)
def test_names_that_cannot_be_stored(names: np.ndarray, message: str) -> None:
    with pytest.raises(CvgnnError, match=message):
        save.plain_names(names)


def test_unknown_normalization_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(CvgnnError, match="unknown normalization 'sym'; known: symmetric, random-walk"):
        write_store(make_graph(), tmp_path / "a", propagate="sym")  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_the_kept_product_is_the_one_asked_for(tmp_path: Path) -> None:
    g = make_graph()
    write_store(g, tmp_path / "a", propagate="symmetric")
    a = open_store(tmp_path / "a")
    write_store(a, tmp_path / "same")
    write_store(a, tmp_path / "other", propagate="random-walk")
    write_store(g, tmp_path / "fresh", propagate="random-walk")
    assert_same(open_store(tmp_path / "same"), a)
    assert_same(open_store(tmp_path / "other"), open_store(tmp_path / "fresh"))
