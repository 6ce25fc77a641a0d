"""The checkpoints of a run: whole or not at all, two of them, and a damaged one is never taken for a sound one."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from cvgnn._version import __version__
from cvgnn.errors import CvgnnError
from cvgnn.training import checkpoint as folder_module
from cvgnn.training.checkpoint import BODY, TENSORS, Checkpoint, Checkpoints
from cvgnn.utils import atomic_files
from cvgnn.utils.checked_json import add_checksum
from tests.logs import logged
from tests.utils.test_atomic_files import FailingDisk, names


class Kept:
    """A folder of checkpoints, and what was said about it. Checkpoint `n` holds `n` everywhere."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.said: list[str] = []
        self.checkpoints = Checkpoints(folder)

    def again(self) -> Kept:
        """As a later process sees it."""
        return Kept(self.folder)

    def save(self, n: int) -> Path:
        with logged() as messages:
            try:
                return self.checkpoints.save(tensors_of(n), {"n": n})
            finally:
                self.said += messages

    def newest(self) -> int | None:
        """The number that the newest sound checkpoint holds, in its body and in its tensors."""
        with logged() as messages:
            try:
                found = self.checkpoints.newest()
            finally:
                self.said += messages
        return None if found is None else checked(found)


def tensors_of(n: int) -> dict[str, Tensor]:
    return {"a": torch.full((3, 4), float(n)), "b": torch.tensor([n]), "c": torch.empty(0)}


def checked(found: Checkpoint) -> int:
    n: int = found.body["n"]
    assert found.tensors.keys() == tensors_of(n).keys()
    assert all(torch.equal(found.tensors[name], tensor) for name, tensor in tensors_of(n).items())
    return n


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path / "checkpoints")


def test_nothing_yet(kept: Kept) -> None:
    assert kept.newest() is None
    assert not kept.folder.exists()  # looking makes nothing
    kept.folder.mkdir()
    assert kept.newest() is None
    assert kept.said == []
    assert kept.checkpoints.last is None


def test_what_is_saved_comes_back(kept: Kept) -> None:
    body = {"text": "né ☃", "numbers": [1, 0.1 + 0.2, -0.0, None, True], "deep": {"a": {"b": []}}}
    path = kept.checkpoints.save(tensors_of(1), body)
    assert path == kept.folder / "000001"
    assert kept.checkpoints.last == path
    assert names(path) == [BODY, TENSORS]
    later = kept.again().checkpoints
    found = later.newest()
    assert found is not None
    assert (found.path, found.body) == (path, body)
    assert later.last == path
    text = json.loads((path / BODY).read_text(encoding="utf-8"))
    assert (text["format"], text["version"], text["cvgnn"]) == ("cvgnn-checkpoint", 1, __version__)


def test_the_last_two_are_kept_and_numbers_rise(kept: Kept) -> None:
    for n in range(1, 6):
        assert kept.save(n).name == f"{n:06d}"
        assert names(kept.folder) == [f"{i:06d}" for i in range(max(1, n - 1), n + 1)]
        assert kept.again().newest() == n
    later = kept.again()
    assert later.newest() == 5
    assert later.save(6).name == "000006"
    assert names(kept.folder) == ["000005", "000006"]
    assert kept.said == later.said == []


def test_numbers_of_more_than_six_digits(kept: Kept) -> None:
    kept.save(1).rename(kept.folder / "999998")
    later = kept.again()
    for n, name in enumerate(["999999", "1000000", "1000001"], start=2):
        assert later.save(n).name == name
        assert kept.again().newest() == n


def flip(path: Path, share: float) -> None:
    data = bytearray(path.read_bytes())
    data[min(len(data) - 1, int(share * len(data)))] ^= 0x01
    path.write_bytes(data)


def cut(path: Path, share: float) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])


def empty(path: Path) -> None:
    for file in path.iterdir():
        file.unlink()


def edit_body(path: Path, **changes: Any) -> None:
    """Change the JSON, with a right checksum: what another version or a liar would write."""
    text = json.loads((path / BODY).read_text(encoding="utf-8"))
    del text["sha256"]
    text |= changes
    (path / BODY).write_text(
        add_checksum({key: value for key, value in text.items() if value != "gone"}), encoding="utf-8"
    )


def exchange_tensors(path: Path) -> None:
    shutil.copy(path.parent / "000001" / TENSORS, path / TENSORS)


PLACES = (0.0, 0.3, 0.6, 0.97)
DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    **{f"{TENSORS} flipped at {x}": (lambda p, x=x: flip(p / TENSORS, x), f"{TENSORS} is damaged: its SHA-256") for x in (*PLACES, 1.0)},  # type: ignore[misc]
    **{f"{BODY} flipped at {x}": (lambda p, x=x: flip(p / BODY, x), BODY) for x in PLACES},  # type: ignore[misc]
    **{f"{TENSORS} cut at {x}": (lambda p, x=x: cut(p / TENSORS, x), f"{TENSORS} is damaged: its SHA-256") for x in PLACES},  # type: ignore[misc]
    **{f"{BODY} cut at {x}": (lambda p, x=x: cut(p / BODY, x), f"{BODY} is not valid JSON") for x in PLACES},  # type: ignore[misc]
    f"no {TENSORS}": (lambda p: (p / TENSORS).unlink(), rf"{TENSORS} cannot be read \(No such file"),
    f"no {BODY}": (lambda p: (p / BODY).unlink(), f"{BODY} is missing"),
    "an empty folder": (empty, f"{BODY} is missing"),
    f"a folder for {TENSORS}": (lambda p: ((p / TENSORS).unlink(), (p / TENSORS).mkdir()), rf"{TENSORS} cannot be read \(it is not a regular file"),
    f"a folder for {BODY}": (lambda p: ((p / BODY).unlink(), (p / BODY).mkdir()), rf"{BODY} cannot be read \(it is not a regular file"),
    f"a pipe for {BODY}": (lambda p: ((p / BODY).unlink(), os.mkfifo(p / BODY)), rf"{BODY} cannot be read \(it is not a regular file"),
    f"zeros without end for {TENSORS}": (lambda p: ((p / TENSORS).unlink(), (p / TENSORS).symlink_to("/dev/zero")), rf"{TENSORS} cannot be read \(it is not"),
    "the tensors of another": (exchange_tensors, f"{TENSORS} is damaged: its SHA-256"),
    "no object": (lambda p: (p / BODY).write_text("[1]"), f"{BODY} is not a JSON object"),
    "no checksum": (lambda p: (p / BODY).write_text("{}"), f"{BODY} does not match its own checksum"),
    "no body": (lambda p: edit_body(p, body="gone"), f"{BODY} lacks fields of a checkpoint, or has others"),
    "a body of numbers": (lambda p: edit_body(p, body=[1]), f"{BODY} lacks fields of a checkpoint, or has others"),
    "a digest of numbers": (lambda p: edit_body(p, tensors_sha256=1), f"{BODY} lacks fields of a checkpoint, or has others"),
    "something more": (lambda p: edit_body(p, more=1), f"{BODY} lacks fields of a checkpoint, or has others"),
}  # fmt: skip


@pytest.mark.parametrize(("damage", "sentence"), DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_newest_one_is_told_of_and_the_one_before_is_used(
    kept: Kept, damage: Callable[[Path], object], sentence: str
) -> None:
    kept.save(1)
    newest = kept.save(2)
    damage(newest)
    later = kept.again()
    assert later.newest() == 1
    (said,) = later.said
    assert said.startswith(f"the checkpoint {newest} is damaged and not used: ")
    with pytest.raises(AssertionError, match=sentence):
        raise AssertionError(said)
    # What is known to be sound stays when new ones come, until there are two others.
    assert later.save(3).name == "000003"
    assert names(kept.folder) == ["000001", "000003"]
    assert later.save(4).name == "000004"
    assert names(kept.folder) == ["000003", "000004"]
    assert kept.again().newest() == 4


@pytest.mark.parametrize("changes", [{"version": 2}, {"version": "x" * 999}, {"format": "other"}], ids=str)
def test_another_version_is_not_passed_over(kept: Kept, changes: dict[str, Any]) -> None:
    """To begin anew would in the end remove the state of a run that another cvgnn can go on with."""
    kept.save(1)
    edit_body(kept.save(2), **changes)
    with pytest.raises(
        CvgnnError, match=r"is of version .{1,90}, and this cvgnn reads version 1; resume with the cvgnn"
    ):
        kept.again().newest()
    assert names(kept.folder) == ["000001", "000002"]


def test_a_file_that_may_not_be_read_is_not_passed_over(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    kept.save(1)

    def refuse(path: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(atomic_files, "open_regular", refuse)
    with pytest.raises(CvgnnError, match=r"cannot read .*checkpoint\.json: Permission denied; check the disk"):
        kept.again().newest()


def test_a_link_in_the_place_of_the_folder_is_refused(kept: Kept, tmp_path: Path) -> None:
    """A run folder from somebody else must not make us write, or remove, elsewhere."""
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "20240101").mkdir(parents=True)
    kept.folder.symlink_to(elsewhere)
    with pytest.raises(CvgnnError, match="is a link or a file"):
        kept.again()
    assert names(elsewhere) == ["20240101"]


def test_only_checkpoints_are_removed(kept: Kept) -> None:
    for name in ("000007", ".x.partial"):
        (kept.folder / name).mkdir(parents=True)
        (kept.folder / name / "thesis.txt").write_text("mine")
    for n in (1, 2, 3):
        kept.save(n)
    assert names(kept.folder) == sorted([".x.partial", "000007", "000009", "000010"])


@pytest.mark.parametrize(("damage", "sentence"), DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_one_alone_leaves_nothing_to_go_on_from(
    kept: Kept, damage: Callable[[Path], object], sentence: str
) -> None:
    kept.save(1)
    newest = kept.save(2)
    damage(newest)
    shutil.rmtree(kept.folder / "000001")
    later = kept.again()
    with pytest.raises(CvgnnError, match=r"no checkpoint in .* is valid; restore one from a copy, or start a new run"):
        later.newest()
    assert later.checkpoints.last is None
    assert len(later.said) == 1
    assert newest.exists()  # looking removes nothing


def test_every_flipped_byte_of_the_json_shows(kept: Kept) -> None:
    body = kept.save(1) / BODY
    data = body.read_bytes()
    for place in range(len(data) - 1):  # after the last } only white space may follow, and that says nothing
        body.write_bytes(data[:place] + bytes([data[place] ^ 0x02]) + data[place + 1 :])
        with pytest.raises(CvgnnError, match="is valid"):
            kept.again().newest()
    body.write_bytes(data)
    assert kept.again().newest() == 1


def test_two_damaged_ones(kept: Kept) -> None:
    for n in (1, 2):
        flip(kept.save(n) / TENSORS, 0.5)
    later = kept.again()
    with pytest.raises(CvgnnError, match="is valid"):
        later.newest()
    assert [said.split()[2] for said in later.said] == [str(kept.folder / name) for name in ("000002", "000001")]


def test_an_older_damaged_one_is_not_looked_at(kept: Kept) -> None:
    flip(kept.save(1) / BODY, 0.5)
    kept.save(2)
    later = kept.again()
    assert later.newest() == 2
    assert later.said == []


@pytest.mark.parametrize("content", [b"", b"something"], ids=["empty", "some bytes"])
def test_a_file_in_the_place_of_the_newest_one(kept: Kept, content: bytes) -> None:
    kept.save(1)
    newest = kept.save(2)
    shutil.rmtree(newest)
    newest.write_bytes(content)
    later = kept.again()
    assert later.newest() == 1
    assert [str(newest) in said for said in later.said] == [True]
    later.save(3)
    assert kept.again().newest() == 3


def test_a_body_of_any_length_is_refused_before_it_is_parsed(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    path = kept.save(1)
    monkeypatch.setattr(folder_module, "_MAX_BODY", (path / BODY).stat().st_size - 1)
    later = kept.again()
    with pytest.raises(CvgnnError, match="is valid"):
        later.newest()
    assert f"{BODY} is longer than" in later.said[0]


def test_leftovers_are_removed_and_other_things_are_left_alone(kept: Kept) -> None:
    kept.save(1)
    leftover = kept.folder / ".0123abcd.partial"
    leftover.mkdir()
    (leftover / TENSORS).write_bytes(b"half")
    others = ["notes.txt", "best", "00001", "-00001", "000001 copy", "x000001", ".hidden"]
    for i, name in enumerate(others):
        if i % 2:
            (kept.folder / name).mkdir()
        else:
            (kept.folder / name).write_text("mine")
    assert kept.newest() == 1
    assert leftover.exists()  # looking removes nothing
    for n in (2, 3, 4):
        assert kept.save(n).name == f"{n:06d}"
    assert names(kept.folder) == sorted(["000003", "000004", *others])
    assert (kept.folder / "notes.txt").read_text() == "mine"


OPERATIONS = [
    "create",
    *["write"] * 3,
    "sync",
    "create",
    "write",
    "sync",
    "sync_folder",
    "rename",
    "sync_folder",
    "rename",
]


def test_the_operations_of_a_save(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is on disk before the name is, the name is before the oldest one loses its own."""
    for n in (1, 2):
        kept.save(n)
    counted = FailingDisk(monkeypatch, lambda n, name: False)
    kept.save(3)
    assert counted.done == OPERATIONS


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()], ids=["no space", "interrupt"]
)
@pytest.mark.parametrize("failing", range(1, len(OPERATIONS) - 1))
@pytest.mark.parametrize("earlier", [1, 2])
def test_a_save_that_fails_leaves_the_earlier_ones(
    kept: Kept, earlier: int, failing: int, error: BaseException
) -> None:
    for n in range(1, earlier + 1):
        kept.save(n)
    before = names(kept.folder)
    with pytest.MonkeyPatch.context() as patch:
        FailingDisk(patch, lambda n, name: n == failing, error)
        with pytest.raises(type(error)):
            kept.save(99)
    assert names(kept.folder) == before
    later = kept.again()
    assert later.newest() == earlier
    assert later.said == []
    for keeper in (kept, later):  # in the same process, and in the next
        keeper.save(100)
        assert keeper.again().newest() == 100
        assert len(names(kept.folder)) <= 2
    assert kept.said == []


def test_a_save_from_some_operation_on_nothing_works(kept: Kept) -> None:
    for n in (1, 2):
        kept.save(n)
    for failing in range(1, len(OPERATIONS) - 1):
        with pytest.MonkeyPatch.context() as patch:
            FailingDisk(patch, lambda n, name, failing=failing: n >= failing)  # type: ignore[misc]
            with pytest.raises(OSError, match="Input/output"):
                kept.save(3)
        assert kept.again().newest() == 2
    assert kept.said == []
    with pytest.MonkeyPatch.context() as patch:
        FailingDisk(patch, lambda n, name: n >= len(OPERATIONS) - 1)
        kept.save(3)  # it has its name; only whether the name would survive is unknown
    assert "may not survive a power failure yet" in kept.said[0]
    assert len(names(kept.folder)) == 3  # so none is removed
    kept.save(4)
    assert names(kept.folder) == ["000003", "000004"]


def test_an_old_one_that_cannot_be_removed_stays(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in (1, 2):
        kept.save(n)
    with monkeypatch.context() as patch:
        FailingDisk(patch, lambda n, name: n == len(OPERATIONS))
        kept.save(3)
    assert names(kept.folder) == ["000001", "000002", "000003"]
    assert kept.again().newest() == 3
    kept.save(4)
    assert names(kept.folder) == ["000003", "000004"]


def test_half_a_removal_is_finished_by_the_next_save(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in (1, 2):
        kept.save(n)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", lambda path, **options: None)
        kept.save(3)
    assert [name for name in names(kept.folder) if not name.startswith(".")] == ["000002", "000003"]
    assert len(names(kept.folder)) == 3
    assert kept.again().newest() == 3
    kept.save(4)
    assert names(kept.folder) == ["000003", "000004"]


def test_a_folder_that_cannot_be_used(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    kept.save(1)

    def refuse(*args: object, **options: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", refuse)
        with pytest.raises(PermissionError):
            kept.save(2)
    with monkeypatch.context() as patch:
        patch.setattr(os, "listdir", refuse)
        with pytest.raises(CvgnnError, match=r"cannot list .*: Permission denied; check its permissions"):
            kept.again().newest()
    assert kept.again().newest() == 1


def test_a_file_in_the_place_of_the_folder(kept: Kept) -> None:
    kept.folder.write_text("mine")
    with pytest.raises(CvgnnError, match="is a link or a file"):
        kept.again()
    assert kept.folder.read_text() == "mine"


def test_a_body_that_is_not_json_leaves_nothing(kept: Kept) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        kept.checkpoints.save(tensors_of(1), {"loss": float("nan")})
    assert names(kept.folder) == []


def test_tensors_are_read_when_asked_for(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """And can be, although the folder has been removed since."""
    kept.save(1)
    found = kept.again().checkpoints.newest()
    assert found is not None
    for n in (2, 3):
        kept.save(n)
    assert not found.path.exists()
    assert checked(found) == 1


def test_a_restored_tensor_is_not_the_file(kept: Kept) -> None:
    """Changing what was read changes no file, and no checkpoint becomes damaged by it."""
    kept.save(1)
    found = kept.again().checkpoints.newest()
    assert found is not None
    found.tensors["a"].fill_(7.0)
    assert kept.again().newest() == 1


def test_everything_goes_through_the_disk_module(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the tests can let it fail."""
    opened: list[str] = []
    original = Path.open

    def watched(self: Path, mode: str = "r", *args: Any, **options: Any) -> Any:
        if mode not in ("r", "rb"):
            opened.append(self.name)
        return original(self, mode, *args, **options)

    monkeypatch.setattr(Path, "open", watched)
    monkeypatch.setattr(atomic_files, "create", lambda path: original(path, "xb", buffering=0))
    kept.save(1)
    assert opened == []
