"""From options and TOML to configs."""

from __future__ import annotations

from pathlib import Path

import pytest

from cvgnn.config import GraphSource, TrainConfig
from cvgnn.errors import CvgnnError
from cvgnn.lab.sweep.grid import configs, parse_grid, product, read_sweep


def test_every_kind_of_field() -> None:
    words = ["lr=0.01,1e-3", "epochs=5", "num_neighbors=2,10+5,-1", "bias=True,false", "beta1=none,0.5", "scheme=paper"]
    assert parse_grid(words) == {
        "lr": [0.01, 1e-3],
        "epochs": [5],
        "num_neighbors": [(2,), (10, 5), (-1,)],
        "bias": [True, False],
        "beta1": [None, 0.5],
        "scheme": ["paper"],
    }
    assert parse_grid(["weight-decay=0"]) == {"weight_decay": [0.0]}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["lr"], "options must look like lr=0.01,0.05, not 'lr'"),
        (["lr="], "options must look like lr=0.01,0.05, not 'lr='"),
        (["learning=1"], "unknown field 'learning'; known: estimator"),
        (["lr=1", "lr=2"], "lr is given twice; put its values behind one lr="),
    ],
)
def test_invalid_grids(words: list[str], message: str) -> None:
    with pytest.raises(CvgnnError) as caught:
        parse_grid(words)
    assert str(caught.value).startswith(message)


def test_an_impossible_setting_is_refused_before_anything_runs() -> None:
    with pytest.raises(CvgnnError, match=r"lr must be a number above 0, not 'fast' \(in the setting lr=fast, seed=0\)"):
        configs({}, product({**parse_grid(["lr=0.1,fast"]), "seed": [0]}))


def test_a_product_has_every_combination_once() -> None:
    points = product({"lr": [0.1, 0.2], "epochs": [1, 2, 3]})
    assert len({tuple(point.items()) for point in points}) == 6
    assert points[0] == {"lr": 0.1, "epochs": 1}
    assert product({}) == [{}]
    with pytest.raises(CvgnnError, match="the grid has 1000000 settings; a sweep takes at most 100000"):
        product({"a": range(1000), "b": range(1000)})


def test_a_file(tmp_path: Path) -> None:
    file = tmp_path / "sweep.toml"
    file.write_text(
        '[base]\ndataset = "cora"\nroot = "data"\nepochs = 7\n[grid]\nlr = [0.1, 0.2]\n'
        '[[list]]\noptimizer = "adam"\n[[list]]\noptimizer = "sgd"\nnum_neighbors = [3]\n',
        encoding="utf-8",
    )
    source, found = read_sweep(file)
    assert source == GraphSource(dataset="cora", root=tmp_path / "data")
    assert found == [
        TrainConfig(epochs=7, optimizer="adam", lr=0.1),
        TrainConfig(epochs=7, optimizer="adam", lr=0.2),
        TrainConfig(epochs=7, optimizer="sgd", lr=0.1, num_neighbors=(3,)),
        TrainConfig(epochs=7, optimizer="sgd", lr=0.2, num_neighbors=(3,)),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[bases]\n", "unknown table 'bases'; known: base, grid, list"),
        ("grid = 3\n", "base and grid must be tables, list a list of tables"),
        ("list = 3\n", "base and grid must be tables, list a list of tables"),
        ("list = [3]\n", "base and grid must be tables, list a list of tables"),
        ("[grid]\nlearning = [1]\n", "unknown field 'learning'"),
        ("[base]\nlearning = 1\n", "unknown field 'learning'"),
        ("[[list]]\nlearning = 1\n", "unknown field 'learning'"),
        ("[grid]\nlr = [0.1, -1]\n", "lr must be a number above 0, not -1 (in the setting lr=-1)"),
        ("[base\n", "is not valid TOML"),
        ("[base]\nroot = 7\n", "root must be a path, not 7"),
        ('[base]\nroot = "a\\u0000"\n', "root must be a path, not "),
        ("[base]\ndataset = [1]\n", "dataset must be a name, not [1]"),
        ("[base]\ndirected = 3\n", "directed must be True or False, not 3"),
        ("[grid]\nlr = []\n", "lr in grid has no values; give it one, or leave it out"),
        ("list = []\n", "list is empty; put a table into it, or leave it out"),
        ("[grid]\nlr = [1]\n[[list]]\nlr = 2\n", "lr is in grid and in list; leave one of them out"),
    ],
)
def test_invalid_sweep_files(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "sweep.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(CvgnnError) as caught:
        read_sweep(file)
    assert str(file) in str(caught.value)
    assert message in str(caught.value)


def test_the_command_line_completes_the_file(tmp_path: Path) -> None:
    file = tmp_path / "sweep.toml"
    file.write_text('[base]\ndataset = "cora"\n[grid]\nlr = [0.1, 0.2]\n', encoding="utf-8")
    source, found = read_sweep(file, source=GraphSource(root=Path("data")), seeds=2)
    assert source == GraphSource(dataset="cora", root=Path("data"))
    assert found == [TrainConfig(lr=lr, seed=seed) for lr in (0.1, 0.2) for seed in (0, 1)]


@pytest.mark.parametrize(
    ("text", "source", "seeds", "message"),
    [
        (
            '[base]\ndataset = "cora"\n',
            GraphSource(dataset="pubmed"),
            None,
            "it has dataset, so --dataset has no effect",
        ),
        ('[base]\ndataset = "cora"\n', GraphSource(graph=Path("a")), None, "give either dataset or graph, not both"),
        (
            "[base]\nsplit_seed = 3\n",
            GraphSource(split_seed=2),
            None,
            "it has split_seed, so --split-seed has no effect",
        ),
        ("[grid]\nseed = [7, 8]\n", GraphSource(), 2, "it names the seeds, so --runs has no effect; leave"),
        ("[base]\nseed = 7\n", GraphSource(), 2, "it names the seeds"),
        ("[[list]]\nseed = 7\n", GraphSource(), 2, "it names the seeds"),
    ],
)
def test_nothing_on_the_command_line_is_ignored(
    tmp_path: Path, text: str, source: GraphSource, seeds: int | None, message: str
) -> None:
    file = tmp_path / "sweep.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(CvgnnError) as caught:
        read_sweep(file, source=source, seeds=seeds)
    assert str(caught.value).startswith(f"{file}: {message}")
