"""A training iteration of two checkouts of cvgnn, in processes that take turns.

    python benchmarks/compare.py OLD_CHECKOUT [--new CHECKOUT] [--sizes cora flickr arxiv reddit] [--threads 1 2]
                                 [--numbers float32 bfloat16] [--rounds 15] [--losses] [--data DIR] [--out DIR]
    python benchmarks/compare.py --losses                        the losses alone

An iteration is Algorithm 1 with the paper's settings for AMSGrad (Appendix B), drawing included; both checkouts have
the same seed. With `bfloat16` features and histories are stored in bfloat16; Cora's features are sparse and stay in
float32. Each checkout has a process for each size. They take turns with blocks of iterations, half a second each, and
alternate in who begins. A ratio is the median over the rounds of new / old in the same round; with the quartiles and
the extremes over the rounds. Compare a checkout with itself to see the noise of the machine.
`--losses`: cross entropy, binary cross entropy with logits and a loss that a user wrote (focal) take turns in one
process of the new checkout; ratios are to cross entropy.
"""

from __future__ import annotations

import common  # isort: skip
import importlib
import itertools
import os
import statistics
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

BLOCK_MS = 450.0
LOSSES = ("cross entropy", "BCE with logits", "focal")


# The process of a checkout.


def cvgnn_parts() -> tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
    """`thread_count`, `paper_recipe` and `build_trainer`, wherever this checkout has them."""
    try:
        from cvgnn.lab.recipes import paper_recipe
        from cvgnn.training.machine import thread_count
        from cvgnn.training.trainer_builder import build_trainer
    except ImportError:  # up to 8950539
        experiments = [importlib.import_module(f"cvgnn.experiments.{name}") for name in ("machine", "recipes", "run")]
        return experiments[0].thread_count, experiments[1].paper_recipe, experiments[2].build_trainer
    return thread_count, paper_recipe, build_trainer


def losses() -> dict[str, Callable[..., Any]]:
    from torch import Tensor
    from torch.nn import functional

    def bce(logits: Tensor, labels: Tensor) -> Tensor:
        wanted = functional.one_hot(labels, logits.shape[1]).to(logits.dtype)
        return functional.binary_cross_entropy_with_logits(logits, wanted)

    def focal(logits: Tensor, labels: Tensor) -> Tensor:
        log_p = functional.log_softmax(logits, dim=1).gather(1, labels[:, None])
        return -((1 - log_p.exp()).square() * log_p).mean()

    return dict(zip(LOSSES, (functional.cross_entropy, bce, focal), strict=True))


class Bench:
    """Does what the lines on stdin ask for: `build NUMBERS THREADS`, `threads THREADS`, `loss NAME`, `go ITERATIONS`.

    Args:
        size: of the graph.
        data: where Cora is looked for.
    """

    def __init__(self, size: str, data: Path) -> None:
        self.size = size
        self.graph = common.load(size, data)
        self.losses = losses()
        self.thread_count, self.paper_recipe, self.build_trainer = cvgnn_parts()
        self.trainer: Any = None
        self.batches: Iterator[Any] = iter(())
        self.batch: Any = None
        self.threads = 1

    def answer(self, line: str) -> object:
        thread_count = self.thread_count
        command, _, rest = line.strip().partition(" ")
        if command == "build":
            numbers, threads = rest.split()
            with thread_count(int(threads)):
                self.build(numbers)
        elif command == "threads":
            self.threads = int(rest)
            with thread_count(self.threads):
                self.begin()
        elif command == "loss":
            if hasattr(self.trainer, "task"):
                self.trainer.task.function = None if rest == LOSSES[0] else self.losses[rest]
            else:  # a checkout from before tasks
                self.trainer.loss = self.losses[rest]
        elif command == "go":
            with thread_count(self.threads):
                return self.go(int(rest))
        else:
            raise ValueError(f"unknown command {line!r}")
        return "done"

    def build(self, numbers: str) -> None:
        self.trainer, self.batches, self.batch = None, iter(()), None  # its memory is free for the next one
        stored: dict[str, Any] = dict.fromkeys(("feature_dtype", "history_dtype"), numbers)
        self.trainer = self.build_trainer(
            self.graph, replace(self.paper_recipe(common.RECIPE[self.size], "amsgrad"), **stored)
        )

    def begin(self) -> None:
        self.batches, self.batch = iter(()), None
        self.trainer.warm_up()
        self.trainer.model.train()
        self.batches = (batch for epoch in itertools.count(1) for batch in self.trainer.loader.epoch(epoch))
        self.batch = next(self.batches)

    def go(self, iterations: int) -> float:
        """Milliseconds an iteration. The next batch is at hand before and after, so nothing is drawn meanwhile in a
        thread that the other process would wait for."""
        trainer, batches, batch = self.trainer, self.batches, self.batch
        start = time.perf_counter()
        for _ in range(iterations):
            trainer.step(batch)
            batch = next(batches)
        taken = time.perf_counter() - start
        self.batch = batch
        return taken * 1e3 / iterations


def serve(size: str, data: Path, source: Path) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else is printed is no answer
    import cvgnn

    if not Path(cvgnn.__file__ or "").resolve().is_relative_to(source.resolve()):
        sys.exit(f"{source} was asked for, but {cvgnn.__file__} was imported")
    bench = Bench(size, data)
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        print(bench.answer(line), file=answers, flush=True)


# The process that lets them take turns.


class Worker:
    """The process of a checkout, seen from outside.

    Args:
        checkout: of cvgnn.
        size: of the graph.
        data: where Cora is looked for.
    """

    def __init__(self, checkout: Path, size: str, data: Path) -> None:
        self.checkout = checkout
        source = str(checkout / "src")
        path = os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH"))))
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--worker", size, source, "--data", str(data)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": path},
        )

    def __enter__(self) -> Worker:
        self._receive()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.process.communicate(timeout=10)  # it ends where its input does
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def ask(self, *words: object) -> str:
        assert self.process.stdin is not None
        try:
            print(*words, file=self.process.stdin, flush=True)
        except BrokenPipeError:
            self._failed()
        return self._receive()

    def go(self, iterations: int) -> float:
        return float(self.ask("go", iterations))

    def _receive(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self._failed()
        return line.strip()

    def _failed(self) -> None:
        sys.exit(f"the process of {self.checkout} failed (exit code {self.process.wait()}); see above")


Turn = Callable[[int], float]


def block_length(turns: Sequence[Turn]) -> int:
    """Iterations of a block, so that one takes `BLOCK_MS` in the mean of those who take turns."""
    for turn in turns:
        turn(3)
    iterations = 3
    while (taken := statistics.mean(turn(iterations) for turn in turns) * iterations) < BLOCK_MS / 4:
        iterations *= 4
    return max(1, round(iterations * BLOCK_MS / taken))


def take_turns(turns: dict[str, Turn], rounds: int) -> tuple[int, dict[str, list[float]]]:
    """Iterations of a block, and milliseconds an iteration of each name in each round; the first round warms up."""
    names = list(turns)
    iterations = block_length(list(turns.values()))
    taken: dict[str, list[float]] = {name: [] for name in names}
    for r in range(rounds + 1):
        first = r % len(names)
        for name in names[first:] + names[:first]:
            ms = turns[name](iterations)
            if r > 0:
                taken[name].append(ms)
    return iterations, taken


def ratio_columns(ms: Sequence[float], base: Sequence[float]) -> dict[str, Any]:
    ratios = [a / b for a, b in zip(ms, base, strict=True)]
    low, middle, high = statistics.quantiles(ratios, method="inclusive") if len(ratios) > 1 else ratios * 3
    return {
        "ratio": round(middle, 3),
        "quartiles": f"{low:.3f}..{high:.3f}",
        "spread": f"{min(ratios):.3f}..{max(ratios):.3f}",
    }


def cells(size: str, options: Namespace, workers: Sequence[Worker]) -> Iterator[dict[str, Any]]:
    """The kinds of numbers and the numbers of threads of a size; the workers are ready for each when it comes."""
    for numbers in options.numbers if size != "cora" else ["float32"]:
        for worker in workers:
            worker.ask("build", numbers, max(options.threads))
        for threads in options.threads:
            for worker in workers:
                worker.ask("threads", threads)
            yield {"size": size, "numbers": numbers, "threads": threads}


def compare_checkouts(size: str, options: Namespace) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    with ExitStack() as stack:
        old, new = (stack.enter_context(Worker(c, size, options.data)) for c in (options.old, options.new))
        for cell in cells(size, options, [old, new]):
            iterations, taken = take_turns({"old": old.go, "new": new.go}, options.rounds)
            yield (
                {
                    **cell,
                    "iterations": iterations,
                    **{f"{name} ms": round(statistics.median(ms), 3) for name, ms in taken.items()},
                    **ratio_columns(taken["new"], taken["old"]),
                },
                {**cell, "ms": taken},
            )


def compare_losses(size: str, options: Namespace) -> Iterator[tuple[list[dict[str, Any]], dict[str, Any]]]:
    with Worker(options.new, size, options.data) as worker:

        def with_loss(name: str) -> Turn:
            def turn(iterations: int) -> float:
                worker.ask("loss", name)
                return worker.go(iterations)

            return turn

        for cell in cells(size, options, [worker]):
            iterations, taken = take_turns({name: with_loss(name) for name in LOSSES}, options.rounds)
            base = taken[LOSSES[0]]
            rows = [
                {
                    **cell,
                    "loss": name,
                    "iterations": iterations,
                    "ms": round(statistics.median(ms), 3),
                    **ratio_columns(ms, base),
                }
                for name, ms in taken.items()
            ]
            yield rows, {**cell, "ms": taken}


def parse() -> Namespace:
    arguments = common.parser(__doc__ or "", "compare")
    arguments.add_argument("old", nargs="?", type=Path, metavar="OLD_CHECKOUT", help="a folder with src/cvgnn")
    arguments.add_argument("--new", type=Path, default=common.ROOT, metavar="CHECKOUT", help="this one if not given")
    arguments.add_argument("--sizes", nargs="+", default=list(common.SIZES), choices=common.SIZES)
    arguments.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    arguments.add_argument("--numbers", nargs="+", default=["float32", "bfloat16"], choices=["float32", "bfloat16"])
    arguments.add_argument("--rounds", type=int, default=15)
    arguments.add_argument("--losses", action="store_true", help="compare losses too, in the new checkout")
    arguments.add_argument("--data", type=Path, default=common.SHARED, help="folder with planetoid/, for Cora")
    arguments.add_argument("--worker", nargs=2, metavar=("SIZE", "SOURCE"), help="be the process of a checkout")
    options = arguments.parse_args()
    if options.worker:
        return options
    if options.old is None and not options.losses:
        arguments.error("name the checkout to compare with, or compare --losses")
    if options.rounds < 1 or min(options.threads) < 1:
        arguments.error("--rounds and --threads must be at least 1")
    for checkout in filter(None, (options.old, options.new)):
        if not (checkout / "src" / "cvgnn").is_dir():
            arguments.error(f"{checkout} is no checkout of cvgnn: it has no src/cvgnn")
    return options


def main() -> None:
    options = parse()
    if options.worker:
        size, source = options.worker
        serve(size, options.data, Path(source))
        return
    compared: list[dict[str, Any]] = []
    by_loss: list[dict[str, Any]] = []
    rounds: list[dict[str, Any]] = []
    checkouts = {"old": options.old, "new": options.new}
    commits = [{"checkout": k, "commit": common.commit(path)} for k, path in checkouts.items() if path is not None]
    for size in options.sizes:
        common.source(size, options.data)  # the report says it where CiteSeer stands for Cora
        if options.old is not None:
            for row, raw in compare_checkouts(size, options):
                compared.append(row)
                rounds.append(raw)
                said = f"{row['old ms']} -> {row['new ms']} ms, ratio {row['ratio']} ({row['spread']})"
                print(f"{size}, {row['numbers']}, {row['threads']} thread(s): {said}", flush=True)
        if options.losses:
            for rows, raw in compare_losses(size, options):
                by_loss += rows
                rounds.append(raw)
                said = ", ".join(f"{row['loss']} {row['ms']} ms ({row['ratio']})" for row in rows)
                print(f"{size}, {rows[0]['numbers']}, {rows[0]['threads']} thread(s): {said}", flush=True)
    tables = {"Checkouts": commits, "New against old": compared, "Losses against cross entropy": by_loss}
    title = "A training iteration of two checkouts"
    common.report("compare", title, __doc__ or "", tables, options.out, rounds=rounds)


if __name__ == "__main__":
    main()
