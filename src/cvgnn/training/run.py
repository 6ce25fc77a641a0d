"""A training run from a graph and a config to a trained model, and a finished run read back from its folder."""

from __future__ import annotations

import copy
import dataclasses
import functools
import logging
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from cvgnn._version import __version__
from cvgnn.config import IN_MEMORY, CheckpointPlan, GraphSource, TrainConfig
from cvgnn.data import Graph, Propagation
from cvgnn.data.io.dense_features import MAX_RATIO, features_of_run, scale_ratio
from cvgnn.data.labels import labelled, unknown_labels
from cvgnn.data.store import is_store
from cvgnn.errors import CvgnnError, Interrupted, require
from cvgnn.nn import Network, exact_embedding, exact_logits, exact_trace, has_own_forward
from cvgnn.sampling import FeatureSource, distinct_nodes
from cvgnn.training.callbacks import Callback, callback_scope
from cvgnn.training.checkpoint import Checkpointer, read_tensors
from cvgnn.training.graph_source import load_source
from cvgnn.training.guard import Diverged
from cvgnn.training.machine import describe_machine, peak_rss_bytes, thread_count
from cvgnn.training.neighborhood import neighborhood
from cvgnn.training.new_nodes import add_nodes
from cvgnn.training.parts import Parts
from cvgnn.training.processes import ONE, Processes
from cvgnn.training.run_folder import MetricsLog, RunFolder, check_is_folder, read_metrics, read_object, read_settings
from cvgnn.training.tasks import METRICS, TASKS, Task, make_task
from cvgnn.training.tasks.edge_tasks import PAIRS_AT_A_TIME, LinkPrediction, edges_digest
from cvgnn.training.trainer import EpochRecord, Trainer
from cvgnn.training.trainer_builder import (
    NO_PARTS,
    build_features,
    build_model,
    build_propagation,
    build_task,
    check,
)
from cvgnn.utils.checked_json import short
from cvgnn.utils.formatting import join_printable
from cvgnn.utils.stop_signals import StopRequest, stop_requests

_log = logging.getLogger(__name__)
_MATRIX_OF_LABELS = {"multilabel": torch.int8, "regression": torch.float32}
_PYTHON_GRAPH = GraphSource(dataset=IN_MEMORY)


class Outputs(NamedTuple):
    """What exact inference gives for all nodes.

    Args:
        layers: `H^(1)..H^(K)`; none for a model with its own forward.
        last: `[N, out_channels]`, what the network computes, such as logits.
    """

    layers: list[Tensor]
    last: Tensor


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class Run:
    """A finished run: the trained model, its graph, and the measurements.

    Args:
        graph, config, task: of the run.
        model: the network with the weights of the chosen output.
        propagation: `P`.
        rows: of `P X`, see `features`; computed when they are first needed if not given.
        records: one for each epoch.
        result: the summary, as `result.json` holds it.
        source: where the graph came from.
        trainer: with the state after the last step; None for a run that `load_run` has read.
        path: folder of the run; None if it has none.
        interrupted: whether Ctrl-C ended the training.
        known: what `with_outputs` has computed.
        is_elsewhere: whether a model of links predicts on another graph than its own. Then no edge is hidden from it.
    """

    graph: Graph
    config: TrainConfig
    task: Task
    model: Network
    propagation: Propagation
    records: list[EpochRecord]
    result: dict[str, Any]
    source: GraphSource = _PYTHON_GRAPH
    trainer: Trainer | None = None
    path: Path | None = None
    rows: FeatureSource | None = None
    interrupted: bool = False
    known: Outputs | None = None
    is_elsewhere: bool = False

    @functools.cached_property
    def features(self) -> FeatureSource:
        """Rows of `P X` of all nodes."""
        return self.rows or build_features(self.task.graph, self.propagation, self.config, self.model)

    def predict(self, ids: Tensor | Sequence[Any] | None = None) -> Tensor:
        """What the task predicts for `ids` (for all nodes, or all graphs of a set, if not given), by exact inference.

        Classes, int64 `[n]`; 0 or 1 for each label, int8 `[n, L]`; or numbers, `[n]` or `[n, T]`. Tasks `edge` and
        `link` predict for pairs of nodes: `ids` is `[n, 2]`.

        Few nodes cost their neighborhood; all nodes cost a pass over the graph for each layer.
        """
        return self._predicted(ids, self.task.predict)

    def predict_proba(self, ids: Tensor | Sequence[Any] | None = None) -> Tensor:
        """`[n, C]`: the probability of each class or label for `ids` (for all nodes if not given); `[n]` for links."""
        return self._predicted(ids, self.task.predict_proba)

    @torch.no_grad()
    def _predicted(self, ids: Tensor | Sequence[Any] | None, what: Callable[..., Tensor]) -> Tensor:
        if self.task.of_pairs:
            return torch.cat([what(rows, self.model.readout) for rows in self.pair_rows(ids)])
        return what(self.item_rows(ids), self.model.readout)  # type: ignore[arg-type]

    def pair_rows(self, pairs: Tensor | Sequence[Any] | np.ndarray | None) -> Iterator[Tensor]:
        """The network's outputs for pairs of nodes `[n, 2]`, in pieces `[2, m, out_channels]`."""
        index = torch.empty(0, 0) if pairs is None else torch.as_tensor(pairs)
        require(
            index.dim() == 2 and index.shape[1] == 2 and index.dtype in (torch.int32, torch.int64),
            f"task {self.task.name!r} predicts for pairs of nodes: give integers of shape [n, 2]"
            + ("" if pairs is None else f", not {index.dtype} of shape {list(index.shape)}"),
        )
        nodes, place = distinct_nodes(index.T)
        assert place is not None
        rows = self.outputs(nodes)  # each node once, and few nodes cost their neighborhood
        return (rows[part] for part in torch.split(place, PAIRS_AT_A_TIME, dim=1))

    @torch.no_grad()
    def item_rows(self, ids: Tensor | list[int] | None = None) -> Tensor:
        """The rows from which the task predicts for `ids`: outputs of nodes, or what is pooled of those of graphs."""
        index = None if ids is None else self._positions(ids, len(self.graph.y), self.task.items.kind)
        self._require_complete(index)
        return self.task.item_rows(self.outputs, index)

    def outputs(self, ids: Tensor | list[int] | None = None) -> Tensor:
        """`[n, out_channels]`: what the network computes for `ids` (for all nodes if not given), such as logits."""
        if self.known is not None:
            return self.known.last if ids is None else self.known.last[self._positions(ids, self.graph.num_nodes)]
        return self._at(ids, exact_logits)

    def with_outputs(self) -> Run:
        """The same run with the layers and outputs of all nodes computed: `predict` and `embed` then look rows up."""
        self._require_complete(None)
        if has_own_forward(self.model):
            known = Outputs([], self.outputs())
        else:
            rows = [H for _, H in exact_trace(self.model, self.features, self.propagation)]
            known = Outputs(rows[: self.model.num_layers], rows[-1])
        return dataclasses.replace(self, known=known)

    @torch.no_grad()
    def evaluate(self, metrics: Sequence[str] = ()) -> dict[str, Any]:
        """`metrics`, the values on each split by exact inference, and what else the task reports, such as `per_class`.

        Args:
            metrics: names; all of the task's if none is given.
        """
        require(
            any(self.task.sizes().values()),
            f"{self.graph.name!r} has no label, so nothing can be compared; give a graph with labels, or use predict",
        )
        (count, mine), theirs = self.task.classes, self.result["class_names"]
        as_many = count == self.result.get("num_classes", count)
        require(
            as_many and theirs == (None if mine is None else list(mine)),
            f"the labels of {self.graph.name!r} are not those of the run, so nothing can be compared; name the "
            "same classes in the same order, or use predict",
        )
        run = self
        if self.is_elsewhere:  # edges of that graph are to be judged, so a share of them is held out now
            task = make_task(self.graph, self.config, name=self.task.name)
            propagation = build_propagation(task.graph, self.config, self.model)
            run = dataclasses.replace(self, task=task, propagation=propagation, rows=None, is_elsewhere=False)
        task, rows, readout = run.task, run.outputs(), self.model.readout
        values = task.evaluate(rows, metrics or task.metrics, readout)
        return {"task": task.name, "item": task.items.kind, "metrics": values, **task.report(rows, readout)}

    def embed(self, layer: int = 1, ids: Tensor | list[int] | None = None) -> Tensor:
        """`H^(layer)[ids]`: hidden representations, `1 <= layer < K`; `layer = K` gives the logits."""
        self._require_complete(None if ids is None else self._positions(ids, self.graph.num_nodes))
        if self.known is not None and 1 <= layer <= len(self.known.layers):
            rows = self.known.layers[layer - 1]
            return rows if ids is None else rows[self._positions(ids, self.graph.num_nodes)]
        return self._at(ids, functools.partial(exact_embedding, layer=layer))

    def predict_new(self, x: Any, edge_index: Any, edge_weight: Any = None) -> Tensor:
        """What the task predicts for nodes that are not in the graph, as if they were: `predict` of a graph with them.

        The time grows with their neighborhood, not with the graph, which stays as it is.

        Args:
            x: their features, `[n, F]`, as those of the graph were given to `fit`: where the run standardised these, it
                standardises the new ones too.
            edge_index: integers `[2, m]`, edges of the new nodes, which have the ids `N, N+1, ...`, to nodes of the
                graph and among themselves.
            edge_weight: `[m]`, where the graph's edges have weights.

        >>> import cvgnn
        >>> graph = cvgnn.load("citeseer")
        >>> run = cvgnn.fit(graph, epochs=5)
        >>> N = graph.num_nodes
        >>> run.predict_new(graph.x.to_dense()[:2], [[N, N, N + 1], [0, N + 1, 7]]).shape
        torch.Size([2])
        """
        return self.task.predict(self.outputs_new(x, edge_index, edge_weight), self.model.readout)

    def outputs_new(self, x: Any, edge_index: Any, edge_weight: Any = None) -> Tensor:
        """`[n, out_channels]`: what the network computes for new nodes, such as logits; see `predict_new`."""
        return Run.outputs(*self.around_new(x, edge_index, edge_weight))

    def around_new(
        self, x: Any, edge_index: Any, edge_weight: Any = None, *, names: np.ndarray | None = None
    ) -> tuple[Run, Tensor]:
        """The same model on the neighborhood of new nodes, and their ids there; see `predict_new`.

        Only the results for these ids are those of the whole graph.
        """
        require(
            self.task.items.kind == "node",
            f"task {self.task.name!r} has no labels at nodes, so it predicts nothing for new ones; predict on a graph "
            "that has them",
        )
        self._require_complete(None)
        added, cpu = add_nodes(self.graph, x, edge_index, edge_weight), torch.device("cpu")
        ids = torch.arange(self.graph.num_nodes, self.graph.num_nodes + added.x.shape[0])
        # Neighborhoods are cut by compiled kernels, which work on the CPU.
        near = neighborhood(self.graph, self.propagation.to(cpu), ids, self.model.num_layers, added=added)
        assert near is not None
        graph = near.graph
        if names is not None:
            old = np.zeros(graph.num_nodes - len(names), dtype=names.dtype)  # nobody asks for these
            graph = dataclasses.replace(graph, node_names=np.concatenate([old, names]), validated=True)
        return self._with_graph(graph, near.propagation.to(self.propagation.left.device)), near.places

    def on(self, graph: Graph) -> Run:
        """The same model on another graph with the same features, to predict there."""
        require(
            graph.num_features == self.graph.num_features,
            f"the model reads {self.graph.num_features} features a node, but the graph {graph.name!r} has "
            f"{graph.num_features}; give a graph with the features of the one that the run was trained on",
        )
        graph = _with_label_form(features_of_run(graph, self.graph.preprocessing), self.task.name, self.task.classes[0])
        graph = dataclasses.replace(graph, x=graph.x.to(self.graph.x.dtype), validated=True)
        if type(self.task) is not LinkPrediction:
            propagation = build_propagation(graph, self.config, self.model)
            return self._with_graph(graph, propagation.to(self.propagation.left.device))
        task, is_elsewhere = _link_task(graph, self.config, self.result)
        propagation = build_propagation(task.graph, self.config, self.model).to(self.propagation.left.device)
        return dataclasses.replace(
            self, graph=graph, task=task, propagation=propagation, rows=None, trainer=None, known=None,
            is_elsewhere=is_elsewhere,
        )  # fmt: skip

    def _with_graph(self, graph: Graph, propagation: Propagation) -> Run:
        # As when the run was read: the other graph may have fewer classes.
        outputs = self.result.get("num_classes", self.task.classes[0])
        task = self.task.from_config(graph, self.config, num_outputs=outputs, loss=None)
        return dataclasses.replace(
            self, graph=graph, task=task, propagation=propagation, rows=None, trainer=None, known=None
        )

    def save(self, path: str | Path) -> None:
        """Write the run into a new folder, as `fit(out=...)` does: config, metrics, result, weights and a checkpoint.

        `cvgnn.load_run` and `cvgnn predict` read the folder, and `fit(resume=...)` continues from its checkpoint.
        """
        if self.trainer is None:
            raise CvgnnError(f"this run was loaded from {self.path}; copy that folder instead of saving the run again")
        folder = RunFolder(Path(path))
        with folder.opened():
            folder.write_config(self.source, self.config)
            folder.write_preprocessing(self.graph.preprocessing)
            checkpointer = Checkpointer(folder, self.graph, self.source, self.config, threads=self.result["threads"])
            # The same writers as in a run, so that a saved run cannot differ from one that was trained
            # with out=.
            checkpointer.on_start(self.trainer, self.records)
            MetricsLog(folder.metrics).on_start(self.trainer, self.records)
            if not checkpointer.save(self.trainer):
                raise CvgnnError(f"the run's checkpoint cannot be written to {folder.path}; save the run elsewhere")
            folder.write_result({**self.result, "command": None, "machine": describe_machine()}, self.model)

    def _at(self, ids: Tensor | list[int] | None, infer: Callable[..., Tensor]) -> Tensor:
        """Rows `ids` of what `infer` computes from model, features and `P`."""
        if ids is None:
            return infer(self.model, self.features, self.propagation)
        index = self._positions(ids, self.graph.num_nodes)
        near = None
        if self.propagation.left.device.type == "cpu":
            near = neighborhood(self.task.graph, self.propagation, index, self.model.num_layers)
        if near is None:
            return infer(self.model, self.features, self.propagation)[index]
        features = build_features(near.graph, near.propagation, self.config, self.model)
        return infer(self.model, features, near.propagation)[near.places]

    def _require_complete(self, index: Tensor | None) -> None:
        """Refuse nodes of a compact graph for which rows of `A` are missing; None stands for all nodes."""
        if self.graph.cutout is None:
            return
        split = torch.cat([self.graph.train_ids, self.graph.val_ids, self.graph.test_ids])
        require(
            index is not None and bool(torch.isin(index, split).all()),
            "a compact graph has all that decides the results of its training, validation and test nodes only; name "
            "some of these, or predict on the whole graph (cvgnn predict --graph, cvgnn.load_run(path, graph))",
        )

    def _positions(self, ids: Tensor | list[int], n: int, item: str = "node") -> Tensor:
        index = torch.as_tensor(ids)
        # A mask as in PyG: data.test_mask can be passed as it is.
        if index.dtype == torch.bool and index.shape == (n,):
            return index.nonzero().flatten()
        require(
            index.dim() == 1 and (index.numel() == 0 or index.dtype in (torch.int32, torch.int64)),
            f"ids must be a list of {item} ids or a mask of {n} booleans, not {index.dtype} of shape "
            f"{list(index.shape)}",
        )
        bad = index[(index < 0) | (index >= n)].tolist()
        if bad:
            raise CvgnnError(f"{item} {bad[0]} does not exist; ids must lie in 0..{n - 1}")
        return index.long()


def train(
    graph: Graph,
    config: TrainConfig,
    *,
    callbacks: Sequence[Callback] = (),
    parts: Parts = NO_PARTS,
    folder: RunFolder | None = None,
    source: GraphSource | None = None,
    plan: CheckpointPlan | None = None,
    command: str | None = None,
    exact: bool = False,
    return_on_interrupt: bool = False,
    started: float | None = None,
    processes: Processes = ONE,
) -> Run:
    """Train a network. `cvgnn.fit`, `cvgnn train` and every run of a sweep come here.

    A run that was started in `folder` continues from its newest valid checkpoint, or from the beginning if it has none.

    Args:
        graph, config: of the run.
        callbacks: called along the run, in this order.
        parts: model, estimator, optimizer or loss that are given as objects, instead of the config's.
        folder: for the run's files; nothing is written without one.
        source: where the graph came from; None if it was made in Python.
        plan: when to save checkpoints.
        command: the command line of the run, for result.json.
        exact: refuse to resume where other versions or another processor could change the last bits.
        return_on_interrupt: Ctrl-C ends the training after the current step, and the run so far is returned. Its folder
            has a checkpoint to resume from, and no result yet.
        started: `time.perf_counter()` before the graph was read, for `setup_seconds`; now if not given.
        processes: that train the run together.
    """
    started = time.perf_counter() if started is None else started
    check(graph, config, memory=False, parts=parts)  # the callers that want the memory check have done it
    _warn_about_scales(graph)
    source = source or _PYTHON_GRAPH
    interrupt = stop_requests(("SIGINT",)) if return_on_interrupt else nullcontext()
    if folder is None:
        threads = config.threads or processes.threads(graph, config)
        with interrupt as asked:
            return _train(
                graph, config, callbacks, parts, processes, threads=threads, source=source, started=started, stop=asked
            )
    leads = processes.rank == 0  # and writes the files of the run
    # The inner handlers win: with `interrupt`, SIGINT is no request to the checkpointer.
    with folder.opened() if leads else nullcontext(), stop_requests() as stop, interrupt as asked:
        checkpointer = Checkpointer(
            folder, graph, source, config, plan=plan, stop=stop, exact=exact, processes=processes
        )
        # The checkpointer comes last: an epoch in a checkpoint is in metrics.jsonl, and the user's callbacks saw it.
        every = [*callbacks, checkpointer]
        if leads:
            if config.epochs > len(checkpointer.records):
                folder.remove_result()  # a folder with a result is complete
            # Written before the first step: a run that is killed at once can be resumed from its config alone.
            folder.write_config(source, config)
            folder.write_preprocessing(graph.preprocessing)
            every.insert(0, MetricsLog(folder.metrics))
        try:
            run = _train(
                graph, config, every, parts, processes, threads=checkpointer.threads, source=source, started=started,
                checkpointer=checkpointer, stop=asked,
            )  # fmt: skip
        except Diverged as error:
            last = checkpointer.checkpoints.last
            kept = "there is no checkpoint" if last is None else f"the last good checkpoint is {last}"
            raise CvgnnError(f"{error}, in a new folder; {kept}") from None
        if leads and not run.interrupted:  # a folder with a result is complete
            about = {"command": command, "machine": describe_machine()}
            folder.write_result({**run.result, **about}, run.model)
    return dataclasses.replace(run, path=folder.path)


def _warn_about_scales(graph: Graph) -> None:
    """Warn about dense columns of very different scale: the largest would decide everything."""
    ratio = 1.0 if graph.preprocessing is not None else scale_ratio(graph)
    if ratio > MAX_RATIO:
        _log.warning(
            "the features' columns differ in scale by a factor of %.0f, and the largest would decide everything; "
            'fit(defaults="auto") or graph = cvgnn.data.io.standardize(graph) standardises them; on the command line, '
            "leave out --preprocess none",
            ratio,
        )


def _train(
    graph: Graph,
    config: TrainConfig,
    callbacks: Sequence[Callback],
    parts: Parts,
    processes: Processes,
    *,
    threads: int,
    source: GraphSource,
    started: float,
    checkpointer: Checkpointer | None = None,
    stop: StopRequest | None = None,
) -> Run:
    _log.debug("training with %d threads", threads)
    with thread_count(threads):
        # A resumed run reads its histories from the checkpoint, so the exact pass that initialises them is left out.
        fresh = checkpointer is None or checkpointer.checkpoint is None
        scratch = None if checkpointer is None else checkpointer.checkpoints.folder.parent
        trainer = processes.build_trainer(graph, config, parts=parts, initialize=fresh, scratch=scratch)
        records = [] if checkpointer is None else checkpointer.restore(trainer)
        trainer.warm_up()
        setup_seconds = time.perf_counter() - started

        def after_step() -> None:
            for callback in callbacks:
                callback.on_step(trainer)
            if stop is not None and stop.signal_number is not None:
                raise _StopTraining

        interrupted = False
        with callback_scope(callbacks, trainer, records):
            try:
                for record in trainer.epochs(
                    config.epochs, eval_every=config.eval_every, patience=config.patience, after_step=after_step
                ):
                    records.append(record)
                    _check_best(trainer, config, record)
                    for callback in callbacks:
                        callback.on_epoch(trainer, record)
            except _StopTraining:
                interrupted = True
        if interrupted:
            _report_interrupt(trainer, config, records, checkpointer)
        # The trainer keeps the weights of its last step, so that training can continue; the output is a copy.
        model = copy.deepcopy(trainer.model)
        model.load_state_dict(trainer.output(config.output))
        model.eval()
        evaluator = trainer.evaluator  # of the whole graph, also where the trainer has a part of it
        assert evaluator is not None
        result = _summary(graph, config, records, trainer, model) | {"setup_seconds": round(setup_seconds, 6)}
        if parts.find("optimizer", config) is not None:
            result |= {"optimizer": type(trainer.optimizer).__name__, "form": "custom"}
    return Run(
        graph=graph,
        config=config,
        task=evaluator.task,
        model=model,
        rows=evaluator.features,
        propagation=evaluator.propagation,
        records=records,
        result=result,
        source=source,
        trainer=trainer,
        interrupted=interrupted,
    )


def _check_best(trainer: Trainer, config: TrainConfig, record: EpochRecord) -> None:
    """Refuse a metric without a value at the first evaluation: no later epoch would have one, and so none be best."""
    metric, item = trainer.task.metric, trainer.task.items.kind
    is_evaluated = record.epoch % config.eval_every == 0 or record.epoch == config.epochs
    require(
        config.output != "best" or not is_evaluated or record.metrics[f"val_{metric}"] is not None,
        f"metric {metric!r} has no value on the validation {item}s, as where all are of one class or have the same "
        "target, so no epoch can be the best; choose another metric, or output 'last'",
    )


class _StopTraining(Exception):
    """Ends the loop after a step."""


def _report_interrupt(
    trainer: Trainer, config: TrainConfig, records: list[EpochRecord], checkpointer: Checkpointer | None
) -> None:
    """Warn that the run is not complete; without any result to return, the interrupt is an error."""
    if not records or (config.output == "best" and trainer.best.weights is None):
        raise Interrupted(signal.SIGINT) if checkpointer is None else checkpointer.stopped(trainer, signal.SIGINT)
    which = f"the best of them, epoch {trainer.best.epoch}" if config.output == "best" else f"output {config.output!r}"
    more = "" if checkpointer is None else f"; fit(resume={str(checkpointer.checkpoints.folder.parent)!r}) continues it"
    _log.warning("interrupted after %d of %d epochs; the result is %s%s", len(records), config.epochs, which, more)


@torch.no_grad()
def _summary(
    graph: Graph, config: TrainConfig, records: list[EpochRecord], trainer: Trainer, model: Network
) -> dict[str, Any]:
    """The summary of a run. `test_accuracy` is the one at the best validation epoch; `max_test_accuracy` is the paper's
    protocol, a choice by test accuracy. Other metrics have the same keys with their own names."""
    assert trainer.evaluator is not None
    task = trainer.evaluator.task  # of the whole graph
    # `train_accuracy` and the like of an epoch are null where it was not evaluated: see eval_every.
    at_best = next((r.metrics for r in records if r.epoch == trainer.best.epoch), task.nothing_measured())
    tests = [value for r in records if (value := r.metrics[f"test_{task.metric}"]) is not None]
    top, choose = ("max", max) if METRICS[task.metric].larger_is_better else ("min", min)
    rows = trainer.evaluator.outputs(model)
    task.finish(rows, model.readout)
    output = task.evaluate(rows, task.result_metrics, model.readout)
    num_classes, class_names = task.classes
    return {
        "version": __version__,
        "dataset": graph.name,
        "split": task.split,
        "num_classes": num_classes,
        "num_nodes": graph.num_nodes,
        "num_features": graph.num_features,
        "class_names": None if class_names is None else list(class_names),
        "task": task.name,
        "metric": task.metric,
        **{name: getattr(config, name) for name in ("estimator", "scheme", "optimizer", "form", "seed")},
        "epochs": len(records),
        "iterations": trainer.iterations,
        "skipped_steps": sum(r.skipped_steps for r in records),
        "best_epoch": trainer.best.epoch,
        **{name: value for name, value in at_best.items() if not name.startswith("train_")},
        f"{top}_test_{task.metric}": choose(tests, default=None),
        "output": config.output,
        "output_iteration": trainer.tau.tau if trainer.tau is not None else None,
        **{f"output_{name}": value for name, value in output.items()},
        **task.report(rows, model.readout),
        "threads": torch.get_num_threads(),
        "train_seconds": round(sum(r.train_seconds for r in records), 6),
        "eval_seconds": round(sum(r.eval_seconds for r in records), 6),
        "peak_rss_bytes": peak_rss_bytes(),
    }


def read_run(
    path: Path, graph: Graph | None = None, *, source: GraphSource | None = None, parts: Parts = NO_PARTS
) -> Run:
    """A finished run from its folder.

    Args:
        path: the folder given to `cvgnn train --out`.
        graph: the graph it was trained on, or another one with the same features; read from its source if not given.
        source: where the graph is now, if not where config.json says.
        parts: the model and the task, if they were given as objects.
    """
    check_is_folder(path)
    # Everything below may come from anybody: it is checked before memory is allocated for it.
    stored, config = read_settings(path / "config.json")
    parts.find("model", config)  # an error for a model that is needed and not given, before the graph is read
    given = parts.names().get("model", config.model)
    require(given == config.model, f"{path} was trained with model {short(config.model)}, not {given}")
    result = read_object(path / "result.json")
    preprocessing = read_preprocessing(path)
    if graph is not None:
        graph = features_of_run(graph, preprocessing)
    else:
        place = source or stored
        if preprocessing is None and place.graph is not None and not is_store(place.graph):
            # The model was not trained on preprocessed features; fitting them on other data would change its input.
            place = dataclasses.replace(place, preprocess="none")
        graph = load_source(place, trusted=source is not None, preprocessing=preprocessing, predicting=True)
    # Of the graph it was trained on: another graph may have fewer classes.
    classes = result.get("num_classes", graph.num_classes)
    require(
        type(classes) is int and 1 <= classes < 2**31,
        f"{path / 'result.json'}: num_classes must be a whole number of at least 1, not {short(classes)}",
    )
    features = result.get("num_features", graph.num_features)
    require(
        features == graph.num_features,
        f"the model reads {short(features)} features a node, but the graph {graph.name!r} has {graph.num_features}; "
        "give a graph with the features of the one that the run was trained on",
    )
    name = result.get("task", "node")
    graph = _with_label_form(graph, name, classes)
    is_elsewhere = False
    if parts.find("task", config) is not None:
        task = build_task(graph, config, parts)
    else:
        require(name in TASKS, f"{path / 'result.json'}: unknown task {short(name)}")
        if name == LinkPrediction.name:
            task, is_elsewhere = _link_task(graph, config, result)
        else:
            task = make_task(graph, config, name=name, num_outputs=classes)
    # Weights are checked by name and shape before the model is made: load_state_dict reports all of them at once,
    # without saying what to do.
    dtype = graph.x.dtype
    file = path / "weights.safetensors"
    weights = _read_weights(file)
    # On the meta device first, which allocates nothing: config.json may ask for more weights than there is memory.
    with torch.device("meta"):
        expected = build_model(task, config, dtype=dtype, parts=parts).state_dict()
    for name in sorted(expected.keys() | weights.keys()):
        mine, theirs = (list(each[name].shape) if name in each else "nothing" for each in (expected, weights))
        require(
            mine == theirs,
            f"{file} does not fit the graph {graph.name!r}: {join_printable([name[:80]])} is {theirs} in the file, but "
            f"the graph and config.json ask for {mine}; give the graph that the run was trained on",
        )
        finite = bool(weights[name].isfinite().all())
        require(finite, f"{file} holds NaN or infinite values in {name}: the run diverged, or it is damaged")
    model = build_model(task, config, dtype=dtype, parts=parts)
    if model is parts.model:
        model = copy.deepcopy(model)  # a run does not share its weights with the caller's object
    model.load_state_dict(weights)
    model.eval()
    return Run(
        graph=graph,
        config=config,
        task=task,
        model=model,
        propagation=build_propagation(task.graph, config, model),
        records=read_metrics(path / "metrics.jsonl"),
        result=result,
        source=source or stored,
        path=path,
        is_elsewhere=is_elsewhere,
    )


def _link_task(graph: Graph, config: TrainConfig, result: Mapping[str, Any]) -> tuple[Task, bool]:
    """The task of a link run on a graph, and whether that is another one than the run's: then no edge is hidden."""
    if result.get("edges_sha256", "") not in ("", edges_digest(graph)):
        return LinkPrediction.of_all_edges(graph, config), True
    return make_task(graph, config, name=LinkPrediction.name), False


def _with_label_form(graph: Graph, task: str, outputs: int) -> Graph:
    """The graph; where no label tells the form that labels would have, with unknown ones in that of the task."""
    if task not in _MATRIX_OF_LABELS or labelled(graph.y.numpy()).any():
        return graph
    y = unknown_labels(graph.num_nodes, like=torch.empty(0, outputs, dtype=_MATRIX_OF_LABELS[task]))
    return dataclasses.replace(graph, y=y, num_classes=outputs, class_names=None, validated=True)


def read_preprocessing(path: Path) -> dict[str, Any] | None:
    """How a run's tables became features; None for a run on other data."""
    fitted = path / "preprocessing.json"
    return read_object(fitted) if fitted.is_file() else None


def _read_weights(file: Path) -> dict[str, Tensor]:
    require(file.is_file(), f"{file} is missing: the run is not finished, or this is not a run folder")
    try:
        weights = read_tensors(file)
    except ValueError as error:
        raise CvgnnError(f"cannot read {file}: {error}") from None
    for name, tensor in weights.items():
        require(
            tensor.dtype in (torch.float32, torch.float64),
            f"{file} holds {short(name)} as {tensor.dtype}; weights are float32 or float64",
        )
    return weights
