"""A run's settings read from a file: the config.json of an earlier run, or TOML written by hand."""

from __future__ import annotations

import dataclasses
import os
import re
import tomllib
from pathlib import Path
from typing import Any

from cvgnn import disk
from cvgnn.config import GraphSource, TrainConfig, make_config
from cvgnn.errors import CvgnnError, require, unknown_name
from cvgnn.graph.names import shown
from cvgnn.sealed import check_values, parse_object, short

_MAX_BYTES = 1 << 24
_MAX_TOML = 1 << 16  # nobody writes more by hand, and Python's reader may take time that grows with the square
_LONGEST = 4096  # characters of a path, or entries of a list
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def read_settings(file: Path) -> tuple[GraphSource, TrainConfig]:
    """Where the graph comes from and how to train, from a .toml or .json file with the names of the options.

    Paths in a .toml file are meant from the folder that the file is in.
    """
    toml = file.suffix == ".toml"
    stored = read_toml(file) if toml else read_object(file)
    stored.pop("version", None)
    names = {f.name for f in dataclasses.fields(GraphSource)}
    known = sorted(names | TrainConfig.__dataclass_fields__.keys())
    for name in stored:
        if name not in known:
            raise CvgnnError(f"{file}: {unknown_name('option', name[:80], known)}")
        _refuse_large(file, name, stored[name])
    of_source = {name: stored.pop(name) for name in names if name in stored}
    for name in ("root", "graph"):
        value = of_source.get(name)
        if value is not None and not _may_be_path(value):
            raise CvgnnError(f"{file}: {name} must be a path, not {short(value)}")
        of_source[name] = None if value is None else file.parent / value if toml else Path(value)
    dataset = of_source.get("dataset")
    require(dataset is None or isinstance(dataset, str), f"{file}: dataset must be a name, not {short(dataset)}")
    try:
        return GraphSource(**of_source), make_config(**stored)
    except CvgnnError as error:
        raise CvgnnError(f"{file}: {str(error)[:500]}") from None


def read_object(file: Path) -> dict[str, Any]:
    """The JSON object in a file of a run."""
    try:
        return parse_object(_read(file))
    except ValueError as error:
        if isinstance(error, CvgnnError):
            raise
        raise CvgnnError(f"{file} {error}; the file is damaged") from None


def _refuse_large(file: Path, name: str, value: object) -> None:
    """Refuse what is longer than any option."""
    if isinstance(value, str | list | dict) and len(value) > _LONGEST:
        raise CvgnnError(f"{file}: {name} has {len(value)} characters or entries; at most {_LONGEST} are taken")


def _may_be_path(value: object) -> bool:
    try:
        return isinstance(value, str) and not _CONTROL.search(value) and bool(os.fsencode(value))
    except UnicodeEncodeError:
        return False


def read_toml(file: Path) -> dict[str, Any]:
    """The content of a TOML file of moderate size."""
    try:
        value = tomllib.loads(_read(file, _MAX_TOML).decode("utf-8"))
        check_values(value)
        return value
    except UnicodeDecodeError:
        raise CvgnnError(f"{file} is not valid TOML: it is not UTF-8 text") from None
    except (RecursionError, ValueError) as error:
        if isinstance(error, CvgnnError):
            raise
        raise CvgnnError(f"{file} is not valid TOML ({shown([str(error)[:120]])})") from None


def _read(file: Path, most: int = _MAX_BYTES) -> bytes:
    try:
        with disk.open_regular(file) as opened:
            data = opened.read(most + 1)
    except FileNotFoundError:
        if file.suffix == ".toml":
            raise CvgnnError(f"there is no file {file}; give a .toml or .json file with the options of a run") from None
        raise CvgnnError(f"{file} is missing: the run is not finished, or this is not a run folder") from None
    except OSError as error:
        raise CvgnnError(f"cannot read {file}: {error.strerror}") from None
    if len(data) > most:
        raise CvgnnError(f"{file} is longer than {most >> 10} KiB; no run's settings are")
    return data
