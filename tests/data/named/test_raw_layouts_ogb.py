"""ogbn-arxiv on small files in OGB's layout, against a literal reading; directed and not; what is kept when parsed."""

from __future__ import annotations

import csv
import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from cvgnn.data import Graph
from cvgnn.data.named import raw_layouts
from cvgnn.data.named.catalog import CATALOG
from cvgnn.data.named.raw_layouts import read_arxiv
from cvgnn.errors import CvgnnError
from tests.data.named.layouts import small, write_arxiv, write_csv


def literal(path: Path) -> list[list[str]]:
    """OGB's `pd.read_csv(path, compression="gzip", header=None)`, without pandas."""
    with gzip.open(path, "rt") as file:
        return list(csv.reader(file))


def pairs(g: Graph) -> list[tuple[int, int]]:
    row = torch.repeat_interleave(torch.arange(g.num_nodes), g.degree)
    return list(zip(row.tolist(), g.indices.tolist(), strict=True))


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("loops", [False, True])
def test_a_literal_reading_gives_the_same(tmp_path: Path, directed: bool, loops: bool) -> None:
    folder = write_arxiv(tmp_path / "arxiv", small(symmetric=False, loops=loops))
    g = read_arxiv(folder, directed=directed)
    edges = {(int(u), int(v)) for u, v in literal(folder / "raw" / "edge.csv.gz") if u != v}
    if not directed:
        edges |= {(v, u) for u, v in edges}
    assert pairs(g) == sorted(edges)
    x = np.array([[float(value) for value in row] for row in literal(folder / "raw" / "node-feat.csv.gz")])
    np.testing.assert_array_equal(g.x, x.astype(np.float32), strict=False)
    assert g.x.dtype == torch.float32
    assert g.y.tolist() == [int(c) for (c,) in literal(folder / "raw" / "node-label.csv.gz")]
    for ids, file in ((g.train_ids, "train"), (g.val_ids, "valid"), (g.test_ids, "test")):
        assert ids.tolist() == sorted(int(v) for (v,) in literal(folder / "split" / "time" / f"{file}.csv.gz"))
    assert g.num_classes == 4
    assert g.directed is directed
    assert g.name == ("ogbn-arxiv (directed)" if directed else "ogbn-arxiv")


def test_directed_follows_the_released_code(tmp_path: Path) -> None:
    """There, row u of the matrix holds the papers that u cites: CogDL's `Graph(edge_index=...)` is CSR by its first row."""
    g = small(symmetric=False)
    g.edges = [(0, 1), (0, 2), (5, 0)]
    graph = read_arxiv(write_arxiv(tmp_path, g), directed=True)
    assert pairs(graph) == [(0, 1), (0, 2), (5, 0)]
    assert graph.num_edges + graph.num_nodes == 3 + 23  # how Table 2 counts: 1,166,243 + 169,343 = 1,335,586
    assert pairs(read_arxiv(tmp_path)) == [(0, 1), (0, 2), (0, 5), (1, 0), (2, 0), (5, 0)]


def rows(file: str, *lines: str) -> Callable[[Path], None]:
    return lambda folder: write_csv(folder / file, list(lines))


def cut(file: str) -> Callable[[Path], None]:
    return lambda folder: (folder / file).write_bytes((folder / file).read_bytes()[:-10]) and None


MALFORMED = {
    "no edges file": (lambda folder: (folder / "raw/edge.csv.gz").unlink(), r"the file edge\.csv\.gz is missing in the folder .*raw"),
    "no split file": (lambda folder: (folder / "split/time/valid.csv.gz").unlink(), r"the file valid\.csv\.gz is missing"),
    "edges cut": (cut("raw/edge.csv.gz"), r"edge\.csv\.gz is broken"),
    "features cut": (cut("raw/node-feat.csv.gz"), r"node-feat\.csv\.gz is broken"),
    "edge of three": (rows("raw/edge.csv.gz", "0,1", "1,2,3"), r"edge\.csv\.gz is broken \(CSV parse error: Row #2: Expected 2 columns, got 3: 1,2,3\); take it again"),
    "edge of words": (rows("raw/edge.csv.gz", "0,1", "a,b"), r"edge\.csv\.gz is broken \(In CSV column #0: Row #2: CSV conversion error to int32: invalid value 'a'\)"),
    "edge count": (rows("raw/num-edge-list.csv.gz", "7"), r"edge\.csv\.gz is broken \(it has more than 7 rows\)"),
    "node count": (rows("raw/num-node-list.csv.gz", "24"), r"node-label\.csv\.gz has 23 rows, but num-node-list\.csv\.gz says 24"),
    "two graphs": (rows("raw/num-node-list.csv.gz", "11", "12"), r"num-node-list\.csv\.gz is broken \(it has more than 1 rows\)"),
    "too few features": (rows("raw/node-feat.csv.gz", *["1,2"] * 22), r"node-feat\.csv\.gz has 22 rows"),
    "ragged features": (rows("raw/node-feat.csv.gz", *["1,2"] * 22, "1"), r"node-feat\.csv\.gz is broken \(CSV parse error: Row #23: Expected 2 columns, got 1: 1\)"),
    "NaN": (rows("raw/node-feat.csv.gz", *["1,2"] * 22, "1,nan"), r"x has a NaN or infinite value at node 22, column 1"),
    "infinite": (rows("raw/node-feat.csv.gz", *["1,2"] * 22, "1,1e99"), r"x has a NaN or infinite value at node 22, column 1"),
    "label a float": (rows("raw/node-label.csv.gz", *["0.0"] * 23), r"node-label\.csv\.gz is broken \(In CSV column #0: Row #1: CSV conversion error to int32: invalid value '0\.0'\)"),
    "label negative": (rows("raw/node-label.csv.gz", *["-3"] * 23), r"do not fit together: y gives node 0 the class -"),
    "train out of range": (rows("split/time/train.csv.gz", "23"), r"do not fit together: train_ids must lie in 0\.\.22; found 23"),
    "test negative": (rows("split/time/test.csv.gz", "-1"), r"do not fit together: test_ids must lie in 0\.\.22; found -1"),
    "overlap": (rows("split/time/test.csv.gz", *map(str, range(23))), r"is in both train_ids and test_ids"),
    "train twice": (rows("split/time/train.csv.gz", "1", "1"), r"train_ids names node 1 twice"),
    "empty train": (rows("split/time/train.csv.gz"), r"train\.csv\.gz is broken \(Empty CSV file\)"),
}  # fmt: skip


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_files_give_a_sentence(tmp_path: Path, case: str) -> None:
    folder = write_arxiv(tmp_path / "arxiv", small(symmetric=False))
    damage, sentence = MALFORMED[case]
    damage(folder)
    with pytest.raises(CvgnnError, match=sentence) as caught:
        read_arxiv(folder, parsed=tmp_path / "parsed.npz")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("edge", "shown"), [("0,23", r"\(0, 23\)"), ("-1,0", r"\(-1, 0\)")])
def test_an_edge_to_nowhere(tmp_path: Path, edge: str, shown: str) -> None:
    folder = write_arxiv(tmp_path, small(symmetric=False))
    write_csv(folder / "raw" / "edge.csv.gz", ["0,1", edge])
    write_csv(folder / "raw" / "num-edge-list.csv.gz", ["2"])
    with pytest.raises(CvgnnError, match=rf"edge 1 in .*edge\.csv\.gz, {shown}, names a node that does not exist"):
        read_arxiv(folder)


class TestParsed:
    """The arrays kept beside the raw files in the cache."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        return write_arxiv(tmp_path / "raw" / "arxiv", small(symmetric=False))

    @pytest.fixture
    def parsed(self, tmp_path: Path) -> Path:
        return tmp_path / "parsed.npz"

    @pytest.fixture
    def parses(self, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
        """The folders that were parsed."""
        folders: list[Path] = []
        parse = raw_layouts._parse
        monkeypatch.setattr(raw_layouts, "_parse", lambda folder: folders.append(folder) or parse(folder))
        return folders

    def assert_same(self, a: Graph, b: Graph) -> None:
        for name in ("indptr", "indices", "x", "y", "train_ids", "val_ids", "test_ids"):
            assert torch.equal(getattr(a, name), getattr(b, name)), name

    def test_the_second_load_does_not_parse(self, folder: Path, parsed: Path, parses: list[Path]) -> None:
        first = read_arxiv(folder, parsed=parsed)
        assert sorted(path.name for path in parsed.parent.iterdir()) == ["parsed.npz", "raw"]
        assert len(parses) == 1
        self.assert_same(read_arxiv(folder, parsed=parsed), first)
        assert read_arxiv(folder, directed=True, parsed=parsed).directed
        assert len(parses) == 1

    @pytest.mark.parametrize("file", CATALOG["ogbn-arxiv"].files)
    def test_a_changed_raw_file_is_parsed_again(
        self, folder: Path, parsed: Path, file: str, parses: list[Path]
    ) -> None:
        read_arxiv(folder, parsed=parsed)
        os.utime(folder / file, ns=(1, 1))
        read_arxiv(folder, parsed=parsed)
        assert len(parses) == 2

    @pytest.mark.parametrize("damage", ["cut", "text", "empty", "no key", "changed"])
    def test_a_damaged_copy_is_made_again(self, folder: Path, parsed: Path, damage: str, parses: list[Path]) -> None:
        first = read_arxiv(folder, parsed=parsed)
        good = parsed.read_bytes()
        if damage == "no key":
            np.savez(parsed, x=np.zeros(3))
        else:
            middle = len(good) // 2
            data = {"cut": good[:middle], "text": b"hello", "empty": b"", "changed": good[:700] + b"????" + good[704:]}
            parsed.write_bytes(data[damage])
        self.assert_same(read_arxiv(folder, parsed=parsed), first)
        assert len(parses) == 2
        self.assert_same(read_arxiv(folder, parsed=parsed), first)
        assert len(parses) == 2  # the new copy is used

    def test_a_cache_that_cannot_be_written_is_no_mistake(self, folder: Path, tmp_path: Path) -> None:
        read_arxiv(folder, parsed=tmp_path / "absent" / "parsed.npz")
        assert not (tmp_path / "absent").exists()

    def test_the_key_names_every_raw_file(self, folder: Path) -> None:
        assert set(json.loads(raw_layouts._key(folder).tobytes())) == {"version", *CATALOG["ogbn-arxiv"].files}
