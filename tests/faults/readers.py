"""Everything that reads somebody else's files: sound small input for each, how to spoil it, and how it is used."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch

from cvgnn.config import GraphSource, TrainConfig
from cvgnn.data import Graph
from cvgnn.data.io import read_graph
from cvgnn.data.named.catalog import PLANETOID_SUFFIXES
from cvgnn.data.named.planetoid import read_planetoid
from cvgnn.data.named.raw_layouts import read_arxiv, read_graphsaint, read_reddit
from cvgnn.data.store import describe_store, verify_store, write_store
from cvgnn.errors import CvgnnError, require
from cvgnn.lab.diagnose.record import read_diagnosis
from cvgnn.lab.report import build, render
from cvgnn.lab.report.run_reader import RunCollection
from cvgnn.training import Trainer, restore_trainer
from cvgnn.training.checkpoint import Checkpoints
from cvgnn.training.resume import check_same_run
from cvgnn.training.run import read_run, train
from cvgnn.training.run_folder import RunFolder, from_row, read_object, read_settings
from cvgnn.training.trainer_builder import build_trainer, check
from cvgnn.utils.checked_json import parse_object
from tests.data.io import broken_files, writers
from tests.data.named import layouts
from tests.data.store.cases import edit_header, make_graph
from tests.faults import mutate as m
from tests.lab.report.folders import write_diagnosis
from tests.logs import logged

Change = Callable[[Path, Random], None]


@dataclass(frozen=True)
class Reader:
    """One way in.

    Args:
        files: what to spoil, and how.
        read: gets the file that is spoiled, reads what it belongs to, and does a little with what it got.
        more: what else is changed after a file was spoiled, such as a checksum that somebody who means harm would fix.
        touches: files that `more` and `read` may change.
    """

    files: dict[Path, m.Mutation]
    read: Callable[[Path], None]
    more: Change | None = None
    touches: tuple[Path, ...] = ()


def used(graph: Graph) -> None:
    """One step of training, of a run that fits into memory."""
    config = TrainConfig(hidden=4, batch_size=8, threads=1)
    check(graph, config, memory=True)
    trainer = build_trainer(graph, config)
    trainer.step(next(trainer.loader.epoch(1)))


def npz(folder: Path) -> Reader:
    dense = folder / "dense.npz"
    graph = make_graph(n=12, features=3, weighted=True, node_names=np.array([f"n{i}" for i in range(12)]))
    writers.write_npz(graph, dense)
    sparse = writers.write_npz(make_graph(n=12, features=9, sparse=True), folder / "sparse.npz", masks=True, csr=True)
    plain = broken_files.npz()(folder)
    files = [dense, sparse, plain]
    inner = m.one_of(m.npy_header, m.npy_header, *m.BYTES, m.boundary)
    outer = [*m.BYTES, m.spliced([file.read_bytes() for file in files])]
    spoil = m.one_of(*[m.zipped(inner)] * 9, *outer)
    return Reader(dict.fromkeys(files, spoil), lambda path: used(read_graph(path)))


def csv(folder: Path) -> Reader:
    one = writers.write_csv(make_graph(n=9, features=2, weighted=True), folder / "one")
    two = writers.write_csv(make_graph(n=9, features=2), folder / "two", features_file=True)
    files = [*sorted(one.iterdir()), *sorted(two.iterdir())]
    spoil = m.one_of(*m.TEXT, m.swap, m.spliced([file.read_bytes() for file in files]))
    return Reader(dict.fromkeys(files, spoil), lambda path: used(read_graph(path.parent)))


def parquet(folder: Path) -> Reader:
    one = writers.write_columnar(make_graph(n=9, features=2, weighted=True), folder / "one")
    two = writers.write_columnar(make_graph(n=9, features=3), folder / "two", lists=True)
    return _columnar(one, two)


def arrow(folder: Path) -> Reader:
    one = writers.write_columnar(make_graph(n=9, features=2, weighted=True), folder / "one", "feather")
    two = writers.write_columnar(make_graph(n=9, features=3), folder / "two", "arrow", lists=True)
    three = writers.write_columnar(make_graph(n=9, features=2), folder / "three", "arrow", streamed=True)
    return _columnar(one, two, three)


def _columnar(*folders: Path) -> Reader:
    files = [file for folder in folders for file in sorted(folder.iterdir())]
    spoil = m.one_of(*m.BYTES, m.spliced([file.read_bytes() for file in files]))
    return Reader(dict.fromkeys(files, spoil), lambda path: used(read_graph(path.parent)))


def pt(folder: Path) -> Reader:
    files = [folder / f"{name}.pt" for name in ("dict", "data", "sparse")]
    graph = make_graph(n=9, features=3)
    fields = writers.to_pyg(graph).to_dict()
    torch.save(fields, files[0])
    torch.save(writers.to_pyg(make_graph(n=9, features=3, weighted=True)), files[1])
    torch.save({**fields, "x": fields["x"].to_sparse()}, files[2])
    spoil = m.one_of(*[m.zipped(m.one_of(*m.BYTES, m.digits))] * 9, *m.BYTES)
    return Reader(dict.fromkeys(files, spoil), lambda path: used(read_graph(path)))


def store_header(folder: Path) -> Reader:
    return _store(folder, headers=True)


def store_arrays(folder: Path) -> Reader:
    return _store(folder, headers=False)


def _store(folder: Path, *, headers: bool) -> Reader:
    stores = [folder / "dense", folder / "sparse"]
    named = make_graph(n=12, features=3, weighted=True, node_names=np.array([f"n{i}" for i in range(12)]))
    write_store(named, stores[0], propagate="symmetric")
    write_store(make_graph(n=12, features=5, sparse=True, class_names=("a", "b", "c")), stores[1])

    def read(path: Path) -> None:
        graph = read_graph(path.parent)
        describe_store(path.parent)
        used(graph)
        verify_store(path.parent)

    def agree(path: Path, rng: Random) -> None:
        """Mostly the header says what the spoiled file is."""
        if rng.random() < 0.8:
            data = path.read_bytes()

            def change(body: dict[str, Any]) -> None:
                body["arrays"][path.stem] |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}

            edit_header(path.parent, change)

    if headers:
        spoil = m.one_of(*[m.with_new_checksum(m.structure)] * 9, m.with_new_checksum(m.digits), *m.TEXT)
        return Reader({path / "header.json": spoil for path in stores}, read)
    files = [file for path in stores for file in sorted(path.glob("*.npy"))]
    spoil = m.one_of(m.npy_header, m.npy_header, m.boundary, *m.BYTES, m.spliced([f.read_bytes() for f in files]))
    touches = tuple(path / "header.json" for path in stores)
    return Reader(dict.fromkeys(files, spoil), read, more=agree, touches=touches)


def planetoid(folder: Path) -> Reader:
    """These are pickles, so nothing but the known bytes is opened at all."""
    files = [folder / f"ind.cora.{suffix}" for suffix in PLANETOID_SUFFIXES]
    for file in files:
        file.write_bytes(b"cposix\nmkdir\n(S'owned'\ntR." if file.suffix != ".index" else b"1\n2\n")

    def read(_: Path) -> None:
        try:
            read_planetoid(folder, "cora")
        except CvgnnError:
            return
        raise AssertionError("a file that is not Planetoid's was opened")

    return Reader(dict.fromkeys(files, m.one_of(*m.TEXT, *m.BYTES)), read)


def arxiv(folder: Path) -> Reader:
    layouts.write_arxiv(folder, layouts.small(symmetric=False))
    files = sorted(folder.rglob("*.gz"))
    spoil = m.one_of(*[m.gzipped(m.one_of(*m.TEXT))] * 5, *m.BYTES)
    return Reader(dict.fromkeys(files, spoil), lambda _: used(read_arxiv(folder)))


def flickr(folder: Path) -> Reader:
    layouts.write_flickr(folder, layouts.small(symmetric=True))
    others = m.spliced([file.read_bytes() for file in folder.iterdir()])
    of_json = m.one_of(m.structure, m.structure, m.digits, *m.TEXT, others)
    of_npz = m.one_of(*[m.zipped(m.one_of(m.npy_header, m.npy_header, m.boundary, *m.BYTES))] * 5, *m.BYTES, others)
    of_npy = m.one_of(*[m.npy_header] * 5, *m.BYTES, others)
    ways = {".json": of_json, ".npz": of_npz, ".npy": of_npy}
    return Reader(
        {f: ways[f.suffix] for f in sorted(folder.iterdir())}, lambda _: used(read_graphsaint(folder, "flickr"))
    )


def reddit(folder: Path) -> Reader:
    layouts.write_reddit(folder, layouts.small(symmetric=True))
    spoil = m.one_of(*[m.zipped(m.one_of(m.npy_header, m.npy_header, m.boundary, *m.BYTES))] * 5, *m.BYTES)
    return Reader(dict.fromkeys(sorted(folder.iterdir()), spoil), lambda _: used(read_reddit(folder)))


# Runs


CONFIG = {"epochs": 2, "hidden": 3, "batch_size": 5, "threads": 1, "output": "tau"}


def _run(folder: Path, **options: Any) -> tuple[Path, Path]:
    """A finished run with its checkpoints, and the graph it was trained on."""
    graph = folder / "graph.npz"
    writers.write_npz(make_graph(n=12, features=3), graph)
    source, config = GraphSource(graph=graph), TrainConfig(**{**CONFIG, **options})
    run = RunFolder(folder / "run")
    train(read_graph(graph), config, folder=run, source=source)
    return run.path, graph


def _checkpoint(folder: Path) -> tuple[Path, Callable[[Path], None]]:
    path, where = _run(folder)
    (checkpoint,) = (path / "checkpoints").iterdir()
    graph = read_graph(where)
    _, config = read_settings(path / "config.json")

    def read(_: Path) -> None:
        with logged() as messages:
            found = Checkpoints(path / "checkpoints").newest()
        if found is None:
            (message,) = messages
            raise CvgnnError(message)
        check_same_run(found, found.body.get("identity") or {})
        rows = found.body.get("records")
        for row in rows if isinstance(rows, list) else []:
            from_row(row)
        trainer = build_trainer(graph, config, initialize=False)
        restore_trainer(trainer, found.tensors, found.body.get("trainer"))
        step(trainer)

    return checkpoint, read


def step(trainer: Trainer) -> None:
    """The next step, an evaluation, and what the run would give out."""
    trainer.warm_up()
    position = trainer.position
    batch = next(trainer.loader.epoch(position.epoch, skip=0))
    trainer.step(batch)
    require(math.isfinite(position.loss_sum), "the sum of losses is not finite")
    for which in ("last", "best", "tau"):
        trainer.model.load_state_dict(trainer.output(which))


def checkpoint_json(folder: Path) -> Reader:
    checkpoint, read = _checkpoint(folder)
    mutated = m.with_new_checksum(m.one_of(m.structure, m.structure, m.structure, m.digits, most=2))
    return Reader({checkpoint / "checkpoint.json": m.one_of(*[mutated] * 9, *m.TEXT, most=1)}, read)


def checkpoint_tensors(folder: Path) -> Reader:
    checkpoint, read = _checkpoint(folder)
    body = checkpoint / "checkpoint.json"

    def agree(path: Path, rng: Random) -> None:
        """Mostly the JSON states the spoiled file's checksum."""
        if rng.random() < 0.9:
            new = hashlib.sha256(path.read_bytes()).hexdigest()
            text = m.with_new_checksum(lambda data, _: data, lambda value: value.update(tensors_sha256=new))
            body.write_bytes(text(body.read_bytes(), rng))

    spoil = m.one_of(*[m.safetensors_header] * 9, m.boundary, *m.BYTES, most=2)
    return Reader({checkpoint / "state.safetensors": spoil}, read, more=agree, touches=(body,))


def resume(folder: Path) -> Reader:
    """All of `cvgnn train --resume`, which goes on with what it finds."""
    path, where = _run(folder, epochs=1)
    (checkpoint,) = (path / "checkpoints").iterdir()
    graph, source = read_graph(where), GraphSource(graph=where)
    _, config = read_settings(path / "config.json")

    def read(_: Path) -> None:
        for other in (path / "checkpoints").iterdir():
            if other != checkpoint and other.is_dir():
                for file in other.iterdir():
                    file.unlink()
                other.rmdir()
        train(graph, config, folder=RunFolder(path, resume=True), source=source)

    mutated = m.with_new_checksum(m.one_of(m.structure, m.digits, most=2))
    spoil = m.one_of(*[mutated] * 9, *m.TEXT, most=1)
    touches = (path / "config.json", path / "result.json", path / "weights.safetensors", path / "metrics.jsonl")
    return Reader({checkpoint / "checkpoint.json": spoil}, read, touches=touches)


def config_json(folder: Path) -> Reader:
    path, _ = _run(folder)
    file = path / "config.json"
    spoil = m.one_of(*[m.structure] * 4, m.digits, *m.TEXT)
    return Reader({file: spoil}, _set_up)


def config_toml(folder: Path) -> Reader:
    (folder / "sub").mkdir()
    writers.write_npz(make_graph(n=12, features=3), folder / "sub" / "graph.npz")
    file = folder / "sub" / "run.toml"
    file.write_text(
        'graph = "graph.npz"\nestimator = "cv"\nlr = 0.05\nepochs = 2\nnum_neighbors = [2]\nlayers = 2\nseed = 7\n'
        "beta1 = 0.9\nhidden = 3\nbias = true\nsplit_seed = 1\ntrain_fraction = 0.5\nthreads = 1\nclip_norm = 2.0\n",
        encoding="utf-8",
    )
    return Reader({file: m.one_of(*[m.toml] * 6, *m.TEXT)}, _set_up)


def _set_up(file: Path) -> None:
    """The settings as a run would use and record them."""
    source, config = read_settings(file)
    text = json.dumps({**source.to_dict(), **config.to_dict()}, allow_nan=False)
    for name in (source.graph, source.root):
        with contextlib.suppress(OSError):  # a name that is too long
            assert name is None or name.exists() in (True, False)
    assert parse_object(text.encode())


def saved_run(folder: Path) -> Reader:
    path, where = _run(folder)
    graph = read_graph(where)

    def read(_: Path) -> None:
        run = read_run(path, graph)
        run.predict([0])

    of_json = m.one_of(*[m.structure] * 4, m.digits, *m.TEXT)
    of_weights = m.one_of(*[m.safetensors_header] * 4, *m.BYTES)
    files = {path / name: of_json for name in ("config.json", "result.json")}
    return Reader({**files, path / "weights.safetensors": of_weights}, read)


def metrics(folder: Path) -> Reader:
    path, _ = _run(folder)
    file = folder / "row.json"
    file.write_bytes((path / "metrics.jsonl").read_bytes().splitlines()[0])

    def read(_: Path) -> None:
        from_row(read_object(file))

    return Reader({file: m.one_of(*[m.structure] * 3, *m.TEXT)}, read)


def diagnosis(folder: Path) -> Reader:
    file = write_diagnosis(folder / "d") / "diagnosis.json"

    def read(_: Path) -> None:
        render(build(RunCollection((), (), ((folder, read_diagnosis(file)),))), title="", command="")

    return Reader({file: m.one_of(*[m.structure] * 6, m.digits, *m.TEXT)}, read)


# How many inputs on an ordinary day.
COUNTS: dict[Callable[[Path], Reader], int] = {
    npz: 1000,
    csv: 750,
    parquet: 450,
    arrow: 450,
    pt: 600,
    store_header: 850,
    store_arrays: 800,
    planetoid: 50,
    arxiv: 450,
    flickr: 700,
    reddit: 450,
    checkpoint_json: 900,
    checkpoint_tensors: 700,
    resume: 50,
    config_json: 750,
    config_toml: 700,
    saved_run: 750,
    metrics: 400,
    diagnosis: 500,
}
READERS = {make.__name__: make for make in COUNTS}
