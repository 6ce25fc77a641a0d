"""`diagnose history`: the age of the histories, and their error, layer by layer along training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import final

import numpy as np
import torch
from torch import Tensor

from cvgnn.config import TrainConfig
from cvgnn.data import Graph
from cvgnn.errors import CvgnnError, require
from cvgnn.lab.diagnose import trainers
from cvgnn.lab.diagnose.estimates import digits, rough_percent
from cvgnn.lab.diagnose.record import ChartLine, Diagnosis, DiagnosisTable, LineChart, caption, line_chart, table
from cvgnn.nn import ControlVariate, each_hidden
from cvgnn.training import Diverged, Trainer
from cvgnn.training.machine import run_threads
from cvgnn.utils.progress import ProgressCallback, no_progress

QUANTILES = (0.1, 0.5, 0.9, 1.0)


@final
@dataclass(frozen=True, kw_only=True)
class HistoryMoment:
    """One layer's history after some step.

    Args:
        step: after how many steps of training.
        layer: `k`.
        rows: how many rows training reads: nodes within `K - k` hops of training nodes.
        ages, ages_of_all: steps since a row was written, at `QUANTILES`, of the rows that are read and of all.
        mean_age: of the rows that are read.
        never: share of the rows that are read that were not written since they were initialised.
        error, error_of_all: `||H - Hbar|| / ||H||`.
    """

    step: int
    layer: int
    rows: int
    ages: list[float]
    ages_of_all: list[float]
    mean_age: float
    never: float
    error: float
    error_of_all: float


def diagnose_history(
    graph: Graph,
    config: TrainConfig,
    *,
    steps: Sequence[int] = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512),
    run: Path | None = None,
    progress: ProgressCallback = no_progress,
) -> Diagnosis:
    """Follow the histories of a training with the control variate. In float64; dropout is as the config says.

    Args:
        graph: what is trained on.
        config: how.
        steps: after how many steps of training to measure; counted from the checkpoint, if there is a run.
        run: folder of a run whose newest checkpoint is the start; fresh weights if not given.
        progress: called with the current activity and the share of the work that is done.

    >>> from cvgnn import load
    >>> found = diagnose_history(load("citeseer"), TrainConfig(batch_size=20, hidden=8), steps=(0, 6))
    >>> [(row["step"], row["ages"][-1], round(row["error"], 2) > 0) for row in found.data["moments"]]
    [(0, 0.0, False), (6, 6.0, True)]
    """
    require(config.layers > 1, "a network of one layer keeps no histories")
    moments: list[HistoryMoment] = []
    ages: list[Tensor] = []
    with run_threads(graph, config):
        trainer = trainers.start_trainer(graph, config, run)
        if not isinstance(trainer.estimator, ControlVariate):
            raise CvgnnError("training without the control variate keeps no histories; train with --estimator cv")
        rows = trainers.readable_rows(trainer)

        def measure(done: int) -> None:
            moments.extend(_measure(trainer, rows))
            ages[:] = trainers.readable_ages(trainer, rows)
            progress("training", done / max(*steps, 1))

        diverged = trainers.measure_along_training(trainer, steps, measure)
    last, layers, per_epoch = moments[-1].step, range(1, trainer.model.num_layers), trainer.loader.steps_per_epoch
    counts = {str(k): torch.bincount(age).tolist() for k, age in zip(layers, ages, strict=True)}
    return Diagnosis(
        kind="history",
        dataset=graph.name,
        settings={
            **trainers.recorded_settings(config, run),
            "steps": sorted({m.step for m in moments}),
            "diverged": None if diverged is None else diverged.step,
        },
        verdict=" ".join(_sentence(m, per_epoch) for m in moments if m.step == last)
        + trainers.divergence_note(diverged),
        tables=[_table(moments)],
        figures=[*_charts([m for m in moments if m.step > 0], layers), _histogram(ages, last)],
        data={
            "quantiles": list(QUANTILES),
            "steps_per_epoch": per_epoch,
            "moments": [asdict(m) for m in moments],
            "last_ages": counts if last < 100_000 else {},
        },
    )


def _measure(trainer: Trainer, rows: Sequence[Tensor]) -> list[HistoryMoment]:
    """Ages and errors of every layer's history; `rows` are the nodes that training reads, bool `[N]`, by layer."""
    estimator, found = trainer.estimator, []
    assert isinstance(estimator, ControlVariate)
    exact = each_hidden(trainer.model, estimator.features, trainer.loader.sampler.propagation)
    for k, (history, H, read) in enumerate(zip(estimator.histories, exact, rows, strict=True), start=1):
        age = history.age(trainer.iterations).double()
        off, size = (H - history.values.to(H.dtype)).square().sum(dim=1), H.square().sum(dim=1)
        moment = HistoryMoment(
            step=trainer.iterations,
            layer=k,
            rows=int(read.sum()),
            ages=_quantiles(age[read]),
            ages_of_all=_quantiles(age),
            mean_age=float(age[read].mean()),
            never=float((history.written[read] == 0).double().mean()),
            error=_ratio(off[read], size[read]),
            error_of_all=_ratio(off, size),
        )
        if not math.isfinite(moment.error_of_all):
            raise Diverged(moment.step, "the representations after it are infinite or NaN, or their squares are", [])
        found.append(moment)
    return found


def _quantiles(ages: Tensor) -> list[float]:
    return [float(q) for q in np.quantile(ages.numpy(), QUANTILES, method="inverted_cdf")]


def _ratio(off: Tensor, size: Tensor) -> float:
    total = float(size.sum())
    return (float(off.sum()) / total) ** 0.5 if total > 0 else 0.0


def _table(moments: Sequence[HistoryMoment]) -> DiagnosisTable:
    return table(
        caption("history", "moments"),
        moments,
        {
            "step": lambda m: str(m.step),
            "layer": lambda m: str(m.layer),
            "10 %": lambda m: digits(m.ages[0]),
            "median": lambda m: digits(m.ages[1]),
            "90 %": lambda m: digits(m.ages[2]),
            "oldest": lambda m: digits(m.ages[3]),
            "never written": lambda m: rough_percent(m.never),
            "error": lambda m: rough_percent(m.error),
            "error of all": lambda m: rough_percent(m.error_of_all),
        },
    )


def _charts(moments: Sequence[HistoryMoment], layers: Sequence[int]) -> list[LineChart]:
    """Errors and ages along training, if there are several steps."""
    steps = [float(m.step) for m in moments if m.layer == 1]
    if len(steps) < 2:
        return []
    errors, ages = [], []
    for k in layers:
        found = [m for m in moments if m.layer == k]
        errors.append(ChartLine(f"layer {k}, rows that are read", steps, [m.error for m in found]))
        errors.append(ChartLine(f"layer {k}, all rows", steps, [m.error_of_all for m in found]))
        low, median, high = ([m.ages[i] for m in found] for i in range(3))
        ages.append(ChartLine(f"layer {k}", steps, median, low, high))
    ages.append(ChartLine("never written", steps, steps, reference=True))
    return [line_chart("history", "error", errors), line_chart("history", "age", ages)]


def _histogram(ages: Sequence[Tensor], last: int) -> LineChart:
    """Shares of the rows in bars that double in width, drawn as an outline; the first is what was just written."""
    edges = [0.0, *(2.0**i for i in range(last.bit_length() + 1))]  # 0, 1, 2, 4, ...: the last is beyond the oldest
    shown = [0.5, *edges[1:]]
    x = np.repeat(shown, 2)[1:-1].tolist()
    lines = []
    for k, age in enumerate(ages, start=1):
        shares = np.histogram(age.numpy(), edges)[0] / max(1, age.numel())
        lines.append(ChartLine(f"layer {k}", x, np.repeat(shares, 2).tolist()))
    return line_chart("history", "ages", lines, last=last)


def _sentence(m: HistoryMoment, per_epoch: int) -> str:
    return (
        f"After step {m.step}, the history of layer {m.layer} is off by {rough_percent(m.error)} of ||H|| where "
        f"training reads it ({rough_percent(m.error_of_all)} over all nodes); half of these rows are at most "
        f"{digits(m.ages[1])} steps old, nine tenths at most {digits(m.ages[2])}, and {rough_percent(m.never)} were "
        f"never written since the start. An epoch has {per_epoch} step{'s' * (per_epoch != 1)}."
    )
