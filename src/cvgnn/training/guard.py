"""The check before a step: a loss or a gradient that is infinite or NaN must not reach the weights."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn

from cvgnn.errors import CvgnnError, require_integer, require_number
from cvgnn.nn import Estimator, Network
from cvgnn.ops.optimizer_step import sum_of_squares
from cvgnn.ops.row_input import RowInput
from cvgnn.sampling import Batch, SparseInput

_MAX_IDS = 8


class Diverged(CvgnnError):
    """Training stopped before an infinite value or NaN reached the weights or the histories.

    Args:
        step: `t`.
        what: the first tensor that is not finite.
        ids: the batch's nodes, by the user's own ids where the graph has them.
    """

    def __init__(self, step: int, what: str, ids: list[Any]) -> None:
        self.step = step
        self.what = what
        self.ids = ids
        listed = ", ".join(map(str, ids[:_MAX_IDS])) + (", ..." if len(ids) > _MAX_IDS else "")
        batch = f" on a batch of {len(ids)} nodes ({listed})" if ids else ""
        super().__init__(
            f"training diverged at step {step}{batch}: {what}; try a smaller lr, clip_norm=1, or bad_step='skip'"
        )


@final
@dataclass(frozen=True, kw_only=True)
class Guard:
    """Which steps are taken.

    Args:
        clip_norm: the largest norm of the gradient over all parameters; a larger one is scaled down to it.
        skip_bad: skip a step whose loss or gradient is not finite, instead of stopping.
        most_skipped: stop after so many skipped steps in a row.
    """

    clip_norm: float | None = None
    skip_bad: bool = False
    most_skipped: int = 20

    def __post_init__(self) -> None:
        if self.clip_norm is not None:
            require_number("clip_norm", self.clip_norm, "a number above 0", above=0.0)
        require_integer("most_skipped", self.most_skipped, at_least=1)

    def accepts(self, loss: float, parameters: list[nn.Parameter]) -> bool:
        """Whether a step may be taken; if so, the gradients are clipped.

        Args:
            loss: must be finite. It is not if a row to be written to the histories is not (`ops.fused_layer`).
            parameters: their gradients must be.
        """
        if not math.isfinite(loss):
            return False
        gradients = [p.grad for p in parameters if p.grad is not None]
        norm = gradient_norm(gradients)  # one pass over the gradients serves both checks
        if not math.isfinite(norm):
            return False
        if self.clip_norm is not None and norm > self.clip_norm:
            for gradient in gradients:
                gradient.mul_(self.clip_norm / norm)
        return True


def gradient_norm(gradients: list[Tensor]) -> float:
    """The Euclidean norm over all gradients; not finite if one of their entries is not.

    >>> gradient_norm([torch.tensor([3.0]), torch.tensor([4.0])])
    5.0
    """
    total = sum_of_squares(gradients)
    if math.isfinite(total):
        return math.sqrt(total)
    # The squares of finite numbers may overflow: scaled by the largest entry they do not.
    largest = max(float(g.abs().max()) for g in gradients if g.numel())
    if not math.isfinite(largest):
        return largest
    return largest * math.hypot(*(float(torch.linalg.vector_norm(g.double() / largest)) for g in gradients))


def is_finite(tensor: Tensor) -> bool:
    """Whether every entry is finite."""
    # A sum is one pass and allocates nothing. It is finite if all entries are, unless it overflows.
    return math.isfinite(float(tensor.sum())) or bool(tensor.isfinite().all())


def weights_are_finite(model: nn.Module) -> bool:
    """Whether every entry of every parameter is finite."""
    return all(is_finite(p.detach()) for p in model.parameters())


@torch.no_grad()
def first_bad(model: Network, batch: Batch, estimator: Estimator, loss: float) -> str:
    """The first tensor in the order of computation that is not finite, with the number of its bad entries.

    Computes the step again; call it before weights or histories change.
    """

    def describe(tensors: Iterable[tuple[str, Tensor]]) -> str | None:
        for name, tensor in tensors:
            if bad := int((~tensor.isfinite()).sum()):
                return f"{name} has {bad} of {tensor.numel()} entries that are infinite or NaN"
        return None

    gradients = [(f"the gradient of {name}", p.grad) for name, p in model.named_parameters() if p.grad is not None]
    logits_are_finite = f"the loss is {loss}, although the logits are finite"
    return (
        describe(_in_order(model, batch, estimator))
        or (None if math.isfinite(loss) else logits_are_finite)
        or describe(reversed(gradients))  # backwards, as they were computed
        or "a loss or a gradient is infinite or NaN"
    )


def _in_order(model: Network, batch: Batch, estimator: Estimator) -> Iterator[tuple[str, Tensor]]:
    """The inputs of a step, then the tensors of its forward pass, with their names."""
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
    finally:  # also if the caller stops at the first bad tensor: the pass has staged history writes
        estimator.discard()


def _rows(name: str, rows: RowInput, model: Network) -> tuple[str, Tensor]:
    if isinstance(rows, SparseInput):  # the sum of a row is not finite if one of its entries is not
        ones = torch.ones_like(model.layer(0).weight[:, :1])
        return f"{name} on the batch (the features), summed over each row,", rows.product(ones)
    read = rows.read(0, rows.shape[0])
    assert isinstance(read, Tensor)
    return f"{name} on the batch (the features)", read
