"""`cvgnn predict --new`: the mistakes in the table of docs/inductive.md, and new nodes of runs of all kinds."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from cvgnn.cli.main import main
from cvgnn.training.run import read_run

TEXT = (Path(__file__).parents[2] / "docs" / "inductive.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"`([\w/]+\.csv)`[^`]*\n\n```csv\n(.*?)```", TEXT, flags=re.DOTALL))
ROWS = dict(re.findall(r"^\| ([^|]+) \| `([^|]+)` \|$", TEXT, flags=re.MULTILINE))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the page, and the run of its commands."""
    folder = tmp_path_factory.mktemp("docs")
    assert sorted(FILES) == ["new_edges.csv", "new_nodes.csv", "town/edges.csv", "town/nodes.csv"]
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    (commands,) = re.findall(r"```sh\n(.*?)```", TEXT, flags=re.DOTALL)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for line in commands.strip().splitlines():
            assert main(shlex.split(line)[1:]) == 0
    return folder


NODES, EDGES = FILES["new_nodes.csv"], FILES["new_edges.csv"]


@pytest.mark.parametrize(
    ("mistake", "nodes", "edges", "words"),
    [
        ("a column that the model uses is missing", "id,city\nkim,Bonn\n", "source,target\nkim,ann\n", []),
        ("an id that is in the graph", NODES.replace("leo", "ann"), "source,target\nkim,ann\n", []),
        ("an id twice", NODES.replace("leo", "kim"), "source,target\nkim,ann\n", []),
        ("an edge to nobody", NODES, "source,target\nkim,zoe\n", []),
        ("an edge between two old nodes", NODES, EDGES + "ann,gil\n", []),
        ("a weight in a graph without weights", NODES, "source,target,weight\nkim,ann,2\n", []),
        ("no number", NODES.replace("33", "old"), EDGES, []),
        ("`--nodes` beside `--new`", NODES, EDGES, ["--nodes", "ann"]),
    ],
)  # fmt: skip
def test_mistakes(
    folder: Path, tmp_path: Path, mistake: str, nodes: str, edges: str, words: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    (tmp_path / "nodes.csv").write_text(nodes, encoding="utf-8")
    (tmp_path / "edges.csv").write_text(edges, encoding="utf-8")
    argv = ["predict", str(folder / "run"), "--new", str(tmp_path / "nodes.csv"), str(tmp_path / "edges.csv"), *words]
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert ROWS[mistake] in " ".join(err.split())


@pytest.mark.parametrize(
    ("nodes", "edges", "said"),
    [
        ("", "source,target\n", "nodes.csv is empty"),
        ("id,age,city\n", "source,target\n", "has no rows: there is no new node"),
        ("name,age,city\nkim,3,Bonn\n", "source,target\n", "has no column 'id'; its columns are: name, age, city"),
        (NODES, "source\nkim\n", "has no column 'target'; its columns are: source"),
        (NODES + ",30,Bonn\n", EDGES, "nothing where the node's id must be"),
        (NODES, "source,target\n,ann\n", "is neither a node of nodes.csv nor of the graph"),
    ],
)
def test_bad_tables(
    folder: Path, tmp_path: Path, nodes: str, edges: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "nodes.csv").write_text(nodes, encoding="utf-8")
    (tmp_path / "edges.csv").write_text(edges, encoding="utf-8")
    assert (
        main(["predict", str(folder / "run"), "--new", *(str(tmp_path / f"{n}.csv") for n in ("nodes", "edges"))]) == 2
    )
    assert said in " ".join(capsys.readouterr().err.split())


def test_other_files(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", str(folder / "run"), "--new", "a.txt", "b.txt"]) == 2
    assert "new nodes and their edges are tables, and end in one of .csv" in capsys.readouterr().err
    assert main(["predict", str(folder / "run"), "--new", "missing.csv", "b.csv"]) == 2
    assert "missing.csv" in capsys.readouterr().err
    assert main(["predict", str(folder / "run"), "--new", "a.csv"]) == 2
    assert "--new takes two files: the table of new nodes, and that of their edges" in capsys.readouterr().err


def test_a_run_on_arrays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Weighted, directed, float features without names: numbers in the order of the columns."""
    rng = np.random.default_rng(0)
    edges, x, y = rng.integers(30, size=(2, 90)), rng.normal(size=(32, 3)).round(3), rng.integers(2, size=30)
    edges = np.unique(edges, axis=1)
    weight = np.linspace(1, 2, edges.shape[1])
    np.savez(tmp_path / "g.npz", edge_index=edges, x=x[:30], y=y, edge_weight=weight)
    new = np.array([[0, 30, 31, 5], [30, 31, 30, 31]])
    argv = ["train", "--graph", str(tmp_path / "g.npz"), "--directed", "True", "--defaults", "fixed", "--epochs", "2"]
    assert main([*argv, "--out", str(tmp_path / "run")]) == 0
    # A bigger graph without labels.
    np.savez(
        tmp_path / "h.npz", edge_index=np.concatenate([edges, new], axis=1), x=x,
        edge_weight=np.concatenate([weight, [1, 2, 3, 4]]),
    )  # fmt: skip
    assert (
        main(["predict", str(tmp_path / "run"), "--graph", str(tmp_path / "h.npz"), "--out", str(tmp_path / "h.csv")])
        == 0
    )
    rows = [f"{name},{','.join(map(str, values))}" for name, values in zip((70, 71), x[30:].tolist(), strict=True)]
    (tmp_path / "n.csv").write_text("\n".join(["id,a,b,c", *rows]))
    names = {30: 70, 31: 71}
    lines = [f"{names.get(u, u)},{names.get(v, v)},{w}" for u, v, w in zip(*new.tolist(), (1, 2, 3, 4), strict=True)]
    (tmp_path / "e.csv").write_text("\n".join(["source,target,weight", *lines]))
    files = [str(tmp_path / "n.csv"), str(tmp_path / "e.csv")]
    assert main(["predict", str(tmp_path / "run"), "--new", *files, "--out", str(tmp_path / "n_out.csv")]) == 0
    whole, part = (np.genfromtxt(tmp_path / f, delimiter=",", names=True) for f in ("h.csv", "n_out.csv"))
    assert part["node"].tolist() == [70, 71]
    np.testing.assert_allclose(part["p_1"], whole["p_1"][30:], rtol=0, atol=1e-6)
    assert (
        main(["predict", str(tmp_path / "run"), "--new", *files, "--embeddings", "1", "--out", str(tmp_path / "e.npy")])
        == 0
    )
    assert np.load(tmp_path / "e.npy").shape == (2, 64)
    capsys.readouterr()
    (tmp_path / "n.csv").write_text("id,a,b\n70,1,2\n")
    assert main(["predict", str(tmp_path / "run"), "--new", *files]) == 2
    (tmp_path / "e.csv").write_text("source,target,weight\n0,70,1\n")
    assert main(["predict", str(tmp_path / "run"), "--new", *files]) == 2
    assert "x has 2 features a node, but the nodes of the graph 'g' have 3" in capsys.readouterr().err
    (tmp_path / "n.csv").write_text("id,a,b,c\n70,1,2,3\n")
    (tmp_path / "e.csv").write_text("source,target\n0,70\n")
    assert main(["predict", str(tmp_path / "run"), "--new", *files]) == 2
    assert ROWS["no weight in a graph with weights"] in capsys.readouterr().err
    np.savez(tmp_path / "h.npz", edge_index=edges, x=x[:, :2])
    assert main(["predict", str(tmp_path / "run"), "--graph", str(tmp_path / "h.npz")]) == 2
    assert "the model reads 3 features a node, but the graph 'h' has 2" in capsys.readouterr().err


@pytest.mark.parametrize(
    "y", [np.eye(2, dtype=np.int8)[np.arange(20) % 2], np.linspace(0, 1, 20)], ids=["labels", "numbers"]
)
def test_other_tasks_without_labels(y: np.ndarray, tmp_path: Path) -> None:
    edges, x = np.stack([np.arange(19), np.arange(1, 20)]), np.random.default_rng(1).normal(size=(20, 3))
    np.savez(tmp_path / "g.npz", edge_index=edges, x=x, y=y)
    np.savez(tmp_path / "h.npz", edge_index=edges, x=x)
    argv = ["train", "--graph", str(tmp_path / "g.npz"), "--defaults", "fixed", "--epochs", "2"]
    assert main([*argv, "--out", str(tmp_path / "run")]) == 0
    for name in ("g", "h"):
        graph = str(tmp_path / f"{name}.npz")
        assert main(["predict", str(tmp_path / "run"), "--graph", graph, "--out", str(tmp_path / f"{name}.npy")]) == 0
    known, unknown = np.load(tmp_path / "g.npy"), np.load(tmp_path / "h.npy")
    assert known.dtype.names == unknown.dtype.names
    column = "labels" if y.ndim == 2 else "prediction"
    assert known[column].tolist() == unknown[column].tolist()
    assert read_run(tmp_path / "run").graph.num_nodes == 20


def test_tables_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without preprocessing too, a graph to predict on needs no column of labels; one to train on does."""
    for name, label in (("a", ",label"), ("b", "")):
        (tmp_path / name).mkdir()
        rows = [f"{i},{i % 2},{i / 20}" + (f",{i % 2}" if label else "") for i in range(20)]
        (tmp_path / name / "nodes.csv").write_text("\n".join([f"id,f,g{label}", *rows]))
        (tmp_path / name / "edges.csv").write_text(
            "source,target\n" + "".join(f"{i},{(i + 2) % 20}\n" for i in range(20))
        )
    train = ["train", "--preprocess", "none", "--defaults", "fixed", "--epochs", "2", "--out", str(tmp_path / "run")]
    assert main([*train, "--graph", str(tmp_path / "b")]) == 2
    assert "has no column 'label'" in capsys.readouterr().err
    assert main([*train, "--graph", str(tmp_path / "a")]) == 0
    for name in ("a", "b"):
        out = str(tmp_path / f"{name}.npy")
        assert main(["predict", str(tmp_path / "run"), "--graph", str(tmp_path / name), "--out", out]) == 0
    known, unknown = np.load(tmp_path / "a.npy"), np.load(tmp_path / "b.npy")
    assert known["p_1"].tolist() == unknown["p_1"].tolist()
    assert set(unknown["split"]) == {""}
    assert set(unknown["label"]) == {-1}


def test_unknown_edges(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An edge to nobody is left out with --unknown-edges drop, of --new and of --graph."""
    (tmp_path / "nodes.csv").write_text(NODES, encoding="utf-8")
    (tmp_path / "edges.csv").write_text(EDGES + "kim,zoe\n", encoding="utf-8")
    town = tmp_path / "town"
    town.mkdir()
    (town / "nodes.csv").write_text(FILES["town/nodes.csv"], encoding="utf-8")
    (town / "edges.csv").write_text(FILES["town/edges.csv"] + "ann,zoe\n", encoding="utf-8")
    run, found = str(folder / "run"), []
    new = ["--new", str(tmp_path / "nodes.csv"), str(tmp_path / "edges.csv")]
    good = ["--new", str(folder / "new_nodes.csv"), str(folder / "new_edges.csv")]
    for bad, same in ((new, good), (["--graph", str(town)], ["--graph", str(folder / "town")])):
        capsys.readouterr()
        assert main(["predict", run, *bad]) == 2
        assert "zoe" in capsys.readouterr().err
        for options in ([*bad, "--unknown-edges", "drop"], same):
            assert main(["predict", run, *options]) == 0
            found.append(capsys.readouterr())
        assert found[-2].out == found[-1].out
        assert re.search(r"edges.csv: 1 of \d+ edges left out", found[-2].err)
    store = str(tmp_path / "store")
    assert main(["convert", str(folder / "town"), store]) == 0
    assert main(["predict", run, "--graph", store, "--unknown-edges", "drop"]) == 2
    assert "--unknown-edges is for tables, and the graph is none; leave it out" in capsys.readouterr().err


def test_new_nodes_of_a_run_on_a_store(folder: Path, tmp_path: Path) -> None:
    """The store knows the names of the columns that its tables had."""
    town = tmp_path / "town"
    town.mkdir()
    (town / "nodes.csv").write_text(FILES["town/nodes.csv"].replace("id,", "who,"), encoding="utf-8")
    (town / "edges.csv").write_text(FILES["town/edges.csv"], encoding="utf-8")
    (tmp_path / "new.csv").write_text(NODES.replace("id,", "who,"), encoding="utf-8")
    store, run = str(tmp_path / "store"), str(tmp_path / "run")
    assert main(["convert", str(town), store, "--id-column", "who"]) == 0
    assert main(["train", "--graph", store, "--epochs", "1", "--out", run]) == 0
    assert main(["predict", run, "--new", str(tmp_path / "new.csv"), str(folder / "new_edges.csv")]) == 0
