from __future__ import annotations

import errno
import mmap
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cvgnn.data.store import open_store, verify_store
from cvgnn.errors import CvgnnError
from tests.data.store.cases import edit_header, replace_array

NOT_NPY = r"x.npy is not a .npy file of '<f4' with shape \(30, 7\) in C order, as header.json says; it starts with "
FILE_NAME = "file in 'x' of header.json is '.*', not 'x.npy'"
ONES = np.ones((30, 7), dtype=np.float32)


def rename_entry(folder: Path, file: str) -> None:
    edit_header(folder, lambda body: body["arrays"]["x"].update(file=file))


def link_out(folder: Path) -> None:
    (folder / "x.npy").rename(folder.parent / "x.npy")
    (folder / "x.npy").symlink_to(folder.parent / "x.npy")


def link_inside(folder: Path) -> None:
    (folder / "x.npy").rename(folder / "real.npy")
    (folder / "x.npy").symlink_to("real.npy")


def make_folder(folder: Path) -> None:
    (folder / "x.npy").unlink()
    (folder / "x.npy").mkdir()


def make_pipe(folder: Path) -> None:
    (folder / "x.npy").unlink()
    os.mkfifo(folder / "x.npy")


def overwrite(folder: Path, offset: int, data: bytes) -> None:
    with (folder / "x.npy").open("r+b") as file:
        file.seek(offset)
        file.write(data)


def npy_header(folder: Path, text: bytes) -> None:
    overwrite(folder, 10, text.ljust(117) + b"\n")


def longer_npy_header(folder: Path) -> None:
    """An array whose data do not begin at a multiple of 64."""
    data = (folder / "x.npy").read_bytes()
    text = data[10:127] + b" " * 8 + b"\n"
    (folder / "x.npy").write_bytes(data[:8] + len(text).to_bytes(2, "little") + text + data[128:])
    edit_header(folder, lambda body: body["arrays"]["x"].update(bytes=len(data) + 8))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda f: (f / "x.npy").unlink(), "x.npy is missing; write it again with 'cvgnn convert', or restore it"),
        (lambda f: os.truncate(f / "x.npy", 500), r"x.npy is 500 bytes long; header.json says 968, and <f4 of shape \[30, 7\] takes 968"),
        (lambda f: os.truncate(f / "x.npy", 5000), r"x.npy is 5000 bytes long; header.json says 968, and <f4 of shape \[30, 7\] takes 968"),
        (lambda f: os.truncate(f / "x.npy", 0), r"x.npy is 0 bytes long; header.json says 968, and <f4 of shape \[30, 7\] takes 968"),
        (lambda f: (os.truncate(f / "x.npy", 500), edit_header(f, lambda b: b["arrays"]["x"].update(bytes=500))), r"x.npy is 500 bytes long; header.json says 500, and <f4 of shape \[30, 7\] takes 968"),
        (lambda f: (os.truncate(f / "x.npy", 0), edit_header(f, lambda b: b["arrays"]["x"].update(bytes=0))), "x.npy is 0 bytes long; header.json says 0, and <f4"),
        (lambda f: edit_header(f, lambda b: b["arrays"]["x"].update(bytes=2**60)), "x.npy is 968 bytes long; header.json says 1152921504606846976, and"),
        (lambda f: replace_array(f, "x", ONES.astype(np.float64), dtype="<f4"), r"x.npy is 1808 bytes long; header.json says 1808, and <f4 of shape \[30, 7\] takes 968"),
        (lambda f: replace_array(f, "x", ONES.astype(">f4"), dtype="<f4"), f"{NOT_NPY}.*>f4"),
        (lambda f: replace_array(f, "x", ONES[:29], shape=[30, 7]), "x.npy is 940 bytes long; header.json says 940, and"),
        (lambda f: replace_array(f, "x", np.asfortranarray(ONES)), NOT_NPY),
        (lambda f: replace_array(f, "x", ONES.astype(object), dtype="<f4"), r"x.npy is \d+ bytes long; header.json says \d+, and"),
        (lambda f: replace_array(f, "x", ONES.astype(np.int32), dtype="<f4"), f"{NOT_NPY}.*<i4"),
        (lambda f: overwrite(f, 0, b"PK"), f"{NOT_NPY}b.PKUMPY"),
        (lambda f: overwrite(f, 6, b"\x02"), NOT_NPY),
        (lambda f: overwrite(f, 8, b"\xff\xff"), NOT_NPY),
        (lambda f: overwrite(f, 10, b"["), NOT_NPY),
        (lambda f: npy_header(f, b"(" * 110), NOT_NPY),
        (lambda f: npy_header(f, b"{'descr': '<f4', 'fortran_order': False}"), NOT_NPY),
        (lambda f: npy_header(f, b"{'descr': '<f4', 'fortran_order': False, 'shape': (30, 2**61)}"), NOT_NPY),
        (lambda f: npy_header(f, b"{'descr': '<f4', 'fortran_order': 0, 'shape': (30, 7)}"), NOT_NPY),
        (longer_npy_header, "x.npy is 976 bytes long; header.json says 976, and"),
        (lambda f: rename_entry(f, "../dense/x.npy"), r"file in 'x' of header.json is '\.\./dense/x.npy', not 'x.npy'"),
        (lambda f: rename_entry(f, "/etc/passwd"), "file in 'x' of header.json is '/etc/passwd', not 'x.npy'"),
        (lambda f: rename_entry(f, "..\\x.npy"), FILE_NAME),
        (lambda f: rename_entry(f, ".."), FILE_NAME),
        (lambda f: rename_entry(f, ""), FILE_NAME),
        (lambda f: rename_entry(f, "x\0.npy"), FILE_NAME),
        (lambda f: rename_entry(f, "x" * 1000), FILE_NAME),
        (link_out, "x.npy is a symbolic link; a store holds its own files only"),
        (link_inside, "x.npy is a symbolic link; a store holds its own files only"),
        (make_folder, "x.npy is not a regular file"),
        (make_pipe, "x.npy is not a regular file"),
    ],
)  # fmt: skip
def test_spoilt_files(spoil: Callable[[Path], Any], message: str, dense: Path) -> None:
    spoil(dense)
    for act in (open_store, verify_store):
        with pytest.raises(CvgnnError, match=message) as caught:
            act(dense)
        assert str(dense) in str(caught.value)


@pytest.mark.parametrize("file", ["header.json", "y.npy"])
def test_a_file_that_may_not_be_read(file: str, dense: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def refuse(path: Any, *rest: Any) -> int:
        if Path(path).name == file:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return real(path, *rest)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(
        CvgnnError, match=rf"cannot read {file} \(Permission denied\); check the path and the permissions"
    ):
        open_store(dense)


def test_writing_to_a_tensor_never_changes_the_file(dense: Path) -> None:
    g = open_store(dense)
    assert isinstance(g.x, torch.Tensor)
    g.x.fill_(3.0)
    g.train_ids.zero_()
    verify_store(dense)
    again = open_store(dense)
    assert isinstance(again.x, torch.Tensor)
    assert not bool((again.x == 3.0).any())


def test_data_are_aligned_as_torch_allocates(dense: Path) -> None:
    """So that a matrix product takes the same path, and gives the same bits, as from memory."""
    g = open_store(dense)
    for tensor in (g.indptr, g.indices, g.x, g.PX, g.y):
        assert isinstance(tensor, torch.Tensor)
        assert tensor.data_ptr() % 64 == 0


def test_a_system_that_lends_no_writable_pages(dense: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then pages are read-only (vm.overcommit_memory = 2, or a limit on data)."""
    real = mmap.mmap

    def strict(handle: int, size: int, **how: Any) -> mmap.mmap:
        if "prot" in how:
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
        return real(handle, size, **how)

    expected = open_store(dense)
    monkeypatch.setattr(mmap, "mmap", strict)
    g = open_store(dense)
    assert isinstance(g.x, torch.Tensor)
    assert isinstance(expected.x, torch.Tensor)
    assert torch.equal(g.x, expected.x)

    def none(handle: int, size: int, **how: Any) -> mmap.mmap:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    monkeypatch.setattr(mmap, "mmap", none)
    with pytest.raises(CvgnnError, match=r"cannot map indptr.npy into memory \(Cannot allocate memory\)"):
        open_store(dense)


def test_a_limit_on_data_is_not_used_up_by_the_store(dense: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages that might be written would count; the run needs that room."""
    names = open_store(dense).node_names
    assert names is not None
    assert names.flags.writeable
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (1 << 30, resource.RLIM_INFINITY))
    names = open_store(dense).node_names
    assert names is not None
    assert not names.flags.writeable
