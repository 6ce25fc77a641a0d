"""torch's optimizers without torch's overhead: no compiler is imported, and a fused step is one call of its kernel.

torch decorates some optimizer methods so that `torch.compile` leaves them alone. Outside of a compiled region the
decorators do nothing but import `torch._dynamo`, with all it needs, on the first call: two seconds. cvgnn compiles
nothing, so its optimizers call the decorated functions themselves.

A step of a `fused` optimizer spends two thirds of its time on finding out that all tensors are of one device and
dtype, and on hooks. Where they are and nothing unusual is asked for, a step here goes to the kernel directly; the first
step, which makes the state, and every unusual case are torch's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.optim import SGD, Adagrad, Adam, Optimizer
from torch.optim import optimizer as hooks

T = TypeVar("T", bound=Optimizer)
Group = dict[str, Any]
Tensors = list[Tensor]


class Kernel(NamedTuple):
    """A fused step.

    Args:
        names: what it keeps of a parameter, by the names of torch's state, given the parameter's group.
        step: gets the group, its parameters and gradients, and a list of tensors for each of the names.
    """

    names: Callable[[Group], tuple[str, ...]]
    step: Callable[..., None]


def undecorated(method: Callable[..., Any]) -> Callable[..., Any]:
    """The function that a chain of decorators wraps."""
    while hasattr(method, "__wrapped__"):
        method = method.__wrapped__
    return method


add_param_group = undecorated(Optimizer.add_param_group)


def zero_grad(self: Optimizer, set_to_none: bool = True) -> None:
    """Forget the gradients, as `torch.optim.Optimizer.zero_grad` does, without a profiler's record of it."""
    for group in self.param_groups:
        for p in group["params"]:
            if set_to_none or p.grad is None:
                p.grad = None
            elif p.grad.grad_fn is not None:
                p.grad.detach_().zero_()
            else:
                p.grad.requires_grad_(False).zero_()


def light(optimizer: type[T]) -> type[T]:
    """A subclass of one of torch's optimizers that computes the same and never imports the compiler.

    >>> issubclass(light(torch.optim.Adam), torch.optim.Adam)
    True
    """
    bare_step = undecorated(optimizer.step)
    hooked_step = Optimizer.profile_hook_step(bare_step)
    fused = FUSED.get(optimizer)

    def step(self: Optimizer, closure: Callable[[], float] | None = None) -> float | None:
        with torch.no_grad():  # what torch's own decorator does
            if closure is None and fused is not None and _fused_step(self, fused):
                return None
            loss: float | None = (hooked_step if _has_hooks(self) else bare_step)(self, closure)
            return loss

    step.hooked = True  # type: ignore[attr-defined]  # torch would wrap it: a record for a profiler at every step

    methods = {"add_param_group": add_param_group, "zero_grad": zero_grad, "step": step, "__doc__": optimizer.__doc__}
    return type(optimizer.__name__, (optimizer,), methods)


def _has_hooks(optimizer: Optimizer) -> bool:
    own = optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks
    return bool(own or hooks._global_optimizer_pre_hooks or hooks._global_optimizer_post_hooks)


def _fused_step(optimizer: Optimizer, kernel: Kernel) -> bool:
    """Take a step of all groups by `kernel`; False, with nothing done, where that is not known to be torch's step."""
    if _has_hooks(optimizer) or hasattr(optimizer, "grad_scale"):
        return False
    work = []
    for group in optimizer.param_groups:
        numbers = (group["lr"], *group.get("betas", ()))
        unusual = not group["fused"] or group.get("decoupled_weight_decay", False)
        if unusual or any(isinstance(number, Tensor) for number in numbers):
            return False
        names = kernel.names(group)
        rows = []
        dtype = None
        for p in group["params"]:
            gradient = p.grad
            if gradient is None:
                continue
            dtype = dtype or p.dtype
            if p.dtype is not dtype or not p.is_cpu or gradient.is_sparse:
                return False
            state = optimizer.state.get(p, {})
            row = [p, gradient]
            for name in names:
                kept = state.get(name)
                if kept is None:
                    return False
                row.append(kept)
            rows.append(row)
        if rows:
            work.append((group, *map(list, zip(*rows, strict=True))))
    for one in work:
        kernel.step(*one)
    return True


_ONE = torch.ones(())


def _count(steps: Tensors) -> None:
    for step in steps:
        step.add_(_ONE)  # half the time of torch._foreach_add_(steps, 1)


def _adam(group: Group, params: Tensors, grads: Tensors, steps: Tensors, *moments: Tensors) -> None:
    M, V, *V_max = moments
    _count(steps)
    torch._fused_adam_(
        params,
        grads,
        M,
        V,
        V_max[0] if V_max else [],
        steps,
        lr=group["lr"],
        beta1=group["betas"][0],
        beta2=group["betas"][1],
        weight_decay=group["weight_decay"],
        eps=group["eps"],
        amsgrad=group["amsgrad"],
        maximize=group["maximize"],
    )


def _sgd(group: Group, params: Tensors, grads: Tensors, *momentum: Tensors) -> None:
    torch._fused_sgd_(
        params,
        grads,
        momentum[0] if momentum else [],
        weight_decay=group["weight_decay"],
        momentum=group["momentum"],
        lr=group["lr"],
        dampening=group["dampening"],
        nesterov=group["nesterov"],
        maximize=group["maximize"],
        is_first_step=False,
    )


def _adagrad(group: Group, params: Tensors, grads: Tensors, steps: Tensors, sums: Tensors) -> None:
    _count(steps)
    torch._fused_adagrad_(
        params,
        grads,
        sums,
        steps,
        lr=group["lr"],
        lr_decay=group["lr_decay"],
        weight_decay=group["weight_decay"],
        eps=group["eps"],
        maximize=group["maximize"],
    )


def _adam_names(group: Group) -> tuple[str, ...]:
    return ("step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq")[: 4 if group["amsgrad"] else 3]


FUSED = {
    Adam: Kernel(_adam_names, _adam),
    SGD: Kernel(lambda group: ("momentum_buffer",) if group["momentum"] else (), _sgd),
    Adagrad: Kernel(lambda group: ("step", "sum"), _adagrad),
}
