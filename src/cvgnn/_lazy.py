"""Lazy imports: the names of a package are imported on first use, so that `import cvgnn` takes milliseconds."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from typing import Any


def lazy_names(package: str) -> tuple[Callable[[str], Any], list[str]]:
    """The `__getattr__` of a package (PEP 562), and its sorted names.

    Both come from the imports in the package's `__init__.pyi`, which type checkers read: a name is listed once
    (Scientific Python's SPEC 1 does the same).

    Args:
        package: its full name.
    """
    spec: Any = sys.modules[package].__spec__
    stub = spec.loader.get_data(f"{spec.origin}i").decode()  # by the loader: the package may lie in a zip file
    home_of = {name: module for module, name in re.findall(r"^from (\S+) import (\w+) as \w+$", stub, re.MULTILINE)}

    def get(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(home_of[name]), name)

    return get, sorted(home_of)
