"""`cvgnn datasets`: list the named data sets, or compare one with its published counts."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Literal

import rich.box
import rich.console
import rich.table

from cvgnn.cli.options import DatasetsCommand
from cvgnn.cli.output import set_result
from cvgnn.data.named.catalog import CATALOG, SYNTHETIC
from cvgnn.data.named.raw_folder import status, synthetic_status
from cvgnn.utils.cache_folder import cache_folder
from cvgnn.utils.formatting import format_bytes

_SPLIT = "train / val / test"
_LEFT = ("name", "cached", "in root", "count", "result", "published by")


def datasets_command(command: DatasetsCommand, argv: Sequence[str]) -> int:
    """List or verify; returns the exit code."""
    return _list(command.root) if command.verify is None else _verify(command.verify, command.root)


def _list(root: Path | None) -> int:

    known = [(dataset.name, dataset.counts, *status(dataset, root)) for dataset in CATALOG.values()]
    known += [(name, counts, *synthetic_status(name, root)) for name, counts in SYNTHETIC.items()]
    rows = []
    for name, c, state, size in known:
        numbers = [f"{n:,}" for n in (c.nodes, c.edges, c.features, c.classes)]
        split = " / ".join(f"{n:,}" for n in c.split) or "-"
        rows.append([name, *numbers, split, state, format_bytes(size) if size else "-"])
    header = ["name", "nodes", "edges", "features", "classes", _SPLIT, "cached" if root is None else "in root"]
    _print_table([*header, "on disk"], rows)
    folder = cache_folder() if root is None else root
    print(f"looked in {folder}")
    found = [{"name": n, **asdict(c), "state": state, "bytes": size} for n, c, state, size in known]
    set_result({"folder": str(folder), "datasets": found})
    return 0


def _verify(name: str, root: Path | None) -> int:

    from cvgnn.data.named.dataset_loader import verify  # imports torch, which the list does not need

    checks = verify(name, root)
    rows = [[c.column, f"{c.published:,}", f"{c.found:,}", "pass" if c.passed else "FAIL", c.source] for c in checks]
    _print_table(["count", "published", "found", "result", "published by"], rows)
    failed = sum(not check.passed for check in checks)
    print(f"{name}: {failed} of {len(checks)} counts differ" if failed else f"{name}: all {len(checks)} counts agree")
    set_result({"dataset": name, "counts": [{**c._asdict(), "passed": c.passed} for c in checks], "failed": failed})
    return 1 if failed else 0


def _print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table with rules on a terminal, and plain aligned columns elsewhere."""

    terminal = sys.stdout.isatty()
    console = rich.console.Console(highlight=False, force_terminal=terminal, width=None if terminal else 1000)
    # A narrow terminal gets narrow gaps and a folded split; a pipe gets two spaces between columns.
    gap = (0, 2, 0, 0) if not terminal else (0, 1) if console.width >= 110 else (0, 0)
    table = rich.table.Table(box=rich.box.SIMPLE_HEAD if terminal else None, pad_edge=False, padding=gap)
    for title in header:
        side: Literal["left", "right"] = "left" if title in _LEFT else "right"
        least = 9 if title == _SPLIT else None
        table.add_column(title, justify=side, no_wrap=title != _SPLIT, overflow="fold", min_width=least)
    for row in rows:
        table.add_row(*row, style="bold red" if "FAIL" in row else None)
    with console.capture() as capture:
        console.print(table)
    print("\n".join(line.rstrip() for line in capture.get().splitlines()))
