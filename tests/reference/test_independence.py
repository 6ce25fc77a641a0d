"""The reference is worth something only as long as it shares no code with what it checks."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import cvgnn.reference

FILES = sorted(Path(cvgnn.reference.__file__).parent.glob("*.py"))
ALLOWED = (
    *("__future__", "collections", "dataclasses", "itertools", "math", "typing", "numpy"),
    *("cvgnn.errors", "cvgnn.reference"),
)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_imports(file: Path) -> None:
    for node in ast.walk(ast.parse(file.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names = [node.module or ""]
        for name in names:
            assert any(name == allowed or name.startswith(allowed + ".") for allowed in ALLOWED), name
