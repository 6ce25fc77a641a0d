"""The space of a search: ranges and lists of values for the fields of a config, from words or a TOML file."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from cvgnn.config import GraphSource, make_config
from cvgnn.errors import CvgnnError, require, unknown_name
from cvgnn.experiments.settings import read_toml
from cvgnn.sweeps.grid import check_field, kind_of, source_of, values_of
from cvgnn.sweeps.jobs import shown

_LOOKS = "lr=0.001..0.1:log, hidden=16..256 or optimizer=adam,sgd"
_WORDS = ("log", "int")


@final
@dataclass(frozen=True)
class Range:
    """Every number from `low` to `high`, both included.

    Args:
        low, high: the ends.
        log: whether equal ratios are equally likely, instead of equal differences.
        whole: whether only whole numbers are meant.
    """

    low: float
    high: float
    log: bool
    whole: bool

    @property
    def samples(self) -> tuple[float, ...]:
        """Values whose soundness is the range's."""
        return (self.low, self.high)

    def spelled(self) -> str:
        """As the command line says it.

        >>> Range(16, 256, log=True, whole=True).spelled()
        '16..256:log-int'
        """
        words = [word for word, meant in zip(_WORDS, (self.log, self.whole), strict=True) if meant]
        return f"{self.low!r}..{self.high!r}" + (f":{'-'.join(words)}" if words else "")


@final
@dataclass(frozen=True)
class Choices:
    """A list of values."""

    samples: tuple[Any, ...]

    @property
    def named(self) -> dict[Any, Any]:
        """The values by what stands for them in a study, which knows plain values only.

        >>> Choices(("adam", (10, 5))).named
        {'adam': 'adam', '10+5': (10, 5)}
        """
        return {shown(value) if isinstance(value, tuple) else value: value for value in self.samples}

    def spelled(self) -> str:
        """As the command line says it."""
        return ",".join(map(str, self.named))


Space = Mapping[str, Range | Choices]


def parse_space(words: Iterable[str]) -> dict[str, Range | Choices]:
    """The space that words such as `lr=0.001..0.1:log` spell.

    >>> parse_space(["hidden=16..256:log", "num_neighbors=2,10+5"])
    {'hidden': Range(low=16, high=256, log=True, whole=True), 'num_neighbors': Choices(samples=((2,), (10, 5)))}
    """
    space: dict[str, Range | Choices] = {}
    for word in words:
        name, equals, values = word.partition("=")
        name = name.strip().replace("-", "_")
        require(bool(equals and values), f"a space's part must look like {_LOOKS}, not {word!r}")
        require(name not in space, f"{name} is given twice; put its values behind one {name}=")
        space[name] = _parse(name, values)
    return space


def read_search(
    file: Path, *, source: GraphSource | None = None
) -> tuple[GraphSource, dict[str, Any], dict[str, Range | Choices]]:
    """Where the graph comes from, the options of every run, and the space; paths in the file are from its folder.

    Args:
        file: see below.
        source: what the command line says of the graph; the file may leave that out, and must not say it again.

    ```toml
    [base]                 # options of every run, also dataset, root or graph
    dataset = "cora"
    epochs = 100
    [space]                # ranges as the command line spells them, and lists
    lr = "0.001..0.1:log"
    optimizer = ["adam", "amsgrad"]
    ```
    """
    content = read_toml(file)
    for name in content:
        if name not in ("base", "space"):
            raise CvgnnError(f"{file}: {unknown_name('table', name, ('base', 'space'))}")
    base, given = content.get("base", {}), content.get("space", {})
    require(isinstance(base, dict) and isinstance(given, dict), f"{file}: base and space must be tables")
    try:
        named = {name: base.pop(name) for name in list(base) if name in GraphSource.__dataclass_fields__}
        for name in base:
            check_field(name)
        where = source_of(named, file.parent, source or GraphSource())
        return where, base, {name: _from_toml(name, value) for name, value in given.items()}
    except CvgnnError as error:
        raise CvgnnError(f"{file}: {error}") from None


def check_space(space: Space, base: Mapping[str, Any]) -> None:
    """Refuse, before anything runs, an empty space and values that no setting of it can have.

    Args:
        space: of the search.
        base: options of every run.
    """
    require(bool(space), "nothing to search over; give --space or --file")
    require("seed" not in space, "a search over seeds would choose by luck; leave seed out, and give --runs")
    both = [name for name in space if name in base]
    require(not both, f"{', '.join(both)} is in the space and among the options of every run; leave one of them out")
    for name, values in space.items():
        for value in values.samples:
            _check_value(name, value, space, base)


def options_of(space: Space, params: Mapping[str, Any]) -> dict[str, Any]:
    """The options that a study's parameters stand for."""
    options: dict[str, Any] = {}
    for name, values in space.items():
        if isinstance(values, Choices):
            options[name] = values.named[params[name]]
        else:
            options[name] = float(params[name]) if kind_of(name) is float else params[name]
    return options


def _check_value(name: str, value: Any, space: Space, base: Mapping[str, Any]) -> None:
    """Some values are sound only beside certain others, as fan-outs of two hops beside three layers."""
    problem = _problem({**base, name: value})
    if problem is None:
        return
    others = ((n, v) for n, values in space.items() if n != name for v in values.samples)
    if not any(_problem({**base, n: v, name: value}) is None for n, v in others):
        raise CvgnnError(f"{problem} (in the setting {name}={shown(value)})")


def _problem(options: dict[str, Any]) -> CvgnnError | None:
    try:
        make_config(**options)
    except CvgnnError as error:
        return error
    return None


def _from_toml(name: str, value: Any) -> Range | Choices:
    check_field(name)
    if isinstance(value, str):
        return _parse(name, value)
    plain = isinstance(value, list) and not any(isinstance(v, dict) for v in value)
    require(plain and bool(value), f"{name} must be a list of values, or a range such as '0.001..0.1:log'")
    return _choices(_as_field(name, v) for v in value)


def _parse(name: str, text: str) -> Range | Choices:
    check_field(name)
    if ".." not in text:
        return _choices(values_of(name, text))
    numbers, _, suffix = text.partition(":")
    words = suffix.split("-") if suffix else []
    require(
        set(words) <= set(_WORDS) and not text.endswith(":"),
        f"a range may end in :log, :int or :log-int, not in :{suffix} ({name}={text})",
    )
    kind = kind_of(name)
    number = kind in (int, float) or name == "num_neighbors"
    require(number, f"{name} has no range; list its values, such as {name}=a,b")
    whole = kind is not float or "int" in words
    low, high = (_number(part, whole=whole) for part in numbers.split("..", 1))
    ends = "whole numbers" if whole else "numbers"
    require(math.isfinite(low) and math.isfinite(high), f"the range {name}={text} must lie between two {ends}")
    require(low < high, f"the range {name}={text} must go up: its first number must be less than its second")
    require("log" not in words or low > 0, f"the range {name}={text} must begin above 0, because its scale is log")
    require(
        name != "num_neighbors" or low > 0, f"the range {name}={text} must begin above 0; list -1 for all neighbors"
    )
    return Range(low, high, log="log" in words, whole=whole)


def _number(text: str, *, whole: bool) -> float:
    try:
        return int(text) if whole else float(text)
    except ValueError:
        return math.nan


def _as_field(name: str, value: Any) -> Any:
    """A value of a TOML file in the type that words would have, so that both name the same runs."""
    if isinstance(value, list):
        return tuple(map(str, value) if any(isinstance(v, list | dict) for v in value) else value)
    if name == "num_neighbors":
        return (value,)
    return float(value) if kind_of(name) is float and type(value) is int else value


def _choices(values: Iterable[Any]) -> Choices:
    return Choices(tuple(dict.fromkeys(values)))
