"""The paper's experiments and our best settings as configs. Their numbers are in `recipes.toml`."""

from __future__ import annotations

import tomllib
from functools import partial
from pathlib import Path
from typing import Any

from cvgnn.config import TrainConfig
from cvgnn.errors import require_known

_DATA: dict[str, Any] = tomllib.loads(Path(__file__).with_name("recipes.toml").read_text(encoding="utf-8"))

PAPER_OPTIMIZERS = ("adam", "heavy-ball", "amsgrad", "adagrad", "sgd")  # the column order of Table 5
PAPER_DATASETS = tuple(_DATA["papers"])
RECIPE_DATASETS = ("cora", "citeseer", "pubmed", "ogbn-arxiv", "flickr", "reddit")
BEST_DATASETS = tuple(_DATA["bests"])


def paper_recipe(dataset: str, optimizer: str, *, run: int = 0) -> TrainConfig:
    """The config behind one cell of Table 5: Table 4's fixed and Appendix B's tuned settings.

    Everything else is as in the paper's experiments: two layers with LayerNorm and bias, shuffled batches, torch's form
    of the optimizers, the control variate. The neighbor draw is our unbiased default; `scheme="paper"` or `"released"`
    (see `dataclasses.replace`) are the paper's and the published code's. PubMed, which the paper does not have, takes
    Cora's settings.

    Args:
        dataset: a name of Table 2, or `"pubmed"`.
        optimizer: one of the five.
        run: the run's number; runs of one number share their initial weights across optimizers.

    >>> paper_recipe("cora", "adam").num_neighbors
    (5,)
    """
    tables = _paper(dataset)
    require_known("optimizer", optimizer, PAPER_OPTIMIZERS)
    tuned = dict(zip(tables["grid"], tables["tuned"][optimizer], strict=True))
    return TrainConfig(**_DATA["paper"], **tables["fixed"], **tuned, optimizer=optimizer, seed=run)  # type: ignore[arg-type]


def paper_grid(dataset: str) -> dict[str, list[Any]]:
    """The values of Table 3, for all five optimizers, by the config's names.

    >>> paper_grid("reddit")["lr"]
    [0.01, 0.05]
    """
    grid = _paper(dataset)["grid"]
    return {"optimizer": list(PAPER_OPTIMIZERS), **grid, "num_neighbors": [(n,) for n in grid["num_neighbors"]]}


def paper_runs(dataset: str) -> int:
    """Number of runs that the paper averaged (Table 4)."""
    return int(_paper(dataset)["runs"])


def paper_accuracy(dataset: str, optimizer: str) -> float:
    """The cell of Table 5, in percent.

    >>> paper_accuracy("citeseer", "heavy-ball")
    71.07
    """
    require_known("dataset of Table 5", dataset, PAPER_DATASETS)
    require_known("optimizer", optimizer, PAPER_OPTIMIZERS)
    return float(_DATA["papers"][dataset]["accuracy"][optimizer])


def best_recipe(dataset: str, run: int = 0) -> TrainConfig:
    """The best settings that we know for a data set (docs/best.md).

    Args:
        dataset: `"cora"`, `"citeseer"` or `"pubmed"`.
        run: the run's number, its seed.

    >>> best_recipe("cora").estimator
    'cv'
    """
    require_known("dataset with a best recipe", dataset, BEST_DATASETS)
    return TrainConfig(**_DATA["best"], **_DATA["bests"][dataset], seed=run)


cora_best = partial(best_recipe, "cora")
citeseer_best = partial(best_recipe, "citeseer")
pubmed_best = partial(best_recipe, "pubmed")


def _paper(dataset: str) -> dict[str, Any]:
    """The paper's tables for a data set."""
    require_known("paper dataset", dataset, (*PAPER_DATASETS, "pubmed"))
    found: dict[str, Any] = _DATA["papers"]["cora" if dataset == "pubmed" else dataset]
    return found
