"""`cvgnn convert`: read a graph in any supported form and write it as a store."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from cvgnn.cli.options import ConvertCommand
from cvgnn.cli.output import Output, graph_result, is_quiet, set_result
from cvgnn.config import GraphSource
from cvgnn.data import Graph, RandomSplit
from cvgnn.data.store import compact_store, ingest, is_store, open_store, verify_store, write_store
from cvgnn.data.table_options import TableOptions
from cvgnn.errors import require
from cvgnn.training.graph_source import load_source, refuse_split_options, split_of
from cvgnn.utils import atomic_files
from cvgnn.utils.formatting import format_bytes, parse_bytes
from cvgnn.utils.free_memory import available_memory
from cvgnn.utils.progress import ProgressReporter

_MOST_OF_FREE = 0.7
_LEAST = 64 * 2**20


def convert_command(command: ConvertCommand, argv: Sequence[str]) -> int:
    """Read the graph, write the store, and print a summary."""
    _refuse_used(command.out)

    output = Output(ignore_write_errors=False)
    start = time.monotonic()
    if is_store(command.source):
        verify_store(command.source)  # or a damaged store would get fresh checksums
    source = command.graph_source(command.source)
    split = split_of(source, allow_unlabelled=command.unlabelled)
    propagate = None if command.propagate == "none" else command.propagate
    memory = _memory_for_tables(command, source, split)
    if memory is not None:
        with ProgressReporter("converting") as progress:
            ingest.ingest_tables(
                command.source, command.out, memory=memory, split=split, directed=command.directed,
                tables=TableOptions(**source.table_options()), propagate=propagate, progress=progress,
            )  # fmt: skip
        graph = open_store(command.out)
    else:
        with (
            output.console.status(f"reading {command.source}")
            if output.console.is_interactive and not is_quiet()
            else nullcontext()
        ):
            graph = load_source(source, task="link" if command.unlabelled else "auto")
        with ProgressReporter("writing") as progress:
            if command.compact is None:
                write_store(graph, command.out, propagate=propagate, progress=progress)
            else:
                compact_store(
                    graph, command.out, hops=command.compact, splits=command.splits,
                    propagate=propagate or "symmetric", progress=progress, **_memory_for_columns(command, graph),
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


def _memory_for_tables(command: ConvertCommand, source: GraphSource, split: RandomSplit) -> int | None:
    """Bytes for a conversion piece by piece; None for one in memory."""
    given = None if command.memory is None else parse_bytes(command.memory)
    if not command.source.is_dir() or is_store(command.source):
        if command.compact is not None:
            return None
        require(given is None, f"--memory is for folders of tables; {command.source} is none, so leave it out")
        return None
    plan = ingest.plan_ingest(command.source, split, TableOptions(**source.table_options()))
    free = available_memory()
    if given is None:
        if plan.refusal is not None or free is None or plan.in_memory < _MOST_OF_FREE * free:
            return None
        given = int(_MOST_OF_FREE * free)
    require(plan.refusal is None, plan.refusal or "")
    require(
        command.compact is None,
        "--compact reads a graph that fits into memory, or a store; convert the tables first, then compact the store",
    )
    least = plan.least + _LEAST
    require(given >= least, f"{format_bytes(given)} of memory are too few for these tables; {format_bytes(least)} do")
    if plan.has_split:
        refuse_split_options(source, command.source.resolve().name, "given")
    return given - plan.least


def _memory_for_columns(command: ConvertCommand, graph: Graph) -> dict[str, int]:
    """What `--memory` leaves `compact_store` for columns of `X`; more of them at a time are fewer passes over `A`."""
    if command.memory is None or (given := parse_bytes(command.memory)) is None:  # its form was checked
        return {}
    least = ingest.BASE_BYTES + ingest.NODE_BYTES * graph.num_nodes + _LEAST
    require(given >= least, f"{format_bytes(given)} of memory are too few for this graph; {format_bytes(least)} do")
    return {"memory": given - least}


def _refuse_used(out: Path) -> None:
    """Refuse an output folder that is not empty, before anything is read: nothing is overwritten."""
    with atomic_files.report_errors(f"cannot use {out} as output folder", "choose another OUT"):
        require(not out.exists() or out.is_dir(), f"{out} is a file; OUT must be a folder, new or empty")
        require(not out.exists() or not any(out.iterdir()), f"output folder {out} is not empty; choose another OUT")
