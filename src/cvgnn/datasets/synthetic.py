"""Synthetic graphs of any size: a degree-corrected stochastic block model with features, made to be learned.

Each class has two blocks of nodes. An edge inside a class joins two nodes of one block, an edge across joins two
classes; either way its ends are drawn by heavy-tailed propensities. Features of the two blocks of class `c` lie around
`0.6 mu_c + nu_c` and `0.6 mu_c - nu_c`, with unit vectors `mu_c`, `nu_c`. A linear model can read `mu_c`; `nu_c`
cancels in the mean of a class (the XOR problem), so using it takes a hidden layer. docs/synthetic.md has the figures.

Importing this file loads neither torch nor numba, so that presets can be listed at once.
"""

from __future__ import annotations

import dataclasses
import math
import sys
import time
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np

from cvgnn.errors import CvgnnError, require, unknown_name
from cvgnn.rng import Purpose, derive, numpy_generator

if TYPE_CHECKING:
    from cvgnn.graph import Graph

Progress = Callable[[str, float], None]
NewArray = Callable[[str, tuple[int, ...], Any], np.ndarray]

VERSION = 1  # of the generator: part of a preset's folder name, raised when a spec would give another graph
BLOCKS_PER_CLASS = 2
LINEAR_SIGNAL = 0.6

_ELEMENTS_PER_PIECE = 1 << 22


class _Stream(IntEnum):
    """What a key is for; the coordinate behind `Purpose.SYNTHETIC`."""

    BLOCKS, PROPENSITY, HOMOPHILY, INSIDE, ACROSS, CENTRES, FEATURES, SPLIT = range(8)


@final
@dataclasses.dataclass(frozen=True, kw_only=True)
class SyntheticGraph:
    """What defines a synthetic graph; the graph is a pure function of these fields.

    Args:
        num_nodes: `N`.
        num_edges: entries of `A`, twice the number of undirected edges; met exactly.
        num_features, num_classes: `F` and `C`. Classes are of equal size.
        train, val, test: number of nodes in each part of the random split; every class occurs in training.
        homophily: share of edges that join two nodes of one class; met exactly. It differs from node to node.
        degree_exponent: `g` of the power law `p(d) ~ d^-g` of expected degrees.
        max_degree: cut-off of that law: the largest expected degree, were no edge drawn twice. The graph's own
            maximum is lower, the more so where hubs have drawn most of their block. None for no cut-off.
        feature_noise: standard deviation in every column; the centres have norm 1.17.
        seed: of all draws.
        name: of the graph.

    >>> SyntheticGraph(num_nodes=100, num_edges=401, num_features=4, num_classes=2, train=50, val=25, test=25)
    Traceback (most recent call last):
    cvgnn.errors.CvgnnError: num_edges counts every edge in both directions, so it must be even, not 401
    """

    num_nodes: int
    num_edges: int
    num_features: int
    num_classes: int
    train: int
    val: int
    test: int
    homophily: float = 0.6
    degree_exponent: float = 2.5
    max_degree: int | None = None
    feature_noise: float = 0.8
    seed: int = 0
    name: str = "synthetic"

    def __post_init__(self) -> None:
        least = {"num_nodes": 1, "num_edges": 2, "num_features": 1, "num_classes": 2, "train": 1, "val": 0, "test": 0}
        least |= {"seed": 0} if self.max_degree is None else {"seed": 0, "max_degree": 1}
        for field, low in least.items():
            value = getattr(self, field)
            whole = isinstance(value, int) and not isinstance(value, bool) and value >= low
            require(whole, f"{field} must be a whole number of at least {low}, not {value!r}")
        for field, span in {"homophily": (0, 1), "degree_exponent": (1.5, 10), "feature_noise": (0, 1e6)}.items():
            value = getattr(self, field)
            number = isinstance(value, int | float) and span[0] <= value <= span[1]
            require(number, f"{field} must be a number in {span[0]:g}..{span[1]:g}, not {value!r}")
        n, classes, mean = self.num_nodes, self.num_classes, self.num_edges / self.num_nodes
        few = 2 * BLOCKS_PER_CLASS * classes
        require(few <= n < 2**31, f"num_nodes must lie in {few}..2^31-1 for {classes} classes, not {n}")
        even = self.num_edges % 2 == 0
        require(even, f"num_edges counts every edge in both directions, so it must be even, not {self.num_edges}")
        parts = self.train + self.val + self.test
        require(parts <= n, f"train, val and test add up to {parts}, more than the {n} nodes")
        require(self.train >= classes, f"train must be at least {classes}, a node for each class, not {self.train}")
        reachable = self.max_degree is None or self.max_degree >= mean
        require(reachable, f"max_degree must be at least the mean degree, {mean:g}, not {self.max_degree}")
        size = n / (BLOCKS_PER_CLASS * classes)
        pairs = {"inside": n * (size - 1) / 2, "across": n * (n - BLOCKS_PER_CLASS * size) / 2}
        for (where, most), edges in zip(pairs.items(), self.edge_counts, strict=True):
            require(
                4 * edges <= most,
                f"{edges} edges {where} classes are too many: at most a quarter of the {most:.0f} pairs of nodes there "
                "can be edges; lower num_edges or num_classes, or change homophily",
            )

    @property
    def edge_counts(self) -> tuple[int, int]:
        """Undirected edges inside classes, and across them."""
        inside = round(self.homophily * (self.num_edges // 2))
        return inside, self.num_edges // 2 - inside

    @property
    def split(self) -> str:
        """How the split comes about, for the record."""
        return f"random: seed {self.seed}, {self.train}/{self.val}/{self.test} nodes"


PRESETS: dict[str, SyntheticGraph] = {
    spec.name: spec
    for spec in (
        SyntheticGraph(
            name="synthetic-20k", num_nodes=20_000, num_edges=300_000, num_features=64, num_classes=16,
            train=6_000, val=4_000, test=10_000, max_degree=1_000,
        ),
        SyntheticGraph(
            name="synthetic-flickr", num_nodes=89_250, num_edges=899_756, num_features=500, num_classes=7,
            train=44_625, val=22_312, test=22_313, max_degree=8_000,
        ),
        SyntheticGraph(
            name="synthetic-arxiv", num_nodes=169_343, num_edges=2_315_598, num_features=128, num_classes=40,
            train=90_941, val=29_799, test=48_603, degree_exponent=2.3, max_degree=50_000, feature_noise=0.6,
        ),
        SyntheticGraph(
            name="synthetic-reddit", num_nodes=232_965, num_edges=114_615_892, num_features=602, num_classes=41,
            train=153_431, val=23_831, test=55_703, homophily=0.5, degree_exponent=1.8, max_degree=37_000,
            feature_noise=3.0,
        ),
    )
}  # fmt: skip


def small_spec(num_nodes: int = 20_000, *, seed: int = 0) -> SyntheticGraph:
    """A spec for tests and examples: 10 neighbors a node, 64 features, 8 classes, a split of 50/25/25 %.

    >>> generate(small_spec(1000))
    Graph(synthetic-small: 1000 nodes, 5000 edges, 64 dense features, 8 classes, split 500/250/250)
    """
    part = num_nodes // 4
    return SyntheticGraph(
        name="synthetic-small", num_nodes=num_nodes, num_edges=10 * num_nodes, num_features=64, num_classes=8,
        train=2 * part, val=part, test=part, max_degree=num_nodes // 10, seed=seed,
    )  # fmt: skip


def generate(spec: SyntheticGraph) -> Graph:
    """The graph of a spec, in memory."""
    import torch

    from cvgnn.graph import Graph

    arrays: dict[str, np.ndarray] = {}
    _build(spec, lambda name, shape, dtype: arrays.setdefault(name, np.empty(shape, dtype)), lambda *_: None)
    tensors: dict[str, Any] = {name: torch.from_numpy(array) for name, array in arrays.items()}
    return Graph(**tensors, num_classes=spec.num_classes, name=spec.name, split=spec.split, validated=True)


def generate_store(spec: SyntheticGraph, path: Path, *, progress: Progress | None = None) -> None:
    """The graph of a spec, the same as from `generate`, streamed into a new store.

    Takes 20 to 32 bytes of memory for an undirected edge and about 100 for a node; features take none.

    Args:
        spec: what to make.
        path: a folder that does not exist yet, or is empty.
        progress: called with what is being done and a share in 0..1.
    """
    from cvgnn.store import StoreWriter

    with StoreWriter(path, progress=progress) as writer:
        _build(spec, writer.array, progress or (lambda *_: None))
        writer.finish({"name": spec.name, "num_classes": spec.num_classes, "split": spec.split})


def load_preset(name: str, root: Path, *, progress: Progress | None = None) -> Graph:
    """A preset by name; on first use it is generated into the store `root/NAME-v1`.

    Args:
        name: a key of `PRESETS`.
        root: folder of the stores; made if it does not exist.
        progress: as for `generate_store`; lines on standard error if not given.
    """
    from cvgnn.store import is_store, open_store

    if name not in PRESETS:
        raise unknown_name("synthetic graph", name, PRESETS)
    folder = Path(root) / f"{name}-v{VERSION}"
    if not is_store(folder):
        try:
            generate_store(PRESETS[name], folder, progress=progress or _lines(f"generating {name}"))
        except CvgnnError:
            if not is_store(folder):  # if it is there now, another process was faster
                raise
    return open_store(folder)


def _build(spec: SyntheticGraph, new_array: NewArray, tell: Progress) -> None:
    """All arrays of the graph, the same whatever the sizes of the pieces they are made in."""
    from cvgnn.ops import synthetic_kernels as kernels

    n, num_blocks = spec.num_nodes, BLOCKS_PER_CLASS * spec.num_classes
    of_place = np.arange(n) * num_blocks // n
    start = np.searchsorted(of_place, np.arange(num_blocks + 1))
    node = _generator(spec, _Stream.BLOCKS).permutation(n).astype(np.int32)  # block b is node[start[b]:start[b + 1]]
    block = np.empty(n, np.int64)
    block[node] = of_place

    edges = kernels.EdgeSet(spec.num_edges // 2, node, start, BLOCKS_PER_CLASS)
    inside, across = propensities(spec)
    edges.draw(_key(spec, _Stream.INSIDE), spec.edge_counts[0], inside[node], inside=True, tell=tell)
    edges.draw(_key(spec, _Stream.ACROSS), spec.edge_counts[1], across[node], inside=False, tell=tell)
    edges.write_rows(new_array, tell=tell)

    mu, nu = _generator(spec, _Stream.CENTRES).standard_normal((2, spec.num_classes, spec.num_features))
    mu, nu = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in (mu, nu))
    centre = np.stack([LINEAR_SIGNAL * mu + nu, LINEAR_SIGNAL * mu - nu], axis=1, dtype=np.float32, casting="same_kind")
    centre = centre.reshape(num_blocks, spec.num_features)
    x = np.asarray(new_array("x", (n, spec.num_features), np.float32))
    rows = max(1, _ELEMENTS_PER_PIECE // spec.num_features)
    noise, key = np.float32(spec.feature_noise), _key(spec, _Stream.FEATURES)
    for first in range(0, n, rows):
        kernels.fill_features(x[first : first + rows], first, block[first : first + rows], centre, noise, key)
        tell("features", min(1.0, (first + rows) / n))

    y = new_array("y", (n,), np.int64)
    y[:] = block // BLOCKS_PER_CLASS
    order = _generator(spec, _Stream.SPLIT).permutation(n)
    first_of_class = np.unique(y[order], return_index=True)[1]  # these go to training, so that every class occurs
    order = np.concatenate([order[first_of_class], np.delete(order, first_of_class)])
    parts = np.split(order, np.cumsum([spec.train, spec.val, spec.test]))[:3]
    for part, ids in zip(("train_ids", "val_ids", "test_ids"), parts, strict=True):
        new_array(part, ids.shape, np.int64)[:] = np.sort(ids)


def propensities(spec: SyntheticGraph) -> tuple[np.ndarray, np.ndarray]:
    """float64 `[N]`, twice: how readily each node takes an edge inside its class, and one across.

    Their sum `t` holds the quantiles of a power law on `[1, R]`; `R` makes the largest, over the mean, `max_degree`
    over the mean degree, or as near to it as can be. The share inside is the node's own homophily: the quantiles of
    `u^k`, `u` uniform, whose mean `1 / (k + 1)` is `homophily`. Both are dealt to the nodes in random order.
    """
    n, g = spec.num_nodes, spec.degree_exponent

    def quantile(u: Any, log_R: float) -> Any:
        return (1.0 + u * math.expm1((1.0 - g) * log_R)) ** (1.0 / (1.0 - g))

    def mean(log_R: float) -> float:
        rise = log_R if g == 2.0 else math.expm1((2.0 - g) * log_R) / (2.0 - g)
        return (1.0 - g) * rise / math.expm1((1.0 - g) * log_R)

    low, high = 1e-9, 60.0
    if spec.max_degree is not None:
        for _ in range(100):
            middle = (low + high) / 2
            reached = quantile(1.0 - 0.5 / n, middle) / mean(middle) * spec.num_edges / n >= spec.max_degree
            low, high = (low, middle) if reached else (middle, high)
    levels = (np.arange(n) + 0.5) / n
    t = quantile(_generator(spec, _Stream.PROPENSITY).permutation(levels), high)
    k = 1.0 / max(spec.homophily, 1e-9) - 1.0
    inside = t * _generator(spec, _Stream.HOMOPHILY).permutation(levels) ** k
    return inside, t - inside


def _key(spec: SyntheticGraph, stream: _Stream) -> np.uint64:
    return np.uint64(derive(spec.seed, Purpose.SYNTHETIC, stream))


def _generator(spec: SyntheticGraph, stream: _Stream) -> np.random.Generator:
    return numpy_generator(spec.seed, Purpose.SYNTHETIC, stream)


def _lines(what: str) -> Progress:
    """Progress as a line on standard error every ten seconds, the first after two."""
    due = time.monotonic() + 2.0

    def show(stage: str, share: float) -> None:
        nonlocal due
        if time.monotonic() >= due:
            print(f"{what}: {stage} {100 * share:.0f}%", file=sys.stderr, flush=True)
            due = time.monotonic() + 10.0

    return show
