"""A run in a folder: gone on with, refused where it is another one, and stopped on request."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from cvgnn.cli.main import main
from cvgnn.data.store import write_store
from cvgnn.errors import CvgnnError
from tests.data.store.cases import make_graph
from tests.faults.harness import assert_same_run, metrics_of, start, state_of

RUN = ["--epochs", "4", "--batch-size", "30", "--hidden", "8", "--threads", "1"]
Captured = pytest.CaptureFixture[str]


def train(*words: object) -> int:
    return main(["train", *map(str, words)])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run of four epochs with a checkpoint after the third and the fourth."""
    assert train(*RUN, "--checkpoint-epochs", "1", "--out", tmp_path / "run") == 0
    return tmp_path / "run"


def unfinished(folder: Path) -> Path:
    """The same, as if it had been killed in its fourth epoch."""
    newest = max((folder / "checkpoints").iterdir())
    shutil.rmtree(newest)
    for name in ("result.json", "weights.safetensors"):
        (folder / name).unlink()
    return folder


def test_a_killed_run_goes_on(folder: Path, tmp_path: Path, capsys: Captured) -> None:
    shutil.copytree(folder, tmp_path / "calm")
    capsys.readouterr()
    assert train("--resume", unfinished(folder)) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert re.findall(r"^epoch (\d)/4 ", out, flags=re.MULTILINE) == ["4"]
    assert_same_run(folder, tmp_path / "calm")


def test_a_finished_run_is_told_again(folder: Path, tmp_path: Path, capsys: Captured) -> None:
    shutil.copytree(folder, tmp_path / "calm")
    assert train("--resume", folder) == 0
    assert "epoch 1/" not in capsys.readouterr().out.split("written to")[1]
    assert_same_run(folder, tmp_path / "calm")


def test_epochs_may_grow_and_not_shrink(folder: Path, tmp_path: Path, capsys: Captured) -> None:
    assert train("--resume", folder, "--epochs", "7") == 0
    words = ["--epochs", "7", *RUN[2:]]
    assert train(*words, "--out", tmp_path / "calm") == 0
    assert_same_run(folder, tmp_path / "calm")
    assert json.loads((folder / "config.json").read_text(encoding="utf-8"))["epochs"] == 7
    capsys.readouterr()
    assert train("--resume", folder, "--epochs", "5") == 2
    assert capsys.readouterr().err == "cvgnn: epochs must be at least 7 as in the run that is resumed, not 5\n"


def test_a_changed_option_is_refused_with_the_difference(folder: Path, capsys: Captured) -> None:
    before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    capsys.readouterr()
    assert train("--resume", folder, "--lr", "0.5", "--num-neighbors", "3", "--epochs", "9") == 2
    assert capsys.readouterr().err == (
        f"cvgnn: cannot resume {folder}: lr was 0.01 and is 0.5; num_neighbors was [2] and is [3]. Leave these "
        "options out, or start a new run in another folder (epochs alone may grow)\n"
    )
    assert train("--resume", folder, "--out", folder.parent / "other") == 2
    assert capsys.readouterr().err == "cvgnn: --resume continues in its own folder; leave --out out\n"
    assert {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()} == before


def test_an_edited_config_is_refused(folder: Path, capsys: Captured) -> None:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, "dropout": 0.25, "seed": 3}), encoding="utf-8")
    capsys.readouterr()
    assert train("--resume", folder) == 2
    err = capsys.readouterr().err
    assert "dropout was 0.5 and is 0.25; seed was 0 and is 3. Use what was used then, or start a new run in" in err


def test_other_code_is_a_warning_and_an_error_with_exact(
    folder: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cvgnn.training.resume.code_digest", lambda: "other")
    monkeypatch.setattr("cvgnn.training.resume._version_of", lambda name: "9.9")
    capsys.readouterr()
    differences = r": cvgnn's own code has changed; numba was '\S+' and is '9.9'; numpy was .*; torch was "
    assert train("--resume", folder, "--exact") == 2
    assert re.search(rf"cannot resume from \S+ to the same bits{differences}", capsys.readouterr().err)
    assert train("--resume", folder) == 0
    assert re.search(rf"the run continues, but its last bits may differ{differences}", capsys.readouterr().err)


def test_another_processor_is_a_warning(folder: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cvgnn.training.resume.processor", lambda: "another one")
    capsys.readouterr()
    assert train("--resume", folder) == 0
    assert "its last bits may differ: processor was" in capsys.readouterr().err
    assert train("--resume", folder, "--exact") == 2


def test_a_changed_graph_is_refused(tmp_path: Path, capsys: Captured) -> None:
    rng = np.random.default_rng(0)
    arrays = {
        "edge_index": rng.integers(0, 60, (2, 300)),
        "x": rng.normal(size=(60, 5)).astype(np.float32),
        "y": np.arange(60) % 3,
    }
    file = tmp_path / "graph.npz"
    np.savez(file, **arrays)
    assert train(*RUN, "--graph", file, "--out", tmp_path / "run") == 0
    arrays["x"][7, 2] += 1
    np.savez(file, **arrays)
    capsys.readouterr()
    assert train("--resume", tmp_path / "run", "--epochs", "9") == 2
    assert "the graph's content has changed" in capsys.readouterr().err


def test_nothing_begun_and_nothing_there(folder: Path, tmp_path: Path, capsys: Captured) -> None:
    calm = tmp_path / "calm"
    shutil.copytree(folder, calm)
    shutil.rmtree(unfinished(folder) / "checkpoints")
    capsys.readouterr()
    assert train("--resume", folder) == 0
    assert capsys.readouterr().err == (f"cvgnn: {folder} holds no checkpoint yet: the run starts from the beginning\n")
    assert metrics_of(folder) == metrics_of(calm)
    assert (folder / "weights.safetensors").read_bytes() == (calm / "weights.safetensors").read_bytes()

    assert train("--resume", tmp_path / "nowhere") == 2
    assert "no run folder at" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert train("--resume", tmp_path / "empty") == 2
    assert "config.json is missing: the run is not finished, or this is not a run folder" in capsys.readouterr().err


def test_a_damaged_newest_checkpoint_is_told_and_the_one_before_is_used(
    folder: Path, tmp_path: Path, capsys: Captured
) -> None:
    shutil.copytree(folder, tmp_path / "calm")
    newest = max((folder / "checkpoints").iterdir())
    data = bytearray((newest / "state.safetensors").read_bytes())
    data[-100] ^= 1
    (newest / "state.safetensors").write_bytes(data)
    capsys.readouterr()
    assert train("--resume", folder) == 0
    assert f"cvgnn: the checkpoint {newest} is damaged and not used: state.safetensors is damaged: its SHA-256 is" in (
        capsys.readouterr().err
    )
    assert_same_run(folder, tmp_path / "calm", checkpoints=3)


def test_metrics_are_neither_lost_nor_doubled(folder: Path, tmp_path: Path) -> None:
    """Whatever is in the file: the checkpoint knows its epochs."""
    shutil.copytree(folder, tmp_path / "calm")
    unfinished(folder)
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    for content in ("".join(lines), "".join(lines[:2]), lines[0][:30], "", "nonsense\n"):
        (folder / "metrics.jsonl").write_text(content, encoding="utf-8")
        assert train("--resume", folder) == 0
        assert_same_run(folder, tmp_path / "calm")
        unfinished(folder)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_run_goes_on_in_the_middle_of_an_epoch(tmp_path: Path, number: signal.Signals) -> None:
    words = ["--epochs", "40", "--batch-size", "1", "--hidden", "8", "--threads", "1"]  # 120 steps an epoch
    folder = tmp_path / "run"
    process = start(*words, "--out", folder)
    while state_of(folder) == (0, []) and process.poll() is None:
        time.sleep(0.005)
    time.sleep(0.23)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    found = re.search(
        r"stopped in epoch (\d+), (\d+) of its 120 steps done; continue with: cvgnn train --resume (\S+)\n",
        err.decode(),
    )
    assert found, err.decode()
    assert Path(found[3]) == folder
    assert not (folder / "result.json").exists()
    assert train("--resume", folder) == 0
    assert train(*words, "--out", tmp_path / "calm") == 0
    assert_same_run(folder, tmp_path / "calm")


def test_a_folder_in_use_is_refused(tmp_path: Path, capsys: Captured) -> None:
    folder = tmp_path / "run"
    process = start("--epochs", "100000", "--threads", "1", "--out", folder)
    try:
        while state_of(folder) == (0, []) and process.poll() is None:
            time.sleep(0.01)
        assert train("--resume", folder) == 2
        assert capsys.readouterr().err == (
            f"cvgnn: {folder} is in use: another cvgnn process is writing to it; wait for it, stop it, or choose "
            "another folder\n"
        )
    finally:
        process.kill()
        process.communicate()


def test_settings_from_a_file(tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("epochs = 4\nbatch_size = 30\nhidden = 8\nthreads = 1\nnum_neighbors = [3]\n", encoding="utf-8")
    assert train("--settings", file, "--num-neighbors", "2", "--out", tmp_path / "a") == 0
    assert train("--settings", tmp_path / "a" / "config.json", "--out", tmp_path / "b") == 0
    assert train(*RUN, "--defaults", "fixed", "--out", tmp_path / "c") == 0
    assert_same_run(tmp_path / "a", tmp_path / "c")
    assert_same_run(tmp_path / "b", tmp_path / "c")
    capsys.readouterr()
    file.write_text("epoch = 4\n", encoding="utf-8")
    assert train("--settings", file) == 2
    assert capsys.readouterr().err.startswith(f"cvgnn: {file}: unknown option 'epoch'; known: ")
    file.write_text("epochs = \n", encoding="utf-8")
    assert train("--settings", file) == 2
    assert capsys.readouterr().err.startswith(f"cvgnn: {file} is not valid TOML (")


def test_a_store_that_was_changed_in_place_is_refused(tmp_path: Path, capsys: Captured) -> None:
    write_store(make_graph(n=60), tmp_path / "store")
    assert train(*RUN, "--graph", tmp_path / "store", "--out", tmp_path / "run") == 0
    with (tmp_path / "store" / "x.npy").open("r+b") as file:
        file.seek(-8, os.SEEK_END)
        file.write(b"\x01")
    capsys.readouterr()
    assert train("--resume", tmp_path / "run", "--epochs", "6") == 2
    assert "x.npy is damaged: its SHA-256 is" in capsys.readouterr().err


def test_the_result_is_gone_while_a_run_goes_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with a result is complete; one that is being continued is not."""

    def look(*args: object, **options: object) -> None:
        assert not (folder / "result.json").exists()
        raise CvgnnError("seen")

    monkeypatch.setattr("cvgnn.training.processes.build_trainer", look)
    assert train("--resume", folder, "--epochs", "9") == 2
    assert not (folder / "result.json").exists()


def test_a_finished_run_without_its_checkpoints_stays_as_it_is(folder: Path, capsys: Captured) -> None:
    shutil.rmtree(folder / "checkpoints")
    before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    capsys.readouterr()
    assert train("--resume", folder, "--epochs", "9") == 2
    assert "is finished and its checkpoints are gone, so it cannot be resumed" in capsys.readouterr().err
    assert {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()} == before


def test_a_config_from_somebody_else_does_not_make_us_write_elsewhere(
    folder: Path, tmp_path: Path, capsys: Captured
) -> None:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    elsewhere = tmp_path / "elsewhere"
    config |= {"dataset": "synthetic-flickr", "root": str(elsewhere)}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    capsys.readouterr()
    assert train("--resume", folder) == 2
    assert main(["predict", str(folder)]) == 2
    assert train("--settings", folder / "config.json") == 2
    assert capsys.readouterr().err.count(f"there is no synthetic-flickr in {elsewhere}, where the run had it") == 3
    assert not elsewhere.exists()


def test_a_changed_split_is_named(folder: Path, capsys: Captured) -> None:
    capsys.readouterr()
    assert train("--resume", folder, "--split-seed", "5", "--directed", "True") == 2
    assert (
        "directed was False and is True; split_seed was 0 and is 5. Leave these options out" in capsys.readouterr().err
    )
    assert train("--resume", "") == 2
    assert train(*RUN, "--check-memory", "maybe") == 2
    err = capsys.readouterr().err
    assert "--resume needs the folder of a run" in err
    assert "check_memory must be True or False, not 'maybe'" in err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")
@pytest.mark.parametrize("place", ["a full disk", "a reader that is gone"])
def test_a_run_is_worth_more_than_its_log(tmp_path: Path, place: str) -> None:
    command = [sys.executable, "-m", "cvgnn", "train", *RUN, "--out", str(tmp_path / "run")]
    if place == "a full disk":
        with open("/dev/full", "w") as full:
            done = subprocess.run(command, stdout=full, stderr=full, timeout=120)
    else:
        reading, writing = os.pipe()
        os.close(reading)
        done = subprocess.run(command, stdout=writing, stderr=writing, timeout=120)
        os.close(writing)
    assert done.returncode == 0
    assert (tmp_path / "run" / "result.json").exists()


def test_sigterm_when_nobody_listens(tmp_path: Path) -> None:
    """The request counts although it cannot be acknowledged."""
    folder = tmp_path / "run"
    process = start("--epochs", "100000", "--threads", "1", "--out", folder)
    assert process.stderr is not None
    process.stderr.close()
    while state_of(folder) == (0, []) and process.poll() is None:
        time.sleep(0.01)
    time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 128 + signal.SIGTERM
    assert len(list((folder / "checkpoints").iterdir())) == 1
