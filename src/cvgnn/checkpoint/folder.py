"""The checkpoints of a run: a folder for each, which appears whole or not at all; the last two are kept.

`checkpoints/000007/state.safetensors` holds the tensors, `checkpoint.json` beside it everything else, with the SHA-256
of the tensors' file and its own.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, final

from torch import Tensor

from cvgnn import disk
from cvgnn._version import __version__
from cvgnn.checkpoint.tensor_file import TensorFile, write_tensors
from cvgnn.graph.names import shown
from cvgnn.sealed import is_sealed, parse_object, seal

FORMAT = "cvgnn-checkpoint"
VERSION = 1
BODY, TENSORS = "checkpoint.json", "state.safetensors"
_MAX_BODY = 1 << 28
_KEYS = {"format", "version", "cvgnn", "tensors_sha256", "body"}


class Checkpoint(NamedTuple):
    """A sound checkpoint: its folder, what its JSON says, and its tensors, read when asked for."""

    path: Path
    body: dict[str, Any]
    tensors: Mapping[str, Tensor]


@final
class Checkpoints:
    """The folder with a run's checkpoints. One process at a time may use it.

    Args:
        folder: made by the first `save`.
        say: told of damaged checkpoints.
    """

    def __init__(self, folder: Path, *, say: Callable[[str], None]) -> None:
        self.folder = folder
        self._say = say
        self.last: Path | None = None
        """The newest checkpoint known to be sound: the last that was saved or read."""

    def save(self, tensors: Mapping[str, Tensor], body: dict[str, Any]) -> Path:
        """Write a checkpoint, then remove all but it and the last sound one before. An `OSError` removes none.

        Args:
            tensors: written from where they lie.
            body: JSON values.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self._remove_unfinished()
        number = max((int(path.name) for path in self._numbered()), default=0) + 1
        target = self.folder / f"{number:06d}"
        partial = self.folder / f".{secrets.token_hex(4)}.partial"
        try:
            partial.mkdir()
            with disk.create(partial / TENSORS) as file:
                digest = write_tensors(file, tensors)
                disk.sync(file)
            text = {
                "format": FORMAT,
                "version": VERSION,
                "cvgnn": __version__,
                "tensors_sha256": digest,
                "body": body,
            }
            with disk.create(partial / BODY) as file:
                disk.write(file, seal(text).encode())
                disk.sync(file)
            disk.sync_folder(partial)
            disk.rename(partial, target)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        before, self.last = self.last, target
        disk.sync_folder(self.folder)
        for path in self._numbered():  # only now: until its name is on disk, the new one may be lost with the power
            if path not in (before, target):
                self._remove(path)
        return target

    def newest(self) -> Checkpoint | None:
        """The newest sound checkpoint; damaged ones are told of and passed over. None if there is none."""
        for path in sorted(self._numbered(), key=lambda path: int(path.name), reverse=True):
            try:
                found = _read(path)
            except ValueError as error:
                self._say(f"the checkpoint {path} is damaged and not used: {error}")
                continue
            self.last = path
            return found
        return None

    def _numbered(self) -> list[Path]:
        if not self.folder.is_dir():
            return []
        return [path for path in self.folder.iterdir() if re.fullmatch("[0-9]{6,18}", path.name)]

    def _remove(self, path: Path) -> None:
        """First the name, so that no half of it is ever taken for a checkpoint. What cannot be removed stays."""
        with contextlib.suppress(OSError):
            gone = self.folder / f".{secrets.token_hex(4)}.partial"
            disk.rename(path, gone)
            _remove_all(gone)

    def _remove_unfinished(self) -> None:
        for path in self.folder.glob(".*.partial"):
            _remove_all(path)


def _remove_all(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:  # not a checkpoint of ours, but in its place
        with contextlib.suppress(OSError):
            path.unlink()


def _read(path: Path) -> Checkpoint:
    """The checkpoint in a folder; `ValueError` says what is wrong with it."""
    try:
        with (path / BODY).open("rb") as file:
            data = file.read(_MAX_BODY + 1)
    except OSError as error:
        raise ValueError(f"{BODY} cannot be read ({error.strerror})") from None
    if len(data) > _MAX_BODY:
        raise ValueError(f"{BODY} is longer than {_MAX_BODY} bytes")
    try:
        text = parse_object(data)
    except ValueError as error:
        raise ValueError(f"{BODY} {error}") from None
    if not is_sealed(text):
        raise ValueError(f"{BODY} does not match its own checksum")
    version = text.get("version")
    if text.get("format") != FORMAT or version != VERSION:
        raise ValueError(f"{BODY} is of version {shown([str(version)[:40]])}, and this cvgnn reads version {VERSION}")
    if text.keys() != _KEYS or not isinstance(text["body"], dict) or not _is_sha256(text["tensors_sha256"]):
        raise ValueError(f"{BODY} lacks what a checkpoint has")
    return Checkpoint(path, text["body"], TensorFile(path / TENSORS, sha256=text["tensors_sha256"]))


def _is_sha256(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None
