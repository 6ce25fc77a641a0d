"""The scripts and notebooks in examples/ run, and end as they say. One process runs all scripts, to import torch once."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest
import torch

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted(ROOT.glob("examples/*.py"))
NOTEBOOKS = sorted(ROOT.glob("examples/*.ipynb"))

# What a script must print: a pattern, and the range of its number.
PRINTED = {
    "bigger_than_memory": (r"test accuracy (\S+)%", 45, 80),
    "citeseer_in_ten_lines": (r"test accuracy (\S+)%", 68, 75),
    "is_fan_out_one_enough": (r"With a fan-out of 1, the neighbor variance of ns is (\S+) times", 2, 1000),
    "link_prediction": (r"test AUC (\S+),", 0.85, 1),
    "multilabel_and_imbalance": (r"class_weight=balanced: .* recall (\S+)$", 0.6, 1),
    "own_csv": (r"(\d+) of 40 customers", 27, 40),
    "own_layer": (r"test accuracy (\S+)%", 64, 74),
    "own_loop": (r"epoch 20: .* test accuracy (\S+)%", 60, 72),
    "papers_five_optimizers": (r"^sgd .* (\S+)%$", 64, 75),
    "pyg_and_back": (r"cvgnn: test accuracy (\S+)%", 85, 100),
    "tune": (r"validation (\S+)%", 65, 80),
    "two_ranks": (r"2 rank\(s\): SHA-256 of the weights ([0-9a-f]+)$", None, None),
}


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")  # on import of PyG
@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    code = path.read_text(encoding="utf-8")
    lines = code.split('"""', 2)[2].strip().splitlines()
    assert len(lines) <= 50, "an example is short"
    assert re.match(r'"""[A-Z].{8,60}[.?]\n\n[A-Z`]', code), (
        "its docstring begins with a title and says what one learns"
    )
    names = runpy.run_path(str(path), run_name="__main__")
    printed = capfd.readouterr().out
    pattern, low, high = PRINTED[path.stem]
    found = re.findall(pattern, printed, flags=re.MULTILINE)
    assert len(found) == 1, printed
    if low is None:
        assert re.findall(r"1 rank\(s\): SHA-256 of the weights (\S+)", printed) == found
    else:
        assert low <= float(found[0]) <= high, printed
    if path.stem == "own_loop":
        check_own_loop(names)


def check_own_loop(names: dict[str, Any]) -> None:
    """The loop learns, and its histories move."""
    assert float(names["loss"].detach()) < 0.2
    assert int(names["cv"].history(1).age(step=40).min()) == 0
    assert torch.isfinite(names["W"]).all()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook(path: Path, tmp_path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in cells), "outputs are not committed"
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=600, startup_timeout=600, resources=resources).execute()
    figures = [output for cell in cells for output in cell.outputs if "image/png" in output.get("data", {})]
    assert figures


def test_every_example_is_listed() -> None:
    page = (ROOT / "docs/examples.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"\(\.\./examples/(\S+)\)", page)) == sorted(path.name for path in [*SCRIPTS, *NOTEBOOKS])
    assert {path.stem for path in SCRIPTS} == PRINTED.keys()
