"""cvgnn: train graph neural networks on large graphs, fast, on a CPU

usage: cvgnn COMMAND [--help] [options]

commands:
  train      train a GCN on a data set or on your own graph, and report its accuracy
  inspect    what a graph holds, what becomes of its columns, and what looks suspicious, without training
  predict    classes, probabilities or embeddings of nodes from a finished run
  evaluate   every metric of a finished run, a table of its classes, the confusion matrix, the calibration
  serve      predictions of a finished run over HTTP, for programs and browsers
  export     the dense part of a finished run as safetensors, torch.export or ONNX programs, with a model card
  card       the model card of a finished run, in Markdown
  reproduce  the paper's Table 5 from its tuned settings, by its protocol and by the validation protocol
  sweep      a grid of runs over any options, on all cores, resumable
  search     settings chosen by Optuna: ranges of any options, several machines on one study, resumable
  tune       good settings for your graph in a given number of minutes, and the command that trains with them
  report     one HTML file about runs: curves, tables, heat maps, and where every number comes from
  diagnose   bias and variance of the gradient, age of the histories, rate of convergence, on your graph
  convert    turn your graph (npz, CSV, Parquet, Arrow, pt) into a store that opens at once, whatever its size
  partition  cut a graph into shards, to train on it with several processes or machines
  datasets   the named data sets: their sizes, and whether they are on this machine
  completion the script that completes commands and options in bash, zsh or fish
  warmup     compile all kernels ahead of the first run, for a container image

examples:
  cvgnn train                                     the bundled CiteSeer graph, a few seconds
  cvgnn train --optimizer amsgrad --out runs/a    another optimizer; keep config, metrics and weights in runs/a
  cvgnn train --dataset cora --root DIR           Cora, from its raw Planetoid files in DIR
  cvgnn train --graph my_graph.npz                your own graph
  cvgnn train --resume runs/a                     continue a run that was stopped or killed
  cvgnn predict runs/a --nodes 3,14 --out p.csv   predictions of the run in runs/a
  cvgnn evaluate runs/a                           every metric of that run, and a table of its classes
  cvgnn report runs --out report.html             all runs below the folder runs, in one page to open in a browser
  cvgnn train --help                              every option with its meaning and default

Every command takes --quiet (only results, warnings and errors), --verbose (details such as checkpoints and threads),
--json (the result as one JSON object on standard output, and everything else on standard error),
--plugin MODULE (import your module first, which registers models, estimators, optimizers or losses: docs/custom.md) and
--config FILE.toml (options from a file; those on the command line count more: docs/config.md).
cvgnn --version prints the version. Results, figures and the method: see the README and docs/.
"""

# The docstring above is what `cvgnn --help` prints. torch is imported by the subcommand that needs it, so that `--help`
# and errors in options appear at once.

from __future__ import annotations

import argparse
import errno
import importlib
import logging
import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext

from cvgnn._version import __version__
from cvgnn.errors import CvgnnError, Interrupted, Stopped, require_known
from cvgnn.utils.process_end import end_process

_HELP = __doc__ or ""
COMMANDS = re.findall(
    r"^  (\w+) +[a-z]", _HELP.partition("examples:")[0], flags=re.MULTILINE
)  # the help is the one list of them
_MODULE = "a module, such as --plugin my_models"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code (0 done, 2 an error in the input, 130 or 143 stopped).

    Without `argv`, the words are those of the shell, and the process ends.
    """
    if sys.stdout is None:  # the caller has closed it
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    code = _exit_code(list(sys.argv[1:] if argv is None else argv))
    if argv is None:
        end_process(code)
    return code


def _exit_code(arguments: list[str]) -> int:
    if "RANK" in os.environ or "SLURM_PROCID" in os.environ:
        # Our errors name the lost rank; torch's own messages have C++ stack traces. Read when torch is imported.
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")
    try:
        return _dispatch(arguments)
    except Stopped as error:
        if not _follows():
            print(f"cvgnn: {error}", file=sys.stderr)
        return 128 + error.signal_number
    except CvgnnError as error:
        print(f"cvgnn: {error}", file=sys.stderr)
        return 2
    except (KeyboardInterrupt, SystemError) as error:
        # An interrupt inside compiled code becomes the cause, perhaps at several removes, of a SystemError.
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, KeyboardInterrupt):
            cause = cause.__cause__ or cause.__context__
        if cause is None:
            raise
        if not _follows():
            print("cvgnn: interrupted", file=sys.stderr)
        return 128 + (cause.signal_number if isinstance(cause, Interrupted) else signal.SIGINT)
    except BrokenPipeError:  # the reader, such as head, has closed the pipe
        _discard_output()
        return 0
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        _discard_output()
        print(f"cvgnn: {error.filename or 'standard output'}: {error.strerror}", file=sys.stderr)
        return 2


def _follows() -> bool:
    """Whether this is a rank whose end rank 0 reports, because a signal stops all of them."""
    return os.environ.get("RANK", "0") != "0"


def _discard_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _dispatch(arguments: list[str]) -> int:
    # The options of every command may stand anywhere.
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for name in ("--quiet", "--verbose", "--json"):
        parser.add_argument(name, action="store_true")
    parser.add_argument("--plugin", action="append", default=[])
    parser.add_argument("--config")
    try:
        given, argv = parser.parse_known_args(arguments)
    except argparse.ArgumentError as error:
        example = "a file, such as --config options.toml" if error.argument_name == "--config" else _MODULE
        raise CvgnnError(f"{error.argument_name} {error.message}; name {example}") from None
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(f"cvgnn {__version__}{_HELP.removeprefix('cvgnn')}", end="")
        return 0
    if argv[0] == "--version":
        print(f"cvgnn {__version__}")
        return 0
    command, *rest = argv
    require_known("command", command, COMMANDS)
    from cvgnn.cli.output import compile_bar, json_output, logging_to_console

    if given.plugin:
        from cvgnn.registry import import_plugin

        for plugin in given.plugin:
            import_plugin(plugin)
    if given.config is not None and not {"-h", "--help"} & set(rest):
        rest = _with_config(command, rest, given.config)
    level = logging.DEBUG if given.verbose else logging.WARNING if given.quiet else logging.INFO
    with logging_to_console(level), json_output() if given.json else nullcontext(), compile_bar():
        return run_command(command, rest)


def _with_config(command: str, argv: list[str], file: str) -> list[str]:
    """The arguments with the options of the file of `--config`."""
    from pathlib import Path

    from cvgnn.cli.config_file import with_config

    if command == "diagnose":
        from cvgnn.cli import diagnose_options
        from cvgnn.cli.diagnose_command import COMMANDS as DIAGNOSES

        name = DIAGNOSES.get(argv[0], ("",))[0] if argv else ""
        kind = getattr(diagnose_options, name, None)
    else:
        from cvgnn.cli import options

        kind = getattr(options, f"{command.capitalize()}Command")
    return argv if kind is None else with_config(kind, command, argv, Path(file), commands=COMMANDS)


def run_command(command: str, argv: list[str]) -> int:
    """Parse the options, then import what the command needs, such as torch."""
    if command == "diagnose":  # it has subcommands with options of their own
        from cvgnn.cli.diagnose_command import diagnose_command

        return diagnose_command(argv)
    from cvgnn.cli import options

    kind: type[options.Command] = getattr(options, f"{command.capitalize()}Command")
    parsed = kind.parse(argv, prog=f"cvgnn {command}")
    parsed.check()
    module = importlib.import_module(f"cvgnn.cli.{command}_command")
    run: Callable[[options.Command, Sequence[str]], int] = getattr(module, f"{command}_command")
    return run(parsed, argv)


if __name__ == "__main__":
    sys.exit(main())
