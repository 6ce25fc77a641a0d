"""Expected files out of a zip, and nothing else: no other names, no links, no more bytes than a file can have."""

from __future__ import annotations

import os
import shutil
import stat
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import IO

from cvgnn.errors import CvgnnError

_BLOCK = 2**20


class BadArchiveError(CvgnnError):
    """The archive itself is at fault, not the place where it is unpacked."""


def extract(archive: Path, folder: Path, members: Sequence[str], *, max_bytes: int) -> None:
    """Write the named members of a zip below `folder`, each whole or not at all.

    Other members are passed over. An archive that names a place outside the folder is refused as a whole: upstream
    makes none such.

    Args:
        archive: the zip file.
        folder: where it goes; a member `a/b` becomes `folder/a/b`.
        members: what is wanted, in posix form.
        max_bytes: no member is larger when unpacked.
    """
    try:
        with zipfile.ZipFile(archive) as file:
            for info in [_checked(file, archive, member, max_bytes) for member in members]:
                with file.open(info) as source:
                    _write(source, folder / info.filename)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise BadArchiveError(f"{archive} is not a whole zip file ({error}); delete it and fetch it again") from error
    except OSError as error:
        raise CvgnnError(f"cannot unpack {archive} into {folder}: {error.strerror or error}") from error


def _checked(file: zipfile.ZipFile, archive: Path, member: str, max_bytes: int) -> zipfile.ZipInfo:
    found = []
    for info in file.infolist():
        path = PurePosixPath(info.filename.replace("\\", "/"))
        _require(
            not path.is_absolute() and ".." not in path.parts and ":" not in info.filename,
            f"{archive} holds {info.filename!r}, a place outside its folder, so nothing was unpacked; "
            "do not trust this file, take it again from its original source",
        )
        if info.filename == member:
            found.append(info)
    _require(len(found) == 1, f"{archive} holds {member!r} {len(found)} times, not once; delete it and fetch it again")
    info = found[0]
    kind = stat.S_IFMT(info.external_attr >> 16)
    _require(kind in (0, stat.S_IFREG) and not info.is_dir(), f"{member!r} in {archive} is not a regular file")
    _require(not info.flag_bits & 1, f"{member!r} in {archive} is encrypted; upstream's is not")
    # zipfile gives out no more than the size stated here, so a statement that is too low cannot deceive.
    _require(
        info.file_size <= max_bytes,
        f"{member!r} in {archive} claims {info.file_size} bytes when unpacked, more than the {max_bytes} it can have, "
        "so nothing was unpacked; take the archive again from its original source",
    )
    return info


def _require(condition: bool, sentence: str) -> None:
    if not condition:
        raise BadArchiveError(sentence)


def _write(source: IO[bytes], target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        with temporary.open("wb") as file:
            shutil.copyfileobj(source, file, _BLOCK)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
