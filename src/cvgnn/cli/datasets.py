"""`cvgnn datasets`: which data sets there are, which are here, and whether one is what it should be."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from cvgnn.cli.options import parse

_SPLIT = "train / val / test"
_LEFT = ("name", "cached", "in root", "count", "result", "published by")


@dataclass(frozen=True, kw_only=True)
class DatasetsCommand:
    """List the data sets that have a name: their sizes, and whether they are on this machine. Downloads nothing.

    Edges are counted once each; ogbn-arxiv's are citations, which load in both directions.
    The synthetic ones have the sizes of the real ones (synthetic-20k is small) and are generated when first used.
    --verify NAME loads one, downloading it if need be, and checks its counts against the paper's Table 2.
    """

    root: Path | None = None
    """Folder with upstream's raw files; the cache folder (CVGNN_HOME) if not given."""

    verify: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """Name of a data set to load and check; exit code 1 if a count differs."""


def datasets_command(words: Sequence[str]) -> int:
    """Parse the options, list or verify; returns the exit code."""
    command = parse(DatasetsCommand, words, prog="cvgnn datasets")
    return _list(command.root) if command.verify is None else _verify(command.verify, command.root)


def _list(root: Path | None) -> int:
    from cvgnn.datasets.catalog import CATALOG, SYNTHETIC
    from cvgnn.datasets.fetch import status, synthetic_status
    from cvgnn.datasets.home import cache_folder
    from cvgnn.datasets.progress import megabytes

    known = [(dataset.name, dataset.counts, *status(dataset, root)) for dataset in CATALOG.values()]
    known += [(name, counts, *synthetic_status(name, root)) for name, counts in SYNTHETIC.items()]
    rows = []
    for name, c, here, size in known:
        numbers = [f"{n:,}" for n in (c.nodes, c.edges, c.features, c.classes)]
        split = " / ".join(f"{n:,}" for n in c.split)
        rows.append([name, *numbers, split, here, megabytes(size) if size else "-"])
    header = ["name", "nodes", "edges", "features", "classes", _SPLIT, "cached" if root is None else "in root"]
    _table([*header, "on disk"], rows)
    print(f"looked in {cache_folder() if root is None else root}")
    return 0


def _verify(name: str, root: Path | None) -> int:
    from cvgnn.datasets.verify import verify

    checks = verify(name, root)
    rows = [[c.column, f"{c.published:,}", f"{c.found:,}", "pass" if c.passed else "FAIL", c.source] for c in checks]
    _table(["count", "published", "found", "result", "published by"], rows)
    failed = [check.column for check in checks if not check.passed]
    print(
        f"{name}: " + (f"{len(failed)} of {len(checks)} counts differ" if failed else f"all {len(checks)} counts agree")
    )
    return 1 if failed else 0


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A drawn table on a terminal, aligned words elsewhere."""
    if not sys.stdout.isatty():
        widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
        for row in (header, *rows):
            words = (
                word.ljust(width) if title in _LEFT else word.rjust(width)
                for title, word, width in zip(header, row, widths, strict=True)
            )
            print("  ".join(words).rstrip())
        return
    import rich.box
    import rich.console
    import rich.table

    console = rich.console.Console(highlight=False)
    # On a narrow terminal columns move together and the split folds.
    table = rich.table.Table(box=rich.box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1 if console.width >= 110 else 0))
    for title in header:
        side: Literal["left", "right"] = "left" if title in _LEFT else "right"
        least = 9 if title == _SPLIT else None
        table.add_column(title, justify=side, no_wrap=title != _SPLIT, overflow="fold", min_width=least)
    for row in rows:
        table.add_row(*row, style="bold red" if "FAIL" in row else None)
    console.print(table)
