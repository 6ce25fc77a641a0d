"""The recipes against the paper's tables, copied row by row from its text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cvgnn.config import TrainConfig
from cvgnn.errors import CvgnnError
from cvgnn.lab.recipes import (
    PAPER_DATASETS,
    PAPER_OPTIMIZERS,
    paper_accuracy,
    paper_recipe,
    paper_runs,
)
from cvgnn.optim import OPTIMIZERS, check_options

# Table 4: dataset, hidden dimension, weight decay, dropout, epochs, runs.
TABLE_4 = """
ogbn-arxiv  &256   &.00001   &0  & 150&3
Flickr  & 256  &0   &.2  &200&3
Reddit  &128   &0   & 0 & 30&1
Cora  &32   &.0005   & .5 &100 &3
CiteSeer  &32   &.0005   &.5  &100 &3
"""

# Appendix B: optimizer, learning rate, sampled neighbors, batch size.
TUNED = {
    "Cora": """
Adam& .01 &5  &20
Heavy-Ball SGD&.05  &2  &50
AMSGrad&.01  &2  &10
AdaGrad &.01  &5  &10
SGD&.05  &2  &20
""",
    "CiteSeer": """
Adam&.01  &2  &10
Heavy-Ball SGD&.01  &2  &20
AMSGrad&.01  &5  &20
AdaGrad &.01  &5  &10
SGD&.05  &2  &10
""",
    "ogbn-arxiv": """
Adam&.005  &2 &1000
Heavy-Ball SGD& .01 &2  &1000
AMSGrad&.005  &2  &1000
AdaGrad &.01  &2  &1000
SGD&.01  &2  &1000
""",
    "Flickr": """
Adam& .1 &5  &5000
Heavy-Ball SGD&.1  &5  &1000
AMSGrad&.1  & 5 & 1000
AdaGrad & .1 & 5 &1000
SGD&.5  & 5 & 1000
""",
    "Reddit": """
Adam& .01 &2  &1000
Heavy-Ball SGD&.05  & 2 & 1000
AMSGrad&.01  & 2 & 1000
AdaGrad & .05 & 2 & 1000
SGD& .05 & 2 &1000
""",
}

# Table 5: dataset, then Adam, Heavy-Ball, AMSGrad, AdaGrad, SGD.
TABLE_5 = """
ogbn-arxiv&74.11 &70.40 &74.24 &72.47 &70.19
Flickr&50.97 & 54.41& 52.49&53.27 &52.35
Reddit&96.01 &95.62 &96.03 &96.32 &95.70
Cora&80.20 &81.10 &80.10 & 79.47&80.73
CiteSeer&69.00 &71.07 &69.07 &68.40 &70.97
"""

NAMES = {"Adam": "adam", "Heavy-Ball SGD": "heavy-ball", "AMSGrad": "amsgrad", "AdaGrad": "adagrad", "SGD": "sgd"}
CELLS = [(dataset, optimizer) for dataset in (*PAPER_DATASETS, "pubmed") for optimizer in PAPER_OPTIMIZERS]


def rows(table: str) -> dict[str, list[float]]:
    """The numbers of each row, by its first column."""
    cells = [[cell.strip() for cell in line.split("&")] for line in table.strip().splitlines()]
    return {first: [float(cell) for cell in rest] for first, *rest in cells}


def test_datasets_and_optimizers_are_the_papers() -> None:
    assert set(PAPER_DATASETS) == {name.lower() for name in rows(TABLE_4)}
    assert tuple(NAMES.values()) == PAPER_OPTIMIZERS
    assert set(PAPER_OPTIMIZERS) == set(OPTIMIZERS)


@pytest.mark.parametrize("optimizer", PAPER_OPTIMIZERS)
@pytest.mark.parametrize(("dataset", "fixed"), rows(TABLE_4).items())
def test_table_4(dataset: str, fixed: list[float], optimizer: str) -> None:
    c = paper_recipe(dataset.lower(), optimizer)
    assert [c.hidden, c.weight_decay, c.dropout, c.epochs, paper_runs(dataset.lower())] == fixed


@pytest.mark.parametrize(
    ("dataset", "optimizer", "tuned"),
    [(dataset, name, numbers) for dataset, table in TUNED.items() for name, numbers in rows(table).items()],
)
def test_appendix_b(dataset: str, optimizer: str, tuned: list[float]) -> None:
    c = paper_recipe(dataset.lower(), NAMES[optimizer])
    assert [c.lr, *c.num_neighbors, c.batch_size] == tuned


@pytest.mark.parametrize(("dataset", "accuracies"), rows(TABLE_5).items())
def test_table_5(dataset: str, accuracies: list[float]) -> None:
    assert [paper_accuracy(dataset.lower(), optimizer) for optimizer in PAPER_OPTIMIZERS] == accuracies


def test_the_copies_above_are_the_papers_text() -> None:
    """Where the paper lies beside the repository, every row above is found in it."""
    texts = sorted((Path(__file__).resolve().parents[3] / "shared" / "paper").glob("*.txt"))
    if not texts:
        pytest.skip("the paper's text is not here: no ../shared/paper/*.txt beside the repository")
    text = re.sub(r"\\(?:textbf|underline)\{([\d.]+)\}", r"\1", texts[0].read_text(encoding="utf-8"))
    squeezed = re.sub(r"\s", "", text)
    for row in (TABLE_4 + TABLE_5).strip().splitlines():
        assert row == "" or re.sub(r"\s", "", row) + r"\\" in squeezed, row
    for dataset, table in TUNED.items():
        rest = squeezed.partition(f"foreachoptimizeron{dataset}}}")[2].partition("bottomrule")[0]
        for row in table.strip().splitlines():
            assert re.sub(r"\s", "", row) + r"\\" in rest, (dataset, row)


@pytest.mark.parametrize(("dataset", "optimizer"), CELLS)
def test_every_recipe_is_valid_and_as_in_the_papers_experiments(dataset: str, optimizer: str) -> None:
    c = paper_recipe(dataset, optimizer, run=2)
    assert isinstance(c, TrainConfig)
    check_options(
        c.optimizer, form=c.form, lr=c.lr, beta1=c.beta1, beta2=c.beta2, nu_min=c.nu_min, weight_decay=c.weight_decay
    )
    assert (c.optimizer, c.seed, c.layers, c.norm, c.bias) == (optimizer, 2, 2, "layer", True)
    assert (c.form, c.batches, c.estimator, c.scheme) == ("torch", "shuffle", "cv", "without-replacement")
    assert (c.beta1, c.beta2, c.eval_every) == (None, None, 1)  # the defaults are the paper's 0.9 and 0.999


def test_pubmed_takes_coras_settings() -> None:
    for optimizer in PAPER_OPTIMIZERS:
        assert paper_recipe("pubmed", optimizer) == paper_recipe("cora", optimizer)
    assert paper_runs("pubmed") == paper_runs("cora")


def test_runs_differ_in_the_seed_alone() -> None:
    first, second = (paper_recipe("cora", "adam", run=run).to_dict() for run in (0, 1))
    assert {name for name in first if first[name] != second[name]} == {"seed"}


def test_unknown_names() -> None:
    with pytest.raises(CvgnnError, match=r"unknown paper dataset 'arxiv'; known: ogbn-arxiv, .*pubmed"):
        paper_recipe("arxiv", "adam")
    with pytest.raises(CvgnnError, match=r"unknown optimizer 'rmsprop'; known: adam, heavy-ball, "):
        paper_recipe("cora", "rmsprop")
    with pytest.raises(CvgnnError, match="unknown optimizer 'rmsprop'"):
        paper_accuracy("cora", "rmsprop")
