"""How much memory a run will take, told before the work starts instead of by the kernel in the middle of it."""

from __future__ import annotations

import sys
from pathlib import Path

from cvgnn.config import TrainConfig
from cvgnn.errors import CvgnnError
from cvgnn.experiments.machine import batch_rows
from cvgnn.graph import Graph, SparseFeatures

_GIB = 2**30


def estimate(graph: Graph, config: TrainConfig) -> dict[str, int]:
    """Bytes that a run needs beyond the graph as it is loaded, by what they are for; the largest first.

    An estimate from above, but for what torch and the allocator keep for themselves.
    """
    n, F, C = graph.num_nodes, graph.num_features, graph.num_classes
    size = graph.x.dtype.itemsize if graph.x.dtype.itemsize == 8 else 4
    widths = [config.hidden] * (config.layers - 1)
    stored = 2 if config.history_dtype == "bfloat16" else size
    rows = batch_rows(graph, config)
    dense = not isinstance(graph.x, SparseFeatures)
    parts = {
        "P X": 0 if _has_PX(graph, config) else n * F * size if dense else _sparse_product_bytes(graph, size),
        "P": n * 4 * size + (graph.num_edges * size if graph.edge_weight is not None else 0),
        "histories": sum(n * (d * stored + 8) for d in widths) if config.estimator == "cv" else 0,
        # A hidden matrix, its successor before the activation, and the logits.
        "evaluation": n * size * (max(widths, default=0) * (2 if len(widths) > 1 else 1) + 2 * C),
        "a batch": int(rows * size * ((F if dense else 0) + 5 * config.hidden)),
        "weights and optimizer": 5 * size * (F * config.hidden + config.hidden**2 * max(0, config.layers - 2)),
    }
    return dict(sorted(parts.items(), key=lambda item: -item[1]))


def check_memory(graph: Graph, config: TrainConfig) -> None:
    """Refuse a run that will not fit into memory: what it needs, what there is, and which option lowers it."""
    needed, there = estimate(graph, config), available_bytes()
    total = sum(needed.values())
    if there is None or total <= there:
        return
    shares = ", ".join(f"{_gib(b)} {name}" for name, b in needed.items() if b >= total // 50)
    raise CvgnnError(
        f"this run needs about {_gib(total)} GiB of memory beside the graph ({shares}), and {_gib(there)} GiB are "
        f"free; {_advice(graph, config, needed)}, or go ahead with check_memory=False"
    )


def available_bytes() -> int | None:
    """What this process may still take of the machine, its control group and its own limits; None if unknown."""
    found = [_free_of_machine(), *_free_of_group(), _free_of_limits()]
    return min((b for b in found if b is not None), default=None)


def _advice(graph: Graph, config: TrainConfig, needed: dict[str, int]) -> str:
    first = next(iter(needed))
    ways = []
    if needed["histories"] and config.history_dtype != "bfloat16":
        ways.append("history_dtype=bfloat16 halves the histories")
    if first == "P X" and needed["P X"]:
        ways.append("'cvgnn convert --propagate' keeps P X on disk")
    if first == "a batch":
        ways.append("a smaller batch_size or num_neighbors makes batches smaller")
    ways.append(f"a smaller hidden than {config.hidden} lowers the rest")
    return ", ".join(ways)


def _has_PX(graph: Graph, config: TrainConfig) -> bool:
    return graph.PX is not None and graph.PX_normalization == config.normalization


def _sparse_product_bytes(graph: Graph, size: int) -> int:
    """At most: every entry of a row of `X` appears in the row of every neighbor, and no two meet."""
    assert isinstance(graph.x, SparseFeatures)
    entries = int((graph.x.indptr.diff() * (graph.degree + 1)).sum())
    return min(entries, graph.num_nodes * graph.num_features) * (size + 4)


def _free_of_machine() -> int | None:
    for line in _lines("/proc/meminfo"):
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _free_of_group() -> list[int | None]:
    """What the control group (a container, a batch job) leaves."""
    folders = [Path("/sys/fs/cgroup")]
    for line in _lines("/proc/self/cgroup"):
        if line.startswith("0::"):
            folders.append(Path("/sys/fs/cgroup") / line[3:].strip().lstrip("/"))
    pairs = [(f / "memory.max", f / "memory.current") for f in folders]
    pairs.append(
        (Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"), Path("/sys/fs/cgroup/memory/memory.usage_in_bytes"))
    )
    found: list[int | None] = []
    for limit, usage in pairs:
        numbers = [next(iter(_lines(str(path))), "").strip() for path in (limit, usage)]
        if all(text.isdigit() for text in numbers):
            found.append(max(0, int(numbers[0]) - int(numbers[1])))
    return found


def _free_of_limits() -> int | None:
    try:
        import resource
    except ImportError:  # Windows
        return None
    used = next((int(line.split()[1]) * 1024 for line in _lines("/proc/self/status") if line.startswith("VmData:")), 0)
    limits = [resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_DATA, resource.RLIMIT_AS)]
    real = [limit for limit in limits if limit not in (resource.RLIM_INFINITY, -1) and limit < sys.maxsize]
    return max(0, min(real) - used) if real else None


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / _GIB:.2g}" if num_bytes < 10 * _GIB else f"{num_bytes / _GIB:.0f}"
