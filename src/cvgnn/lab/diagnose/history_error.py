"""`diagnose history`: the age of the histories, and their error, layer by layer along training."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cvgnn.config import TrainConfig
from cvgnn.data import Graph
from cvgnn.errors import CvgnnError, require
from cvgnn.lab.diagnose import trainers
from cvgnn.lab.diagnose.estimates import digits, rough_percent
from cvgnn.lab.diagnose.record import ChartLine, Diagnosis, DiagnosisTable, LineChart, caption, line_chart
from cvgnn.nn import ControlVariate, each_hidden
from cvgnn.training import Diverged, Trainer
from cvgnn.training.machine import run_threads
from cvgnn.utils.progress import ProgressCallback, no_progress

QUANTILES = (0.1, 0.5, 0.9, 1.0)


Moment = dict[str, Any]
"""One layer's history after some step, as JSON holds it; see `_measure`."""


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
    ages: list[Tensor] = []  # after the last step that was measured
    with run_threads(graph, config):
        trainer = trainers.start_trainer(graph, config, run)
        if not isinstance(trainer.estimator, ControlVariate):
            raise CvgnnError("training without the control variate keeps no histories; train with --estimator cv")
        rows = trainers.readable_rows(trainer)

        def measure(done: int) -> list[Moment]:
            nonlocal ages
            moments, ages = _measure(trainer, rows), trainers.readable_ages(trainer, rows)
            progress("training", done / max(*steps, 1))
            return moments

        found, diverged = trainers.measure_along_training(trainer, steps, measure)
    moments = list(itertools.chain.from_iterable(found))
    last, per_epoch = moments[-1]["step"], trainer.loader.steps_per_epoch
    counts = {str(k): torch.bincount(age).tolist() for k, age in enumerate(ages, start=1)}
    sentences = [_sentence(m, per_epoch) for m in moments if m["step"] == last]
    return Diagnosis(
        kind="history",
        dataset=graph.name,
        settings={
            **trainers.recorded_settings(config, run),
            "steps": sorted({m["step"] for m in moments}),
            "diverged": None if diverged is None else diverged.step,
        },
        verdict=" ".join(sentences) + trainers.divergence_note(diverged),
        tables=[_table(moments)],
        figures=[*_charts([m for m in moments if m["step"] > 0]), _histogram(ages, last)],
        data={
            "quantiles": list(QUANTILES),
            "steps_per_epoch": per_epoch,
            "moments": moments,
            "last_ages": counts if last < 100_000 else {},
        },
    )


def _measure(trainer: Trainer, rows: Sequence[Tensor]) -> list[Moment]:
    """Ages and errors of every layer's history.

    Args:
        trainer: holds weights and histories.
        rows: the nodes whose history training reads, bool `[N]`, by layer: those within `K - k` hops of training nodes.

    Returns:
        For each layer `k`: how many `rows` are read; steps since a row was written at `QUANTILES`, of the rows that are
        read (`ages`) and of all; the `mean_age` of those read, the share of them that was `never` written since they
        were initialised; `error` and `error_of_all`, `||H - Hbar|| / ||H||`.
    """
    estimator, step, found = trainer.estimator, trainer.iterations, []
    assert isinstance(estimator, ControlVariate)
    exact = each_hidden(trainer.model, estimator.features, trainer.loader.sampler.propagation)
    for k, (history, H, read) in enumerate(zip(estimator.histories, exact, rows, strict=True), start=1):
        age = history.age(step).double()
        off, size = (H - history.values.to(H.dtype)).square().sum(dim=1), H.square().sum(dim=1)
        moment: Moment = {
            "step": step,
            "layer": k,
            "rows": int(read.sum()),
            "ages": _quantiles(age[read]),
            "ages_of_all": _quantiles(age),
            "mean_age": float(age[read].mean()),
            "never": float((history.written[read] == 0).double().mean()),
            "error": _ratio(off[read], size[read]),
            "error_of_all": _ratio(off, size),
        }
        if not math.isfinite(moment["error_of_all"]):
            raise Diverged(step, "the representations after it are infinite or NaN, or their squares are", [])
        found.append(moment)
    return found


def _quantiles(ages: Tensor) -> list[float]:
    return [float(q) for q in np.quantile(ages.numpy(), QUANTILES, method="inverted_cdf")]


def _ratio(off: Tensor, size: Tensor) -> float:
    total = float(size.sum())
    return (float(off.sum()) / total) ** 0.5 if total > 0 else 0.0


def _table(moments: Sequence[Moment]) -> DiagnosisTable:
    header = ["step", "layer", "10 %", "median", "90 %", "oldest", "never written", "error", "error of all"]
    rows = []
    for m in moments:
        shares = [rough_percent(m[name]) for name in ("never", "error", "error_of_all")]
        rows.append([str(m["step"]), str(m["layer"]), *map(digits, m["ages"]), *shares])
    return DiagnosisTable(caption("history", "moments"), header, rows)


def _charts(moments: Sequence[Moment]) -> list[LineChart]:
    """Errors and ages along training, if there are several steps."""
    steps = [float(m["step"]) for m in moments if m["layer"] == 1]
    if len(steps) < 2:
        return []
    errors, ages = [], []
    for k in range(1, moments[-1]["layer"] + 1):
        found = [m for m in moments if m["layer"] == k]
        errors.append(ChartLine(f"layer {k}, rows that are read", steps, [m["error"] for m in found]))
        errors.append(ChartLine(f"layer {k}, all rows", steps, [m["error_of_all"] for m in found]))
        low, median, high, _ = zip(*(m["ages"] for m in found), strict=True)
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


def _sentence(m: Moment, per_epoch: int) -> str:
    error, error_of_all, never = (rough_percent(m[name]) for name in ("error", "error_of_all", "never"))
    return (
        f"After step {m['step']}, the history of layer {m['layer']} is off by {error} of ||H|| where training reads it "
        f"({error_of_all} over all nodes); half of these rows are at most {digits(m['ages'][1])} steps old, nine "
        f"tenths at most {digits(m['ages'][2])}, and {never} were never written since the start. An epoch has "
        f"{per_epoch} step{'s' * (per_epoch != 1)}."
    )
