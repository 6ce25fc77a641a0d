"""`cvgnn convert`: read a graph in any supported form and write it as a store."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from cvgnn.cli.argv import parse
from cvgnn.config import GraphSource
from cvgnn.data.table_options import TableOptions
from cvgnn.errors import require, require_known
from cvgnn.utils import atomic_files
from cvgnn.utils.formatting import format_bytes

if TYPE_CHECKING:
    from cvgnn.data import Graph

_PROPAGATE = ("symmetric", "random-walk", "mean", "sum", "none")


@dataclass(frozen=True, kw_only=True)
class ConvertCommand:
    """Convert a graph to a store: a folder that opens at once, whatever its size.

    IN is an .npz or .pt file, a folder with nodes and edges as .csv or .parquet, or a store (see docs/files.md).
    """

    source: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="IN")]
    """The graph to read."""

    out: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="OUT")]
    """Folder for the store, new or empty."""

    propagate: Literal["symmetric", "random-walk", "mean", "sum", "none"] = "none"
    """Also store P X, the propagated features: training then starts without computing them. Symmetric or random-walk
    for GCN, mean for SAGE, sum for GIN."""

    compact: int | None = None
    """Store only what a network reads that samples at this many hops (layers - 1): the nodes of the split, their
    neighborhood, and P X (symmetric, unless --propagate names another). Training ends with the same bits."""

    splits: tuple[Literal["train", "val", "test"], ...] = ("train", "val", "test")
    """With --compact: the splits that are trained on or evaluated; the others are left out."""

    directed: bool = False
    """Keep the directions of the edges instead of making the graph undirected."""

    split_seed: int = 0
    """Seed of the random split, for a graph without a split."""

    train_fraction: float = 0.6
    """Share of the labelled nodes in a random split's training set."""

    val_fraction: float = 0.2
    """Share of the labelled nodes in a random split's validation set; the rest is for testing."""

    per_class: int | None = None
    """Training nodes of each class in a random split, instead of a share."""

    tables: Annotated[TableOptions, tyro.conf.arg(name="")] = dataclasses.field(default_factory=TableOptions)


def convert_command(argv: Sequence[str]) -> int:
    """Parse the options, read the graph, write the store, and print a summary."""
    command = parse(ConvertCommand, argv, prog="cvgnn convert", flags=True)
    require_known("propagate", command.propagate, _PROPAGATE)
    require(command.compact is None or command.compact >= 0, f"--compact must be 0 or more hops, not {command.compact}")
    shared = ("directed", "split_seed", "train_fraction", "val_fraction", "per_class")
    options = {name: getattr(command, name) for name in shared} | command.tables.table_options()
    source = GraphSource(graph=command.source, **options)
    _refuse_used(command.out)

    # Imported only now: torch takes seconds, and --help or a wrong option should not wait for it.
    from cvgnn.cli.output import Output, is_quiet, set_result
    from cvgnn.data.store import compact_store, is_store, open_store, verify_store, write_store
    from cvgnn.training.graph_source import load_source
    from cvgnn.utils.progress import ProgressReporter

    output = Output(ignore_write_errors=False)
    start = time.monotonic()
    if is_store(command.source):
        verify_store(command.source)  # or a damaged store would get fresh checksums
    with (
        output.console.status(f"reading {command.source}")
        if output.console.is_interactive and not is_quiet()
        else nullcontext()
    ):
        graph = load_source(source)
    propagate = None if command.propagate == "none" else command.propagate
    with ProgressReporter("writing") as progress:
        if command.compact is None:
            write_store(graph, command.out, propagate=propagate, progress=progress)
        else:
            options = {"splits": command.splits, "propagate": propagate or "symmetric"}
            compact_store(graph, command.out, hops=command.compact, progress=progress, **options)
            whole, graph = graph, open_store(command.out)
            nodes, entries = f"{graph.num_nodes} of {whole.num_nodes}", f"{graph.num_edges} of {whole.num_edges}"
            output.show(f"kept {nodes} nodes, {entries} entries of A")
    for line in summary(graph, command.out, time.monotonic() - start):
        output.show(line)
    set_result(
        {
            "nodes": graph.num_nodes, "entries": graph.num_edges, "features": graph.num_features,
            "classes": graph.num_classes, "split": graph.split, "out": str(command.out),
            "bytes": sum(file.stat().st_size for file in command.out.iterdir()),
        }
    )  # fmt: skip
    return 0


def summary(graph: Graph, out: Path, seconds: float) -> list[str]:
    """The lines to print: the graph, its split, its names, and the size of the store."""
    lines = [str(graph), f"split: {graph.split}"]
    if graph.node_names is not None:
        lines.append(f"node ids kept for predictions: {graph.node_names[0]}, ... ({graph.node_names.dtype})")
    if graph.class_names is not None:
        shown = ", ".join(graph.class_names[:8]) + (", ..." if len(graph.class_names) > 8 else "")
        lines.append(f"labels kept for predictions: {shown}")
    num_bytes = sum(file.stat().st_size for file in out.iterdir())
    return [*lines, f"written to {out}: {format_bytes(num_bytes)} in {seconds:.1f} s"]


def _refuse_used(out: Path) -> None:
    """Refuse an output folder that is not empty, before anything is read: nothing is overwritten."""
    with atomic_files.report_errors(f"cannot use {out} as output folder", "choose another OUT"):
        require(not out.exists() or out.is_dir(), f"{out} is a file; OUT must be a folder, new or empty")
        require(not out.exists() or not any(out.iterdir()), f"output folder {out} is not empty; choose another OUT")
