"""The state of a trainer as named tensors and JSON numbers: what `Trainer.state_dict` returns and a checkpoint holds.

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
from cvgnn.nn.estimators import saved_tensor
from cvgnn.training.outputs import snapshot
from cvgnn.training.trainer import Position, Trainer
from cvgnn.utils.checked_json import short

Numbers = dict[str, Any]
_MAX_COUNT = 2**53  # of epochs, steps, nodes: the whole numbers that a float64, and so every JSON reader, holds exactly


def trainer_state(trainer: Trainer) -> tuple[dict[str, Tensor], Numbers]:
    """The tensors, which are the trainer's own and not copies, and the numbers, which JSON can hold."""
    # Not copied: histories may be most of a run's memory, and the checkpoint is written before the next step.
    tensors = _prefixed("model", trainer.model.state_dict()) | _prefixed("estimator", trainer.estimator.state_dict())
    scalars: dict[str, Any] = {}
    for name, value in _flat_state(trainer.optimizer).items():
        if isinstance(value, Tensor):
            tensors[f"optimizer.{name}"] = value.detach()
        else:
            require(
                value is None or isinstance(value, bool | int | float | str),
                f"the optimizer keeps {name.partition('.')[2]!r}, a {type(value).__name__}, which a checkpoint cannot "
                "hold; use one whose state is tensors and numbers",
            )
            scalars[name] = value
    best, tau = trainer.best, trainer.tau
    tensors |= _prefixed("best", best.weights or {})
    if tau is not None:
        tensors |= _prefixed("tau", tau.weights or {})
    if trainer.average is not None:
        tensors |= _prefixed("average", trainer.average.weights)
    numbers = {
        "iterations": trainer.iterations,
        "position": dataclasses.asdict(trainer.position),
        "best": None if best.epoch is None else {"epoch": best.epoch, "score": best.score},
        "tau": None if tau is None else tau.tau,
        "optimizer": scalars,
    }
    return tensors, numbers


@torch.no_grad()
def restore_trainer(trainer: Trainer, tensors: Mapping[str, Tensor], numbers: Numbers | None) -> None:
    """Load a state into a trainer that was built like the one that was saved.

    A state that such a trainer cannot have is refused, because a checkpoint may come from anybody; what was restored
    until then stays.

    Args:
        trainer: its histories need not be initialised.
        tensors, numbers: from `trainer_state`; tensors are read one by one, so the mapping may load them lazily.
    """
    require(isinstance(numbers, dict), "the state has no numbers")
    assert isinstance(numbers, dict)
    trainer.position, trainer.iterations = _progress(trainer, numbers)
    # Every tensor that this trainer has is a target. The names in the state must be exactly the names of the targets.
    targets = _prefixed("model", trainer.model.state_dict()) | _prefixed("estimator", trainer.estimator.state_dict())
    best = numbers.get("best")
    if best is not None:
        valid = isinstance(best, dict) and isinstance(best.get("score"), float)
        require(valid, "the state's best score is not a number")
        trainer.best.epoch, trainer.best.score = _count("best epoch", best.get("epoch")), best["score"]
        trainer.best.weights = snapshot(trainer.model)  # of the right shapes; filled below
        targets |= _prefixed("best", trainer.best.weights)
    if trainer.tau is not None:
        trainer.tau.tau, trainer.tau.weights = _count("tau", numbers.get("tau")), snapshot(trainer.model)
        targets |= _prefixed("tau", trainer.tau.weights)
    if trainer.average is not None:
        targets |= _prefixed("average", trainer.average.weights)
    trainer.estimator.discard()  # history writes that an interrupted step staged belong to the old state
    _fill(targets, tensors)
    of_optimizer = _restore_optimizer(trainer.optimizer, tensors, numbers.get("optimizer"))
    _fill(of_optimizer, tensors)
    surplus = tensors.keys() - targets.keys() - of_optimizer.keys()
    require(not surplus, f"the state holds {short(min(surplus, default=''))}, which this run does not have")


def _fill(targets: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> None:
    """Copy each tensor of the state into the one of the same name."""
    for name, mine in targets.items():
        mine.copy_(saved_tensor(tensors, name, like=mine))


def _restore_optimizer(
    optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor], scalars: object
) -> dict[str, Tensor]:
    """Give the optimizer a state with the saved numbers; returns its tensors, which are still to be filled.

    torch's own `load_state_dict` is not used: its first call imports torch._dynamo (see `cvgnn.optim.adam_type`), and
    it converts the dtype of what it loads.
    """
    require(isinstance(scalars, dict), "the state holds no numbers of the optimizer")
    assert isinstance(scalars, dict)
    optimizer.state.clear()
    names = [name for name in tensors if name.startswith("optimizer.")]
    if not names and not scalars:  # saved before the first step
        return {}
    parameters = {str(i): parameter for i, parameter in enumerate(_parameters(optimizer))}
    expected = _state_after_one_step(optimizer)
    if expected is None:  # nothing to compare with: the state is taken as it was saved
        saved = {name.removeprefix("optimizer."): torch.empty_like(tensors[name]) for name in names} | scalars
        expected = {name: value for name, value in saved.items() if name.partition(".")[0] in parameters}
    targets = {f"optimizer.{name}": value for name, value in expected.items() if isinstance(value, Tensor)}
    for name in sorted((expected.keys() - {name.removeprefix("optimizer.") for name in targets}) ^ scalars.keys()):
        missing = "lacks" if name in expected else "holds"
        raise CvgnnError(f"the state {missing} {short(f'optimizer.{name}')}, unlike the state of this optimizer")
    for name, value in scalars.items():
        same_type, is_count = type(value) is type(expected[name]), isinstance(value, int)
        valid = same_type and (not is_count or 0 <= value < _MAX_COUNT)
        require(valid, f"optimizer.{name} is {short(value)} in the state, which this optimizer cannot use")
    # The twin's tensors become the optimizer's: they have the right shape and type, and nothing else uses them.
    for name, value in expected.items():
        i, _, key = name.partition(".")
        optimizer.state[parameters[i]][key] = scalars.get(name, value)
    return targets


def _state_after_one_step(optimizer: torch.optim.Optimizer) -> dict[str, Any] | None:
    """The state that a copy of the optimizer has after one step; None if the step fails.

    An optimizer creates its state in its first step, so this is the only way to learn its names, shapes and types.
    """
    try:
        twin = copy.deepcopy(optimizer)
        for parameter in _parameters(twin):
            parameter.grad = torch.zeros_like(parameter)
        twin.step()
        return _flat_state(twin)
    except Exception:  # an optimizer of the user's may need anything, such as a closure
        return None


def _flat_state(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """What the optimizer keeps for its parameters, by `NUMBER.KEY`."""
    states = [optimizer.state.get(parameter, {}) for parameter in _parameters(optimizer)]
    return {f"{i}.{key}": value for i, state in enumerate(states) for key, value in state.items()}


def _parameters(optimizer: torch.optim.Optimizer) -> list[nn.Parameter]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _prefixed(kind: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{kind}.{name}": tensor.detach() for name, tensor in tensors.items()}


def _progress(trainer: Trainer, numbers: Numbers) -> tuple[Position, int]:
    """The position in the run and the number of steps, if they agree with each other."""
    stored, iterations = numbers.get("position"), _count("iterations", numbers.get("iterations"))
    fields = {field.name: field.type for field in dataclasses.fields(Position)}
    require(isinstance(stored, dict) and stored.keys() == fields.keys(), "the state's position is incomplete")
    assert isinstance(stored, dict)
    for name, kind in fields.items():
        number = stored[name]
        if kind == "float":
            valid = isinstance(number, float) and math.isfinite(number) and (number >= 0 or name != "seconds")
            require(valid, f"the state's {name} is {short(number)}")
        else:
            _count(name, number)
    require(stored["epoch"] >= 1, "the state's epoch is 0")
    # The batch of a step is a function of its number, so a wrong pair would train on other batches without an error.
    position, steps = Position(**stored), trainer.loader.steps_per_epoch
    require(
        position.steps <= steps and iterations == (position.epoch - 1) * steps + position.steps,
        f"the state is at epoch {position.epoch}, step {position.steps}, after {iterations} steps, but epochs have "
        f"{steps} steps",
    )
    return position, iterations


def _count(name: str, value: object) -> int:
    valid = type(value) is int and 0 <= value < _MAX_COUNT
    require(valid, f"the state's {name} is {short(value)}, not a count")
    assert isinstance(value, int)
    return value
