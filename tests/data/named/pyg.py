"""torch_geometric's own loaders, as the independent reading of a raw folder."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from cvgnn.data import Graph, SparseFeatures


def read(kind: str, raw: Path, work: Path, *arguments: str) -> Any:
    """`torch_geometric.datasets.KIND(work, *arguments)[0]` on a copy of the files in `raw`; it downloads nothing."""
    pytest.importorskip("torch_geometric", reason="torch_geometric, the independent reading, is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its import and torch's deprecations are not ours
        from torch_geometric import datasets

        shutil.copytree(raw, work.joinpath(*arguments, "raw"))
        return getattr(datasets, kind)(str(work), *arguments)[0]


def assert_same(g: Graph, data: Any) -> None:
    """A graph against a PyG `Data`: edges, features, labels, split."""
    row = torch.repeat_interleave(torch.arange(g.num_nodes), g.degree)
    ours = set(zip(row.tolist(), g.indices.tolist(), strict=True))
    theirs = {(u, v) for u, v in data.edge_index.t().tolist() if u != v}
    assert ours == theirs
    assert g.num_edges == len(ours)
    x = g.x.to_dense() if isinstance(g.x, SparseFeatures) else g.x
    assert torch.equal(x, data.x)
    assert torch.equal(g.y, data.y)
    for ids, mask in ((g.train_ids, data.train_mask), (g.val_ids, data.val_mask), (g.test_ids, data.test_mask)):
        assert ids.tolist() == mask.nonzero().flatten().tolist()
