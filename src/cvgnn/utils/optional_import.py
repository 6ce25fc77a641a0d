"""Import packages that are not installed with cvgnn itself."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

from cvgnn.errors import CvgnnError


def import_optional(module: str, *, extra: str, purpose: str) -> Any:
    """Import a module of an optional package; where it is missing, the error gives the command to install it.

    >>> import_optional("not_there.at_all", extra="parquet", purpose="reading edges.parquet")
    Traceback (most recent call last):
    cvgnn.errors.CvgnnError: reading edges.parquet needs the package not_there: pip install 'cvgnn[parquet]'
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # deprecations inside the package are not the user's business
            return importlib.import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise CvgnnError(f"{purpose} needs the package {package}: pip install 'cvgnn[{extra}]'") from None
