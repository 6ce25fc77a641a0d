"""A table with named columns, whatever file it is in: words become a vocabulary and codes, numbers a matrix."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np

from cvgnn.errors import CvgnnError
from cvgnn.graph.names import shown


@final
@dataclass(frozen=True, eq=False, slots=True)
class Words:
    """A column of words: row `i` holds `vocabulary[codes[i]]`, or nothing where `codes[i]` is -1.

    Args:
        vocabulary: each word once, in the order of first appearance.
        codes: int64 `[rows]`.
    """

    vocabulary: list[str]
    codes: np.ndarray


class Table(ABC):
    """One table of a folder.

    Args:
        path: its file.
        columns: the names of its columns, each once.
    """

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self.path = path
        self.columns = tuple(columns)
        twice = [name for i, name in enumerate(self.columns) if name in self.columns[:i]]
        if twice:
            raise CvgnnError(f"{path} has two columns {twice[0][:80]!r}; give each column a name of its own")

    @abstractmethod
    def read(
        self, *, words: Sequence[str], numbers: Sequence[str], dtype: type[np.floating]
    ) -> tuple[dict[str, Words], np.ndarray]:
        """The asked-for columns, in one pass.

        Args:
            words: columns of names.
            numbers: columns of numbers; every cell must hold one, and a finite one.
            dtype: of the numbers.

        Returns:
            Words by column, and the numbers `[rows, columns]` (more columns if a cell holds a list of numbers).
        """

    @abstractmethod
    def place(self, row: int) -> str:
        """Where row `row`, counted from 0, stands in the file, in words."""

    def error(self, row: int, column: str | None, what: str) -> CvgnnError:
        """The error for a cell or a row."""
        at = f"{self.path}, {self.place(row)}"
        return CvgnnError(f"{at}: {what}" if column is None else f"{at}, column {column[:80]!r}: {what}")

    def need(self, *columns: str) -> None:
        """Refuse a table without these columns."""
        for column in columns:
            if column not in self.columns:
                raise CvgnnError(
                    f"{self.path} has no column {column!r}; its columns are: {shown(self.columns[:50])[:300]}"
                )

    def check_finite(self, numbers: np.ndarray, columns: Sequence[str]) -> None:
        """Refuse NaN and infinities, naming the first; `columns` are the names of the columns of `numbers`."""
        with np.errstate(invalid="ignore", over="ignore"):  # a sum is finite only if every entry is (or on overflow)
            finite = np.isfinite(numbers.sum())
        bad = np.empty((0, 2)) if finite else np.argwhere(~np.isfinite(numbers))
        if len(bad):
            row, at = bad[0].tolist()
            raise self.error(row, columns[at], f"{numbers[row, at]} is not a finite number")
