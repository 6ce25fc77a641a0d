"""Every test here has its own cache folder, short retries, and no network beyond this machine."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cvgnn.data.named import raw_folder as fetch
from cvgnn.data.named.download import RetryPolicy
from tests.data.named.server import Server

FAST = RetryPolicy(timeout=5.0, attempts=3, backoff=0.01)


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache folder, which does not exist yet."""
    folder = tmp_path_factory.mktemp("cache") / "cvgnn"
    monkeypatch.setenv("CVGNN_HOME", str(folder))
    for name in ("CVGNN_OFFLINE", "http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(fetch, "POLICY", FAST)
    resolve = socket.getaddrinfo

    def only_here(host: str, *args: Any, **more: Any) -> Any:
        if host not in ("127.0.0.1", "localhost"):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return resolve(host, *args, **more)

    monkeypatch.setattr(socket, "getaddrinfo", only_here)
    return folder


@pytest.fixture
def server() -> Iterator[Server]:
    """An HTTP server on this machine."""
    with Server() as running:
        yield running
