"""`--config FILE.toml`: options from a file, as if they stood on the command line."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro

from cvgnn.cli.argv import is_given
from cvgnn.errors import CvgnnError, error_context, require, unknown_name

_ALTERNATIVES = (("graph", "dataset"), ("runs", "seeds"))
"""Options of which one may be given: one on the command line makes the file's other one count for nothing."""


def option_types(command: type) -> Iterator[tuple[str, Any]]:
    """Name and type of each option of a command, those of nested dataclasses too; no positional arguments."""
    hints = typing.get_type_hints(command, include_extras=True)
    for field in dataclasses.fields(command):
        hint = hints[field.name]
        kind, *marks = typing.get_args(hint) if typing.get_origin(hint) is Annotated else [hint]
        if dataclasses.is_dataclass(kind):
            yield from option_types(kind)  # type: ignore[arg-type]
        elif tyro.conf.Positional not in marks:
            yield field.name, kind


def with_config(command: type, name: str, argv: Sequence[str], file: Path, *, commands: Sequence[str]) -> list[str]:
    """The arguments with the options of a file after them, but for those that they give already.

    Args:
        command: the dataclass of the options.
        name: of the command. The file's table of this name holds options of it alone.
        argv: what follows the command's name.
        file: TOML. Its paths are relative to its folder.
        commands: names of all commands, whose tables are left alone.
    """
    from cvgnn.training.run_folder import read_toml

    content = read_toml(file)
    own = content.get(name, {})
    require(isinstance(own, dict), f"{file}: {name} must be a table of options, [{name}]")
    shared = {key: value for key, value in content.items() if not (isinstance(value, dict) and key in commands)}
    types, more = dict(option_types(command)), list[str]()
    with error_context(f"{file}: "):
        for given, value in {**shared, **own}.items():
            option = given.replace("-", "_")
            if option not in types:
                raise unknown_name(f"option of cvgnn {name}", given[:80], types)
            others = next((pair for pair in _ALTERNATIVES if option in pair), (option,))
            if not any(is_given(argv, other) for other in others):
                more += _arguments(f"--{given.replace('_', '-')}", value, types[option], command, file.parent)
    return [*argv, *more]


def _arguments(option: str, value: Any, kind: Any, command: type, folder: Path) -> list[str]:
    """An option as words of the command line."""
    if isinstance(value, bool) and getattr(command, "flags", False):
        return [option] if value else []
    values = value if isinstance(value, list) else [value]
    if not all(isinstance(item, str | int | float) for item in values):
        raise CvgnnError(f"{option} must be a text, a number, true, false, or a list of these, not {str(value)[:80]!r}")
    if "Path" in str(kind):
        values = [str(folder / str(item)) for item in values]
    if isinstance(value, list):
        return [option, *map(str, values)]
    return [option, str(values[0])] if isinstance(value, bool) else [f"{option}={values[0]}"]


def as_toml(options: Mapping[str, Any], comment: str = "") -> str:
    """Options as the text of such a file; what is None or empty is left out."""
    from cvgnn.training.run_folder import toml_line

    kept = {name: value for name, value in options.items() if value is not None and value != []}
    return "\n".join([*([f"# {comment}"] if comment else []), *(toml_line(*item) for item in kept.items()), ""])
