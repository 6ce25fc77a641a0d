"""`diagnose history`: how old the histories are, and how wrong, layer by layer along training."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import final

import numpy as np
import torch
from torch import Tensor

from cvgnn.config import TrainConfig
from cvgnn.diagnose.bias import readable_rows
from cvgnn.diagnose.record import Diagnosis, Figure, Line, Table
from cvgnn.diagnose.subject import fresh_trainer, recorded, stops, trainer_of_run, where_it_diverged
from cvgnn.diagnose.words import digits, percent
from cvgnn.errors import CvgnnError, require
from cvgnn.experiments.machine import sensible_threads, thread_count
from cvgnn.graph import Graph
from cvgnn.nn import ControlVariate, each_hidden
from cvgnn.training import Diverged, Trainer

QUANTILES = (0.1, 0.5, 0.9, 1.0)


@final
@dataclass(frozen=True, kw_only=True)
class HistoryMoment:
    """One layer's history at one moment.

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
    tell: Callable[[str, float], None] = lambda what, share: None,
) -> Diagnosis:
    """Follow the histories of a training with the control variate. In float64; dropout is as the config says.

    Args:
        graph: what is trained on.
        config: how.
        steps: after how many steps of training to look; counted from the checkpoint, if there is a run.
        run: folder of a run whose newest checkpoint is the start; fresh weights if not given.
        tell: told what is being done, and the share of it that is.

    >>> from cvgnn import load
    >>> found = diagnose_history(load("citeseer"), TrainConfig(batch_size=20, hidden=8), steps=(0, 6))
    >>> [(row["step"], row["ages"][-1], round(row["error"], 2) > 0) for row in found.data["moments"]]
    [(0, 0.0, False), (6, 6.0, True)]
    """
    require(config.layers > 1, "a network of one layer keeps no histories")
    moments: list[HistoryMoment] = []
    ages: list[Tensor] = []
    diverged: Diverged | None = None
    with thread_count(config.threads or sensible_threads(graph, config)):
        trainer = fresh_trainer(graph, config) if run is None else trainer_of_run(run, graph)
        if not isinstance(trainer.estimator, ControlVariate):
            raise CvgnnError("training without the control variate keeps no histories; train with --estimator cv")
        rows = readable_rows(trainer)
        try:
            for done in stops(trainer, steps):
                moments += _finite(look(trainer, trainer.estimator, rows), trainer.iterations)
                ages = [
                    history.age(trainer.iterations)[read]
                    for history, read in zip(trainer.estimator.histories, rows, strict=True)
                ]
                tell("training", done / max(*steps, 1))
        except Diverged as error:
            if not moments:
                raise CvgnnError(f"training diverged at step {error.step}: {error.what}; choose a smaller lr") from None
            diverged = error
    last = moments[-1].step
    ended = "" if diverged is None else f" {where_it_diverged(diverged)}"
    layers = range(1, trainer.model.num_layers)
    return Diagnosis(
        kind="history",
        dataset=graph.name,
        settings={
            **recorded(config, run),
            "steps": sorted({m.step for m in moments}),
            "diverged": None if diverged is None else diverged.step,
        },
        verdict=_verdict([m for m in moments if m.step == last], trainer) + ended,
        tables=[_table(moments)],
        figures=[*_figures(moments, layers), _histogram(ages, last)],
        data={
            "quantiles": list(QUANTILES),
            "steps_per_epoch": trainer.loader.steps_per_epoch,
            "moments": [asdict(m) for m in moments],
            "last_ages": {str(k): torch.bincount(age).tolist() for k, age in zip(layers, ages, strict=True)}
            if last < 100_000
            else {},
        },
    )


def look(trainer: Trainer, estimator: ControlVariate, rows: Sequence[Tensor]) -> list[HistoryMoment]:
    """Ages and errors of every layer's history where training stands.

    Args:
        trainer: gives weights and the number of steps.
        estimator: its own.
        rows: for each hidden layer the nodes that training reads, bool `[N]`.
    """
    found = []
    exact = each_hidden(trainer.model, estimator.features, trainer.loader.sampler.propagation)
    for k, (history, H, read) in enumerate(zip(estimator.histories, exact, rows, strict=True), start=1):
        age = history.age(trainer.iterations).double()
        off, size = (H - history.values.to(H.dtype)).square().sum(dim=1), H.square().sum(dim=1)
        found.append(
            HistoryMoment(
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
        )
    return found


def _finite(found: list[HistoryMoment], step: int) -> list[HistoryMoment]:
    """The same; training that has left all numbers behind has diverged."""
    if not all(math.isfinite(m.error_of_all) for m in found):
        raise Diverged(step, "the representations after it are infinite or NaN, or their squares are", [])
    return found


def _quantiles(ages: Tensor) -> list[float]:
    return [float(q) for q in np.quantile(ages.numpy(), QUANTILES, method="inverted_cdf")]


def _ratio(off: Tensor, size: Tensor) -> float:
    total = float(size.sum())
    return (float(off.sum()) / total) ** 0.5 if total > 0 else 0.0


def _table(moments: Sequence[HistoryMoment]) -> Table:
    rows = [
        [str(m.step), str(m.layer), *(digits(a) for a in m.ages[:3]), digits(m.ages[3]), percent(m.never),
         percent(m.error), percent(m.error_of_all)]
        for m in moments
    ]  # fmt: skip
    caption = (
        "Histories along training: age in steps (10 %, half, 90 % of the rows that training reads are at most so old; "
        "the oldest), the share of these rows not written since the start, and ||H - Hbar|| / ||H|| over them and over "
        "all nodes."
    )
    header = ["step", "layer", "10 %", "median", "90 %", "oldest", "never written", "error", "error of all"]
    return Table(caption=caption, header=header, rows=rows)


def _figures(moments: Sequence[HistoryMoment], layers: Sequence[int]) -> list[Figure]:
    later = [m for m in moments if m.step > 0]
    if len({m.step for m in later}) < 2:
        return []
    by_layer = {k: [m for m in later if m.layer == k] for k in layers}
    errors, ages = [], []
    for k, found in by_layer.items():
        x = [float(m.step) for m in found]
        errors.append(Line(name=f"layer {k}, rows that are read", x=x, y=[m.error for m in found]))
        errors.append(Line(name=f"layer {k}, all rows", x=x, y=[m.error_of_all for m in found]))
        ages.append(
            Line(
                name=f"layer {k}",
                x=x,
                y=[m.ages[1] for m in found],
                low=[m.ages[0] for m in found],
                high=[m.ages[2] for m in found],
            )
        )
    steps = [float(m.step) for m in by_layer[layers[0]]]
    ages.append(Line(name="never written", x=steps, y=steps, reference=True))
    return [
        Figure(
            key="error",
            title="How wrong the histories are",
            caption="||H - Hbar|| / ||H|| in each hidden layer, H exact at the weights of the step.",
            x_label="step",
            y_label="relative error",
            lines=errors,
            log_x=True,
        ),
        Figure(
            key="age",
            title="How old the histories are",
            caption="Steps since a row was written, of the rows that training reads. Line: median; band: 10 % to 90 %; "
            "dashed: rows that are never written.",
            x_label="step",
            y_label="age in steps",
            lines=ages,
            log_x=True,
            log_y=True,
        ),
    ]


def _histogram(ages: Sequence[Tensor], last: int) -> Figure:
    """Shares of the rows in bars that double in width, drawn as an outline; the first is what was just written."""
    edges = [0.0, *(2.0**i for i in range(last.bit_length() + 1))]  # 0, 1, 2, 4, ...: the last is beyond the oldest
    shown = [0.5, *edges[1:]]
    lines = []
    for k, age in enumerate(ages, start=1):
        shares = np.histogram(age.numpy(), edges)[0] / max(1, age.numel())
        x = [edge for i in range(len(shares)) for edge in (shown[i], shown[i + 1])]
        lines.append(Line(name=f"layer {k}", x=x, y=[float(share) for share in shares for _ in range(2)]))
    return Figure(
        key="ages",
        title=f"Ages after step {last}",
        caption="Share of the rows that training reads, by the number of steps since they were written. Bars double in "
        "width: 0 steps (left of 1), 1, 2 to 3, 4 to 7, ...",
        x_label="age in steps",
        y_label="share of the rows",
        lines=lines,
        log_x=True,
    )


def _verdict(last: Sequence[HistoryMoment], trainer: Trainer) -> str:
    per_epoch = trainer.loader.steps_per_epoch
    words = [
        f"After step {m.step}, the history of layer {m.layer} is off by {percent(m.error)} of ||H|| where training "
        f"reads it ({percent(m.error_of_all)} over all nodes); half of these rows are at most {digits(m.ages[1])} "
        f"steps old, nine tenths at most {digits(m.ages[2])}, and {percent(m.never)} were never written since the "
        f"start. An epoch has {per_epoch} step{'s' * (per_epoch != 1)}."
        for m in last
    ]
    return " ".join(words)
