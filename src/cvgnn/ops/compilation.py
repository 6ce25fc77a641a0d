"""`njit` for all kernels: numba's, with a cache that works for any user, on read-only and on full disks.

numba's own cache lies beside the sources or below HOME, and importing a kernel fails where neither can be written. Ours
is `kernels/VERSION` in the cache folder (`CVGNN_HOME`), else in a temporary folder of this user, else there is none.
A `NUMBA_CACHE_DIR` of the user's takes the place of all of them. A folder that was filled before and can only be read,
as in a container image, is used too.

VERSION is a hash of all sources of kernels, so a folder holds the kernels of one version only: numba itself looks at
the file of a kernel and would keep it when a kernel that it calls, in another file, has changed. Folders of versions
that were not used for 30 days are removed.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, final

import numba
from numba.core import caching, event

import cvgnn.rng
from cvgnn.errors import CvgnnError
from cvgnn.utils.cache_folder import cache_folder
from cvgnn.utils.compile_listeners import notify
from cvgnn.utils.file_lock import lock_file

_log = logging.getLogger(__name__)

COMPILE_SECONDS = 10
"""About what the first run of an installation compiles for (docs/install.md)."""

_KEPT_SECONDS = 30 * 24 * 3600
"""How long the kernels of other versions stay after their last use."""

_kernels: set[Callable[..., Any]] = set()


def njit(function: Callable[..., Any] | None = None, *, cache: bool = False, **options: Any) -> Any:
    """`numba.njit`; with `cache=True`, compiled code is kept where this machine and user can keep it.

    Args:
        function: the kernel's Python code; None to use `njit(...)` as a decorator.
        cache: whether to keep compiled code.
        options: of `numba.njit`.
    """
    if function is None:
        return functools.partial(njit, cache=cache, **options)
    kernel = numba.njit(**options)(function)
    if cache:
        # What `cache=True` does in numba, with its own choice of a folder: `Dispatcher.enable_caching`.
        kernel._cache = KernelCache(function)
        _kernels.add(function)
    return kernel


@final
class KernelCache(caching._Cache):
    """numba's cache of one function over several folders. No failure of a disk reaches the caller.

    Args:
        function: the kernel's Python code.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._caches: list[Any] = []
        with contextlib.suppress(OSError):  # there is no source file, as in a frozen program
            self._caches = [_cache_class(folder)(function) for folder in folders()]

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The compiled code for a signature; None if it must be compiled."""
        for cache in self._caches:
            try:
                found = cache.load_overload(sig, target_context)
            except Exception:  # a file that a crash has cut: unpickling raises almost anything
                _log.debug("%s: damaged files of a kernel; it is compiled again", cache.cache_path)
                with contextlib.suppress(OSError), lock_file(Path(cache.cache_path, ".lock"), wait=True):
                    cache.flush()
                continue
            if found is not None:
                return found
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep compiled code for later processes."""
        for cache in self._caches[-1:]:  # the one that can be written, if any can
            try:
                # numba's index and data are two files: without the lock, two processes that compile two signatures
                # could each write one of them, and the index would name the other's code.
                with lock_file(Path(cache.cache_path, ".lock"), wait=True):
                    cache.save_overload(sig, data)
            except OSError as error:
                _log_not_saved(cache.cache_path, error.strerror or str(error))

    @property
    def cache_path(self) -> str | None:
        """The first folder; None without a cache."""
        return self._caches[0].cache_path if self._caches else None

    def enable(self) -> None:
        """Switch the cache on."""
        for cache in self._caches:
            cache.enable()

    def disable(self) -> None:
        """Switch the cache off."""
        for cache in self._caches:
            cache.disable()

    def flush(self) -> None:
        """Forget all compiled code of this kernel."""
        for cache in self._caches:
            cache.flush()


@functools.cache
def _cache_class(folder: Path) -> Any:
    """numba's class of a function's cache, for a given folder, which may be read-only."""

    class Locator(caching.UserProvidedCacheLocator):
        def __init__(self, py_func: Any, py_file: str) -> None:
            self._py_file, self._lineno, self._cache_path = py_file, py_func.__code__.co_firstlineno, str(folder)

        @classmethod
        def from_function(cls, py_func: Any, py_file: str) -> Locator:
            return cls(py_func, py_file)  # numba's refuses a folder that cannot be written

    class Files(caching.CompileResultCacheImpl):
        _locator_classes = [Locator]  # noqa: RUF012

    class Cache(caching.FunctionCache):
        _impl_class = Files

    return Cache


@functools.cache
def folders() -> tuple[Path, ...]:
    """The folders with compiled kernels, to be searched in this order; only the last one can be written, if any can."""
    filled: list[Path] = []
    for root, trusted in _roots():
        folder = root / "kernels" / _version()
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            folder.mkdir(mode=0o755, exist_ok=True)
            usable = trusted or _is_ours(folder)
            if usable:
                tempfile.TemporaryFile(dir=folder).close()
                os.utime(folder)  # its last use
                _remove_old_versions(folder.parent)
                return (*filled, folder)
        except OSError as error:
            _log.debug("%s: %s", folder, error)
            with contextlib.suppress(OSError):
                if (trusted or _is_ours(folder)) and any(folder.glob("*.nbi")):
                    filled.append(folder)
    return tuple(filled)


def _remove_old_versions(kernels: Path) -> None:
    """Remove the folders of versions that no process has used for a month. What cannot be removed stays."""
    for folder in kernels.iterdir():
        with contextlib.suppress(OSError):
            old = time.time() - folder.lstat().st_mtime > _KEPT_SECONDS
            if old and re.fullmatch("[0-9a-f]{16}", folder.name):
                shutil.rmtree(folder)


def _roots() -> Iterator[tuple[Path, bool]]:
    """The folders to try, and whether the user vouches for what others may have put there."""
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    if chosen:
        yield Path(chosen).absolute(), True
    else:
        with contextlib.suppress(CvgnnError):
            yield cache_folder(), False
    with contextlib.suppress(OSError):
        name = f"cvgnn-{os.getuid()}" if hasattr(os, "getuid") else "cvgnn"
        root = Path(tempfile.gettempdir()) / name
        root.mkdir(mode=0o700, exist_ok=True)
        if _is_ours(root):  # else another user has made it
            yield root, False


def _is_ours(folder: Path) -> bool:
    """Whether only this user and root can have written to a folder: numba's files are pickles, which can run code."""
    if not hasattr(os, "getuid"):
        return True
    status = folder.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid in (0, os.getuid()) and not status.st_mode & 0o022


@functools.cache
def _version() -> str:
    """A hash of all sources that compiled code depends on."""
    digest = hashlib.sha256()
    for path in (*sorted(Path(__file__).parent.glob("*.py")), Path(cvgnn.rng.__file__)):
        digest.update(path.read_bytes() if path.is_file() else b"")
    return digest.hexdigest()[:16]


@functools.cache
def _log_compiling() -> None:
    """Log once that this run compiles, for how long, and where the result is kept."""
    places = folders()
    if not places:
        _log.warning(
            "compiling kernels, about %d s in every run, because no folder can keep them; set CVGNN_HOME to a folder "
            "that can be written",
            COMPILE_SECONDS,
        )
    elif any(any(folder.glob("*.nbi")) for folder in places):
        _log.info("compiling kernels that are used for the first time, some seconds; kept in %s", places[-1])
    else:
        _log.info("compiling kernels for the first run, about %d s; kept in %s", COMPILE_SECONDS, places[-1])


@functools.cache
def _log_not_saved(folder: str, error: str) -> None:
    """Warn once that the next run compiles again."""
    _log.warning("cannot keep compiled kernels in %s: %s; the next run compiles them again", folder, error)


@final
class _Compilations(event.Listener):
    """Tells the log and the listeners about compilations of our kernels, not of other numba functions."""

    def on_start(self, event: Any) -> None:
        """A compilation begins."""
        self._tell(event, ended=False)

    def on_end(self, event: Any) -> None:
        """A compilation has ended."""
        self._tell(event, ended=True)

    def _tell(self, event: Any, *, ended: bool) -> None:
        function = event.data["dispatcher"].py_func
        if function in _kernels:
            _log_compiling()
            notify(function.__name__.strip("_"), ended=ended)


event.register("numba:compile", _Compilations())  # type: ignore[no-untyped-call]
