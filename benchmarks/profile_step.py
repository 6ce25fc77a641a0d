"""Where a training iteration spends its time, by the torch profiler: operations and compiled kernels, largest first.

    python benchmarks/profile_step.py [--sizes flickr arxiv] [--steps 30] [--out DIR]

The settings are those of `step.py`. Our compiled kernels are shown to the profiler as operations of their own
(`kernel ...`); the profiler itself makes small operations slower, so take the shares for large ones and `step.py` for
the milliseconds. `Python and the rest` is what no operation accounts for.
"""

from __future__ import annotations

import common  # isort: skip
import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

from torch.profiler import ProfilerActivity, profile, record_function

from cvgnn.lab.recipes import paper_recipe
from cvgnn.ops import history_write, sampling_kernels, sparse_matmul
from cvgnn.ops import layer_kernels as kernels
from cvgnn.training import Trainer
from cvgnn.training.machine import thread_count
from cvgnn.training.trainer_builder import build_trainer
from step import forever

KERNELS = (
    (sampling_kernels, "sample_block", "draw neighbors"),
    (kernels, "forward", "bias, LayerNorm, ReLU, dropout"),
    (kernels, "aggregate", "sampled sum"),
    (kernels, "backward", "gradient of the hidden layer"),
    (history_write, "_write", "history writes"),
    (sparse_matmul, "multiply", "sparse product"),
    (sparse_matmul, "accumulate", "sparse gradient"),
)
NAMES = {
    "aten::mm": "matrix products (mm)",
    "aten::_embedding_bag_forward_only": "history gather (embedding_bag)",
    "aten::index_select": "gather of P X (index_select)",
}


@contextlib.contextmanager
def shown_to_the_profiler() -> Iterator[None]:
    """Let each compiled kernel appear under its name."""

    def shown(kernel: Callable[..., Any], name: str) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            with record_function(f"kernel: {name}"):
                return kernel(*args)

        return call

    originals = [getattr(owner, attribute) for owner, attribute, _ in KERNELS]
    for (owner, attribute, name), original in zip(KERNELS, originals, strict=True):
        setattr(owner, attribute, shown(original, name))
    try:
        yield
    finally:
        for (owner, attribute, _), original in zip(KERNELS, originals, strict=True):
            setattr(owner, attribute, original)


def measure(trainer: Trainer, steps: int, most: int) -> list[dict[str, Any]]:
    trainer.warm_up()
    trainer.model.train()
    batches = forever(trainer)
    for _ in range(10):
        trainer.step(next(batches))
    with shown_to_the_profiler(), profile(activities=[ProfilerActivity.CPU], acc_events=True) as seen:
        start = time.perf_counter()
        for _ in range(steps):
            trainer.step(next(batches))
        total = (time.perf_counter() - start) * 1e3
    found = [(e.key, e.self_cpu_time_total / 1e3, e.count) for e in seen.key_averages()]
    found.sort(key=lambda e: -e[1])
    accounted = sum(ms for _, ms, _ in found)
    rest = ("all other operations", sum(ms for _, ms, _ in found[most:]), sum(n for *_, n in found[most:]))
    python = ("Python and the rest", max(0.0, total - accounted), steps)
    return [
        {
            "what": NAMES.get(name, name),
            "ms an iteration": round(ms / steps, 3),
            "share": f"{ms / total:.1%}",
            "calls": round(count / steps, 1),
        }
        for name, ms, count in [*found[:most], rest, python]
    ]


def main() -> None:
    arguments = common.parser(__doc__ or "", "profile_step")
    arguments.add_argument("--sizes", nargs="+", default=list(common.SIZES), choices=common.SIZES)
    arguments.add_argument("--steps", type=int, default=30)
    arguments.add_argument("--most", type=int, default=12, help="how many operations to name")
    options = arguments.parse_args()
    tables = {}
    for size in options.sizes:
        with thread_count(1):  # the profiler does not see what other Python threads do
            trainer = build_trainer(common.load(size), paper_recipe(common.RECIPE[size], "amsgrad"))
            tables[f"{size}, one thread"] = measure(trainer, options.steps, options.most)
        del trainer
    common.report("profile_step", "Profile of an iteration", __doc__ or "", tables, options.out)


if __name__ == "__main__":
    main()
