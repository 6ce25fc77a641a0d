"""Algorithm 1: the training loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from cvgnn.errors import CvgnnError, require
from cvgnn.estimator import Estimator
from cvgnn.model import GCN, check_labels, is_plain, loss_and_gradient
from cvgnn.parallel import mostly_one_thread
from cvgnn.sampling import Batch, BatchLoader
from cvgnn.training.evaluate import Accuracies, Evaluator
from cvgnn.training.outputs import BestByValidation, UniformIterate, Weights, snapshot

Loss = Callable[[Tensor, Tensor], Tensor]


@final
@dataclass(frozen=True, kw_only=True)
class EpochRecord:
    """What is known after an epoch; `accuracies` is None where it was not evaluated."""

    epoch: int
    iterations: int
    loss: float
    accuracies: Accuracies | None
    train_seconds: float
    eval_seconds: float


@final
class Trainer:
    """Trains a model by Algorithm 1: sample, forward, loss, backward, step, commit.

    Args:
        model: the network, holding `W_t`.
        estimator: exact, sampled, or control variate; its histories must be initialised.
        loader: draws `V_t` and `P^`.
        optimizer: any `torch.optim.Optimizer` over the model's parameters.
        labels: int64 `[N]`.
        loss: `f`, averaged over the batch.
        evaluator: exact accuracies, or None to train without looking.
        seed: for `W_tau`.
        keep_tau: whether to keep `W_tau`.
    """

    def __init__(
        self,
        *,
        model: GCN,
        estimator: Estimator,
        loader: BatchLoader,
        optimizer: torch.optim.Optimizer,
        labels: Tensor,
        loss: Loss = cross_entropy,
        evaluator: Evaluator | None = None,
        seed: int = 0,
        keep_tau: bool = False,
    ) -> None:
        check_labels(labels, loader.sampler.num_nodes)
        self.model = model
        self.estimator = estimator
        self.loader = loader
        self.optimizer = optimizer
        self.labels = labels
        self.loss = loss
        self.evaluator = evaluator
        self.best = BestByValidation()
        self.tau = UniformIterate(seed) if keep_tau else None
        self.iterations = 0
        if self.tau is not None:
            self.tau.offer(1, model)

    def step(self, batch: Batch) -> Tensor:
        """Lines 5 to 17 of Algorithm 1 for one batch; returns the loss before the step."""
        with mostly_one_thread():
            loss = self._loss_and_gradient(batch)
            self.optimizer.step()
            self.estimator.commit(batch.step)
        self.iterations = batch.step
        if self.tau is not None:
            self.tau.offer(batch.step + 1, self.model)
        return loss

    def _loss_and_gradient(self, batch: Batch) -> Tensor:
        if self.loss is cross_entropy and is_plain(self.model):
            return loss_and_gradient(self.model, batch, self.estimator, self.labels)
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss(batch.select(self.model(batch, self.estimator)), self.labels[batch.ids])
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    def warm_up(self) -> None:
        """Compile or load the kernels of a step, so that the first epoch's seconds are those of training alone.

        A forward and a backward pass on one node, whose gradients and staged writes are thrown away.
        """
        batch = self.loader.batch(self.loader.train_ids[:1], step=0)
        self._loss_and_gradient(batch)
        self.optimizer.zero_grad(set_to_none=True)
        self.estimator.discard()

    def train_epoch(self, epoch: int) -> float:
        """All batches of an epoch; returns the mean loss over the drawn nodes."""
        self.model.train()
        total = torch.zeros((), dtype=torch.float64)
        nodes = 0
        for batch in self.loader.epoch(epoch):
            total += self.step(batch) * batch.ids.numel()
            nodes += batch.ids.numel()
        return float(total) / nodes

    def epochs(self, num_epochs: int, *, eval_every: int = 1) -> Iterator[EpochRecord]:
        """Train epochs `1..num_epochs`; yields a record after each, evaluated every `eval_every` and at the end."""
        require(num_epochs >= 1, f"epochs must be at least 1, not {num_epochs}")
        require(eval_every >= 1, f"eval_every must be at least 1, not {eval_every}")
        for epoch in range(1, num_epochs + 1):
            start = time.perf_counter()
            loss = self.train_epoch(epoch)
            trained = time.perf_counter()
            accuracies = None
            if self.evaluator is not None and (epoch % eval_every == 0 or epoch == num_epochs):
                accuracies = self.evaluator(self.model)
                if accuracies.val is not None:
                    self.best.offer(epoch, accuracies.val, self.model)
            yield EpochRecord(
                epoch=epoch,
                iterations=self.iterations,
                loss=loss,
                accuracies=accuracies,
                train_seconds=trained - start,
                eval_seconds=time.perf_counter() - trained,
            )

    def output(self, which: str) -> Weights:
        """The weights of the chosen iterate: `"last"`, `"best"` or `"tau"`."""
        kept = {"best": self.best.weights, "tau": None if self.tau is None else self.tau.weights}
        weights = snapshot(self.model) if which == "last" else kept[which]
        if weights is None:
            raise CvgnnError(
                f"output {which!r} was not kept: 'best' needs validation nodes and an evaluation, 'tau' keep_tau=True"
            )
        return weights
