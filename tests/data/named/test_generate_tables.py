"""Synthetic graphs as tables: the model of `generate`, without a set of edges."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cvgnn.data.named.synthetic import generate, generate_tables, small_spec


def test_tables_of_a_synthetic_graph(tmp_path: Path) -> None:
    import pyarrow.parquet as parquet

    spec = small_spec(1000, seed=3)
    generate_tables(spec, tmp_path / "tables")
    whole = generate(spec)
    edges = np.load(tmp_path / "tables" / "edges.npy")
    assert edges.shape == (5000, 2)
    assert (edges[:, 0] < edges[:, 1]).all()
    listed = set(map(tuple, edges.tolist()))
    row = np.repeat(np.arange(1000), whole.degree.numpy())
    drawn = set(zip(row.tolist(), whole.indices.tolist(), strict=True))
    assert 4000 < len(listed) < 5000  # some are listed again: hubs meet often in a small graph
    assert listed <= drawn  # the same stream of draws, of which `generate` reads more
    np.testing.assert_array_equal(np.load(tmp_path / "tables" / "features.npy"), whole.x.numpy())  # type: ignore[union-attr]
    nodes = parquet.read_table(tmp_path / "tables" / "nodes.parquet")
    assert nodes["label"].to_pylist() == whole.y.tolist()
    split = np.array(nodes["split"].to_pylist())
    assert np.flatnonzero(split == "val").tolist() == whole.val_ids.tolist()
