"""Feeds a reader with spoiled input, in a process of its own that may die of it.

    python -m tests.faults.fuzz_child FOLDER SEED TIMES READER...
    python -m tests.faults.fuzz_child FOLDER SEED READER:NUMBER     one input again, with the traceback

Every input is a function of the seed, the reader's name and its number. What is allowed: it is read, or refused with a
`CvgnnError` of one line. Everything else is printed as a line of JSON, with what it takes to have it again; the number
of the input at hand is in FOLDER/current, for the case that the process dies.
"""

from __future__ import annotations

import faulthandler
import json
import os
import re
import resource
import sys
import time
import traceback
import unicodedata
import warnings
from pathlib import Path
from random import Random
from typing import Any

import torch

from cvgnn.data.io import size_checks as limits
from cvgnn.errors import CvgnnError
from tests.faults.readers import COUNTS, READERS, Reader

MORE_MEMORY = 600 * 2**20
_FREE = 300 * 2**20
_SLOW, _HANGS = 5.0, 60.0
_LONGEST = 10_000
_NEVER = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty", "socket.connect")
_WRITES = ("os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.symlink", "os.link", "os.truncate", "os.chmod")


class Watch:
    """Notes what no reader may do: start a program, connect, or change a file outside of its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)
        self.active = False
        self.seen: list[str] = []
        sys.addaudithook(self.hear)

    def hear(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.active:
            return
        if event in _NEVER:
            self.seen.append(f"{event} {args!r}"[:200])
        elif event in _WRITES or (event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR)):
            named = isinstance(args[0], str | bytes | os.PathLike) and not (event == "os.remove" and args[1] != -1)
            path = os.path.abspath(os.fsdecode(args[0])) if named else ""  # not what an open folder is emptied of
            inside = path.startswith((self.folder, "/dev/", "/proc/")) or "__pycache__" in path
            if path and not inside:
                self.seen.append(f"{event} {path}"[:200])


def judge(reader: Reader, path: Path, watch: Watch) -> str | None:
    """Read what `path` belongs to; what is wrong with how it went, or None."""
    start = time.process_time()
    watch.seen.clear()
    watch.active = True
    faulthandler.dump_traceback_later(_HANGS, exit=True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            reader.read(path)
        said = None
    except CvgnnError as error:
        said = str(error)
    except BaseException as error:
        last = traceback.extract_tb(error.__traceback__)[-6:]
        trail = " < ".join(f"{Path(f.filename).name}:{f.lineno}" for f in reversed(last))
        return f"{type(error).__name__}: {str(error)[:300]} [{trail}]"
    finally:
        watch.active = False
        faulthandler.cancel_dump_traceback_later()
    seconds = time.process_time() - start
    if watch.seen:
        return f"did what it must not: {watch.seen}"
    if seconds > _SLOW:
        return f"took {seconds:.1f} s of computing ({said})"
    return None if said is None else wrong_sentence(said)


def wrong_sentence(said: str) -> str | None:
    """What is wrong with a sentence, or None. A report on tables has a line for each mistake, 20 at most, and counts of
    the others, at most one for each column that it names and one for the rest."""
    head, *lines = said.split("\n  ")
    counts = [line for line in lines if re.fullmatch(r"\.\.\. and \d+ more( in .+)?", line)]
    mistakes = len(lines) - len(counts)
    counted = len(counts) <= mistakes + 1
    if len(lines) >= 2 and 1 <= mistakes <= 20 and counted and re.fullmatch(r"\d+ mistakes in the tables:", head):
        return next((wrong for line in lines if (wrong := wrong_sentence(line)) is not None), None)
    if not said.strip() or any(unicodedata.category(c) in ("Cc", "Zl", "Zp") for c in said):
        return f"not one line: {said[:500]!r}"
    if len(said) > _LONGEST:
        return f"{len(said)} characters: {said[:300]!r}"
    if "does not fit into memory" in said or "MemoryError" in said:
        return f"took memory that nobody checked: {said[:300]!r}"
    return None


def spoil(reader: Reader, name: str, seed: int, number: int) -> tuple[Path, str]:
    """Write input `number`; returns the spoiled file, and what was done, in words."""
    rng = Random(f"{seed}/{name}/{number}")
    path = rng.choice(list(reader.files))
    data = path.read_bytes()
    put(path, reader.files[path](data, rng))
    if reader.more is not None:
        reader.more(path, rng)
    return path, f"seed {seed}, {name}:{number}, {path.name}: {len(data)} -> {path.stat().st_size} bytes"


def put(path: Path, data: bytes) -> None:
    """A new file in the old one's place: an array that is still mapped keeps what it has."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(".new")
    temporary.write_bytes(data)
    temporary.replace(path)


def limit_memory() -> None:
    """No more than some hundred MiB beyond what there is now."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MORE_MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    limits.available_memory = lambda: _FREE  # type: ignore[assignment]  # a small machine, so that checks come in time


def main(folder: Path, seed: int, times: float, names: list[str]) -> None:
    """Try all inputs of the named readers."""
    torch.set_num_threads(1)
    readers = {}
    for name in names:
        (folder / name).mkdir()
        readers[name] = READERS[name](folder / name)
        for path in readers[name].files:
            readers[name].read(path)  # sound input is read; and kernels are compiled, modules loaded
    limit_memory()
    watch = Watch(folder)
    for name, reader in readers.items():
        sound = {path: path.read_bytes() for path in (*reader.files, *reader.touches)}
        start, tried = time.process_time(), int(COUNTS[READERS[name]] * times) or 1
        for number in range(tried):
            (folder / "current").write_text(f"seed {seed}, {name}:{number}")
            spoiled, words = spoil(reader, name, seed, number)
            wrong = judge(reader, spoiled, watch)
            if wrong is not None:
                print(json.dumps({"input": words, "wrong": wrong}), flush=True)
            for path, data in sound.items():
                if path in reader.touches or not path.exists() or path.read_bytes() != data:
                    put(path, data)
        for path in reader.files:
            again = judge(reader, path, watch)
            assert again is None, f"{name}: sound input is not read any more: {again}"
        print(
            json.dumps({"reader": name, "tried": tried, "seconds": round(time.process_time() - start, 1)}), flush=True
        )


def one(folder: Path, seed: int, which: str) -> None:
    """One input again, left in the folder."""
    name, number = which.split(":")
    torch.set_num_threads(1)
    (folder / name).mkdir()
    reader = READERS[name](folder / name)
    for path in reader.files:
        reader.read(path)
    limit_memory()
    path, words = spoil(reader, name, seed, int(number))
    print(words)
    reader.read(path)


if __name__ == "__main__":
    if ":" in sys.argv[-1]:
        one(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
    else:
        main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.argv[4:])
