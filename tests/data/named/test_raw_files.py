"""Numbers from files by blocks, and the sentence for each broken file."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from cvgnn.data.named import raw_files as raw
from cvgnn.data.named.raw_files import read_csv, read_json, read_npy, read_npz
from cvgnn.errors import CvgnnError


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "table.csv.gz"
    path.write_bytes(gzip.compress(text.encode() if isinstance(text, str) else text))
    return path


@pytest.mark.parametrize("block", [70, 100, 1000, 2**23])
@pytest.mark.parametrize("end", ["\n", ""], ids=["newline", "none"])
def test_blocks_of_any_size_give_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int, end: str
) -> None:
    monkeypatch.setattr(raw, "_BLOCK", block)
    values = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    path = write(tmp_path, "\n".join(",".join(map(repr, row)) for row in values.tolist()) + end)
    read = read_csv(path, np.float32)
    assert read.dtype == np.float32
    np.testing.assert_array_equal(read, values)


def test_values_are_rounded_once(tmp_path: Path) -> None:
    """Through float64, as pandas and OGB do."""
    words = ["-0.057943", "1e-3", "0.1", "16777217", "3", "-0"]
    read = read_csv(write(tmp_path, "\n".join(words)), np.float32)
    np.testing.assert_array_equal(read[:, 0], np.array([float(word) for word in words]).astype(np.float32))


def test_windows_line_ends(tmp_path: Path) -> None:
    assert read_csv(write(tmp_path, "1,2\r\n3,4\r\n"), np.int32).tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("block", [16, 2**23], ids=["small blocks", "one block"])
@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "1,2\n3,x\n",
            r"table\.csv\.gz is broken \(In CSV column #1: Row #2: CSV conversion error to int32: invalid value 'x'\); take it again",
        ),
        ("1,2\n3,4.0\n", r"Row #2: CSV conversion error to int32: invalid value '4\.0'"),
        ("1,2\n3,\n", r"Row #2: CSV conversion error to int32: invalid value ''"),
        ("1,2\n3,nan\n", r"Row #2: CSV conversion error to int32: invalid value 'nan'"),
        ("1,2\n3,4\n5\n", r"Row #3: Expected 2 columns, got 1"),
        ("1,2\n3,4,5\n", r"Row #2: Expected 2 columns, got 3"),
        ("1,2\n\n3,4\n", r"Row #2: CSV conversion error to int32: invalid value ''"),
        ("1,2\n3,99999999999\n", r"Row #2: CSV conversion error to int32: invalid value '99999999999'"),
        ("# head\n1,2\n", r"Row #1: Expected 2 columns, got 1"),
        ("1 2\n", r"Row #1: Expected 2 columns, got 1"),
        ("", r"table\.csv\.gz is broken \(Empty CSV file\)"),
        (b"\xff\xfe1,2\n", r"table\.csv\.gz is broken"),
    ],
)
def test_bad_rows_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | bytes, sentence: str, block: int
) -> None:
    monkeypatch.setattr(raw, "_BLOCK", block)
    with pytest.raises(CvgnnError, match=sentence):
        read_csv(write(tmp_path, text), np.int32, 2)


def test_a_bad_number_is_named(tmp_path: Path) -> None:
    with pytest.raises(CvgnnError, match=r"Row #1: CSV conversion error to double: invalid value 'one'"):
        read_csv(write(tmp_path, "one,2\n"), np.float32)


def test_a_line_without_end_is_no_table(tmp_path: Path) -> None:
    """A gzip bomb of one line is not collected in memory."""
    path = write(tmp_path, b"1" * 40_000_000)
    assert path.stat().st_size < 100_000
    with pytest.raises(
        CvgnnError, match=r"table\.csv\.gz is broken \(straddling object straddles two block boundaries"
    ):
        read_csv(path, np.int64)


def test_reading_stops_where_no_more_rows_are_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gzip bomb of many lines is not read to its end."""
    monkeypatch.setattr(raw, "_BLOCK", 400)
    path = write(tmp_path, "1,2\n" * 1000)
    progress = []
    monkeypatch.setattr(raw.ProgressReporter, "show_bytes", lambda self, done, total: progress.append(done))
    with pytest.raises(CvgnnError, match=r"table\.csv\.gz is broken \(it has more than 50 rows\)"):
        read_csv(path, np.int64, max_rows=50)
    assert len(progress) == 1  # the first block of 100 rows, of ten


@pytest.mark.parametrize("damage", ["text", "cut", "changed", "empty"])
def test_broken_gzip(tmp_path: Path, damage: str) -> None:
    good = gzip.compress(b"1,2\n" * 1000)
    data = {"text": b"1,2\n", "cut": good[:-12], "changed": good[:-5] + b"\0" * 5, "empty": b""}[damage]
    (tmp_path / "table.csv.gz").write_bytes(data)
    with pytest.raises(CvgnnError, match=r"table\.csv\.gz is broken \(.*take it again from its source"):
        read_csv(tmp_path / "table.csv.gz", np.int64)


def test_missing_and_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(CvgnnError, match=r"the file a\.npy is missing in the folder"):
        read_npy(tmp_path / "a.npy")
    (tmp_path / "a.json").mkdir()
    with pytest.raises(CvgnnError, match=r"cannot read .*a\.json: Is a directory; check the file"):
        read_json(tmp_path / "a.json")


def test_npz_members_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez_compressed(tmp_path / "a.npz", zeros=np.zeros(100_000))
    monkeypatch.setattr(raw, "MOST_BYTES", 500_000)
    with pytest.raises(
        CvgnnError, match=r"a\.npz is broken \('zeros' has 800128 bytes when unpacked, more than any array has\)"
    ):
        read_npz(tmp_path / "a.npz", "zeros")


def test_npz_says_what_it_has(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", one=[1], two=[2])
    assert [array.tolist() for array in read_npz(tmp_path / "a.npz", "two", "one")] == [[2], [1]]
    with pytest.raises(CvgnnError, match=r"a\.npz is broken \(no array 'three', only one, two\)"):
        read_npz(tmp_path / "a.npz", "one", "three")
