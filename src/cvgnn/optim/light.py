"""torch's optimizers without torch's compiler: the first `torch.optim` optimizer of a process costs two seconds less.

torch decorates some optimizer methods so that `torch.compile` leaves them alone. Outside of a compiled region the
decorators do nothing but import `torch._dynamo`, with all it needs, on the first call. cvgnn compiles nothing, so its
optimizers call the decorated functions themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch.optim import Optimizer

T = TypeVar("T", bound=Optimizer)


def undecorated(method: Callable[..., Any]) -> Callable[..., Any]:
    """The function that a chain of decorators wraps."""
    while hasattr(method, "__wrapped__"):
        method = method.__wrapped__
    return method


add_param_group = undecorated(Optimizer.add_param_group)
zero_grad = undecorated(Optimizer.zero_grad)


def light(optimizer: type[T]) -> type[T]:
    """A subclass of one of torch's optimizers that computes the same and never imports the compiler.

    >>> issubclass(light(torch.optim.Adam), torch.optim.Adam)
    True
    """
    bare_step = undecorated(optimizer.step)

    def step(self: Optimizer, closure: Callable[[], float] | None = None) -> float | None:
        with torch.no_grad():  # what torch's own decorator does
            loss: float | None = bare_step(self, closure)
            return loss

    methods = {"add_param_group": add_param_group, "zero_grad": zero_grad, "step": step, "__doc__": optimizer.__doc__}
    return type(optimizer.__name__, (optimizer,), methods)
