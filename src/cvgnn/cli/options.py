"""How words become options: read as far as they can be, and left as words where not, for the config to refuse.

So every mistake in a value is told by the check that also guards Python callers, in one sentence.
"""

from __future__ import annotations

import itertools
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

T = TypeVar("T")

_TRUTH = {"True": True, "true": True, "False": False, "false": False}
_READERS: dict[Any, tuple[str, Callable[[str], Any]]] = {
    int: ("INT", int),
    float: ("FLOAT", float),
    bool: ("{True,False}", _TRUTH.__getitem__),
    Path: ("PATH", Path),
    str: ("TEXT", str),
}


def parse(command: type[T], words: Sequence[str], *, prog: str, flags: bool = False, default: T | None = None) -> T:
    """The command that the words spell; `--help` and unknown options end the program here.

    Args:
        command: a dataclass, its docstrings the help.
        words: what stands behind the command's name.
        prog: how the command is called, for the help.
        flags: whether a boolean option is a bare word instead of taking True or False.
        default: what the words change; the dataclass's defaults if not given.
    """
    registry = ConstructorRegistry()
    registry.primitive_rule(_rule)
    config = (tyro.conf.FlagCreatePairsOff if flags else tyro.conf.FlagConversionOff,)
    start = tyro.MISSING_NONPROP if default is None else default
    return tyro.cli(command, args=list(words), prog=prog, config=config, registry=registry, default=start)


def option(words: Sequence[str], name: str) -> str | None:
    """The value that an option has among the words, found before they are parsed; the last one counts.

    >>> option(["--epochs", "3", "--resume=runs/a"], "--resume")
    'runs/a'
    >>> option([], "--resume") is None
    True
    """
    value = None
    for word, following in itertools.zip_longest(words, words[1:]):
        if word == name:
            value = following
        elif word.startswith(f"{name}="):
            value = word.removeprefix(f"{name}=")
    return value


def read(word: str, reader: Callable[[str], Any], *, optional: bool) -> Any:
    """The value of a word; the word itself if it is none.

    >>> read("3", int, optional=False), read("three", int, optional=False), read("None", int, optional=True)
    (3, 'three', None)
    """
    if optional and word == "None":
        return None
    try:
        return reader(word)
    except (ValueError, KeyError):
        return word


def _rule(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    union = get_origin(info.type) is types.UnionType
    kinds = [kind for kind in get_args(info.type) if kind is not types.NoneType] if union else [info.type]
    kind = kinds[0]
    reader: Callable[[str], Any]
    if get_origin(kind) is Literal:
        metavar, reader = "{" + ",".join(get_args(kind)) + "}", str
    elif len(kinds) == 1 and kind in _READERS:
        metavar, reader = _READERS[kind]
    else:
        return None
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=metavar,
        instance_from_str=lambda words: read(words[0], reader, optional=union),
        is_instance=lambda value: True,
        str_from_instance=lambda value: [str(value)],
    )
