"""A pool of processes, one for each task.

`concurrent.futures.ProcessPoolExecutor` breaks as a whole when one of its processes is killed. Here the caller gets the
exit code of that process, the others continue, and the caller may start the task again.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any, Generic, NamedTuple, TypeVar, final

from cvgnn.registry import PLUGINS, import_plugin

Task = TypeVar("Task")


class Ended(NamedTuple):
    """The end of a process: what its function returned (None if the process was killed), and its exit code."""

    value: Any
    exit_code: int


@final
class ProcessPool(Generic[Task]):
    """Runs `target(*args)` in a process of its own for each task. Leaving the `with` block stops all processes.

    SIGINT is ignored in the processes: Ctrl-C reaches the whole process group, and the caller decides what to stop. The
    processes get SIGTERM when the caller leaves the block, and when it dies in any other way.

    Args:
        target: a function of a module, so that another process can import it; its result must be picklable.
        stop_seconds: time for a process to save its state after SIGTERM; then it is killed.
    """

    def __init__(self, target: Callable[..., Any], *, stop_seconds: float = 60.0) -> None:
        self._target = target
        self._stop_seconds = stop_seconds
        # A fork server that has imported torch and the training code starts a process in milliseconds. A program has
        # one fork server, so the list is not only for this target.
        self._context: Any = multiprocessing.get_context("forkserver" if sys.platform == "linux" else "spawn")
        if sys.platform == "linux":
            self._context.set_forkserver_preload(["cvgnn.training.run", target.__module__])
        self._running: dict[Any, tuple[Task, BaseProcess]] = {}  # by the end of a pipe on which its result comes

    def __len__(self) -> int:
        """Number of running processes."""
        return len(self._running)

    def start(self, task: Task, *args: Any) -> None:
        """Start a process that runs `target(*args)`."""
        receiver, sender = self._context.Pipe(duplex=False)
        process = self._context.Process(target=_run, args=(sender, self._target, args, tuple(PLUGINS)), daemon=True)
        process.start()
        sender.close()  # the process holds the only writing end now, so its death ends the pipe
        self._running[receiver] = (task, process)

    def wait(self, timeout: float) -> Iterator[tuple[Task, Ended]]:
        """The tasks that have ended; waits until one has, at most `timeout` seconds."""
        receiver: Any
        for receiver in wait(list(self._running), timeout):
            task, process = self._running.pop(receiver)
            try:
                value = receiver.recv()
            except (EOFError, OSError):
                value = None
            finally:
                receiver.close()
            process.join()
            yield task, Ended(value, process.exitcode or 0)

    def __enter__(self) -> ProcessPool[Task]:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        processes = [process for _, process in self._running.values()]
        for process in processes:
            process.terminate()
        deadline = time.monotonic() + self._stop_seconds
        for process in processes:
            process.join(max(0.0, deadline - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()


def _run(sender: Connection, target: Callable[..., Any], args: tuple[Any, ...], plugins: tuple[str, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=_stop_with, args=(parent.sentinel,), daemon=True).start()
    for plugin in plugins:
        import_plugin(plugin)
    value = target(*args)
    with contextlib.suppress(BrokenPipeError):  # the caller has died
        sender.send(value)


def _stop_with(parent: int) -> None:
    # Linux's PR_SET_PDEATHSIG would not do: this process is a child of the fork server, which outlives the caller.
    wait([parent])
    os.kill(os.getpid(), signal.SIGTERM)
