"""Names of nodes and classes in the user's data, and the integers that stand for them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def as_integers(texts: Sequence[str]) -> list[int] | None:
    """The texts as integers if each is a 64-bit integer in the form that `str(int)` writes, else None.

    >>> as_integers(["10", "-2"]), as_integers(["10", "007"]), as_integers(["10", "a"])
    ([10, -2], None, None)
    """
    try:
        # 20 characters hold every 64-bit integer; Python refuses or is slow to parse much longer ones.
        found = [int(text[:21]) for text in texts]
    except ValueError:
        return None
    canonical = all(str(number) == text for number, text in zip(found, texts, strict=True))
    return found if canonical and all(-(2**63) <= number < 2**63 for number in found) else None


def name_nodes(texts: Sequence[str]) -> np.ndarray | None:
    """Node names as a graph keeps them: integers where all are, None where they are `0..N-1` in order.

    >>> name_nodes(["0", "1"]), name_nodes(["7", "5"]), name_nodes(["a", "7"])
    (None, array([7, 5]), array(['a', '7'], dtype='<U1'))
    """
    found = as_integers(texts)
    if found is None:
        return np.array(texts)
    return None if found == list(range(len(found))) else np.array(found, dtype=np.int64)


def number_labels(labels: Sequence[str]) -> tuple[list[int], tuple[str, ...] | None]:
    """Number the classes: labels that are `0..C-1` stay as they are, others are numbered in sorted order.

    Args:
        labels: of any number of nodes, "" where unknown.

    Returns:
        The class of each entry of `labels`, -1 where unknown; and the labels by class, None where they are `0..C-1`.

    >>> number_labels(["1", "0", "", "1"]), number_labels(["20", "3"]), number_labels(["b", "a", "10"])
    (([1, 0, -1, 1], None), ([1, 0], ('3', '20')), ([2, 1, 0], ('10', 'a', 'b')))
    """
    vocabulary = {label for label in labels if label}
    integers = as_integers(list(vocabulary))
    names = sorted(vocabulary) if integers is None else [str(number) for number in sorted(integers)]
    number = {"": -1} | {label: c for c, label in enumerate(names)}
    in_order = names == [str(c) for c in range(len(names))]
    return [number[label] for label in labels], None if in_order else tuple(names)
