"""`cvgnn reproduce`: the paper's Table 5, or our best recipes, run again."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from cvgnn.cli.options import parse
from cvgnn.config import GraphSource, TrainConfig
from cvgnn.errors import CvgnnError, require, require_integer, unknown_name

if TYPE_CHECKING:
    from cvgnn.sweeps import Job
    from cvgnn.sweeps.best import BestPlan
    from cvgnn.sweeps.reproduce import Plan


@dataclass(frozen=True, kw_only=True)
class ReproduceCommand:
    """Run the paper's tuned settings (Appendix B) again and print its Table 5 beside ours, by both protocols.

    Finished runs are kept in --out and never repeated; an interrupted command goes on where it was.
    Writes table.md, table.tex and table.json. --list shows the settings and the grids, and runs nothing.
    A data set that is not here and cannot be fetched is named, the others are run, and the exit code is 1.
    --recipe best runs our own best settings for citeseer, cora and pubmed instead (docs/best.md).
    """

    recipe: Literal["paper", "best"] = "paper"
    """Whose settings: the paper's tuned ones for each optimizer, or our best ones, tuned by validation accuracy."""

    dataset: str = "citeseer"
    """Data sets, separated by commas: citeseer (bundled), cora, pubmed, ogbn-arxiv, flickr, reddit, or all of them."""

    optimizer: str = "all"
    """Optimizers, separated by commas: adam, heavy-ball, amsgrad, adagrad, sgd, or all of them."""

    runs: int | None = None
    """Runs of a cell, if not given the paper's (3, for reddit 1) and 10 for the best recipes; run i has seed i, and the
    same initial weights for every optimizer."""

    first: int = 0
    """Number, and so seed, of the first run."""

    out: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("runs/reproduce")
    """Folder for the runs and the tables."""

    root: Path | None = None
    """Folder with the data sets' raw files, if they are not to be fetched; citeseer needs none."""

    scheme: Literal["without-replacement", "with-replacement", "paper", "released"] | None = None
    """How neighbors are drawn, without replacement if not given; released is what the paper's code ran, and biased: see
    docs/reproduction.md."""

    form: Literal["torch", "paper"] | None = None
    """The form of the optimizers, torch's if not given: the one that reproduces Table 5."""

    estimator: Literal["cv", "ns", "exact"] | None = None
    """How neighbors are aggregated, cv if not given: the paper's."""

    epochs: int | None = None
    """Epochs, if not the paper's."""

    threads: int = 1
    """Threads of a run."""

    workers: int | None = None
    """Runs at a time; as many as cores for their threads if not given."""

    list: bool = False
    """Show the settings, and run nothing."""


def reproduce_command(words: Sequence[str]) -> int:
    """Parse the options, run what is missing, print and write the table."""
    command = parse(ReproduceCommand, words, prog="cvgnn reproduce", flags=True)
    for name, at_least in (("runs", 1), ("first", 0), ("threads", 1), ("workers", 1)):
        value = getattr(command, name)
        if value is not None:
            require_integer(name, value, at_least=at_least)
    if command.recipe not in ("paper", "best"):
        raise unknown_name("recipe", command.recipe, ("paper", "best"))

    from cvgnn.cli.many import ManyRuns, workers_for
    from cvgnn.experiments.machine import describe_machine
    from cvgnn.sweeps import best, reproduce, run_all
    from cvgnn.sweeps.tables import markdown, prepare, write_files

    paper, ours = _paper_plan(command), _best_plan(command)
    if command.list:
        print(paper.listed())
        print("\nwith --recipe best, as options of cvgnn train:\n")
        print("\n".join(f"{name}: {options}" for name, options in ours.listed()))
        return 0
    plan: Plan | BestPlan = paper if command.recipe == "paper" else ours
    kind = reproduce if command.recipe == "paper" else best
    configs = {name: plan.configs(name) for name in plan.datasets}
    prepare(command.out)
    jobs, missing = _jobs(configs, command.root)
    reasons = [f"{name}: {reason}" for name, reason in missing.items()]
    line = shlex.join(["cvgnn", "reproduce", *words])
    with ManyRuns(len(jobs), header=kind.LIVE, rows=lambda outcomes: kind.live(jobs, outcomes)) as view:
        for reason in reasons:
            view.say(f"not run: {reason}")
        workers = command.workers or workers_for(jobs)
        outcomes = run_all(jobs, command.out, workers=workers, command=line, on_outcome=view.show, say=view.say)
    write_files(command.out, kind.files(outcomes, command=line, machine=describe_machine(), missing=reasons))
    view.show_line(markdown(kind.HEADER, kind.rows(outcomes)))
    view.show_line(kind.note(outcomes))
    if missing:
        view.show_line(f"not run, because the data is not here: {', '.join(missing)}; see above how to get it")
    view.show_line(f"written to {command.out}: table.md, table.tex, table.json")
    return 1 if missing or any(outcome.result is None for outcome in outcomes) else 0


def _jobs(configs: Mapping[str, Sequence[TrainConfig]], root: Path | None) -> tuple[list[Job], dict[str, str]]:
    """The runs on the data sets that are here, and why the others are not, by name; an error if none is."""
    from cvgnn.sweeps import make_jobs

    jobs: list[Job] = []
    missing: dict[str, str] = {}
    for name, several in configs.items():
        try:
            jobs += make_jobs(GraphSource(dataset=name, root=root), several)
        except CvgnnError as error:
            missing[name] = str(error)
    if not jobs:
        raise CvgnnError("\n".join(missing.values()))
    return jobs, missing


def _changes(command: ReproduceCommand) -> dict[str, Any]:
    names = ("scheme", "form", "estimator", "threads", "epochs")
    return {name: value for name in names if (value := getattr(command, name)) is not None}


def _paper_plan(command: ReproduceCommand) -> Plan:
    from cvgnn.experiments.recipes import PAPER_OPTIMIZERS, RECIPE_DATASETS
    from cvgnn.sweeps.reproduce import Plan

    return Plan(
        datasets=_names("dataset", command.dataset, RECIPE_DATASETS),
        optimizers=_names("optimizer", command.optimizer, PAPER_OPTIMIZERS),
        runs=command.runs,
        first=command.first,
        changes=_changes(command),
    )


def _best_plan(command: ReproduceCommand) -> BestPlan:
    from cvgnn.experiments.best_recipes import BEST_DATASETS
    from cvgnn.sweeps.best import BestPlan

    best = command.recipe == "best"
    require(
        not best or command.optimizer == "all",
        f"a best recipe has its own optimizer; leave --optimizer {command.optimizer} out",
    )
    return BestPlan(
        datasets=_names("dataset", command.dataset, BEST_DATASETS) if best else BEST_DATASETS,
        runs=command.runs or 10,
        first=command.first,
        changes=_changes(command),
    )


def _names(kind: str, given: str, known: Sequence[str]) -> tuple[str, ...]:
    """The names in a list separated by commas; `all` for all of them."""
    if given == "all":
        return tuple(known)
    names = tuple(name.strip() for name in given.split(",") if name.strip())
    for name in names:
        if name not in known:
            raise unknown_name(kind, name, (*known, "all"))
    require(bool(names), f"{kind} is empty; name at least one of {', '.join(known)}")
    return tuple(dict.fromkeys(names))
