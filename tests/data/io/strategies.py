"""Random graphs for property-based tests."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from cvgnn.data import Graph
from cvgnn.data.array_converter import from_arrays

# Whatever text a file can hold; names that are whole numbers come from the branch of integers, and tables trim the white
# space around a cell.
WORDS = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1, max_size=6).filter(
    lambda word: word == word.strip() != "" and not word.strip("-").isdecimal()
)


@st.composite
def graphs(draw: st.DrawFn, *, max_nodes: int = 9, names: bool = True) -> Graph:
    """A graph of 1 to `max_nodes` nodes: weighted or not, directed or not, named or not, labels partly unknown."""
    n = draw(st.integers(1, max_nodes))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    directed, weighted = draw(st.booleans()), draw(st.booleans())
    A = np.triu(rng.random((n, n)) < draw(st.sampled_from([0.0, 0.3, 0.9])), k=1)
    target, source = np.nonzero(A | (A.T & directed & (rng.random((n, n)) < 0.5)))
    width = draw(st.integers(1, 30))
    x = rng.normal(size=(n, width)).astype(np.float32) * (
        rng.random((n, width)) < draw(st.sampled_from([0.02, 0.5, 1]))
    )
    kinds = rng.integers(0, draw(st.integers(1, 4)), size=n)
    _, y = np.unique(kinds, return_inverse=True)  # every class is there
    class_names = None
    if draw(st.booleans()):
        class_names = sorted(draw(st.sets(WORDS, min_size=int(y.max()) + 1, max_size=int(y.max()) + 1)))
    hidden = rng.random(n) < 0.2
    hidden[np.unique(y, return_index=True)[1]] = False  # one of each class stays known
    owner = np.where(hidden, 0, rng.integers(0, 4, size=n))
    owner[np.flatnonzero(~hidden)[0]] = 1  # a training node
    node_names = None
    kind = draw(st.sampled_from(["none", "integers", "words"])) if names else "none"
    if kind == "integers":
        node_names = np.array(draw(st.lists(st.integers(-(2**63), -1), min_size=n, max_size=n, unique=True)))
    elif kind == "words":
        node_names = np.array(draw(st.lists(WORDS, min_size=n, max_size=n, unique=True)))
    return from_arrays(
        np.stack([source, target]),
        x=x,
        y=np.where(hidden, -1, y),
        train_ids=np.flatnonzero(owner == 1),
        val_ids=np.flatnonzero(owner == 2),
        test_ids=np.flatnonzero(owner == 3),
        edge_weight=rng.uniform(0.1, 3.0, size=source.size).astype(np.float32) if weighted else None,
        num_classes=int(y.max()) + 1,
        directed=directed,
        node_names=node_names,
        class_names=class_names,
    )
