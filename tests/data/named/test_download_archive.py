"""Archives as upstream makes them, and as nobody should."""

from __future__ import annotations

import io
import stat
import zipfile
from pathlib import Path

import pytest

from cvgnn.data.named.download import extract
from cvgnn.errors import CvgnnError

WANTED = ("top/a.bin", "top/deep/b.bin")


def packed(members: dict[str, bytes], *, links: tuple[str, ...] = ()) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in members.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = ((stat.S_IFLNK if name in links else stat.S_IFREG) | 0o644) << 16
            file.writestr(info, data)
    return buffer.getvalue()


GOOD = {"top/a.bin": b"a" * 1000, "top/deep/b.bin": b"b" * 2000}


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def unpack(tmp_path: Path, data: bytes, max_bytes: int = 10_000) -> dict[str, bytes]:
    (tmp_path / "file.zip").write_bytes(data)
    (tmp_path / "out").mkdir()
    extract(tmp_path / "file.zip", tmp_path / "out", WANTED, max_bytes=max_bytes)
    return files(tmp_path / "out")


def test_the_wanted_members(tmp_path: Path) -> None:
    assert unpack(tmp_path, packed(GOOD)) == GOOD


def test_other_members_are_passed_over(tmp_path: Path) -> None:
    extra = {"top/README.md": b"hello", "top/": b"", "mapping/labels.csv": b"1,2", "top/a.bin.exe": b"no"}
    assert unpack(tmp_path, packed({**extra, **GOOD})) == GOOD


@pytest.mark.parametrize("name", ["../evil", "top/../../evil", "/etc/evil", "..\\evil", "C:\\evil", "C:/evil"])
def test_a_place_outside_refuses_the_archive(tmp_path: Path, name: str) -> None:
    with pytest.raises(
        CvgnnError,
        match=r"is not a usable zip file \(it holds .*, a path outside its folder\); delete it and fetch it again",
    ):
        unpack(tmp_path, packed({**GOOD, name: b"evil"}))
    assert files(tmp_path).keys() == {"file.zip"}


def test_a_bomb_is_refused_before_a_byte_is_written(tmp_path: Path) -> None:
    bomb = packed({**GOOD, "top/deep/b.bin": bytes(50_000_000)})
    assert len(bomb) < 100_000
    with pytest.raises(CvgnnError, match=r"'top/deep/b\.bin' has 50000000 bytes when unpacked, more than 10000"):
        unpack(tmp_path, bomb)
    assert files(tmp_path).keys() == {"file.zip"}


def test_a_bomb_that_lies_about_its_size(tmp_path: Path) -> None:
    data = packed({"top/a.bin": bytes(5_000_000), "top/deep/b.bin": b"b"})
    size = (5_000_000).to_bytes(4, "little")
    assert data.count(size) == 2  # in the member's own header and in the directory
    with pytest.raises(CvgnnError, match="is not a usable zip file"):
        unpack(tmp_path, data.replace(size, (5_000).to_bytes(4, "little")))
    assert files(tmp_path).keys() == {"file.zip"}


def test_a_bomb_among_other_members_is_never_opened(tmp_path: Path) -> None:
    assert unpack(tmp_path, packed({**GOOD, "zeros": bytes(50_000_000)})) == GOOD


def test_a_link_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CvgnnError, match=r"'top/a\.bin' is not a regular file"):
        unpack(tmp_path, packed({**GOOD, "top/a.bin": b"/etc/passwd"}, links=("top/a.bin",)))


def test_a_missing_member(tmp_path: Path) -> None:
    with pytest.raises(CvgnnError, match=r"holds 'top/deep/b\.bin' 0 times, not once"):
        unpack(tmp_path, packed({"top/a.bin": b"a"}))
    assert files(tmp_path).keys() == {"file.zip"}


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_member_twice(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name in ("top/a.bin", "top/deep/b.bin", "top/a.bin"):
            file.writestr(name, b"data")
    with pytest.raises(CvgnnError, match=r"holds 'top/a\.bin' 2 times, not once"):
        unpack(tmp_path, buffer.getvalue())


def test_an_encrypted_member(tmp_path: Path) -> None:
    data = bytearray(packed(GOOD))
    directory = data.index(b"PK\x01\x02")
    data[directory + 8] |= 1
    with pytest.raises(CvgnnError, match="is encrypted"):
        unpack(tmp_path, bytes(data))


@pytest.mark.parametrize("broken", ["empty", "text", "cut", "changed"])
def test_a_broken_archive(tmp_path: Path, broken: str) -> None:
    good = packed(GOOD)
    data = {
        "empty": b"",
        "text": b"<html>not found</html>",
        "cut": good[: len(good) // 2],
        "changed": good.replace(zipfile.ZipFile(io.BytesIO(good)).infolist()[0].CRC.to_bytes(4, "little"), b"\0\0\0\1"),
    }[broken]
    with pytest.raises(CvgnnError, match=r"file\.zip is not a usable zip file .*; delete it and fetch it again"):
        unpack(tmp_path, data)
    assert files(tmp_path).keys() == {"file.zip"}


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file.zip").write_bytes(packed(GOOD))
    (tmp_path / "out").write_text("a file", encoding="utf-8")
    with pytest.raises(CvgnnError, match="cannot unpack"):
        extract(tmp_path / "file.zip", tmp_path / "out", WANTED, max_bytes=10_000)
