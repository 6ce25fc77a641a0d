from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cvgnn.data.store import describe_store, is_store, open_store, verify_store
from cvgnn.errors import CvgnnError
from tests.data.store.cases import edit_header


def test_what_is_a_store(dense: Path, tmp_path: Path) -> None:
    assert is_store(dense)
    assert is_store(dense / ".." / "dense")
    (dense / "header.json").write_text("damaged")
    assert is_store(dense)  # so that open_store gets to say what is wrong
    (dense / "header.json").unlink()
    assert not is_store(dense)
    assert not is_store(dense / "x.npy")
    assert not is_store(tmp_path / "nothing")


def test_a_link_to_a_store_is_followed(dense: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(dense)
    assert open_store(tmp_path / "link").num_nodes == 30


NO_STORE = "there is no store at .*: it is not a folder with header.json, or may not be read; check the path, or make"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nothing", NO_STORE),
        ("file", NO_STORE),
        ("file/inside", NO_STORE),
        ("empty", NO_STORE),
        ("folder", NO_STORE),
        ("a" * 300, NO_STORE),
        ("linked", "header.json is a symbolic link; a store holds its own files only"),
        ("loop", NO_STORE),
    ],
    ids=lambda value: value[:10],
)
def test_paths_that_are_no_store(path: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name in ("empty", "folder", "linked"):
        (tmp_path / name).mkdir()
    (tmp_path / "folder" / "x.npy").touch()
    (tmp_path / "linked" / "header.json").symlink_to(tmp_path / "file")
    (tmp_path / "loop").symlink_to("loop")
    for act in (open_store, verify_store, describe_store):
        with pytest.raises(CvgnnError, match=message):
            act(tmp_path / path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_folder_that_may_not_be_read(dense: Path) -> None:
    dense.chmod(0)
    try:
        with pytest.raises(CvgnnError, match=NO_STORE):
            open_store(dense)
    finally:
        dense.chmod(0o700)


def test_description(dense: Path, sparse: Path) -> None:
    description = describe_store(dense)
    assert description["format"] == "cvgnn-store"
    assert (
        description["num_nodes"],
        description["num_features"],
        description["features"],
        description["split_sizes"],
    ) == (
        30,
        7,
        "dense",
        (10, 5, 12),
    )
    assert description["class_names"] == ("a", "b", "c")
    assert description["bytes"] == sum(path.stat().st_size for path in dense.glob("*.npy"))
    assert description["arrays"]["x"]["shape"] == (30, 7)
    assert describe_store(sparse)["PX_normalization"] == "random-walk"


def test_verify_names_the_damaged_file(sparse: Path) -> None:
    shares: list[tuple[str, float]] = []
    verify_store(sparse, progress=lambda *step: shares.append(step))
    assert [share for _, share in shares] == sorted(share for _, share in shares)
    assert shares[-1][1] == 1.0
    assert {file for file, _ in shares} == {path.name for path in sparse.glob("*.npy")}
    with (sparse / "PX_values.npy").open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)[0]
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last ^ 1]))
    open_store(sparse)  # leaves that to verify_store
    with pytest.raises(
        CvgnnError, match=r"PX_values.npy is damaged: its SHA-256 is [0-9a-f]{64}, not [0-9a-f]{64}; write"
    ):
        verify_store(sparse)


@given(data=st.data())
@settings(max_examples=100, deadline=None, derandomize=True)
def test_no_damage_goes_unnoticed(templates: Path, data: st.DataObject) -> None:
    """Whatever byte changes, wherever a file is cut: `verify_store` raises; `open_store` may."""
    with tempfile.TemporaryDirectory() as folder:
        store = Path(shutil.copytree(templates / data.draw(st.sampled_from(["dense", "sparse"])), f"{folder}/a"))
        file = data.draw(st.sampled_from(sorted(path.name for path in store.iterdir())))
        old = (store / file).read_bytes()
        place = data.draw(st.integers(0, len(old) - 1) | st.integers(0, min(127, len(old) - 1)))
        new = data.draw(st.sampled_from(["cut", "change", "insert"]))
        byte = data.draw(st.integers(1, 255))
        rest = {
            "cut": b"",
            "change": bytes([old[place] ^ byte]) + old[place + 1 :],
            "insert": bytes([byte]) + old[place:],
        }
        (store / file).write_bytes(old[:place] + rest[new])
        with contextlib.suppress(CvgnnError):
            open_store(store)
        if file == "header.json" and _same_json(old, (store / file).read_bytes()):
            return  # such as a space more or less between two tokens
        with pytest.raises(CvgnnError):
            verify_store(store)


def _same_json(a: bytes, b: bytes) -> bool:
    try:
        return bool(json.loads(a) == json.loads(b))
    except ValueError:
        return False


def anonymous_bytes() -> int:
    """Memory of this process that is not the pages of a file: what cannot be given back by dropping them."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("RssAnon:")))


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux")
def test_a_store_larger_than_the_machine_opens_at_once(dense: Path) -> None:
    """Files full of holes: hundreds of millions of nodes, twice the machine's memory in each feature matrix."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    n = 1 << 28
    f = max(16, 2 * memory // (4 * n))
    shapes = {"indptr": (n + 1,), "indices": (0,), "y": (n,), "x": (n, f), "PX": (n, f)}
    (dense / "node_names.npy").unlink()

    def grow(body: dict[str, Any]) -> None:
        body["graph"].update(num_nodes=n, num_edges=0, num_features=f, named=False)
        del body["arrays"]["node_names"]
        for name, shape in shapes.items():
            entry = body["arrays"][name]
            with (dense / f"{name}.npy").open("wb") as file:
                header = {"descr": entry["dtype"], "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_1_0(file, header)
                entry.update(shape=shape, bytes=file.tell() + int(np.prod(shape)) * np.dtype(entry["dtype"]).itemsize)
                file.truncate(entry["bytes"])

    edit_header(dense, grow)
    open_store(dense)  # once before, so that no import is measured
    before, start = anonymous_bytes(), time.perf_counter()
    g = open_store(dense)
    seconds, grown = time.perf_counter() - start, anonymous_bytes() - before
    assert (g.num_nodes, g.num_features) == (n, f)
    assert describe_store(dense)["bytes"] > 4 * memory
    assert seconds < 0.5
    assert grown < 4 << 20
    assert float(g.x[n - 1, f - 1]) == 0.0  # type: ignore[index]
