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

from cvgnn.errors import CvgnnError, require, require_integer, require_number
from cvgnn.nn import Estimator, Network, refresh_statistics, require_exact
from cvgnn.nn.sampled_start import SampledStart
from cvgnn.ops.allocator import keep_freed_memory
from cvgnn.ops.threads import one_torch_thread
from cvgnn.sampling import Batch, BatchLoader
from cvgnn.training.evaluation import Evaluator
from cvgnn.training.guard import Diverged, Guard, first_bad, weights_are_finite
from cvgnn.training.outputs import BestByValidation, UniformIterate, WeightAverage, Weights, snapshot
from cvgnn.training.schedules import Factor
from cvgnn.training.tasks import Metrics, Task


@final
@dataclass(frozen=True, kw_only=True)
class EpochRecord:
    """The measurements of an epoch; all `metrics` are None where it was not evaluated. Those that select the best epoch
    come first."""

    epoch: int
    iterations: int
    loss: float
    metrics: Metrics
    train_seconds: float
    eval_seconds: float
    skipped_steps: int = 0

    @property
    def is_evaluated(self) -> bool:
        """Whether the epoch was evaluated."""
        return any(value is not None for value in self.metrics.values())


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
        task: the loss, and the metric that selects the best epoch.
        evaluator: exact metrics, or None to train without evaluation.
        seed: for `W_tau`.
        keep_tau: whether to keep `W_tau`.
        ema: decay of the average of the weights that is evaluated and returned instead of the weights themselves; 0 for
            none.
        guard: which steps are refused, clipped or skipped.
        schedule: what the optimizer's learning rates are multiplied by in each epoch; 1 if not given.
        statistics_every: a `BatchNorm` takes its statistics from an exact pass before every n-th step, the first
            included.
        device: where model, histories and features are; batches are drawn on the CPU and moved there.
        gradient: computes the loss of a batch and the parameters' gradients, where the rows of a batch are not all in
            this process; the model's forward and backward pass if None.
        start: takes the place of `estimator` in the first steps, if given.
    """

    model: Network
    estimator: Estimator
    loader: BatchLoader
    optimizer: torch.optim.Optimizer
    task: Task
    evaluator: Evaluator | None = None
    seed: int = 0
    keep_tau: bool = False
    ema: float = 0.0
    guard: Guard = field(default_factory=Guard)
    schedule: Factor | None = None
    statistics_every: int = 100
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    gradient: Callable[[Batch], float] | None = None
    start: SampledStart | None = None
    iterations: int = field(default=0, init=False)
    position: Position = field(default_factory=Position, init=False)
    best: BestByValidation = field(default_factory=BestByValidation, init=False)
    tau: UniformIterate | None = field(default=None, init=False)
    average: WeightAverage | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        outputs, wanted = self.model.out_channels, self.task.out_channels
        require(outputs == wanted, f"model has {outputs} outputs, but task {self.task.name!r} needs {wanted}")
        require_integer("statistics_every", self.statistics_every, at_least=1)
        if self.evaluator is not None:
            require_exact(self.model, self.estimator.features, self.loader.sampler.propagation, self.loader.items.nodes)
        keep_freed_memory()  # a step allocates the same sizes again and again; mapping them again costs page faults
        self.task.to(self.device)
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
        with one_torch_thread(when_free=self.loader.draw_ahead):  # another thread draws the next batch meanwhile
            loss = self._loss_and_gradient(batch)
            self.loader.draw_ahead()
            parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
            if self.guard.accepts(loss, parameters):
                # Line 17: histories take the H of this step's forward pass. Line 12, which does not read them, follows:
                # this is compiled code, during which the thread that draws the next batch can begin.
                self._estimator_at(batch.step).commit(batch.step)
                self.optimizer.step()
                if self.average is not None:
                    self.average.update(self.model, batch.step)
                self.position.skipped_in_a_row = 0
            else:
                self._refuse(batch, loss)
        if self.start is not None and batch.step == self.start.steps:
            self.start.finish()  # in the last step, so that a checkpoint after it has the histories
        self.iterations = batch.step
        if self.tau is not None:
            self.tau.offer(batch.step + 1, self.model)
        return loss

    def refresh_statistics(self) -> None:
        """Give every `BatchNorm` of the model the statistics of an exact pass at the current weights."""
        refresh_statistics(self.model, self.estimator.features, self.loader.sampler.propagation.to(self.device))

    def _estimator_at(self, step: int) -> Estimator:
        return self.estimator if self.start is None or step > self.start.steps else self.start

    def _refuse(self, batch: Batch, loss: float) -> None:
        estimator = self._estimator_at(batch.step)
        estimator.discard()
        p = self.position
        if not self.guard.skip_bad or p.skipped_in_a_row + 1 >= self.guard.most_skipped:
            # Computed again here, because a good step should not pay for the search.
            what = f"the loss is {loss}, or a gradient or hidden representation is infinite or NaN"
            if self.gradient is None:
                what = first_bad(self.model, batch, estimator, loss)
            if self.guard.skip_bad:
                what += f" (and the {p.skipped_in_a_row} steps before were skipped)"
            ids, names = batch.ids.cpu().numpy(), self.task.graph.node_names
            own = names is not None and self.task.items.kind == "node"
            raise Diverged(batch.step, what, (names[ids] if own else ids).tolist())  # type: ignore[index]
        p.skipped += 1
        p.skipped_in_a_row += 1

    def _loss_and_gradient(self, batch: Batch) -> float:
        """Lines 6 to 11: the loss of the batch; its gradient replaces the `.grad`s."""
        if self.gradient is not None:
            return self.gradient(batch)
        loss = self.task.loss(self.model(batch, self._estimator_at(batch.step)), batch, self.model.readout)
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
        self._estimator_at(batch.step).discard()

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
            patience: stop after an evaluation if the validation metric has not improved for so many epochs; 0 = never.
            after_step: see `train_epoch`. When it is called, and when a record is yielded, `state_dict` is complete.
        """
        require(num_epochs >= 1, f"epochs must be at least 1, not {num_epochs}")
        require(eval_every >= 1, f"eval_every must be at least 1, not {eval_every}")
        while (epoch := self.position.epoch) <= num_epochs and not self._patience_exhausted(patience, eval_every):
            loss = self.train_epoch(epoch, after_step=after_step)
            start = time.perf_counter()
            metrics = self.task.nothing_measured()
            if self.evaluator is not None and (epoch % eval_every == 0 or epoch == num_epochs):
                with self._output_weights():
                    metrics = self.evaluator(self.model)
                    value = metrics[f"val_{self.task.metric}"]
                    if value is not None:
                        self.best.offer(epoch, value if self.task.larger_is_better else -value, self.model)
            done = self.position
            # Advanced before the yield, so that a checkpoint between epochs starts with the next one.
            self.position = Position(epoch=epoch + 1, skipped_in_a_row=done.skipped_in_a_row)
            yield EpochRecord(
                epoch=epoch,
                iterations=self.iterations,
                loss=loss,
                metrics=metrics,
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
