"""`cvgnn convert`: read a graph in any supported form and write it as a store."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from cvgnn.cli.options import ConvertCommand
from cvgnn.cli.output import Output, graph_result, is_quiet, set_result
from cvgnn.data import Graph
from cvgnn.data.store import compact_store, is_store, open_store, verify_store, write_store
from cvgnn.errors import require
from cvgnn.training.graph_source import load_source
from cvgnn.utils import atomic_files
from cvgnn.utils.formatting import format_bytes
from cvgnn.utils.progress import ProgressReporter


def convert_command(command: ConvertCommand, argv: Sequence[str]) -> int:
    """Read the graph, write the store, and print a summary."""
    _refuse_used(command.out)

    output = Output(ignore_write_errors=False)
    start = time.monotonic()
    if is_store(command.source):
        verify_store(command.source)  # or a damaged store would get fresh checksums
    with (
        output.console.status(f"reading {command.source}")
        if output.console.is_interactive and not is_quiet()
        else nullcontext()
    ):
        graph = load_source(command.graph_source(command.source), task="link" if command.unlabelled else "auto")
    propagate = None if command.propagate == "none" else command.propagate
    with ProgressReporter("writing") as progress:
        if command.compact is None:
            write_store(graph, command.out, propagate=propagate, progress=progress)
        else:
            compact_store(
                graph, command.out, hops=command.compact, splits=command.splits, propagate=propagate or "symmetric",
                progress=progress,
            )  # fmt: skip
            whole, graph = graph, open_store(command.out)
            nodes, entries = f"{graph.num_nodes} of {whole.num_nodes}", f"{graph.num_edges} of {whole.num_edges}"
            output.show(f"kept {nodes} nodes, {entries} entries of A")
    for line in summary(graph, command.out, time.monotonic() - start):
        output.show(line)
    size = sum(file.stat().st_size for file in command.out.iterdir())
    set_result({**graph_result(graph), "out": str(command.out), "bytes": size})
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
