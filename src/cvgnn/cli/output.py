"""What a command prints: results and progress on standard output, logs as `cvgnn: ...` lines on standard error."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO, final

from cvgnn.utils.checked_json import finite
from cvgnn.utils.compile_listeners import listening

if TYPE_CHECKING:
    import rich.console
    import rich.status

    from cvgnn.data import Graph


@final
class LogHandler(logging.Handler):
    """Prints log records on standard error, or above the progress bar on a terminal."""

    output: Output | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Print one record. If standard error is closed or full, the program continues without logs."""
        message = f"cvgnn: {record.getMessage()}"
        if self.output is not None and self.output.console.is_interactive:
            self.output.show(message)
            return
        try:
            print(message, file=sys.stderr, flush=True)
        except OSError:
            _silence(sys.stderr)


_handler = LogHandler()


@contextmanager
def logging_to_console(level: int) -> Iterator[None]:
    """Print `cvgnn`'s log records of this level and above while the command runs."""
    logger = logging.getLogger("cvgnn")
    before = logger.level
    logger.setLevel(level)
    _handler.setLevel(level)
    logger.addHandler(_handler)
    try:
        yield
    finally:
        logger.removeHandler(_handler)
        logger.setLevel(before)
        _handler.setLevel(logging.NOTSET)
        _handler.output = None


@contextmanager
def compile_bar() -> Iterator[None]:
    """Show on a terminal which kernel is being compiled. Nothing appears, and nothing is imported, if none is."""
    status: rich.status.Status | None = None
    depth = count = 0  # a kernel that calls another one compiles it first

    def show(name: str, ended: bool) -> None:
        nonlocal status, depth, count
        if is_quiet() or not sys.stdout.isatty():
            return
        import rich.console
        import rich.errors

        if status is None:
            console = rich.console.Console() if _handler.output is None else _handler.output.console
            status = console.status("")
        depth += -1 if ended else 1
        count += not ended
        status.update(f"compiling kernel {count}: {name}")
        if ended and depth == 0:
            status.stop()
        elif not ended and depth == 1:
            with contextlib.suppress(rich.errors.LiveError):  # rich before 14.1 shows one bar at a time
                status.start()

    with listening(show):
        yield


_result: dict[str, Any] = {}
_json = False


def set_result(result: Mapping[str, Any]) -> None:
    """Set what `--json` prints: the result of the command, as JSON values."""
    _result.clear()
    _result.update(result)


def graph_result(graph: Graph) -> dict[str, Any]:
    """What `--json` prints about a graph."""
    sizes = {"nodes": graph.num_nodes, "entries": graph.num_edges, "features": graph.num_features}
    return {**sizes, "classes": graph.num_classes, "split": graph.split}


@contextmanager
def json_output() -> Iterator[None]:
    """Print the command's result as one JSON object; other text goes to standard error, with `--quiet` nowhere."""
    global _json
    _result.clear()
    _json = True
    try:
        with contextlib.ExitStack() as stack:
            other = stack.enter_context(open(os.devnull, "w")) if is_quiet() else sys.stderr
            stack.enter_context(contextlib.redirect_stdout(other))
            yield
    finally:
        _json = False
    if _result:
        # The same values as in result.json; a NaN is not JSON, and other programs refuse it.
        print(json.dumps(finite(_result), default=str))


def is_json() -> bool:
    """Whether the result is printed as JSON (`--json`)."""
    return _json


def is_quiet() -> bool:
    """Whether only results, warnings and errors are printed (`--quiet`)."""
    return _handler.level > logging.INFO


def given_globally() -> list[str]:
    """The options of every command that were given, for a process that does the work of this one."""
    names = {"--quiet": is_quiet(), "--verbose": _handler.level == logging.DEBUG, "--json": _json}
    return [name for name, given in names.items() if given]


def only_errors() -> None:
    """Print nothing but errors from now on: another process of the run prints the rest."""
    _handler.setLevel(logging.ERROR)


@final
class Output:
    """Where a command's results and progress go.

    Args:
        ignore_write_errors: whether the command continues without output, instead of ending, when the terminal, pipe
            or log file is closed or full.
    """

    def __init__(self, *, ignore_write_errors: bool) -> None:
        import rich.console  # takes 30 ms, too long for an error or --help

        # Only a terminal gets bars: FORCE_COLOR, which CI systems set, must not draw them into a log.
        self.console: rich.console.Console = rich.console.Console(
            highlight=False, soft_wrap=True, force_terminal=sys.stdout.isatty()
        )
        self._ignore_write_errors = ignore_write_errors
        _handler.output = self

    def show(self, text: str) -> None:
        """Print a line of the result."""
        try:
            if self.console.is_interactive:
                self.console.print(text, markup=False)
            else:
                print(text, flush=True)
        except (OSError, SystemExit):  # rich ends the program when its pipe is gone
            if not self._ignore_write_errors:
                raise
            _silence(sys.stdout)

    def warn(self, message: str) -> None:
        """Log a warning."""
        logging.getLogger(__name__).warning("%s", message)

    def progress(self, text: str) -> None:
        """Print a line unless `--quiet` is given."""
        if not is_quiet():
            self.show(text)


def _silence(stream: TextIO) -> None:
    """Send a stream that cannot be written to any more to the null device."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
