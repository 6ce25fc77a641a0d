"""Seconds of a training epoch and of a full evaluation, and the memory that a run takes beyond importing torch.

    python benchmarks/epoch.py [--sizes flickr reddit] [--threads 1 2] [--epochs 3] [--out DIR]
    python benchmarks/epoch.py --only reddit 2 bfloat16          one job, in this process, as JSON

Settings are the paper's for AMSGrad (Appendix B). Numbers: `float32`; `histories`: histories in bfloat16; `bfloat16`:
histories and dense features in bfloat16 (`feature_dtype`). Each job (a size, a number of threads, a kind of numbers)
runs in a fresh process, so its peak is its own: import torch, read the resident memory, then import cvgnn, load the
graph, set up (`P X`, initial histories), train one epoch unmeasured and then some measured, evaluate exactly on all
nodes. Seconds are medians. Memory is resident memory less what it was after `import torch`, data included. The Flickr,
arxiv and Reddit sizes are mapped from files: their pages count once they are read, although the system can reclaim
them; `anonymous` leaves them out. A process of its own generates missing presets and compiles kernels beforehand.
"""

from __future__ import annotations

import common  # isort: skip
import json
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

NUMBERS = {
    "float32": {},
    "histories": {"history_dtype": "bfloat16"},
    "bfloat16": {"history_dtype": "bfloat16", "feature_dtype": "bfloat16"},
}
MEASURED = {"cora": ("float32",), "flickr": ("float32", "bfloat16"), "arxiv": ("float32", "bfloat16")}
GIB = 2**30
MOST_REPETITIONS = 200


def memory() -> dict[str, int | None]:
    """Bytes resident now, their anonymous and file-backed parts, and the peak so far; elsewhere than on Linux the peak
    stands for all."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        return {"resident": peak, "anonymous": None, "files": None, "peak": peak}
    found = {name: int(kib) * 1024 for name, kib in re.findall(r"^(\w+):\s+(\d+) kB$", status, flags=re.MULTILINE)}
    names = {"resident": "VmRSS", "anonymous": "RssAnon", "files": "RssFile", "peak": "VmHWM"}
    return {name: found.get(field) for name, field in names.items()}


def seconds_of(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def repeat(function: Callable[[], object], times: int, at_least: float) -> list[float]:
    """Seconds of each of `times` calls, and of more while they add up to less than `at_least` seconds."""
    taken: list[float] = []
    while len(taken) < times or (sum(taken) < at_least and len(taken) < MOST_REPETITIONS):
        taken.append(seconds_of(function))
    return taken


def config_of(size: str, numbers: str) -> Any:
    from cvgnn.lab.recipes import paper_recipe

    return replace(paper_recipe(common.RECIPE[size], "amsgrad"), **NUMBERS[numbers])  # type: ignore[arg-type]


def job(size: str, threads: int, numbers: str, epochs: int, at_least: float) -> dict[str, Any]:
    """Load, set up, train and evaluate in this process; it must not have imported torch before."""
    assert "torch" not in sys.modules, "the memory of `import torch` can be told in a fresh process only"
    import torch  # noqa: F401

    marks = {"import torch": memory()}
    from cvgnn.training.machine import thread_count
    from cvgnn.training.trainer_builder import build_trainer

    marks["import cvgnn"] = memory()
    config = config_of(size, numbers)
    with thread_count(threads):
        start = time.perf_counter()
        graph = common.load(size)
        loaded = time.perf_counter()
        marks["load"] = memory()
        trainer = build_trainer(graph, config)
        built = time.perf_counter()
        marks["set-up"] = memory()
        trainer.warm_up()
        trainer.train_epoch(1)
        marks["epoch 1"] = memory()
        following = iter(range(2, 2 + max(epochs, MOST_REPETITIONS)))
        trained = repeat(lambda: trainer.train_epoch(next(following)), epochs, at_least)
        marks["last epoch"] = memory()
        assert trainer.evaluator is not None
        evaluator, model = trainer.evaluator, trainer.model
        evaluated = repeat(lambda: evaluator(model), 3, at_least)
        marks["evaluation"] = memory()
    return {
        "size": size,
        "threads": threads,
        "numbers": numbers,
        "graph": repr(graph),
        "steps": trainer.loader.steps_per_epoch,
        "load seconds": loaded - start,
        "set-up seconds": built - loaded,
        "epoch seconds": trained,
        "evaluation seconds": evaluated,
        "memory": marks,
    }


def timing_row(done: dict[str, Any]) -> dict[str, Any]:
    epoch, evaluation = done["epoch seconds"], done["evaluation seconds"]
    middle = statistics.median(epoch)
    return {
        "size": done["size"],
        "threads": done["threads"],
        "numbers": done["numbers"],
        "steps": done["steps"],
        "epoch s": rounded(middle),
        "spread": f"{min(epoch):.4g}..{max(epoch):.4g}",
        "ms an iteration": rounded(1e3 * middle / done["steps"]),
        "evaluation s": rounded(statistics.median(evaluation)),
        "load s": rounded(done["load seconds"]),
        "set-up s": rounded(done["set-up seconds"]),
        "peak GiB": gib(beyond_torch(done, "evaluation", "peak")),
    }


def memory_row(done: dict[str, Any]) -> dict[str, Any]:
    marks = done["memory"]
    stages = ("import cvgnn", "load", "set-up", "epoch 1", "last epoch", "evaluation")
    final = marks["evaluation"]["peak"]
    return {
        "size": done["size"],
        "threads": done["threads"],
        "numbers": done["numbers"],
        **{stage: gib(beyond_torch(done, stage, "resident")) for stage in stages},
        "peak": gib(beyond_torch(done, "evaluation", "peak")),
        "peak reached in": next(stage for stage in stages if marks[stage]["peak"] >= 0.99 * final),
        "anonymous at the end": gib(beyond_torch(done, "evaluation", "anonymous")),
        "files at the end": gib(beyond_torch(done, "evaluation", "files")),
        "torch itself": gib(marks["import torch"]["resident"]),
    }


def growth_row(done: dict[str, Any]) -> dict[str, Any]:
    """What the measured epochs added to the resident memory."""
    first, last = done["memory"]["epoch 1"], done["memory"]["last epoch"]

    def mib(part: str) -> float | None:
        return None if last[part] is None else round((last[part] - first[part]) / 2**20, 1)

    epochs = len(done["epoch seconds"])
    return {
        "size": done["size"],
        "threads": done["threads"],
        "numbers": done["numbers"],
        "epochs": f"2..{1 + epochs}",
        "MiB more": mib("resident"),
        "of it anonymous": mib("anonymous"),
        "MiB an epoch": round((last["resident"] - first["resident"]) / 2**20 / epochs, 2),
    }


def beyond_torch(done: dict[str, Any], stage: str, part: str) -> int | None:
    """Bytes of a part at the end of a stage, less those after `import torch`; a peak less the memory resident then."""
    now, torch_alone = done["memory"][stage][part], done["memory"]["import torch"]
    return None if now is None else now - torch_alone["resident" if part == "peak" else part]


def gib(value: int | None) -> float | None:
    return None if value is None else round(value / GIB, 3)


def rounded(value: float) -> float:
    return float(f"{value:.4g}")


def prepare(sizes: Sequence[str]) -> None:
    """Generate presets that are missing and compile every kernel into numba's cache, on small graphs."""
    from cvgnn.data.named.synthetic import generate, small_spec
    from cvgnn.training.trainer_builder import build_trainer

    for size in sizes:
        graph = common.load(size)
        for numbers in NUMBERS:
            config = config_of(size, numbers)
            trainer = build_trainer(graph if size == "cora" else generate(small_spec(2000)), config)
            trainer.train_epoch(1)


def in_fresh_process(*arguments: str) -> str:
    """What this file prints when called with those arguments."""
    command = [sys.executable, str(Path(__file__).resolve()), *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def parse() -> Any:
    arguments = common.parser(__doc__ or "", "epoch")
    arguments.add_argument("--sizes", nargs="+", default=list(common.SIZES), choices=common.SIZES)
    arguments.add_argument("--threads", nargs="+", type=int, default=[1, 2], help="of torch; a job for each")
    arguments.add_argument(
        "--numbers", nargs="+", choices=NUMBERS, help="a job for each; if not given, all that change the size's speed"
    )
    arguments.add_argument("--epochs", type=int, default=3, help="measured epochs, at least")
    arguments.add_argument(
        "--seconds",
        type=float,
        default=1.0,
        help=f"repeat epochs, and evaluations, at least so long (at most {MOST_REPETITIONS} times): for small graphs",
    )
    arguments.add_argument(
        "--only", nargs=3, metavar=("SIZE", "THREADS", "NUMBERS"), help="one job in this process, as JSON on stdout"
    )
    arguments.add_argument(
        "--prepare", action="store_true", help="make the presets of --sizes, compile the kernels, measure nothing"
    )
    options = arguments.parse_args()
    if options.epochs < 1:
        arguments.error("--epochs must be at least 1")
    if options.only:
        size, threads, numbers = options.only
        if size not in common.SIZES or not threads.isdigit() or int(threads) < 1 or numbers not in NUMBERS:
            arguments.error(f"--only takes one of {common.SIZES}, a number of threads and one of {list(NUMBERS)}")
    return options


def main() -> None:
    options = parse()
    if options.only:
        size, threads, numbers = options.only
        print(json.dumps(job(size, int(threads), numbers, options.epochs, options.seconds)))
        return
    if options.prepare:
        prepare(options.sizes)
        return
    tell("presets and kernels ...")
    in_fresh_process("--prepare", "--sizes", *options.sizes)
    jobs = []
    for size in options.sizes:
        for numbers in options.numbers or MEASURED.get(size, tuple(NUMBERS)):
            for threads in options.threads:
                tell(f"{size}, {threads} thread(s), {numbers} ...")
                settings = ("--epochs", str(options.epochs), "--seconds", str(options.seconds))
                jobs.append(json.loads(in_fresh_process("--only", size, str(threads), numbers, *settings)))
                row = timing_row(jobs[-1])
                tell(f"  epoch {row['epoch s']} s, evaluation {row['evaluation s']} s, peak {row['peak GiB']} GiB")
    tables = {
        "Epoch and evaluation": [timing_row(done) for done in jobs],
        "Resident memory beyond importing torch, at the end of each stage (GiB)": [memory_row(done) for done in jobs],
        "Does memory grow with epochs?": [growth_row(done) for done in jobs],
    }
    title = "A training epoch, a full evaluation, and their memory"
    common.report("epoch", title, __doc__ or "", tables, options.out, jobs=jobs)


if __name__ == "__main__":
    main()
