"""The package on machines where nobody is root: a read-only install, no HOME, several processes at once."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import cvgnn

# As user nobody, who may read everything but write only as its permissions say: the interpreter may lie below /root.
NOBODY = [
    "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=+dac_read_search",
    "--ambient-caps=+dac_read_search",
]  # fmt: skip


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can enter; `tmp_path` lets only its owner in."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def skip_unless_nobody_can_run() -> None:
    if not hasattr(os, "getuid") or os.getuid() != 0:
        pytest.skip("only root can run a command as user nobody")
    try:
        done = subprocess.run([*NOBODY, sys.executable, "-c", ""], capture_output=True, timeout=60, check=False)
    except OSError as error:
        pytest.skip(f"setpriv cannot run: {error}")
    if done.returncode:
        pytest.skip(f"user nobody cannot run {sys.executable}: {done.stderr.decode()[-200:]}")


@pytest.mark.slow
def test_nobody_trains_from_a_read_only_install_without_home(open_folder: Path) -> None:
    skip_unless_nobody_can_run()
    source, temporary, here = open_folder / "install", open_folder / "tmp", open_folder / "here"
    shutil.copytree(Path(cvgnn.__file__).parent, source / "cvgnn", ignore=shutil.ignore_patterns("__pycache__"))
    temporary.mkdir()
    temporary.chmod(0o1777)
    here.mkdir()
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(source), "TMPDIR": str(temporary)}
    before = sorted(source.rglob("*"))

    words = [*NOBODY, sys.executable, "-m", "cvgnn", "train", "--epochs", "20", "--json"]
    both = [
        subprocess.Popen(words, env=env, cwd=here, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    printed = [process.communicate(timeout=300) for process in both]
    assert [process.returncode for process in both] == [0, 0], printed
    for out, err in printed:
        assert json.loads(out)["test_accuracy"] > 0.2
        assert err.count("compiling kernels") == 1, err
        assert f"kept in {temporary}/cvgnn-65534/kernels/" in err

    assert sorted(source.rglob("*")) == before
    again = subprocess.run(words, env=env, cwd=here, capture_output=True, text=True, timeout=300, check=True)
    assert "compiling" not in again.stderr
    assert json.loads(again.stdout)["test_accuracy"] > 0.2
