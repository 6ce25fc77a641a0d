"""One step of every optimizer in both forms beside `torch.optim`, foreach and fused: medians, interleaved, one thread.

    OMP_WAIT_POLICY=passive GOMP_SPINCOUNT=0 python benchmarks/optimizer_step.py [repetitions]

All steps of a repetition are timed back to back in an order that alternates, so that a busy machine slows all of them.
A ratio is the median over repetitions of (this / torch.optim with foreach=True); below 1 this is the faster one. For
AdaGrad torch has no momentum, the paper has.
"""

from __future__ import annotations

import os

# Before torch is imported: its spin-wait makes small operations many times slower on a busy machine.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("GOMP_SPINCOUNT", "0")

import statistics
import sys
import time
from collections.abc import Callable
from functools import partial

import torch
from torch.nn import Parameter

from cvgnn.optim import OPTIMIZERS, make_optimizer

SHAPES = {
    "Cora (1433-32-7)": [(1433, 32), (32,), (32,), (32,), (32, 7), (7,)],
    "Flickr (500-256-7)": [(500, 256), (256,), (256,), (256,), (256, 7), (7,)],
}
LR, WEIGHT_DECAY, WARM_UP = 1e-3, 5e-4, 20
TORCHS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD,
    "heavy-ball": partial(torch.optim.SGD, momentum=0.9, dampening=0.9),
    "adam": torch.optim.Adam,
    "amsgrad": partial(torch.optim.Adam, amsgrad=True),
    "adagrad": torch.optim.Adagrad,
}


def parameters(shapes: list[tuple[int, ...]]) -> list[Parameter]:
    generator = torch.Generator().manual_seed(0)
    W = [Parameter(torch.randn(shape, generator=generator)) for shape in shapes]
    for w in W:
        w.grad = torch.randn(w.shape, generator=generator)
    return W


def contestants(name: str, shapes: list[tuple[int, ...]]) -> dict[str, torch.optim.Optimizer]:
    ours = {
        form: make_optimizer(name, parameters(shapes), form=form, lr=LR, weight_decay=WEIGHT_DECAY)
        for form in ("paper", "torch")
    }
    make = partial(TORCHS[name], lr=LR, weight_decay=WEIGHT_DECAY)
    torchs = {"foreach": make(parameters(shapes), foreach=True), "fused": make(parameters(shapes), fused=True)}
    return {**torchs, **ours}


def measure(name: str, shapes: list[tuple[int, ...]], repetitions: int) -> dict[str, list[float]]:
    optimizers = contestants(name, shapes)
    times: dict[str, list[float]] = {label: [] for label in optimizers}
    for repetition in range(WARM_UP + repetitions):
        order = list(optimizers) if repetition % 2 else list(optimizers)[::-1]
        for label in order:
            start = time.perf_counter()
            optimizers[label].step()
            elapsed = time.perf_counter() - start
            if repetition >= WARM_UP:
                times[label].append(elapsed)
    return times


def main(repetitions: int = 1000) -> None:
    torch.set_num_threads(1)
    print(
        f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}, 1 thread, {repetitions} repetitions\n"
    )
    columns = ["torch.optim fused µs", "paper's form µs", "torch's form µs"]
    print(f"| parameters | optimizer | torch.optim foreach µs | {' | ratio | '.join(columns)} | ratio |")
    print("|---" * 9 + "|")
    for size, shapes in SHAPES.items():
        for name in OPTIMIZERS:
            times = measure(name, shapes, repetitions)
            base = times["foreach"]
            cells = [size, name, f"{1e6 * statistics.median(base):.0f}"]
            for label in ("fused", "paper", "torch"):
                ratio = statistics.median(mine / other for mine, other in zip(times[label], base, strict=True))
                cells += [f"{1e6 * statistics.median(times[label]):.0f}", f"{ratio:.2f}"]
            print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
