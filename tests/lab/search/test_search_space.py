"""From options and TOML to the space of a search."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cvgnn.config import GraphSource
from cvgnn.errors import CvgnnError
from cvgnn.lab.search.search_space import as_text, check_space, options_of, parse_space, read_search

distributions = pytest.importorskip("optuna.distributions", reason="needs Optuna: pip install 'cvgnn[search]'")
Real, Whole, Choice = (
    distributions.FloatDistribution, distributions.IntDistribution, distributions.CategoricalDistribution,
)  # fmt: skip


def test_every_kind_of_field() -> None:
    words = [
        "lr=0.001..0.1:log", "dropout=0.0..0.8", "hidden=16..256", "epochs=5..10:int", "batch-size=16..256:log-int",
        "num_neighbors=2..20", "beta1=0..0.9", "weight_decay=1..3:int", "bias=True,false", "optimizer=adam,sgd,adam",
    ]  # fmt: skip
    assert parse_space(words) == {
        "lr": Real(0.001, 0.1, log=True),
        "dropout": Real(0.0, 0.8, log=False),
        "hidden": Whole(16, 256, log=False),
        "epochs": Whole(5, 10, log=False),
        "batch_size": Whole(16, 256, log=True),
        "num_neighbors": Whole(2, 20, log=False),
        "beta1": Real(0.0, 0.9, log=False),
        "weight_decay": Whole(1, 3, log=False),
        "bias": Choice((True, False)),
        "optimizer": Choice(("adam", "sgd")),
    }
    assert as_text(parse_space(["lr=1e-3..1e-1:log"])["lr"]) == "0.001..0.1:log"
    for word in words:
        (values,) = parse_space([word]).values()
        assert parse_space([f"{word.partition('=')[0]}={as_text(values)}"]) == parse_space([word])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["lr"], "options must look like lr=0.001..0.1:log, hidden=16..256 or optimizer=adam,sgd, not 'lr'"),
        (["lr="], "options must look like"),
        (["learning=1..2"], "unknown field 'learning'; known: estimator"),
        (["lr=1..2", "lr=2..3"], "lr is given twice; put its values behind one lr="),
        (["lr=0.1..0.01"], "the range lr=0.1..0.01 must go up: its first number must be less than its second"),
        (["lr=0.1..0.1"], "the range lr=0.1..0.1 must go up"),
        (["dropout=0..0.5:log"], "the range dropout=0..0.5:log must start above 0, because its scale is log"),
        (["lr=a..b"], "the range lr=a..b must lie between two numbers"),
        (["lr=0.1..inf"], "the range lr=0.1..inf must lie between two numbers"),
        (["lr=..1"], "the range lr=..1 must lie between two numbers"),
        (["hidden=1.5..8"], "the range hidden=1.5..8 must lie between two whole numbers"),
        (["num_neighbors=-1..5"], "the range num_neighbors=-1..5 must start above 0; list -1 for all neighbors"),
        (["optimizer=adam..sgd"], "optimizer has no range; list its values, such as optimizer=a,b"),
        (["bias=0..1"], "bias has no range"),
        (["lr=0.1..1:lin"], "a range may end in :log, :int or :log-int, not in :lin (lr=0.1..1:lin)"),
        (["lr=0.1..1:"], "a range may end in :log, :int or :log-int, not in : (lr=0.1..1:)"),
    ],
)  # fmt: skip
def test_invalid_spaces(words: list[str], message: str) -> None:
    with pytest.raises(CvgnnError) as caught:
        parse_space(words)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("words", "base", "message"),
    [
        ([], {}, "nothing to search over; give --space or --file"),
        (["seed=0..5"], {}, "a search over seeds would choose by luck; leave seed out, and give --runs"),
        (["lr=0.1..1"], {"lr": 0.5}, "lr is in the space and in the options of every run; leave one of them out"),
        (["dropout=0.0..1.0"], {}, "dropout must be a number in [0, 1), not 1.0 (in the setting dropout=1)"),
        (["hidden=-4..8"], {}, "hidden must be a whole number of at least 1, not -4 (in the setting hidden=-4)"),
        (["optimizer=adam,adma"], {}, "unknown optimizer 'adma'; known: sgd"),
        (["num_neighbors=5,10+5"], {}, "num_neighbors has 2 entries"),
    ],
)
def test_what_no_setting_can_have_is_refused(words: list[str], base: dict[str, Any], message: str) -> None:
    with pytest.raises(CvgnnError) as caught:
        check_space(parse_space(words), base)
    assert str(caught.value).startswith(message)


def test_values_may_need_one_another() -> None:
    check_space(parse_space(["num_neighbors=5,10+5", "layers=2,3"]), {})
    check_space(parse_space(["num_neighbors=5,10+5"]), {"layers": 3})


def test_parameters_become_options() -> None:
    space = parse_space(["lr=1..3:int", "hidden=8..64", "num_neighbors=2,10+5", "beta1=none,0.5"])
    options = options_of(space, {"lr": 2, "hidden": 9, "num_neighbors": "10+5", "beta1": None})
    assert options == {"lr": 2.0, "hidden": 9, "num_neighbors": (10, 5), "beta1": None}
    assert isinstance(options["lr"], float)  # as words would have it, so that both name the same run


def test_a_file(tmp_path: Path) -> None:
    file = tmp_path / "search.toml"
    file.write_text(
        '[base]\ndataset = "cora"\nroot = "data"\nepochs = 7\n[space]\nlr = "0.001..0.1:log"\nhidden = [8, 16]\n'
        "num_neighbors = [2, [10, 5]]\nweight_decay = [0, 0.5]\n",
        encoding="utf-8",
    )
    source, base, space = read_search(file)
    assert source == GraphSource(dataset="cora", root=tmp_path / "data")
    with pytest.raises(CvgnnError, match=r"search.toml: it has root, so --root has no effect; leave one of them out"):
        read_search(file, source=GraphSource(root=tmp_path))
    assert base == {"epochs": 7}
    words = ["lr=0.001..0.1:log", "hidden=8,16", "num_neighbors=2,10+5", "weight_decay=0,0.5"]
    assert space == parse_space(words)
    assert repr(space) == repr(parse_space(words))  # types too


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[grid]\n", "unknown table 'grid'; known: base, space"),
        ("space = 3\n", "base and space must be tables"),
        ("[space]\nlearning = [1]\n", "unknown field 'learning'"),
        ("[base]\nlearning = 1\n", "unknown field 'learning'"),
        ("[base]\nroot = 7\n", "root must be a path, not 7"),
        ("[space]\nlr = 3\n", "lr must be a list of values, or a range such as '0.001..0.1:log'"),
        ("[space]\nlr = []\n", "lr must be a list of values"),
        ("[space]\nlr = [{}]\n", "lr must be a list of values"),
        ('[space]\nlr = "2..1"\n', "the range lr=2..1 must go up"),
        ("[space\n", "is not valid TOML"),
    ],
)
def test_invalid_search_files(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "search.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(CvgnnError) as caught:
        read_search(file)
    assert str(file) in str(caught.value)
    assert message in str(caught.value)
