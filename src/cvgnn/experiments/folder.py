"""The folder a run leaves: config.json, metrics.jsonl, result.json and weights.safetensors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, final

from safetensors.torch import save
from torch import nn

from cvgnn.errors import CvgnnError


@final
class RunFolder:
    """A new folder for one run's files. A folder that holds anything is refused, so no earlier run is overwritten.

    Args:
        path: looked at here, made with its parents by `write_config`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with _told(path):
            occupied = path.exists() and any(path.iterdir())
        if occupied:
            raise CvgnnError(f"output folder {path} is not empty; choose another --out, or empty it first")

    @property
    def metrics(self) -> Path:
        """Where the line of each epoch goes."""
        return self.path / "metrics.jsonl"

    def write_config(self, config: dict[str, Any]) -> None:
        """Make the folder and write config.json: everything needed to repeat the run."""
        with _told(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            self._write_json("config.json", config)

    def write_result(self, result: dict[str, Any], model: nn.Module) -> None:
        """Write weights.safetensors, then result.json: a folder with a result is complete."""
        # Not save_file, which makes a file that nobody else may read.
        self._write("weights.safetensors", save({name: t.contiguous() for name, t in model.state_dict().items()}))
        self._write_json("result.json", result)

    def _write_json(self, name: str, value: dict[str, Any]) -> None:
        self._write(name, (json.dumps(value, indent=2) + "\n").encode())

    def _write(self, name: str, data: bytes) -> None:
        """Write a file that appears complete or not at all."""
        partial = self.path / f"{name}.partial"
        partial.write_bytes(data)
        partial.replace(self.path / name)


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """What the system refuses, as a sentence."""
    try:
        yield
    except OSError as error:
        raise CvgnnError(f"cannot use {path} as output folder: {error.strerror}; choose another --out") from None
