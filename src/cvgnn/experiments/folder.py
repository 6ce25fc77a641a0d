"""The folder a run leaves: config.json, metrics.jsonl, result.json, weights.safetensors and its checkpoints."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, final

from safetensors.torch import save
from torch import nn

from cvgnn import disk
from cvgnn.errors import CvgnnError
from cvgnn.locking import only_user


@final
class RunFolder:
    """A folder for one run's files, which one process at a time may write to.

    Args:
        path: looked at here. A new run's is made, with its parents, by `opened`.
        resume: whether it must hold an earlier run; if not, one that holds anything is refused, so that no earlier
            run is overwritten.
    """

    def __init__(self, path: Path, *, resume: bool = False) -> None:
        self.path = path
        self._resume = resume
        if resume and not os.path.isdir(path):
            raise CvgnnError(f"no run folder at {path}; give a folder that cvgnn train --out has written")
        self._refuse_occupied()

    @property
    def metrics(self) -> Path:
        """Where the line of each epoch goes."""
        return self.path / "metrics.jsonl"

    @property
    def checkpoints(self) -> Path:
        """Where the run's state goes."""
        return self.path / "checkpoints"

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Make the folder if it is a new run's, and keep other processes out of it."""
        with contextlib.ExitStack() as stack:
            with _told(self.path):
                if not self.path.is_dir():
                    self.path.mkdir(parents=True, exist_ok=True)
                    disk.sync_folder(self.path.parent)
                stack.enter_context(only_user(self.path))
            self._refuse_occupied()  # another process may have been faster
            for leftover in self.path.glob(".*.partial"):  # of a process that was killed
                with contextlib.suppress(OSError):
                    leftover.unlink()
            yield

    def write_config(self, config: dict[str, Any]) -> None:
        """Write config.json: everything needed to repeat the run. One that says the same stays as it is."""
        data, file = _json(config), self.path / "config.json"
        with _told(self.path, resume=self._resume):
            if not (self._resume and file.is_file() and file.read_bytes() == data):
                disk.write_file(file, data)

    def forget_result(self) -> None:
        """Remove result.json, because the run goes on: a folder with a result is complete."""
        with _told(self.path, resume=True):
            (self.path / "result.json").unlink(missing_ok=True)

    @property
    def begun(self) -> bool:
        """Whether a run has written its config."""
        return (self.path / "config.json").is_file()

    @property
    def has_result(self) -> bool:
        """Whether the run was finished."""
        return (self.path / "result.json").is_file()

    def write_result(self, result: dict[str, Any], model: nn.Module) -> None:
        """Write weights.safetensors, then result.json: a folder with a result is complete."""
        weights = save({name: t.contiguous() for name, t in model.state_dict().items()})
        try:
            disk.write_file(self.path / "weights.safetensors", weights)
            disk.write_file(self.path / "result.json", _json(result))
        except OSError as error:
            raise CvgnnError(
                f"the run is done, but its result cannot be written to {self.path}: {disk.reason(error)}, then get it "
                f"from the last checkpoint with: cvgnn train --resume {self.path}"
            ) from None

    def _refuse_occupied(self) -> None:
        if self._resume:
            return
        with _told(self.path):
            occupied = self.path.exists() and any(not p.name.endswith(".partial") for p in self.path.iterdir())
        if occupied:
            hint = f", or go on with it: cvgnn train --resume {self.path}" if self.begun else ""
            raise CvgnnError(f"output folder {self.path} is not empty; choose another --out, or empty it first{hint}")


def _json(value: dict[str, Any]) -> bytes:
    return (json.dumps(value, indent=2) + "\n").encode()


@contextmanager
def _told(path: Path, *, resume: bool = False) -> Iterator[None]:
    """What the system refuses, as a sentence."""
    try:
        yield
    except OSError as error:
        if resume:
            raise CvgnnError(f"cannot go on in {path}: {disk.reason(error)}") from None
        raise CvgnnError(f"cannot use {path} as output folder: {error.strerror}; choose another --out") from None
