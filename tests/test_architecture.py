"""The shape of the package: who imports whom, what the front door offers, and what importing costs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import cvgnn

ROOT = Path(cvgnn.__file__).parent

# A package imports only from those above it.
ORDER = [
    "_version", "errors", "limits", "rng", "disk", "sealed", "locking", "ops", "reference", "graph", "store", "files", "datasets", "sampling", "nn", "optim", "training", "checkpoint",
    "config", "experiments", "sweeps", "diagnose", "report", "cli",
]  # fmt: skip
FILES = sorted(path for path in ROOT.rglob("*.py") if path.parent != ROOT or path.stem in ORDER)


def test_every_module_has_a_place() -> None:
    names = {path.stem if path.is_file() else path.name for path in ROOT.iterdir()}
    names -= {"__init__", "__main__", "__pycache__", "py"}
    assert {name for name in names if name != "py.typed"} <= set(ORDER)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_one_way(path: Path) -> None:
    own = path.relative_to(ROOT).parts[0].removesuffix(".py")
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"relative import in {path}"
            modules = [node.module or ""]
        elif isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        else:
            continue
        for module in modules:
            if module.startswith("cvgnn."):
                part = module.split(".")[1]
                assert part == own or ORDER.index(part) < ORDER.index(own), f"{path} imports {module}"


def test_only_the_outer_layers_know_the_config() -> None:
    for path in FILES:
        own = path.relative_to(ROOT).parts[0]
        if own not in ("config.py", "experiments", "sweeps", "diagnose", "report", "cli"):
            assert "cvgnn.config" not in path.read_text(), path


def test_the_front_door() -> None:
    """Every public name exists, and the list for type checkers is the list that is served."""
    for name in cvgnn.__all__:
        assert getattr(cvgnn, name) is not None
    tree = ast.parse((ROOT / "__init__.py").read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    typed = {alias.name for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert typed == set(cvgnn._HOME_OF)
    assert 15 <= len(cvgnn.__all__) <= 30
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        cvgnn.nothing  # noqa: B018


def test_importing_loads_nothing_heavy() -> None:
    code = "import sys, cvgnn; print(sorted({'torch', 'numba', 'numpy', 'scipy', 'rich'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
