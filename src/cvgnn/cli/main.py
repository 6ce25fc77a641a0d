"""The `cvgnn` command: reads the words, says mistakes in a sentence, and leaves the work to its subcommands.

torch is imported by the subcommand that needs it, after the OpenMP settings below are in place: with torch's default
spin-wait, small operations get up to 100 times slower when another process is busy.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Callable, Sequence

from cvgnn._version import __version__
from cvgnn.errors import CvgnnError, Interrupted, Stopped, unknown_name

_HELP = f"""cvgnn {__version__}: train graph neural networks on large graphs, fast, on a CPU

usage: cvgnn COMMAND [--help] [options]

commands:
  train      train a GCN on a data set or on your own graph, and report its accuracy
  predict    classes, probabilities or embeddings of nodes from a finished run
  reproduce  the paper's Table 5: its tuned settings run again, by its protocol and by the honest one
  sweep      many runs: a grid over any options, on all cores, resumable
  search     settings chosen by Optuna: ranges of any options, many machines on one study, resumable
  report     one HTML file about runs: curves, tables, heat maps, and where every number comes from
  diagnose   bias and variance of the gradient, age of the histories, rate of convergence, on your graph
  convert    turn your graph (npz, CSV, Parquet, pt) into a store that opens at once, whatever its size
  datasets   the named data sets: their sizes, and whether they are here

examples:
  cvgnn train                                     the bundled CiteSeer graph, a few seconds
  cvgnn train --optimizer amsgrad --out runs/a    another optimizer; keep config, metrics and weights in runs/a
  cvgnn train --dataset cora --root DIR           Cora, from its raw Planetoid files in DIR
  cvgnn train --graph my_graph.npz                your own graph
  cvgnn train --resume runs/a                     go on with a run that was stopped or killed
  cvgnn predict runs/a --nodes 3,14 --out p.csv   predictions of the run in runs/a
  cvgnn report runs --out report.html             all runs below the folder runs, in one page to open in a browser
  cvgnn train --help                              every option with its meaning and default

cvgnn --version prints the version. Results, figures and the method: see the README and docs/.
"""


_COMMANDS = ("train", "predict", "reproduce", "sweep", "search", "report", "diagnose", "convert", "datasets")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code (0 done, 2 a mistake in the input, 130 or 143 stopped)."""
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("GOMP_SPINCOUNT", "0")
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        return _dispatch(words)
    except CvgnnError as error:
        print(f"cvgnn: {error}", file=sys.stderr)
        return 128 + error.signal_number if isinstance(error, Stopped) else 2
    except (KeyboardInterrupt, SystemError) as error:
        # An interrupt inside compiled code arrives as a SystemError that it caused, perhaps by way of others.
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, KeyboardInterrupt):
            cause = cause.__cause__ or cause.__context__
        if cause is None:
            raise
        print("cvgnn: interrupted", file=sys.stderr)
        return 128 + (cause.signal_number if isinstance(cause, Interrupted) else signal.SIGINT)
    except BrokenPipeError:  # the reader, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(_HELP, end="")
        return 0
    if words[0] == "--version":
        print(f"cvgnn {__version__}")
        return 0
    command, *rest = words
    if command not in _COMMANDS:
        raise unknown_name("command", command, _COMMANDS)
    run: Callable[[Sequence[str]], int] = getattr(importlib.import_module(f"cvgnn.cli.{command}"), f"{command}_command")
    return run(rest)


if __name__ == "__main__":
    sys.exit(main())
