"""A run in a folder: its config, the line of each epoch, its checkpoints, its result; begun, or gone on with."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence

from cvgnn._version import __version__
from cvgnn.checkpoint import Checkpoint, Checkpoints
from cvgnn.config import CheckpointPlan, GraphSource, TrainConfig
from cvgnn.errors import CvgnnError, require
from cvgnn.experiments.checkpointing import Checkpointer, earlier_records, matching
from cvgnn.experiments.folder import RunFolder
from cvgnn.experiments.identity import identity
from cvgnn.experiments.machine import describe_machine, sensible_threads
from cvgnn.experiments.run import Run, train
from cvgnn.experiments.stop import stop_requests
from cvgnn.graph import Graph
from cvgnn.limits import MAX_THREADS
from cvgnn.store import is_store, verify_store
from cvgnn.training import Diverged, EpochRecord, Recorder

Say = Callable[[str], None]


def to_stderr(sentence: str) -> None:
    """The plainest way to say something."""
    with contextlib.suppress(OSError):  # a run is worth more than its log
        print(f"cvgnn: {sentence}", file=sys.stderr, flush=True)


def train_in(
    folder: RunFolder,
    graph: Graph,
    source: GraphSource,
    config: TrainConfig,
    *,
    plan: CheckpointPlan | None = None,
    command: str | None = None,
    on_start: Callable[[Sequence[EpochRecord]], None] | None = None,
    on_epoch: Callable[[EpochRecord], None] | None = None,
    say: Say = to_stderr,
) -> Run:
    """Train as `config` says, keeping everything in `folder`, which must be `opened`.

    A run that was begun there goes on from its newest sound checkpoint; from the beginning if there is none yet.

    Args:
        folder: of the run.
        graph, source: what to train on, and where it came from.
        config: how.
        plan: when to save the state.
        command: the words of the command line that asked for this, for the record.
        on_start: called once, before the first new epoch, with the records of those that an earlier process has done.
        on_epoch: called with each new epoch's record.
        say: told what the user should know and the result does not say.
    """
    checkpoints = Checkpoints(folder.checkpoints, say=say)
    found = checkpoints.newest() if folder.begun else None
    earlier = earlier_records(found)
    threads = config.threads or _threads_of(found) or sensible_threads(graph, config)
    mine = identity(graph, source, config, threads=threads)
    matching(found, mine, say=say)
    done = len(earlier)
    require(
        config.epochs >= done,
        f"the run in {folder.path} has {done} epochs done already; epochs may grow, not shrink to {config.epochs}",
    )
    if folder.begun and found is None:
        require(
            not folder.has_result,
            f"the run in {folder.path} is finished and its checkpoints are gone, so it cannot go on; start a new one",
        )
        say(f"{folder.path} holds no checkpoint yet: the run begins at its beginning")
    if found is not None and source.graph is not None and is_store(source.graph):
        verify_store(source.graph)  # its header, which the identity is made of, says nothing of bytes changed since
    if config.epochs > done:
        folder.forget_result()
    folder.write_config({"version": __version__, **source.to_dict(), **config.to_dict()})
    with stop_requests(say) as stop:
        keeper = Checkpointer(
            checkpoints,
            mine,
            plan=plan or CheckpointPlan(),
            epochs=config.epochs,
            stop=stop,
            found=found,
            records=earlier,
            say=say,
        )
        del found  # or its file, when it is removed, would stay on the disk as long as this process
        with Recorder(folder.metrics, earlier=earlier, say=say) as recorder:
            if on_start is not None:
                on_start(earlier)

            def each_epoch(record: EpochRecord) -> None:
                recorder.write(record)
                if on_epoch is not None:
                    on_epoch(record)

            try:
                run = train(graph, config, on_epoch=each_epoch, keeper=keeper, threads=threads)
            except Diverged as error:
                last = checkpoints.last
                kept = "there is no checkpoint" if last is None else f"the last good checkpoint is {last}"
                raise CvgnnError(f"{error}, in a new folder; {kept}") from None
        about = {"command": command, "machine": describe_machine(mine["code"])}
        folder.write_result({**run.result, **about}, run.model)
    return run


def _threads_of(found: Checkpoint | None) -> int | None:
    """How many the earlier process used, so that the sums are taken in the same order."""
    then = {} if found is None else found.body.get("identity", {})
    threads = then.get("threads") if isinstance(then, dict) else None
    return threads if type(threads) is int and 1 <= threads <= MAX_THREADS else None
