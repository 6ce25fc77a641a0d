"""Where the real data sets are, for the tests that need them."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in the background jobs of a shell; tests send it
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder ../shared/data, seen from the repository's root."""
    folder = Path(__file__).resolve().parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("the real data sets are not here: no folder ../shared/data beside the repository")
    return folder


@pytest.fixture(scope="session")
def planetoid_folder(shared_data: Path) -> Path:
    """The folder with the raw files ind.cora.*, ind.citeseer.* and ind.pubmed.*."""
    folder = shared_data / "planetoid"
    if not folder.is_dir():
        pytest.skip("the raw Planetoid files are not here: no folder ../shared/data/planetoid")
    return folder


@pytest.fixture(autouse=True)
def off_the_network(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """No test downloads anything or looks into the user's own cache folder."""
    monkeypatch.setenv("CVGNN_OFFLINE", "1")
    monkeypatch.setenv("CVGNN_HOME", str(tmp_path_factory.getbasetemp() / "cvgnn-home"))
