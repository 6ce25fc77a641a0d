"""Collects the mistakes in a user's tables, so that one report names all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np

from cvgnn.data.io.size_checks import FileError

if TYPE_CHECKING:
    from cvgnn.data.io.table_file import TableFile

SHOWN = 20


@dataclass(frozen=True)
class _Place:
    """Where mistakes are: in a column's cells, or, without a table, where `column` says."""

    table: TableFile | None
    column: str

    def __str__(self) -> str:
        return self.column if self.table is None else f" in {self.table.path.name}, column {self.column[:80]!r}"


@final
class Mistakes:
    """Mistakes in the order in which they were found. Twenty are reported in words, the others counted.

    If there are more, each column gets an equal share of the twenty, so that one column does not hide another.
    """

    def __init__(self) -> None:
        self.offset = 0
        """Rows of the table before the batch that is being read."""
        self._counts: Counter[_Place] = Counter()
        self._first: dict[_Place, list[tuple[int, str]]] = {}  # the first twenty of each place, with their rows

    @property
    def count(self) -> int:
        """Of all mistakes."""
        return self._counts.total()

    def note(self, message: str, where: str = "") -> None:
        """A mistake that concerns a whole table, row or column; the message names the file.

        Args:
            message: the mistake.
            where: what many such mistakes have in common: it follows "and 7 more".
        """
        self._add(_Place(None, where), [0], lambda _: message)

    def cells(
        self, table: TableFile, rows: Sequence[int] | np.ndarray, column: str, what: Callable[[int], str]
    ) -> None:
        """A mistake in each of some cells.

        Args:
            table: of the cells.
            rows: of the cells, counted from 0; in a batch, from its first row.
            column: of the cells.
            what: gets a row and says what is wrong; called only for rows that may be reported in words.
        """
        self._add(_Place(table, column), rows, what)

    def _add(self, place: _Place, rows: Sequence[int] | np.ndarray, what: Callable[[int], str]) -> None:
        if len(rows):
            self._counts[place] += len(rows)
            first = self._first.setdefault(place, [])
            first += [(self.offset + int(row), what(int(row))) for row in rows[: SHOWN - len(first)]]

    def check(self) -> None:
        """Raise one error with all mistakes, if there are any."""
        if not self._counts:
            return
        counts = self._counts
        share = next(n for n in range(SHOWN, 0, -1) if n == 1 or sum(min(n, c) for c in counts.values()) <= SHOWN)
        shown = {place: first[:share] for place, first in list(self._first.items())[:SHOWN]}
        # Finding a line reads the file again, so all rows of a table are looked up at once.
        rows: dict[TableFile, set[int]] = {}
        for place, first in shown.items():
            if place.table is not None:
                rows.setdefault(place.table, set()).update(row for row, _ in first)
        lines_of = {table: table.places(sorted(wanted)) for table, wanted in rows.items()}
        lines = []
        for place, first in shown.items():
            table, more = place.table, counts[place] - len(first)
            lines += [text if table is None else table.message(lines_of[table][row], place.column, text)
                      for row, text in first]  # fmt: skip
            lines += [f"... and {more} more{place}"] if more else []
        left_out = self.count - sum(counts[place] for place in shown)
        lines += [f"... and {left_out} more in other columns"] if left_out else []
        raise FileError(lines[0] if self.count == 1 else "\n  ".join([f"{self.count} mistakes in the tables:", *lines]))
