"""Counts against Table 2: the real Planetoid files, and graphs that do not fit."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from cvgnn.data.named import load
from cvgnn.data.named.catalog import CATALOG
from cvgnn.data.named.dataset_loader import compare, verify
from cvgnn.errors import CvgnnError
from tests.data.named.layouts import small, write_arxiv


@pytest.mark.parametrize(("name", "edges"), [("cora", 13264), ("citeseer", 12431)])
def test_the_real_files_are_table_2s(shared_data: Path, name: str, edges: int) -> None:
    checks = verify(name, shared_data)
    assert all(check.passed for check in checks)
    assert [(c.column, c.source) for c in checks[:4]] == [
        ("nodes", "Table 2"),
        ("features", "Table 2"),
        ("edges, with self loops", "Table 2"),
        ("classes", "Table 2"),
    ]
    assert checks[2].found == edges
    assert [c.found for c in checks[4:]] == list(CATALOG[name].counts.split)


def test_pubmed_is_not_in_table_2(shared_data: Path) -> None:
    checks = verify("pubmed", shared_data)
    assert all(check.passed for check in checks)
    assert {check.source for check in checks} == {"upstream"}


def test_the_bundled_one_needs_no_root() -> None:
    assert all(check.passed for check in verify("citeseer"))


@pytest.mark.parametrize("field", ["nodes", "features", "table2_edges", "classes"])
def test_a_mismatch_is_told_in_its_column(field: str) -> None:
    counts = CATALOG["citeseer"].counts
    wrong = dataclasses.replace(counts, **{field: getattr(counts, field) + 1})
    failed = [check for check in compare(load("citeseer"), wrong) if not check.passed]
    assert [check.found for check in failed] == [getattr(counts, field)]
    assert failed[0].published == getattr(counts, field) + 1


def test_a_mismatch_in_the_split() -> None:
    wrong = dataclasses.replace(CATALOG["citeseer"].counts, split=(120, 501, 1000))
    assert [c.column for c in compare(load("citeseer"), wrong) if not c.passed] == ["validation nodes"]


def test_arxiv_is_counted_with_its_directions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As 1,166,243 citations and 169,343 self loops make 1,335,586."""
    g = small(symmetric=False)
    write_arxiv(tmp_path, g)
    counts = dataclasses.replace(
        CATALOG["ogbn-arxiv"].counts,
        nodes=23,
        features=5,
        classes=4,
        table2_edges=len(set(g.edges)) + 23,
        split=(10, 6, 7),
    )
    monkeypatch.setitem(CATALOG, "ogbn-arxiv", dataclasses.replace(CATALOG["ogbn-arxiv"], counts=counts))
    assert all(check.passed for check in verify("ogbn-arxiv", tmp_path))
    with pytest.raises(CvgnnError, match="'ogbn-arxiv' does not compare"):
        compare(load("ogbn-arxiv", tmp_path), counts)


def test_an_unknown_name() -> None:
    with pytest.raises(CvgnnError, match="unknown dataset 'arxiv'; known: citeseer, cora"):
        verify("arxiv")


def test_a_generated_one_has_nothing_to_verify() -> None:
    with pytest.raises(CvgnnError, match="'synthetic-arxiv' is generated, so there is nothing to verify"):
        verify("synthetic-arxiv")
