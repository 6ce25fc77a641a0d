"""The formats of tables, and the table in a file or in a folder of files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cvgnn.data.io.columnar_file import ArrowFile, ParquetFile
from cvgnn.data.io.csv_file import CsvFile
from cvgnn.data.io.size_checks import FileError, reading
from cvgnn.data.io.table_file import TableFile
from cvgnn.data.io.table_parts import NpyTable, TableParts
from cvgnn.utils.formatting import join_printable

TABLE_CLASSES: dict[str, Callable[[Path], TableFile]] = {
    ending + packed: CsvFile for ending in (".csv", ".tsv") for packed in ("", ".gz", ".zst")
} | {".parquet": ParquetFile, ".arrow": ArrowFile, ".feather": ArrowFile}  # fmt: skip


def suffixes_of(folder: Path, name: str) -> list[str]:
    """The endings of the files of a table that are there; an empty one for a folder of files."""
    endings = [*TABLE_CLASSES, *([".npy"] if name in ("edges", "features") else [])]
    found = [suffix for suffix in endings if (folder / f"{name}{suffix}").exists()]
    return [*found, ""] if (folder / name).is_dir() else found


def open_file(path: Path, what: str) -> TableFile:
    """The table in a file that the user named; `what` it is, for errors."""
    table_class = TABLE_CLASSES.get(_ending(path))
    if table_class is None:
        raise FileError(f"{path}: {what} must end in one of {', '.join(TABLE_CLASSES)}")
    with reading(path):
        return table_class(path)


def open_table(path: Path) -> TableFile:
    """The table in a file, or in all files of a folder, but for those that begin with . or _ as marks of success do."""
    if _ending(path):
        return TABLE_CLASSES[_ending(path)](path)
    if not path.is_dir():
        return NpyTable(path)
    files = sorted(file for file in path.iterdir() if file.name[0] not in "._")
    if not files:
        raise FileError(f"{path} is empty; it must hold files of a table: CSV, Parquet or Arrow")
    endings = {_ending(file) for file in files}
    if len(endings) > 1 or not endings < TABLE_CLASSES.keys():
        has = join_printable(file.name for file in files[:10])[:200]
        raise FileError(f"{path} must hold files of one kind, CSV, Parquet or Arrow; it holds: {has}")
    return TableParts(path, [open_table(file) for file in files])


def _ending(path: Path) -> str:
    return next((ending for ending in TABLE_CLASSES if path.name.endswith(ending)), "")
