"""The user's own names of nodes and classes, and the numbers that stand for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np


def shown(words: Iterable[object]) -> str:
    """Words of a user's file in a message: on one line, whatever is in them.

    >>> print(shown(["a", "b\\nc"]))
    a, 'b\\nc'
    """
    return ", ".join(text if (text := str(word)).isprintable() else repr(text) for word in words)


def as_integers(words: Sequence[str]) -> list[int] | None:
    """The words as 64-bit integers if all of them are integers written in the usual way, else None.

    >>> as_integers(["10", "-2"]), as_integers(["10", "007"]), as_integers(["10", "a"])
    ([10, -2], None, None)
    """
    found = []
    for word in words:
        if not word.removeprefix("-").isdecimal() or not word.isascii():
            return None
        if len(word) > 20 or str(number := int(word)) != word or not -(2**63) <= number < 2**63:
            return None
        found.append(number)
    return found


def name_nodes(words: Sequence[str]) -> np.ndarray | None:
    """Node names as a graph keeps them: integers where all are, None where they are `0..N-1` in order.

    >>> name_nodes(["0", "1"]), name_nodes(["7", "5"]), name_nodes(["a", "7"])
    (None, array([7, 5]), array(['a', '7'], dtype='<U1'))
    """
    found = as_integers(words)
    if found is None:
        return np.array(words)
    return None if found == list(range(len(found))) else np.array(found, dtype=np.int64)


def number_labels(vocabulary: Sequence[str]) -> tuple[list[int], tuple[str, ...] | None]:
    """The class of each label: `0..C-1` stay as they are; others are numbered in sorted order.

    Args:
        vocabulary: each label once.

    Returns:
        The class of each entry of `vocabulary`, and the labels by class (None where they are `0..C-1`).

    >>> number_labels(["1", "0"]), number_labels(["20", "3"]), number_labels(["b", "a", "10"])
    (([1, 0], None), ([1, 0], ('3', '20')), ([2, 1, 0], ('10', 'a', 'b')))
    """
    found = as_integers(vocabulary)
    if found is not None and sorted(found) == list(range(len(found))):
        return found, None
    names = sorted(vocabulary) if found is None else [str(number) for number in sorted(found)]
    number = {label: c for c, label in enumerate(names)}
    return [number[label] for label in vocabulary], tuple(names)
