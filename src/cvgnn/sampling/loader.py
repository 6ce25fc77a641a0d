"""Batches of training items. Positions in the training list never leave this file: what comes out are ids."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Literal, TypeVar, final, get_args

import torch
from torch import Tensor

from cvgnn.errors import CvgnnError, require, require_integer, require_known
from cvgnn.ops.threads import ask_for_help, num_threads
from cvgnn.rng import Purpose, numpy_generator
from cvgnn.sampling.batch import Batch
from cvgnn.sampling.items import Items, NodeItems
from cvgnn.sampling.neighbor import NeighborSampler

BatchMode = Literal["shuffle", "replacement"]
BATCH_MODES: tuple[str, ...] = get_args(BatchMode)

WORTH_DRAWING_AHEAD = 3000
"""Entries of `P` in a batch from which another thread that draws it gains more than it costs
(docs/benchmarks/threads.md)."""

T = TypeVar("T")


@final
class StartSignal:
    """The consumer's signal that the cores have time to compute the next item; see `prefetch_one`."""

    def __init__(self) -> None:
        self.was_sent = False
        self.start: Callable[[], None] | None = None

    def send(self) -> None:
        """Start the next item, unless it has started."""
        self.was_sent = True
        start = self.start
        if start is not None:
            start()


def prefetch_one(items: Iterator[T], signal: StartSignal | None = None) -> Iterator[T]:
    """The same items, each computed in another thread while the consumer works on the one before.

    Args:
        items: computed one by one.
        signal: sent by a consumer that knows when the cores have time. Without it, or before it is sent for the first
            time, an item starts as soon as the one before is taken.

    >>> list(prefetch_one(iter("abc")))
    ['a', 'b', 'c']
    """
    # One item ahead and not more: a longer queue would hold several batches in memory.
    end, signal, lock, waiting = object(), signal or StartSignal(), threading.Lock(), False
    signal.was_sent = False
    drawn = SimpleQueue[tuple[object, BaseException | None]]()

    def draw() -> None:
        try:
            drawn.put((next(items, end), None))
        except BaseException as error:
            drawn.put((end, error))

    def start() -> None:
        nonlocal waiting
        with lock:  # another thread may read another epoch of the same loader, and send the signal
            if not waiting:
                waiting = True
                ask_for_help(draw)

    try:
        while True:
            start()  # for a consumer that sent no signal for this item
            item, error = drawn.get()
            waiting = False
            if error is not None:
                raise error
            if item is end:
                return
            signal.start = start
            # Before the first signal it is unknown whether the consumer sends any.
            if not signal.was_sent:
                start()
            yield item  # type: ignore[misc]
    finally:
        signal.start = None


def one_on_signal(items: Iterator[T], signal: StartSignal) -> Iterator[T]:
    """The same items, each computed by the consumer itself when it sends the signal, because it has to wait then.

    >>> list(one_on_signal(iter("abc"), StartSignal()))
    ['a', 'b', 'c']
    """
    end = object()
    coming: list[object] = []

    def start() -> None:
        if not coming:
            coming.append(next(items, end))

    try:
        while True:
            start()
            if (item := coming.pop()) is end:
                return
            signal.start = start
            yield item  # type: ignore[misc]
    finally:
        signal.start = None


@final
class BatchLoader:
    """Draws `V_t` from the training items and the neighbors for it; a pure function of (seed, epoch, step).

    Args:
        items: the training items of a task; int64 `[n]`, distinct node ids, stand for `NodeItems` of them.
        sampler: draws receptive fields and `P^`.
        batch_size: `|V_t|`.
        mode: `"shuffle"`: epochs over a fresh permutation, the last batch may be smaller (the published experiments);
            `"replacement"`: independent draws with replacement (Algorithm 1, line 4).
        seed: of the run.
        read_ahead: called with every batch after it is drawn, in the thread that draws it; to read what it will need.
        on_signal: whether `draw_ahead` draws the next batch before it returns.
    """

    def __init__(
        self,
        items: Items | Tensor,
        sampler: NeighborSampler,
        *,
        batch_size: int = 512,
        mode: BatchMode = "shuffle",
        seed: int = 0,
        read_ahead: Callable[[Batch], object] | None = None,
        on_signal: bool = False,
    ) -> None:
        require_known("batches", mode, BATCH_MODES)
        if not isinstance(items, Items):
            sampler.check_ids(items)
            items = NodeItems(items)
        self.items = items
        require(len(self.items) > 0, f"the training split is empty; name at least one training {self.items.kind}")
        self.sampler = sampler
        self.batch_size = require_integer("batch_size", batch_size, at_least=1)
        self.mode = mode
        self.seed = require_integer("seed", seed, at_least=0)
        self.read_ahead, self.on_signal = read_ahead, on_signal
        self._signal = StartSignal()
        self._epochs_read = 0

    def __len__(self) -> int:
        """Batches in an epoch."""
        return self.steps_per_epoch

    def __iter__(self) -> Iterator[Batch]:
        """The batches of the next epoch, as of a `DataLoader`: 1 at first, then 2, and so on."""
        self._epochs_read += 1
        return self.epoch(self._epochs_read)

    @property
    def steps_per_epoch(self) -> int:
        """Steps that draw as many items as the training split has, rounded up."""
        return -(-len(self.items) // self.batch_size)

    @property
    def train_ids(self) -> Tensor:
        """int64 `[n]`, the ids of the training items: for nodes, the set `V_L`."""
        return self.items.ids

    def epoch(self, epoch: int, *, skip: int = 0) -> Iterator[Batch]:
        """The batches of epoch `epoch`, counted from 1.

        Another thread draws the next batch during the current step, unless torch has one thread or batches are small.
        The draws do not depend on that.

        Args:
            epoch: which one.
            skip: the number of batches to leave out at the start, without drawing their neighbors.
        """
        require_integer("epoch", epoch, at_least=1)
        # Steps are numbered through all epochs: the number is a coordinate of every draw (`cvgnn.rng.derive`).
        first_step = (epoch - 1) * self.steps_per_epoch + 1
        numbered = itertools.islice(enumerate(self.epoch_ids(epoch), start=first_step), skip, None)
        drawn = (self._batch(ids, step) for step, ids in numbered)
        if self.on_signal:
            return one_on_signal(drawn, self._signal)
        ahead = num_threads() > 1 and self.sampler.entries(self.batch_size) >= WORTH_DRAWING_AHEAD
        return prefetch_one(drawn, self._signal) if ahead else drawn

    def draw_ahead(self) -> None:
        """Let another thread draw the next batch of the current epoch now, if batches are prefetched.

        A training step calls this when its gradient is almost there (`one_torch_thread`): the rest runs on one
        thread, so that drawing at the same time costs nothing.
        """
        self._signal.send()

    def epoch_ids(self, epoch: int) -> Iterator[Tensor]:
        """The ids of the items of each batch of an epoch, int64 `[B]`."""
        train, size = self.train_ids.numpy(), self.batch_size
        n = train.size
        # A generator for each epoch, so that a resumed run needs no state but the epoch's number.
        rng = numpy_generator(self.seed, Purpose.BATCHES, epoch)
        if self.mode == "shuffle":
            order = rng.permutation(n)
            for start in range(0, n, size):
                yield torch.from_numpy(train[order[start : start + size]])
        else:
            # Algorithm 1, line 4: every step draws its own V_t; an epoch is only a count of steps.
            for position in rng.integers(0, n, size=(self.steps_per_epoch, size)):
                yield torch.from_numpy(train[position])

    def batch(self, ids: Tensor, step: int) -> Batch:
        """The batch of the given training ids at a step, with its receptive fields."""
        require(ids.dim() == 1 and ids.dtype == torch.int64, f"ids must be an int64 vector of ids, not {ids.dtype}")
        outside = ids[~torch.isin(ids, self.train_ids)].tolist()
        if outside:
            kind = self.items.kind
            raise CvgnnError(f"{kind} {outside[0]} is not a training {kind}; a batch holds training ids only")
        return self._batch(ids, step)

    def _batch(self, ids: Tensor, step: int) -> Batch:
        # Only this mode repeats ids.
        targets, place = self.items.targets(ids, step, repeats=self.mode == "replacement")
        blocks = self.sampler.sample_unchecked(targets, step)
        batch = Batch(step=step, ids=ids, place=place, blocks=blocks, inputs=blocks[0].sources if blocks else targets)
        if self.read_ahead is not None:
            self.read_ahead(batch)
        return batch
