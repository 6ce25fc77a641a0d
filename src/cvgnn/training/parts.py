"""The parts of a run that a user gives as Python objects: model, estimator, optimizer, loss, task."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, final

import torch

from cvgnn.config import CUSTOM, REGISTERED, TrainConfig
from cvgnn.errors import CvgnnError
from cvgnn.nn import Estimator, Network
from cvgnn.training.tasks import LossFunction, Task

_MAX_NAME = 100


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Parts:
    """The parts given as objects or functions; None where the config names the part.

    Args:
        model: a network, or a class or function that takes the arguments of `Network`.
        estimator: an estimator, or a class or function of the feature source and the hidden widths.
        optimizer: an optimizer over the parameters of `model`; a class that takes `lr` and `weight_decay`; or any
            function of the parameters.
        loss: a function of logits `[B, C]` and labels `[B]`.
        task: a task for the graph, or a class or function of the graph and the config.
    """

    model: Network | Callable[..., Network] | None = None
    estimator: Estimator | Callable[..., Estimator] | None = None
    optimizer: torch.optim.Optimizer | Callable[..., torch.optim.Optimizer] | None = None
    loss: LossFunction | None = None
    task: Task | Callable[..., Task] | None = None

    def __post_init__(self) -> None:
        kinds: dict[str, type] = {
            "model": Network, "estimator": Estimator, "optimizer": torch.optim.Optimizer, "task": Task,
        }  # fmt: skip
        for field in fields(self):
            given, kind = getattr(self, field.name), kinds.get(field.name)
            # A network, too, is callable: any other nn.Module would pass as a function that makes one.
            wrong = kind is not None and isinstance(given, torch.nn.Module) and not isinstance(given, kind)
            # A class that is not of the kind would fail later, inside the run, with an error that names
            # none of these arguments.
            if kind is not None and isinstance(given, type) and not issubclass(given, kind):
                wrong = True
            if given is not None and (wrong or not (callable(given) or (kind and isinstance(given, kind)))):
                base = (
                    "a function of logits and labels" if kind is None else f"a {kind.__name__}, its class or function"
                )
                raise CvgnnError(f"{field.name} must be a name or {base}, not {given!r}")

    def names(self) -> dict[str, str]:
        """The names under which the config records the parts that are given."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return {kind: custom_name(part) for kind, part in given.items() if part is not None}

    def find(self, kind: str, config: TrainConfig) -> Any:
        """The part that was given or registered; None where the config names one that is built in."""
        given, name = getattr(self, kind), getattr(config, kind)
        if given is not None:
            return given
        if name.startswith(CUSTOM):
            raise CvgnnError(
                f"the {kind} of this run, {name.removeprefix(CUSTOM)!r}, was a Python object, which no file holds; "
                f"give it again, as {kind}=... of cvgnn.fit or cvgnn.load_run, or register it under a name from the "
                f"start (cvgnn.register_{kind})"
            )
        return REGISTERED[kind].get(name)


def custom_name(part: Any) -> str:
    """The name of an object in a config.

    >>> custom_name(torch.nn.functional.nll_loss), custom_name(functools.partial(torch.optim.AdamW, lr=1))
    ('custom:nll_loss', 'custom:AdamW')
    """
    # The name of a partial is that of its function; its arguments are not recorded.
    while isinstance(part, functools.partial):
        part = part.func
    name = getattr(part, "__qualname__", None) or type(part).__qualname__
    return CUSTOM + name.rpartition("<locals>.")[2][:_MAX_NAME]


def call_factory(kind: str, name: str, factory: Callable[..., Any], expected: type, *args: Any, **options: Any) -> Any:
    """Call a factory of the user's, and check what it returns.

    Args:
        kind, name: of the part, for errors.
        factory: a class or function.
        expected: the type it must return.
        args, options: of the factory.
    """
    try:
        made = factory(*args, **options)
    except TypeError as error:  # most often an argument that it does not take; the traceback shows any other
        given = ", ".join(options) or "no keywords"
        raise CvgnnError(f"cannot make the {kind} {name!r} with {given}: {error}") from error
    if not isinstance(made, expected):
        raise CvgnnError(f"the {kind} {name!r} must return a {expected.__name__}, not {made!r}")
    return made
