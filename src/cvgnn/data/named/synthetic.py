"""Synthetic graphs of any size: a degree-corrected stochastic block model with learnable features.

Each class has two blocks of nodes. An edge inside a class joins two nodes of one block, an edge across joins two
classes; either way its ends are drawn by heavy-tailed propensities. Features of the two blocks of class `c` lie around
`0.6 mu_c + nu_c` and `0.6 mu_c - nu_c`, with unit vectors `mu_c`, `nu_c`. A linear model can use `mu_c`; `nu_c`
cancels in the mean of a class (the XOR problem), so using it takes a hidden layer. docs/synthetic.md has measurements.

Importing this module loads neither torch nor numba, so that listing the presets is fast.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np

from cvgnn.data.named.catalog import SYNTHETIC, SYNTHETIC_OPTIONS
from cvgnn.errors import CvgnnError, require, require_integer, require_known, require_number
from cvgnn.rng import Purpose, derive, numpy_generator
from cvgnn.utils.progress import ProgressCallback, ProgressReporter, no_progress

if TYPE_CHECKING:
    from cvgnn.data import Graph

NewArray = Callable[[str, tuple[int, ...], Any], np.ndarray]

VERSION = 1  # of the generator, in the folder name of a preset; raised when the same spec gives another graph
BLOCKS_PER_CLASS = 2
LINEAR_SIGNAL = 0.6

_ELEMENTS_PER_PIECE = 1 << 22


class _Stream(IntEnum):
    """The streams of random numbers, one per use: the coordinate after `Purpose.SYNTHETIC`."""

    BLOCKS, PROPENSITY, HOMOPHILY, INSIDE, ACROSS, CENTRES, FEATURES, SPLIT = range(8)


@final
@dataclasses.dataclass(frozen=True, kw_only=True)
class SyntheticSpec:
    """The specification of a synthetic graph; the graph is a pure function of these fields.

    Args:
        num_nodes: `N`.
        num_edges: entries of `A`, twice the number of undirected edges; exact.
        num_features, num_classes: `F` and `C`. Classes are of equal size.
        train, val, test: number of nodes in each part of the random split; every class occurs in training.
        homophily: share of edges that join two nodes of one class; exact. It differs from node to node.
        degree_exponent: `g` of the power law `p(d) ~ d^-g` of expected degrees.
        max_degree: cut-off of that law: the largest expected degree if no edge is drawn twice. The maximum in the
            graph is lower, most of all where hubs are connected to most of their block. None for no cut-off.
        feature_noise: standard deviation in every column; the centres have norm 1.17.
        seed: of all draws.
        name: of the graph.

    >>> SyntheticSpec(num_nodes=100, num_edges=401, num_features=4, num_classes=2, train=50, val=25, test=25)
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
        for field, low in (least | {"seed": 0}).items():
            require_integer(field, getattr(self, field), at_least=low)
        for field, start, end in (("homophily", 0, 1), ("degree_exponent", 1.5, 10), ("feature_noise", 0, 1e6)):
            rule = f"a number in {start:g}..{end:g}"
            require_number(field, getattr(self, field), rule, at_least=start, at_most=end)
        n, classes, mean = self.num_nodes, self.num_classes, self.num_edges / self.num_nodes
        few = 2 * BLOCKS_PER_CLASS * classes
        require(few <= n < 2**31, f"num_nodes must lie in {few}..2^31-1 for {classes} classes, not {n}")
        even = self.num_edges % 2 == 0
        require(even, f"num_edges counts every edge in both directions, so it must be even, not {self.num_edges}")
        total = self.train + self.val + self.test
        require(total <= n, f"train, val and test add up to {total}, more than the {n} nodes")
        require(self.train >= classes, f"train must be at least {classes}, one node per class, not {self.train}")
        if self.max_degree is not None:
            require_integer("max_degree", self.max_degree, at_least=1)
            reachable = self.max_degree >= mean
            require(reachable, f"max_degree must be at least the mean degree, {mean:g}, not {self.max_degree}")
        # Distinct edges are drawn by rejection, which slows down as the pairs of nodes run out.
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
        """Description of the split, for the record of a run."""
        return f"random: seed {self.seed}, {self.train}/{self.val}/{self.test} nodes"


PRESETS: dict[str, SyntheticSpec] = {
    name: SyntheticSpec(
        name=name, num_nodes=c.nodes, num_edges=2 * c.edges, num_features=c.features, num_classes=c.classes,
        train=c.split[0], val=c.split[1], test=c.split[2], **SYNTHETIC_OPTIONS[name],
    )
    for name, c in SYNTHETIC.items()
}  # fmt: skip


def small_spec(num_nodes: int = 20_000, *, seed: int = 0) -> SyntheticSpec:
    """A spec for tests and examples: 10 neighbors per node, 64 features, 8 classes, a split of 50/25/25 %.

    >>> generate(small_spec(1000))
    Graph(synthetic-small: 1000 nodes, 5000 edges, 64 dense features, 8 classes, split 500/250/250)
    """
    part = num_nodes // 4
    return SyntheticSpec(
        name="synthetic-small", num_nodes=num_nodes, num_edges=10 * num_nodes, num_features=64, num_classes=8,
        train=2 * part, val=part, test=part, max_degree=num_nodes // 10, seed=seed,
    )  # fmt: skip


def generate(spec: SyntheticSpec) -> Graph:
    """Generate the graph of a spec in memory."""
    import torch

    from cvgnn.data import Graph

    arrays: dict[str, np.ndarray] = {}
    _build(spec, lambda name, shape, dtype: arrays.setdefault(name, np.empty(shape, dtype)), no_progress)
    tensors: dict[str, Any] = {name: torch.from_numpy(array) for name, array in arrays.items()}
    return Graph(**tensors, num_classes=spec.num_classes, name=spec.name, split=spec.split, validated=True)


def generate_store(spec: SyntheticSpec, path: Path, *, progress: ProgressCallback = no_progress) -> None:
    """Generate the graph of a spec into a new store: the same graph as from `generate`.

    Takes 20 to 32 bytes of memory per undirected edge and about 100 per node. Features are streamed and take none.

    Args:
        spec: the specification.
        path: a folder that does not exist yet, or is empty.
        progress: called with the name of the stage and the share that is done, in 0..1.
    """
    from cvgnn.data.store import StoreWriter

    with StoreWriter(path, progress=progress) as writer:
        _build(spec, writer.array, progress)
        writer.finish({"name": spec.name, "num_classes": spec.num_classes, "split": spec.split})


def load_preset(name: str, root: Path, *, progress: ProgressCallback | None = None) -> Graph:
    """Load a preset by name; the first call generates it into the store `root/NAME-v1`.

    Args:
        name: a key of `PRESETS`.
        root: folder of the stores; created if it does not exist.
        progress: as for `generate_store`; by default it is shown on standard error.
    """
    from cvgnn.data.store import is_store, open_store

    require_known("synthetic graph", name, PRESETS)
    folder = Path(root) / f"{name}-v{VERSION}"
    if not is_store(folder):
        try:
            with ProgressReporter(f"generating {name}") as reporter:
                generate_store(PRESETS[name], folder, progress=progress or reporter)
        except CvgnnError:
            if not is_store(folder):  # else another process has generated it in the meantime
                raise
    return open_store(folder)


def _build(spec: SyntheticSpec, new_array: NewArray, report: ProgressCallback, *, listed: Any = None) -> None:
    """Fill all arrays of the graph; the edges go to `listed`, if it is given.

    The result does not depend on the sizes of the pieces in which they are filled.
    """
    from cvgnn.ops import synthetic_kernels as kernels

    # Blocks of equal size, as ranges of a random permutation of the nodes.
    n, num_blocks = spec.num_nodes, BLOCKS_PER_CLASS * spec.num_classes
    of_place = np.arange(n) * num_blocks // n
    start = np.searchsorted(of_place, np.arange(num_blocks + 1))
    node = _generator(spec, _Stream.BLOCKS).permutation(n).astype(np.int32)  # block b is node[start[b]:start[b + 1]]
    block = np.empty(n, np.int64)
    block[node] = of_place

    # Every draw is a pure function of a key and its number, so that pieces of any size give the same edges.
    edges = kernels.EdgeSet(spec.num_edges // 2, node, start, BLOCKS_PER_CLASS, listed=listed)
    inside, across = propensities(spec)
    edges.draw(_key(spec, _Stream.INSIDE), spec.edge_counts[0], inside[node], inside=True, progress=report)
    edges.draw(_key(spec, _Stream.ACROSS), spec.edge_counts[1], across[node], inside=False, progress=report)
    if listed is None:
        edges.write_rows(new_array, progress=report)
    del edges, inside, across

    # Features: the centre of the node's block, `0.6 mu_c + nu_c` or `0.6 mu_c - nu_c`, and Gaussian noise.
    mu, nu = _generator(spec, _Stream.CENTRES).standard_normal((2, spec.num_classes, spec.num_features))
    mu, nu = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in (mu, nu))
    centre = np.stack([LINEAR_SIGNAL * mu + nu, LINEAR_SIGNAL * mu - nu], axis=1, dtype=np.float32, casting="same_kind")
    centre = centre.reshape(num_blocks, spec.num_features)
    x = np.asarray(new_array("x", (n, spec.num_features), np.float32))
    rows = max(1, _ELEMENTS_PER_PIECE // spec.num_features)
    noise, key = np.float32(spec.feature_noise), _key(spec, _Stream.FEATURES)
    for first in range(0, n, rows):
        kernels.fill_features(x[first : first + rows], first, block[first : first + rows], centre, noise, key)
        report("features", min(1.0, (first + rows) / n))

    y = new_array("y", (n,), np.int64)
    y[:] = block // BLOCKS_PER_CLASS
    order = _generator(spec, _Stream.SPLIT).permutation(n)
    first_of_class = np.unique(y[order], return_index=True)[1]  # in training, so that every class occurs there
    order = np.concatenate([order[first_of_class], np.delete(order, first_of_class)])
    parts = np.split(order, np.cumsum([spec.train, spec.val, spec.test]))[:3]
    for part, ids in zip(("train_ids", "val_ids", "test_ids"), parts, strict=True):
        new_array(part, ids.shape, np.int64)[:] = np.sort(ids)


def propensities(spec: SyntheticSpec) -> tuple[np.ndarray, np.ndarray]:
    """Weights by which each node is drawn for an edge inside its class and for an edge across: float64 `[N]`, twice.

    Their sum `t` holds the quantiles of a power law on `[1, R]`. `R` is chosen such that `max(t) / mean(t)` is
    `max_degree` over the mean degree, or as close as possible. The share inside is the homophily of the node: the
    quantiles of `u^k`, `u` uniform, whose mean `1 / (k + 1)` is `homophily`. Both are permuted at random.
    """
    n, g = spec.num_nodes, spec.degree_exponent

    def quantile(u: Any, log_R: float) -> Any:
        return (1.0 + u * math.expm1((1.0 - g) * log_R)) ** (1.0 / (1.0 - g))

    def mean(log_R: float) -> float:
        rise = log_R if g == 2.0 else math.expm1((2.0 - g) * log_R) / (2.0 - g)
        return (1.0 - g) * rise / math.expm1((1.0 - g) * log_R)

    low, high = 1e-9, 60.0  # bisection for log R; without a cut-off R is e^60
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


def _key(spec: SyntheticSpec, stream: _Stream) -> np.uint64:
    return np.uint64(derive(spec.seed, Purpose.SYNTHETIC, stream))


def _generator(spec: SyntheticSpec, stream: _Stream) -> np.random.Generator:
    return numpy_generator(spec.seed, Purpose.SYNTHETIC, stream)


def generate_tables(spec: SyntheticSpec, folder: Path, *, progress: ProgressCallback = no_progress) -> None:
    """Write a graph of any number of edges as tables for `cvgnn convert`: nodes.parquet, edges.npy and features.npy.

    The model is that of `generate`, but nobody remembers the edges that were drawn: an edge that is drawn again is
    listed again, so the graph has somewhat fewer edges than the spec. Takes about 100 bytes of memory for a node.

    Args:
        spec: the specification; `num_edges // 2` edges are listed.
        folder: is made.
        progress: called with the name of the stage and the share that is done, in 0..1.
    """
    import pyarrow as pa
    from pyarrow import parquet

    folder.mkdir(parents=True)
    edges = np.lib.format.open_memmap(folder / "edges.npy", mode="w+", dtype=np.int32, shape=(spec.num_edges // 2, 2))

    arrays: dict[str, np.ndarray] = {}

    def new_array(name: str, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        if name == "x":
            return np.lib.format.open_memmap(folder / "features.npy", mode="w+", dtype=dtype, shape=shape)
        return arrays.setdefault(name, np.empty(shape, dtype))

    _build(spec, new_array, progress, listed=edges)
    split = np.full(spec.num_nodes, "", dtype="<U5")
    for part in ("train", "val", "test"):
        split[arrays[f"{part}_ids"]] = part
    label = pa.array(arrays["y"].astype(np.int32), mask=split == "")  # of nodes outside the split nothing is known
    columns = {"id": pa.array(np.arange(spec.num_nodes)), "label": label, "split": pa.array(split)}
    parquet.write_table(pa.table(columns), folder / "nodes.parquet")
