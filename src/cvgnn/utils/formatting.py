"""Sizes, accuracies, tables and values from a user's file as text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def format_bytes(num_bytes: int) -> str:
    """A size in binary units.

    >>> format_bytes(5 * 2**30), format_bytes(300 * 2**20), format_bytes(1536), format_bytes(10)
    ('5.0 GiB', '300.0 MiB', '1.5 KiB', '10 bytes')
    """
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if num_bytes >= size:
            return f"{num_bytes / size:.1f} {unit}"
    return f"{num_bytes} bytes"


def parse_bytes(text: str) -> int | None:
    """The bytes that a text such as 8G, 1.5GiB or 500M names, in binary units; None if it names none.

    >>> parse_bytes("8G"), parse_bytes("1.5 GiB"), parse_bytes("lots")
    (8589934592, 1610612736, None)
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT])(?:i?B)?", text.strip(), re.IGNORECASE)
    return None if found is None else int(float(found[1]) * 2 ** (10 * (1 + "KMGT".index(found[2].upper()))))


def format_percent(mean: float | None, deviation: float | None = None, *, unit: str = "") -> str:
    """An accuracy with its standard deviation, in percent.

    >>> format_percent(0.7105, 0.004), format_percent(0.7105, unit="%"), format_percent(None, unit="%")
    ('71.05 ± 0.40', '71.05%', '-')
    """
    if mean is None:
        return "-"
    return f"{100 * mean:.2f}" + ("" if deviation is None else f" ± {100 * deviation:.2f}") + unit


def join_printable(values: Iterable[object]) -> str:
    """Values from a user's file for a message: separated by commas, on one line whatever they contain.

    >>> print(join_printable(["a", "b\\nc"]))
    a, 'b\\nc'
    """
    return ", ".join(text if (text := str(value)).isprintable() else repr(text) for value in values)


def align_columns(lines: Sequence[Sequence[str]], *, numbers_right: bool = False) -> list[list[str]]:
    """The cells of a table, each padded to the width of its column; the first line is the header.

    >>> align_columns([["name", "size"], ["a", "1"], ["bc", "10"]], numbers_right=True)
    [['name', 'size'], ['a   ', '   1'], ['bc  ', '  10']]
    """
    columns = []
    for column in zip(*lines, strict=True):
        numbers = numbers_right and all(not cell or cell[0].isdigit() or cell[0] in "-+<±" for cell in column[1:])
        width = max(map(len, column))
        columns.append([cell.rjust(width) if numbers else cell.ljust(width) for cell in column])
    return [list(line) for line in zip(*columns, strict=True)]
