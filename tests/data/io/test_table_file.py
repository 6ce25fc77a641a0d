"""CSV files: pyarrow and the csv module read the same, and each reads what the other would misread."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cvgnn.data.io import csv_file
from cvgnn.data.io.csv_file import CsvFile
from cvgnn.data.io.mistakes import Mistakes
from cvgnn.data.io.table_file import categories, positions


def read_columns(table: CsvFile) -> tuple[dict[str, Any], dict[str, Any]]:
    mistakes = Mistakes()
    found = table.read_columns(names=["id"], numbers=["f"], others=[], mistakes=mistakes)
    mistakes.check()
    return found


def read(path: Path, text: str | bytes) -> tuple[list[Any], list[float]]:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    columns, cells = read_columns(CsvFile(path))
    return columns["id"].to_pylist(), cells["f"].tolist()


@pytest.mark.parametrize(
    "text",
    [
        "id,f\n1,0.1\n2,1e-3\n",
        "id,f\r\n1,0.1\r\n\r\n-2,-7\r\n",
        "id,f\r1,0.1\r2,3",
        '"id","f"\n1,0.1\n2,3\n',
        "id,f\n 1, 0.1\n  2,3 \n",
        "f,id\n0.1,\n3,a\n",
        "id,f\n007,1\n7,2\n",
        "id,f\n+7,1\n7 ,2\n",
        "id,f\n0x7,1\n-0,2\n",
        "id,f\né,1\n日本,2\n",
        'id,f\na"b,1\nc,2\n',
        "id,f\n1,0.1000000014901161138\n",
    ],
)
def test_pyarrow_and_csv_module_agree(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fast = read(tmp_path / "t.csv", text)
    monkeypatch.setattr(CsvFile, "_types_to_try", lambda *_: [None] * 5)
    assert read(tmp_path / "t.csv", text) == fast


def test_numbers_that_only_python_accepts(tmp_path: Path) -> None:
    assert read(tmp_path / "t.csv", "id,f\na,1_000\nb,+2\n") == (["a", "b"], [1000.0, 2.0])


def test_quotes_and_spaces(tmp_path: Path) -> None:
    ids, _ = read(tmp_path / "t.csv", 'id,f\n" a", 1\n "b", 2\n c,3\n"",4\n')
    assert ids == [" a", "b", "c", None]


def test_a_plain_file_is_not_read_by_the_csv_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.csv"
    path.write_text("id,f\n" + "".join(f"{i},{i}\n" for i in range(10_000)))
    table = CsvFile(path)
    rows = CsvFile._csv_rows
    monkeypatch.setattr(CsvFile, "_csv_rows", lambda self, mistakes: islice(rows(self, mistakes), 1001))
    columns, cells = read_columns(table)
    assert columns["id"].to_pylist() == cells["f"].tolist() == list(range(10_000))


def test_several_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Integers first and strings later: the whole column is strings."""
    monkeypatch.setattr(csv_file, "_CSV_BLOCK", 64)
    names = [*map(str, range(100)), "x", *map(str, range(100, 200))]
    ids, numbers = read(tmp_path / "t.csv", "id,f\n" + "".join(f"{name},{i}\n" for i, name in enumerate(names)))
    assert ids == names
    assert numbers == list(range(201))


def test_positions_and_categories(tmp_path: Path) -> None:
    def column(text: str) -> Any:
        (tmp_path / "t.csv").write_text(f"id,f\n{text}")
        return read_columns(CsvFile(tmp_path / "t.csv"))[0]["id"]

    ids = column("5,0\n7,0\n5,0\n")
    assert positions(ids, ids).tolist() == [0, 1, 0]
    assert positions(column("7,0\n,0\n07,0\n"), ids).tolist() == [1, -1, -1]
    labels, codes = categories(column("b,0\n,0\na,0\nb,0\n"))
    assert (labels, codes.tolist()) == (["b", "a"], [0, -1, 1, 0])


@pytest.mark.parametrize("ids", [["007", "7"], ["0", "10", "-0"], ["+7", "7"], ["7 ", "7"], ["100", "20", "0"]])
def test_ids_keep_their_text(ids: list[str], tmp_path: Path) -> None:
    """The fast reader of integers gives what the csv module gives."""
    path = tmp_path / "t.csv"
    path.write_text("id,f\n" + "".join(f"{name},0.05\n" for name in ids))
    columns, _ = read_columns(CsvFile(path))
    assert list(map(str, columns["id"].to_pylist())) == ids
    assert columns["id"].type == ("int64" if ids[-1] == "0" else "large_string")


def test_positions_of_integers() -> None:
    ids = pa.array([10, 7, 10, 3])
    for values in ([3, 10, 7], [99, 3, -(2**62)], [2**62]):
        column = pa.array(values)
        far = pa.array([*ids.to_pylist(), 2**60])  # too wide for a table
        assert positions(column, ids).tolist() == positions(column, far).tolist()
