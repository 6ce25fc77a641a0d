"""Random splits, for graphs that have none."""

from __future__ import annotations

import dataclasses
from typing import final

import numpy as np

from cvgnn.data.labels import labelled
from cvgnn.errors import require
from cvgnn.rng import Purpose, numpy_generator

SPLITS = ("train", "val", "test")


@final
@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomSplit:
    """A random split of the labelled nodes: by fractions, or by a number of training nodes per class.

    Args:
        seed: the split is a pure function of it and of the labels.
        train, val: shares of the labelled nodes; the rest is for testing.
        per_class: training nodes drawn from each class; then `val` and the rest share the remaining nodes as
            `val : 1 - train - val`. None splits by fractions alone.
        allow_unlabelled: whether a graph without any label gets an empty split, instead of an error: one to predict on.

    >>> RandomSplit(seed=0, train=0.5, val=0.25).describe()
    'random: seed 0, fractions 0.5/0.25/0.25'
    """

    seed: int = 0
    train: float = 0.6
    val: float = 0.2
    per_class: int | None = None
    allow_unlabelled: bool = False

    def __post_init__(self) -> None:
        require(
            0 < self.train < 1 and 0 <= self.val < 1 and self.train + self.val <= 1,
            f"split fractions must be positive and sum to at most 1, not {self.train} and {self.val}",
        )
        require(self.per_class is None or self.per_class >= 1, f"per_class must be at least 1, not {self.per_class}")

    def describe(self) -> str:
        """The seed and sizes of the split, for the record of a run."""
        train = f"{self.per_class} a class" if self.per_class is not None else f"{self.train:g}"
        return f"random: seed {self.seed}, fractions {train}/{self.val:g}/{1 - self.train - self.val:g}"

    def ids(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Training, validation and test ids, each ascending; nodes without a label are in none.

        Args:
            y: labels, in a form of `cvgnn.data.labels`.
        """
        known = np.flatnonzero(labelled(y))
        if known.size == 0 and self.allow_unlabelled:
            return known, known, known
        require(known.size > 0, "no node has a label, so there is nothing to split")
        require(
            y.ndim == 1 or self.per_class is None, "per_class is for labels that are one class a node; leave it out"
        )
        order = numpy_generator(self.seed, Purpose.SPLIT).permutation(known)
        if self.per_class is None:
            num_train = max(1, round(self.train * known.size))
            train, rest = order[:num_train], order[num_train:]
        else:
            by_class = np.argsort(y[order], kind="stable")
            starts = np.searchsorted(y[order][by_class], y[order][by_class])
            chosen = np.empty(order.size, dtype=bool)
            chosen[by_class] = np.arange(order.size) - starts < self.per_class  # rank within the class
            train, rest = order[chosen], order[~chosen]
        num_val = round(self.val / (1 - self.train) * rest.size)
        return np.sort(train), np.sort(rest[:num_val]), np.sort(rest[num_val:])
