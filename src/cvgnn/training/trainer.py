"""Algorithm 1: the training loop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, final

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from cvgnn.errors import CvgnnError, require, require_integer, require_number
from cvgnn.nn import Estimator, Network, refresh_statistics, require_exact
from cvgnn.ops.allocator import keep_freed_memory
from cvgnn.ops.threads import one_torch_thread
from cvgnn.sampling import Batch, BatchLoader
from cvgnn.training.evaluation import Accuracies, Evaluator
from cvgnn.training.guard import Diverged, Guard, first_bad, weights_are_finite
from cvgnn.training.outputs import BestByValidation, UniformIterate, WeightAverage, Weights, snapshot
from cvgnn.training.schedules import Factor

LossFunction = Callable[..., Tensor]


@final
@dataclass(frozen=True, kw_only=True)
class EpochRecord:
    """The measurements of an epoch; `accuracies` is None where it was not evaluated."""

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
    """Progress within a run: `steps` steps of epoch `epoch` are done; the rest are sums over these steps."""

    epoch: int = 1
    steps: int = 0
    loss_sum: float = 0.0
    nodes: int = 0
    seconds: float = 0.0
    skipped: int = 0
    skipped_in_a_row: int = 0


@final
@dataclass(kw_only=True, eq=False, repr=False)
class Trainer:
    """Trains a model by Algorithm 1: sample, forward, loss, backward, step, commit.

    Args:
        model: the network, holding `W_t`.
        estimator: exact, sampled, or control variate; its histories must be initialised.
        loader: draws `V_t` and `P^`.
        optimizer: any `torch.optim.Optimizer` over the model's parameters.
        labels: int64 `[N]`.
        loss: `f`, averaged over the batch.
        evaluator: exact accuracies, or None to train without evaluation.
        seed: for `W_tau`.
        keep_tau: whether to keep `W_tau`.
        ema: decay of the average of the weights that is evaluated and returned instead of the weights themselves; 0 for
            none.
        guard: which steps are refused, clipped or skipped.
        label_smoothing: share of each label that the loss spreads over all classes; for cross entropy.
        class_weight: `[C]`, the weight of each class in the cross entropy; 1 if not given.
        schedule: what the optimizer's learning rates are multiplied by in each epoch; 1 if not given.
        statistics_every: a `BatchNorm` takes its statistics from an exact pass before every n-th step, the first
            included.
        device: where model, histories and features are; batches are drawn on the CPU and moved there.
    """

    model: Network
    estimator: Estimator
    loader: BatchLoader
    optimizer: torch.optim.Optimizer
    labels: Tensor
    loss: LossFunction = cross_entropy
    evaluator: Evaluator | None = None
    seed: int = 0
    keep_tau: bool = False
    ema: float = 0.0
    guard: Guard = field(default_factory=Guard)
    schedule: Factor | None = None
    label_smoothing: float = 0.0
    class_weight: Tensor | None = None
    statistics_every: int = 100
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    iterations: int = field(default=0, init=False)
    position: Position = field(default_factory=Position, init=False)
    best: BestByValidation = field(default_factory=BestByValidation, init=False)
    tau: UniformIterate | None = field(default=None, init=False)
    average: WeightAverage | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        require_number("label_smoothing", self.label_smoothing, "a number in [0, 1)", at_least=0.0, below=1.0)
        is_cross_entropy, train_ids = self.loss is cross_entropy, self.loader.train_ids
        require(self.label_smoothing == 0.0 or is_cross_entropy, "label_smoothing is for cross_entropy; leave it out")
        require(self.class_weight is None or is_cross_entropy, "class_weight is for cross_entropy; leave it out")
        check_labels(self.labels, self.loader.sampler.num_nodes)
        if is_cross_entropy:
            refuse_labels(self.labels[train_ids], train_ids, self.model.out_channels)
        require_integer("statistics_every", self.statistics_every, at_least=1)
        if self.evaluator is not None:
            require_exact(self.model, self.evaluator.features, self.loader.sampler.propagation, train_ids)
        keep_freed_memory()  # a step allocates the same sizes again and again; mapping them again costs page faults
        self.labels = self.labels.to(self.device)
        # The rates before any schedule: a factor is applied to these, never to the rate of the epoch before.
        self._rates = [group["lr"] for group in self.optimizer.param_groups] if self.schedule else []
        require_number("ema", self.ema, "a number in [0, 1)", at_least=0.0, below=1.0)
        if self.ema > 0.0:
            # A BatchNorm's statistics belong to the weights they were measured at, not to an average of them.
            require(
                not self.model.has_statistics, "ema averages weights, which norm='batch' cannot use; try norm='layer'"
            )
            self.average = WeightAverage(self.model, self.ema)
        if self.keep_tau:
            self.tau = UniformIterate(self.seed)
            self.tau.offer(1, self.model)  # tau is uniform on 1..T, and W_1 is the initial weights

    def step(self, batch: Batch) -> float:
        """Lines 5 to 17 of Algorithm 1 for one batch; returns the loss before the step.

        A step whose loss or gradient is not finite changes nothing: it raises `Diverged`, or is skipped.
        """
        batch = batch.to(self.device)
        # A function of the step and not of the epoch or the clock, so that a resumed run refreshes at the same steps.
        if self.model.has_statistics and (batch.step - 1) % self.statistics_every == 0:
            self.refresh_statistics()
        # Our kernels share rows between their own threads; torch's small operations are faster on one.
        with one_torch_thread():
            loss = self._loss_and_gradient(batch)
            self.loader.draw_ahead()  # the next batch is drawn in another thread while the optimizer steps
            parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
            if self.guard.accepts(loss, parameters, self.estimator.staged()):
                self.optimizer.step()
                # Line 17: histories move after the parameters do, with the H of this step's forward pass.
                self.estimator.commit(batch.step)
                if self.average is not None:
                    self.average.update(self.model, batch.step)
                self.position.skipped_in_a_row = 0
            else:
                self._refuse(batch, loss)
        self.iterations = batch.step
        if self.tau is not None:
            self.tau.offer(batch.step + 1, self.model)
        return loss

    def refresh_statistics(self) -> None:
        """Give every `BatchNorm` of the model the statistics of an exact pass at the current weights."""
        refresh_statistics(self.model, self.estimator.features, self.loader.sampler.propagation.to(self.device))

    def _refuse(self, batch: Batch, loss: float) -> None:
        self.estimator.discard()
        p = self.position
        if not self.guard.skip_bad or p.skipped_in_a_row + 1 >= self.guard.most_skipped:
            # Computed again here, because a good step should not pay for the search.
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
            loss = cross_entropy(logits, labels, weight=self.class_weight, label_smoothing=self.label_smoothing)
        else:
            loss = self.loss(logits, labels)
            require(
                isinstance(loss, Tensor) and loss.dim() == 0 and loss.requires_grad,
                "loss must return one differentiable number, the mean over the nodes, as a tensor of shape []",
            )
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        return float(loss.item())

    def warm_up(self) -> None:
        """Compile or load the kernels of a step, so that the first epoch's seconds are those of training alone.

        A forward and a backward pass on a batch, whose gradients and staged writes are discarded.
        """
        batch = self.loader.batch(self.loader.train_ids[: self.loader.batch_size], step=0).to(self.device)
        self._loss_and_gradient(batch)
        self.optimizer.zero_grad(set_to_none=True)
        self.estimator.discard()

    def train_epoch(self, epoch: int, *, after_step: Callable[[], None] | None = None) -> float:
        """Train on the batches of an epoch that are not done yet; returns the mean loss over the epoch's drawn nodes.

        Args:
            epoch: counted from 1.
            after_step: called after each step; its time does not count as the epoch's.
        """
        self.model.train()
        if epoch != self.position.epoch:
            self.position = Position(epoch=epoch)
        p = self.position
        if self.schedule is not None:
            for group, rate in zip(self.optimizer.param_groups, self._rates, strict=True):
                group["lr"] = rate * self.schedule(epoch)
        start = time.perf_counter() - p.seconds  # as if the steps before a resume had been done just now
        for batch in self.loader.epoch(p.epoch, skip=p.steps):
            skipped = p.skipped
            loss = self.step(batch)
            p.steps += 1
            if p.skipped == skipped:
                p.loss_sum += loss * batch.ids.numel()
                p.nodes += batch.ids.numel()
            # Before the callbacks: one of them may save the position.
            now = time.perf_counter()
            p.seconds = now - start
            if after_step is not None:
                after_step()
                start += time.perf_counter() - now
        # The guard looks at gradients before a step. A finite gradient can still overflow the weights.
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
            num_epochs: the total, with the epochs before a resume.
            eval_every: evaluate after every n-th epoch, and after the last.
            patience: stop after an evaluation if the validation accuracy has not risen for so many epochs; 0 = never.
            after_step: see `train_epoch`. When it is called, and when a record is yielded, `state_dict` is complete.
        """
        require(num_epochs >= 1, f"epochs must be at least 1, not {num_epochs}")
        require(eval_every >= 1, f"eval_every must be at least 1, not {eval_every}")
        while (epoch := self.position.epoch) <= num_epochs and not self._patience_exhausted(patience, eval_every):
            loss = self.train_epoch(epoch, after_step=after_step)
            start = time.perf_counter()
            accuracies = None
            if self.evaluator is not None and (epoch % eval_every == 0 or epoch == num_epochs):
                with self._output_weights():
                    accuracies = self.evaluator(self.model)
                    if accuracies.val is not None:
                        self.best.offer(epoch, accuracies.val, self.model)
            done = self.position
            # Advanced before the yield, so that a checkpoint between epochs starts with the next one.
            self.position = Position(epoch=epoch + 1, skipped_in_a_row=done.skipped_in_a_row)
            yield EpochRecord(
                epoch=epoch,
                iterations=self.iterations,
                loss=loss,
                accuracies=accuracies,
                train_seconds=done.seconds,
                eval_seconds=time.perf_counter() - start,
                skipped_steps=done.skipped,
            )

    def _output_weights(self) -> AbstractContextManager[None]:
        """The weights that are evaluated and returned: the average if there is one."""
        return nullcontext() if self.average is None else self.average.applied(self.model)

    def _patience_exhausted(self, patience: int, eval_every: int) -> bool:
        """Whether the epoch before this one was the last that `patience` allows."""
        done, best = self.position.epoch - 1, self.best.epoch
        if patience == 0 or best is None or self.position.steps > 0 or done % eval_every != 0:
            return False
        return done - best >= patience

    def state_dict(self) -> dict[str, Any]:
        """Everything that decides how training continues, as `torch.save` or safetensors and JSON can hold it.

        Returns:
            `tensors`: weights, histories and moments by name, the trainer's own and not copies; `numbers`: the rest.
        """
        from cvgnn.training.training_state import trainer_state

        tensors, numbers = trainer_state(self)
        return {"tensors": tensors, "numbers": numbers}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where the trainer of this `state_dict` was; both must be built in the same way."""
        from cvgnn.training.training_state import restore_trainer

        require(state.keys() == {"tensors", "numbers"}, "state must be a Trainer's state_dict: tensors and numbers")
        restore_trainer(self, state["tensors"], state["numbers"])

    def output(self, which: str) -> Weights:
        """The weights of the chosen iterate: `"last"`, `"best"` or `"tau"`."""
        kept = {"best": self.best.weights, "tau": None if self.tau is None else self.tau.weights}
        with self._output_weights():
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
    """Refuse labels that are no class of the model, with the node; torch's own error, at some step, does not name it.

    Args:
        labels: int64 `[n]`, of the nodes `ids`.
        ids: int64 `[n]`.
        num_classes: of the model.
    """
    bad = ((labels < 0) | (labels >= num_classes)).nonzero().flatten().tolist()
    if bad:
        raise CvgnnError(
            f"node {int(ids[bad[0]])} has no label in 0..{num_classes - 1}, the classes of the model (its label is "
            f"{int(labels[bad[0]])})"
        )
