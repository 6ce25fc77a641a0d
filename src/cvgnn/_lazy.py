"""Lazy imports: the names of a package are imported on first use, so that `import cvgnn` takes milliseconds."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def lazy_names(
    package: str, homes: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], dict[str, str], list[str]]:
    """The `__getattr__` of a package (PEP 562), the module of each name, and the sorted names.

    Args:
        package: its full name.
        homes: the names, by the module that defines them, relative to `cvgnn`.
    """
    home_of = {name: home for home, names in homes.items() for name in names}

    def get(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"cvgnn.{home_of[name]}"), name)

    return get, home_of, sorted(home_of)
