"""`cvgnn warmup`: compile all kernels ahead of the first run."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from cvgnn.cli.options import WarmupCommand
from cvgnn.cli.output import Output, is_quiet, set_result
from cvgnn.errors import CvgnnError
from cvgnn.ops.compilation import folders
from cvgnn.training.kernel_warmup import warm_up


def warmup_command(command: WarmupCommand, argv: Sequence[str]) -> int:
    """Compile with a progress bar, print where the kernels are."""

    if not folders():
        raise CvgnnError("no folder can keep compiled kernels; set CVGNN_HOME to a folder that can be written")
    output, start = Output(ignore_write_errors=False), time.monotonic()
    columns = (TextColumn("compiling"), BarColumn(24), TaskProgressColumn(), TextColumn("{task.description}"))
    bar = Progress(*columns, console=output.console, transient=True, disable=is_quiet())
    task = bar.add_task("", total=1.0)

    def show(what: str, share: float) -> None:
        if output.console.is_interactive:
            bar.update(task, description=what, completed=share)
        else:
            output.progress(f"{100 * share:.0f}%  {what}")

    if output.console.is_interactive:
        bar.start()
    try:
        count = warm_up(show)
    finally:
        if bar.live.is_started:
            bar.stop()
    seconds = time.monotonic() - start
    what = f"compiled {count} kernels in {seconds:.1f} s" if count else "all kernels were compiled before"
    output.show(f"{what}; they are in {folders()[-1]}")
    set_result({"compiled": count, "folder": str(folders()[-1]), "seconds": round(seconds, 2)})
    return 0
