"""What a training epoch's cost grows with, on synthetic graphs: one thing varied at a time, exponents fitted.

    python benchmarks/scaling.py [--quick] [--sweeps nodes degree] [--threads 1] [--rounds 15] [--out DIR]

The claim to test: an epoch costs O(training nodes x (fan-out + degree)), and does not grow with the number of nodes
otherwise. Around a base (100,000 nodes, 20,000 of them for training, mean degree 20, 64 features, width 128, two
layers, fan-out 2, batches of 1,000) each sweep varies one number. A round measures one epoch of every value of a sweep,
in turn forwards and backwards; the first is not counted. Set-up and evaluation are left out. An exponent is `b` of
log(seconds) = a + b log(value), fitted to the medians over the rounds; its interval (95 %) is from resampled rounds.

Counts, which do not depend on the machine, are beside the seconds: `rows`, the representations computed in all layers,
and `entries`, the history rows read for the control variate. More nodes also mean tables that outgrow the caches, which
is the machine's cost and not the algorithm's; so `nodes, padded` takes the smallest graph of the `nodes` sweep and
appends nodes without edges: the same work in the same memory, so whatever grows there is a cost for every node of the
graph. Degrees are a power law cut off at 50 times the mean, so that more nodes do not bring larger hubs. A node has no
more neighbors to draw than its degree, so a large fan-out draws fewer neighbors (`drawn`).
"""

from __future__ import annotations

import common  # isort: skip
import gc
import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cvgnn.config import TrainConfig
from cvgnn.data import Graph
from cvgnn.data.named.synthetic import SyntheticSpec, generate
from cvgnn.training import Trainer
from cvgnn.training.machine import thread_count
from cvgnn.training.trainer_builder import build_trainer

SPLIT_SHARE = 0.8  # of the nodes of every graph may be training nodes; a setting takes some of them
HUB = 50  # the largest expected degree, in mean degrees
TOLERANCE = 0.1  # what an exponent may differ from the claim's
RESAMPLES = 1000
FEWEST_ROUNDS = 5
UNDECIDED = "undecided: the interval lies partly outside"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A graph and a network; the fields are what sweeps vary."""

    training: int = 20_000
    nodes: int = 100_000
    degree: int = 20
    width: int = 128
    depth: int = 2
    fan_out: int = 2
    batch: int = 1_000
    features: int = 64
    padded: int = 0  # nodes in all, if more than `nodes`: the others have no edges and are not trained on


@dataclass(frozen=True)
class Plan:
    """A base and the values of each sweep, by the names of `Setting`'s fields."""

    base: Setting
    values: dict[str, tuple[int, ...]]
    rounds: int


FULL = Plan(
    Setting(),
    {
        "training": (5_000, 10_000, 20_000, 40_000, 80_000),
        "nodes": (25_000, 50_000, 100_000, 200_000, 400_000),
        "padded": (25_000, 50_000, 100_000, 200_000, 400_000),
        "degree": (5, 10, 20, 40, 80),
        "width": (32, 64, 128, 256, 512),
        "depth": (2, 3, 4),
        "fan_out": (1, 2, 4, 8, 16),
    },
    rounds=15,
)
QUICK = Plan(
    Setting(training=4_000, nodes=20_000, batch=500, width=64),
    {
        "training": (2_000, 4_000, 8_000, 16_000),
        "nodes": (10_000, 20_000, 40_000, 80_000),
        "padded": (10_000, 20_000, 40_000, 80_000),
        "degree": (5, 10, 20, 40),
        "width": (32, 64, 128, 256),
        "depth": (2, 3, 4),
        "fan_out": (1, 2, 4, 8),
    },
    rounds=15,
)
CLAIM = {
    "training": ("about", 1.0),
    "nodes": ("about", 0.0),
    "padded": ("about", 0.0),
    "degree": ("at most", 1.0),
    "width": ("at most", 1.0),  # with two layers no product is of width x width
    "fan_out": ("at most", 1.0),
}
LABELS = {
    "training": "training nodes",
    "nodes": "nodes",
    "padded": "nodes, padded",
    "degree": "mean degree",
    "fan_out": "fan-out",
}


@lru_cache(maxsize=1)  # most settings of a run share the base's graph
def graph_of(nodes: int, degree: int, features: int) -> Graph:
    part = round((1 - SPLIT_SHARE) / 2 * nodes)
    spec = SyntheticSpec(
        num_nodes=nodes, num_edges=degree * nodes // 2 * 2, num_features=features, num_classes=8,
        train=nodes - 2 * part, val=part, test=part, max_degree=HUB * degree,
    )  # fmt: skip
    return generate(spec)


def trainer_of(setting: Setting) -> Trainer:
    """A trainer ready for its first step, on a random part of the graph's training nodes."""
    graph = graph_of(setting.nodes, setting.degree, setting.features)
    ids = graph.train_ids
    if setting.training > ids.numel():
        raise SystemExit(f"{setting.training} training nodes are more than {SPLIT_SHARE:.0%} of {setting.nodes} nodes")
    chosen = torch.randperm(ids.numel(), generator=torch.Generator().manual_seed(0))[: setting.training]
    config = TrainConfig(
        optimizer="amsgrad", norm="layer", dropout=0.0, hidden=setting.width, layers=setting.depth,
        num_neighbors=(setting.fan_out,), batch_size=setting.batch,
    )  # fmt: skip
    graph = replace(graph, train_ids=ids[chosen].sort().values, validated=True)
    return build_trainer(padded(graph, setting.padded - setting.nodes), config)


def padded(graph: Graph, more: int) -> Graph:
    """The graph with so many nodes more, which have no edges: an epoch never reads them."""
    if more <= 0:
        return graph
    assert isinstance(graph.x, torch.Tensor)
    return replace(
        graph,
        indptr=torch.cat([graph.indptr, graph.indptr[-1:].expand(more)]),
        x=torch.cat([graph.x, graph.x.new_zeros(more, graph.num_features)]),
        y=torch.cat([graph.y, graph.y.new_full((more,), -1)]),
        validated=True,
    )


@dataclass
class Case:
    """One value of a sweep: what an epoch counts, and the seconds of each round."""

    value: int
    setting: Setting
    counts: dict[str, int]
    seconds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def counts_of(trainer: Trainer) -> dict[str, int]:
    """Representations computed, neighbors drawn and history rows read in an epoch."""
    rows = drawn = entries = 0
    for batch in trainer.loader.epoch(1):
        rows += batch.ids.numel() + sum(block.sources.numel() for block in batch.blocks)
        drawn += sum(block.sampled.indices.numel() - block.sampled.num_rows for block in batch.blocks)
        entries += sum(block.remainder.indices.numel() for block in batch.blocks if block.remainder is not None)
    return {"rows": rows, "drawn": drawn, "entries": entries}


def run_sweep(name: str, values: Sequence[int], base: Setting, rounds: int) -> list[Case]:
    """Seconds of `rounds` epochs for each value, the values interleaved."""
    cases, trainers = [], []
    for value in values:
        start = time.perf_counter()
        setting = replace(base, nodes=min(values), padded=value) if name == "padded" else replace(base, **{name: value})
        trainer = trainer_of(setting)
        trainers.append(trainer)
        cases.append(Case(value, setting, counts_of(trainer)))
        tell(f"{name} {value}: set up in {time.perf_counter() - start:.1f} s")
    for r in range(rounds + 1):
        pairs = list(zip(cases, trainers, strict=True))
        for case, trainer in pairs if r % 2 else reversed(pairs):
            start = time.perf_counter()
            trainer.train_epoch(r + 1)
            case.seconds.append(time.perf_counter() - start)
        taken = ", ".join(f"{case.value}: {case.seconds[-1]:.3f} s" for case in cases)
        tell(f"{name} {f'round {r} of {rounds}' if r else 'warm-up'}: {taken}")
    for case in cases:
        del case.seconds[0]
    return cases


def slope(x: Sequence[float], y: Sequence[float] | np.ndarray) -> float:
    b = float(np.polyfit(np.asarray(x, dtype=float), np.asarray(y, dtype=float), 1)[0])
    return b if abs(b) > 1e-9 else 0.0


def fitted(cases: Sequence[Case], transform: Callable[[float], float]) -> tuple[float, float, float]:
    """The slope of log(median seconds) over `transform(value)`, and its 95 % interval over resampled rounds."""
    x = [transform(case.value) for case in cases]
    seconds = np.array([case.seconds for case in cases])
    rng = np.random.default_rng(0)
    rounds = seconds.shape[1]
    picks = rng.integers(0, rounds, size=(RESAMPLES, rounds))  # whole rounds, whose values saw the same machine
    slopes = [slope(x, np.log(np.median(seconds[:, pick], axis=1))) for pick in picks]
    low, high = np.quantile(slopes, [0.025, 0.975])
    return slope(x, np.log(np.median(seconds, axis=1))), float(low), float(high)


def growth(cases: Sequence[Case], count: str, transform: Callable[[float], float]) -> float:
    """The slope of the logarithm of a count."""
    return slope([transform(case.value) for case in cases], [math.log(max(case.counts[count], 1)) for case in cases])


def last_doubling(cases: Sequence[Case]) -> float:
    """The exponent between the two largest values."""
    a, b = cases[-2:]
    return math.log(b.median / a.median) / math.log(b.value / a.value)


def verdict(relation: str, expected: float, low: float, high: float, rounds: int) -> str:
    """The claim's exponent against the interval, in words."""
    least, most = expected - TOLERANCE, expected + TOLERANCE
    if rounds < FEWEST_ROUNDS:
        return f"none: an interval takes at least {FEWEST_ROUNDS} rounds, these are {rounds}"
    if low > most:
        return f"not as claimed: grows faster, the whole interval lies above {most:g}"
    if relation == "at most":
        return f"as claimed: the whole interval lies below {most:g}" if high <= most else UNDECIDED
    if high < least:
        return f"not as claimed: grows slower, the whole interval lies below {least:g}"
    return f"as claimed: the whole interval lies in {least:g}..{most:g}" if least <= low and high <= most else UNDECIDED


def exponent_row(name: str, cases: list[Case]) -> dict[str, Any]:
    b, low, high = fitted(cases, math.log)
    relation, expected = CLAIM[name]
    return {
        "varied": LABELS.get(name, name),
        "from": cases[0].value,
        "to": cases[-1].value,
        "claim": f"{relation} {expected:g}",
        "exponent": round(b, 3),
        "interval": f"{low:.3f}..{high:.3f}",
        "last doubling": round(last_doubling(cases), 3),
        "of rows": round(growth(cases, "rows", math.log), 3),
        "of entries": round(growth(cases, "entries", math.log), 3),
    }


def verdict_row(name: str, sweeps: dict[str, list[Case]]) -> dict[str, Any]:
    cases = sweeps[name]
    if name == "depth":
        return {"varied": "depth", "verdict": depth_verdict(cases)}
    b, low, high = fitted(cases, math.log)
    said = verdict(*CLAIM[name], low, high, len(cases[0].seconds))
    if name == "nodes":
        rows = growth(cases, "rows", math.log)
        said += f"; of the exponent {b:.3f}, {rows:.3f} is the rows' (fewer nodes are met twice in a batch), "
        said += f"{b - rows:.3f} that of the seconds for a row"
        if "padded" in sweeps:
            said += f"; nodes that are never read contribute {fitted(sweeps['padded'], math.log)[0]:.3f}"
    return {"varied": LABELS.get(name, name), "verdict": said}


def no_overlap(setting: Setting) -> float:
    """Representations for one training node if no node were met twice: the sum of (1 + fan-out)^j over the layers."""
    return float(sum((1 + setting.fan_out) ** j for j in range(setting.depth)))


def depth_row(cases: list[Case]) -> dict[str, Any]:
    """Factors a layer: a receptive field grows by up to 1 + fan-out a layer, not by a power of the depth."""
    factor, low, high = (math.exp(b) for b in fitted(cases, float))
    most = slope([case.value for case in cases], [math.log(no_overlap(case.setting)) for case in cases])
    return {
        "varied": "depth",
        "from": cases[0].value,
        "to": cases[-1].value,
        "exponent": round(fitted(cases, math.log)[0], 2),
        "x a layer": round(factor, 2),
        "interval": f"{low:.2f}..{high:.2f}",
        "rows x a layer": round(math.exp(growth(cases, "rows", float)), 2),
        "rows at most x a layer": round(math.exp(most), 2),
        "entries x a layer": round(math.exp(growth(cases, "entries", float)), 2),
    }


def depth_verdict(cases: list[Case]) -> str:
    factor, low, high = (math.exp(b) for b in fitted(cases, float))
    counts = {count: math.exp(growth(cases, count, float)) for count in ("rows", "entries")}
    most, last = max(counts.values()), cases[-1]
    if len(last.seconds) < FEWEST_ROUNDS:
        said = f"none: an interval takes at least {FEWEST_ROUNDS} rounds; seconds"
    elif high <= most * (1 + TOLERANCE):
        said = "grows no faster than what is counted; seconds"
    else:
        said = "grows faster than what is counted; seconds" if low > most * (1 + TOLERANCE) else f"{UNDECIDED}; seconds"
    said += f" x {factor:.2f} a layer, rows x {counts['rows']:.2f}, entries x {counts['entries']:.2f}; at depth "
    met = 1 - last.counts["rows"] / (last.setting.training * no_overlap(last.setting))
    return f"{said}{last.value} there are {met:.0%} fewer rows than if no node were met twice"


def models(sweeps: dict[str, list[Case]]) -> list[dict[str, Any]]:
    """Two linear models of an epoch on the fan-out and degree sweeps: by what was asked for, by what was counted."""
    cases = [case for name in ("fan_out", "degree") for case in sweeps.get(name, [])]
    if len({case.setting.fan_out for case in cases}) < 2 or len({case.setting.degree for case in cases}) < 2:
        return []
    nodes = np.array([case.setting.training for case in cases], dtype=float)
    seconds = np.array([case.median for case in cases])
    terms = {
        "c0 + c1 fan-out + c2 degree": [(case.setting.fan_out, case.setting.degree) for case in cases],
        "c0 + c1 drawn + c2 entries (counted, for a training node)": [
            (case.counts["drawn"] / case.setting.training, case.counts["entries"] / case.setting.training)
            for case in cases
        ],
    }
    rows = []
    for label, columns in terms.items():
        design = np.column_stack([np.ones(len(cases)), np.array(columns, dtype=float)]) * nodes[:, None]
        c = np.linalg.lstsq(design, seconds, rcond=None)[0]
        residual = seconds - design @ c
        rows.append(
            {
                "seconds = training nodes x": label,
                **{f"c{i} (µs)": round(1e6 * float(value), 3) for i, value in enumerate(c)},
                "R²": round(1 - float(residual @ residual) / float(((seconds - seconds.mean()) ** 2).sum()), 4),
                "largest relative residual": f"{float(np.abs(residual / seconds).max()):.1%}",
                "points": len(cases),
            }
        )
    return rows


def value_rows(name: str, cases: list[Case]) -> list[dict[str, Any]]:
    return [
        {
            "varied": LABELS.get(name, name),
            "value": case.value,
            "epoch s": round(case.median, 4),
            "spread": f"{min(case.seconds):.3f}..{max(case.seconds):.3f}",
            "µs a training node": round(1e6 * case.median / case.setting.training, 2),
            "µs a row": round(1e6 * case.median / case.counts["rows"], 2),
            **{f"{count} a training node": round(n / case.setting.training, 2) for count, n in case.counts.items()},
        }
        for case in cases
    ]


def draw(sweeps: dict[str, list[Case]], path: Path) -> str:
    """The sweeps in log-log, with fitted lines; a sentence on what was done."""
    try:
        import matplotlib
    except ImportError:
        return "no picture: matplotlib is not installed"
    matplotlib.use("Agg")
    from matplotlib import pyplot, ticker

    figure, axes = pyplot.subplots(2, math.ceil(len(sweeps) / 2), figsize=(14, 7), squeeze=False)
    for axis, (name, cases) in zip(axes.flat, sweeps.items(), strict=False):
        x, y = np.array([case.value for case in cases], dtype=float), np.array([case.median for case in cases])
        ends = [[y[i] - min(c.seconds), max(c.seconds) - y[i]] for i, c in enumerate(cases)]
        b, a = np.polyfit(np.log(x), np.log(y), 1)
        axis.errorbar(x, y, yerr=np.array(ends).T, fmt="o", capsize=3, label="median, range")
        axis.plot(x, np.exp(a) * x**b, "--", label=f"exponent {b:.2f}")
        axis.set(xscale="log", yscale="log", xlabel=LABELS.get(name, name), ylabel="seconds an epoch")
        axis.set_ylim(min(y.min() * 0.6, y.max() / 8), y.max() * 1.5)
        axis.set_xticks(x, [f"{v // 1000}k" if v >= 5000 else str(v) for v in (case.value for case in cases)])
        axis.minorticks_off()
        axis.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        axis.yaxis.set_major_formatter(ticker.FormatStrFormatter("%g"))
        axis.legend()
    for axis in list(axes.flat)[len(sweeps) :]:
        axis.set_visible(False)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    return f"written: {path.name} in {path.parent}"


def tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> None:
    arguments = common.parser(__doc__ or "", "scaling")
    arguments.add_argument("--quick", action="store_true", help="a smaller base and fewer values: some 20 s")
    arguments.add_argument(
        "--sweeps", nargs="+", default=list(FULL.values), choices=list(FULL.values), help="all if not given"
    )
    arguments.add_argument("--threads", type=int, default=1, help="of torch")
    arguments.add_argument("--rounds", type=int, help=f"measured epochs of each value; {FULL.rounds} if not given")
    options = arguments.parse_args()
    if options.rounds is not None and options.rounds < 1:
        arguments.error("--rounds must be at least 1")
    plan = QUICK if options.quick else FULL
    rounds = options.rounds or plan.rounds
    start = time.perf_counter()
    sweeps: dict[str, list[Case]] = {}
    with thread_count(options.threads):
        for name in options.sweeps:
            sweeps[name] = run_sweep(name, plan.values[name], plan.base, rounds)
            gc.collect()
    taken = time.perf_counter() - start
    tables = {
        "Exponents": [exponent_row(name, cases) for name, cases in sweeps.items() if name in CLAIM],
        "Depth": [depth_row(cases) for name, cases in sweeps.items() if name == "depth"],
        "Verdicts": [verdict_row(name, sweeps) for name in sweeps],
        "The claim as a model": models(sweeps),
        "Measurements": [row for name, cases in sweeps.items() for row in value_rows(name, cases)],
    }
    raw = {name: [asdict(case) for case in cases] for name, cases in sweeps.items()}
    title = "What an epoch's cost grows with"
    more = {"threads": options.threads, "rounds": rounds, "seconds": round(taken, 1), "sweeps": raw}
    common.report("scaling", title, __doc__ or "", tables, options.out, **more)
    print(draw(sweeps, options.out / "scaling.png"))
    tell(f"measured in {taken:.0f} s")


if __name__ == "__main__":
    main()
