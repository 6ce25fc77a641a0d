"""Algorithm 1: the training loop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from cvgnn.errors import CvgnnError, require, require_integer, require_number
from cvgnn.nn import Estimator, Network, refresh_statistics
from cvgnn.ops.allocator import keep_freed_memory
from cvgnn.ops.threads import one_torch_thread
from cvgnn.sampling import Batch, BatchLoader
from cvgnn.training.evaluate import Accuracies, Evaluator
from cvgnn.training.guard import Diverged, Guard, first_bad, weights_are_finite
from cvgnn.training.outputs import BestByValidation, UniformIterate, Weights, snapshot
from cvgnn.training.schedules import Factor

LossFunction = Callable[[Tensor, Tensor], Tensor]


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
    skipped_steps: int = 0


@final
@dataclass(kw_only=True)
class Position:
    """How far a run has come: `steps` steps of epoch `epoch` are done, with what they have added up to."""

    epoch: int = 1
    steps: int = 0
    loss_sum: float = 0.0
    nodes: int = 0
    seconds: float = 0.0
    skipped: int = 0
    skipped_in_a_row: int = 0


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
        guard: what is refused, clipped or skipped before a step.
        label_smoothing: share of each label that the loss spreads over all classes; for cross entropy.
        schedule: what the optimizer's learning rates are multiplied by in each epoch; 1 if not given.
        statistics_every: a `BatchNorm` takes its statistics from an exact pass before every n-th step, the first
            included.
        device: where model, histories and features are; batches are drawn on the CPU and moved there.
    """

    def __init__(
        self,
        *,
        model: Network,
        estimator: Estimator,
        loader: BatchLoader,
        optimizer: torch.optim.Optimizer,
        labels: Tensor,
        loss: LossFunction = cross_entropy,
        evaluator: Evaluator | None = None,
        seed: int = 0,
        keep_tau: bool = False,
        guard: Guard | None = None,
        schedule: Factor | None = None,
        label_smoothing: float = 0.0,
        statistics_every: int = 100,
        device: torch.device | None = None,
    ) -> None:
        require_number("label_smoothing", label_smoothing, "a number in [0, 1)", at_least=0.0, below=1.0)
        require(
            label_smoothing == 0.0 or loss is cross_entropy,
            "label_smoothing is cross entropy's; do it in your own loss",
        )
        check_labels(labels, loader.sampler.num_nodes)
        if loss is cross_entropy:
            refuse_labels(labels[loader.train_ids], loader.train_ids, model.out_channels)
        require_integer("statistics_every", statistics_every, at_least=1)
        keep_freed_memory()
        self.device = device or torch.device("cpu")
        self.statistics_every = statistics_every
        self.model = model
        self.estimator = estimator
        self.loader = loader
        self.optimizer = optimizer
        self.labels = labels.to(self.device)
        self.loss = loss
        self.evaluator = evaluator
        self.best = BestByValidation()
        self.tau = UniformIterate(seed) if keep_tau else None
        self.guard = guard or Guard()
        self.schedule = schedule
        self.label_smoothing = label_smoothing
        self._rates = [group["lr"] for group in optimizer.param_groups] if schedule else []
        self.iterations = 0
        self.position = Position()
        if self.tau is not None:
            self.tau.offer(1, model)

    def step(self, batch: Batch) -> float:
        """Lines 5 to 17 of Algorithm 1 for one batch; returns the loss before the step.

        A step whose loss or gradient is not finite changes nothing: it raises `Diverged`, or is skipped.
        """
        batch = batch.to(self.device)
        if self.model.has_statistics and (batch.step - 1) % self.statistics_every == 0:
            self.refresh_statistics()
        with one_torch_thread():
            loss = self._loss_and_gradient(batch)
            self.loader.draw_ahead()
            parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
            if self.guard.accepts(loss, parameters, self.estimator.staged()):
                self.optimizer.step()
                self.estimator.commit(batch.step)
                self.position.skipped_in_a_row = 0
            else:
                self._refuse(batch, loss)
        self.iterations = batch.step
        if self.tau is not None:
            self.tau.offer(batch.step + 1, self.model)
        return loss

    def refresh_statistics(self) -> None:
        """Give every `BatchNorm` of the model the statistics of an exact pass at the present weights."""
        refresh_statistics(self.model, self.estimator.features, self.loader.sampler.propagation.to(self.device))

    def _refuse(self, batch: Batch, loss: float) -> None:
        self.estimator.discard()
        p = self.position
        if not self.guard.skip_bad or p.skipped_in_a_row + 1 >= self.guard.most_skipped:
            what = first_bad(self.model, batch, self.estimator, loss)
            if self.guard.skip_bad:
                what += f" (and the {p.skipped_in_a_row} steps before were skipped)"
            raise Diverged(batch.step, what, batch.ids.tolist())
        p.skipped += 1
        p.skipped_in_a_row += 1

    def _loss_and_gradient(self, batch: Batch) -> float:
        """Lines 6 to 11: the loss of the batch; its gradient replaces the `.grad`s."""
        logits, labels = batch.select(self.model(batch, self.estimator)), self.labels.index_select(0, batch.ids)
        if self.loss is cross_entropy:
            loss = cross_entropy(logits, labels, label_smoothing=self.label_smoothing)
        else:
            loss = self.loss(logits, labels)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        return float(loss.item())

    def warm_up(self) -> None:
        """Compile or load the kernels of a step, so that the first epoch's seconds are those of training alone.

        A forward and a backward pass on a batch, whose gradients and staged writes are thrown away.
        """
        batch = self.loader.batch(self.loader.train_ids[: self.loader.batch_size], step=0).to(self.device)
        self._loss_and_gradient(batch)
        self.optimizer.zero_grad(set_to_none=True)
        self.estimator.discard()

    def train_epoch(self, epoch: int, *, after_step: Callable[[], None] | None = None) -> float:
        """The batches of an epoch, the rest of them if it was begun; returns the mean loss over its drawn nodes.

        Args:
            epoch: counted from 1.
            after_step: called after each step, outside of the epoch's seconds.
        """
        self.model.train()
        if epoch != self.position.epoch:
            self.position = Position(epoch=epoch)
        p = self.position
        if self.schedule is not None:
            for group, rate in zip(self.optimizer.param_groups, self._rates, strict=True):
                group["lr"] = rate * self.schedule(epoch)
        start = time.perf_counter() - p.seconds
        for batch in self.loader.epoch(p.epoch, skip=p.steps):
            skipped = p.skipped
            loss = self.step(batch)
            p.steps += 1
            if p.skipped == skipped:
                p.loss_sum += loss * batch.ids.numel()
                p.nodes += batch.ids.numel()
            now = time.perf_counter()
            p.seconds = now - start
            if after_step is not None:
                after_step()
                start += time.perf_counter() - now
        if not weights_are_finite(self.model):
            raise Diverged(self.iterations, "the last step of the epoch left weights that are infinite or NaN", [])
        return p.loss_sum / p.nodes if p.nodes else math.nan

    def epochs(
        self,
        num_epochs: int,
        *,
        eval_every: int = 1,
        patience: int = 0,
        after_step: Callable[[], None] | None = None,
    ) -> Iterator[EpochRecord]:
        """Train until `num_epochs` epochs are done; yields a record after each.

        Args:
            num_epochs: how many in all, those of an earlier run that is continued included.
            eval_every: evaluate after every n-th, and after the last.
            patience: end after an evaluation if the validation accuracy has not risen for so many epochs; 0 = never.
            after_step: see `train_epoch`. When it is called, and when a record is yielded, `state` is complete.
        """
        require(num_epochs >= 1, f"epochs must be at least 1, not {num_epochs}")
        require(eval_every >= 1, f"eval_every must be at least 1, not {eval_every}")
        while (epoch := self.position.epoch) <= num_epochs and not self._gave_up(patience, eval_every):
            loss = self.train_epoch(epoch, after_step=after_step)
            start = time.perf_counter()
            accuracies = None
            if self.evaluator is not None and (epoch % eval_every == 0 or epoch == num_epochs):
                accuracies = self.evaluator(self.model)
                if accuracies.val is not None:
                    self.best.offer(epoch, accuracies.val, self.model)
            done, self.position = (
                self.position,
                Position(epoch=epoch + 1, skipped_in_a_row=self.position.skipped_in_a_row),
            )
            yield EpochRecord(
                epoch=epoch,
                iterations=self.iterations,
                loss=loss,
                accuracies=accuracies,
                train_seconds=done.seconds,
                eval_seconds=time.perf_counter() - start,
                skipped_steps=done.skipped,
            )

    def _gave_up(self, patience: int, eval_every: int) -> bool:
        """Whether the epoch before this one was the last that `patience` allows."""
        done, best = self.position.epoch - 1, self.best.epoch
        waits = patience == 0 or best is None or self.position.steps > 0 or done % eval_every != 0
        return not waits and done - best >= patience  # type: ignore[operator]

    def output(self, which: str) -> Weights:
        """The weights of the chosen iterate: `"last"`, `"best"` or `"tau"`."""
        kept = {"best": self.best.weights, "tau": None if self.tau is None else self.tau.weights}
        weights = snapshot(self.model) if which == "last" else kept[which]
        if weights is None:
            raise CvgnnError(
                f"output {which!r} was not kept: 'best' needs validation nodes and an evaluation, 'tau' keep_tau=True"
            )
        return weights


def check_labels(labels: Tensor, num_nodes: int) -> None:
    """Refuse labels that are not one class number for each node."""
    require(
        isinstance(labels, Tensor) and labels.dtype == torch.int64 and labels.shape == (num_nodes,),
        f"labels must be an int64 vector with one entry for each of the {num_nodes} nodes, training nodes or not",
    )


def refuse_labels(labels: Tensor, ids: Tensor, num_classes: int) -> None:
    """Refuse labels that are no class of the model, and say whose; torch would only say, at some step, that one is.

    Args:
        labels: int64 `[n]`, of the nodes `ids`.
        ids: int64 `[n]`.
        num_classes: of the model.
    """
    bad = (labels < 0) | (labels >= num_classes)
    if bool(bad.any()):
        i = int(bad.nonzero()[0])
        raise CvgnnError(
            f"node {int(ids[i])} has no label in 0..{num_classes - 1}, the classes the model knows (its label is "
            f"{int(labels[i])})"
        )
