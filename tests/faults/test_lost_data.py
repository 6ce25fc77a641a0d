"""The graph's files disappear while a run reads them through a memory map."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from cvgnn.data.named.synthetic import generate, small_spec
from cvgnn.data.store import write_store
from tests.faults.harness import assert_same_run, finish, start, state_of

# Fixed defaults: those chosen for the graph would print a line and stop early.
RUN = [
    "--epochs", "100000", "--batch-size", "200", "--eval-every", "50", "--threads", "1", "--checkpoint-epochs", "2",
    "--defaults", "fixed",
]  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("graph") / "store"
    write_store(generate(small_spec(20_000)), folder)
    return folder


def wait_for_checkpoints(process: subprocess.Popen[bytes], folder: Path) -> None:
    deadline = time.monotonic() + 120
    while len(list((folder / "checkpoints").glob("[0-9]*"))) < 2:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_files_that_are_cut_end_the_run_with_a_sentence_and_its_checkpoints(tmp_path: Path, store: Path) -> None:
    mine, folder = tmp_path / "store", tmp_path / "run"
    shutil.copytree(store, mine)
    process = start("--graph", mine, *RUN, "--out", folder)
    wait_for_checkpoints(process, folder)
    for name in ("x.npy", "indices.npy"):
        os.truncate(mine / name, 4096)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert err.decode() == (
        "cvgnn: a file of the graph was cut or lost while it was being read from disk; restore it, then continue with: "
        f"cvgnn train --resume {folder}\n"
    )
    process = start("--resume", folder)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert err.decode().startswith(f"cvgnn: store {mine}: ")

    shutil.rmtree(mine)
    shutil.copytree(store, mine)
    before = state_of(folder)
    process = start("--resume", folder, "--checkpoint-epochs", "2")
    deadline = time.monotonic() + 120
    while state_of(folder) == before or len(list((folder / "checkpoints").glob("[0-9]*"))) < 2:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.kill()
    process.communicate()


def test_files_that_are_deleted_are_kept_for_the_run_by_the_system(tmp_path: Path, store: Path) -> None:
    mine = tmp_path / "store"
    shutil.copytree(store, mine)
    words = ["--graph", mine, *RUN[2:], "--epochs", "60"]
    process = start(*words, "--out", tmp_path / "deleted")
    wait_for_checkpoints(process, tmp_path / "deleted")
    shutil.rmtree(mine)
    assert finish(process) == ""
    shutil.copytree(store, mine)
    finish(start(*words, "--out", tmp_path / "calm"))
    assert_same_run(tmp_path / "deleted", tmp_path / "calm")


def test_two_processes_on_one_store_do_not_disturb_each_other(tmp_path: Path, store: Path) -> None:
    before = {p.name: p.read_bytes() for p in store.iterdir()}
    words = ["--graph", store, *RUN[2:], "--epochs", "20"]
    both = [start(*words, "--out", tmp_path / name) for name in ("a", "b")]
    for process in both:
        assert finish(process) == ""
    finish(start(*words, "--out", tmp_path / "alone"))
    assert_same_run(tmp_path / "a", tmp_path / "alone")
    assert_same_run(tmp_path / "b", tmp_path / "alone")
    assert {p.name: p.read_bytes() for p in store.iterdir()} == before
