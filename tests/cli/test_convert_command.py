"""`cvgnn convert`: from any form to a store, and nothing half-written on an error."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from cvgnn.cli.main import main
from cvgnn.data import Graph, RandomSplit, from_arrays, from_edges
from cvgnn.data.io import read_graph
from cvgnn.data.store import ingest, open_store, write_store
from tests.data.io import writers
from tests.data.io.broken_files import CSV, FILES, NODES, Make, npz, tables
from tests.data.io.writers import assert_same
from tests.data.store.test_compact import few_labels

Captured = pytest.CaptureFixture[str]


def run(*options: object) -> int:
    """The exit code of `cvgnn convert OPTIONS`."""
    try:
        return main(["convert", *map(str, options)])
    except SystemExit as end:
        return int(end.code or 0)


def small() -> Graph:
    return from_arrays(
        [[0, 1, 2, 3], [1, 2, 3, 4]],
        x=[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0], [9.0, 1.0]],
        y=["cat", "dog", "cat", "dog", "cat"],
        node_names=["a", "b", "c", "d", "e"],
    )


def test_what_is_written_is_what_was_read(tmp_path: Path, capsys: Captured) -> None:
    folder = writers.write_csv(small(), tmp_path / "csv")
    assert run(folder, tmp_path / "new" / "store") == 0
    out, err = capsys.readouterr()
    assert err.startswith("cvgnn: columns of nodes.csv, fitted on 3 training nodes:\n")
    graph = open_store(tmp_path / "new" / "store")
    assert_same(graph, read_graph(folder))
    assert graph.PX is None
    lines = out.splitlines()
    assert lines[0] == "Graph(csv: 5 nodes, 4 edges, 2 dense features, 2 classes, split 3/1/1)"
    assert lines[1:4] == [
        "split: given",
        "node ids kept for predictions: a, ... (<U1)",
        "labels kept for predictions: cat, dog",
    ]
    assert lines[4].startswith(f"written to {tmp_path / 'new' / 'store'}: ")
    assert re.search(r": \d+\.\d KiB in \d+\.\d s$", lines[4])
    assert len(lines) == 5
    assert "\x1b" not in out


def test_options(tmp_path: Path, capsys: Captured) -> None:
    folder = writers.write_csv(small(), tmp_path / "csv", split=False)
    options = [
        "--split-seed",
        7,
        "--train-fraction",
        0.4,
        "--val-fraction",
        0.4,
        "--directed",
        "--propagate",
        "random-walk",
    ]
    assert run(folder, tmp_path / "store", *options) == 0
    graph = open_store(tmp_path / "store")
    split = RandomSplit(seed=7, train=0.4, val=0.4)
    assert graph.split == split.describe()
    assert f"split: {split.describe()}" in capsys.readouterr().out
    assert graph.train_ids.tolist() == split.ids(graph.y.numpy())[0].tolist()
    assert graph.directed
    assert graph.PX_normalization == "random-walk"
    assert run(folder, tmp_path / "by-class", "--per-class", 1) == 0
    assert open_store(tmp_path / "by-class").split == RandomSplit(per_class=1).describe()


def test_a_store_can_be_converted_again_to_hold_the_product(tmp_path: Path) -> None:
    assert run(npz()(tmp_path), tmp_path / "plain") == 0
    assert run(tmp_path / "plain", tmp_path / "more", "--propagate", "symmetric") == 0
    assert_same(open_store(tmp_path / "plain"), open_store(tmp_path / "more"))
    assert open_store(tmp_path / "more").PX_normalization == "symmetric"


SAMPLE = FILES[::6]


@pytest.mark.parametrize(("make", "message"), [case[1:] for case in SAMPLE], ids=[case[0] for case in SAMPLE])
def test_a_malformed_input(make: Make, message: str, tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "in").mkdir()
    path = make(tmp_path / "in")
    before = sorted(tmp_path.rglob("*"))
    assert run(path, tmp_path / "out") == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("cvgnn: ")
    assert message in err
    assert err.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


OPTIONS = [
    (["--propagate", "sym"], "unknown propagate 'sym'; known: symmetric, random-walk, mean, sum, none"),
    (["--split-seed", "x"], "split_seed must be a whole number of at least 0, not 'x'"),
    (["--train-fraction", "0"], "train_fraction must be a number in (0, 1), not 0.0"),
    (["--train-fraction", "0.9", "--val-fraction", "0.2"], "train_fraction and val_fraction must sum to at most 1"),
    (["--per-class", "0"], "per_class must be a whole number of at least 1, not 0"),
]


@pytest.mark.parametrize(("options", "message"), OPTIONS, ids=[" ".join(options) for options, _ in OPTIONS])
def test_invalid_options(options: list[str], message: str, tmp_path: Path, capsys: Captured) -> None:
    assert run(npz()(tmp_path), tmp_path / "out", *options) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_what_is_there_is_not_overwritten(tmp_path: Path, capsys: Captured) -> None:
    path = tables(nodes=NODES.replace("5,6", "5,six"))(tmp_path)  # would be refused if it were read first
    assert run(path, path) == 2
    assert capsys.readouterr().err == f"cvgnn: output folder {path} is not empty; choose another OUT\n"
    assert run(path, path / "nodes.csv") == 2
    assert capsys.readouterr().err == f"cvgnn: {path / 'nodes.csv'} is a file; OUT must be a folder, new or empty\n"
    assert run(path, path / "nodes.csv" / "deeper") == 2
    assert "six" in capsys.readouterr().err
    assert sorted(file.name for file in path.iterdir()) == ["edges.csv", "nodes.csv"]


def test_an_empty_folder_may_be_used(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    assert run(npz()(tmp_path), tmp_path / "out") == 0
    assert open_store(tmp_path / "out").num_nodes == 4


def test_missing_arguments(capsys: Captured) -> None:
    assert run() == 2
    assert run("in") == 2
    assert run("--help") == 0
    out = capsys.readouterr().out
    assert "IN OUT" in out
    assert "--propagate {symmetric,random-walk,mean,sum,none}" in out


def test_help_and_errors_do_not_import_torch(tmp_path: Path) -> None:
    code = "import sys\nfrom cvgnn.cli.main import main\ntry:\n    main(sys.argv[1:])\nexcept SystemExit:\n    pass\nprint('torch' in sys.modules)"
    for options in (["--help"], ["in", str(tmp_path), "--split-seed", "-1"]):
        done = subprocess.run(
            [sys.executable, "-c", code, "convert", *options], capture_output=True, text=True, timeout=60
        )
        assert done.stdout.splitlines()[-1] == "False", options


def test_the_sample_has_every_kind() -> None:
    assert {name.split(":")[0] for name, _, _ in SAMPLE} == {"npz", "csv", "parquet", "arrow", "pt", "path"}
    assert len(CSV) > 30


def test_a_damaged_store_does_not_get_fresh_checksums(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = from_edges([[0, 1], [1, 2]], x=torch.eye(3), y=[0, 1, 0], train_ids=[0], val_ids=[1])
    write_store(graph, tmp_path / "store")
    with (tmp_path / "store" / "x.npy").open("r+b") as file:
        file.seek(-4, 2)
        file.write(b"\x01")
    assert main(["convert", str(tmp_path / "store"), str(tmp_path / "copy")]) == 2
    assert "x.npy" in capsys.readouterr().err
    assert not (tmp_path / "copy").exists()


def test_piece_by_piece(tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    """With --memory, and where the tables would not fit into memory; the store is the same."""
    folder = writers.write_csv(small(), tmp_path / "csv")
    assert run(folder, tmp_path / "whole") == 0
    assert run(folder, tmp_path / "given", "--memory", "2G") == 0
    out, err = capsys.readouterr()
    assert "needs about" in err
    assert "Graph(csv: 5 nodes, 4 edges, 2 dense features, 2 classes, split 3/1/1)\nsplit: given\n" in out
    plan = ingest.IngestPlan(in_memory=2**60, least=0, has_split=False)
    monkeypatch.setattr(ingest, "plan_ingest", lambda *_: plan)
    assert run(folder, tmp_path / "chosen") == 0
    assert "needs about" in capsys.readouterr().err
    for file in (tmp_path / "whole").iterdir():
        for other in ("given", "chosen"):
            assert (tmp_path / other / file.name).read_bytes() == file.read_bytes()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--memory", "lots"], "--memory must be a size such as 8G, not 'lots'"),
        (["--memory", "100M"], "100.0 MiB of memory are too few for these tables; 832.0 MiB do"),
        (["--memory", "2G", "--split-seed", "4"], "the graph 'csv' has its own split (given), so split_seed"),
    ],
)
def test_memory_that_cannot_be(options: list[str], message: str, tmp_path: Path, capsys: Captured) -> None:
    folder = writers.write_csv(small(), tmp_path / "csv")
    assert run(folder, tmp_path / "out", *options) == 2
    assert message in capsys.readouterr().err
    assert run(writers.write_npz(small(), tmp_path / "g.npz"), tmp_path / "out", "--memory", "2G") == 2
    assert "--memory is for folders of tables" in capsys.readouterr().err


def test_unlabelled_graphs_are_converted_in_memory(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused with --memory; without it, not even tried where they seem too large."""
    folder = writers.write_csv(small(), tmp_path / "csv")
    assert run(folder, tmp_path / "out", "--unlabelled", "--memory", "2G") == 2
    assert "not converted piece by piece; convert it in memory (without --memory)" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    plan = ingest.IngestPlan(in_memory=2**60, least=0, has_split=False, refusal="no")
    monkeypatch.setattr(ingest, "plan_ingest", lambda *_: plan)
    assert run(folder, tmp_path / "out", "--unlabelled") == 0


def test_compact(tmp_path: Path, capsys: Captured) -> None:
    """A store of the rows that training reads; a store of a store that is mapped."""
    write_store(few_labels(), tmp_path / "whole")
    assert (
        run(tmp_path / "whole", tmp_path / "part", "--compact", 1, "--propagate", "mean", "--splits", "train", "val")
        == 0
    )
    out = capsys.readouterr().out
    part = open_store(tmp_path / "part")
    assert f"kept {part.num_nodes} of 3000 nodes" in out
    assert (part.PX_normalization, part.test_ids.numel()) == ("mean", 0)
    assert run(tmp_path / "whole", tmp_path / "same", "--compact", 1, "--propagate", "mean", "--splits", "train", "val",
               "--memory", "1G") == 0  # fmt: skip
    for file in (tmp_path / "part").iterdir():
        assert file.read_bytes() == (tmp_path / "same" / file.name).read_bytes()
    assert run(tmp_path / "whole", tmp_path / "bad", "--compact", 1, "--memory", "100M") == 2
    assert "100.0 MiB of memory are too few for this graph; 832.1 MiB do" in capsys.readouterr().err
    assert run(tmp_path / "whole", tmp_path / "bad", "--compact", -1) == 2
    assert "--compact must be 0 or more hops" in capsys.readouterr().err
