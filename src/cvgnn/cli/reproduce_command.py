"""`cvgnn reproduce`: the paper's Table 5, or our best recipes."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from cvgnn.cli.options import ReproduceCommand
from cvgnn.cli.output import set_result
from cvgnn.cli.runs_progress import LiveTable, RunsProgress, default_workers
from cvgnn.config import GraphSource
from cvgnn.errors import CvgnnError, require, unknown_name
from cvgnn.lab import sweep
from cvgnn.lab.recipes import BEST_DATASETS, PAPER_OPTIMIZERS, RECIPE_DATASETS
from cvgnn.lab.reproduction import BestPlan, PaperPlan, RecipePlan
from cvgnn.lab.sweep import Job
from cvgnn.lab.sweep.result_tables import prepare, rows, write_files
from cvgnn.lab.sweep.summary import group_by_setting
from cvgnn.training.machine import describe_machine


def reproduce_command(command: ReproduceCommand, argv: Sequence[str]) -> int:
    """Run what is missing, print and write the table."""
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
