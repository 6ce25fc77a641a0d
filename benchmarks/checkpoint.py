"""The cost of saving and restoring a run's state, and of the check of every gradient.

    python benchmarks/checkpoint.py [--sizes cora arxiv reddit] [--rounds 5] [--out DIR]

Settings of the paper's Appendix B for AMSGrad, one thread. `save` is a checkpoint as a run writes it: weights,
optimizer state, histories with their ages, checksums, fsync and rename; the share is of a run that saves every 10
minutes, the default. `memory` is how much the peak resident memory grows while the first one is saved: the state is
written from memory without a copy. `restore` reads it back, checksums compared, into a new trainer (without building
that trainer). `identity` is what the start of a run in a folder takes to hash the graph and the code. `guard` is the
check of loss and gradient before each step, in percent of an iteration: blocks of steps with and without it take turns.
"""

from __future__ import annotations

import common  # isort: skip
import itertools
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from cvgnn.config import GraphSource
from cvgnn.lab.recipes import paper_recipe
from cvgnn.sampling import Batch
from cvgnn.training import Guard, Trainer, restore_trainer, trainer_state
from cvgnn.training.checkpoint import Checkpoints
from cvgnn.training.machine import peak_rss_bytes
from cvgnn.training.resume import identity
from cvgnn.training.trainer_builder import build_trainer

SECONDS_BETWEEN = 600.0  # CheckpointPlan's default
BLOCK = 40


class Trusting:
    """A guard that looks at nothing."""

    skip_bad = False

    def accepts(self, loss: float, parameters: list[Any]) -> bool:
        return True


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def forever(trainer: Trainer) -> Iterator[Batch]:
    for epoch in itertools.count(1):
        yield from trainer.loader.epoch(epoch)


def guard_share(trainer: Trainer, rounds: int) -> float:
    """The time of an iteration with the guard over that without it, minus 1, in percent."""
    batches = forever(trainer)
    ratios = []

    def block() -> None:
        for _ in range(BLOCK):
            trainer.step(next(batches))

    block()
    for r in range(2 * rounds):
        times = {}
        for guarded in (True, False) if r % 2 else (False, True):
            trainer.guard = Guard() if guarded else Trusting()  # type: ignore[assignment]
            times[guarded] = seconds(block)
        ratios.append(times[True] / times[False])
    trainer.guard = Guard()
    return 100 * (statistics.median(ratios) - 1)


def measure(size: str, rounds: int, folder: Path) -> dict[str, Any]:
    graph = common.load(size)
    config = paper_recipe(common.RECIPE[size], "amsgrad")
    trainer = build_trainer(graph, config)
    for batch in itertools.islice(trainer.loader.epoch(1), 3):
        trainer.step(batch)
        trainer.position.steps += 1
    checkpoints = Checkpoints(folder)
    body: dict[str, Any] = {"records": []}
    saved, read, before = [], [], peak_rss_bytes()
    growth = 0
    for r in range(rounds):
        tensors, numbers = trainer_state(trainer)
        saved.append(seconds(lambda t=tensors, n=numbers: checkpoints.save(t, {**body, "trainer": n})))
        if r == 0:
            growth = peak_rss_bytes() - before
    other = build_trainer(graph, config, initialize=False)

    def restore() -> None:
        found = checkpoints.newest()
        assert found is not None
        restore_trainer(other, found.tensors, found.body["trainer"])

    for _ in range(rounds):
        read.append(seconds(restore))
    assert all(torch.equal(a, b) for a, b in zip(other.model.parameters(), trainer.model.parameters(), strict=True))
    num_bytes = sum(p.stat().st_size for p in checkpoints.last.iterdir())  # type: ignore[union-attr]
    save = statistics.median(saved)
    return {
        "size": size,
        "MiB": round(num_bytes / 2**20, 1),
        "save s": round(save, 3),
        "spread": f"{min(saved):.3f}..{max(saved):.3f}",
        "share %": round(100 * save / SECONDS_BETWEEN, 3),
        "memory MiB": round(growth / 2**20, 1),
        "restore s": round(statistics.median(read), 3),
        "identity s": round(seconds(lambda: identity(graph, GraphSource(), config, threads=1)), 3),
        "guard %": round(guard_share(trainer, rounds), 1),
    }


def main() -> None:
    arguments = common.parser(__doc__ or "", "checkpoint")
    arguments.add_argument("--sizes", nargs="+", default=list(common.SIZES), choices=common.SIZES)
    arguments.add_argument("--rounds", type=int, default=5)
    options = arguments.parse_args()
    torch.set_num_threads(1)
    rows = []
    for size in options.sizes:
        folder = Path(tempfile.mkdtemp(dir=options.out.parent if options.out.parent.is_dir() else None))
        try:
            rows.append(measure(size, options.rounds, folder / "checkpoints"))
        finally:
            shutil.rmtree(folder)
    common.report("checkpoint", "Checkpoints and guards", __doc__ or "", {"Costs": rows}, options.out)


if __name__ == "__main__":
    main()
