"""`cvgnn completion`: a script that completes commands, options and their values in a shell."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import re
from collections.abc import Sequence
from typing import Annotated, Any, Union

import tyro

from cvgnn.cli import diagnose_options, options
from cvgnn.cli.diagnose_command import COMMANDS as DIAGNOSES
from cvgnn.cli.main import COMMANDS
from cvgnn.cli.options import CompletionCommand, EveryCommand
from cvgnn.cli.output import is_json, set_result


def completion_command(command: CompletionCommand, argv: Sequence[str]) -> int:
    """Print the script, which tyro makes from the options of all commands."""
    diagnoses = {name: getattr(diagnose_options, kind) for name, (kind, _) in DIAGNOSES.items()}
    what = dataclasses.make_dataclass("Diagnose", [("what", _one_of(diagnoses))], frozen=True)
    kinds = {name: getattr(options, f"{name.capitalize()}Command", what) for name in COMMANDS}
    text = io.StringIO()
    # Without our rule for values, which leaves their check to the config: tyro then knows the choices.
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(text):
        tyro.cli(_one_of(kinds), args=["--tyro-print-completion", command.shell], prog="cvgnn")
    # tyro's scripts take each line of an option's description for a choice of its own.
    lines = [re.sub(r"\\+n *", " ", s) if "COMPLETION_SPEC = " in s else s for s in text.getvalue().splitlines()]
    if is_json():
        set_result({"script": "\n".join(lines)})
    else:
        print("\n".join(lines))
    return 0


def _one_of(kinds: dict[str, type]) -> Any:
    """tyro's type for a choice of subcommands, each with the options that every command takes."""
    each = []
    for name, kind in kinds.items():
        wider = dataclasses.make_dataclass(kind.__name__, [], bases=(kind, EveryCommand), kw_only=True, frozen=True)
        wider.__doc__ = kind.__doc__
        each.append(Annotated[wider, tyro.conf.subcommand(name, prefix_name=False), tyro.conf.FlagCreatePairsOff])
    return Union[tuple(each)]  # noqa: UP007, of a list
