"""`cvgnn convert`: a graph in any form that is read here, written as a store."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Literal, final

import tyro

from cvgnn.cli.options import parse
from cvgnn.config import GraphSource
from cvgnn.errors import CvgnnError, require, unknown_name

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from cvgnn.graph import Graph

_PROPAGATE = ("symmetric", "random-walk", "none")
_BAR_AFTER_SECONDS = 2.0


@dataclass(frozen=True, kw_only=True)
class ConvertCommand:
    """Turn your own graph into a store: a folder that opens at once, whatever its size.

    IN is an .npz or .pt file, a folder with nodes and edges as .csv or .parquet, or a store (see docs/files.md).
    """

    source: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="IN")]
    """The graph to read."""

    out: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="OUT")]
    """Folder for the store, new or empty."""

    propagate: Literal["symmetric", "random-walk", "none"] = "none"
    """Also store P X, the propagated features, for this normalization: training then starts without computing them."""

    directed: bool = False
    """Keep the directions of the edges instead of making the graph undirected."""

    split_seed: int = 0
    """Seed of the random split, for a graph that comes without one."""

    train_fraction: float = 0.6
    """Share of the labelled nodes in a random split's training set."""

    val_fraction: float = 0.2
    """Share of the labelled nodes in a random split's validation set; the rest is for testing."""

    per_class: int | None = None
    """Training nodes of each class in a random split, instead of a share."""


def convert_command(words: Sequence[str]) -> int:
    """Parse the options, read, write, and say what was written."""
    command = parse(ConvertCommand, words, prog="cvgnn convert", flags=True)
    if command.propagate not in _PROPAGATE:
        raise unknown_name("propagate", command.propagate, _PROPAGATE)
    source = GraphSource(
        graph=command.source,
        directed=command.directed,
        split_seed=command.split_seed,
        train_fraction=command.train_fraction,
        val_fraction=command.val_fraction,
        per_class=command.per_class,
    )
    _refuse_used(command.out)

    # Only now: torch takes seconds to import, and --help or a wrong word should not wait for it.
    import rich.console

    from cvgnn.experiments.source import load_source
    from cvgnn.store import is_store, verify_store, write_store

    console = rich.console.Console(highlight=False, soft_wrap=True, force_terminal=sys.stdout.isatty())
    start = time.monotonic()
    if is_store(command.source):
        verify_store(command.source)  # or a damaged store would get fresh checksums
    if console.is_interactive:
        with console.status(f"reading {command.source}"):
            graph = load_source(source)
    else:
        graph = load_source(source)
    with LateBar(console) as bar:
        write_store(
            graph, command.out, propagate=None if command.propagate == "none" else command.propagate, progress=bar.show
        )
    for line in summary(graph, command.out, time.monotonic() - start):
        console.print(line, markup=False)
    return 0


def summary(graph: Graph, out: Path, seconds: float) -> list[str]:
    """What was written, in a few lines."""
    lines = [str(graph), f"split: {graph.split}"]
    if graph.node_names is not None:
        lines.append(f"node ids kept for predictions: {graph.node_names[0]}, ... ({graph.node_names.dtype})")
    if graph.class_names is not None:
        shown = ", ".join(graph.class_names[:8]) + (", ..." if len(graph.class_names) > 8 else "")
        lines.append(f"labels kept for predictions: {shown}")
    num_bytes = sum(file.stat().st_size for file in out.iterdir())
    return [*lines, f"written to {out}: {num_bytes / 2**20:.1f} MiB in {seconds:.1f} s"]


def _refuse_used(out: Path) -> None:
    """Before any reading: what is there is never overwritten."""
    try:
        require(not out.exists() or out.is_dir(), f"{out} is a file; OUT must be a folder, new or empty")
        require(not out.exists() or not any(out.iterdir()), f"output folder {out} is not empty; choose another OUT")
    except OSError as error:
        raise CvgnnError(f"cannot use {out} as output folder: {error.strerror}; choose another OUT") from None


@final
class LateBar:
    """A progress bar that appears only on a terminal, and only when the work takes more than two seconds.

    Args:
        console: where to draw.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._start = time.monotonic()
        self._progress: Progress | None = None

    def __enter__(self) -> LateBar:
        return self

    def show(self, what: str, share: float) -> None:
        """`share` (0..1) of `what` is done."""
        if not self._console.is_interactive or time.monotonic() - self._start < _BAR_AFTER_SECONDS:
            return
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

        if self._progress is None:
            columns = (TextColumn("writing {task.description}"), BarColumn(), TaskProgressColumn())
            self._progress = Progress(*columns, console=self._console, transient=True)
            self._progress.add_task(what, total=1.0)
            self._progress.start()
        self._progress.update(self._progress.task_ids[0], description=what, completed=share)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._progress is not None:
            self._progress.stop()
