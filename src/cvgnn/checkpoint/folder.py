"""The checkpoints of a run: a folder for each, which appears whole or not at all; the last two are kept.

`checkpoints/000007/state.safetensors` holds the tensors, `checkpoint.json` beside it everything else, with the SHA-256
of the tensors' file and its own.
"""

from __future__ import annotations

import contextlib
import errno
import os
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
from cvgnn.errors import CvgnnError
from cvgnn.sealed import is_sealed, parse_object, seal, short

FORMAT = "cvgnn-checkpoint"
VERSION = 1
BODY, TENSORS = "checkpoint.json", "state.safetensors"
_MAX_BODY = 1 << 29
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
        if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
            raise CvgnnError(f"{folder} is not a folder of its own; a run keeps its checkpoints inside its own folder")

    def save(self, tensors: Mapping[str, Tensor], body: dict[str, Any]) -> Path:
        """Write a checkpoint, then remove all but it and the last sound one before. An `OSError` removes none.

        Args:
            tensors: written from where they lie.
            body: JSON values.
        """
        if not self.folder.is_dir():
            self.folder.mkdir(parents=True)
            disk.sync_folder(self.folder.parent)
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
                disk.write(file, seal(text, indent=None).encode())
                disk.sync(file)
            disk.sync_folder(partial)
            disk.rename(partial, target)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        before, self.last = self.last, target
        try:
            disk.sync_folder(self.folder)
        except OSError as error:  # until its name is on disk, the new one may be lost with the power: keep the others
            self._say(f"the checkpoint {target} may not survive a power failure yet: {disk.reason(error)}")
            return target
        for path in self._numbered():
            if path not in (before, target) and _is_ours(path):
                self._remove(path)
        return target

    def newest(self) -> Checkpoint | None:
        """The newest sound checkpoint; damaged ones are told of and passed over. None if there never was one.

        If none of those that are there can be used, or one is of another version or may not be read, that is an error:
        to begin anew would in the end remove them.
        """
        numbered = sorted(self._numbered(), key=lambda path: int(path.name), reverse=True)
        for path in numbered:
            try:
                found = _read(path)
            except ValueError as error:
                if isinstance(error, CvgnnError):
                    raise
                self._say(f"the checkpoint {path} is damaged and not used: {error}")
                continue
            self.last = path
            return found
        if numbered:
            raise CvgnnError(
                f"no checkpoint in {self.folder} is sound; restore one from a copy, or start a new run elsewhere"
            )
        return None

    def _numbered(self) -> list[Path]:
        try:
            names = os.listdir(self.folder)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise CvgnnError(f"cannot look into {self.folder}: {error.strerror}; check its permissions") from None
        return [self.folder / name for name in names if re.fullmatch("[0-9]{6,15}", name)]

    def _remove(self, path: Path) -> None:
        """First the name, so that no half of it is ever taken for a checkpoint. What cannot be removed stays."""
        with contextlib.suppress(OSError):
            gone = self.folder / f".{secrets.token_hex(4)}.partial"
            disk.rename(path, gone)
            shutil.rmtree(gone, ignore_errors=True)

    def _remove_unfinished(self) -> None:
        for path in self.folder.glob(".*.partial"):
            if _is_ours(path):
                shutil.rmtree(path, ignore_errors=True)


def _is_ours(path: Path) -> bool:
    """Whether a folder holds nothing but the files of a checkpoint, so that it may be removed."""
    try:
        return not path.is_symlink() and set(os.listdir(path)) <= {BODY, TENSORS}
    except OSError:
        return False


def _read(path: Path) -> Checkpoint:
    """The checkpoint in a folder; `ValueError` says what is damaged, `CvgnnError` why a sound one cannot be used."""
    try:
        with disk.open_regular(path / BODY) as file:
            data = file.read(_MAX_BODY + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(f"{BODY} is missing") from None
    except OSError as error:
        if error.errno == errno.EINVAL:
            raise ValueError(f"{BODY} cannot be read ({error.strerror})") from None
        raise CvgnnError(f"cannot read {path / BODY}: {error.strerror}; check the disk and its permissions") from None
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
        raise CvgnnError(
            f"{path / BODY} is of version {short(version)}, and this cvgnn reads version {VERSION}; go on with the "
            "cvgnn that wrote it"
        )
    if text.keys() != _KEYS or not isinstance(text["body"], dict) or not _is_sha256(text["tensors_sha256"]):
        raise ValueError(f"{BODY} lacks what a checkpoint has")
    return Checkpoint(path, text["body"], TensorFile(path / TENSORS, sha256=text["tensors_sha256"]))


def _is_sha256(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None
