"""Everything that decides how a run goes on, as named tensors and numbers: what a checkpoint holds.

Random draws have no state: they are pure functions of the seed and the step (`cvgnn.rng`).
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from cvgnn.errors import CvgnnError, require
from cvgnn.nn import Estimator
from cvgnn.sealed import short
from cvgnn.training.outputs import Weights
from cvgnn.training.trainer import Position, Trainer

Numbers = dict[str, Any]
_MOST = 2**53  # of epochs, steps, nodes


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

    A state that such a trainer cannot have is refused, whoever made it; what was restored until then stays.

    Args:
        trainer: its histories need not be initialised.
        tensors, numbers: as `trainer_state` gave them; read one by one, so that a mapping may load them lazily.
    """
    require(isinstance(numbers, dict), "the state has no numbers")
    assert isinstance(numbers, dict)
    names = sorted(tensors.keys())
    for name in names:
        kind = name.partition(".")[0]
        known = kind in ("model", "estimator", "optimizer", "best", "tau")
        require(known and name.isprintable() and len(name) < 200, f"the state holds {short(name)}, which no run has")
    trainer.position, trainer.iterations = _progress(trainer, numbers)
    for name, mine in trainer.model.state_dict().items():
        mine.copy_(_fitting(tensors, f"model.{name}", mine))
    _refuse_surplus(names, "model", trainer.model.state_dict())
    _restore_estimator(trainer.estimator, tensors, names)
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
    _refuse_surplus(names, "best", {} if best is None else trainer.model.state_dict())
    _refuse_surplus(names, "tau", {} if trainer.tau is None else trainer.model.state_dict())


def _restore_estimator(estimator: Estimator, tensors: Mapping[str, Tensor], names: list[str]) -> None:
    prefix = "estimator."
    mine = estimator.state_dict().keys()
    given = [name.removeprefix(prefix) for name in names if name.startswith(prefix)]
    foreign = [name for name in given if name not in mine][:3]  # the estimator refuses them; some are enough to say
    known = [name for name in given if name in mine]
    estimator.load_state_dict({name: tensors[prefix + name] for name in (*known, *foreign)})


def _restore_optimizer(
    optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor], names: list[str], scalars: object
) -> None:
    # Not torch's load_state_dict: its first call imports torch._dynamo (see cvgnn.optim.adam_type), and it may convert
    # what it is given.
    require(isinstance(scalars, dict), "the state says nothing of the optimizer")
    assert isinstance(scalars, dict)
    parameters = _parameters(optimizer)
    likes = _state_after_a_step(optimizer)
    optimizer.state.clear()
    left = {name for name in names if name.startswith("optimizer.")} | {f"optimizer.{key}" for key in scalars}
    for i, parameter in enumerate(parameters):
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
        left = {name for name in left if not name.startswith(prefix)}
        if state:
            optimizer.state[parameter] = state
    require(not left, f"the state holds {short(min(left, default=''))}, but the optimizer has no such parameter")
    if likes is not None and optimizer.state:
        for i, (parameter, like) in enumerate(zip(parameters, likes, strict=True)):
            _refuse_other_state(i, optimizer.state.get(parameter, {}), like)


def _state_after_a_step(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]] | None:
    """What an optimizer keeps of each parameter, found by letting a copy of it take a step; None if that fails."""
    try:
        twin = copy.deepcopy(optimizer)
        for parameter in _parameters(twin):
            parameter.grad = torch.zeros_like(parameter)
        twin.step()
        return [dict(twin.state.get(parameter, {})) for parameter in _parameters(twin)]
    except Exception:  # somebody's own optimizer, which may want anything else, such as a closure
        return None


def _refuse_other_state(i: int, theirs: dict[str, Any], like: dict[str, Any]) -> None:
    """Refuse the state of parameter `i` if it is not of the kind of `like`."""
    for key in sorted(theirs.keys() ^ like.keys()):
        what = "lacks" if key in like else "holds"
        raise CvgnnError(f"the state {what} {short(f'optimizer.{i}.{key}')}, unlike the state of this optimizer")
    for key, mine in like.items():
        value = theirs[key]
        same = type(value) is type(mine)
        if isinstance(mine, Tensor):
            same = isinstance(value, Tensor) and value.shape == mine.shape and value.dtype == mine.dtype
        elif same and isinstance(mine, int) and mine >= 0:  # a count, at most
            same = 0 <= value < _MOST
        require(same, f"optimizer.{i}.{key} in the state is not what this optimizer keeps under that name")


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


def _refuse_surplus(names: list[str], kind: str, mine: Mapping[str, Tensor]) -> None:
    for name in names:
        if name.startswith(f"{kind}."):
            require(name.removeprefix(f"{kind}.") in mine, f"the state holds {name}, which this run does not have")


def _progress(trainer: Trainer, numbers: Numbers) -> tuple[Position, int]:
    """How far the run was, if the numbers agree with each other."""
    position, iterations = _position(numbers.get("position")), _whole(numbers.get("iterations"))
    steps = trainer.loader.steps_per_epoch
    require(
        position.steps <= steps and iterations == (position.epoch - 1) * steps + position.steps,
        f"the state is at epoch {position.epoch}, step {position.steps}, after {iterations} steps, but epochs have "
        f"{steps} steps",
    )
    return position, iterations


def _position(value: object) -> Position:
    fields = {field.name: field.type for field in dataclasses.fields(Position)}
    require(isinstance(value, dict) and value.keys() == fields.keys(), "the state's position is incomplete")
    assert isinstance(value, dict)
    for name, kind in fields.items():
        number = value[name]
        if kind == "float":
            right = isinstance(number, float) and math.isfinite(number) and (number >= 0 or name != "seconds")
        else:
            right = type(number) is int and 0 <= number < _MOST
        require(right, f"the state's {name} is {short(number)}")
    require(value["epoch"] >= 1, "the state's epoch is 0")
    return Position(**value)


def _whole(value: object) -> int:
    right = type(value) is int and 0 <= value < _MOST
    require(right, f"the state holds {short(value)} where it must hold a whole number")
    assert isinstance(value, int)
    return value
