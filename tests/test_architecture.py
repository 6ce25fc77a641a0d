"""The shape of the package: who imports whom, what the front door offers, and what importing costs."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import cvgnn
import cvgnn.data

ROOT = Path(cvgnn.__file__).parent

# A package imports only from those above it. The core ends with the api; lab and cli stand on it.
ORDER = [
    "_version", "_lazy", "errors", "limits", "rng", "utils", "ops", "reference", "data", "sampling", "nn", "optim", "config", "registry", "training", "distributed",
    "api", "sklearn_estimators", "lab", "serving", "export", "cli",
]  # fmt: skip
FILES = sorted(path for path in ROOT.rglob("*.py*") if path.suffix in (".py", ".pyi"))
FILES = [path for path in FILES if path.parent != ROOT or path.stem in ORDER]


def imported_modules(source: str) -> list[str]:
    """Every module of cvgnn that a source text imports, in whatever form: import, from, import_module, __import__."""
    modules = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "a relative import"
            parent = node.module or ""
            # `from cvgnn import lab` names its module among the imported names.
            modules += [f"{parent}.{alias.name}" for alias in node.names] if parent == "cvgnn" else [parent]
        elif isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            # The argument of import_module, __import__, importlib.resources.files or a preload list. An f-string's
            # constant beginning counts too.
            modules += [node.value] if re.fullmatch(r"cvgnn(\.\w+)+\.?", node.value) else []
    return [module for module in modules if module == "cvgnn" or module.startswith("cvgnn.")]


@pytest.mark.parametrize(
    "source",
    [
        "import cvgnn.lab",
        "import os, cvgnn.lab.report as r",
        "from cvgnn import lab",
        "from cvgnn.lab import report",
        "def f():\n    from cvgnn.lab.report import render",
        "import importlib\nimportlib.import_module('cvgnn.lab')",
        "importlib.import_module(f'cvgnn.lab.{name}')",
        "__import__('cvgnn.lab.report')",
    ],
)
def test_every_form_of_import_is_seen(source: str) -> None:
    assert [module.split(".")[1] for module in imported_modules(source)] == ["lab"]


def test_every_module_has_a_place() -> None:
    names = {path.stem if path.is_file() else path.name for path in ROOT.iterdir()}
    assert names - {"__init__", "__main__", "__pycache__", "py"} == set(ORDER)


def test_no_module_name_occurs_twice() -> None:
    names = Counter(path.stem for path in ROOT.rglob("*.py") if path.stem not in ("__init__", "base"))
    assert [name for name, count in names.items() if count > 1] == []


def test_no_name_of_a_package_is_a_module_in_it() -> None:
    """Python replaces a name that a package serves by the submodule of that name once somebody imports it."""
    for package in ROOT.rglob("__init__.py*"):
        tree = ast.parse(package.read_text())
        served = {
            alias.asname or alias.name for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) for alias in n.names
        }
        assert not served & {path.stem for path in package.parent.iterdir()}, package


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_one_way(path: Path) -> None:
    own = path.relative_to(ROOT).parts[0].removesuffix(".py")
    for module in imported_modules(path.read_text()):
        part = (module + "._version").split(".")[1]
        if part in ORDER:  # else a public name of the package itself
            assert part == own or ORDER.index(part) < ORDER.index(own), f"{path} imports {module}"


def test_the_method_does_not_know_the_config() -> None:
    """What computes takes plain arguments; only what reads a user's options knows `TrainConfig`."""
    for path in FILES:
        own = path.relative_to(ROOT).parts[0].removesuffix(".py")
        if ORDER.index(own) < ORDER.index("config") or path.name == "trainer.py":
            assert "cvgnn.config" not in path.read_text(), path


def test_one_place_compiles() -> None:
    """Kernels get `njit` from `cvgnn.ops.compilation`, whose cache works for every user; numba's own does not."""
    for path in FILES:
        if path.name != "compilation.py":
            assert not re.search(r"from numba import .*\bn?jit\b|numba\.n?jit", path.read_text()), path


def test_the_front_door() -> None:
    """Every public name exists, and the list for type checkers is the list that is served."""
    for package in (cvgnn, cvgnn.data):
        for name in package.__all__:
            assert getattr(package, name) is not None
        tree = ast.parse(Path(package.__file__).with_suffix(".pyi").read_text())
        typed = [alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names]
        assert sorted(typed) == package.__all__
    assert 15 <= len(cvgnn.__all__) <= 45
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        cvgnn.nothing  # noqa: B018


def test_importing_loads_nothing_heavy() -> None:
    code = "import sys, cvgnn; print(sorted({'torch', 'numba', 'numpy', 'scipy', 'rich'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
