"""What a run takes of the machine: threads and memory."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numba
import numpy as np
import torch

from cvgnn._version import __version__
from cvgnn.config import TrainConfig
from cvgnn.experiments.identity import code_digest
from cvgnn.graph import Graph, SparseFeatures

# Multiply-adds of layer 0 in a step below which one thread is used. On two cores of an AMD EPYC a second thread made a
# step of up to 19 million 0.92 to 1.05 times as long, and one of 48 million or more 0.61 to 0.75 times
# (docs/benchmarks/threads.md).
_WORTH_SHARING = 25_000_000


def sensible_threads(graph: Graph, config: TrainConfig) -> int:
    """One thread where a step's largest product is small, else as many as torch would take."""
    x = graph.x
    entries = x.values.numel() / graph.num_nodes if isinstance(x, SparseFeatures) else graph.num_features
    work = batch_rows(graph, config) * entries * config.hidden
    return 1 if work < _WORTH_SHARING else torch.get_num_threads()


def batch_rows(graph: Graph, config: TrainConfig) -> float:
    """About how many rows of `P X` a step reads: the receptive field of a batch if no two nodes meet."""
    receptive_field = float(min(config.batch_size, graph.train_ids.numel()))
    for fan_out in config.num_neighbors * (1 if len(config.num_neighbors) > 1 else config.hops):
        mean_degree = graph.num_edges / graph.num_nodes
        receptive_field *= 1 + (mean_degree if fan_out == -1 or config.estimator == "exact" else fan_out)
    return min(receptive_field, graph.num_nodes)


@contextmanager
def thread_count(threads: int) -> Iterator[None]:
    """Run torch with that many threads, then with as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def describe_machine(code: str | None = None) -> dict[str, str]:
    """Hardware and versions behind a number.

    Args:
        code: `code_digest()`, where it is at hand; its beginning is told.
    """
    return {
        "processor": processor(),
        "cores": str(cores()),
        "memory": _memory(),
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "numba": numba.__version__,
        "cvgnn": __version__,
        "code": (code or code_digest())[:12],
    }


def _memory() -> str:
    try:
        return f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.1f} GiB"
    except (AttributeError, OSError, ValueError):  # not everywhere
        return "unknown"


def processor() -> str:
    """What the machine computes with; another one may round differently."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        named = next((line for line in lines if line.startswith("model name")), None)
    except OSError:
        named = None
    name = named.split(":", 1)[1].strip() if named else platform.processor() or platform.machine()
    return f"{name} ({torch.backends.cpu.get_cpu_capability()})"


def peak_rss_bytes() -> int:
    """The largest resident memory of this process so far; 0 where the system does not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
