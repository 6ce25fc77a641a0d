"""cvgnn diagnose: measure what the theory says about training, on your own graph.

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

# The docstring above is what `cvgnn diagnose --help` prints.

from __future__ import annotations

from collections.abc import Sequence

from cvgnn.errors import require_known

_COMMANDS = {
    "estimator": "EstimatorCommand",
    "history": "HistoryCommand",
    "bias-vs-lr": "BiasCommand",
    "rate": "RateCommand",
    "bound": "BoundCommand",
}
"""The class of each subcommand's options in `cvgnn.cli.diagnose_options`, which takes a while to import."""


def diagnose_command(argv: Sequence[str]) -> int:
    """Run the subcommand that argv names; returns the exit code."""
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(__doc__, end="")
        return 0
    kind, *rest = argv
    require_known("diagnosis", kind, _COMMANDS)
    from cvgnn.cli.diagnose_runner import run_diagnosis

    return run_diagnosis(kind, _COMMANDS[kind], rest)
