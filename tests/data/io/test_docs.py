"""docs/files.md and docs/tables.md: every example in it runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from cvgnn.data import Graph
from tests.data.io.writers import assert_same, pyg_data

TEXT = (Path(__file__).parents[3] / "docs" / "files.md").read_text(encoding="utf-8")
TEXT_OF_TABLES = (Path(__file__).parents[3] / "docs" / "tables.md").read_text(encoding="utf-8")


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", TEXT, flags=re.DOTALL)


def test_every_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pyg_data()  # imported here once, without the warnings of its own imports
    monkeypatch.chdir(tmp_path)
    nodes, edges = blocks("csv")
    Path("folder").mkdir()
    Path("folder/nodes.csv").write_text(nodes, encoding="utf-8")
    Path("folder/edges.csv").write_text(edges, encoding="utf-8")
    npz, csv, parquet, pt, objects = (run(code) for code in blocks("python"))
    assert (npz["graph"].num_nodes, npz["graph"].class_names) == (4, ("cat", "dog"))
    assert capsys.readouterr().out == "['zoe' 'adam' 'mia' 'ben' 'eve'] ('cat', 'dog')\n"
    assert csv["graph"].y.tolist() == [0, 1, 0, 1, -1]
    assert parquet["graph"].num_features == 2
    assert pt["graph"].train_ids.tolist() == [0, 1]
    assert_same(objects["arrays"], objects["scipy"])
    assert_same(objects["arrays"], objects["pyg"])
    named: Graph = objects["networkx"]
    assert named.class_names == ("even", "odd")
    assert named.split == objects["arrays"].split == "random: seed 1, fractions 0.5/0.25/0.25"


def run(code: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(compile(code, "docs/files.md", "exec"), names)
    return names


def test_the_example_of_tables_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", TEXT_OF_TABLES, flags=re.DOTALL)
    kinds = [column["kind"] for column in run(code)["graph"].preprocessing["columns"]]
    assert kinds == ["number", "number", "category", "date"]
    assert Path("run/preprocessing.json").is_file()
