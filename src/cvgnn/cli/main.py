"""The `cvgnn` command: reads the words, says mistakes in a sentence, and leaves the work to its subcommands.

torch is imported by the subcommand that needs it, after the OpenMP settings below are in place: with torch's default
spin-wait, small operations get up to 100 times slower when another process is busy.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from cvgnn._version import __version__
from cvgnn.errors import CvgnnError

_HELP = f"""cvgnn {__version__}: train graph convolutional networks on large graphs, fast, on a CPU

usage: cvgnn COMMAND [--help] [options]

commands:
  train      train a GCN on a data set and report its accuracy

examples:
  cvgnn train                                     the bundled CiteSeer graph, a few seconds
  cvgnn train --optimizer amsgrad --out runs/a    another optimizer; keep config, metrics and weights in runs/a
  cvgnn train --dataset cora --root DIR           Cora, from its raw Planetoid files in DIR
  cvgnn train --help                              every option with its meaning and default

cvgnn --version prints the version. Results, figures and the method: see the README and docs/.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code (0 done, 2 a mistake in the input, 130 interrupted)."""
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("GOMP_SPINCOUNT", "0")
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        return _dispatch(words)
    except CvgnnError as error:
        print(f"cvgnn: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("cvgnn: interrupted", file=sys.stderr)
        return 130
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
    if command == "train":
        from cvgnn.cli.train import train_command

        return train_command(rest)
    raise CvgnnError(f"unknown command {command!r}; known: train (see cvgnn --help)")


if __name__ == "__main__":
    sys.exit(main())
