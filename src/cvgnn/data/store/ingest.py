"""From tables of any size to a store, in bounded memory: what `read_graph` and `write_store` give, to the byte.

Four stages, each from files to files: nodes (ids, labels, split), features, edges (into buckets) and rows (buckets
sorted to CSR). A manifest in the partial folder says which are done, so the same command goes on after a kill. Nothing
in memory grows with the number of edges; with the nodes grow labels, split, offsets and, for `features` in another
order, positions: `NODE_BYTES` for each.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import pyarrow as pa

from cvgnn._version import __version__
from cvgnn.data import RandomSplit
from cvgnn.data.array_converter import count_classes, is_dense
from cvgnn.data.graph import MAX_NODES
from cvgnn.data.io.cell_values import Cells
from cvgnn.data.io.mistakes import SHOWN, Mistakes
from cvgnn.data.io.preprocessing import Preprocessing
from cvgnn.data.io.size_checks import reading
from cvgnn.data.io.suspicions import column_suspicions, graph_suspicions, log_suspicions
from cvgnn.data.io.table_file import OtherTypes, TableFile, categories
from cvgnn.data.io.table_folder import FolderReader
from cvgnn.data.propagation import Aggregation
from cvgnn.data.store.edge_buckets import MAX_BUCKETS, EdgeBuckets, entry_bytes
from cvgnn.data.store.id_map import IdColumn, IdMap
from cvgnn.data.store.propagated_features import add_product
from cvgnn.data.store.store_reader import open_store
from cvgnn.data.store.store_writer import StoreWriter, release_pages, report_write_errors
from cvgnn.data.table_options import TableOptions
from cvgnn.errors import CvgnnError, require
from cvgnn.utils import atomic_files
from cvgnn.utils.checked_json import digest
from cvgnn.utils.formatting import format_bytes
from cvgnn.utils.progress import ProgressCallback

NODE_BYTES = 48
"""Memory for each node: labels, split and offsets, and what is computed from them."""

BASE_BYTES = 768 * 2**20
"""Memory of the program itself and of the batches that are read."""

_ROWS = 1 << 18
_VALUE_BYTES = 200  # of a different label, in Python
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_log = logging.getLogger(__name__)


def ingest_tables(
    folder: Path,
    path: Path,
    *,
    memory: int,
    split: RandomSplit | None = None,
    directed: bool = False,
    tables: TableOptions | None = None,
    propagate: Aggregation | None = None,
    progress: ProgressCallback | None = None,
) -> None:
    """Write the graph of a folder of tables to a new store, without holding it in memory.

    Killed, it goes on where it was when it is called again with the same arguments (`memory` may differ) and files.

    Args:
        folder, split, directed, tables: as in `read_graph`.
        path, propagate: as in `write_store`.
        memory: bytes that it may use, without those of the program itself and `NODE_BYTES` for each node.
        progress: called with a stage and a share in 0..1.
    """
    with reading(folder):
        reader = FolderReader(folder, split or RandomSplit(), tables or TableOptions(), None, training=True)
    refusal = _refusal(reader)
    require(refusal is None, refusal or "")
    inputs = digest([__version__, _files(folder), repr((split, directed, tables, propagate)), _boot()])
    with StoreWriter(path, progress=progress, resume=True) as writer:
        ingest = _Ingest(reader, writer, memory, inputs, directed)
        ingest.check_disk(propagate)
        fields = ingest.run()
        if propagate is not None:
            add_product(writer, propagate, num_features=fields["num_features"])
        writer.finish({**fields, "PX_normalization": propagate})
    log_suspicions(graph_suspicions(open_store(path)))


@final
@dataclass(frozen=True)
class IngestPlan:
    """What is known of a folder of tables before it is read.

    Args:
        in_memory: about the bytes that reading it into memory takes.
        least: bytes that `ingest_tables` needs beside its `memory`.
        has_split: whether the tables make the split.
        refusal: why `ingest_tables` would refuse it; None if it would not.
    """

    in_memory: int
    least: int
    has_split: bool
    refusal: str | None = None


def plan_ingest(folder: Path, split: RandomSplit, tables: TableOptions) -> IngestPlan:
    """Look at the columns and sizes of a folder of tables; arguments as in `read_graph`."""
    with reading(folder):
        reader = FolderReader(folder, split, tables, None, training=True)
    roles = reader.roles
    nodes, edges = roles.nodes.estimate_rows(), roles.edges.estimate_rows()
    cells = sum(max(1, roles.table.width(name)) for name in roles.used)
    # Two columns of text ids, their numbers, and the entries before and after sorting take about 120 bytes an edge.
    in_memory = nodes * (100 + 20 * cells) + edges * 120
    has_split = (roles.split_name or tables.split_by) is not None
    return IngestPlan(in_memory, BASE_BYTES + NODE_BYTES * nodes, has_split, _refusal(reader))


def _refusal(reader: FolderReader) -> str | None:
    """What in a folder is not converted piece by piece, and what to do; None if all of it is."""
    roles = reader.roles
    advice = "which is not converted piece by piece; convert it in memory (without --memory)"
    if roles.graph_name is not None:
        what = f"{roles.nodes.path}, column {roles.graph_name[:80]!r}: this is a set of graphs"
        return f"{what}, {advice}, or convert its graphs one by one"
    column = roles.pair_label or roles.pair_split
    if column is not None:
        other = "leave the columns out with --ignore" if roles.pairs is roles.edges else "move the table away"
        what = f"{roles.pairs.path}, column {column[:80]!r}: this is a graph with labelled pairs"
        return f"{what}, {advice}, or {other}"
    if not roles.needs_labels:
        what = f"{reader.folder}: with --unlabelled this is a graph without labels"
        return f"{what}, {advice}, or leave --unlabelled out if its nodes have labels"
    return None


@final
class _Ingest:
    """The stages for one folder."""

    def __init__(self, reader: FolderReader, writer: StoreWriter, memory: int, inputs: str, directed: bool) -> None:
        self.reader, self.writer, self.memory, self.directed = reader, writer, memory, directed
        self.roles = reader.roles
        self._manifest = writer.work / "manifest.json"
        self._progress = writer.progress
        self.done: dict[str, Any] = {"inputs": inputs}
        if self._manifest.exists():
            found = json.loads(self._manifest.read_bytes())
            if found.get("inputs") == inputs:
                self.done = found
                _log.info("going on after %s", ", ".join(name for name in found if name != "inputs"))
            else:
                _log.warning("%s: the tables or options have changed; starting again", writer.path)
        if len(self.done) == 1:
            shutil.rmtree(writer.work)
            writer.work.mkdir()
        self.ids = IdMap(memory // 2)
        self._columns: dict[str, IdColumn] = {}

    def run(self) -> dict[str, Any]:
        """Run all stages; returns the fields of the header."""
        nodes = self._stage("nodes", self._nodes, ("y", "train_ids", "val_ids", "test_ids", "node_names"))
        self.ids.integers, self.ids.ordered, self.ids.seed = nodes["integers"], nodes["ordered"], nodes["seed"]
        self.ids.set_nodes(self.writer.work / "keys", nodes["num_nodes"])
        features = self._stage("features", self._features, ("x", "x_indptr", "x_indices", "x_values"))
        buckets = self._stage("edges", self._edges, ())
        self.ids.free()
        self._rows(buckets)
        return {**nodes["fields"], "directed": self.directed, "name": self.reader.folder.resolve().name, **features}

    def check_disk(self, propagate: Aggregation | None) -> None:
        """Say how much disk space the work takes, and refuse it where there is less."""
        nodes, edges = self.roles.nodes.estimate_rows(), self.roles.edges.estimate_rows()
        entries = edges * (1 if self.directed else 2)
        width = sum(max(1, self.roles.table.width(name)) for name in self.roles.used)
        stored = 8 if self.roles.weight else 4
        store = entries * stored + nodes * (8 * 3 + 40 + 4 * width * (2 if propagate else 1))
        self.ids.num_nodes = nodes
        spill = edges * 2 * 8 + (edges * 8 if self.roles.weight else 0) if self.ids.parts > 1 else 0
        # A bucket's file is deleted before the next is sorted, so what the store keeps of the entries takes its place.
        buckets = entries * (entry_bytes(self.roles.weight is not None) - stored) * (1 + 1 / MAX_BUCKETS)
        need = store + int(buckets) + nodes * 8 + spill
        folder = self.writer.work.parent
        have = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        free = shutil.disk_usage(folder).free + have
        _log.info("about %d nodes and %d edges; needs about %s of disk space, of which the store keeps %s; %s are free",
                  nodes, edges, format_bytes(need), format_bytes(store), format_bytes(free))  # fmt: skip
        require(
            need <= free,
            f"this needs about {format_bytes(need)} of disk space beside {self.writer.path}, and {format_bytes(free)} "
            "are free; free some, or choose another folder",
        )

    def _stage(self, name: str, stage: Callable[[], dict[str, Any]], arrays: Sequence[str]) -> dict[str, Any]:
        """Run a stage unless it is done; its arrays are then taken as they are."""
        while name not in self.done:
            self.reader.mistakes = Mistakes()
            try:
                with report_write_errors(self.writer.path):
                    found = stage()
            except OtherTypes:  # the table has chosen others, with which the whole stage must agree
                for array in arrays:
                    self.writer.forget(array)
                continue
            self.reader.mistakes.check()
            self._save(name, found)
            pa.default_memory_pool().release_unused()  # else Arrow keeps it, beside what later stages take
            return found
        folder = self.writer.work.parent
        for array in arrays:
            if (folder / f"{array}.npy").exists():
                self.writer.keep(array)
        result: dict[str, Any] = self.done[name]
        return result

    def _save(self, name: str, found: dict[str, Any]) -> None:
        self.done[name] = found
        atomic_files.write_file(self._manifest, json.dumps(self.done).encode())

    def _read(
        self, stage: str, table: TableFile, names: Sequence[str], cells: Sequence[str] = ()
    ) -> Iterator[tuple[slice, dict[str, pa.Array], dict[str, Cells]]]:
        """Batches of a table, with the rows that they are; mistakes in them end the stage at its end, or when many."""
        total, first, mistakes = max(1, table.estimate_rows()), 0, self.reader.mistakes
        self._progress(stage, 0.0)
        for columns, values in table.read_batches(
            names=names, **self.roles.kinds(table, cells), mistakes=self.reader.mistakes
        ):
            rows = len(next(iter((columns or values).values())))
            yield slice(first, first + rows), columns, values
            first += rows
            self._progress(stage, min(1.0, first / total))
            if mistakes.count > SHOWN:
                mistakes.check()

    # Nodes

    def _nodes(self) -> dict[str, Any]:
        """Labels, split and names of the nodes; their keys go to a file."""
        reader, table, writer = self.reader, self.roles.nodes, self.writer
        timed = [] if reader.options.split_by is None else [reader.options.split_by]
        named = (self.roles.label, self.roles.split_name, *reader.options.label_columns)
        codes = {name: _Codes(table, name, self.memory) for name in named if name is not None}
        times: list[Cells] = []
        column, num_nodes, width, ordered = self._columns.setdefault(self.roles.id, IdColumn()), 0, 1, True
        with (writer.work / "keys").open("wb") as file:
            for rows, columns, cells in self._read("nodes", table, [self.roles.id, *codes], timed):
                ids = self.ids.of_kind(column(columns[self.roles.id]), of_nodes=True)
                file.write(self.ids.keys(ids).data)
                gone = np.flatnonzero(ids.is_null().to_numpy(zero_copy_only=False))
                reader.mistakes.cells(table, gone, self.roles.id, lambda _: "nothing where the node's id must be")
                if self.ids.integers:
                    ordered = ordered and np.array_equal(ids.fill_null(-1), np.arange(rows.start, rows.stop))
                else:
                    width = max(width, pa.compute.max(pa.compute.utf8_length(ids)).as_py() or 0)
                for name, found in codes.items():
                    found.add(columns[name])
                times += [cells[name] for name in timed]
                num_nodes = rows.stop
        table.require(num_nodes > 0, "has no rows: the graph has no nodes")
        require(num_nodes <= MAX_NODES, f"{table.path} has {num_nodes} nodes; at most {MAX_NODES} can be used")
        reader.mistakes.check()
        ordered = ordered and self.ids.integers
        if not ordered:
            self._check_unique(num_nodes)
        labels = {name: found.column() for name, found in codes.items()}
        y, class_names = reader.labels(labels)
        ids, record = reader.split_ids(labels, y, _concatenate(times) if times else None)
        reader.mistakes.check()
        fields = {"num_classes": count_classes(y, class_names), "class_names": class_names, "split": record}
        if reader.label_fields:
            y = reader.label_fields["y"].numpy()
            fields |= {name: reader.label_fields[name] for name in ("num_classes", "class_names")}
        for name, array in zip(("y", "train_ids", "val_ids", "test_ids"), (y, *ids), strict=True):
            writer.write(name, array)
        if not ordered:
            self._write_names(num_nodes, width)
        return {
            "num_nodes": num_nodes, "integers": self.ids.integers, "ordered": ordered, "seed": self.ids.seed,
            "fields": fields,
        }  # fmt: skip

    def _check_unique(self, num_nodes: int) -> None:
        """Refuse an id that is there twice; with another seed, read the nodes again if two ids have one key."""
        self.ids.set_nodes(self.writer.work / "keys", num_nodes)
        pairs = np.concatenate([twice for _, twice in self.ids.tables()])
        if not pairs.size:
            return
        table, name, column = self.roles.nodes, self.roles.id, IdColumn()
        wanted = np.unique(pairs)
        found: dict[int, str] = {}
        for rows, columns, _ in self._read("nodes", table, [name]):
            ids = column(columns[name]).cast(pa.large_string())
            here = wanted[(wanted >= rows.start) & (wanted < rows.stop)]
            found |= {int(row): ids[int(row) - rows.start].as_py() for row in here}
        equal = [(int(a), int(b)) for a, b in pairs[np.argsort(pairs[:, 1])] if found[int(a)] == found[int(b)]]
        if not equal:
            self.ids.seed += 1
            raise OtherTypes
        before = table.places(sorted({a for a, _ in equal[:SHOWN]}))
        what = {b: f"{found[b][:80]!r} was listed before, at {before[a]}" for a, b in equal[:SHOWN]}
        self.reader.mistakes.cells(table, [b for _, b in equal], name, what.__getitem__)
        self.reader.mistakes.check()

    def _write_names(self, num_nodes: int, width: int) -> None:
        """The ids of the nodes, in a second pass: now the width of the longest is known."""
        dtype = np.dtype(np.int64) if self.ids.integers else np.dtype(f"<U{width}")
        out, column = self.writer.array("node_names", (num_nodes,), dtype), IdColumn()
        for rows, columns, _ in self._read("node names", self.roles.nodes, [self.roles.id]):
            ids = self.ids.of_kind(column(columns[self.roles.id]))
            out[rows] = ids if self.ids.integers else np.array(ids.to_pylist(), dtype=dtype)
            release_pages(out)

    # Features

    def _features(self) -> dict[str, Any]:
        """Fit the columns on the training nodes, then make the features block by block."""
        reader, table, writer = self.reader, self.roles.table, self.writer
        train, num_nodes = np.asarray(writer.written("train_ids")), self.ids.num_nodes
        place, columns, reader.fitted = self._row_places(), self.roles.used, None
        if reader.auto:
            fitted = reader.set_fitted(Preprocessing.of_columns(self._fit(train, place), reader.options))
            reader.mistakes.check()
            columns = [] if fitted is None else fitted.used
        x: Any = None
        nonzero = 0
        for rows, _, cells in self._read("features", table, [], columns):
            part = reader.feature_rows(cells, rows.stop - rows.start)
            if x is None:
                x = writer.array("x", (num_nodes, part.shape[1]), np.float32)
            same = part.shape[1] == x.shape[1]
            table.require(same, f"has rows of {x.shape[1]} and of {part.shape[1]} features; give each node the same")
            x[rows if place is None else place[rows]] = part
            nonzero += int(np.count_nonzero(part))
            release_pages(x)
        reader.mistakes.check()
        reader.tell(train.size)
        stored = None if reader.fitted is None else reader.fitted.to_dict()
        result = {"num_features": x.shape[1], "preprocessing": stored}
        if not is_dense(nonzero, x.shape):
            self._make_sparse(x)
        return result

    def _row_places(self) -> np.ndarray | None:
        """The node of each row of the table with the features, int32; None where it is the row."""
        reader, table, num_nodes = self.reader, self.roles.table, self.ids.num_nodes
        if table is self.roles.nodes:
            return None
        if self.roles.own is None:
            rows = table.estimate_rows()
            given = f"has {rows} rows for the {num_nodes} nodes of {self.roles.nodes.path.name}"
            table.require(rows == num_nodes, f"{given}; give each node one")
            return None
        place = np.full(num_nodes, -1, dtype=np.int32)  # grows no further: more rows are mistakes
        count = np.zeros(num_nodes + 1, dtype=np.int32)
        for rows, found, columns, _ in self._numbers("ids of features", table, [self.roles.own]):
            known = self._known(table, [self.roles.own], found, columns)
            np.add.at(count, found[0][known], 1)
            table.require(
                rows.stop <= num_nodes, f"has more rows than {self.roles.nodes.path.name}; give each node one"
            )
            place[rows] = found[0]
        reader.mistakes.check()
        for what, nodes in (("has no row", count[:-1] == 0), ("has two rows", count > 1)):
            table.require(not nodes.any(), f"{what} for node {int(nodes.argmax())}, counted from 0 in "
                          f"{self.roles.nodes.path.name}; give each node one")  # fmt: skip
        return place

    def _fit(self, train: np.ndarray, place: np.ndarray | None) -> list[dict[str, Any]]:
        """Fit the columns on the cells of the training nodes, as many columns at a time as fit into memory."""
        reader, table, budget = self.reader, self.roles.table, max(1, self.memory // 8)
        in_training = np.zeros(self.ids.num_nodes, dtype=bool)
        in_training[train] = True
        fitted: list[dict[str, Any]] = []
        kinds = self.roles.kinds(table, self.roles.used)
        rest = [*kinds["numbers"], *kinds["others"]]  # as `read_columns` orders
        while rest:
            chosen, size, nodes = list(rest), 0, [np.empty(0, np.int64)]
            parts: dict[str, list[Cells]] = {name: [] for name in chosen}
            for rows, _, cells in self._read("fitting columns", table, [], chosen):
                at = np.arange(rows.start, rows.stop) if place is None else place[rows]
                taken = np.flatnonzero(in_training[at])
                nodes.append(at[taken])
                for name in list(parts):
                    found = cells[name]
                    parts[name].append(found[taken] if isinstance(found, np.ndarray) else found.take(pa.array(taken)))
                    size += parts[name][-1].nbytes
                while size > budget:
                    last, values = parts.popitem()
                    size -= sum(value.nbytes for value in values)
                    require(
                        bool(parts),
                        f"{table.path}: column {last!r} of the training nodes does not fit into memory; give more with "
                        "--memory, leave the column out with --ignore, or keep numbers as they are with --preprocess "
                        "none",
                    )
            reader.mistakes.check()
            order = np.argsort(np.concatenate(nodes))
            columns = {name: _take(_concatenate(values), order) for name, values in parts.items()}
            found = Preprocessing.fit_columns(columns, train, reader.report, reader.options)
            reader.mistakes.check()
            if len(parts) == len(self.roles.used) and any(column["kind"] != "dropped" for column in found):
                y = np.asarray(self.writer.written("y"))
                classes = y[train] if y.ndim == 1 else None
                reader.suspicions += column_suspicions(
                    columns, Preprocessing(tuple(found)), classes, np.arange(train.size)
                )
            fitted += found
            rest = rest[len(parts) :]
        return fitted

    def _make_sparse(self, x: np.ndarray) -> None:
        """Write the features in CSR instead, in the same blocks whatever their number of columns."""
        writer, step = self.writer, max(1, (1 << 22) // x.shape[1])
        indptr = writer.array("x_indptr", (len(x) + 1,), np.int64)
        indices, values = writer.stream("x_indices", np.int32), writer.stream("x_values", np.float32)
        for first in range(0, len(x), step):
            block = np.array(x[first : first + step])
            rows, columns = np.nonzero(block)
            indices.append(columns.astype(np.int32))
            values.append(block[rows, columns])
            indptr[first + 1 : first + step + 1] = indptr[first] + np.cumsum(np.count_nonzero(block, axis=1))
            release_pages(x)
        indices.close()
        values.close()
        writer.forget("x")
        for name in ("x_indices", "x_values"):
            writer.keep(name)

    # Edges

    def _numbers(
        self, stage: str, table: TableFile, names: Sequence[str], cells: Sequence[str] = ()
    ) -> Iterator[tuple[slice, np.ndarray, dict[str, pa.Array], list[np.ndarray]]]:
        """Rows, and the node numbers in columns of ids, int64 `[columns, n]`, negative where there is none; the ids
        themselves where they are at hand; and columns of numbers."""
        columns = {name: self._columns.setdefault(f"{table.path.name} {name}", IdColumn()) for name in names}

        def keys() -> Iterator[tuple[slice, np.ndarray, dict[str, pa.Array], list[np.ndarray]]]:
            for rows, ids, values in self._read(stage, table, names, cells):
                ids = {name: column(ids[name]) for name, column in columns.items()}
                found = [self.ids.keys(self.ids.of_kind(ids[name])) for name in names]
                yield rows, np.stack(found), ids, [values[name] for name in cells]

        if self.ids.ordered or self.ids.parts == 1:
            for rows, found, ids, values in keys():
                yield rows, self.ids.resolve(found.reshape(-1)).reshape(found.shape), ids, values
            return
        # The table has several parts: each looks at all keys, which wait in a file.
        spill, lengths = self.writer.work / "spill", []
        with ExitStack() as stack:
            files = [stack.enter_context(spill.with_suffix(f".{i}").open("wb")) for i in range(1 + len(cells))]
            for rows, found, _, values in keys():
                lengths.append(rows.stop - rows.start)
                for file, array in zip(files, (found, *values), strict=True):
                    file.write(np.ascontiguousarray(array).data)
        flat = np.memmap(spill.with_suffix(".0"), dtype=np.uint64, mode="r+")
        for part, (id_table, _) in enumerate(self.ids.tables()):
            for first in range(0, flat.size, _ROWS):
                block = np.array(flat[first : first + _ROWS])
                id_table.resolve(block)
                flat[first : first + _ROWS] = block
                release_pages(flat)
                self._progress(f"{stage}, part {part + 1} of {self.ids.parts}", min(1.0, (first + _ROWS) / flat.size))
        numbers = [np.memmap(spill.with_suffix(f".{i + 1}"), dtype=np.float64, mode="r") for i in range(len(cells))]
        end = 0
        for length in lengths:
            rows, end = slice(end, end + length), end + length
            found = np.array(flat[rows.start * len(names) : end * len(names)]).view(np.int64)
            self.reader.mistakes.offset = rows.start
            yield rows, found.reshape(len(names), length), {}, [np.array(values[rows]) for values in numbers]
            for mapped in (flat, *numbers):
                release_pages(mapped)
        self.reader.mistakes.offset = 0

    def _known(
        self, table: TableFile, names: Sequence[str], found: np.ndarray, columns: dict[str, pa.Array]
    ) -> np.ndarray:
        """bool `[n]`: rows all of whose ids are nodes; others are mistakes unless they are to be left out."""
        known: np.ndarray = np.logical_and.reduce(found >= 0)
        if known.all() or (table is self.roles.edges and self.reader.options.unknown_edges == "drop"):
            return known
        hint = f"is no node; ids are listed in {self.roles.nodes.path.name}, column {self.roles.id!r}"
        for name, numbers in zip(names, found, strict=True):
            ids = columns.get(name)
            self.reader.mistakes.cells(
                table, np.flatnonzero(numbers < 0), name,
                lambda row, ids=ids: f"{'this id' if ids is None else repr(str(ids[row])[:80])} {hint}",  # type: ignore[misc]
            )  # fmt: skip
        self.reader.mistakes.check()
        return known

    def _edges(self) -> dict[str, Any]:
        """Entries of `A` into buckets, both directions unless the graph is directed."""
        table, mistakes = self.roles.edges, self.reader.mistakes
        weights = [] if self.roles.weight is None else [self.roles.weight]
        entries = table.estimate_rows() * (1 if self.directed else 2)
        buckets = EdgeBuckets.plan(
            self.writer.work / "edges", self.ids.num_nodes, entries, self.memory // 4, weighted=bool(weights)
        )
        ones, dropped, loops, names = True, 0, 0, [self.roles.source, self.roles.target]
        with ExitStack() as stack:
            buckets.open(stack)
            for rows, ends, columns, cells in self._numbers("edges", table, names, weights):
                known = self._known(table, names, ends, columns)
                weight = cells[0] if weights else None
                if weight is not None:
                    self._check_weights(weight)
                    ones = ones and bool((weight[known] == 1).all())
                keep = known & (ends[0] != ends[1])
                dropped += rows.stop - rows.start - int(known.sum())
                loops += int(known.sum() - keep.sum())
                if not keep.all():
                    ends, weight = ends[:, keep], None if weight is None else weight[keep]
                for source, target in (ends,) if self.directed else (ends, ends[::-1]):
                    buckets.add((target << 32) | source, weight)
        mistakes.check()
        if dropped:
            _log.warning("%s: %d edges left out: their nodes are not in %s", table.path.name, dropped,
                         self.roles.nodes.path.name)  # fmt: skip
        if loops:
            _log.info("%s: %d edges lead from a node to itself and are left out", table.path.name, loops)
        for file in self.writer.work.glob("spill.*"):
            file.unlink()
        return {**buckets.layout(), "ones": ones}

    def _check_weights(self, weight: np.ndarray) -> None:
        table, column, mistakes = self.roles.edges, self.roles.weight, self.reader.mistakes
        wrong = np.flatnonzero(weight <= 0)
        mistakes.cells(table, wrong, column, lambda row: f"{weight[row]:g}; weights must be positive")
        mistakes.cells(table, np.flatnonzero(np.isnan(weight)), column, lambda _: "nothing where a number must be")

    def _rows(self, layout: dict[str, Any]) -> None:
        """Sort the buckets one after another, and append them to the rows of `A`; each bucket is a step of its own."""
        writer, n, ones = self.writer, self.ids.num_nodes, layout["ones"]
        buckets = EdgeBuckets(writer.work / "edges", **{k: v for k, v in layout.items() if k != "ones"})
        weighted = layout["weighted"] and not ones
        done = self.done.get("rows", {"buckets": 0, "entries": 0})
        with report_write_errors(writer.path):
            fresh = done["buckets"] == 0
            indptr = writer.array("indptr", (n + 1,), np.int64) if fresh else writer.keep("indptr")
            indices = writer.stream("indices", np.int32, keep=done["entries"])
            weight = writer.stream("edge_weight", np.float32, keep=done["entries"]) if weighted else None
            for bucket in range(done["buckets"], buckets.count):
                self._progress("sorting edges", bucket / buckets.count)
                first, last = buckets.nodes(bucket)
                degree = np.zeros(min(last, n) - first, dtype=np.int64)
                for keys, values, conflict in buckets.sorted(bucket, self.memory // 4):
                    if conflict.size:
                        self._report_conflicts(conflict[:SHOWN])
                    degree += np.bincount((keys >> 32) - first, minlength=degree.size)
                    indices.append(keys.astype(np.int32))  # keeps the lower 32 bits, the source
                    if weight is not None and values is not None:
                        weight.append(values.astype(np.float32))
                before = int(indptr[first]) if first else 0
                indptr[first + 1 : min(last, n) + 1] = before + np.cumsum(degree)
                indices.flush()
                if weight is not None:
                    weight.flush()
                self._save("rows", {"buckets": bucket + 1, "entries": indices.shape[0]})
                buckets.remove(bucket)

    def _report_conflicts(self, keys: np.ndarray) -> None:
        """Find in the table what was listed with two weights, and report it."""
        reader = self.reader
        reader.mistakes = Mistakes()
        assert self.roles.weight is not None
        wanted = np.unique(self._pair_keys(keys & 0xFFFFFFFF, keys >> 32))
        first: dict[int, tuple[int, float]] = {}
        pairs: list[tuple[int, int]] = []
        weights: list[tuple[float, float]] = []
        names = [self.roles.source, self.roles.target]
        for rows, ends, _, cells in self._numbers("conflicts", self.roles.edges, names, [self.roles.weight]):
            at = np.flatnonzero(np.isin(self._pair_keys(*ends), wanted))
            for row, key, weight in zip(at, self._pair_keys(*ends)[at], cells[0][at], strict=True):
                row_before, other = first.setdefault(int(key), (rows.start + int(row), float(weight)))
                if other != weight:
                    pairs.append((row_before, rows.start + int(row)))
                    weights.append((other, float(weight)))
        reader.note_conflicts(np.array(pairs), np.array(weights))
        raise CvgnnError("an edge is listed with two weights; give each edge one weight")

    def _pair_keys(self, source: np.ndarray, target: np.ndarray) -> np.ndarray:
        """One integer for each edge, the same for both directions unless the graph is directed."""
        low, high = (source, target) if self.directed else (np.minimum(source, target), np.maximum(source, target))
        found: np.ndarray = (high << 32) | low
        return found


@final
class _Codes:
    """The cells of a column with few different values, as numbers of these."""

    def __init__(self, table: TableFile, name: str, memory: int) -> None:
        self._table, self._name, self._most = table, name, max(1000, memory // 4 // _VALUE_BYTES)
        self._numbers: dict[str, int] = {}
        self._codes: list[np.ndarray] = [np.empty(0, np.int32)]

    def add(self, column: pa.Array) -> None:
        """Add a batch."""
        values, codes = categories(column)
        numbers = [self._numbers.setdefault(value, len(self._numbers)) for value in values]
        self._codes.append(np.array([*numbers, -1], dtype=np.int32)[codes])
        if len(self._numbers) > self._most:
            what = f"more than {self._most} different values do not fit into memory; give more with --memory"
            raise self._table.error(self._name, what)

    def column(self) -> pa.DictionaryArray:
        """All batches as one column. Only now it is known whether the values are integers."""
        values = pa.array(list(self._numbers), pa.large_string())
        texts, numbers = categories(self._table._names(values, self._name))
        codes = np.append(numbers, -1).astype(np.int32)[np.concatenate(self._codes)]
        return pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), pa.array(texts, pa.large_string()))


def _concatenate(parts: Sequence[Cells]) -> Cells:
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    return pa.concat_arrays(parts)


def _take(cells: Cells, order: np.ndarray) -> Cells:
    return cells[order] if isinstance(cells, np.ndarray) else cells.take(pa.array(order))


def _files(folder: Path) -> list[tuple[str, int, int]]:
    """Name, size and time of all files of a folder, by which it is known again."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return [(str(file.relative_to(folder)), file.stat().st_size, file.stat().st_mtime_ns) for file in files]


def _boot() -> str:
    """Changes with each start of the machine: what was not yet on disk may then be lost."""
    return _BOOT.read_text().strip() if _BOOT.exists() else ""
