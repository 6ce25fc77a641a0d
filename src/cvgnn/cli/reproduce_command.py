"""`cvgnn reproduce`: the paper's Table 5, or our best recipes."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from cvgnn.cli.argv import parse, require_at_least
from cvgnn.config import GraphSource
from cvgnn.errors import CvgnnError, require, require_known, unknown_name

if TYPE_CHECKING:
    from cvgnn.lab.reproduction import BestPlan, PaperPlan, RecipePlan
    from cvgnn.lab.sweep import Job


@dataclass(frozen=True, kw_only=True)
class ReproduceCommand:
    """Run the paper's tuned settings (Appendix B) and print its Table 5 beside ours, by both protocols.

    Finished runs are kept in --out and never repeated; the same command continues an interrupted one.
    Writes table.md, table.tex and table.json. --list shows the settings and the grids, and runs nothing.
    If a data set is missing and cannot be downloaded, it is named, the others are run, and the exit code is 1.
    --recipe best runs our own best settings for citeseer, cora and pubmed instead (docs/best.md).
    """

    recipe: Literal["paper", "best"] = "paper"
    """Whose settings: the paper's tuned ones for each optimizer, or our best ones, tuned by validation accuracy."""

    dataset: str = "citeseer"
    """Data sets, separated by commas: citeseer (bundled), cora, pubmed, ogbn-arxiv, flickr, reddit, or all of them."""

    optimizer: str = "all"
    """Optimizers, separated by commas: adam, heavy-ball, amsgrad, adagrad, sgd, or all of them."""

    runs: int | None = None
    """Runs of each recipe; default: the paper's 3 (for reddit 1), 10 for the best recipes. Run i has seed i, and the
    same initial weights for every optimizer."""

    first: int = 0
    """Number, and so seed, of the first run."""

    out: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("runs/reproduce")
    """Folder for the runs and the tables."""

    root: Path | None = None
    """Folder with the data sets' raw files, if they shall not be downloaded; citeseer needs none."""

    scheme: Literal["without-replacement", "with-replacement", "paper", "released"] | None = None
    """How neighbors are drawn; default: without replacement. released is the scheme of the paper's code, biased: see
    docs/reproduction.md."""

    form: Literal["torch", "paper"] | None = None
    """The form of the optimizers; default: torch's, which reproduces Table 5."""

    estimator: Literal["cvd", "cv", "ns", "exact"] | None = None
    """How neighbors are aggregated; default: cv, the paper's."""

    epochs: int | None = None
    """Epochs; default: the paper's."""

    threads: int = 1
    """Threads of a run."""

    workers: int | None = None
    """Runs at a time; default: as many as there are cores for their threads."""

    list: bool = False
    """Show the settings, and run nothing."""


def reproduce_command(argv: Sequence[str]) -> int:
    """Parse the options, run what is missing, print and write the table."""
    command = parse(ReproduceCommand, argv, prog="cvgnn reproduce", flags=True)
    require_at_least(command, runs=1, first=0, threads=1, workers=1)
    require_known("recipe", command.recipe, ("paper", "best"))

    from cvgnn.cli.output import set_result
    from cvgnn.cli.runs_progress import LiveTable, RunsProgress, default_workers
    from cvgnn.lab import sweep
    from cvgnn.lab.sweep.result_tables import prepare, rows, write_files
    from cvgnn.lab.sweep.summary import group_by_setting
    from cvgnn.training.machine import describe_machine

    paper, best = _plans(command)
    if command.list:
        print(f"{paper.listing()}\n\nwith --recipe best, as options of cvgnn train:\n\n{best.listing()}")
        set_result({"paper": paper.listing(), "best": best.listing()})
        return 0
    plan: RecipePlan = paper if command.recipe == "paper" else best
    configs = {name: plan.configs(name) for name in plan.datasets}
    prepare(command.out, "runs")
    jobs: list[Job] = []
    missing: dict[str, str] = {}
    for name, several in configs.items():
        try:
            jobs += sweep.make_jobs(GraphSource(dataset=name, root=command.root), several)
        except CvgnnError as error:
            missing[name] = str(error)
    require(bool(jobs), "\n".join(missing.values()))
    reasons = [f"{name}: {reason}" for name, reason in missing.items()]
    line = shlex.join(["cvgnn", "reproduce", *argv])
    columns = plan.live_columns
    table = LiveTable(list(columns), lambda outcomes: rows(columns, group_by_setting(outcomes, jobs)))
    with RunsProgress(len(jobs), "runs", table=table) as view:
        for reason in reasons:
            view.warn(f"not run: {reason}")
        workers = command.workers or default_workers(command.threads)
        outcomes = sweep.run_all(jobs, command.out, workers=workers, command=line, on_outcome=view.show, warn=view.warn)
    about = {"command": line, "machine": describe_machine()}
    files = plan.files(outcomes, about, missing=reasons)
    write_files(command.out, files)
    set_result(files["table.json"])
    settings = group_by_setting(outcomes)
    view.print(plan.table(settings))
    view.print(plan.note(settings))
    if missing:
        view.print(f"not run, because the data is missing: {', '.join(missing)}; see above how to get it")
    view.print(f"written to {command.out}: table.md, table.tex, table.json")
    return 1 if missing or any(outcome.result is None for outcome in outcomes) else 0


def _plans(command: ReproduceCommand) -> tuple[PaperPlan, BestPlan]:
    from cvgnn.lab.recipes import BEST_DATASETS, PAPER_OPTIMIZERS, RECIPE_DATASETS
    from cvgnn.lab.reproduction import BestPlan, PaperPlan

    best = command.recipe == "best"
    own = not best or command.optimizer == "all"
    require(own, f"a best recipe has its own optimizer; leave --optimizer {command.optimizer} out")
    datasets = _names("dataset", command.dataset, BEST_DATASETS if best else RECIPE_DATASETS)
    optimizers = _names("optimizer", command.optimizer, PAPER_OPTIMIZERS)
    names = ("scheme", "form", "estimator", "threads", "epochs")
    changes = {name: value for name in names if (value := getattr(command, name)) is not None}
    runs, first = command.runs, command.first
    return (
        PaperPlan(datasets=datasets, optimizers=optimizers, runs=runs, first=first, changes=changes),
        BestPlan(datasets=datasets if best else BEST_DATASETS, runs=runs, first=first, changes=changes),
    )


def _names(kind: str, given: str, known: Sequence[str]) -> tuple[str, ...]:
    """The names in a list separated by commas; `all` for all of them."""
    if given == "all":
        return tuple(known)
    names = tuple(dict.fromkeys(name.strip() for name in given.split(",") if name.strip()))
    for name in names:
        if name not in known:
            raise unknown_name(kind, name, (*known, "all"))
    require(bool(names), f"{kind} is empty; name at least one of {', '.join(known)}")
    return names
