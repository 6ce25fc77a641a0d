"""What is looked at before a step is taken: a loss or a gradient that is not a number must not reach the weights."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from cvgnn.errors import CvgnnError, require_integer, require_number
from cvgnn.nn import Estimator, Network
from cvgnn.ops.optimizer_step import sum_of_squares
from cvgnn.ops.row_input import RowInput
from cvgnn.sampling import Batch, SparseInput

_SHOWN_IDS = 8


class Diverged(CvgnnError):
    """Training met a number that is none, and stopped before it reached the weights or the histories.

    Args:
        step: `t`.
        what: which tensor was the first that is not finite, in words.
        ids: the batch's node ids.
    """

    def __init__(self, step: int, what: str, ids: list[int]) -> None:
        self.step = step
        self.what = what
        self.ids = ids
        shown = ", ".join(map(str, ids[:_SHOWN_IDS])) + (", ..." if len(ids) > _SHOWN_IDS else "")
        batch = f" on a batch of {len(ids)} nodes ({shown})" if ids else ""
        super().__init__(
            f"training diverged at step {step}{batch}: {what}; try a smaller lr, clip_norm=1, or bad_step='skip'"
        )


@final
@dataclass(frozen=True, kw_only=True)
class Guard:
    """The rules before a step.

    Args:
        clip_norm: the largest norm that the gradient of all parameters together may have; a longer one is shortened.
        skip_bad: leave out a step whose loss or gradient is not finite, instead of stopping.
        most_skipped: so many in a row stop the run all the same.
    """

    clip_norm: float | None = None
    skip_bad: bool = False
    most_skipped: int = 20

    def __post_init__(self) -> None:
        if self.clip_norm is not None:
            require_number("clip_norm", self.clip_norm, "a number above 0", above=0.0)
        require_integer("most_skipped", self.most_skipped, at_least=1)

    def accepts(self, loss: float, parameters: list[nn.Parameter], staged: Iterable[Tensor] = ()) -> bool:
        """Whether a step may be taken; if so, the gradients are clipped.

        Args:
            loss: must be finite.
            parameters: their gradients must be.
            staged: what the histories will keep; dropout can hide an entry of it from loss and gradients.
        """
        if not math.isfinite(loss) or not all(map(is_finite, staged)):
            return False
        norm, clip_norm = gradient_norm([p.grad for p in parameters if p.grad is not None]), self.clip_norm
        if not math.isfinite(norm):
            return False
        if clip_norm is not None and norm > clip_norm:
            for p in parameters:
                if p.grad is not None:
                    p.grad.mul_(clip_norm / norm)
        return True


def gradient_norm(gradients: list[Tensor]) -> float:
    """The Euclidean norm of all gradients together; not finite if one of their entries is not.

    >>> gradient_norm([torch.tensor([3.0]), torch.tensor([4.0])])
    5.0
    """
    total = sum_of_squares(gradients)
    if math.isfinite(total):
        return math.sqrt(total)
    # Squares overflow long before the numbers do.
    largest = max(float(g.abs().max()) for g in gradients if g.numel())
    if not math.isfinite(largest):
        return largest
    return largest * math.hypot(*(float(torch.linalg.vector_norm(g.double() / largest)) for g in gradients))


def is_finite(tensor: Tensor) -> bool:
    """Whether every entry is a number; a sum tells in one pass, unless it overflows."""
    return math.isfinite(float(tensor.sum())) or bool(tensor.isfinite().all())


def weights_are_finite(model: nn.Module) -> bool:
    """Whether every parameter is a number everywhere."""
    return all(is_finite(p.detach()) for p in model.parameters())


@torch.no_grad()
def first_bad(model: Network, batch: Batch, estimator: Estimator, loss: float) -> str:
    """The first tensor in the order of computation that is not finite, in words, with how much of it.

    Looks again at everything that the step computes; call it before weights or histories change.
    """
    for name, tensor in _in_order(model, batch, estimator):
        bad = int((~tensor.isfinite()).sum())
        if bad:
            return f"{name} has {bad} of {tensor.numel()} entries that are infinite or NaN"
    if not math.isfinite(loss):
        return f"the loss is {loss}, although the logits are finite"
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    for name, gradient in reversed(gradients.items()):  # backwards, as they were computed
        bad = int((~gradient.isfinite()).sum())
        if bad:
            return f"the gradient of {name} has {bad} of {gradient.numel()} entries that are infinite or NaN"
    return "a loss or a gradient is infinite or NaN"


def _in_order(model: Network, batch: Batch, estimator: Estimator) -> Iterator[tuple[str, Tensor]]:
    """What goes into a step, then what its forward pass computes, with their names."""
    aggregated, own = model.reads
    if aggregated:
        yield _rows("P X", estimator.input(batch), model)
    if own:
        yield _rows("X", estimator.own_input(batch), model)
    for name, parameter in model.named_parameters():
        yield f"the weight {name}, before this step,", parameter
    for k in range(1, model.num_layers):
        correction = estimator.correction(k, batch)
        if correction is not None:
            yield f"the history term of H^({k})", correction
    logits = f"Z^({model.num_layers + (model.head is not None)})"
    kinds = {"Z": "A W of layer^({}),", "H": "H^({})", "S": "the aggregate of H^({})"}
    try:
        for name, tensor in model.trace(batch, estimator, linear=True):
            yield f"the logits, {name}," if name == logits else kinds[name[0]].format(name[3:-1]), tensor
    finally:  # whoever stops looking at the first bad tensor must not leave staged history writes behind
        estimator.discard()


def _rows(name: str, rows: RowInput, model: Network) -> tuple[str, Tensor]:
    if isinstance(rows, SparseInput):  # the sum of a row is not finite if one of its entries is not
        ones = torch.ones_like(model.layer(0).weight[:, :1])
        return f"{name} on the batch (the features), summed over each row,", rows.product(ones)
    read = rows.read(0, rows.num_rows)
    assert isinstance(read, Tensor)
    return f"{name} on the batch (the features)", read
