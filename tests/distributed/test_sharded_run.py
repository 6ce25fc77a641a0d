"""`cvgnn train` on a partitioned graph: the run path, resuming on another number of ranks, and lost ranks."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from cvgnn.cli.main import main
from cvgnn.data.io import read_graph
from cvgnn.data.store import write_store
from cvgnn.distributed.partition import partition_graph
from tests.distributed.test_same_bits import ENVIRONMENT, torchrun
from tests.distributed.test_sharded_trainer import small_graph

SMALL = ["--batch-size", "32", "--hidden", "6", "--num-neighbors", "2", "--checkpoint-epochs", "1", "--patience", "0"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store, its partition, and a run of four epochs by one process."""
    root = tmp_path_factory.mktemp("sharded")
    graph = small_graph()
    graph = dataclasses.replace(graph, x=graph.x.float(), validated=True)  # type: ignore[union-attr]
    write_store(graph, root / "store")
    partition_graph(graph, root / "p", shards=8)
    assert train("--graph", root / "p", "--out", root / "whole", "--epochs", 4, *SMALL) == 0
    return root


def train(*arguments: object) -> int:
    return main(["train", "--quiet", *map(str, arguments)])


def result(run: Path) -> tuple[bytes, list[Any]]:
    """The weights, and the epochs in metrics.jsonl without their seconds."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return (run / "weights.safetensors").read_bytes(), [
        {name: value for name, value in row.items() if not name.endswith("_seconds")} for row in rows
    ]


def test_a_run_on_two_ranks_goes_on_with_four_and_with_one(folder: Path, tmp_path: Path) -> None:
    assert train("--graph", folder / "p", "--out", tmp_path / "r", "--epochs", 1, "--ranks", 2, *SMALL) == 0
    assert (tmp_path / "r" / "rank-1.log").read_text().count("epoch 1 ") == 1
    names = {path.name for path in (tmp_path / "r" / "checkpoints" / "000001").iterdir()}
    assert names == {"checkpoint.json", "state.safetensors", *(f"shard-{s:04d}.safetensors" for s in range(8))}
    assert train("--resume", tmp_path / "r", "--epochs", 2, "--ranks", 4) == 0
    assert train("--resume", tmp_path / "r", "--epochs", 4) == 0
    assert result(tmp_path / "r") == result(folder / "whole")


LONG = ["--epochs", "150", *SMALL, "--timeout", "60"]


@pytest.fixture(scope="module")
def long_run(folder: Path) -> tuple[bytes, list[Any]]:
    """The result of a run of 150 epochs by one process."""
    assert train("--graph", folder / "p", "--out", folder / "long", *LONG) == 0
    return result(folder / "long")


def test_ctrl_c_stops_all_ranks_with_one_line_and_the_run_goes_on(
    folder: Path, tmp_path: Path, long_run: tuple[bytes, list[Any]]
) -> None:
    run = tmp_path / "r"
    command = ["train", "--graph", str(folder / "p"), "--out", str(run), "--ranks", "2", *LONG]
    # A shell may start its background jobs with SIGINT ignored, and Python respects that: ask for it again.
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from cvgnn.cli.main import main; main()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, *command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        env=ENVIRONMENT, start_new_session=True,
    )  # fmt: skip
    try:
        wait_for(lambda: (run / "checkpoints" / "000003").exists())
        os.killpg(process.pid, signal.SIGINT)  # a terminal sends it to all processes of the command
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, errors
    stopped = rf"cvgnn: stopped in epoch \d+, \d+ of its 3 steps done; continue with: cvgnn train --resume {run}"
    lines = [line for line in errors.splitlines() if "options chosen" not in line]
    assert lines[0] == "cvgnn: stopping after this step; once more to stop at once"
    assert re.fullmatch(stopped, "\n".join(lines[1:]))
    assert not (run / "result.json").exists()
    assert train("--resume", run) == 0
    assert result(run) == long_run


def test_a_killed_rank_ends_the_others_and_the_run_goes_on_with_two(
    folder: Path, tmp_path: Path, long_run: tuple[bytes, list[Any]]
) -> None:
    options = ["--graph", str(folder / "p"), *LONG, "--quiet"]
    command = torchrun(4, "cvgnn", "train", "--out", str(tmp_path / "r"), *options)
    command[3:3] = ["--monitor-interval", "5"]  # else its SIGTERM may stop a rank that has not said yet whom it lost
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    try:
        wait_for(lambda: (tmp_path / "r" / "checkpoints" / "000003").exists())
        os.kill(process_of_rank(process.pid, 2), signal.SIGKILL)
        _, errors = process.communicate(timeout=60)  # less than the time-out of the ranks: a closed connection is seen
    finally:
        process.kill()
    assert process.returncode not in (0, None)
    host = os.uname().nodename
    said = re.findall(r"cvgnn: rank \d on \S+ lost rank \d on [^\s,]+", errors)
    assert sorted(said) == [f"cvgnn: rank {rank} on {host} lost rank 2 on {host}" for rank in (0, 1, 3)], errors[:2000]
    assert not (tmp_path / "r" / "result.json").exists()
    assert train("--resume", tmp_path / "r", "--ranks", 2) == 0
    assert result(tmp_path / "r") == long_run  # each epoch once


def process_of_rank(parent: int, rank: int) -> int:
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    wanted = f"RANK={rank}".encode()
    (found,) = [int(pid) for pid in children if wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")]
    return found


def wait_for(condition: Any, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.05)


def test_a_damaged_shard_of_a_checkpoint_is_not_used(folder: Path, tmp_path: Path, capfd: Any) -> None:
    run = tmp_path / "r"
    assert train("--graph", folder / "p", "--out", run, "--epochs", 2, *SMALL) == 0
    (run / "checkpoints" / "000002" / "shard-0005.safetensors").write_bytes(b"")
    assert train("--resume", run, "--epochs", 4) == 0
    assert "000002 is damaged and not used: shard-0005.safetensors is damaged" in capfd.readouterr().err
    assert result(run) == result(folder / "whole")


def test_another_partition_is_another_run(folder: Path, tmp_path: Path, capfd: Any) -> None:
    assert train("--graph", folder / "p", "--out", tmp_path / "r", "--epochs", 1, *SMALL) == 0
    partition_graph(small_graph(), tmp_path / "q", shards=4)
    assert train("--resume", tmp_path / "r", "--graph", tmp_path / "q") == 2
    assert "the graph's content has changed" in capfd.readouterr().err


def test_predictions_of_ranks_are_those_of_one_process_and_of_the_whole_graph(
    folder: Path, tmp_path: Path, capfd: Any
) -> None:
    files = [tmp_path / f"{name}.csv" for name in ("one", "two", "whole")]
    places: list[list[object]] = [[], ["--ranks", 2], ["--graph", folder / "store"]]
    for file, place in zip(files, places, strict=True):
        assert main(["predict", str(folder / "whole"), "--out", str(file), *map(str, place)]) == 0
    assert files[0].read_bytes() == files[1].read_bytes()  # to the bit, by one rank and by two
    mine, theirs = ([line.split(",") for line in file.read_text().splitlines()] for file in (files[0], files[2]))
    assert len(mine) == 201
    for a, b in zip(mine[1:], theirs[1:], strict=True):
        assert (a[0], a[1], a[3], a[4]) == (b[0], b[1], b[3], b[4])  # node, in the user's order, class, label, split
        assert [float(x) for x in (a[2], *a[5:])] == pytest.approx([float(x) for x in (b[2], *b[5:])], abs=1e-6)
    right = [row[1] == row[3] for row in mine[1:] if row[4] == "test"]
    expected = json.loads((folder / "whole" / "result.json").read_text())["output_test_accuracy"]
    assert sum(right) / len(right) == pytest.approx(expected, abs=1e-9)
    capfd.readouterr()
    assert main(["predict", str(folder / "whole"), "--nodes", "7,3", "--columns", "node"]) == 0
    assert capfd.readouterr().out.split() == ["node", "7", "3"]


def test_metrics_of_ranks_are_those_of_the_run(folder: Path, capfd: Any) -> None:
    found = []
    for place in ([], ["--graph", str(folder / "store")]):
        assert main(["evaluate", str(folder / "whole"), "--json", *place]) == 0
        found.append(json.loads(capfd.readouterr().out)["metrics"])
    result = json.loads((folder / "whole" / "result.json").read_text())
    assert found[0]["test_accuracy"] == found[1]["test_accuracy"] == result["output_test_accuracy"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--embeddings", "1"], "--embeddings needs the whole graph; give the graph that was partitioned"),
        (["--new", "a.csv", "b.csv"], "--new needs the whole graph"),
        (["--ranks", "3"], "3 ranks cannot share 8 shards"),
    ],
)
def test_what_is_not_predicted_on_shards_is_refused(folder: Path, options: list[str], message: str, capfd: Any) -> None:
    assert main(["predict", str(folder / "whole"), *options]) == 2
    assert message in capfd.readouterr().err


def test_a_graph_partitioned_with_a_feature_norm_is_trained_with_it(folder: Path, tmp_path: Path, capfd: Any) -> None:
    graph = read_graph(folder / "store")
    partition_graph(graph, tmp_path / "p", shards=8, method="range", feature_norm="l2")
    options: list[object] = ["--epochs", 2, *SMALL, "--dropout", 0.0, "--defaults", "fixed"]
    assert train("--graph", tmp_path / "p", "--out", tmp_path / "a", *options) == 2
    assert "with feature_norm 'none': it was made with 'l2'" in capfd.readouterr().err
    options += ["--feature-norm", "l2"]
    assert train("--graph", tmp_path / "p", "--out", tmp_path / "a", *options) == 0
    assert train("--graph", folder / "store", "--out", tmp_path / "b", *options) == 0  # range keeps the order
    losses = [[row["loss"] for row in result(tmp_path / name)[1]] for name in "ab"]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--norm", "batch"], "cannot be trained with norm 'batch'"),
        (["--ranks", "3"], "3 ranks cannot share 8 shards"),
        (["--inductive"], "cannot be trained with inductive"),
        *((["--task", task], f"cannot be trained with task '{task}'") for task in ("edge", "link", "graph")),
        (
            ["--feature-norm", "row"],
            "cannot be trained with feature_norm 'row': it was made with 'none'; partition the",
        ),
        (["--model", "sage"], "the partition has P X for 'symmetric', and the model needs 'mean'"),
        (["--split-seed", "3"], "a partitioned graph is as it was partitioned, so split_seed would do nothing"),
        (["--ranks", "0"], "ranks must be a whole number of at least 1"),
        (["--timeout", "0"], "timeout must be a number of at least 1"),
    ],
)
def test_what_shards_cannot_do_is_refused_before_any_work(
    folder: Path, tmp_path: Path, options: list[str], message: str, capfd: Any
) -> None:
    assert train("--graph", folder / "p", "--out", tmp_path / "r", *options) == 2
    assert message in capfd.readouterr().err
    assert not (tmp_path / "r").exists()


def test_ranks_need_a_partition(folder: Path, capfd: Any) -> None:
    assert train("--graph", folder / "store", "--ranks", 2) == 2
    assert "several ranks work on a partitioned graph; make one with 'cvgnn partition'" in capfd.readouterr().err


def test_the_partition_command_reports_quality_and_cost(folder: Path, tmp_path: Path, capfd: Any) -> None:
    assert main(["partition", str(folder / "store"), str(tmp_path / "p"), "--shards", "4", "--json"]) == 0
    report = json.loads(capfd.readouterr().out)
    assert [cost["ranks"] for cost in report["costs"]] == [1, 2, 4]
    assert report["costs"][0]["sent_bytes_per_step"] == 0
    memory = [cost["memory_bytes"] for cost in report["costs"]]
    assert memory == sorted(memory, reverse=True)
    assert 0 < report["edge_cut"] < 1
