"""Milliseconds of a training iteration, where they go, and the roofline that no implementation can beat.

    python benchmarks/step.py [--sizes flickr arxiv] [--threads 1 2] [--numbers float32 bfloat16] [--rounds 12]
                              [--out DIR]

An iteration is Algorithm 1 with the paper's settings for AMSGrad (Appendix B): draw the batch and its neighbors,
forward, loss, backward, optimizer step, history writes. The roofline is timed in the same run with the same threads (or
with one, where that is faster): the forward and the weight-gradient product of layer 0 on this step's rows, and the sum
of this step's history rows. With `bfloat16` features and histories are stored in bfloat16 and features are multiplied
in it (`feature_dtype`, `history_dtype`), in the roofline too; Cora's features are sparse and stay in float32. Blocks of
undisturbed iterations, of instrumented iterations and of roofline parts alternate; each figure is a median over the
blocks, a ratio the median of the blocks' ratios. The parts are timed without overlap (no prefetching), so their sum may
exceed the iteration; what threads share counts as the mean over them, and `rest` includes their waiting for each other.
"""

from __future__ import annotations

import common  # isort: skip
import itertools
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

from cvgnn.lab.recipes import paper_recipe
from cvgnn.ops import affine
from cvgnn.ops import layer_kernels as kernels
from cvgnn.ops.row_input import SparseInput
from cvgnn.sampling import Batch
from cvgnn.training import Trainer
from cvgnn.training.machine import thread_count
from cvgnn.training.trainer_builder import build_trainer

BLOCK = 10
PARTS = ("sampling", "gather", "forward", "history", "backward", "optimizer", "rest")


class Clock:
    """Sums the seconds spent in wrapped functions; what several threads share counts as the mean over them.

    Args:
        threads: how many share what more than one does.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._by_thread: dict[tuple[str, str], dict[int, float]] = defaultdict(lambda: defaultdict(float))

    def wrap(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        spent = self._by_thread[part, function.__name__]

        def timed(*args: Any, **options: Any) -> Any:
            start = time.perf_counter()
            try:
                return function(*args, **options)
            finally:
                spent[threading.get_ident()] += time.perf_counter() - start

        return timed

    @property
    def seconds(self) -> dict[str, float]:
        total: dict[str, float] = defaultdict(float)
        for (part, _), spent in self._by_thread.items():
            total[part] += sum(spent.values()) / (self.threads if len(spent) > 1 else 1)
        return total


def forever(trainer: Trainer) -> Iterator[Batch]:
    for epoch in itertools.count(1):
        yield from trainer.loader.epoch(epoch)


def one_by_one(trainer: Trainer) -> Iterator[Batch]:
    """Batches that nothing draws ahead, so that drawing can be timed."""
    for epoch in itertools.count(1):
        for ids in trainer.loader.epoch_ids(epoch):
            yield trainer.loader._batch(ids, trainer.iterations + 1)


def milliseconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return (time.perf_counter() - start) * 1e3


def plain(trainer: Trainer, batches: Iterator[Batch]) -> float:
    """Milliseconds an iteration over a block, drawing included."""
    return milliseconds(lambda: [trainer.step(next(batches)) for _ in range(BLOCK)]) / BLOCK


def instrumented(trainer: Trainer, batches: Iterator[Batch]) -> dict[str, float]:
    """Milliseconds an iteration in each part; `rest` is what is left of the whole: Python between the parts."""
    clock = Clock(torch.get_num_threads())
    estimator, histories = trainer.estimator, trainer.estimator.histories  # type: ignore[attr-defined]
    places = [
        ("sampling", trainer.loader, "_batch"),
        ("gather", estimator.features, "rows"),
        ("forward", affine, "multiply_into"),
        ("forward", kernels, "forward"),
        ("forward", kernels, "aggregate"),
        *(("history", history, "weighted_sum") for history in histories),
        ("history", estimator, "commit"),
        ("backward", kernels, "backward"),
        ("backward", affine, "weight_gradient"),
        ("backward", affine, "input_gradient_into"),
        ("backward", SparseInput, "weight_gradient"),
        ("optimizer", trainer.optimizer, "step"),
    ]
    originals = [getattr(owner, name) for _, owner, name in places]
    for (part, owner, name), original in zip(places, originals, strict=True):
        setattr(owner, name, clock.wrap(part, original))
    try:
        start = time.perf_counter()
        for _ in range(BLOCK):
            trainer.step(next(batches))
        whole = time.perf_counter() - start
    finally:
        for (_, owner, name), original in zip(places, originals, strict=True):
            setattr(owner, name, original)
    seconds = clock.seconds
    seconds["rest"] = whole - sum(seconds.values())
    return {part: s * 1e3 / BLOCK for part, s in seconds.items()}


def roofline(trainer: Trainer, batch: Batch, threads: int) -> dict[str, float]:
    """Milliseconds of what a step cannot do without, each timed alone, on all threads and on one: the faster counts."""
    A = trainer.estimator.features.rows(batch.inputs)
    W = trainer.model.layer(0).weight.detach()
    remainder = batch.block(1).remainder
    assert remainder is not None
    history = trainer.estimator.history(1)  # type: ignore[attr-defined]
    if isinstance(A, torch.Tensor):
        W = W.to(A.dtype)
        Z, G = A @ W, torch.empty_like(W)
        work = {
            "history gather": lambda: history.weighted_sum(remainder),
            "forward product": lambda: torch.mm(A, W, out=Z),
            "gradient product": lambda: torch.mm(A.t(), Z, out=G),
        }
    else:  # sparse features: the product is a sum of rows of W
        dZ = A.product(W)
        work = {
            "history gather": lambda: history.weighted_sum(remainder),
            "forward product": lambda: A.product(W),
            "gradient product": lambda: A.weight_gradient(dZ),
        }
    parts = {part: milliseconds(function) for part, function in work.items()}
    if threads > 1:
        with thread_count(1):
            for part in ("forward product", "gradient product"):  # the gather's rows are in the caches now
                parts[part] = min(parts[part], milliseconds(work[part]))
    return parts


def measure(size: str, numbers: str, threads: int, rounds: int, trainer: Trainer) -> dict[str, Any]:
    trainer.warm_up()
    trainer.model.train()
    batches = forever(trainer)
    drawn_when_needed = one_by_one(trainer)
    totals: list[float] = []
    parts: dict[str, list[float]] = defaultdict(list)
    limits: dict[str, list[float]] = defaultdict(list)
    inputs = []
    for r in range(rounds + 1):
        blocks = plain(trainer, batches)
        detail = instrumented(trainer, drawn_when_needed)
        fresh = [next(drawn_when_needed) for _ in range(3)]  # rows that no cache holds yet, as in an iteration
        inputs.append(fresh[0].inputs.numel())
        limit = [roofline(trainer, batch, threads) for batch in fresh]
        if r == 0:
            continue  # the first round warms up
        totals.append(blocks)
        for part, ms in detail.items():
            parts[part].append(ms)
        for part in limit[0]:
            limits[part].append(statistics.median(one[part] for one in limit))
    total = statistics.median(totals)
    bounds = [sum(parts) for parts in zip(*limits.values(), strict=True)]
    bound = statistics.median(bounds)
    ratios = [a / b for a, b in zip(totals, bounds, strict=True)]
    return {
        "size": size,
        "numbers": numbers,
        "threads": threads,
        "rows": round(statistics.median(inputs)),
        "ms": round(total, 3),
        "roofline ms": round(bound, 3),
        "ratio": round(statistics.median(ratios), 2),
        **{part: round(statistics.median(parts.get(part, [0.0])), 3) for part in PARTS},
        **{part: round(statistics.median(v), 3) for part, v in limits.items()},
        "spread": f"{min(totals):.2f}..{max(totals):.2f}",
    }  # fmt: skip


def main() -> None:
    arguments = common.parser(__doc__ or "", "step")
    arguments.add_argument("--sizes", nargs="+", default=list(common.SIZES), choices=common.SIZES)
    arguments.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    arguments.add_argument("--numbers", nargs="+", default=["float32", "bfloat16"], choices=["float32", "bfloat16"])
    arguments.add_argument("--rounds", type=int, default=12)
    options = arguments.parse_args()
    rows = []
    for size in options.sizes:
        graph = common.load(size)
        for numbers in options.numbers if size != "cora" else ["float32"]:
            stored = dict.fromkeys(("feature_dtype", "history_dtype"), numbers)
            config = replace(paper_recipe(common.RECIPE[size], "amsgrad"), **stored)  # type: ignore[arg-type]
            with thread_count(max(options.threads)):
                trainer = build_trainer(graph, config)
            for threads in options.threads:
                with thread_count(threads):
                    rows.append(measure(size, numbers, threads, options.rounds, trainer))
                said = f"{rows[-1]['ms']} ms, {rows[-1]['ratio']} x roofline"
                print(f"{size}, {numbers}, {threads} thread(s): {said}", flush=True)
            del trainer
        del graph
    whole = ["size", "numbers", "threads", "rows", "ms", "spread", "roofline ms", "ratio"]
    split = ["size", "numbers", "threads", *PARTS]
    limit = ["size", "numbers", "threads", "forward product", "gradient product", "history gather"]
    tables = {
        "Iterations": [{k: row[k] for k in whole} for row in rows],
        "Where the milliseconds go": [{k: row[k] for k in split} for row in rows],
        "The roofline's parts (ms)": [{k: row[k] for k in limit} for row in rows],
    }
    common.report("step", "Milliseconds of an iteration", __doc__ or "", tables, options.out)


if __name__ == "__main__":
    main()
