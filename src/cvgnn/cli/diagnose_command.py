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

import contextlib
import dataclasses
import json
import os
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cvgnn.errors import CvgnnError, require, require_known

if TYPE_CHECKING:
    from cvgnn.cli.diagnose_options import DiagnoseCommand
    from cvgnn.lab.diagnose import Diagnosis

COMMANDS = {
    "estimator": ("EstimatorCommand", "diagnose_estimator"),
    "history": ("HistoryCommand", "diagnose_history"),
    "bias-vs-lr": ("BiasCommand", "diagnose_bias"),
    "rate": ("RateCommand", "diagnose_rate"),
    "bound": ("BoundCommand", "diagnose_bound"),
}
"""For each subcommand the class of its options in `cvgnn.cli.diagnose_options` and its function in
`cvgnn.lab.diagnose`, both of which take a while to import."""


def diagnose_command(argv: Sequence[str]) -> int:
    """Parse the options of the subcommand that argv names, measure, print and write; returns the exit code."""
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(__doc__, end="")
        return 0
    kind, *argv = argv
    require_known("diagnosis", kind, COMMANDS)
    from cvgnn.cli import diagnose_options
    from cvgnn.cli.argv import is_given

    options, function = COMMANDS[kind]
    command = _parse(getattr(diagnose_options, options), argv, kind=kind)
    command.check()
    started = time.monotonic()

    # Only now: torch takes seconds to import, and --help or a wrong option should not wait for it.
    from cvgnn.lab import diagnose
    from cvgnn.lab.diagnose.trainers import in_float64
    from cvgnn.training.graph_source import load_source, report_lost_graph
    from cvgnn.training.machine import run_threads
    from cvgnn.utils.progress import ProgressReporter

    trusted = command.run is None or is_given(argv, "root")
    graph = in_float64(load_source(command.source, trusted=trusted))
    config = command.training(graph, argv)
    unused = command.unused(config)
    ignored = [f"--{name.replace('_', '-')}" for name in vars(config) if name in unused and is_given(argv, name)]
    if ignored:
        print(f"cvgnn: ignored, because it has no effect on this measurement: {', '.join(ignored)}", file=sys.stderr)
    arguments = command.arguments(graph, argv)
    guard = report_lost_graph(command.source, "start again")
    with guard, run_threads(graph, command.config), ProgressReporter("cvgnn") as progress:
        diagnosis = getattr(diagnose, function)(graph, config, **arguments, progress=progress)
    return _finish(diagnosis, command, argv, seconds=round(time.monotonic() - started, 2))


def _parse(command: type[DiagnoseCommand], argv: Sequence[str], *, kind: str) -> DiagnoseCommand:
    """Parse argv, with the options of the run that `--run` names as defaults; check and create `--out`."""
    from cvgnn.cli.argv import option, parse
    from cvgnn.config import GraphSource

    if argv and not argv[0].startswith("-"):
        argv = ["--run", *argv]  # `cvgnn diagnose history runs/a`
    run = option(argv, "--run")
    require(run != "", "--run needs the folder of a run, such as --run runs/a")
    default = None
    if run is not None and "--help" not in argv and "-h" not in argv:
        from cvgnn.training.run_folder import read_settings

        require(os.path.isdir(run), f"no run folder at {run}; give a folder that cvgnn train --out has written")
        source, config = read_settings(Path(run) / "config.json")
        if any(option(argv, name) is not None for name in ("--graph", "--dataset")):
            source = GraphSource()  # the run's graph has moved, and argv names its new place
        default = dataclasses.replace(command(), source=source, config=config)
    parsed = parse(command, argv, prog=f"cvgnn diagnose {kind}", default=default)
    if parsed.out is not None:
        _prepare_folder(parsed.out, kind)
    return parsed


def _prepare_folder(out: Path, kind: str) -> None:
    """Create the folder before the work, so that no result is lost; only a diagnosis of the same kind is replaced."""
    from cvgnn.lab.diagnose.record import FILE_NAME
    from cvgnn.training.run_folder import read_object
    from cvgnn.utils import atomic_files

    require(not out.exists() or out.is_dir(), f"--out must be a folder, and {out} is a file")
    with atomic_files.report_errors(f"cannot write to {out}", "choose another --out"):
        out.mkdir(parents=True, exist_ok=True)
        names = [path.name for path in out.iterdir() if not path.name.endswith(".partial")]
    require(os.access(out, os.W_OK | os.X_OK), f"cannot write to {out}: it is read-only; choose another --out")
    same = not names
    with contextlib.suppress(CvgnnError):
        same = same or (names == [FILE_NAME] and read_object(out / FILE_NAME).get("kind") == kind)
    require(same, f"--out {out} holds other files than a diagnosis of kind {kind}; choose another --out, or empty it")


def _finish(diagnosis: Diagnosis, command: DiagnoseCommand, argv: Sequence[str], *, seconds: float) -> int:
    """Print the verdict and its tables, write `diagnosis.json` if `--out` names a folder; returns the exit code."""
    from cvgnn.cli.output import Output, set_result
    from cvgnn.training.machine import describe_machine
    from cvgnn.utils import atomic_files
    from cvgnn.utils.formatting import align_columns

    command_line = shlex.join(["cvgnn", "diagnose", diagnosis.kind, *argv])
    origin = {"command": command_line, "machine": describe_machine(), "seconds": seconds}
    diagnosis = dataclasses.replace(diagnosis, origin={**diagnosis.origin, **origin})
    set_result(json.loads(diagnosis.to_json()))
    output = Output(ignore_write_errors=command.out is not None)
    output.show(f"{diagnosis.verdict}\n")
    for table in diagnosis.tables:
        lines = align_columns([table.header, *table.rows], numbers_right=True)
        output.show("\n".join([table.caption, *("  ".join(cells).rstrip() for cells in lines)]) + "\n")
    if command.out is not None:
        with atomic_files.report_errors(f"cannot write to {command.out}"):
            file = diagnosis.write(command.out)
        output.show(f"written to {file} in {seconds:.1f} s; see it with: cvgnn report {command.out}")
    return 0
