"""Checks of a file before it is read."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from cvgnn.data.io import size_checks as limits
from cvgnn.errors import CvgnnError

MIB = 2**20


def member(size: int, packed: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo("x.npy")
    info.file_size, info.compress_size = size, packed
    return info


@pytest.mark.parametrize(
    ("members", "refused"),
    [
        ([], None),
        ([member(100 * MIB, 100 * MIB)], None),
        ([member(100 * MIB, MIB)], None),
        ([member(60 * MIB, 1)], None),  # small enough to be harmless
        ([member(300 * MIB, MIB)], "it unpacks to 300.0 MiB, 300 times its size, as a zip bomb does"),
        ([member(40 * MIB, 1)] * 3, "as a zip bomb does"),
        ([member(2000 * MIB, 2000 * MIB)], "it holds 2.0 GiB of data, more than the 1.0 GiB of memory that are free"),
    ],
)
def test_archives(members: list[zipfile.ZipInfo], refused: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "available_memory", lambda: 1024 * MIB)
    if refused is None:
        limits.check_archive(members)
    else:
        with pytest.raises(CvgnnError) as caught:
            limits.check_archive(members)
        assert refused in str(caught.value)


def test_unknown_memory_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "available_memory", lambda: None)
    limits.check_memory(2**60)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (CvgnnError("no x"), "a.npz: no x"),
        (PermissionError(13, "Permission denied"), "cannot read a.npz: Permission denied"),
        (MemoryError(), "a.npz does not fit into memory; use a machine with more, or a smaller file"),
    ],
)
def test_errors_name_the_file(error: Exception, message: str) -> None:
    with pytest.raises(CvgnnError) as caught, limits.reading(Path("a.npz")):
        raise error
    assert str(caught.value) == message


def test_other_errors_pass_through() -> None:
    with pytest.raises(ZeroDivisionError), limits.reading(Path("a.npz")):
        _ = 1 / 0
