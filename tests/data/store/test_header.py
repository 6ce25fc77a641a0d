from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cvgnn.data.store import header, open_store
from cvgnn.data.store.header import check_dtype, read_header
from cvgnn.errors import CvgnnError
from tests.data.store.cases import edit_header

Change = Callable[[dict[str, Any]], object]


def test_a_header_in_full(dense: Path) -> None:
    body = json.loads((dense / "header.json").read_text())
    assert list(body) == ["format", "version", "cvgnn", "graph", "arrays", "sha256"]
    assert body["format"] == "cvgnn-store"
    assert body["graph"] == {
        "name": "random", "num_nodes": 30, "num_edges": body["arrays"]["indices"]["shape"][0], "num_features": 7,
        "features": "dense", "num_classes": 3, "class_names": ["a", "b", "c"], "directed": False,
        "split": "random: of a test", "weighted": False, "named": True, "PX_normalization": "symmetric",
    }  # fmt: skip
    entry = body["arrays"]["x"]
    assert (entry["file"], entry["shape"], entry["dtype"]) == ("x.npy", [30, 7], "<f4")
    assert entry["bytes"] == (dense / "x.npy").stat().st_size == 128 + 30 * 7 * 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"header.json is not valid JSON \(Expecting value"),
        ("{", "header.json is not valid JSON"),
        ("[" * 100_000, "header.json is not valid JSON"),
        ("\x00\xff", "header.json is not valid JSON"),
        ('{"version": ' + "1" * 5000 + "}", "header.json is not valid JSON"),
        ("[1]", "header.json is not a JSON object"),
        ("{}", "has format None and version None, and this cvgnn reads 'cvgnn-store' of version 1; update cvgnn, or"),
        ('{"format": "zarr"}', "has format 'zarr' and version None"),
        ('{"format": "cvgnn-store"}', "has format 'cvgnn-store' and version None, and this cvgnn reads"),
        ('{"format": "cvgnn-store", "version": 2}', "and version 2, and this cvgnn reads 'cvgnn-store' of version 1"),
        ('{"format": "cvgnn-store", "version": true}', "and version True, and this cvgnn reads"),
        ('{"format": "cvgnn-store", "version": 1}', "does not match its own checksum: it was changed or cut"),
    ],
    ids=lambda value: value[:40],
)
def test_a_broken_header(text: str, message: str, dense: Path) -> None:
    (dense / "header.json").write_text(text, encoding="latin1")
    with pytest.raises(CvgnnError, match=message) as caught:
        open_store(dense)
    assert str(dense) in str(caught.value)


def test_a_header_that_was_edited(dense: Path) -> None:
    text = (dense / "header.json").read_text()
    (dense / "header.json").write_text(text.replace('"num_classes": 3', '"num_classes": 4'))
    with pytest.raises(CvgnnError, match=r"does not match its own checksum.*; write it again with 'cvgnn convert'"):
        read_header(dense)


def test_a_header_of_absurd_length(dense: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(header, "MAX_HEADER_BYTES", 100)
    with pytest.raises(CvgnnError, match=r"header.json is \d+ bytes long, more than any header"):
        read_header(dense)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda b: b.update(note="hello"), "unknown key 'note' in header.json; known: format, version"),
        (lambda b: b.pop("cvgnn"), "'cvgnn' is missing in header.json"),
        (lambda b: b.pop("graph"), "'graph' is missing in header.json"),
        (lambda b: b.pop("arrays"), "'arrays' is missing in header.json"),
        (lambda b: b.update(cvgnn=[1]), r"cvgnn in header.json must be a version, not \[1\]"),
        (lambda b: b.update(arrays=[]), r"'arrays' of header.json must be an object, not \[\]"),
        (lambda b: b.update(graph="x" * 1000), "'graph' of header.json must be an object, not 'xxx"),
        (lambda b: b["arrays"].update(x=3), "'x' of header.json must be an object, not 3"),
        (lambda b: b["graph"].pop("split"), "'split' is missing in 'graph' of header.json"),
        (lambda b: b["graph"].update(colour=1), "unknown key 'colour' in 'graph' of header.json; known: name"),
        (lambda b: b["graph"].update(num_nodes=-1), "num_nodes in 'graph' of header.json must be a whole number in 1..2147483647, not -1"),
        (lambda b: b["graph"].update(num_nodes=2**40), "num_nodes in 'graph' .* not 1099511627776"),
        (lambda b: b["graph"].update(num_nodes=30.0), "num_nodes in 'graph' .* not 30.0"),
        (lambda b: b["graph"].update(num_nodes=True), "num_nodes in 'graph' .* not True"),
        (lambda b: b["graph"].update(num_nodes="30"), "num_nodes in 'graph' .* not '30'"),
        (lambda b: b["graph"].update(num_features=0), "num_features in 'graph' .* not 0"),
        (lambda b: b["graph"].update(features="both"), "features in 'graph' of header.json must be 'dense' or 'sparse', not 'both'"),
        (lambda b: b["graph"].update(features=["dense"]), "features in 'graph' of header.json must be 'dense' or 'sparse'"),
        (lambda b: b["graph"].update(directed=None), "directed in 'graph' of header.json must be true or false, not None"),
        (lambda b: b["graph"].update(name={"a": ["b"] * 1000}), "name in 'graph' of header.json must be a string, not {'a'"),
        (lambda b: b["arrays"]["x"].pop("sha256"), "'sha256' is missing in 'x' of header.json"),
        (lambda b: b["arrays"]["x"].update(sha256="0" * 63), "sha256 in 'x' of header.json must be 64 hexadecimal digits"),
        (lambda b: b["arrays"]["x"].update(shape=[]), r"shape in 'x' of header.json must be a list of one or two sizes, not \[\]"),
        (lambda b: b["arrays"]["x"].update(shape=[30, -7]), "shape in 'x' of header.json must be"),
        (lambda b: b["arrays"]["x"].update(shape=[2**62, 7]), "shape in 'x' of header.json must be"),
        (lambda b: b["arrays"]["x"].update(shape=[30, 7, 1]), "shape in 'x' of header.json must be"),
        (lambda b: b["arrays"]["x"].update(shape="30"), "shape in 'x' of header.json must be"),
        (lambda b: b["arrays"]["x"].update(bytes=-5), "bytes in 'x' of header.json must be a whole number"),
        (lambda b: b["arrays"]["x"].update(dtype=4), "dtype in 'x' of header.json must be a string, not 4"),
        (lambda b: b["arrays"]["x"].update(file=None), "file in 'x' of header.json must be a string, not None"),
    ],
)  # fmt: skip
def test_a_header_that_says_nonsense(change: Change, message: str, dense: Path) -> None:
    edit_header(dense, change)  # type: ignore[arg-type]
    with pytest.raises(CvgnnError, match=message) as caught:
        open_store(dense)
    assert len(str(caught.value)) < 600
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda b: b["arrays"].pop("y"), "'y' is missing in 'arrays' of header.json"),
        (lambda b: b["arrays"].update(z=b["arrays"]["x"]), "unknown key 'z' in 'arrays' of header.json; known: indptr"),
        (lambda b: b["arrays"].update({"a\nb" * 100: b["arrays"]["x"]}), r"unknown key 'a\\nba"),
        (lambda b: b["graph"].update(num_nodes=29), r"header.json gives indptr the shape \[31\]; its other fields imply \[30\]"),
        (lambda b: b["graph"].update(num_edges=7), r"header.json gives indices the shape \[\d+\]; its other fields imply \[7\]"),
        (lambda b: b["graph"].update(num_features=8), r"header.json gives x the shape \[30, 7\]; its other fields imply \[30, 8\]"),
        (lambda b: b["graph"].update(weighted=True), "'edge_weight' is missing in 'arrays' of header.json"),
        (lambda b: b["graph"].update(named=False), "unknown key 'node_names' in 'arrays' of header.json; known: indptr"),
        (lambda b: b["graph"].update(features="sparse"), "'x_indptr' is missing in 'arrays' of header.json"),
        (lambda b: b["graph"].update(PX_normalization=None), "unknown key 'PX' in 'arrays' of header.json; known: indptr"),
        (lambda b: b["graph"].update(num_classes=4), "header.json has 3 class names for 4 classes"),
        (lambda b: b["arrays"]["train_ids"].update(shape=[5, 2]), r"header.json gives train_ids the shape \[5, 2\]; its other fields imply \[any\]"),
        (lambda b: b["arrays"]["x"].update(dtype="<f2"), "x must have dtype <f4 or <f8, not '<f2'"),
        (lambda b: b["arrays"]["x"].update(dtype="O"), "x must have dtype <f4 or <f8, not 'O'"),
        (lambda b: b["arrays"]["x"].update(dtype="<f4,(9999999999)f8"), "x must have dtype <f4 or <f8, not '<f4,"),
        (lambda b: b["arrays"]["indices"].update(dtype="<i8"), "indices must have dtype <i4, not '<i8'"),
        (lambda b: b["arrays"]["node_names"].update(dtype="|O"), r"node_names must have dtype <i8 or <U\[1-9\]\[0-9\]\{0,5\}, not '\|O'"),
        (lambda b: b["arrays"]["node_names"].update(dtype="<U0"), r"node_names must have dtype .*, not '<U0'"),
        (lambda b: b["arrays"]["y"].update(file="x.npy"), "file in 'y' of header.json is 'x.npy', not 'y.npy'"),
    ],
)  # fmt: skip
def test_arrays_that_do_not_fit_the_fields(change: Change, message: str, dense: Path) -> None:
    edit_header(dense, change)  # type: ignore[arg-type]
    with pytest.raises(CvgnnError, match=message):
        open_store(dense)


def test_sparse_parts_of_different_length(sparse: Path) -> None:
    edit_header(sparse, lambda b: b["arrays"]["x_values"].update(shape=[3]))
    with pytest.raises(CvgnnError, match=r"header.json gives x_values the shape \[3\]; its other fields imply \[\d+\]"):
        open_store(sparse)


def test_unknown_array() -> None:
    with pytest.raises(CvgnnError, match=r"unknown array 'xx'; known: indptr.* \(did you mean 'x'\?\)"):
        check_dtype("xx", "<f4")
