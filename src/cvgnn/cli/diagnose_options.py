"""The options of `cvgnn diagnose estimator | history | bias-vs-lr | rate | bound`, one dataclass for each.

Fields are passed to the `diagnose_*` function in `cvgnn.lab.diagnose` by their names, or by those in `renamed`.
Nothing here imports torch at once: `--help` should not wait for it.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import tyro

from cvgnn.cli.argv import RunCount, is_given
from cvgnn.config import GraphSource, TrainConfig
from cvgnn.errors import CvgnnError, require_integer, require_known

if TYPE_CHECKING:
    from cvgnn.data import Graph

CONFIG_FIELDS = tuple(field.name for field in dataclasses.fields(TrainConfig))
_LARGEST_TO_COPY = 1 << 28  # bytes of features up to which every process gets its own graph
_Integers = Annotated[tuple[int, ...], tyro.conf.arg(metavar="INT ...")]
_OPTIMIZERS = ("sgd", "heavy-ball", "adam", "amsgrad", "adagrad")


@dataclass(frozen=True, kw_only=True)
class DiagnoseCommand(ABC):
    """The options of every subcommand."""

    renamed: ClassVar[Mapping[str, str]] = {}
    """The function's names of arguments that have another name on the command line."""

    run: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Folder of a run (cvgnn train --out): its graph and options are taken; options given here win."""

    source: Annotated[GraphSource, tyro.conf.arg(name="")] = dataclasses.field(default_factory=GraphSource)

    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Folder for diagnosis.json, new or empty, or with an earlier diagnosis of this kind; cvgnn report shows it."""

    config: Annotated[TrainConfig, tyro.conf.arg(name="")] = dataclasses.field(default_factory=TrainConfig)

    def check(self) -> None:  # noqa: B027, most have nothing to refuse
        """Refuse values that can be judged without the graph."""

    @abstractmethod
    def training(self, graph: Graph, argv: Sequence[str]) -> TrainConfig:
        """How to train; refuses options that contradict `--run`."""

    @abstractmethod
    def unused(self, config: TrainConfig) -> set[str]:
        """Names of the training options that have no effect on this measurement."""

    def arguments(self, graph: Graph, argv: Sequence[str]) -> dict[str, Any]:
        """The arguments of the function besides the graph, the config and the progress callback."""
        shared = {field.name for field in dataclasses.fields(DiagnoseCommand)}
        return {self.renamed.get(name, name): value for name, value in vars(self).items() if name not in shared}


@dataclass(frozen=True, kw_only=True)
class _AlongTraining(DiagnoseCommand):
    """The base of `estimator` and `history`: they pause training at some steps; `--run` gives weights and histories."""

    measuring: ClassVar[tuple[str, ...]]
    """Options that say how to measure, which may differ from those of the run."""

    steps: _Integers = ()

    def training(self, graph: Graph, argv: Sequence[str]) -> TrainConfig:
        """The config; refused where it would make another network or training than the run whose checkpoint is used."""
        if self.run is not None:
            from cvgnn.training.run_folder import read_settings

            _, then = read_settings(self.run / "config.json")
            for name in CONFIG_FIELDS:
                before, now = getattr(then, name), getattr(self.config, name)
                if name not in self.measuring and before != now:
                    raise CvgnnError(
                        f"--{name.replace('_', '-')} was {before} in the run in {self.run} and cannot be {now} now; "
                        "leave it out, or diagnose without --run, from fresh weights"
                    )
        return self.config

    def unused(self, config: TrainConfig) -> set[str]:
        """`--bad-step skip` and a sampled start would measure another training."""
        return {name for name in ("bad_step", "sampled_start") if getattr(config, name) not in ("stop", 0)}

    def arguments(self, graph: Graph, argv: Sequence[str]) -> dict[str, Any]:
        """With `--run` alone, measure at the checkpoint."""
        at_checkpoint = self.run is not None and not is_given(argv, "steps")
        steps = (0,) if at_checkpoint else self.steps
        return {**super().arguments(graph, argv), "run": self.run, "steps": steps}


@dataclass(frozen=True, kw_only=True)
class EstimatorCommand(_AlongTraining):
    """Measure how far a step's gradient is from the exact one, and why: bias, the batch, the neighbors drawn.

    $ cvgnn diagnose estimator --batch-size 20 --estimators cv ns --fan-outs 2 5 --out d/estimator

    Trains as the options say, stops after the --steps, and draws batches and neighbors again and again at those weights
    and histories. In float64, without dropout; if training has dropout, the variance with it after the last step too.
    With --run DIR the weights and histories are those of the run's newest checkpoint.
    """

    renamed: ClassVar[Mapping[str, str]] = {"resamples": "batches"}
    measuring = ("seed", "batch_size", "num_neighbors", "scheme", "threads")

    estimators: Annotated[tuple[str, ...], tyro.conf.arg(metavar="{cvd,cv,ns,exact} ...")] = ("cv", "ns")
    """Estimators to compare."""

    schemes: Annotated[tuple[str, ...], tyro.conf.arg(metavar="SCHEME ...")] = ()
    """Ways to draw neighbors to compare; --scheme if none are named."""

    fan_outs: Annotated[tuple[str, ...], tyro.conf.arg(metavar="INT ...")] = ()
    """Fan-outs to compare, for several hops joined by commas (10,5); --num-neighbors if none are named."""

    steps: _Integers = (1, 4, 16, 64, 256)
    """Measure after these numbers of steps of training; with --run counted from its checkpoint, and 0 if not given."""

    batch: Literal["resampled", "fixed"] = "resampled"
    """resampled = batches are drawn too, against the gradient of all training nodes; fixed = one, against its own."""

    resamples: int = 64
    """Batches drawn, at each step."""

    draws: int = 4
    """Draws of neighbors for each batch."""

    test_draws: int = 200
    """Draws of all rows of P^ for the test of unbiasedness."""

    def check(self) -> None:
        """The option --resamples is the argument `batches` of the function, so its error is raised here."""
        _parse_fan_outs(self.fan_outs)
        if self.batch != "fixed":
            require_integer("--resamples", self.resamples, at_least=3, at_most=10_000)

    def arguments(self, graph: Graph, argv: Sequence[str]) -> dict[str, Any]:
        """The fan-outs as numbers."""
        return {**super().arguments(graph, argv), "fan_outs": _parse_fan_outs(self.fan_outs)}


@dataclass(frozen=True, kw_only=True)
class HistoryCommand(_AlongTraining):
    """Measure how old the histories are, and how far from the exact representations, along training.

    $ cvgnn diagnose history --batch-size 20 --steps 1 10 100 1000 --out d/history

    Trains as the options say, in float64, and measures the histories after each of the --steps.
    With --run DIR it measures those of the run's newest checkpoint, and continues training if --steps are given.
    """

    measuring = ("threads",)

    steps: _Integers = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
    """Measure after these numbers of steps of training; with --run counted from its checkpoint, and 0 if not given."""


_THEORY_CONFIG = TrainConfig(hidden=32, batches="replacement", dropout=0.0)  # the paper's width, no dropout


@dataclass(frozen=True, kw_only=True)
class _TheoryCommand(DiagnoseCommand):
    """The base of `bias-vs-lr`, `rate` and `bound`: defaults for the theory, seeds and processes."""

    renamed: ClassVar[Mapping[str, str]] = {"runs": "seeds", "eta": "etas", "stepper": "optimizer"}

    runs: RunCount[int] = 5
    """How many runs, with the seeds from --seed on."""

    workers: int | None = None
    """Processes at a time, all cores if not given; the numbers do not depend on it."""

    config: Annotated[TrainConfig, tyro.conf.arg(name="")] = _THEORY_CONFIG

    def check(self) -> None:
        """The option --runs is the argument `seeds`, so its error is raised here."""
        require_integer("runs", self.runs, at_least=1)

    def training(self, graph: Graph, argv: Sequence[str]) -> TrainConfig:
        """The config; a batch has a tenth of the training nodes, at most 256, unless a run or an option gives it."""
        if self.run is not None or is_given(argv, "batch_size"):
            return self.config
        return dataclasses.replace(self.config, batch_size=max(1, min(256, graph.train_ids.numel() // 10)))

    def unused(self, config: TrainConfig) -> set[str]:
        """What the theory does not cover, and the length of a training."""
        from cvgnn.lab.diagnose.theory import as_in_theory

        used = as_in_theory(config)
        return {"epochs", "eval_every"} | {
            name for name in CONFIG_FIELDS if getattr(used, name) != getattr(config, name)
        }

    def arguments(self, graph: Graph, argv: Sequence[str]) -> dict[str, Any]:
        """By default one process for each core, or one in all if copies of the graph would take much memory."""
        from cvgnn.training.machine import cores

        small = 8 * graph.num_nodes * min(graph.num_features, 1000) < _LARGEST_TO_COPY
        default = cores() if small else 1
        workers = default if self.workers is None else require_integer("workers", self.workers, at_least=1)
        return {**super().arguments(graph, argv), "workers": workers}


@dataclass(frozen=True, kw_only=True)
class BiasCommand(_TheoryCommand):
    """Measure how the gradient's bias grows with the learning rate; Lemma 6 says like lr^1.

    The gradient of a step is biased because histories are stale, and they are staler the faster weights move. For each
    seed, --burn-in epochs are trained as the options say; from there, for every learning rate, the histories start
    exact and --steps steps are taken, until they are as old as training makes them. Then the mean of the gradient over
    batches and neighbors is compared with the exact one. Dropout is off. If neither --run nor --batch-size is given, a
    batch has a tenth of the training nodes, at most 256.
    """

    lrs: tuple[float, ...] = ()
    """Learning rates, increasing; 1e-5 to 1e-1 in half decades if not given."""

    stepper: Literal["sgd", "heavy-ball", "adam", "amsgrad", "adagrad"] = "sgd"
    """Optimizer (in the paper's form) whose steps make the histories stale; sgd is the lemma's own setting."""

    draws: int | None = None
    """Neighbor draws at each point; if not given, 20,000 / training nodes, at least 16 and at most 128."""

    steps: int | None = None
    """Steps with each learning rate; if not given, until 95 % of the histories that are read have been written."""

    burn_in: int = 5
    """Epochs before, trained with --optimizer, --lr and the other options."""

    def check(self) -> None:
        """The option --stepper is the argument `optimizer`; --optimizer is that of the burn-in."""
        super().check()
        require_known("stepper", self.stepper, _OPTIMIZERS)


@dataclass(frozen=True, kw_only=True)
class _OptimizersCommand(_TheoryCommand):
    """The base of `rate` and `bound`: runs of Algorithm 1 to the letter, with several optimizers."""

    optimizers: tuple[str, ...] = _OPTIMIZERS
    """Optimizers to compare."""

    eta: float | None = None
    """alpha = eta / sqrt(T); if not given, such that the shortest run has lr 0.8 (sgd, heavy-ball) or 0.05 (others)."""

    def unused(self, config: TrainConfig) -> set[str]:
        """The optimizers and their learning rates are this command's own."""
        from cvgnn.lab.diagnose.theory import with_optimizer

        configs = [with_optimizer(config, name, config.lr) for name in self.optimizers]
        unused = super().unused(config) | {"optimizer", "form", "lr"}
        unused |= {"batches"} if config.batches != "replacement" else set()
        return unused | {n for n in ("beta1", "beta2", "nu_min") if all(getattr(c, n) is None for c in configs)}


@dataclass(frozen=True, kw_only=True)
class RateCommand(_OptimizersCommand):
    """Measure how fast E||grad F(W_tau)||^2 falls with the length T of a run; the theorems say like T^-1/2.

    Every run is Algorithm 1 to the letter: fresh weights, alpha = eta / sqrt(T), batches drawn with replacement, the
    optimizer in the paper's form, no dropout. The gradient is the exact one, at --points iterates of each run. No
    theorem covers Adam; it is shown beside the others. If neither --run nor --batch-size is given, a batch has a
    tenth of the training nodes, at most 256. --optimizer, --lr, --epochs and --output have no effect here.
    """

    steps: tuple[int, ...] = (128, 256, 512, 1024, 2048)
    """The lengths T, increasing."""

    points: int = 16
    """Iterates of each run at which the exact gradient is computed, one in each equal piece of the run."""


@dataclass(frozen=True, kw_only=True)
class BoundCommand(_OptimizersCommand):
    """Measure the constants of Theorem 1 along runs, and put both sides of every theorem beside each other.

    Every step is measured: exact and stochastic gradient, both moments, and Lemma 1's identity; at some iterates the
    curvature (power iteration on Hessian-vector products) and the bias. The optimizers are in the paper's form, batches
    are drawn with replacement, without dropout. With the usual --nu-min of 1e-8 the bounds of the adaptive optimizers
    are astronomical; a larger --nu-min brings them down. If neither --run nor --batch-size is
    given, a batch has a tenth of the training nodes, at most 256. --optimizer, --lr and --epochs have no effect here.
    """

    runs: RunCount[int] = 2
    """How many runs, with the seeds from --seed on."""

    steps: int = 256
    """The length T of the runs."""

    points: int = 3
    """Iterates of each run at which curvature and bias are measured, at least 2: the first and the last."""

    draws: int = 16
    """Neighbor draws for the bias."""


def _parse_fan_outs(texts: Sequence[str]) -> list[list[int]]:
    try:
        return [[int(number) for number in text.split(",")] for text in texts]
    except ValueError:
        raise CvgnnError(
            f"--fan-outs must be whole numbers, such as 2 5 or, for two hops, 10,5; not {', '.join(map(repr, texts))}"
        ) from None
