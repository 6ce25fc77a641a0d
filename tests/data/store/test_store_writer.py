from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cvgnn.data.store import StoreWriter, open_store, write_store
from cvgnn.data.store import store_reader as reader
from cvgnn.data.store import store_writer as writer
from cvgnn.errors import CvgnnError
from tests.data.store.cases import assert_same, make_graph

NONE = np.array([], dtype=np.int64)
ARRAYS: dict[str, np.ndarray] = {  # the path 0 - 1 - 2
    "indptr": np.array([0, 1, 3, 4]),
    "indices": np.array([1, 0, 2, 1], dtype=np.int32),
    "x": np.ones((3, 2), dtype=np.float32),
    "y": np.array([0, 1, -1]),
    "train_ids": np.array([0]),
    "val_ids": np.array([1]),
    "test_ids": NONE,
}
SPARSE = {
    "x_indptr": np.array([0, 1, 1, 2]),
    "x_indices": np.array([1, 0], dtype=np.int32),
    "x_values": np.ones(2, dtype=np.float64),
}


def fill(store: StoreWriter, **more: Any) -> None:
    for name, array in {**ARRAYS, **more}.items():
        if array is not None:
            store.write(name, array)


def make(path: Path, fields: dict[str, Any] | None = None, **more: Any) -> None:
    with StoreWriter(path) as store:
        fill(store, **more)
        store.finish(fields or {"num_classes": 2})


def test_what_is_finished_opens(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folders" / "a"
    make(path, {"num_classes": np.int64(2), "class_names": ["x", "y"], "num_nodes": 3})
    g = open_store(path)
    assert (g.num_nodes, g.num_edges, g.num_features, g.num_classes, g.class_names) == (3, 4, 2, 2, ("x", "y"))
    assert (g.name, g.split, g.directed, g.PX) == ("graph", "given", False, None)
    make(tmp_path / "s", {"num_classes": 2, "num_features": 5}, x=None, **SPARSE)
    assert open_store(tmp_path / "s").x.shape == (3, 5)


def test_an_empty_folder_may_become_the_store(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    make(tmp_path / "a")
    assert open_store(tmp_path / "a").num_nodes == 3


@pytest.mark.skipif(os.name == "nt", reason="file modes")
def test_permissions_are_those_of_new_files(tmp_path: Path) -> None:
    make(tmp_path / "a")
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "folder").stat().st_mode
    assert {path.stat().st_mode for path in (tmp_path / "a").iterdir()} == {(tmp_path / "file").stat().st_mode}


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda p: (p.mkdir(), (p / "b").touch()), "output folder .*a is not empty; choose another, or empty it first"),
        (lambda p: p.touch(), "cannot write the store .*a: it exists and is not a folder"),
        (lambda p: p.symlink_to(p.parent), "cannot write the store .*a: it exists and is not a folder"),
        (lambda p: p.symlink_to("nowhere"), "cannot write the store .*a: it exists and is not a folder"),
    ],
    ids=["not empty", "file", "link", "broken link"],
)
def test_a_place_that_is_taken(prepare: Callable[[Path], object], message: str, tmp_path: Path) -> None:
    prepare(tmp_path / "a")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(CvgnnError, match=message):
        make(tmp_path / "a")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_parent_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(
        CvgnnError,
        match=r"cannot write the store .*: Not a directory; check the disk and the folder's permissions, or choose",
    ):
        make(tmp_path / "file" / "a")
    with pytest.raises(CvgnnError, match=r"cannot write the store .*: File name too long"):
        make(tmp_path / "new" / ("a" * 300) / "b")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_place_taken_meanwhile_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with pytest.raises(CvgnnError, match=r"output folder .*a is not empty"), StoreWriter(path) as store:  # noqa: PT012
        fill(store)
        path.mkdir()
        (path / "mine").touch()
        store.finish({"num_classes": 2})
    assert [str(p.relative_to(tmp_path)) for p in sorted(tmp_path.rglob("*"))] == ["a", "a/mine"]


class Interrupted(BaseException):
    pass


@pytest.mark.parametrize("stage", ["x.npy", "P X", "checksums", "rename"])
def test_whatever_happens_leaves_nothing(stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even a signal, at any time until the store has its name."""

    def interrupt(*args: Any) -> None:
        if args[0] == stage or stage == "rename":
            raise Interrupted

    if stage == "rename":
        monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(Interrupted):
        write_store(
            make_graph(),
            tmp_path / "new" / "a",
            propagate="symmetric",
            progress=None if stage == "rename" else interrupt,
        )
    assert list(tmp_path.iterdir()) == []


def test_without_finish_there_is_no_store(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "a") as store:
        fill(store)
        store.stream("PX_indices", np.int32).append(np.zeros(3, dtype=np.int32))
        assert store.written("y") is not None
        assert store.written("PX") is None
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(CvgnnError, match="this StoreWriter is not open; use it in a 'with' statement"):
        store.write("node_names", np.arange(3))


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(CvgnnError, match=r"cannot write the store .*: No space left on device; free some space, or"):
        make(tmp_path / "a")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("when", ["append", "finish"])
def test_a_disk_that_fills_up_under_a_stream(when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        closed = False

        def fail(self, *rest: Any) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        seek = fail if when == "finish" else lambda self, place: None
        write = fail if when == "append" else lambda self, data: None
        close = fail

    message = "cannot write the store .*: No space left on device; free some space, or"
    with pytest.raises(CvgnnError, match=message), StoreWriter(tmp_path / "a") as store:  # noqa: PT012
        fill(store, indices=None)
        stream = store.stream("indices", np.int32)
        stream._file.close()
        monkeypatch.setattr(stream, "_file", Full())
        stream.append(ARRAYS["indices"])
        store.finish({"num_classes": 2})
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_that_takes_no_room_beforehand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(*args: int) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(os, "posix_fallocate", unsupported)
    make(tmp_path / "a")
    assert open_store(tmp_path / "a").num_nodes == 3


def test_streams_grow_piece_by_piece(tmp_path: Path) -> None:
    g = make_graph()
    with StoreWriter(tmp_path / "a") as store:
        for name in ("indptr", "indices", "x", "y", "train_ids", "val_ids", "test_ids"):
            array = getattr(g, name).numpy()
            if array.ndim == 1:
                stream = store.stream(name, array.dtype)
                for piece in np.array_split(array, 4):
                    stream.append(piece)
                written = store.written(name)
                assert written is not None
                np.testing.assert_array_equal(written, array)
                with pytest.raises(CvgnnError, match=r"this stream takes vectors of int\d\d; the array is float32"):
                    stream.append(np.ones(1, dtype=np.float32))
            else:
                store.write(name, array)
        store.finish({"num_classes": 3, "name": "random", "split": "random: of a test"})
    assert_same(open_store(tmp_path / "a"), g)
    assert isinstance(np.load(tmp_path / "a" / "indices.npy"), np.ndarray)  # plain files for everybody


@pytest.mark.parametrize(
    ("fields", "more", "message"),
    [
        ({}, {"indptr": None}, "the array 'indptr' was not written; a store needs it"),
        ({}, {"y": None}, "'y' is missing in 'arrays' of header.json"),
        ({}, {"PX": ARRAYS["x"]}, "unknown key 'PX' in 'arrays' of header.json; known: indptr"),
        ({"PX_normalization": "symmetric"}, {}, "'PX' is missing in 'arrays' of header.json"),
        ({"PX_normalization": "left"}, {}, "PX_normalization in fields must be null or one of"),
        ({"num_nodes": 4}, {}, r"header.json gives indptr the shape \[4\]; its other fields imply \[5\]"),
        ({"colour": 1}, {}, "unknown key 'colour' in fields; known: name"),
        ({"num_classes": 0}, {}, "num_classes in fields must be a whole number in 1..2147483647, not 0"),
        ({"class_names": ["a"]}, {}, "has 1 class names for 2 classes"),
        ({"class_names": [1, 2]}, {}, "class_names in fields must be null or a list of strings"),
        ({"directed": 1}, {}, "directed in fields must be true or false, not 1"),
        ({}, {"x": None, **SPARSE}, "'num_features' is missing in fields"),
        ({}, {"x": ARRAYS["x"][:2]}, r"header.json gives x the shape \[2, 2\]; its other fields imply \[3, 2\]"),
        ({}, {"y": np.array([0, 1, 2])}, "y.npy gives node 2 the class 2; classes lie in 0..1"),
        ({}, {"test_ids": np.array([2])}, r"test_ids.npy names node 2, which has no label \(-1\)"),
        ({}, {"x": np.array([[0, 1], [2, 3], [np.nan, 0]], dtype=np.float32)}, "x has a NaN or infinite value at node 2"),
        ({}, {"indices": np.array([1, 0, 3, 1], dtype=np.int32)}, "gives node 1 a node outside 0..2 as neighbor"),
        ({}, {"edge_weight": np.array([1, 1, 0, 1.0])}, "edge_weight.npy has 0.0 at entry 2; weights must be positive"),
    ],
)  # fmt: skip
def test_finish_refuses_what_no_graph_has(
    fields: dict[str, Any], more: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(CvgnnError, match=message) as caught:
        make(tmp_path / "a", {"num_classes": 2, **fields}, **more)
    assert ".partial" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("z", np.zeros(1), "unknown array 'z'; known: indptr"),
        ("y", np.zeros(1, "<i4"), "y must have dtype <i8 or i1 or <f4 or <f8, not '<i4'"),
        ("indices", np.zeros(1, dtype=np.int64), "indices must have dtype <i4, not '<i8'"),
        ("node_names", np.array(["a", 1], dtype=object), r"node_names must have dtype <i8 or <U\[1-9\]\[0-9\]\{0,5\}, not '\|O'"),
        ("indptr", np.zeros(1, dtype=">i8"), "indptr must have dtype <i8, not '>i8'"),
    ],
)  # fmt: skip
def test_arrays_of_a_wrong_kind(name: str, array: np.ndarray, message: str, tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "a") as store:
        with pytest.raises(CvgnnError, match=message):
            store.write(name, array)
        store.write("y", np.zeros(1, dtype=np.int64))
        with pytest.raises(CvgnnError, match="the array 'y' is already in this store"):
            store.array("y", (1,), np.int64)


def test_everything_is_on_disk_before_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """fsync of every file and of the folder, then the name, then fsync of the parent."""
    done: list[str] = []

    def fsync(handle: int) -> None:
        done.append(os.path.basename(os.readlink(f"/proc/self/fd/{handle}")))

    def rename(source: Path, target: Path) -> None:
        done.append("rename")
        real_rename(source, target)

    real_rename = os.replace
    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", rename)
    make(tmp_path / "a")
    assert {f"{name}.npy" for name in ARRAYS} | {"header.json"} == set(done[:-3])
    assert done[-3].endswith(".partial")
    assert done[-2:] == ["rename", tmp_path.name]


def test_checksums_are_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path / "a")
    monkeypatch.setattr(reader, "_BYTES_PER_READ", 7)
    monkeypatch.setattr(writer, "_PIECE", 1)
    make(tmp_path / "b")
    assert (tmp_path / "a" / "header.json").read_text() == (tmp_path / "b" / "header.json").read_text()
