"""Which iterate a run returns: the last, the best by validation, or Algorithm 1's `W_tau`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, final, get_args

import torch
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
    """Keeps the weights of the epoch with the highest validation score; the earliest one on a tie."""

    def __init__(self) -> None:
        self.epoch: int | None = None
        self.score = float("-inf")
        self.weights: Weights | None = None

    def offer(self, epoch: int, score: float, model: nn.Module) -> None:
        """Keep the model's weights if `score` is higher than all before."""
        if score > self.score:  # strictly: on a tie the earlier epoch stays
            self.epoch, self.score, self.weights = epoch, score, snapshot(model)


@final
class WeightAverage:
    """The exponential moving average of the weights, `A_t = d_t A_{t-1} + (1 - d_t) W_t`, `d_t = min(d, (1+t)/(10+t))`.

    The smaller decay of the first steps lets the average forget `W_1`; without it, `d = 0.999` would remember the
    initial weights for thousands of steps.

    Args:
        model: holds `W_1`, from which the average starts.
        decay: `d`.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.weights: Weights = {name: p.detach().clone() for name, p in model.named_parameters()}

    @torch.no_grad()
    def update(self, model: nn.Module, t: int) -> None:
        """Take `W` after step `t` into the average."""
        share = 1.0 - min(self.decay, (1 + t) / (10 + t))
        for name, parameter in model.named_parameters():
            self.weights[name].lerp_(parameter, share)

    @contextmanager
    def applied(self, model: nn.Module) -> Iterator[None]:
        """Give the model the averaged weights, and afterwards its own again."""
        parameters = dict(model.named_parameters())
        own = {name: p.data for name, p in parameters.items()}
        for name, p in parameters.items():
            p.data = self.weights[name]
        try:
            yield
        finally:
            for name, p in parameters.items():
                p.data = own[name]


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
        # A 64-bit draw modulo t: its bias is below t / 2^64.
        if derive(self.seed, Purpose.TAU, t) % t == 0:
            # A reservoir of one: the t-th iterate replaces the kept one with probability 1/t, so tau is
            # uniform for any T.
            self.tau, self.weights = t, snapshot(model)
