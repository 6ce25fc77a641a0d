"""Run folders written by hand, with numbers that can be computed in the head."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cvgnn.config import GraphSource, TrainConfig
from cvgnn.lab.diagnose.record import ChartLine, Diagnosis, DiagnosisTable, LineChart
from cvgnn.lab.recipes import PAPER_OPTIMIZERS
from cvgnn.lab.report.content import Report, ReportSection

MACHINE = {"processor": "Test CPU", "cores": "2", "python": "3.11", "torch": "2.13", "cvgnn": "0.1.0"}


def write_run(
    folder: Path,
    *,
    val: Sequence[float] = (0.5, 0.7, 0.6),
    test: Sequence[float] = (0.4, 0.6, 0.8),
    finished: bool = True,
    name: str | None = None,
    source: GraphSource | None = None,
    result: dict[str, Any] | None = None,
    **options: Any,
) -> Path:
    """A folder as `cvgnn train --out` leaves it; training accuracy is the validation accuracy + 0.1."""
    config = TrainConfig(**{"epochs": len(val), "threads": 1, **options})
    source = GraphSource() if source is None else source
    folder.mkdir(parents=True)
    write(folder / "config.json", {"version": "0.1.0", **source.to_dict(), **config.to_dict()})
    rows = [
        {
            "epoch": i + 1, "iterations": 10 * (i + 1), "loss": 1.0 / (i + 1), "train_accuracy": v + 0.1,
            "val_accuracy": v, "test_accuracy": t, "train_seconds": 0.5, "eval_seconds": 0.1, "skipped_steps": 0,
        }
        for i, (v, t) in enumerate(zip(val, test, strict=True))
    ]  # fmt: skip
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    if finished:
        best = val.index(max(val))
        content = {
            "version": "0.1.0", "dataset": name or source.name, "split": "standard", "optimizer": config.optimizer,
            "seed": config.seed, "epochs": len(val), "best_epoch": best + 1, "val_accuracy": val[best],
            "test_accuracy": test[best], "max_test_accuracy": max(test), "threads": 1, "train_seconds": 0.5 * len(val),
            "eval_seconds": 0.1 * len(val), "peak_rss_bytes": 300 << 20, "command": "cvgnn train --out here",
            "machine": MACHINE,
        }  # fmt: skip
        write(folder / "result.json", {**content, **(result or {})})
    return folder


def write_sweep(out: Path, **changes: Any) -> Path:
    """A sweep's folder: two optimizers, lr 0.01 and 0.05, batches of 10 and 20, two seeds; lr 0.05 is better by
    validation and worse by test accuracy."""
    for number, (optimizer, lr, size, seed) in enumerate(
        (o, lr, b, s) for o in ("adam", "sgd") for lr in (0.01, 0.05) for b in (10, 20) for s in (0, 1)
    ):
        base = 0.5 + (0.1 if lr == 0.05 else 0.0) + (0.02 if size == 20 else 0.0) + 0.01 * seed
        tested = 0.9 - base
        write_run(
            out / "runs" / f"{number:016x}", val=(0.3, base, base - 0.1), test=(0.2, tested, tested + 0.02),
            optimizer=optimizer, lr=lr, batch_size=size, seed=seed, result={"command": None}, **changes,
        )  # fmt: skip
    write(out / "table.json", {"command": "cvgnn sweep --grid lr=0.01,0.05", "machine": MACHINE})
    return out


def write_search(out: Path, **changes: Any) -> Path:
    """Twelve settings as a random search draws them: two optimizers, and numbers that do not repeat."""
    for n in range(12):
        options = {"lr": round(0.001 * 1.43**n, 4), "hidden": 16 + (29 * n) % 97, "dropout": round(0.04 + 0.05 * n, 2)}
        optimizer = "adam" if n % 2 else "sgd"
        write_run(out / f"{n}", optimizer=optimizer, val=(0.3, 0.4 + 0.01 * n, 0.2), **options, **changes)
    return out


def write_methods(out: Path, estimators: Sequence[str], **changes: Any) -> Path:
    """The paper's optimizers with several estimators, of which each is better than the one before; AdaGrad is worst."""
    for optimizer in PAPER_OPTIMIZERS:
        for number, estimator in enumerate(estimators):
            top = 0.6 + 0.01 * number - (0.3 if optimizer == "adagrad" else 0.0)
            names = {"optimizer": optimizer, "estimator": estimator}
            write_run(out / f"{optimizer}-{estimator}", val=(0.1, top, 0.1), **names, **changes)
    return out


def section(report: Report, key: str) -> ReportSection:
    """The section of a report with this key."""
    return next(part for part in report.sections if part.key == key)


def write_diagnosis(folder: Path, **changes: Any) -> Path:
    """A folder as `cvgnn diagnose estimator --out` leaves it, with two figures."""
    lines = (
        ChartLine(name="cv 2", x=(1, 10, 100), y=(0.5, 0.05, 0.005), low=(0.4, 0.04, -0.001), high=(0.6, 0.06, 0.01)),
        ChartLine(name="ns 2", x=(1, 10, 100), y=(0.5, 0.5, 0.0)),
        ChartLine(name="1/t", x=(1, 100), y=(1.0, 0.01), reference=True),
    )
    axes = {"caption": "What it is.", "x_label": "step", "y_label": "variance of G"}
    known: dict[str, Any] = {
        "kind": "estimator",
        "dataset": "citeseer",
        "settings": {"seed": 0, "config": {"lr": 0.1}, "steps": [1, 10, 100]},
        "verdict": "It is so.",
        "tables": (
            DiagnosisTable(caption="Numbers.", header=("step", "bias^2"), rows=(("1", "0.5 ±0.1"), ("10", "-"))),
        ),
        "figures": (
            LineChart(key="variance", title="Variance", lines=lines, log_x=True, log_y=True, **axes),
            LineChart(key="ages", title="Ages", lines=lines[:1], **axes),
        ),
        "data": {"all": [1, 2]},
        "origin": {"command": "cvgnn diagnose estimator", "machine": MACHINE, "seconds": 1.5},
    }
    Diagnosis(**{**known, **changes}).write(folder)
    return folder


def write(file: Path, value: object) -> None:
    file.write_text(json.dumps(value), encoding="utf-8")
