"""Set-up of all tests: fixed random examples, the kernel cache, and where the real data sets are."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings

# The same examples in every run: a check of a commit must not depend on luck. CVGNN_HYPOTHESIS=N tries N other ones.
settings.register_profile("fixed", derandomize=True)
settings.register_profile("random", max_examples=int(os.environ.get("CVGNN_HYPOTHESIS", "100")))
settings.load_profile("random" if "CVGNN_HYPOTHESIS" in os.environ else "fixed")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in the background jobs of a shell; tests send it
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Kernels are compiled once for all test processes, and not once for every CVGNN_HOME of a test.
os.environ.setdefault("NUMBA_CACHE_DIR", str(Path(__file__).resolve().parents[1] / ".pytest_cache"))


def pytest_sessionstart(session: pytest.Session) -> None:
    """Compile the kernels of the commands before any test: the message that they are compiled would otherwise be on the
    stderr of whichever process is the first to need one. pytest-xdist's workers leave it to the session that starts
    them."""
    if not hasattr(session.config, "workerinput"):
        subprocess.run([sys.executable, "-m", "cvgnn", "warmup", "--quiet"], check=True, stdout=subprocess.DEVNULL)


@pytest.fixture(autouse=True, scope="module")
def compile_message() -> None:
    """The message that kernels are compiled comes once in a process: here, and not on the stderr of whichever test is
    the first to need a new kernel. `tests/ops/test_compilation.py` tests it."""
    from cvgnn.ops import compilation

    compilation._log_compiling()


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
