"""The same graph from every form: equal in all arrays, and equal after training."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings

from cvgnn.api import fit
from cvgnn.data import Graph, RandomSplit, from_pyg
from cvgnn.data.io import read_graph
from cvgnn.data.store import write_store
from cvgnn.data.table_options import TableOptions
from tests.data.io import writers
from tests.data.io.strategies import graphs
from tests.data.io.writers import assert_same

PLAIN = TableOptions(preprocess="none")
SPLIT = RandomSplit(seed=4, train=0.1, val=0.1)


@pytest.fixture(scope="module")
def photo(shared_data: Path) -> Graph:
    return read_graph(shared_data / "amazon_photo.npz", split=SPLIT)


@pytest.fixture(scope="module")
def photo_again(photo: Graph, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Graph]:
    """Amazon Photo written in every other form and read back."""
    folder = tmp_path_factory.mktemp("photo")
    data = writers.to_pyg(photo, split=False)
    torch.save(data, folder / "photo.pt")
    write_store(photo, folder / "store")
    return {
        "csv": read_graph(writers.write_csv(photo, folder / "csv", split=False), split=SPLIT, tables=PLAIN),
        "parquet": read_graph(
            writers.write_columnar(photo, folder / "parquet", split=False), split=SPLIT, tables=PLAIN
        ),
        "feather": read_graph(
            writers.write_columnar(photo, folder / "feather", "feather", split=False), split=SPLIT, tables=PLAIN
        ),
        "pyg": from_pyg(data, split=SPLIT),
        "pt": read_graph(folder / "photo.pt", split=SPLIT),
        "store": read_graph(folder / "store"),
    }


def test_amazon_photo_as_it_is(photo: Graph, shared_data: Path) -> None:
    """Against an independent reading of the arrays."""
    with np.load(shared_data / "amazon_photo.npz") as raw:
        assert (photo.num_nodes, photo.num_edges, photo.num_features, photo.num_classes) == (7650, 2 * 119081, 745, 8)
        assert photo.y.tolist() == raw["y"].tolist()
        pairs = {(u, v) for u, v in raw["edges"].tolist()}
        target = np.repeat(np.arange(7650), photo.degree.numpy())
        assert {(min(u, v), max(u, v)) for u, v in zip(photo.indices.tolist(), target.tolist(), strict=True)} == pairs
        assert isinstance(photo.x, torch.Tensor)
        for v in (0, 17, 7649):
            a, b = raw["x_indptr"][v], raw["x_indptr"][v + 1]
            assert photo.x[v].nonzero().flatten().tolist() == sorted(raw["x_indices"][a:b].tolist())
            assert float(photo.x[v].sum()) == float(raw["x_data"][a:b].sum())
    assert photo.split == "random: seed 4, fractions 0.1/0.1/0.8"
    assert photo.train_ids.numel() == 765


def test_amazon_photo_is_one_graph_from_every_form(photo: Graph, photo_again: dict[str, Graph]) -> None:
    for form, graph in photo_again.items():
        assert_same(photo, graph), form


def test_amazon_photo_trains_to_one_result_from_every_form(photo: Graph, photo_again: dict[str, Graph]) -> None:
    def trained(graph: Graph) -> tuple[list[tuple[float, object]], dict[str, torch.Tensor]]:
        run = fit(graph, epochs=2, hidden=8, batch_size=256, threads=1)
        return [(record.loss, record.metrics) for record in run.records], run.model.state_dict()

    records, weights = trained(photo)
    assert len(records) == 2
    for form, graph in photo_again.items():
        again, others = trained(graph)
        assert again == records, form
        assert all(torch.equal(weights[name], others[name]) for name in weights), form


@settings(max_examples=20, deadline=None)
@given(graph=graphs())
def test_files_hold_what_was_written(graph: Graph) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = [
            writers.write_npz(graph, folder / "a.npz"),
            writers.write_npz(graph, folder / "b.npz", masks=True, csr=True),
            writers.write_csv(graph, folder / "csv"),
            writers.write_csv(graph, folder / "csv-features", features_file=True),
            writers.write_columnar(graph, folder / "parquet"),
            writers.write_columnar(graph, folder / "parquet-lists", lists=True),
            writers.write_columnar(graph, folder / "arrow", "arrow"),
            writers.write_columnar(graph, folder / "stream-lists", "arrow", lists=True, streamed=True),
            writers.write_columnar(graph, folder / "feather", "feather"),
        ]
        write_store(graph, folder / "store")
        for path in [*paths, folder / "store"]:
            plain = PLAIN if path.is_dir() and path.name != "store" else None
            assert_same(graph, read_graph(path, directed=graph.directed and path.name != "store", tables=plain))


@settings(max_examples=15, deadline=None)
@given(graph=graphs(names=False))
def test_a_pt_holds_what_was_written(graph: Graph) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "graph.pt"
        for sparse_x in (False, True):
            data = writers.to_pyg(graph, sparse_x=sparse_x)
            for saved in (data, data.to_dict(), (data.to_dict(), None, type(data))):
                torch.save(saved, path)
                again = read_graph(path, directed=graph.directed)
                assert_same(again, from_pyg(data, directed=graph.directed))
                assert torch.equal(again.y, graph.y)
                assert torch.equal(again.indices, graph.indices)
                assert torch.equal(again.train_ids, graph.train_ids)
                assert torch.equal(torch.from_numpy(writers.dense_of(again)), torch.from_numpy(writers.dense_of(graph)))


def test_a_split_in_the_file_is_used_and_recorded_as_given(tmp_path: Path) -> None:
    graph = read_graph(writers.write_csv(tiny(), tmp_path / "csv"), split=RandomSplit(seed=9))
    assert graph.split == "given"
    assert (graph.train_ids.tolist(), graph.val_ids.tolist(), graph.test_ids.tolist()) == ([0, 1], [2], [3])


def test_without_a_split_a_seeded_one_is_made_and_recorded(tmp_path: Path) -> None:
    path = writers.write_csv(tiny(), tmp_path / "csv", split=False)
    assert read_graph(path).split == "random: seed 0, fractions 0.6/0.2/0.2"
    by_class = RandomSplit(seed=2, per_class=1)
    graph = read_graph(path, split=by_class)
    assert graph.split == by_class.describe()
    assert graph.train_ids.tolist() == by_class.ids(graph.y.numpy())[0].tolist()
    assert graph.name == "csv"


def tiny() -> Graph:
    from cvgnn.data import from_edges

    return from_edges(
        [[0, 1, 2], [1, 2, 3]], x=torch.eye(4), y=[0, 1, 0, 1], train_ids=[0, 1], val_ids=[2], test_ids=[3]
    )


def test_double_features_in_a_pt_become_single(tmp_path: Path) -> None:
    """As from every other file, so that a graph trains alike from any."""
    fields = {"edge_index": torch.tensor([[0, 1], [1, 2]]), "x": torch.eye(3).double(), "y": torch.tensor([0, 1, 0])}
    torch.save(fields, tmp_path / "g.pt")
    assert read_graph(tmp_path / "g.pt").x.dtype == torch.float32
