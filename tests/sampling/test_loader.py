from __future__ import annotations

import copy
import gc
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from cvgnn.data import Propagation, from_edges
from cvgnn.errors import CvgnnError
from cvgnn.sampling import BatchLoader, NeighborSampler
from cvgnn.sampling import loader as loader_module
from cvgnn.sampling.loader import StartSignal, prefetch_one
from tests.build import graph_from_dense, random_adjacency

N = 50
PROPAGATION = Propagation(graph_from_dense(random_adjacency(N, mean_degree=5, weighted=False, seed=2)))
SCATTERED = torch.tensor([3, 48, 7, 21, 40, 9, 33, 12, 30, 5, 17])


def loader(mode: str = "shuffle", *, batch_size: int = 4, seed: int = 0, layers: int = 2) -> BatchLoader:
    sampler = NeighborSampler(PROPAGATION, num_neighbors=2, num_layers=layers, seed=seed)
    return BatchLoader(SCATTERED, sampler, batch_size=batch_size, mode=mode, seed=seed)  # type: ignore[arg-type]


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("mode", ["shuffle", "replacement"])
def test_batches_hold_training_ids_only(mode: str, layers: int) -> None:
    """Must show 4: ids are training ids, not positions, although the training ids are scattered."""
    train = set(SCATTERED.tolist())
    seen = set()
    for epoch in range(1, 30):
        for batch in loader(mode, layers=layers).epoch(epoch):
            assert set(batch.ids.tolist()) <= train
            targets = batch.block(layers - 1).targets if layers > 1 else batch.inputs
            assert set(targets.tolist()) == set(batch.ids.tolist())
            assert batch.select(targets[:, None]).flatten().tolist() == batch.ids.tolist()
            seen |= set(batch.ids.tolist())
    assert seen == train


def test_shuffle_covers_every_node_once_an_epoch() -> None:
    orders = []
    for epoch in (1, 2, 3):
        batches = list(loader().epoch(epoch))
        ids = [v for batch in batches for v in batch.ids.tolist()]
        assert sorted(ids) == sorted(SCATTERED.tolist())
        assert [b.ids.numel() for b in batches] == [4, 4, 3]
        orders.append(ids)
    assert orders[0] != orders[1] != orders[2]


def test_steps_count_on_across_epochs() -> None:
    for mode in ("shuffle", "replacement"):
        steps = [batch.step for epoch in (1, 2) for batch in loader(mode).epoch(epoch)]
        assert steps == [1, 2, 3, 4, 5, 6]


def test_replacement_draws_independently() -> None:
    """Repeats within a batch occur, are kept, and every node is drawn about equally often."""
    batches = [batch for epoch in range(1, 401) for batch in loader("replacement").epoch(epoch)]
    assert all(batch.ids.numel() == 4 for batch in batches)
    assert any(len(set(batch.ids.tolist())) < 4 for batch in batches)
    counts = torch.stack([batch.ids for batch in batches]).flatten().bincount(minlength=N)[SCATTERED]
    expected = 4 * len(batches) / len(SCATTERED)
    assert ((counts - expected).abs() < 5 * expected**0.5).all()


def test_same_seed_same_batches() -> None:
    for a, b in zip(loader(seed=3).epoch(2), loader(seed=3).epoch(2), strict=True):
        assert a.ids.equal(b.ids)
        assert a.inputs.equal(b.inputs)
        assert a.block(1).sampled.weight.equal(b.block(1).sampled.weight)  # type: ignore[union-attr, arg-type]
    assert any(not a.ids.equal(b.ids) for a, b in zip(loader(seed=3).epoch(2), loader(seed=4).epoch(2), strict=True))


def test_an_epoch_does_not_depend_on_the_ones_before() -> None:
    """A resumed run sees the same batches: epoch 5 alone equals epoch 5 after 1 to 4."""
    one = loader()
    for epoch in range(1, 5):
        list(one.epoch(epoch))
    for a, b in zip(one.epoch(5), loader().epoch(5), strict=True):
        assert a.ids.equal(b.ids)
        assert a.inputs.equal(b.inputs)


def test_refused_values() -> None:
    sampler = NeighborSampler(PROPAGATION, num_neighbors=2, num_layers=2)
    with pytest.raises(CvgnnError, match="batch_size must be a whole number of at least 1, not 0"):
        BatchLoader(SCATTERED, sampler, batch_size=0)
    with pytest.raises(CvgnnError, match="training split is empty"):
        BatchLoader(SCATTERED[:0], sampler, batch_size=1)
    with pytest.raises(CvgnnError, match="unknown batches 'shufle'; known: shuffle, replacement"):
        BatchLoader(SCATTERED, sampler, batch_size=1, mode="shufle")  # type: ignore[arg-type]
    with pytest.raises(CvgnnError, match=r"batch_size must be a whole number of at least 1, not 1\.5"):
        BatchLoader(SCATTERED, sampler, batch_size=1.5)  # type: ignore[arg-type]
    with pytest.raises(CvgnnError, match="epoch must be a whole number of at least 1, not 0"):
        next(loader().epoch(0))


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        (torch.tensor([0, N]), f"ids must lie in 0..{N - 1}; found {N}"),
        (torch.tensor([-1]), "found -1"),
        (torch.tensor([10**8]), "found 100000000"),
        (torch.tensor([1, 1]), "ids must be distinct"),
        (torch.tensor([1.0]), "ids must be an int64 tensor of node ids, not torch.float32"),
        (torch.tensor([True]), "ids must be an int64 tensor of node ids, not torch.bool"),
        ([1, 2], r"ids must be an int64 tensor of node ids, not \[1, 2\]"),
    ],
)
def test_ids_that_compiled_code_must_not_see(ids: torch.Tensor, said: str) -> None:
    sampler = NeighborSampler(PROPAGATION, num_neighbors=2, num_layers=2)
    with pytest.raises(CvgnnError, match=said):
        sampler.sample(ids, 1)
    with pytest.raises(CvgnnError, match=said):
        BatchLoader(ids, sampler, batch_size=1)


def test_a_batch_of_ones_own_holds_training_ids_only() -> None:
    assert loader().batch(torch.tensor([48, 3]), 1).ids.tolist() == [48, 3]
    with pytest.raises(CvgnnError, match="node 4 is not a training node; a batch holds training ids only"):
        loader().batch(torch.tensor([3, 4]), 1)


def test_the_callers_tensor_may_change() -> None:
    ids = SCATTERED.clone()
    sampler = NeighborSampler(PROPAGATION, num_neighbors=2, num_layers=2)
    mine = BatchLoader(ids, sampler, batch_size=4)
    ids[0] = 49
    assert mine.train_ids.equal(SCATTERED)


def test_a_layer_without_a_block() -> None:
    batch = next(loader().epoch(1))
    for k in (0, 2):
        with pytest.raises(CvgnnError, match=rf"layer {k} is not sampled; layers 1..1 are"):
            batch.block(k)


def test_drawing_ahead_gives_every_item_and_the_error_in_its_place() -> None:
    def items() -> Iterator[int]:
        yield 1
        yield 2
        raise ValueError("while drawing")

    ahead = prefetch_one(items())
    assert [next(ahead), next(ahead)] == [1, 2]
    with pytest.raises(ValueError, match="while drawing"):
        next(ahead)


def test_a_consumer_may_stop_early_and_leaves_no_thread_behind() -> None:
    before = threading.active_count()
    for item in prefetch_one(iter(range(100))):
        if item == 3:
            break
    gc.collect()
    assert threading.active_count() == before


def test_drawing_waits_for_the_signal_once_there_is_one() -> None:
    drawn: list[int] = []
    seen = threading.Semaphore(0)

    def items() -> Iterator[int]:
        for i in range(5):
            drawn.append(i)
            seen.release()
            yield i

    def wait_for(number: int) -> None:
        for _ in range(number):
            assert seen.acquire(timeout=60)

    signal = StartSignal()
    ahead = prefetch_one(items(), signal)
    assert next(ahead) == 0
    wait_for(2)
    assert drawn == [0, 1]  # nobody has sent a signal: at once
    signal.send()  # it is there already
    assert next(ahead) == 1
    assert drawn == [0, 1]
    signal.send()
    wait_for(1)
    signal.send()  # twice is once
    assert drawn == [0, 1, 2]
    assert next(ahead) == 2
    assert next(ahead) == 3  # taken without a signal
    assert list(ahead) == [4]
    signal.send()  # after the end


def test_each_loader_has_its_own_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several epochs at once, signals at any time: the batches are the same."""
    monkeypatch.setattr(loader_module, "num_threads", lambda: 2)
    monkeypatch.setattr(loader_module, "WORTH_DRAWING_AHEAD", 0)
    mine, expected = loader(), [[b.ids.tolist() for b in loader().epoch(e)] for e in (1, 2)]
    found: list[list[list[int]]] = [[], []]
    for a, b in zip(mine.epoch(1), mine.epoch(2), strict=True):
        found[0].append(a.ids.tolist())
        mine.draw_ahead()
        found[1].append(b.ids.tolist())
    assert found == expected


@pytest.mark.parametrize(("team", "batch_size", "ahead"), [(1, 2000, False), (2, 2000, True), (2, 5, False)])
def test_who_draws(team: int, batch_size: int, ahead: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread, if there is one and the batch is large enough for it to pay."""
    monkeypatch.setattr(loader_module, "num_threads", lambda: team)
    rng = np.random.default_rng(0)
    graph = from_edges(
        rng.integers(0, 2000, (2, 9000)), x=torch.ones(2000, 1), y=np.zeros(2000, int), train_ids=range(2000)
    )
    sampler = NeighborSampler(Propagation(graph), num_neighbors=2, num_layers=2)
    drawing: list[str] = []
    original = sampler.sample_unchecked
    monkeypatch.setattr(
        sampler, "sample_unchecked", lambda *args: drawing.append(threading.current_thread().name) or original(*args)
    )
    next(iter(BatchLoader(graph.train_ids, sampler, batch_size=batch_size).epoch(1)))
    assert drawing[0].startswith("cvgnn") == ahead


@pytest.mark.parametrize("control", [False, True])
@pytest.mark.parametrize("fan_out", [-1, 2, 50])
def test_the_expected_number_of_entries(fan_out: int, control: bool) -> None:
    """Exact where all degrees are average and no node is met twice."""
    n, degree = 900, 6
    steps = np.concatenate([np.stack([np.arange(n), (np.arange(n) + j) % n]) for j in (1, 17, 301)], axis=1)
    graph = from_edges(steps, x=torch.ones(n, 1), y=np.zeros(n, int), train_ids=[0])
    sampler = NeighborSampler(Propagation(graph), num_neighbors=fan_out, num_layers=3, control=control)
    read = 0
    for block in sampler.sample(torch.tensor([5]), step=1):
        rows, drawn = block.sampled.num_rows, block.sampled.indices.numel()
        read += rows * (1 + degree) if control else drawn
    assert sampler.entries(1) == read


def test_two_threads_may_draw_from_one_sampler() -> None:
    """The scratch array is shared: without the lock the draws of one would disturb the other's."""
    rng = np.random.default_rng(0)
    graph = from_edges(rng.integers(0, 3000, (2, 60_000)), x=torch.ones(3000, 1), y=np.zeros(3000, int), train_ids=[0])
    sampler = NeighborSampler(Propagation(graph), num_neighbors=5, num_layers=3)
    ids = torch.arange(1500)
    expected = [[block.sources for block in sampler.sample(ids, step)] for step in range(40)]
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda step: [block.sources for block in sampler.sample(ids, step)], range(40)))
    for a, b in zip(expected, found, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def test_loaders_and_samplers_can_be_copied() -> None:
    graph = from_edges([[0, 1], [1, 2]], x=torch.ones(3, 1), y=[0, 0, 0], train_ids=[0, 1, 2])
    loader = BatchLoader(
        graph.train_ids, NeighborSampler(Propagation(graph), num_neighbors=1, num_layers=2), batch_size=2
    )
    for a, b in zip(copy.deepcopy(loader).epoch(1), loader.epoch(1), strict=True):
        assert torch.equal(a.ids, b.ids)
        assert torch.equal(a.inputs, b.inputs)
