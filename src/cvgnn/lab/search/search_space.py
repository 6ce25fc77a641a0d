"""The space of a search: an Optuna distribution for each field, from the command line or a TOML file."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Union

from cvgnn.config import GraphSource, TrainConfig
from cvgnn.errors import CvgnnError, error_context, require
from cvgnn.lab.sweep import grid
from cvgnn.lab.sweep.grid import field_type, parse_value
from cvgnn.lab.sweep.jobs import format_value

with contextlib.suppress(ImportError):  # an optional package: `study.require_optuna` raises the error
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

Distribution = Union["CategoricalDistribution", "FloatDistribution", "IntDistribution"]
Space = Mapping[str, Distribution]
_EXAMPLE = "lr=0.001..0.1:log, hidden=16..256 or optimizer=adam,sgd"


def parse_space(arguments: Iterable[str]) -> dict[str, Distribution]:
    """The space that arguments such as `lr=0.001..0.1:log` or `optimizer=adam,sgd` define."""
    return grid.parse_fields(arguments, _parse, example=_EXAMPLE)


def read_search(
    file: Path, *, source: GraphSource | None = None
) -> tuple[GraphSource, dict[str, Any], dict[str, Distribution]]:
    """The source of the graph, the options of every run, and the space; paths are relative to the file's folder.

    Args:
        file: see below.
        source: of the graph, from the command line; a field must not be both here and in the file.

    ```toml
    [base]                 # options of every run, also dataset, root or graph
    dataset = "cora"
    epochs = 100
    [space]                # ranges as on the command line, and lists
    lr = "0.001..0.1:log"
    optimizer = ["adam", "amsgrad"]
    ```
    """
    content = grid.read_tables(file, ("base", "space"))
    base, space = content.get("base", {}), content.get("space", {})
    with error_context(f"{file}: "):
        require(isinstance(base, dict) and isinstance(space, dict), "base and space must be tables")
        source, options = grid.split_base(base, file.parent, source or GraphSource())
        return source, options, {name: _from_toml(name, value) for name, value in space.items()}


def check_space(space: Space, base: Mapping[str, Any]) -> None:
    """Raise an error, before anything runs, for an empty space and for values that no setting of it can have.

    Args:
        space: of the search.
        base: options of every run.
    """
    require(bool(space), "nothing to search over; give --space or --file")
    require("seed" not in space, "a search over seeds would choose by luck; leave seed out, and give --runs")
    for name in ("task", "metric"):
        require(
            name not in space,
            f"a search compares by one metric; leave {name} out, and give --set {name}=...",
        )
    both = [name for name in space if name in base]
    require(not both, f"{', '.join(both)} is in the space and in the options of every run; leave one of them out")
    values = [(name, value) for name, distribution in space.items() for value in endpoints(name, distribution)]
    for name, value in values:
        problem = _problem({**base, name: value})
        # Some values need another one: a fan-out for two hops needs three layers.
        others = ({**base, other: v, name: value} for other, v in values if other != name)
        if problem is not None and not any(_problem(options) is None for options in others):
            raise CvgnnError(f"{problem} (in the setting {name}={format_value(value)})")


def options_of(space: Space, params: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a config for the parameters of an Optuna trial."""
    return {name: _option(name, params[name]) for name in space}


def endpoints(name: str, distribution: Distribution) -> list[Any]:
    """The choices, or both ends of the range, as options of a config."""
    if isinstance(distribution, CategoricalDistribution):
        return [_option(name, value) for value in distribution.choices]
    return [_option(name, value) for value in (distribution.low, distribution.high)]


def as_text(distribution: Distribution) -> str:
    """A distribution as the command line takes it, such as `16..256:log-int`."""
    if isinstance(distribution, CategoricalDistribution):
        return ",".join(map(str, distribution.choices))
    flags = ["log"] * distribution.log + ["int"] * isinstance(distribution, IntDistribution)
    return f"{distribution.low!r}..{distribution.high!r}" + (f":{'-'.join(flags)}" if flags else "")


def _option(name: str, value: Any) -> Any:
    if name == "num_neighbors" and isinstance(value, str):
        return parse_value(name, value)
    # The command line makes floats; the same type from a TOML file or an integer range gives the run the same name.
    return float(value) if field_type(name) is float and type(value) is int else value


def _problem(options: dict[str, Any]) -> CvgnnError | None:
    try:
        TrainConfig(**options)
    except CvgnnError as error:
        return error
    return None


def _from_toml(name: str, value: Any) -> Distribution:
    grid.check_field(name)
    if isinstance(value, str):
        return _parse(name, value)
    plain = isinstance(value, list) and not any(isinstance(v, dict) for v in value)
    require(plain and bool(value), f"{name} must be a list of values, or a range such as '0.001..0.1:log'")
    return _choices(name, value)


def _choices(name: str, values: Iterable[Any]) -> CategoricalDistribution:
    # Optuna stores plain values only, so the hops of num_neighbors become a text: (10, 5) is "10+5".
    joined = [format_value(v) if name == "num_neighbors" or isinstance(v, list) else _option(name, v) for v in values]
    return CategoricalDistribution(tuple(dict.fromkeys(joined)))


def _parse(name: str, text: str) -> Distribution:
    if ".." not in text:
        return _choices(name, grid.parse_values(name, text))
    numbers, colon, suffix = text.partition(":")
    flags = suffix.split("-") if colon else []
    known = set(flags) <= {"log", "int"}
    require(known, f"a range may end in :log, :int or :log-int, not in :{suffix} ({name}={text})")
    kind = field_type(name)
    numeric = kind in (int, float) or name == "num_neighbors"
    require(numeric, f"{name} has no range; list its values, such as {name}=a,b")
    whole, log = kind is not float or "int" in flags, "log" in flags
    try:
        low, high = ((int if whole else float)(part) for part in numbers.split("..", 1))
    except ValueError:
        low = high = math.nan
    ends = "whole numbers" if whole else "numbers"
    require(math.isfinite(low) and math.isfinite(high), f"the range {name}={text} must lie between two {ends}")
    require(low < high, f"the range {name}={text} must go up: its first number must be less than its second")
    require(low > 0 or not log, f"the range {name}={text} must start above 0, because its scale is log")
    fan_out = name == "num_neighbors"
    require(low > 0 or not fan_out, f"the range {name}={text} must start above 0; list -1 for all neighbors")
    return IntDistribution(int(low), int(high), log=log) if whole else FloatDistribution(low, high, log=log)
