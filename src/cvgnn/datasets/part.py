"""The temporary files of a transfer.

Beside the target `FILE` lie, while it is under way, `FILE.part` (what has arrived) and `FILE.part.json` (the URL, the
size, and the validator by which a server says whether its file is still the same one).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from pathlib import Path
from typing import final


@final
class Part:
    """What has arrived of a file, and what it belongs to.

    Args:
        path: `FILE.part`; what an earlier transfer of another file left there is thrown away.
        url: where the file comes from.
    """

    def __init__(self, path: Path, url: str) -> None:
        self.path = path
        self._note = path.with_name(f"{path.name}.json")
        self._url = url
        self.validator: str | None = None
        self.total: int | None = None
        with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
            note = json.loads(self._note.read_text(encoding="utf-8"))
            if note.get("url") == url and isinstance(note.get("validator"), str):
                self.validator = note["validator"]
                self.total = note["total"] if isinstance(note.get("total"), int) else None
        if self.validator is None or (self.total is not None and self.size > self.total):
            self.drop()

    @property
    def size(self) -> int:
        """Bytes that have arrived."""
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    @property
    def complete(self) -> bool:
        """Whether all bytes are here: only the check and the renaming were missed."""
        return self.total is not None and self.size == self.total > 0

    def start(self, validator: str | None, total: int | None) -> None:
        """A new file begins; without a validator it can never be resumed."""
        self.drop()
        self.validator, self.total = validator, total
        if validator is not None:
            note = {"url": self._url, "validator": validator, "total": total}
            self._note.write_text(json.dumps(note), encoding="utf-8")

    def drop(self) -> None:
        """Forget everything."""
        self.path.unlink(missing_ok=True)
        self._note.unlink(missing_ok=True)
        self.validator = self.total = None

    def checksum(self) -> str:
        """SHA-256 of what has arrived."""
        with self.path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def finish(self, target: Path) -> None:
        """Everything is here and right: give it its name."""
        os.replace(self.path, target)
        self._note.unlink(missing_ok=True)
