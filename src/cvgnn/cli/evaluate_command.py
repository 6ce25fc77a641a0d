"""`cvgnn evaluate`: every metric of a finished run, with a table of its classes."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from cvgnn.cli.options import EvaluateCommand
from cvgnn.cli.output import set_result
from cvgnn.cli.predict_command import moved_source, with_run
from cvgnn.data.split import SPLITS
from cvgnn.training.callbacks import format_metric
from cvgnn.training.run import Run
from cvgnn.utils.formatting import align_columns

_MOST_COLUMNS = 20  # of a confusion matrix on the terminal


def evaluate_command(command: EvaluateCommand, argv: Sequence[str]) -> int:
    """Evaluate, print."""
    source = functools.partial(moved_source, command.run, command.graph, command.root)
    return with_run("evaluate", command, argv, source, functools.partial(_evaluate, command))


def _evaluate(command: EvaluateCommand, run: Run, order: np.ndarray | None) -> int:
    found = run.evaluate()
    names = run.result["class_names"] or [str(c) for c in range(run.result["num_classes"])]
    print("\n".join(describe(found, names)))
    set_result({"run": str(command.run), "class_names": names, **found})
    return 0


def describe(found: dict[str, Any], names: Sequence[str]) -> list[str]:
    """The lines to print about an evaluation.

    Args:
        found: what `Run.evaluate` returns.
        names: of the classes, labels or targets.
    """

    def table(rows: list[list[str]]) -> list[str]:
        return ["  ".join(cells) for cells in align_columns(rows, numbers_right=True)]

    values, items = found["metrics"], f"{found['item']}s"
    metrics = dict.fromkeys(key.partition("_")[2] for key in values)
    rows = [[m, *(format_metric(key := f"{split}_{m}", values[key]) for split in SPLITS)] for m in metrics]
    lines = table([["metric", *SPLITS], *rows])
    if "per_class" in found:
        each = found["per_class"]
        shown = [[f"{100 * value:.2f}" for value in each[name]] for name in ("precision", "recall", "f1")]
        columns = zip(names, *shown, map(str, each["nodes"]), strict=True)
        head = ["class", "precision", "recall", "f1", items]
        lines += ["", f"by class, on the {each['split']} {items}, in %:", *table([head, *map(list, columns)])]
        matrix = each["confusion_matrix"]
        if matrix is not None and len(matrix) <= _MOST_COLUMNS:
            counts = [[name, *map(str, row)] for name, row in zip(names, matrix, strict=True)]
            lines += ["", "confusion matrix, a row for each true class:", *table([["", *names], *counts])]
    if "calibration" in found:
        c = found["calibration"]
        fitted = "" if c["temperature"] is None else f", with temperature {c['temperature']:.3f}"
        error = f"{100 * c['expected_calibration_error']:.2f}%"
        lines += ["", f"expected calibration error {error} on the {c['split']} {items}{fitted}"]
    return lines
