"""Grids and lists over the fields of a config, from the words of a command line or a TOML file."""

from __future__ import annotations

import itertools
import types
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from cvgnn.config import GraphSource, TrainConfig, make_config
from cvgnn.errors import CvgnnError, require, unknown_name
from cvgnn.experiments.settings import read_toml
from cvgnn.sealed import short

MAX_RUNS = 100_000
_HINTS = get_type_hints(TrainConfig)
_TRUTH = {"true": True, "false": False}


def parse_grid(words: Iterable[str]) -> dict[str, list[Any]]:
    """Values of fields from words such as `lr=0.01,0.05`; hops of `num_neighbors` are joined by `+`.

    >>> parse_grid(["lr=0.01,0.05", "num_neighbors=2,10+5", "bias=false"])
    {'lr': [0.01, 0.05], 'num_neighbors': [(2,), (10, 5)], 'bias': [False]}
    """
    grid: dict[str, list[Any]] = {}
    for word in words:
        name, equals, values = word.partition("=")
        name = name.strip().replace("-", "_")
        require(bool(equals and values), f"a grid's part must look like lr=0.01,0.05, not {word!r}")
        check_field(name)
        require(name not in grid, f"{name} is given twice; put its values behind one {name}=")
        grid[name] = values_of(name, values)
    return grid


def values_of(name: str, words: str) -> list[Any]:
    """The values of a field that words spell, separated by commas."""
    return [_value(name, text.strip()) for text in words.split(",")]


def kind_of(name: str) -> Any:
    """What a field holds, None apart: `int`, `float`, `bool`, or the `Literal` or `tuple` that it is.

    >>> kind_of("hidden"), kind_of("beta1")
    (<class 'int'>, <class 'float'>)
    """
    hint = _HINTS[name]
    kinds = [k for k in get_args(hint) if k is not types.NoneType] if get_origin(hint) is types.UnionType else [hint]
    return kinds[0]


def product(grid: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Every combination of the values, the last field changing fastest.

    >>> product({"lr": [1, 2], "seed": [0]})
    [{'lr': 1, 'seed': 0}, {'lr': 2, 'seed': 0}]
    """
    size = 1
    for values in grid.values():
        size *= len(values)
    require(size <= MAX_RUNS, f"the grid has {size} settings; {MAX_RUNS} are the most that one sweep takes")
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def configs(base: Mapping[str, Any], changes: Iterable[Mapping[str, Any]]) -> list[TrainConfig]:
    """A config for each set of changes to the base options; an impossible one is refused before anything runs."""
    made = []
    for change in changes:
        options = {**base, **change}
        try:
            made.append(make_config(**options))
        except CvgnnError as error:
            shown = ", ".join(f"{name}={value}" for name, value in change.items())
            raise CvgnnError(f"{error} (in the setting {shown})") from None
    return made


def read_sweep(
    file: Path, *, source: GraphSource | None = None, seeds: int | None = None
) -> tuple[GraphSource, list[TrainConfig]]:
    """Where the graph comes from and the configs that a TOML file asks for; its paths are from the file's folder.

    Args:
        file: see below.
        source: what the command line says of the graph; the file may leave that out, and must not say it again.
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
    content = read_toml(file)
    for name in content:
        if name not in ("base", "grid", "list"):
            raise CvgnnError(f"{file}: {unknown_name('table', name, ('base', 'grid', 'list'))}")
    base, grid, entries = content.get("base", {}), content.get("grid", {}), content.get("list", [{}])
    tables = (base, grid, *entries) if isinstance(entries, list) else (None,)
    require(all(isinstance(t, dict) for t in tables), f"{file}: base and grid must be tables, list a list of tables")
    require(bool(entries), f"{file}: list is empty; put a table into it, or leave it out")
    try:
        for name in (*grid, *itertools.chain.from_iterable(entries)):
            check_field(name)
        values = {name: v if isinstance(v, list) else [v] for name, v in grid.items()}
        named = {name: base.pop(name) for name in list(base) if name in GraphSource.__dataclass_fields__}
        for name in base:
            check_field(name)
        for name, several in values.items():
            require(bool(several), f"{name} in grid has no values; give it one, or leave it out")
            require(
                not any(name in entry for entry in entries), f"{name} is in grid and in list; leave one of them out"
            )
        if seeds is not None:
            said = any("seed" in table for table in (base, grid, *entries))
            require(not said, "it says which seeds to run, so --seeds would do nothing; leave one of them out")
            values["seed"] = list(range(seeds))
        changes = [{**entry, **point} for entry in entries for point in product(values)]
        return source_of(named, file.parent, source or GraphSource()), configs(base, changes)
    except CvgnnError as error:
        raise CvgnnError(f"{file}: {error}") from None


def source_of(named: Mapping[str, Any], folder: Path, given: GraphSource) -> GraphSource:
    """What a file in a folder and the command line say together about the graph."""
    options = dict(named)
    for name in ("dataset", "root", "graph"):
        value = options.get(name)
        what = "name" if name == "dataset" else "path"
        good = isinstance(value, str) and value.isprintable() and bool(value)
        require(value is None or good, f"{name} must be a {what}, not {short(value)}")
        if what == "path" and value is not None:
            options[name] = folder / value
    plain = GraphSource()
    for name in plain.__dataclass_fields__:
        value = getattr(given, name)
        if value != getattr(plain, name):
            require(
                name not in options, f"it says {name}, so --{name.replace('_', '-')} would do nothing; leave it out"
            )
            options[name] = value
    return GraphSource(**options)


def check_field(name: str) -> None:
    """Refuse what is no field of a config."""
    if name not in _HINTS:
        raise unknown_name("field", name, _HINTS)


def _value(name: str, text: str) -> Any:
    """A word as the field's type; the word itself where it is none, for the config to refuse."""
    if name == "num_neighbors":
        parts = [_number(part, int) for part in text.split("+")]
        return tuple(parts)
    kind = kind_of(name)
    if types.NoneType in get_args(_HINTS[name]) and text in ("none", "None"):
        return None
    if kind is bool:
        return _TRUTH.get(text.lower(), text)
    return _number(text, kind) if kind in (int, float) else text


def _number(text: str, kind: Any) -> Any:
    try:
        return kind(text)
    except ValueError:
        return text
