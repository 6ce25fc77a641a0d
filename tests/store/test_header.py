from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cvgnn.errors import CvgnnError
from cvgnn.store import header, open_store
from cvgnn.store.header import read_header
from tests.store.cases import edit_header

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
    ("text", "said"),
    [
        ("", r"header.json is not valid JSON \(Expecting value"),
        ("{", "header.json is not valid JSON"),
        ("[" * 100_000, "header.json is not valid JSON"),
        ("\x00\xff", "header.json is not valid JSON"),
        ('{"version": ' + "1" * 5000 + "}", "header.json is not valid JSON"),
        ("[1]", "header.json is not a JSON object"),
        ("{}", "is not a cvgnn store: its header.json says format None, not 'cvgnn-store'; make one with"),
        ('{"format": "zarr"}', "says format 'zarr'"),
        ('{"format": "cvgnn-store"}', "is a store of version None, and this cvgnn reads version 1; update cvgnn, or"),
        ('{"format": "cvgnn-store", "version": 2}', "is a store of version 2, and this cvgnn reads version 1"),
        ('{"format": "cvgnn-store", "version": true}', "is a store of version True"),
        ('{"format": "cvgnn-store", "version": 1}', "does not match its own checksum, so it was changed or cut"),
    ],
    ids=lambda value: value[:40],
)
def test_a_broken_header(text: str, said: str, dense: Path) -> None:
    (dense / "header.json").write_text(text, encoding="latin1")
    with pytest.raises(CvgnnError, match=said) as caught:
        open_store(dense)
    assert str(dense) in str(caught.value)


def test_a_header_that_was_edited(dense: Path) -> None:
    text = (dense / "header.json").read_text()
    (dense / "header.json").write_text(text.replace('"num_classes": 3', '"num_classes": 4'))
    with pytest.raises(CvgnnError, match=r"does not match its own checksum.*; write it again with 'cvgnn convert'"):
        read_header(dense)


def test_a_header_of_absurd_length(dense: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(header, "MAX_HEADER_BYTES", 100)
    with pytest.raises(CvgnnError, match=r"header.json is \d+ bytes long; no store's header is"):
        read_header(dense)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda b: b.update(note="hello"), "header.json has an unknown key 'note'"),
        (lambda b: b.pop("cvgnn"), "header.json does not say which cvgnn wrote it"),
        (lambda b: b.pop("graph"), "header.json says nothing usable about 'graph'"),
        (lambda b: b.pop("arrays"), "header.json has no list of arrays"),
        (lambda b: b.update(arrays=[]), "header.json has no list of arrays"),
        (lambda b: b["arrays"].update(x=3), "header.json says nothing usable about 'x'"),
        (lambda b: b["graph"].pop("split"), "header.json has no key 'split' under 'graph'"),
        (lambda b: b["graph"].update(colour=1), "header.json has an unknown key 'colour' under 'graph'"),
        (lambda b: b["graph"].update(num_nodes=-1), "num_nodes of 'graph' in header.json must be a whole number in 1..2147483647, not -1"),
        (lambda b: b["graph"].update(num_nodes=2**40), "num_nodes of 'graph' .* not 1099511627776"),
        (lambda b: b["graph"].update(num_nodes=30.0), "num_nodes of 'graph' .* not 30.0"),
        (lambda b: b["graph"].update(num_nodes=True), "num_nodes of 'graph' .* not True"),
        (lambda b: b["graph"].update(num_nodes="30"), "num_nodes of 'graph' .* not '30'"),
        (lambda b: b["graph"].update(num_features=0), "num_features of 'graph' .* not 0"),
        (lambda b: b["graph"].update(features="both"), "features of 'graph' in header.json must be 'dense' or 'sparse', not 'both'"),
        (lambda b: b["graph"].update(features=["dense"]), "features of 'graph' in header.json must be 'dense' or 'sparse'"),
        (lambda b: b["graph"].update(directed=None), "directed of 'graph' in header.json must be true or false, not None"),
        (lambda b: b["graph"].update(name={"a": ["b"] * 1000}), "name of 'graph' in header.json must be a string, not {'a'"),
        (lambda b: b["arrays"]["x"].pop("sha256"), "header.json has no key 'sha256' under 'x'"),
        (lambda b: b["arrays"]["x"].update(sha256="0" * 63), "sha256 of 'x' in header.json must be 64 hexadecimal digits"),
        (lambda b: b["arrays"]["x"].update(shape=[]), r"shape of 'x' in header.json must be a list of one or two sizes, not \[\]"),
        (lambda b: b["arrays"]["x"].update(shape=[30, -7]), "shape of 'x' in header.json must be"),
        (lambda b: b["arrays"]["x"].update(shape=[2**62, 7]), "shape of 'x' in header.json must be"),
        (lambda b: b["arrays"]["x"].update(shape=[30, 7, 1]), "shape of 'x' in header.json must be"),
        (lambda b: b["arrays"]["x"].update(shape="30"), "shape of 'x' in header.json must be"),
        (lambda b: b["arrays"]["x"].update(bytes=-5), "bytes of 'x' in header.json must be a whole number"),
        (lambda b: b["arrays"]["x"].update(dtype=4), "dtype of 'x' in header.json must be a dtype such as '<f4', not 4"),
        (lambda b: b["arrays"]["x"].update(file=None), "file of 'x' in header.json must be a file name, not None"),
    ],
)  # fmt: skip
def test_a_header_that_says_nonsense(change: Change, said: str, dense: Path) -> None:
    edit_header(dense, change)  # type: ignore[arg-type]
    with pytest.raises(CvgnnError, match=said) as caught:
        open_store(dense)
    assert len(str(caught.value)) < 600
    assert "\n" not in str(caught.value)
