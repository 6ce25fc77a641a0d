from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cvgnn.config import GraphSource
from cvgnn.data.store import write_store
from cvgnn.errors import CvgnnError
from cvgnn.training.graph_source import load_source


def test_a_named_data_set() -> None:
    assert load_source(GraphSource()).name == "citeseer"


@pytest.mark.parametrize("options", [{"split_seed": 3}, {"per_class": 4}, {"train_fraction": 0.5, "val_fraction": 0.1}])
def test_split_options_that_would_do_nothing_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(CvgnnError, match=f"'citeseer' has its own split .given., so {', '.join(options)} would"):
        load_source(GraphSource(**options))  # type: ignore[arg-type]


def test_a_graph_of_ones_own_is_split_as_asked(tmp_path: Path) -> None:
    file = tmp_path / "g.npz"
    np.savez(file, edge_index=[[0, 1, 2, 3], [1, 2, 3, 4]], x=np.eye(5, dtype=np.float32), y=[0, 1, 0, 1, 0])
    first, second = (load_source(GraphSource(graph=file, split_seed=seed)) for seed in (1, 2))
    assert first.split == "random: seed 1, fractions 0.6/0.2/0.2"
    assert first.train_ids.numel() == 3
    assert second.split.startswith("random: seed 2")
    write_store(first, tmp_path / "store")
    assert load_source(GraphSource(graph=tmp_path / "store", split_seed=1)).split == first.split
    with pytest.raises(CvgnnError, match=r"has its own split \(random: seed 1, .* so split_seed would do nothing"):
        load_source(GraphSource(graph=tmp_path / "store", split_seed=2))
