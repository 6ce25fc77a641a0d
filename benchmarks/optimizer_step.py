"""One step of the paper's optimizers beside torch's foreach versions: medians, interleaved in one run, one thread.

    OMP_WAIT_POLICY=passive GOMP_SPINCOUNT=0 python benchmarks/optimizer_step.py [repetitions]

Both steps of a pair are timed back to back, in an order that alternates, so that a busy machine slows both. The
ratio is the median over repetitions of (paper / torch); below 1 the paper's form is the faster one.
"""

from __future__ import annotations

import os

# Before torch is imported: its spin-wait makes small operations many times slower on a busy machine.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("GOMP_SPINCOUNT", "0")

import statistics
import sys
import time

import torch

from cvgnn.optim import OPTIMIZERS, make_optimizer

SHAPES = {
    "Cora (1433-32-7)": [(1433, 32), (32,), (32,), (32,), (32, 7), (7,)],
    "Flickr (500-256-7)": [(500, 256), (256,), (256,), (256,), (256, 7), (7,)],
}
FORMS = ("paper", "torch")
WARM_UP = 20


def make(name: str, form: str, shapes: list[tuple[int, ...]], weight_decay: float) -> torch.optim.Optimizer:
    generator = torch.Generator().manual_seed(0)
    W = [torch.nn.Parameter(torch.randn(shape, generator=generator)) for shape in shapes]
    for w in W:
        w.grad = torch.randn(w.shape, generator=generator)
    return make_optimizer(name, W, form=form, lr=1e-3, weight_decay=weight_decay)


def seconds(optimizer: torch.optim.Optimizer) -> float:
    start = time.perf_counter()
    optimizer.step()
    return time.perf_counter() - start


def measure(shapes: list[tuple[int, ...]], weight_decay: float, repetitions: int) -> dict[str, dict[str, list[float]]]:
    optimizers = {name: {form: make(name, form, shapes, weight_decay) for form in FORMS} for name in OPTIMIZERS}
    times: dict[str, dict[str, list[float]]] = {name: {form: [] for form in FORMS} for name in OPTIMIZERS}
    for repetition in range(WARM_UP + repetitions):
        order = FORMS if repetition % 2 else FORMS[::-1]
        for name in OPTIMIZERS:
            for form in order:
                elapsed = seconds(optimizers[name][form])
                if repetition >= WARM_UP:
                    times[name][form].append(elapsed)
    return times


def main(repetitions: int = 1000) -> None:
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}, 1 thread, {repetitions} repetitions")
    print(f"{'parameters':<20}{'weight decay':>13}  {'optimizer':<11}{'paper us':>9}{'torch us':>9}{'ratio':>7}")
    for label, shapes in SHAPES.items():
        for weight_decay in (0.0, 5e-4):
            for name, times in measure(shapes, weight_decay, repetitions).items():
                paper, other = (statistics.median(times[form]) * 1e6 for form in FORMS)
                ratio = statistics.median(p / t for p, t in zip(times["paper"], times["torch"], strict=True))
                print(f"{label:<20}{weight_decay:>13}  {name:<11}{paper:>9.1f}{other:>9.1f}{ratio:>7.2f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
