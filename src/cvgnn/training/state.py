"""Everything that decides how a run goes on, as named tensors and numbers: what a checkpoint holds.

Random draws have no state: they are pure functions of the seed and the step (`cvgnn.rng`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from cvgnn.errors import CvgnnError, require
from cvgnn.training.outputs import Weights
from cvgnn.training.trainer import Position, Trainer

Numbers = dict[str, Any]


def trainer_state(trainer: Trainer) -> tuple[dict[str, Tensor], Numbers]:
    """The tensors, which are the trainer's own and not copies, and the numbers, which JSON can hold."""
    tensors = {f"model.{name}": t.detach() for name, t in trainer.model.state_dict().items()}
    tensors |= {f"estimator.{name}": t for name, t in trainer.estimator.state_dict().items()}
    of_optimizer: dict[str, Any] = {}
    for i, parameter in enumerate(_parameters(trainer.optimizer)):
        for key, value in trainer.optimizer.state.get(parameter, {}).items():
            if isinstance(value, Tensor):
                tensors[f"optimizer.{i}.{key}"] = value.detach()
            elif value is None or isinstance(value, bool | int | float | str):
                of_optimizer[f"{i}.{key}"] = value
            else:
                raise CvgnnError(
                    f"the optimizer keeps {key!r}, a {type(value).__name__}, which a checkpoint cannot hold; use one "
                    "whose state is tensors and numbers"
                )
    best, tau = trainer.best, trainer.tau
    tensors |= {f"best.{name}": t for name, t in (best.weights or {}).items()}
    if tau is not None:
        tensors |= {f"tau.{name}": t for name, t in (tau.weights or {}).items()}
    numbers = {
        "iterations": trainer.iterations,
        "position": dataclasses.asdict(trainer.position),
        "best": None if best.epoch is None else {"epoch": best.epoch, "accuracy": best.accuracy},
        "tau": None if tau is None else tau.tau,
        "optimizer": of_optimizer,
    }
    return tensors, numbers


@torch.no_grad()
def restore_trainer(trainer: Trainer, tensors: Mapping[str, Tensor], numbers: Numbers | None) -> None:
    """Put a trainer, built as the one that was saved, where that one was.

    Args:
        trainer: its histories need not be initialised.
        tensors, numbers: as `trainer_state` gave them; read one by one, so that a mapping may load them lazily.
    """
    require(isinstance(numbers, dict), "the state has no numbers")
    assert isinstance(numbers, dict)
    names = sorted(tensors.keys())
    trainer.position = _position(numbers.get("position"))
    trainer.iterations = _whole(numbers.get("iterations"))
    for name, mine in trainer.model.state_dict().items():
        mine.copy_(_fitting(tensors, f"model.{name}", mine))
    prefix = "estimator."
    trainer.estimator.load_state_dict(
        {name.removeprefix(prefix): tensors[name] for name in names if name.startswith(prefix)}
    )
    _restore_optimizer(trainer.optimizer, tensors, names, numbers.get("optimizer"))
    best = numbers.get("best")
    if best is not None:
        require(
            isinstance(best, dict) and isinstance(best.get("accuracy"), float), "the state's best accuracy is no number"
        )
        trainer.best.epoch, trainer.best.accuracy = _whole(best.get("epoch")), best["accuracy"]
        trainer.best.weights = _weights(trainer.model, tensors, "best")
    if trainer.tau is not None:
        trainer.tau.tau = _whole(numbers.get("tau"))
        trainer.tau.weights = _weights(trainer.model, tensors, "tau")


def _restore_optimizer(
    optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor], names: list[str], scalars: object
) -> None:
    # Not torch's load_state_dict: it imports a compiler (see cvgnn.optim.light), and may convert what it is given.
    require(isinstance(scalars, dict), "the state says nothing of the optimizer")
    assert isinstance(scalars, dict)
    optimizer.state.clear()
    for i, parameter in enumerate(_parameters(optimizer)):
        prefix = f"optimizer.{i}."
        state: dict[str, Any] = {}
        for name in names:
            if name.startswith(prefix):
                value = tensors[name]
                scalar = value.dim() == 0
                require(
                    value.is_floating_point() and (scalar or value.shape == parameter.shape),
                    f"the optimizer's {name} has shape {list(value.shape)}, its parameter {list(parameter.shape)}",
                )
                state[name.removeprefix(prefix)] = value.clone()
        state |= {key.removeprefix(f"{i}."): v for key, v in scalars.items() if key.startswith(f"{i}.")}
        if state:
            optimizer.state[parameter] = state


def _parameters(optimizer: torch.optim.Optimizer) -> list[nn.Parameter]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _weights(model: nn.Module, tensors: Mapping[str, Tensor], kind: str) -> Weights:
    return {name: _fitting(tensors, f"{kind}.{name}", mine).clone() for name, mine in model.state_dict().items()}


def _fitting(tensors: Mapping[str, Tensor], name: str, mine: Tensor) -> Tensor:
    require(name in tensors, f"the state lacks {name}")
    theirs = tensors[name]
    require(
        theirs.shape == mine.shape and theirs.dtype == mine.dtype,
        f"{name} is {theirs.dtype} {list(theirs.shape)} in the state, {mine.dtype} {list(mine.shape)} in the model",
    )
    return theirs


def _position(value: object) -> Position:
    fields = {field.name: field.type for field in dataclasses.fields(Position)}
    require(isinstance(value, dict) and value.keys() == fields.keys(), "the state's position is incomplete")
    assert isinstance(value, dict)
    for name, kind in fields.items():
        right = isinstance(value[name], float) if kind == "float" else type(value[name]) is int and value[name] >= 0
        require(right, f"the state's {name} is {value[name]!r}")
    require(value["epoch"] >= 1, "the state's epoch is 0")
    return Position(**value)


def _whole(value: object) -> int:
    require(type(value) is int and value >= 0, f"the state holds {value!r} where it must hold a whole number")
    assert isinstance(value, int)
    return value
