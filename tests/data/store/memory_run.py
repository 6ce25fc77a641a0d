"""A run on a store of dense features, in a process of its own: `python -m tests.data.store.memory_run MODE FOLDER F`.

`write` makes the store; `train` opens it, trains and predicts. Both print the peak of anonymous memory in each phase:
RssAnon of /proc/self/status, what the run itself holds. The mapped pages of the store are left out (RssFile): the
kernel takes them away whenever it needs room, so they do not decide whether a graph fits. A thread reads the number
every millisecond; matrices that a phase holds live far longer than that.

`limited` opens that store under a limit that the kernel enforces: RLIMIT_DATA, on everything private and writable.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import resource
import sys
import threading
import time
from pathlib import Path

import numpy as np

import cvgnn
from cvgnn.data.store import StoreWriter, add_product, open_store
from tests.data.store.cases import make_graph

N = 300_000
OFFSETS = np.array([-1_003, -2, -1, 1, 2, 1_003])
OPTIONS = {
    "defaults": "fixed", "hidden": 8, "epochs": 1, "batch_size": 100, "lr": 0.03, "output": "last", "threads": 1,
}  # fmt: skip
LIMIT = 160 << 20


def status(key: str) -> int:
    with open("/proc/self/status") as lines:
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith(key + ":"))


class Peak:
    """The largest RssAnon since the last call, sampled by a thread."""

    def __init__(self) -> None:
        self.value = 0
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            self.value = max(self.value, status("RssAnon"))
            time.sleep(0.001)

    def __call__(self) -> int:
        peak, self.value = max(self.value, status("RssAnon")), 0
        return peak


def write(folder: Path, width: int) -> None:
    """A ring with chords; features and `P X` never exist in memory as a whole."""
    rng = np.random.default_rng(0)
    block = rng.normal(size=(4096, width)).astype(np.float32)
    with StoreWriter(folder) as writer:
        writer.write("indptr", np.arange(N + 1, dtype=np.int64) * len(OFFSETS))
        indices = writer.stream("indices", np.int32)
        x = writer.array("x", (N, width), np.float32)
        for first in range(0, N, len(block)):
            rows = np.arange(first, min(N, first + len(block)))
            indices.append(np.sort((rows[:, None] + OFFSETS) % N, axis=1).astype(np.int32).reshape(-1))
            np.multiply(block[: rows.size], 1 + first / N, out=x[rows[0] : rows[-1] + 1])
            x[rows, rows * 5 // N] += 5
        writer.write("y", np.arange(N, dtype=np.int64) * 5 // N)
        for place, name in enumerate(("train_ids", "val_ids", "test_ids")):
            writer.write(name, np.arange(place, N, N // 2000, dtype=np.int64))
        add_product(writer, "symmetric")
        writer.finish({"num_classes": 5, "PX_normalization": "symmetric"})


def digest(classes: np.ndarray) -> str:
    return hashlib.sha256(classes.tobytes()).hexdigest()


def measured(mode: str, folder: Path, width: int) -> dict[str, object]:
    """Bytes above those after importing, and seconds, for each phase."""
    results: dict[str, object] = {}
    peak, baseline, start = Peak(), status("RssAnon"), time.perf_counter()

    def phase(name: str) -> None:
        nonlocal start, results
        results |= {name: peak() - baseline, f"{name} seconds": round(time.perf_counter() - start, 3)}
        start = time.perf_counter()

    if mode == "write":
        write(folder, width)
        phase("write")
        return results
    graph = open_store(folder)
    phase("open")
    run = cvgnn.fit(graph, **OPTIONS)
    phase("train")
    classes = run.predict().numpy()
    phase("predict")
    return {**results, "classes": digest(classes), "accuracy": run.result["output_test_accuracy"]}


def limited(folder: Path) -> dict[str, object]:
    """The same under the limit; `held` says that the limit is one: the kernel gives no page more.

    Asked for without malloc, which would take what is missing from the free end of its heap.
    """
    resource.setrlimit(resource.RLIMIT_DATA, (status("VmData") + LIMIT, resource.RLIM_INFINITY))
    try:
        mmap.mmap(-1, LIMIT + mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
        held = False
    except OSError:
        held = True
    run = cvgnn.fit(open_store(folder), **OPTIONS)
    return {"held": held, "classes": digest(run.predict().numpy())}


if __name__ == "__main__":
    mode, folder, width = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    # Imports and compiled code are not the run's.
    cvgnn.fit(make_graph(n=60), **{**OPTIONS, "batch_size": 5})
    print(json.dumps(limited(folder) if mode == "limited" else measured(mode, folder, width)))
