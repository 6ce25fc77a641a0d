"""What a second thread costs and brings: waking it, and whole training steps by size.

    python benchmarks/threads.py [--rounds 7] [--out DIR]

Waiting threads sleep (`OMP_WAIT_POLICY=passive`), as cvgnn sets it. The first table times a small operation on one and
on two threads: what the second adds is the cost of waking it. The second table times training steps (Adam, fan-out 2)
on one and on two threads by batch size and width; cvgnn chooses by the multiply-adds of layer 0
(`cvgnn.training.machine.default_threads`). The third times steps of the paper's recipe for AMSGrad on two threads,
with batches that another thread draws while a step runs, and without; cvgnn chooses by the entries of `P` in a batch
(`cvgnn.sampling.loader`). Medians; the two take turns.
"""

from __future__ import annotations

import common  # isort: skip
import itertools
import statistics
import time
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numba import njit

from cvgnn.config import TrainConfig
from cvgnn.lab.recipes import paper_recipe
from cvgnn.ops.threads import run_rows
from cvgnn.sampling import Batch
from cvgnn.sampling.loader import WORTH_DRAWING_AHEAD, prefetch_one
from cvgnn.training import Trainer
from cvgnn.training import machine as machine
from cvgnn.training.machine import batch_rows, thread_count
from cvgnn.training.trainer_builder import build_trainer

BATCHES, WIDTHS = (50, 150, 500), (16, 64, 256)


@njit(nogil=True)
def touch(rows, first, last):  # type: ignore[no-untyped-def]
    for i in range(first, last):
        rows[i] += 1.0


def microseconds(work: Callable[[], object], repetitions: int = 200) -> float:
    times = []
    for _ in range(repetitions):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
        time.sleep(0.0005)  # long enough for the other thread to fall asleep, as between the operations of a step
    return 1e6 * statistics.median(times)


def wake_up(rounds: int) -> list[dict[str, Any]]:
    x = torch.randn(400, 256)
    rows = np.zeros(1 << 20)
    touch(rows, 0, 1)
    operations: dict[str, Callable[[], object]] = {
        "torch.relu of 400 x 256": lambda: torch.relu(x),
        "two Python threads, nothing to do": lambda: run_rows(
            lambda first, last: touch(rows, first, first + 1), 1 << 20, width=1
        ),
    }
    found = []
    for name, work in operations.items():
        one, two = [], []
        for _ in range(rounds):
            for threads, times in ((1, one), (2, two)):
                with thread_count(threads):
                    times.append(microseconds(work))
        a, b = statistics.median(one), statistics.median(two)
        found.append({"operation": name, "1 thread us": round(a), "2 threads us": round(b), "more us": round(b - a)})
    return found


def steps(size: str, rounds: int) -> list[dict[str, Any]]:
    graph = common.load(size)
    found = []
    for batch_size, width in itertools.product(BATCHES, WIDTHS):
        config = TrainConfig(batch_size=batch_size, hidden=width, norm="layer", dropout=0.0, num_neighbors=2)
        trainer = build_trainer(graph, config)
        epoch = itertools.count(1)

        def some(trainer: Any = trainer, epoch: Any = epoch) -> float:
            batches = itertools.islice(trainer.loader.epoch(next(epoch)), 20)
            start = time.perf_counter()
            for batch in batches:
                trainer.step(batch)
            return time.perf_counter() - start

        ratios = []
        for r in range(rounds + 1):
            times = {}
            for threads in (1, 2):
                with thread_count(threads):
                    times[threads] = some()
            if r:
                ratios.append((times[2] / times[1], times[1] / 20 * 1e3))
        work = batch_rows(graph, config) * graph.num_features * width
        found.append(
            {
                "size": size,
                "batch": batch_size,
                "width": width,
                "million multiply-adds": round(work / 1e6, 1),
                "1 thread ms": round(statistics.median(ms for _, ms in ratios), 2),
                "2 threads / 1": round(statistics.median(ratio for ratio, _ in ratios), 2),
                "cvgnn takes": 1 if work < machine.WORTH_SHARING else 2,
            }
        )
    return found


def drawing(size: str, batch_size: int, graph: Any, rounds: int) -> dict[str, Any]:
    config = replace(paper_recipe(common.RECIPE[size], "amsgrad"), batch_size=batch_size)
    trainer = build_trainer(graph, config)
    trainer.warm_up()
    trainer.model.train()
    count = 200 if size == "cora" else 20
    times: dict[bool, list[float]] = {True: [], False: []}
    with thread_count(2):
        for _ in range(rounds + 1):
            for ahead, seen in times.items():
                batches = drawn(trainer, ahead)
                trainer.step(next(batches))
                start = time.perf_counter()
                for _ in range(count):
                    trainer.step(next(batches))
                seen.append((time.perf_counter() - start) / count * 1e3)
                batches.close()
    entries = trainer.loader.sampler.entries(batch_size)
    return {
        "size": size,
        "batch": batch_size,
        "entries": entries,
        "ms, drawn when needed": round(statistics.median(times[False][1:]), 2),
        "drawn ahead / when needed": round(
            statistics.median(a / b for a, b in zip(times[True][1:], times[False][1:], strict=True)), 2
        ),
        "cvgnn draws ahead": "yes" if entries >= WORTH_DRAWING_AHEAD else "no",
    }


def drawn(trainer: Trainer, ahead: bool) -> Generator[Batch]:
    """Batches without end, drawn by another thread or not."""
    epochs = (trainer.loader.epoch_ids(epoch) for epoch in itertools.count(1))
    numbered = enumerate(itertools.chain.from_iterable(epochs), start=1)
    batches = (trainer.loader._batch(ids, step) for step, ids in numbered)
    yield from prefetch_one(batches, trainer.loader._signal) if ahead else batches


def main() -> None:
    arguments = common.parser(__doc__ or "", "threads")
    arguments.add_argument("--rounds", type=int, default=7)
    options = arguments.parse_args()
    rows = [row for size in ("flickr", "arxiv") for row in steps(size, options.rounds)]
    rows.sort(key=lambda row: row["million multiply-adds"])
    ahead = []
    for size, batches in (("cora", (10, 140)), ("arxiv", (64, 128, 256, 512, 1024)), ("flickr", (1000,))):
        graph = common.load(size)
        ahead += [drawing(size, batch_size, graph, options.rounds) for batch_size in batches]
    ahead.sort(key=lambda row: row["entries"])
    tables = {"Waking a thread": wake_up(options.rounds), "Training steps": rows, "Drawing ahead": ahead}
    common.report("threads", "A second thread", __doc__ or "", tables, options.out)


if __name__ == "__main__":
    main()
