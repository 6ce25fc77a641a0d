"""Partition a graph: nodes renumbered so that shards are contiguous, and one folder of arrays for each shard.

A shard has the rows of `X` and `P X` of its nodes, and the columns of `A` that belong to them. So for any target a rank
knows which of its neighbors are its own, and sums over these.
"""

from __future__ import annotations

import dataclasses
import itertools
import secrets
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, final, get_args

import numpy as np
import torch
from torch import Tensor

from cvgnn._version import __version__
from cvgnn.data import Graph, Propagation, SparseFeatures
from cvgnn.data.propagation import AGGREGATIONS, Aggregation, row_sums
from cvgnn.data.split import SPLITS
from cvgnn.data.store.header import ArrayEntry, DamagedStore, check_fields
from cvgnn.data.store.save_graph import plain_names
from cvgnn.data.store.store_reader import as_tensor, compute_sha256, get_features, map_array, npy_header
from cvgnn.data.subgraph import feature_rows, row_entries
from cvgnn.errors import CvgnnError, require, require_integer, require_known
from cvgnn.ops.row_sum import row_blocks
from cvgnn.ops.shard_kernels import stream_partition
from cvgnn.sampling.features import FEATURE_NORMS, FeatureNorm, normalized
from cvgnn.utils import atomic_files
from cvgnn.utils.checked_json import add_checksum, digest, has_valid_checksum, parse_object
from cvgnn.utils.progress import ProgressCallback, no_progress

Method = Literal["metis", "stream", "range"]
METHODS: tuple[str, ...] = get_args(Method)
FORMAT, VERSION, HEADER = "cvgnn-partition", 2, "partition.json"

_ENTRIES_PER_BLOCK = 1 << 22
_SLACK = 1.05  # how much more than its share of the load a part of `stream` may have


class Balance(NamedTuple):
    """How good a partition is.

    Args:
        edge_cut: share of the entries of `A` that join two shards.
        nodes, edges, train: the largest shard over the mean.
    """

    edge_cut: float
    nodes: float
    edges: float
    train: float


def partition_graph(
    graph: Graph,
    path: Path,
    *,
    shards: int = 8,
    method: Method = "stream",
    propagate: Aggregation = "symmetric",
    feature_norm: FeatureNorm = "none",
    progress: ProgressCallback | None = None,
) -> Balance:
    """Cut a graph into shards and write them to a new folder.

    Args:
        graph: in memory or from a store.
        path: a folder that does not exist yet.
        shards: `V`, a power of two: sums over shards are taken pairwise, in an order that any number of ranks keeps.
        method: `"metis"` (needs pymetis: the fewest edges between shards), `"stream"` (one greedy pass over the nodes)
            or `"range"` (keeps the order of the nodes).
        propagate: the normalization of `P X`: `"mean"` for SAGE, `"sum"` for GIN.
        feature_norm: what `X` is divided by, see `propagate_features`; `P X` is that of the result.
        progress: called with a stage and a share in 0..1.
    """
    progress = progress or no_progress
    require_known("method", method, METHODS)
    require_known("propagate", propagate, AGGREGATIONS)
    require_known("feature_norm", feature_norm, FEATURE_NORMS)
    require_integer("shards", shards, at_least=1)
    require(shards & (shards - 1) == 0, f"shards must be a power of two, such as 8, not {shards}")
    require(shards <= graph.num_nodes, f"shards must be at most the number of nodes, {graph.num_nodes}, not {shards}")
    require(graph.graph_ids is None and graph.edge_label is None, "only graphs with labels at nodes are partitioned")
    require(graph.cutout is None, "a compact store cannot be partitioned; partition the whole graph")
    require(not path.exists() or not any(path.iterdir()), f"output folder {path} is not empty; choose another")
    order, starts = _assign(graph, shards, method)
    if feature_norm != "none":
        graph = dataclasses.replace(graph, x=normalized(graph.x, feature_norm), PX=None, validated=True)
    PX = _propagated(graph, propagate)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.parent / f".{path.name}.{secrets.token_hex(4)}.partial"
    partial.mkdir()
    try:
        with atomic_files.report_errors(f"cannot write {path}", "choose another folder"):
            balance = _write(graph, PX, partial, order, starts, progress)
            fields = {
                "name": graph.name, "num_nodes": graph.num_nodes, "num_edges": graph.num_edges,
                "num_features": graph.num_features, "num_classes": graph.num_classes,
                "class_names": None if graph.class_names is None else list(graph.class_names), "split": graph.split,
                "directed": graph.directed, "starts": starts.tolist(), "method": method, "PX_normalization": propagate,
                "feature_norm": feature_norm,
                "sparse": isinstance(graph.x, SparseFeatures), "balance": balance._asdict(),
            }  # fmt: skip
            arrays = _checksums(partial, progress)
            header = {"format": FORMAT, "version": VERSION, "cvgnn": __version__, "graph": fields, "arrays": arrays}
            atomic_files.write_new(partial / HEADER, add_checksum(header))
            atomic_files.sync_folder(partial)
            atomic_files.rename(partial, path)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return balance


def _assign(graph: Graph, shards: int, method: str) -> tuple[np.ndarray, np.ndarray]:
    """The nodes by shard, each shard in the order of the graph, and where each shard begins: `[N]` and `[V + 1]`."""
    n, degree = graph.num_nodes, graph.degree.numpy()
    # A step costs a rank the training nodes and the entries of A that it owns; memory, the nodes.
    load = 1.0 / n + degree / max(1, graph.num_edges)
    load[graph.train_ids.numpy()] += 1.0 / graph.train_ids.numel()
    if method == "range":
        ends = np.searchsorted(np.cumsum(load), load.sum() * np.arange(1, shards) / shards, side="right")
        ends = np.clip(ends, np.arange(1, shards), n - shards + np.arange(1, shards))  # no shard is empty
        return np.arange(n), np.concatenate([[0], ends, [n]])
    if method == "metis":
        part = _metis(graph, shards, load)
    else:
        part = np.full(n, -1, dtype=np.int32)
        capacity = _SLACK * load.sum() / shards
        stream_partition(graph.indptr.numpy(), graph.indices.numpy(), load, shards, capacity, part)
    counts = np.bincount(part, minlength=shards)
    require(bool(counts.all()), f"method {method!r} left a shard empty; choose fewer shards, or another method")
    return np.argsort(part, kind="stable"), np.concatenate([[0], np.cumsum(counts)])


def _metis(graph: Graph, shards: int, load: np.ndarray) -> np.ndarray:
    try:
        import pymetis
    except ImportError:
        raise CvgnnError(
            "method 'metis' needs pymetis: pip install 'cvgnn[partition]', or use method 'stream'"
        ) from None
    require(not graph.directed, "method 'metis' needs an undirected graph; use method 'stream'")
    weights = np.maximum(1, load / load.max() * 1e6).astype(np.int64)
    adjacency = pymetis.CSRAdjacency(graph.indptr.numpy(), graph.indices.numpy())
    _, part = pymetis.part_graph(shards, adjacency=adjacency, vweights=weights)
    return np.asarray(part, dtype=np.int32)


def _propagated(graph: Graph, normalization: Aggregation) -> Tensor | SparseFeatures:
    if graph.PX is not None and (graph.PX_normalization, graph.PX.dtype) == (normalization, graph.x.dtype):
        return graph.PX
    P = Propagation(graph, normalization=normalization)
    return P.product_sparse(graph.x) if isinstance(graph.x, SparseFeatures) else P.product(graph.x)


def _write(
    graph: Graph,
    PX: Tensor | SparseFeatures,
    folder: Path,
    order: np.ndarray,
    starts: np.ndarray,
    progress: ProgressCallback,
) -> Balance:
    n, shards, indptr = graph.num_nodes, len(starts) - 1, graph.indptr.numpy()
    place = np.empty(n, dtype=np.int32)
    place[order] = np.arange(n, dtype=np.int32)
    degree = graph.degree.numpy()[order].astype(np.int32)
    names = order if graph.node_names is None else plain_names(graph.node_names[order])
    vectors = {
        "y": graph.y.numpy()[order],
        "degree": degree,
        "row_sums": row_sums(graph).numpy()[order],
        "names": names,
        "place": place,
    }
    splits = {split: np.sort(place[getattr(graph, f"{split}_ids").numpy()]).astype(np.int64) for split in SPLITS}
    for name, array in {**vectors, **{f"{split}_ids": ids for split, ids in splits.items()}}.items():
        np.save(folder / f"{name}.npy", array)
    folders = [folder / f"shard-{s:04d}" for s in range(shards)]
    counts = np.zeros((shards, n), dtype=np.int32)  # neighbors of each node in each shard
    streams: list[dict[str, Any]] = []
    cut = 0
    for shard, (low, high) in zip(folders, itertools.pairwise(starts), strict=True):
        shard.mkdir()
        ids = torch.from_numpy(order[low:high])
        for form, matrix in (("x", graph.x), ("PX", PX)):
            _save_rows(shard, form, feature_rows(matrix, ids))
        streams.append({"indices": (shard / "indices.bin").open("wb")})
        if graph.edge_weight is not None:
            streams[-1]["edge_weight"] = (shard / "edge_weight.bin").open("wb")
    # One pass over the new rows: their entries are relabelled, sorted, and go to the shards that own the columns.
    for first, last in row_blocks(np.concatenate([[0], np.cumsum(degree, dtype=np.int64)]), _ENTRIES_PER_BLOCK):
        entries = row_entries(indptr, order[first:last])
        rows = np.repeat(np.arange(first, last), degree[first:last])
        columns = place[graph.indices.numpy()[entries]]
        by_key = np.argsort((rows << 32) | columns, kind="stable")
        rows, columns, entries = rows[by_key], columns[by_key], entries[by_key]
        owner = np.searchsorted(starts, columns, side="right") - 1
        cut += int((owner != np.searchsorted(starts, rows, side="right") - 1).sum())
        for s in range(shards):
            mine = owner == s
            counts[s, first:last] = np.bincount(rows[mine] - first, minlength=last - first)
            streams[s]["indices"].write((columns[mine] - starts[s]).astype(np.int32).tobytes())
            if graph.edge_weight is not None:
                streams[s]["edge_weight"].write(graph.edge_weight.numpy()[entries[mine]].tobytes())
        progress("edges", last / n)
    before = np.zeros(n, dtype=np.int32)
    for s, shard in enumerate(folders):
        for name, stream in streams[s].items():
            stream.close()
            dtype = np.dtype(np.int32) if name == "indices" else graph.edge_weight.numpy().dtype  # type: ignore[union-attr]
            _to_npy(shard / f"{name}.bin", dtype)
        np.save(shard / "indptr.npy", np.concatenate([[0], np.cumsum(counts[s], dtype=np.int64)]))
        np.save(shard / "before.npy", before)
        before = before + counts[s]
    sums = {
        "nodes": np.diff(starts),
        "edges": counts.sum(axis=1, dtype=np.int64),
        "train": np.diff(np.searchsorted(splits["train"], starts)),
    }
    largest = {name: float(sizes.max() / max(sizes.mean(), 1e-12)) for name, sizes in sums.items()}
    return Balance(edge_cut=cut / max(1, graph.num_edges), **largest)


def _save_rows(folder: Path, form: str, rows: Tensor | SparseFeatures) -> None:
    if isinstance(rows, SparseFeatures):
        for part in ("indptr", "indices", "values"):
            np.save(folder / f"{form}_{part}.npy", getattr(rows, part).numpy())
    else:
        np.save(folder / f"{form}.npy", np.ascontiguousarray(rows.numpy()))


def _to_npy(file: Path, dtype: np.dtype[Any]) -> None:
    """A file of numbers becomes a `.npy` file."""
    shape = (file.stat().st_size // dtype.itemsize,)
    with file.open("rb") as source, file.with_suffix(".npy").open("wb") as target:
        target.write(npy_header(shape, dtype))
        shutil.copyfileobj(source, target, 1 << 22)
    file.unlink()


def _checksums(folder: Path, progress: ProgressCallback) -> dict[str, dict[str, Any]]:
    files = sorted(folder.rglob("*.npy"))
    total, done, entries = sum(file.stat().st_size for file in files), 0, {}
    for file in files:
        array = np.load(file, mmap_mode="r")
        with file.open("rb") as handle:
            sha256 = compute_sha256(handle, progress, "checksums", done, total)
            atomic_files.sync(handle)
        size, name = file.stat().st_size, str(file.relative_to(folder))
        entry = ArrayEntry(file=name, shape=array.shape, dtype=array.dtype.str, bytes=size, sha256=sha256)
        entries[name.removesuffix(".npy")] = dataclasses.asdict(entry)
        done += size
    return entries


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class Shard:
    """The part of a graph that one rank owns, mapped from its folder.

    Args:
        number: `s`.
        low, high: its nodes.
        columns: indptr int64 `[N + 1]`, indices int32 less `low`, and edge weights (empty without): the entries of each
            row of `A` in the columns of this shard.
        before: int32 `[N]`: of each row, the entries in the shards before.
        x, PX: rows `low..high-1`.
    """

    number: int
    low: int
    high: int
    columns: tuple[np.ndarray, np.ndarray, np.ndarray]
    before: np.ndarray
    x: Tensor | SparseFeatures
    PX: Tensor | SparseFeatures


@final
class Partition:
    """A partitioned graph, opened by memory map.

    Args:
        path: the folder that `partition_graph` wrote.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        require(is_partition(self.path), f"{path} is no partitioned graph; make one with 'cvgnn partition'")
        body = parse_object(atomic_files.read_bytes(self.path / HEADER, 1 << 26))
        require(
            has_valid_checksum(body) and body.get("format") == FORMAT and body.get("version") == VERSION,
            f"{self.path / HEADER} is damaged or of another version; make it again with 'cvgnn partition'",
        )
        self.fields: dict[str, Any] = body["graph"]
        self._entries: Mapping[str, Any] = body["arrays"]
        self.sha256, self.feature_norm = digest(body), self.fields["feature_norm"]
        self.starts = np.array(self.fields["starts"])
        self.num_shards = len(self.starts) - 1
        self.degree, self.row_sums = self._array("degree"), as_tensor(self._array("row_sums"))
        n, dtype = self.fields["num_nodes"], self.shard(0).x.dtype
        ids: dict[str, Any] = {f"{split}_ids": as_tensor(self._array(f"{split}_ids")) for split in SPLITS}
        names = self.fields["class_names"]
        self.graph = Graph(
            indptr=torch.from_numpy(np.concatenate([[0], np.cumsum(self.degree, dtype=np.int64)])),
            indices=torch.zeros(1, dtype=torch.int32).expand(self.fields["num_edges"]),  # one number in memory
            x=torch.zeros(1, 1, dtype=dtype).expand(n, self.fields["num_features"]),
            y=as_tensor(self._array("y")),
            num_classes=self.fields["num_classes"],
            **ids,
            name=self.fields["name"],
            node_names=self._array("names"),
            class_names=None if names is None else tuple(names),
            split=self.fields["split"],
            directed=self.fields["directed"],
            PX_normalization=self.fields["PX_normalization"],  # the shards have P X
            validated=True,
        )
        """Labels, split, names and degrees. Its edges and features are zeros: the real ones are in the shards."""

    def _array(self, name: str) -> np.ndarray:
        try:
            entry = check_fields(ArrayEntry, {**self._entries[name], "shape": list(self._entries[name]["shape"])}, name)
            folder, _, file = name.rpartition("/")
            return map_array(self.path / folder, dataclasses.replace(entry, file=f"{file}.npy"))
        except (KeyError, TypeError):
            raise DamagedStore(self.path, f"{name}.npy is not listed in {HEADER}") from None

    def user_order(self) -> np.ndarray:
        """int32 `[N]`: the number of each node of the graph that was partitioned, in its order."""
        return self._array("place")

    def shard(self, s: int) -> Shard:
        """Shard `s`, mapped."""
        prefix, low, high = f"shard-{s:04d}/", int(self.starts[s]), int(self.starts[s + 1])
        listed = [name.removeprefix(prefix) for name in self._entries if name.startswith(prefix)]
        arrays = {name: self._array(prefix + name) for name in listed}
        tensors = {name: as_tensor(array) for name, array in arrays.items()}
        x, PX = (get_features(tensors, form, self.fields["num_features"]) for form in ("x", "PX"))
        assert x is not None
        assert PX is not None
        weight = arrays.get("edge_weight", np.empty(0, PX.dtype.__str__().removeprefix("torch.")))
        columns = arrays["indptr"], arrays["indices"], weight
        return Shard(number=s, low=low, high=high, columns=columns, before=arrays["before"], x=x, PX=PX)

    def shard_bytes(self) -> int:
        """Bytes of the files of all shards."""
        return sum(entry["bytes"] for name, entry in self._entries.items() if name.startswith("shard-"))

    def own_numbers(self, rank: int, ranks: int) -> range:
        """The numbers of the shards of a rank."""
        require(
            self.num_shards % ranks == 0,
            f"{ranks} ranks cannot share {self.num_shards} shards; start a number of ranks that divides it",
        )
        each = self.num_shards // ranks
        return range(rank * each, (rank + 1) * each)

    def verify(self, shards: Sequence[int]) -> None:
        """Check the SHA-256 of the files of some shards, and of those that all share."""
        folders = ["", *(f"shard-{s:04d}" for s in shards)]
        for name, entry in self._entries.items():
            if name.rpartition("/")[0] in folders:
                with atomic_files.open_regular(self.path / f"{name}.npy") as file:
                    sha256 = compute_sha256(file, no_progress, "checksums", 0, 1)
                if sha256 != entry["sha256"]:
                    raise DamagedStore(self.path, f"the SHA-256 of {name}.npy is not the one in {HEADER}")


def is_partition(path: Path) -> bool:
    """Whether `path` is a folder with a partitioned graph."""
    return (Path(path) / HEADER).is_file()
