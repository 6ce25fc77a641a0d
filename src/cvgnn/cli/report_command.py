"""`cvgnn report`: one HTML page about runs and diagnoses."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence

from cvgnn.cli.options import ReportCommand
from cvgnn.cli.output import set_result
from cvgnn.lab.report import build, collect, render
from cvgnn.lab.report.matplotlib_figures import require_matplotlib, write_figures
from cvgnn.utils import atomic_files
from cvgnn.utils.formatting import format_bytes


def report_command(command: ReportCommand, argv: Sequence[str]) -> int:
    """Read the folders, write the page."""
    if command.figures is not None:
        require_matplotlib()

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
        written = write_figures(report, command.figures)
        set_result({**result, "figures": [str(path) for path in written]})
        print(f"{len(written)} files written to {command.figures}: {', '.join(path.name for path in written)}")
    return 0
