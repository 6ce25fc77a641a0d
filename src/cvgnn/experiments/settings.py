"""A run's settings read from a file: the config.json of an earlier run, or TOML written by hand."""

from __future__ import annotations

import dataclasses
import tomllib
from pathlib import Path
from typing import Any

from cvgnn.config import GraphSource, TrainConfig, make_config
from cvgnn.errors import CvgnnError, unknown_name
from cvgnn.sealed import parse_object

_MAX_BYTES = 1 << 24


def read_settings(file: Path) -> tuple[GraphSource, TrainConfig]:
    """Where the graph comes from and how to train, from a .toml or .json file with the names of the options.

    Paths in a .toml file are meant from the folder that the file is in.
    """
    toml = file.suffix == ".toml"
    stored = _read_toml(file) if toml else read_object(file)
    stored.pop("version", None)
    names = {f.name for f in dataclasses.fields(GraphSource)}
    known = sorted(names | TrainConfig.__dataclass_fields__.keys())
    for name in stored:
        if name not in known:
            raise CvgnnError(f"{file}: {unknown_name('option', name, known)}")
    of_source = {name: stored.pop(name) for name in names if name in stored}
    for name in ("root", "graph"):
        value = of_source.get(name)
        if value is not None and not isinstance(value, str):
            raise CvgnnError(f"{file}: {name} must be a path, not {value!r}")
        of_source[name] = None if value is None else file.parent / value if toml else Path(value)
    try:
        return GraphSource(**of_source), make_config(**stored)
    except CvgnnError as error:
        raise CvgnnError(f"{file}: {error}") from None


def read_object(file: Path) -> dict[str, Any]:
    """The JSON object in a file of a run."""
    try:
        return parse_object(_read(file))
    except ValueError as error:
        if isinstance(error, CvgnnError):
            raise
        raise CvgnnError(f"{file} {error}; the file is damaged") from None


def _read_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(_read(file).decode("utf-8"))
    except UnicodeDecodeError:
        raise CvgnnError(f"{file} is not valid TOML: it is not UTF-8 text") from None
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        if isinstance(error, CvgnnError):
            raise
        raise CvgnnError(f"{file} is not valid TOML ({str(error)[:120]})") from None


def _read(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            data = opened.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        if file.suffix == ".toml":
            raise CvgnnError(f"there is no file {file}; give a .toml or .json file with the options of a run") from None
        raise CvgnnError(f"{file} is missing: the run is not finished, or this is not a run folder") from None
    except OSError as error:
        raise CvgnnError(f"cannot read {file}: {error.strerror}") from None
    if len(data) > _MAX_BYTES:
        raise CvgnnError(f"{file} is longer than {_MAX_BYTES >> 20} MiB; no run's settings are")
    return data
