"""`cvgnn card`: the model card of a finished run."""

from __future__ import annotations

from collections.abc import Sequence

from cvgnn.cli.options import CardCommand
from cvgnn.cli.output import is_json, set_result
from cvgnn.errors import require
from cvgnn.export.model_card import model_card
from cvgnn.utils import atomic_files


def card_command(command: CardCommand, argv: Sequence[str]) -> int:
    """Print the card, or write it."""
    text = model_card(command.run)
    if command.out is None:
        print(text, end="") if not is_json() else set_result({"card": text})
        return 0
    require(not command.out.exists() or command.force, f"{command.out} exists; replace it with --force")
    with atomic_files.report_errors(f"cannot write {command.out}"):
        atomic_files.write_file(command.out, text.encode())
    set_result({"out": str(command.out)})
    return 0
