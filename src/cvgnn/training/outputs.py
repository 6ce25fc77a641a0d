"""Which iterate a run returns: the last, the best by validation accuracy, or Algorithm 1's `W_tau`."""

from __future__ import annotations

from typing import Literal, final, get_args

from torch import Tensor, nn

from cvgnn.rng import Purpose, derive

Output = Literal["best", "last", "tau"]
OUTPUTS: tuple[str, ...] = get_args(Output)

Weights = dict[str, Tensor]


def snapshot(model: nn.Module) -> Weights:
    """A copy of the model's weights."""
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


@final
class BestByValidation:
    """Keeps the weights of the epoch with the highest validation accuracy; the earliest one on a tie."""

    def __init__(self) -> None:
        self.epoch: int | None = None
        self.accuracy = float("-inf")
        self.weights: Weights | None = None

    def offer(self, epoch: int, accuracy: float, model: nn.Module) -> None:
        """Take the model's weights if `accuracy` beats all before."""
        if accuracy > self.accuracy:
            self.epoch, self.accuracy, self.weights = epoch, accuracy, snapshot(model)


@final
class UniformIterate:
    """`W_tau` with `tau` uniform on the iterates `1..T`, for a `T` that need not be known (Algorithm 1, line 20).

    A reservoir of one: iterate `t` replaces the kept one with probability `1/t`, so about `ln T` copies are made. The
    coin of iterate `t` is a pure function of (seed, t).
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.tau = 0
        self.weights: Weights | None = None

    def offer(self, t: int, model: nn.Module) -> None:
        """Offer iterate `W_t`; call with `t = 1, 2, ...` in order."""
        if derive(self.seed, Purpose.TAU, t) % t == 0:
            self.tau, self.weights = t, snapshot(model)
