"""The progress bar of every command: drawn on a terminal, and nowhere with `--quiet`."""

from __future__ import annotations

from typing import Any, final

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn

from cvgnn.cli.output import Output, is_quiet

Renderable = RenderableType | None
BAR, TEXT = BarColumn(24), TextColumn("{task.description}")


@final
class ProgressBar:
    """A bar with a text, which is cut where the terminal ends.

    Args:
        output: where it is drawn.
        total: what `move` counts to.
        columns: among them `BAR` and `TEXT`.
        room: letters that the columns take beside the text.
        above: shown above the bar, and wiped away with it.
    """

    def __init__(
        self,
        output: Output,
        total: float,
        *columns: str | ProgressColumn,
        room: int,
        above: RenderableType | None = None,
    ) -> None:
        console = output.console
        self.is_shown = console.is_interactive and not is_quiet()
        self._room = max(0, console.width - room)
        self._progress = Progress(*columns, console=console)
        self._task = self._progress.add_task("", total=total)
        shown = self._progress if above is None else Group(above, self._progress)
        self._live = Live(shown, console=console, transient=above is not None, refresh_per_second=4)

    def __enter__(self) -> ProgressBar:
        if self.is_shown:
            self._live.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self._live.stop()

    def move(self, completed: float, text: str) -> None:
        """Move the bar to a place, and change the text."""
        self._progress.update(self._task, completed=completed, description=text[: self._room])
