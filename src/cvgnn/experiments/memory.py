"""How much memory a run will take, told before the work starts instead of by the kernel in the middle of it."""

from __future__ import annotations

import sys
from pathlib import Path

from cvgnn.config import TrainConfig
from cvgnn.errors import CvgnnError
from cvgnn.experiments.machine import batch_rows
from cvgnn.graph import Graph, SparseFeatures
from cvgnn.ops.bf16_matmul import is_native
from cvgnn.ops.row_input import ELEMENTS_PER_CHUNK

_GIB = 2**30
_SCRATCH = 1 << 25
"""Elements that `Propagation.product` works on at a time, at most."""

_BYTES_WHILE_MULTIPLIED = 24
"""For an entry of a sparse `P X`: SciPy's product in float64 and int32, and its conversion."""


def estimate(graph: Graph, config: TrainConfig) -> dict[str, int]:
    """Bytes that a run needs beyond the graph as it is loaded, by what they are for; the largest first.

    Within a fifth of what was measured on graphs of 60,000 nodes (tests/experiments/test_memory.py).
    """
    n, F, C = graph.num_nodes, graph.num_features, graph.num_classes
    size = graph.x.dtype.itemsize if graph.x.dtype.itemsize == 8 else 4
    widths = [config.hidden] * config.hops
    stored = 2 if config.history_dtype == "bfloat16" else size
    rows = batch_rows(graph, config)
    dense = not isinstance(graph.x, SparseFeatures)
    rounded = dense and config.feature_dtype == "bfloat16"
    entry = 2 + size * (config.input_dropout > 0 or not is_native()) if rounded else size  # of a batch's features
    matrices = (0, 1, 3)[min(len(widths), 2)]  # H; from the third layer on also H W and P (H W)
    summed = min(n * max(C, config.hidden if len(widths) > 1 else 0), _SCRATCH)
    parts = {
        "P X": _PX_bytes(graph, config, size),
        "P": n * 4 * size + (graph.num_edges * size if graph.edge_weight is not None else 0),
        "histories": sum(n * (d * stored + 8) for d in widths) if config.estimator == "cv" else 0,
        "evaluation": size * (n * (max(widths, default=0) * matrices + 2 * C) + 2 * summed),
        "a batch": int(rows * (entry * F * dense + size * 5 * config.hidden)),
        "weights and optimizer": 5 * size * (F * config.hidden + config.hidden**2 * max(0, config.layers - 2)),
    }
    if rounded:
        parts["evaluation"] += size * min(n * F, ELEMENTS_PER_CHUNK)
    # Sums over rows of a matrix work in pieces, and `P X` is computed before there is anything else.
    computing = 0 if _has_PX(graph, config) or not dense else 2 * min(n * F, _SCRATCH) * size
    parts["computing P X"] = max(0, computing - sum(parts[name] for name in ("histories", "evaluation", "a batch")))
    return dict(sorted(parts.items(), key=lambda item: -item[1]))


def check_memory(graph: Graph, config: TrainConfig) -> None:
    """Refuse a run that will not fit into memory: what it needs, what there is, and which option lowers it."""
    needed, there = estimate(graph, config), available_bytes()
    total = sum(needed.values())
    if there is None or total <= there:
        return
    shares = ", ".join(f"{gib(b)} {name}" for name, b in needed.items() if b >= total // 50)
    raise CvgnnError(
        f"this run needs about {gib(total)} GiB of memory beside the graph ({shares}), and {gib(there)} GiB are "
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
    """What is kept of it beside the graph."""
    if isinstance(graph.x, SparseFeatures):
        return 0 if _has_PX(graph, config) else _sparse_product_bytes(graph)
    entries = graph.num_nodes * graph.num_features
    if config.feature_dtype == "bfloat16":
        return entries * 2
    return 0 if _has_PX(graph, config) else entries * size


def _sparse_product_bytes(graph: Graph) -> int:
    """At most: every entry of a row of `X` appears in the row of every neighbor, and no two meet."""
    assert isinstance(graph.x, SparseFeatures)
    entries = int((graph.x.indptr.diff() * (graph.degree + 1)).sum())
    return min(entries, graph.num_nodes * graph.num_features) * _BYTES_WHILE_MULTIPLIED


def _free_of_machine() -> int | None:
    for line in _lines("/proc/meminfo"):
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _free_of_group() -> list[int | None]:
    """What the control group (a container, a batch job) leaves."""
    root = Path("/sys/fs/cgroup")
    folders = [root]
    for line in _lines("/proc/self/cgroup"):
        if line.startswith("0::"):
            own = root / line[3:].strip().lstrip("/")
            folders += [own, *(p for p in own.parents if p.is_relative_to(root) and p != root)]
    pairs = [(f / "memory.max", f / "memory.current") for f in folders]
    pairs.append(
        (Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"), Path("/sys/fs/cgroup/memory/memory.usage_in_bytes"))
    )
    found: list[int | None] = []
    for limit, usage in pairs:
        numbers = [next(iter(_lines(str(path))), "").strip() for path in (limit, usage)]
        if all(text.isdigit() for text in numbers):
            found.append(max(0, int(numbers[0]) - int(numbers[1]) + _cached(limit.parent)))
    return found


def _cached(group: Path) -> int:
    """Bytes of files that the kernel keeps for a group and gives back when memory is needed."""
    stat = dict(line.split(" ", 1) for line in _lines(str(group / "memory.stat")) if " " in line)
    names = (
        ("total_active_file", "total_inactive_file")
        if "total_inactive_file" in stat
        else ("active_file", "inactive_file")
    )
    return sum(int(stat[name]) for name in names if stat.get(name, "").strip().isdigit())


def _free_of_limits() -> int | None:
    try:
        import resource
    except ImportError:  # Windows
        return None
    status = dict(line.split(":", 1) for line in _lines("/proc/self/status") if ":" in line)
    free = []
    for kind, name in ((resource.RLIMIT_DATA, "VmData"), (resource.RLIMIT_AS, "VmSize")):
        limit = resource.getrlimit(kind)[0]
        if limit not in (resource.RLIM_INFINITY, -1) and limit < sys.maxsize:
            used = int(status.get(name, "0 kB").split()[0]) * 1024
            free.append(max(0, limit - used))
    return min(free, default=None)


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def gib(num_bytes: int) -> str:
    """A number of bytes in GiB, in two digits.

    >>> gib(3 * 2**29)
    '1.5'
    """
    return f"{num_bytes / _GIB:.2g}" if num_bytes < 10 * _GIB else f"{num_bytes / _GIB:.0f}"
