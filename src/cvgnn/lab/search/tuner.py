"""Tuning for a given time: a space that fits the graph, Optuna chooses and stops settings that fall behind."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

from cvgnn.config import IN_MEMORY, GraphSource, TrainConfig
from cvgnn.data import Graph, SparseFeatures
from cvgnn.errors import CvgnnError, require, require_number
from cvgnn.lab.search.search_loop import Search, register
from cvgnn.lab.search.search_plan import SearchPlan, files
from cvgnn.lab.search.search_space import Space, endpoints, parse_space
from cvgnn.lab.search.study import Study, Trial, ended, open_study, ranked, require_optuna
from cvgnn.lab.sweep.result_tables import prepare, write_files
from cvgnn.training import Callback, Diverged, EpochRecord, Trainer
from cvgnn.training.defaults import FEW_LABELS, choose_options, takes_label_smoothing
from cvgnn.training.machine import default_threads, describe_machine
from cvgnn.training.run import train
from cvgnn.training.trainer_builder import check
from cvgnn.utils.stop_signals import StopRequest, stop_requests

with contextlib.suppress(ImportError):  # an optional package: `require_optuna` raises the error
    import optuna

STUDY = "tune"
_FIRST_TRIALS = 5  # never stopped early: the median that later ones are compared with is theirs


def tuning_space(graph: Graph, given: Mapping[str, Any]) -> dict[str, str]:
    """What is tried on a graph, as `cvgnn search --space` takes it; options that are given are left out.

    Few labels: small networks with strong regularisation. Else also SAGE, residual connections and, up to five million
    entries of `A`, a third layer, which multiplies the nodes that a step reads.
    """
    few = graph.train_ids.numel() < FEW_LABELS * graph.num_classes
    space = {"lr": "0.001..0.05:log", "dropout": "0.1..0.8", "norm": "layer,none", "model": "sage,gcn"}
    if few:
        space |= {"hidden": "16,32,64,128", "weight_decay": "0.0001..0.03:log", "num_neighbors": "1,2,5"}
    else:
        space |= {"hidden": "64,128,256,512" if graph.num_nodes <= 200_000 else "64,128,256"}
        space |= {"weight_decay": "0.0,0.0001,0.001", "num_neighbors": "2,5,10", "residual": "False,True"}
        space |= {"label_smoothing": "0.0,0.1"} if takes_label_smoothing(graph, given) else {}
    if graph.num_edges <= 5_000_000 and graph.cutout is None:
        space["layers"] = "2,3"
    if graph.PX_normalization is not None:  # a stored P X belongs to one model, see choose_options
        del space["model"]
    elif isinstance(graph.x, SparseFeatures):
        space["feature_norm"] = "none,l2"
    return {name: text for name, text in space.items() if name not in given}


@final
@dataclass(frozen=True, kw_only=True)
class Tuning:
    """What a tuning has found.

    Args:
        plan: graph, options of every run and space.
        trials: all of the study, of earlier calls too.
        config: the best setting, for `cvgnn.fit(graph, config=...)`; None if no trial was completed.
        files: what was written: the content of `search.json`, and `best.toml`.
        stopped: the signal that ended it early, or None.
    """

    plan: SearchPlan
    trials: Sequence[Trial]
    config: TrainConfig | None
    files: dict[str, Any]
    stopped: int | None


def tune(
    graph: Graph,
    out: str | Path,
    *,
    minutes: float = 10.0,
    options: Mapping[str, Any] | None = None,
    source: GraphSource | None = None,
    sampler_seed: int | None = None,
    command: str | None = None,
    on_trial: Callable[[Trial], None] = lambda trial: None,
    on_epoch: Callable[[EpochRecord], None] = lambda record: None,
    warn: Callable[[str], None] = lambda message: None,
) -> Tuning:
    """Try settings for so many minutes, the defaults first; keep the one with the best metric on the validation set.

    Trials run one after the other. One whose best validation metric is worse than the median of the others at the same
    epoch is stopped (Optuna's MedianPruner). The trial that the end of the time or a signal interrupts is the first of
    the next call with the same `out`. The first one of all ends when it ends.

    Args:
        graph: what to train on.
        out: folder for the study, `search.json` and `best.toml`.
        minutes: for this call.
        options: fields of `TrainConfig` of every run; they are not in the space.
        source: where the graph came from; None for a graph made in Python.
        sampler_seed: of the choice of settings; None for a random one.
        command: for `search.json`.
        on_trial, on_epoch: called with each trial that has ended, and with each epoch's record.
        warn: called with a message.
    """
    require_optuna("cvgnn tune")
    require_number("minutes", minutes, "a number above 0", above=0.0)
    deadline = time.monotonic() + 60.0 * minutes
    out, options = Path(out), dict(options or {})
    chosen = {**TrainConfig().to_dict(), **choose_options(graph, "auto", options)}
    space = parse_space(f"{name}={text}" for name, text in tuning_space(graph, options).items())
    require(bool(space), "all options that tune varies are given, so nothing is left to tune; leave out lr")
    base = {name: value for name, value in chosen.items() if name not in space}
    base["threads"] = base["threads"] or default_threads(graph, TrainConfig())
    plan = SearchPlan(graph, source or GraphSource(dataset=IN_MEMORY), base, space, runs=1, threads=base["threads"])
    prepare(out)
    journal = str(out / "journal.log")
    with open_study(STUDY, journal, space=space, sampler_seed=sampler_seed, maximize=plan.maximize) as study:
        study.check(plan.setting, plan.code, warn=warn)
        study.prune_by_median(first_trials=_FIRST_TRIALS, first_epochs=max(1, base["epochs"] // 10))
        with register(out) as owner, stop_requests() as stop:
            Search(plan, study, owner=owner, trials=0).take_over(out)
            if not study.trials():
                study.enqueue(_as_params(space, chosen))
            tuner = _Tuner(graph, plan, study, owner, deadline, stop, on_trial, on_epoch)
            while not tuner.is_over and tuner.run_trial():
                pass
        trials = study.trials()
    best = next(iter(ranked(trials)), None)
    about = {"command": command, "machine": describe_machine()}
    written = files(plan, trials, study=STUDY, storage=journal, about=about)
    write_files(out, written)
    config = None if best is None else plan.config(best.params)
    return Tuning(plan=plan, trials=trials, config=config, files=written, stopped=stop.signal_number)


def _as_params(space: Space, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults as parameters of a trial; the nearest end where one lies outside of the space."""
    params = {}
    for name, distribution in space.items():
        value = chosen[name]
        if name == "num_neighbors":
            value = "+".join(map(str, value))
        if isinstance(value, float):
            ends = endpoints(name, distribution)
            value = min(max(value, min(ends)), max(ends))
        params[name] = value
    return params


class _TrialInterrupted(Exception):
    """The time is over, or a signal came."""


@final
@dataclass
class _Tuner(Callback):
    """Runs one trial after the other. As a callback it reports a run's metric to the study, and ends the run early."""

    graph: Graph
    plan: SearchPlan
    study: Study
    owner: str
    deadline: float
    stop: StopRequest
    notify_trial: Callable[[Trial], None]
    notify_epoch: Callable[[EpochRecord], None]
    _number: int = 0
    _best: float | None = None
    _must_end: bool = True

    @property
    def is_over(self) -> bool:
        """Whether the time is over or a signal came; without any result there would be no answer, so the first ends."""
        late = time.monotonic() > self.deadline and bool(ended(self.study.trials()))
        return late or self.stop.signal_number is not None

    def run_trial(self) -> bool:
        """Run one trial; False if it was interrupted."""
        trial = self.study.ask(self.owner)
        self._number, self._best, self._must_end = trial.number, None, not ended(self.study.trials())
        try:
            config = self.plan.config(trial.params)
            check(self.graph, config, memory=True)
            result = train(self.graph, config, callbacks=[self], source=self.plan.source).result
        except optuna.TrialPruned:
            self.study.prune(trial.number)
            trial = replace(trial, state="pruned")
        except _TrialInterrupted:
            self.study.release(trial)
            return False
        except (CvgnnError, Diverged) as error:
            self.study.fail(trial.number, str(error))
            trial = replace(trial, state="failed", reason=str(error))
        else:
            trial = replace(trial, state="complete", results=({"seed": config.seed, **self.plan.kept(result)},))
            self.study.complete(trial.number, trial.results)
        self.notify_trial(trial)
        return True

    def on_step(self, trainer: Trainer) -> None:
        """End the run at the deadline or after a signal."""
        late = not self._must_end and time.monotonic() > self.deadline
        if late or self.stop.signal_number is not None:
            raise _TrialInterrupted

    def on_epoch(self, trainer: Trainer, record: EpochRecord) -> None:
        """End the run if it is worse than the median of the others."""
        self.notify_epoch(record)
        value = record.metrics.get(f"val_{self.plan.metric}")
        if value is not None:
            # The best so far, as the result will be: a single epoch's value goes up and down.
            known = [value] if self._best is None else [value, self._best]
            self._best = max(known) if self.plan.maximize else min(known)
            if self.study.falls_behind(self._number, self._best, record.epoch):
                raise optuna.TrialPruned
