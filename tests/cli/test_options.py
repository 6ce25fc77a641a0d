"""Every command still has every option: the options in `--help`, beside a stored list.

`python -m tests.cli.test_options` writes a new list; look at its diff before you commit it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

STORED = Path(__file__).parent / "options.json"
COMMANDS = [
    "", "train", "predict", "evaluate", "serve", "export", "card", "completion", "reproduce", "sweep", "search", "tune", "report", "convert", "partition", "inspect", "datasets", "diagnose",
    "diagnose estimator", "diagnose history", "diagnose bias-vs-lr", "diagnose rate", "diagnose bound", "warmup",
]  # fmt: skip


def options(command: str) -> list[str]:
    """The options in a command's help, and the values of those that have a list of them."""
    words = [sys.executable, "-m", "cvgnn", *command.split(), "--help"]
    environment = {**os.environ, "COLUMNS": "1000", "TERM": "dumb"}
    done = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=120, check=True)
    # A line of the help that begins with an option; prose and examples name others.
    found = re.findall(r"^[│\s]*(?:-h, )?(--[a-z][\w-]*)(?: +(\{[^}]*\}))?", done.stdout, flags=re.MULTILINE)
    return sorted({f"{name} {values}".strip() for name, values in found})


@pytest.mark.parametrize("command", COMMANDS)
def test_no_option_is_lost(command: str) -> None:
    assert options(command) == json.loads(STORED.read_text(encoding="utf-8"))[command]


if __name__ == "__main__":
    STORED.write_text(json.dumps({command: options(command) for command in COMMANDS}, indent=1) + "\n")
