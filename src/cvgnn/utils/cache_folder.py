"""The folder for what cvgnn may keep between runs: downloaded data sets and compiled kernels."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from cvgnn.errors import CvgnnError


def cache_folder(platform: str = sys.platform, environ: Mapping[str, str] = os.environ) -> Path:
    """Return `CVGNN_HOME`, or the platform's cache folder; a `CvgnnError` for a user without a home folder.

    Args:
        platform: a value of `sys.platform`.
        environ: the environment variables.

    >>> cache_folder("linux", {"XDG_CACHE_HOME": "/var/cache/me"}).as_posix()
    '/var/cache/me/cvgnn'
    """
    try:
        if environ.get("CVGNN_HOME"):
            return Path(environ["CVGNN_HOME"]).expanduser().absolute()
        if platform == "darwin":
            return Path.home() / "Library" / "Caches" / "cvgnn"
        if platform == "win32":
            return Path(environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "cvgnn"
        xdg = Path(environ.get("XDG_CACHE_HOME", ""))
        # The XDG specification says to ignore a relative path.
        return (xdg if xdg.is_absolute() else Path.home() / ".cache") / "cvgnn"
    except RuntimeError:  # HOME is not set and the user has no entry in the list of users, as in many containers
        raise CvgnnError("this user has no home folder; set CVGNN_HOME to a folder that can be written") from None
