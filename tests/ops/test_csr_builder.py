from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cvgnn.data.edges import ConflictingWeights, compress, sorted_csr
from cvgnn.errors import CvgnnError
from cvgnn.ops import csr_builder
from cvgnn.ops.csr_builder import build_csr
from cvgnn.training.machine import thread_count

TYPES = (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64, np.dtype(">i4"))


def same(built: Any, wanted: Any) -> None:
    for mine, theirs in zip(built, wanted, strict=True):
        assert (mine is None) == (theirs is None)
        if mine is not None:
            assert mine.dtype == theirs.dtype
            np.testing.assert_array_equal(mine, theirs)


def random_edges(n: int, m: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Edges with self loops, duplicates and reverses; the weight of an edge is a function of its ends."""
    source, target = np.random.default_rng(seed).integers(0, n, (2, m))
    return source, target, 1.0 + np.minimum(source, target) * n + np.maximum(source, target)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 9).flatmap(lambda n: st.tuples(st.just(n), st.lists(st.tuples(*[st.integers(0, n - 1)] * 2)))),
    st.booleans(),
    st.booleans(),
    st.sampled_from(TYPES),
)
def test_it_is_what_numpys_sort_makes(case: Any, directed: bool, weighted: bool, dtype: Any) -> None:
    n, edges = case
    source, target = np.array(edges, dtype=dtype).reshape(-1, 2).T  # strided: a view of both columns
    weight = 1.0 + np.minimum(source, target) * 100.0 + np.maximum(source, target) if weighted else None
    same(
        build_csr(source, target, weight, n, directed=directed),
        sorted_csr(source, target, weight, n, directed=directed),
    )


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_many_pieces_buckets_digits_and_threads(
    directed: bool, weighted: bool, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"_PIECE": 37, "_ENTRIES_PER_BUCKET": 64, "_DIGIT": 3}.items():
        monkeypatch.setattr(csr_builder, name, value)
    source, target, weight = random_edges(300, 4000)
    given = weight if weighted else None
    with thread_count(threads):
        built = build_csr(source, target, given, 300, directed=directed)
    same(built, sorted_csr(source, target, given, 300, directed=directed))


def test_a_list_of_both_directions_is_not_doubled(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    scatter = csr_builder._scatter
    monkeypatch.setattr(csr_builder, "_scatter", lambda *a: (sizes.append(a[6].size), scatter(*a)))
    source, target, _ = random_edges(50, 200)
    loops = int((source == target).sum())
    both = np.concatenate([source, target]), np.concatenate([target, source])
    same(build_csr(*both, None, 50, directed=False), sorted_csr(source, target, None, 50, directed=False))
    build_csr(source, target, None, 50, directed=False)
    assert sizes == [2 * (200 - loops)] * 2
    one_more = np.append(both[0], 3), np.append(both[1], 4)  # one direction of it only
    same(build_csr(*one_more, None, 50, directed=False), sorted_csr(*one_more, None, 50, directed=False))


@pytest.mark.parametrize("bad", [-1, 5, 2**40])
def test_a_node_that_does_not_exist_is_named(bad: int) -> None:
    source, target = np.array([0, 1, 4, bad]), np.array([1, 2, 3, 3])
    assert build_csr(source, target, None, 5, directed=False) is None
    with pytest.raises(CvgnnError, match=rf"edge 3 of edge_index, \({bad}, 3\), names a node that does not exist"):
        compress(source, target, None, 5, directed=True)


def test_an_id_beyond_int64_is_no_negative_one() -> None:
    source, target = np.array([0, 2**64 - 1], np.uint64), np.array([1, 1], np.uint64)
    with pytest.raises(CvgnnError, match=r"edge 1 of edge_index, \(18446744073709551615, 1\)"):
        compress(source, target, None, 5, directed=True)


def test_two_weights_of_one_edge_are_refused() -> None:
    source, target, weight = random_edges(30, 400)
    weight[17] += 1
    assert build_csr(source, target, weight, 30, directed=False) is None
    with pytest.raises(ConflictingWeights, match="listed with two weights"):
        compress(source, target, weight, 30, directed=False)


def test_the_callers_arrays_stay_and_are_not_copied() -> None:
    source, target, _ = random_edges(30, 400)
    edges = torch.stack([torch.from_numpy(source), torch.from_numpy(target)])
    before = edges.clone()
    build_csr(edges[0].numpy(), edges[1].numpy(), None, 30, directed=False)
    assert torch.equal(edges, before)
