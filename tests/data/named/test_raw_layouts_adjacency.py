"""CSR by SciPy's counting sort, against the sort of keys that weighted edges take."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cvgnn.data.edges import compress
from cvgnn.data.named.raw_layouts import adjacency
from cvgnn.errors import CvgnnError

FILE = Path("edges.csv.gz")


@given(
    st.integers(1, 12).flatmap(
        lambda n: st.tuples(st.just(n), st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=40))
    ),
    st.booleans(),
    st.sampled_from([np.int32, np.int64, np.uint32]),
)
def test_it_is_what_from_edges_makes(case: tuple[int, list[tuple[int, int]]], directed: bool, dtype: type) -> None:
    n, edges = case
    rows, columns = np.array(edges, dtype=dtype).reshape(-1, 2).T
    indptr, indices = adjacency(rows, columns, n, path=FILE, directed=directed)
    # compress takes (source, target); an entry of row v is a source of messages to v.
    wanted = compress(columns.astype(np.int64), rows.astype(np.int64), np.ones(len(rows)), n, directed=directed)
    assert indptr.tolist() == wanted[0].tolist()
    assert indices.tolist() == wanted[1].tolist()
    assert (indptr.dtype, indices.dtype) == (torch.int64, torch.int32)


def test_the_callers_arrays_stay(tmp_path: Path) -> None:
    rows, columns = np.array([0, 1, 2, 2], dtype=np.int32), np.array([1, 0, 2, 0], dtype=np.int32)
    before = rows.copy(), columns.copy()
    adjacency(rows, columns, 3, path=FILE)
    np.testing.assert_array_equal((rows, columns), before)


@pytest.mark.parametrize("edge", [(0, 3), (3, 0), (-1, 0), (0, -1)])
def test_ids_out_of_range(edge: tuple[int, int]) -> None:
    rows, columns = np.array([[0, 1], edge]).T
    with pytest.raises(CvgnnError) as caught:
        adjacency(rows, columns, 3, path=FILE)
    assert str(caught.value) == (
        f"edge 1 in edges.csv.gz, ({edge[0]}, {edge[1]}), names a node that does not exist; ids must lie in 0..2"
    )
