"""Options from the command line. A value that cannot be read as its type stays a string, and the config refuses it.

So the same check, with the same message, guards the command line and Python callers.
"""

from __future__ import annotations

import itertools
import types
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from cvgnn.errors import require, require_integer

T = TypeVar("T")

RunCount = Annotated[T, tyro.conf.arg(name="seeds", aliases=["--runs"])]  # tyro's help shows the alias first
"""The type of the option `--runs`, the number of repetitions, where its old name `--seeds` is accepted too."""

_BOOLEANS = {"True": True, "true": True, "False": False, "false": False}
_READERS: dict[Any, tuple[str, Callable[[str], Any]]] = {
    int: ("INT", int),
    float: ("FLOAT", float),
    bool: ("{True,False}", _BOOLEANS.__getitem__),
    Path: ("PATH", Path),
    str: ("TEXT", str),
}


def parse(command: type[T], argv: Sequence[str], *, prog: str, flags: bool = False, default: T | None = None) -> T:
    """Parse the options of a command; `--help` and unknown options end the program here.

    Args:
        command: a dataclass, its docstrings the help.
        argv: the arguments after the command's name.
        prog: the command's name in the help.
        flags: whether a boolean option takes no value, instead of True or False.
        default: the values of options that are not given, instead of the dataclass's defaults.
    """
    registry = ConstructorRegistry()
    registry.primitive_rule(_rule)
    config = (tyro.conf.FlagCreatePairsOff if flags else tyro.conf.FlagConversionOff,)
    start = tyro.MISSING_NONPROP if default is None else default
    with warnings.catch_warnings():
        # A default from the run that is resumed may be a registered name, which is not among the Literal's.
        warnings.filterwarnings("ignore", message="The field .* is annotated with type", category=UserWarning)
        parsed = tyro.cli(command, args=list(argv), prog=prog, config=config, registry=registry, default=start)
    # A command that has both accepts them as one option, and tyro would take the last.
    twice = is_given(argv, "runs") and is_given(argv, "seeds")
    require(not twice, "--runs and --seeds are two names of the same option; leave one of them out")
    return parsed


def option(argv: Sequence[str], name: str) -> str | None:
    """The value of an option before parsing; the last one counts.

    >>> option(["--epochs", "3", "--resume=runs/a"], "--resume")
    'runs/a'
    >>> option([], "--resume") is None
    True
    """
    value = None
    for argument, following in itertools.zip_longest(argv, argv[1:]):
        if argument == name:
            value = following
        elif argument.startswith(f"{name}="):
            value = argument.removeprefix(f"{name}=")
    return value


def is_given(argv: Sequence[str], field: str) -> bool:
    """Whether the option of a dataclass field is on the command line.

    >>> is_given(["--batch-size=5", "--residual"], "batch_size"), is_given(["--lr", "1"], "l")
    (True, False)
    """
    names = (f"--{field}", f"--{field.replace('_', '-')}")
    return any(argument.partition("=")[0] in names for argument in argv)


def require_at_least(command: object, **least: int) -> None:
    """Raise an error for an option that is given and is not a whole number of at least so much."""
    for name, at_least in least.items():
        value = getattr(command, name)
        if value is not None:
            require_integer(name, value, at_least=at_least)


def require_booleans(command: object, *names: str) -> None:
    """Raise an error for an option that is neither True nor False."""
    for name in names:
        value = getattr(command, name)
        require(isinstance(value, bool), f"{name} must be True or False, not {value!r}")


def _rule(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    optional = get_origin(info.type) is types.UnionType
    kinds = [kind for kind in get_args(info.type) if kind is not types.NoneType] if optional else [info.type]
    kind = kinds[0]
    reader: Callable[[str], Any]
    if get_origin(kind) is Literal:
        metavar, reader = "{" + ",".join(get_args(kind)) + "}", str
    elif len(kinds) == 1 and kind in _READERS:
        metavar, reader = _READERS[kind]
    else:
        return None

    def read(arguments: list[str]) -> Any:
        if not arguments:
            return True  # --residual is --residual True
        if optional and arguments[0] == "None":
            return None
        try:
            return reader(arguments[0])
        except (ValueError, KeyError):
            return arguments[0]

    return PrimitiveConstructorSpec(
        nargs=(0, 1) if kind is bool else 1,
        metavar=metavar,
        instance_from_str=read,
        is_instance=lambda value: True,
        str_from_instance=lambda value: [str(value)],
    )
