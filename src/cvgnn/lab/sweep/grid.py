"""Grids over the fields of a config, from the command line or a TOML file."""

from __future__ import annotations

import itertools
import math
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

from cvgnn.config import GraphSource, TrainConfig
from cvgnn.errors import error_context, require, require_known
from cvgnn.training.run_folder import read_toml, source_fields

T = TypeVar("T")

MAX_RUNS = 100_000
_HINTS = get_type_hints(TrainConfig)
_BOOLEANS = {"true": True, "false": False}


def parse_grid(arguments: Iterable[str]) -> dict[str, list[Any]]:
    """Values of fields from arguments such as `lr=0.01,0.05`; hops of `num_neighbors` are joined by `+`.

    >>> parse_grid(["lr=0.01,0.05", "num_neighbors=2,10+5", "bias=false"])
    {'lr': [0.01, 0.05], 'num_neighbors': [(2,), (10, 5)], 'bias': [False]}
    """
    return parse_fields(arguments, parse_values, example="lr=0.01,0.05")


def parse_options(arguments: Iterable[str], *, several: str) -> dict[str, Any]:
    """The options of `--set`: one value for each field.

    Args:
        arguments: such as `epochs=50`.
        several: the option that takes more than one value, for the error.
    """
    options = {}
    for name, values in parse_grid(arguments).items():
        require(len(values) == 1, f"--set gives one value to {name}, not {len(values)}; use {several} for several")
        options[name] = values[0]
    return options


def parse_fields(arguments: Iterable[str], parse: Callable[[str, str], T], *, example: str) -> dict[str, T]:
    """What `parse(name, text)` returns for each argument `name=text`."""
    fields: dict[str, T] = {}
    for argument in arguments:
        name, equals, text = argument.partition("=")
        name = name.strip().replace("-", "_")
        require(bool(equals and text), f"options must look like {example}, not {argument!r}")
        check_field(name)
        require(name not in fields, f"{name} is given twice; put its values behind one {name}=")
        fields[name] = parse(name, text)
    return fields


def parse_values(name: str, text: str) -> list[Any]:
    """The values of a field in a text, separated by commas."""
    return [parse_value(name, part.strip()) for part in text.split(",")]


def parse_value(name: str, text: str) -> Any:
    """A value in the field's type. What cannot be read stays a string, and `TrainConfig` refuses it."""
    if name == "num_neighbors":
        return tuple(_convert(part, int) for part in text.split("+"))
    if isinstance(_HINTS[name], types.UnionType) and text in ("none", "None"):
        return None
    return _convert(text, field_type(name))


def field_type(name: str) -> Any:
    """The type of a field, without None: `int`, `float`, `bool`, a `Literal` or a `tuple`.

    >>> field_type("hidden"), field_type("beta1")
    (<class 'int'>, <class 'float'>)
    """
    hint = _HINTS[name]
    return get_args(hint)[0] if isinstance(hint, types.UnionType) else hint  # float | None


def check_field(name: str) -> None:
    """Raise an error if a config has no such field."""
    require_known("field", name, _HINTS)


def product(grid: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Every combination of the values, the last field changing fastest.

    >>> product({"lr": [1, 2], "seed": [0]})
    [{'lr': 1, 'seed': 0}, {'lr': 2, 'seed': 0}]
    """
    size = math.prod(map(len, grid.values()))
    require(size <= MAX_RUNS, f"the grid has {size} settings; a sweep takes at most {MAX_RUNS}")
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def configs(base: Mapping[str, Any], changes: Iterable[Mapping[str, Any]]) -> list[TrainConfig]:
    """A config for each set of changes to the base options; an error names the setting that is impossible."""
    made = []
    for change in changes:
        setting = ", ".join(f"{name}={value}" for name, value in change.items())
        with error_context(after=f" (in the setting {setting})"):
            made.append(TrainConfig(**{**base, **change}))
    return made


def read_sweep(
    file: Path, *, source: GraphSource | None = None, seeds: int | None = None
) -> tuple[GraphSource, list[TrainConfig]]:
    """The source of the graph and the configs in a TOML file; its paths are relative to the file's folder.

    Args:
        file: see below.
        source: of the graph, from the command line; a field must not be both here and in the file.
        seeds: runs of each setting, with seeds 0, 1, ..., if the file does not name seeds.

    ```toml
    [base]                 # options of every run, also dataset, root or graph
    dataset = "cora"
    epochs = 100
    [grid]                 # every combination of these
    lr = [0.01, 0.05]
    seed = [0, 1, 2]
    [[list]]               # and these, one by one, each with the grid if there is one
    optimizer = "adam"
    ```
    """
    content = read_tables(file, ("base", "grid", "list"))
    base, grid, entries = content.get("base", {}), content.get("grid", {}), content.get("list", [{}])
    tables = (base, grid, *entries) if isinstance(entries, list) else (None,)
    with error_context(f"{file}: "):
        require(all(isinstance(t, dict) for t in tables), "base and grid must be tables, list a list of tables")
        require(bool(entries), "list is empty; put a table into it, or leave it out")
        source, base = split_base(base, file.parent, source or GraphSource())
        values = {name: v if isinstance(v, list) else [v] for name, v in grid.items()}
        for name in (*grid, *itertools.chain.from_iterable(entries)):
            check_field(name)
        for name, several in values.items():
            require(bool(several), f"{name} in grid has no values; give it one, or leave it out")
            twice = any(name in entry for entry in entries)
            require(not twice, f"{name} is in grid and in list; leave one of them out")
        if seeds is not None:
            named = any("seed" in table for table in (base, grid, *entries))
            require(not named, "it names the seeds, so --runs has no effect; leave one of them out")
            values["seed"] = list(range(seeds))
        return source, configs(base, [{**entry, **point} for entry in entries for point in product(values)])


def read_tables(file: Path, known: Sequence[str]) -> dict[str, Any]:
    """The content of a TOML file that has only known tables."""
    content = read_toml(file)
    with error_context(f"{file}: "):
        for name in content:
            require_known("table", name, known)
    return content


def split_base(base: Mapping[str, Any], folder: Path, given: GraphSource) -> tuple[GraphSource, dict[str, Any]]:
    """The source of the graph and the options of every run, from the table `base` and the command line.

    Args:
        base: both together.
        folder: of the file; its paths are relative to it.
        given: the source on the command line.
    """
    plain = GraphSource()
    source = source_fields({name: v for name, v in base.items() if name in plain.__dataclass_fields__}, folder)
    options = {name: value for name, value in base.items() if name not in source}
    for name in options:
        check_field(name)
    for name in plain.__dataclass_fields__:
        if getattr(given, name) != getattr(plain, name):
            option = f"--{name.replace('_', '-')}"
            require(name not in source, f"it has {name}, so {option} has no effect; leave one of them out")
            source[name] = getattr(given, name)
    return GraphSource(**source), options


def _convert(text: str, kind: Any) -> Any:
    if kind is bool:
        return _BOOLEANS.get(text.lower(), text)
    try:
        return kind(text) if kind in (int, float) else text
    except ValueError:
        return text
