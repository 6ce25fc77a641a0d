"""Collects the mistakes in a user's tables, so that one report names all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, final

import numpy as np

from cvgnn.data.io.size_checks import FileError

if TYPE_CHECKING:
    from cvgnn.data.io.table_file import TableFile

SHOWN = 20


@final
class Mistakes:
    """Mistakes in the order in which they were found. The first twenty are reported in words, the others counted."""

    def __init__(self) -> None:
        self.count = 0
        self.offset = 0
        """Rows of the table before the batch that is being read."""
        self._found: list[str | tuple[TableFile, int, str, str]] = []

    def note(self, message: str) -> None:
        """A mistake that concerns a whole table or column; the message names the file."""
        self.count += 1
        if len(self._found) < SHOWN:
            self._found.append(message)

    def cells(
        self, table: TableFile, rows: Sequence[int] | np.ndarray, column: str, what: Callable[[int], str]
    ) -> None:
        """A mistake in each of some cells.

        Args:
            table: of the cells.
            rows: of the cells, counted from 0; in a batch, from its first row.
            column: of the cells.
            what: gets a row and says what is wrong; called only for the rows that are reported in words.
        """
        self.count += len(rows)
        for row in rows[: SHOWN - len(self._found)]:
            self._found.append((table, self.offset + int(row), column, what(int(row))))

    def check(self) -> None:
        """Raise one error with all mistakes, if there are any."""
        if not self.count:
            return
        # Finding a line reads the file again, so all rows of a table are looked up at once.
        rows: dict[TableFile, set[int]] = {}
        for item in self._found:
            if not isinstance(item, str):
                rows.setdefault(item[0], set()).add(item[1])
        places = {table: table.places(sorted(wanted)) for table, wanted in rows.items()}
        lines = [
            item if isinstance(item, str) else item[0].message(places[item[0]][item[1]], item[2], item[3])
            for item in self._found
        ]
        if self.count == 1:
            raise FileError(lines[0])
        more = [f"... and {self.count - len(lines)} more"] if self.count > len(lines) else []
        raise FileError(f"{self.count} mistakes in the tables:\n  " + "\n  ".join([*lines, *more]))
