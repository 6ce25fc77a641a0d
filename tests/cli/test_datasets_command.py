"""`cvgnn datasets`: the list and the check."""

from __future__ import annotations

import dataclasses
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from cvgnn.cli.main import run_command
from cvgnn.data.named.catalog import CATALOG
from cvgnn.data.named.dataset_loader import DATASETS
from cvgnn.errors import CvgnnError

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of its own, and no network at all."""
    monkeypatch.setenv("CVGNN_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("CVGNN_OFFLINE", raising=False)

    def refuse(*args: object, **more: object) -> None:
        raise AssertionError("the network was touched")

    monkeypatch.setattr(socket, "create_connection", refuse)
    return tmp_path / "home"


def table(out: str) -> dict[str, list[str]]:
    """The rows by name, split at runs of two or more spaces."""
    lines = [[word for word in line.split("  ") if word] for line in out.splitlines()]
    return {line[0]: [word.strip() for word in line[1:]] for line in lines}


def test_the_list(capsys: Captured, home: Path) -> None:
    assert run_command("datasets", []) == 0
    out, err = capsys.readouterr()
    assert err == ""
    rows = table(out)
    assert rows["name"] == ["nodes", "edges", "features", "classes", "train / val / test", "cached", "on disk"]
    assert rows["citeseer"] == ["3,327", "4,552", "3,703", "6", "120 / 500 / 1,000", "bundled", "171.5 KiB"]
    assert rows["cora"] == ["2,708", "5,278", "1,433", "7", "140 / 500 / 1,000", "no", "-"]
    assert rows["ogbn-arxiv"][:5] == ["169,343", "1,166,243", "128", "40", "90,941 / 29,799 / 48,603"]
    assert rows["reddit"][:5] == ["232,965", "57,307,946", "602", "41", "153,431 / 23,831 / 55,703"]
    assert rows["synthetic-arxiv"] == ["169,343", "1,157,799", "128", "40", "90,941 / 29,799 / 48,603", "no", "-"]
    assert set(DATASETS) == set(rows) - {"name", out.splitlines()[-1]}
    assert out.splitlines()[-1] == f"looked in {home}"
    assert not home.exists()
    assert all(line == line.rstrip() for line in out.splitlines())


def test_the_list_of_a_root(capsys: Captured, shared_data: Path) -> None:
    assert run_command("datasets", ["--root", str(shared_data)]) == 0
    out = capsys.readouterr().out
    rows = table(out)
    assert rows["name"][5] == "in root"
    assert rows["cora"][5:] == ["yes", "559.0 KiB"]
    assert rows["citeseer"][5:] == ["yes", "1011.9 KiB"]
    assert rows["flickr"][5:] == ["no", "-"]
    assert out.splitlines()[-1] == f"looked in {shared_data}"


def test_what_is_cached(capsys: Captured, home: Path) -> None:
    raw = home / "flickr" / "raw"
    raw.mkdir(parents=True)
    (raw / "role.json").write_bytes(b"x" * 1500)
    run_command("datasets", [])
    assert table(capsys.readouterr().out)["flickr"][5:] == ["in part", "1.5 KiB"]
    for file in CATALOG["flickr"].files:
        (raw / file).write_bytes(b"x" * 1_000_000)
    (home / "synthetic-flickr-v1").mkdir()
    (home / "synthetic-flickr-v1" / "x.npy").write_bytes(b"x" * 2000)
    run_command("datasets", [])
    rows = table(capsys.readouterr().out)
    assert rows["flickr"][5:] == ["yes", "3.8 MiB"]
    assert rows["synthetic-flickr"][5:] == ["yes", "2.0 KiB"]
    assert rows["synthetic-reddit"][5:] == ["no", "-"]


@pytest.mark.parametrize(("name", "edges"), [("cora", "13,264"), ("citeseer", "12,431")])
def test_verify_on_the_real_files(capsys: Captured, shared_data: Path, name: str, edges: str) -> None:
    assert run_command("datasets", ["--verify", name, "--root", str(shared_data)]) == 0
    out = capsys.readouterr().out
    rows = table(out)
    assert rows["count"] == ["published", "found", "result", "published by"]
    assert rows["edges, with self loops"] == [edges, edges, "pass", "Table 2"]
    assert out.splitlines()[-1] == f"{name}: all 7 counts agree"


def test_verify_fails_with_code_1(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    right = CATALOG["citeseer"]
    wrong = dataclasses.replace(right.counts, nodes=3312, split=(120, 500, 1015))
    monkeypatch.setitem(CATALOG, "citeseer", dataclasses.replace(right, counts=wrong))
    assert run_command("datasets", ["--verify", "citeseer"]) == 1
    out = capsys.readouterr().out
    rows = table(out)
    assert rows["nodes"] == ["3,312", "3,327", "FAIL", "Table 2"]
    assert rows["test nodes"] == ["1,015", "1,000", "FAIL", "upstream"]
    assert rows["classes"] == ["6", "6", "pass", "Table 2"]
    assert out.splitlines()[-1] == "citeseer: 2 of 7 counts differ"


def test_mistakes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, home: Path) -> None:
    with pytest.raises(CvgnnError, match="unknown dataset 'kora'; known: citeseer, cora"):
        run_command("datasets", ["--verify", "kora"])
    with pytest.raises(CvgnnError, match="no raw files of 'flickr'"):
        run_command("datasets", ["--verify", "flickr", "--root", str(tmp_path)])
    monkeypatch.setenv("CVGNN_OFFLINE", "1")
    with pytest.raises(CvgnnError, match=r"CVGNN_OFFLINE=1 forbids downloading it; fetch by hand reddit\.zip"):
        run_command("datasets", ["--verify", "reddit"])
    assert not home.exists()


@pytest.mark.parametrize("words", [[], ["--verify", "citeseer"]], ids=["list", "verify"])
def test_on_a_terminal(capsys: Captured, monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "120")
    assert run_command("datasets", words) == 0
    out = capsys.readouterr().out
    assert "───" in out
    for word in ("3,327", "3,703"):
        assert word in out


def test_the_list_does_not_wait_for_torch(home: Path) -> None:
    code = (
        "import sys; from cvgnn.cli.main import run_command; run_command('datasets', []);"
        "print([m for m in ('torch', 'numba', 'scipy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
