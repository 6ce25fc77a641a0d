"""The machine: threads and memory that a run takes, and the hardware and versions behind its numbers."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import platform
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import numba
import numpy as np
import torch

import cvgnn
from cvgnn.config import TrainConfig
from cvgnn.data import Graph, SparseFeatures
from cvgnn.errors import CvgnnError
from cvgnn.ops.bf16_matmul import is_native
from cvgnn.ops.row_input import ELEMENTS_PER_CHUNK
from cvgnn.ops.threads import WORTH_SHARING
from cvgnn.training.evaluation import few_labelled
from cvgnn.utils.formatting import format_bytes
from cvgnn.utils.free_memory import available_memory, total_memory

_PAGE = 4096
_SCRATCH = 1 << 25  # elements that `Propagation.product` works on at a time, at most

_ENDS = {"edge": 2, "link": 4}  # nodes that an item names: those of the edge, and of its negative
_SPLIT_BYTES = 25  # for an entry of A: the graph without held-out edges, the pairs, and the order they are drawn in


def default_threads(graph: Graph, config: TrainConfig) -> int:
    """One thread where a step's largest product is small, else as many as torch would take.

    On two cores of an AMD EPYC a second thread made a step of up to 19 million multiply-adds in layer 0 0.92 to 1.05
    times as long, and one of 48 million or more 0.61 to 0.75 times (docs/benchmarks/threads.md).
    """
    x = graph.x
    entries = x.values.numel() / graph.num_nodes if isinstance(x, SparseFeatures) else graph.num_features
    work = batch_rows(graph, config) * entries * config.hidden
    return 1 if work < WORTH_SHARING else torch.get_num_threads()


def batch_rows(graph: Graph, config: TrainConfig) -> float:
    """About how many rows of `P X` a step reads: the receptive field of a batch without common neighbors."""
    if (ends := _ENDS.get(config.task)) is not None:
        receptive_field = float(min(config.batch_size * ends, graph.num_nodes))
    else:
        # An item is a node, or a graph: then it stands for a mean number of nodes.
        receptive_field = float(min(config.batch_size, graph.train_ids.numel())) * graph.num_nodes / len(graph.y)
    # Each sampled hop adds to every node its drawn neighbors; the node itself stays in the field.
    for fan_out in config.num_neighbors * (1 if len(config.num_neighbors) > 1 else config.hops):
        mean_degree = graph.num_edges / graph.num_nodes
        receptive_field *= 1 + (mean_degree if fan_out == -1 or config.estimator == "exact" else fan_out)
    return min(receptive_field, graph.num_nodes)


@contextmanager
def thread_count(threads: int) -> Iterator[None]:
    """Run torch with that many threads, then with as many as before."""
    before = torch.get_num_threads()  # a library must not leave a process-wide setting changed
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def run_threads(graph: Graph, config: TrainConfig) -> AbstractContextManager[None]:
    """Run torch with the config's number of threads, or with `default_threads`."""
    return thread_count(config.threads or default_threads(graph, config))


def cores() -> int:
    """Processors that this process may use."""
    # A batch system or taskset may give this process fewer than the machine has.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def describe_machine() -> dict[str, str]:
    """Hardware and versions behind a number."""
    memory = total_memory()
    return {
        "processor": processor(),
        "cores": str(cores()),
        "memory": "unknown" if memory is None else format_bytes(memory),
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "numba": numba.__version__,
        "cvgnn": cvgnn.__version__,
        "code": code_digest()[:12],
    }


def code_digest() -> str:
    """SHA-256 over the source files of this package, but for those that no run computes with."""
    root = Path(cvgnn.__file__).parent
    total = hashlib.sha256()
    for file in sorted(root.rglob("*.py")):
        name = file.relative_to(root)
        if name.parts[0] not in ("cli", "export", "lab", "serving"):
            total.update(str(name).encode() + b"\0" + file.read_bytes())
    return total.hexdigest()


def processor() -> str:
    """The processor's name and the instruction set that torch uses; another one may round differently."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        named = next((line for line in lines if line.startswith("model name")), None)
    except OSError:
        named = None
    name = named.split(":", 1)[1].strip() if named else platform.processor() or platform.machine()
    return f"{name} ({torch.backends.cpu.get_cpu_capability()})"


def peak_rss_bytes() -> int:
    """The largest resident memory of this process so far; 0 on Windows."""
    try:
        import resource
    except ImportError:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # macOS counts bytes, Linux kibibytes


def estimate_memory(graph: Graph, config: TrainConfig) -> dict[str, int]:
    """Bytes that a run needs beside the loaded graph, by purpose; the largest first.

    Within a fifth of what was measured on graphs of 60,000 nodes (tests/training/test_machine_memory.py).
    """
    n, F = graph.num_nodes, graph.num_features
    C = config.hidden if config.task in _ENDS else graph.num_classes  # tasks of pairs have embeddings
    trained = graph.train_ids.numel() if config.inductive else n
    size = graph.x.dtype.itemsize if graph.x.dtype.itemsize == 8 else 4
    widths = [config.hidden] * config.hops
    in_memory = config.estimator not in ("ns", "exact") and config.histories == "memory"
    stored = 2 if config.history_dtype == "bfloat16" else size
    rows = batch_rows(graph, config)
    dense = not isinstance(graph.x, SparseFeatures)
    rounded = dense and config.feature_dtype == "bfloat16"
    entry = 2 + size * (config.input_dropout > 0 or not is_native()) if rounded else size  # of a batch's features
    matrices = (0, 1, 3)[min(len(widths), 2)]  # H; from the third layer on also H W and P (H W)
    few = _few_evaluated(graph, config)
    # Rows of few nodes are scattered over a matrix of all nodes, of which only the pages that hold one exist.
    evaluated = (
        n * (max(widths, default=0) * matrices + 2 * C)
        if few is None
        else min(n * C, few * max(C, _PAGE // size))
        + few * C
        + min(n * F, ELEMENTS_PER_CHUNK)
        # From the third layer on, the histories start from an exact pass over all nodes.
        + n * config.hidden * matrices * (len(widths) > 1)
    )
    summed = 0 if few is not None else min(n * max(C, config.hidden if len(widths) > 1 else 0), _SCRATCH)
    parts = {
        "P X": _PX_bytes(graph, config, size),
        "P": n * 4 * size + (graph.num_edges * size if graph.edge_weight is not None else 0),
        "histories": sum(trained * (d * stored + 8) for d in widths) if in_memory else 0,
        "evaluation": size * (evaluated + 2 * summed),
        "a batch": int(rows * (entry * F * dense + size * 5 * config.hidden)),
        "weights and optimizer": 5 * size * (F * config.hidden + config.hidden**2 * max(0, config.layers - 2)),
    }
    if config.task == "link":
        parts["split of the edges"] = _SPLIT_BYTES * graph.num_edges
    if config.inductive:  # features and P X of the training nodes, beside those of the whole graph
        own = n * F * size if dense else graph.x.indptr[-1].item() * (size + 4)  # type: ignore[union-attr]
        again = _PX_bytes(dataclasses.replace(graph, PX=None, validated=True), config, size)
        parts["training subgraph"] = int(trained / n * (own + again))
    if rounded:
        parts["evaluation"] += size * min(n * F, ELEMENTS_PER_CHUNK)
    # `P X` is computed, in pieces, before histories and batches exist: only what exceeds these counts.
    computing = 0 if _has_PX(graph, config) or not dense else 2 * min(n * F, _SCRATCH) * size
    parts["computing P X"] = max(0, computing - sum(parts[name] for name in ("histories", "evaluation", "a batch")))
    return dict(sorted(parts.items(), key=lambda item: -item[1]))


def _few_evaluated(graph: Graph, config: TrainConfig) -> int | None:
    """How many nodes are evaluated by their neighborhoods; None where all are, layer by layer."""
    if config.task in _ENDS or graph.graph_ids is not None or config.device != "cpu":
        return None
    ids = few_labelled(graph, config.layers)
    return None if ids is None else ids.numel()


def check_memory(graph: Graph, config: TrainConfig) -> None:
    """Refuse a run that will not fit into memory, with the options that lower its need."""
    # Refused before the work starts: otherwise the kernel kills the process in the middle of it.
    needed, free = estimate_memory(graph, config), available_memory()
    total = sum(needed.values())
    if free is None or total <= free:
        return
    shares = ", ".join(f"{format_bytes(b)} {name}" for name, b in needed.items() if b >= total // 50)
    raise CvgnnError(
        f"this run needs about {format_bytes(total)} of memory beside the graph ({shares}), and "
        f"{format_bytes(free)} are free; {_advice(graph, config, needed)}, or train anyway with check_memory=False"
    )


def _advice(graph: Graph, config: TrainConfig, needed: dict[str, int]) -> str:
    first = next(iter(needed))
    ways = []
    if needed["histories"] and config.history_dtype != "bfloat16":
        ways.append("history_dtype=bfloat16 halves the histories")
    if first == "histories":
        ways.append("histories=disk keeps them in a file")
    if first == "P X" and needed["P X"]:
        if isinstance(graph.x, SparseFeatures):
            ways.append("'cvgnn convert --propagate' keeps P X on disk")
        elif config.feature_dtype == "bfloat16":
            store = "" if _has_PX(graph, config) else "'cvgnn convert --propagate' and "
            ways.append(f"{store}feature_dtype=float32 {'keep' if store else 'keeps'} P X on disk")
        else:
            ways += ["feature_dtype=bfloat16 makes P X smaller", "'cvgnn convert --propagate' keeps P X on disk"]
    if first == "a batch":
        ways.append("a smaller batch_size or num_neighbors makes batches smaller")
    ways.append(f"a smaller hidden than {config.hidden} lowers the rest")
    return ", ".join(ways)


def _has_PX(graph: Graph, config: TrainConfig) -> bool:
    return graph.PX is not None and graph.PX_normalization == config.normalization and config.feature_norm == "none"


def _PX_bytes(graph: Graph, config: TrainConfig, size: int) -> int:
    """Bytes of `P X` beside the graph."""
    entries = graph.num_nodes * graph.num_features
    if isinstance(graph.x, SparseFeatures):
        # At most: every entry of a row of `X` appears in the row of every neighbor, and no two are in the same column.
        entries = min(entries, int((graph.x.indptr.diff() * (graph.degree + 1)).sum()))
        size += 4  # its column
    elif config.feature_dtype == "bfloat16":
        return entries * 2
    return 0 if _has_PX(graph, config) else entries * size
