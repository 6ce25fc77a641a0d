"""Words for a person: on a terminal beside the bar, in a pipe as plain lines, and what happens when nobody listens."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TextIO, final

import rich.console


@final
class Output:
    """Where a command's words go.

    Args:
        must_go_on: whether the work is worth more than what is shown of it: if the terminal, pipe or log file is gone
            or full, the command falls silent instead of ending.
    """

    def __init__(self, *, must_go_on: bool) -> None:
        # A terminal or not is all that counts: FORCE_COLOR, which CI systems set, must not draw bars into a log.
        self.console = rich.console.Console(highlight=False, soft_wrap=True, force_terminal=sys.stdout.isatty())
        self._must_go_on = must_go_on

    def show(self, text: str) -> None:
        """What the command is for."""
        try:
            if self.console.is_interactive:
                self.console.print(text, markup=False)
            else:
                print(text, flush=True)
        except (OSError, SystemExit):  # rich ends the program when its pipe is gone
            if not self._must_go_on:
                raise
            _silence(sys.stdout)

    def say(self, sentence: str) -> None:
        """Something the user should know, beside the bar and not in it."""
        if self.console.is_interactive:
            self.show(f"cvgnn: {sentence}")
            return
        try:
            print(f"cvgnn: {sentence}", file=sys.stderr, flush=True)
        except OSError:
            if not self._must_go_on:
                raise
            _silence(sys.stderr)


def _silence(stream: TextIO) -> None:
    """Let a stream that cannot be written to any more lead nowhere."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
