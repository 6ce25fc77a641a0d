"""Where downloaded data sets live, and whether the network may be used."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

_NO = ("", "0", "false", "no", "off")


def cache_folder(platform: str = sys.platform, environ: Mapping[str, str] = os.environ) -> Path:
    """The folder for downloaded data sets, by the platform's convention; `CVGNN_HOME` overrides it.

    Args:
        platform: as `sys.platform` says it.
        environ: the environment variables.

    >>> cache_folder("linux", {"XDG_CACHE_HOME": "/var/cache/me"}).as_posix()
    '/var/cache/me/cvgnn'
    """
    if environ.get("CVGNN_HOME"):
        return Path(environ["CVGNN_HOME"]).expanduser().absolute()
    if platform == "darwin":
        return Path.home() / "Library" / "Caches" / "cvgnn"
    if platform == "win32":
        return Path(environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "cvgnn"
    xdg = environ.get("XDG_CACHE_HOME", "")
    # The XDG convention says to ignore a relative path.
    return (Path(xdg) if Path(xdg).is_absolute() else Path.home() / ".cache") / "cvgnn"


def offline(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether `CVGNN_OFFLINE` forbids the network.

    >>> offline({"CVGNN_OFFLINE": "1"}), offline({"CVGNN_OFFLINE": "0"}), offline({})
    (True, False, False)
    """
    return environ.get("CVGNN_OFFLINE", "").strip().lower() not in _NO
