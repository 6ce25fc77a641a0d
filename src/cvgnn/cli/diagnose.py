"""`cvgnn diagnose`: what the theory says about training, measured on your graph."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence

from cvgnn.errors import unknown_name

_HELP = """cvgnn diagnose: measure what the theory says about training, on your own graph

usage: cvgnn diagnose WHAT [--help] [options]

what to measure:
  estimator   how far a step's gradient is from the exact one, and why: bias, variance of the batch, variance of the
              neighbors drawn; for any estimators, schemes and fan-outs side by side, along training
  history     how old the histories are, and how wrong, layer by layer along training
  bias-vs-lr  how the gradient's bias grows with the learning rate (Lemma 6)
  rate        how fast the gradient's norm falls with the number of steps
  bound       the constants of Theorem 1, and the bound they give

every one takes:
  --dataset NAME, --graph PATH or --run DIR       a named data set, your own graph, or the graph and options of a run
  --seed N, and any option of cvgnn train         how to train what is measured
  --out DIR                                       keep all numbers in DIR/diagnosis.json, for cvgnn report

examples:
  cvgnn diagnose estimator --batch-size 20                         is a fan-out of 2 enough? CiteSeer, a minute or less
  cvgnn diagnose estimator --estimators cv ns --fan-outs 2 5 10    how much do more neighbors, or the histories, help?
  cvgnn diagnose history --graph my_graph.npz --out d/history      how stale are the histories on my graph?
  cvgnn diagnose history --run runs/a                              and in the run in runs/a, where it stands now?
  cvgnn report d --out d.html                                      all diagnoses below the folder d, in one page

docs/diagnose.md says what each number means, and what to change when it looks bad.
"""

_FILES = {
    "estimator": ("diagnose_estimator", "estimator_command"),
    "history": ("diagnose_history", "history_command"),
    "bias-vs-lr": ("diagnose_bias", "bias_command"),
    "rate": ("diagnose_rate", "rate_command"),
    "bound": ("diagnose_bound", "bound_command"),
}


def diagnose_command(words: Sequence[str]) -> int:
    """Find the subcommand and run it; returns the exit code."""
    if not words or words[0] in ("-h", "--help", "help"):
        print(_HELP, end="")
        return 0
    what, *rest = words
    if what not in _FILES:
        raise unknown_name("diagnosis", what, _FILES)
    module, function = _FILES[what]
    run: Callable[[Sequence[str]], int] = getattr(importlib.import_module(f"cvgnn.cli.{module}"), function)
    return run(rest)
