"""`cvgnn report`: one page about any set of runs and diagnoses."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from cvgnn.cli.options import parse
from cvgnn.errors import CvgnnError, require


@dataclass(frozen=True, kw_only=True)
class ReportCommand:
    """Make one HTML file about runs and diagnoses: curves, tables, heat maps, and where every number comes from.

    cvgnn report runs/reproduce runs/sweep --out report.html
    The file needs no network and no other file. Unfinished runs are shown with the epochs they have.
    """

    folders: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="DIR...")]
    """Folders of cvgnn train --out, sweep, reproduce or diagnose --out, or folders that hold some."""

    out: Annotated[Path, tyro.conf.arg(metavar="FILE.html")] = Path("report.html")
    """The file to write; an earlier one is replaced."""

    title: str | None = None
    """Title of the page; if not given, one that says whether it is about runs or diagnoses."""

    figures: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Also write the figures as PDF and PNG into this folder; needs matplotlib (pip install 'cvgnn[plots]')."""


def report_command(words: Sequence[str]) -> int:
    """Parse the options, read the folders, write the page."""
    command = parse(ReportCommand, words, prog="cvgnn report")
    require(bool(command.folders), "name at least one folder with runs, such as: cvgnn report runs/a --out report.html")
    require(command.out.suffix.lower() in (".html", ".htm"), f"--out must be an .html file, not {command.out}")
    require(not command.out.is_dir(), f"--out must be a file, and {command.out} is a folder")
    if command.figures is not None:
        from cvgnn.report.figures import require_matplotlib

        require_matplotlib()

    from cvgnn import disk
    from cvgnn.report import build, collect, render

    report = build(collect(command.folders))
    for sentence in report.warnings:
        print(f"cvgnn: {sentence}", file=sys.stderr)
    title = command.title or ("Training runs of cvgnn" if report.runs.rows else "Diagnosis of training with cvgnn")
    page = render(report, title=title, command=shlex.join(["cvgnn", "report", *words]))
    data = page.encode(errors="replace")
    try:
        command.out.parent.mkdir(parents=True, exist_ok=True)
        disk.write_file(command.out, data)
    except OSError as error:
        raise CvgnnError(f"cannot write {command.out}: {disk.reason(error)}") from None
    print(report.summary)
    print(f"written to {command.out} ({len(data) / 1000:,.0f} kB)")
    if command.figures is not None:
        from cvgnn.report.figures import write_figures

        written = write_figures(report, command.figures)
        print(f"{len(written)} files written to {command.figures}: {', '.join(path.name for path in written)}")
    return 0
