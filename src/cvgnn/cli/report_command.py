"""`cvgnn report`: one HTML page about runs and diagnoses."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from cvgnn.cli.argv import parse
from cvgnn.errors import require


@dataclass(frozen=True, kw_only=True)
class ReportCommand:
    """Write one HTML file about runs and diagnoses: curves, tables, heat maps, and the origin of every number.

    cvgnn report runs/reproduce runs/sweep --out report.html
    The file needs no network and no other file. Unfinished runs are shown with the epochs they have.
    """

    folders: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="DIR...")]
    """Folders of cvgnn train --out, sweep, reproduce or diagnose --out, or their parent folders."""

    out: Annotated[Path, tyro.conf.arg(metavar="FILE.html")] = Path("report.html")
    """The file to write; an existing file is replaced."""

    title: str | None = None
    """Title of the page; by default it names runs or diagnoses, whichever there are."""

    figures: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Also write the figures as PDF and PNG into this folder; needs matplotlib (pip install 'cvgnn[plots]')."""


def report_command(argv: Sequence[str]) -> int:
    """Parse the options, read the folders, write the page."""
    command = parse(ReportCommand, argv, prog="cvgnn report")
    require(bool(command.folders), "give at least one folder with runs, such as: cvgnn report runs/a --out report.html")
    require(command.out.suffix.lower() in (".html", ".htm"), f"--out must be an .html file, not {command.out}")
    require(not command.out.is_dir(), f"--out must be a file, but {command.out} is a folder")
    if command.figures is not None:
        from cvgnn.lab.report.matplotlib_figures import require_matplotlib

        require_matplotlib()

    from cvgnn.cli.output import set_result
    from cvgnn.lab.report import build, collect, render
    from cvgnn.utils import atomic_files
    from cvgnn.utils.formatting import format_bytes

    report = build(collect(command.folders))
    for warning in report.warnings:
        print(f"cvgnn: {warning}", file=sys.stderr)
    page = render(report, title=command.title or report.title, command=shlex.join(["cvgnn", "report", *argv]))
    data = page.encode(errors="replace")
    with atomic_files.report_errors(f"cannot write {command.out}"):
        command.out.parent.mkdir(parents=True, exist_ok=True)
        atomic_files.write_file(command.out, data)
    print(report.summary)
    print(f"written to {command.out} ({format_bytes(len(data))})")
    result = {"summary": report.summary, "warnings": list(report.warnings), "out": str(command.out), "bytes": len(data)}
    set_result(result)
    if command.figures is not None:
        from cvgnn.lab.report.matplotlib_figures import write_figures

        written = write_figures(report, command.figures)
        set_result({**result, "figures": [str(path) for path in written]})
        print(f"{len(written)} files written to {command.figures}: {', '.join(path.name for path in written)}")
    return 0
