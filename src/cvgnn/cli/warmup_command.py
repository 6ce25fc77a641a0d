"""`cvgnn warmup`: compile all kernels ahead of the first run."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.progress import TaskProgressColumn

from cvgnn.cli.options import WarmupCommand
from cvgnn.cli.output import Output, set_result
from cvgnn.cli.progress_bar import BAR, TEXT, ProgressBar
from cvgnn.errors import CvgnnError
from cvgnn.ops.compilation import folders
from cvgnn.training.kernel_warmup import warm_up


def warmup_command(command: WarmupCommand, argv: Sequence[str]) -> int:
    """Compile with a progress bar, print where the kernels are."""

    if not folders():
        raise CvgnnError("no folder can keep compiled kernels; set CVGNN_HOME to a folder that can be written")
    output, start = Output(ignore_write_errors=False), time.monotonic()

    def show(what: str, share: float) -> None:
        if bar.is_shown:
            bar.move(share, what)
        else:
            output.progress(f"{100 * share:.0f}%  {what}")

    with ProgressBar(output, 1.0, "compiling", BAR, TaskProgressColumn(), TEXT, room=42) as bar:
        count = warm_up(show)
    seconds = time.monotonic() - start
    what = f"compiled {count} kernels in {seconds:.1f} s" if count else "all kernels were compiled before"
    output.show(f"{what}; they are in {folders()[-1]}")
    set_result({"compiled": count, "folder": str(folders()[-1]), "seconds": round(seconds, 2)})
    return 0
