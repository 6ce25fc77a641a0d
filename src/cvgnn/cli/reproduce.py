"""`cvgnn reproduce`: the paper's Table 5, run again."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from cvgnn.cli.options import parse
from cvgnn.config import GraphSource
from cvgnn.errors import require, require_integer, unknown_name


@dataclass(frozen=True, kw_only=True)
class ReproduceCommand:
    """Run the paper's tuned settings (Appendix B) again and print its Table 5 beside ours, by both protocols.

    Finished runs are kept in --out and never repeated; an interrupted command goes on where it was.
    Writes table.md, table.tex and table.json. --list shows the settings and runs nothing.
    """

    dataset: str = "citeseer"
    """Data sets, separated by commas: citeseer (bundled), cora, pubmed, ogbn-arxiv, flickr, reddit, or all of them."""

    optimizer: str = "all"
    """Optimizers, separated by commas: adam, heavy-ball, amsgrad, adagrad, sgd, or all of them."""

    runs: int = 3
    """Runs of a cell; run i has seed i, and the same initial weights for every optimizer."""

    first: int = 0
    """Number, and so seed, of the first run."""

    out: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("runs/reproduce")
    """Folder for the runs and the tables."""

    root: Path | None = None
    """Folder with the data sets' raw files, if they are not to be fetched; citeseer needs none."""

    scheme: Literal["without-replacement", "with-replacement", "paper", "released"] = "without-replacement"
    """How neighbors are drawn: released is what the paper's code ran, and biased; see docs/reproduction.md."""

    form: Literal["torch", "paper"] = "torch"
    """The form of the optimizers; torch's is the one that reproduces Table 5."""

    estimator: Literal["cv", "ns", "exact"] = "cv"
    """How neighbors are aggregated; cv is the paper's."""

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
    require_integer("runs", command.runs, at_least=1)
    require_integer("first", command.first, at_least=0)
    require_integer("threads", command.threads, at_least=1)

    from cvgnn.cli.many import ManyRuns
    from cvgnn.experiments.machine import cores, describe_machine
    from cvgnn.experiments.recipes import PAPER_OPTIMIZERS, RECIPE_DATASETS
    from cvgnn.sweeps import run_all
    from cvgnn.sweeps.reproduce import HEADER, NOTE, SETTINGS, Plan, files, rows
    from cvgnn.sweeps.tables import markdown, write_files

    datasets = _names("dataset", command.dataset, RECIPE_DATASETS)
    optimizers = _names("optimizer", command.optimizer, PAPER_OPTIMIZERS)
    names = ("scheme", "form", "estimator", "threads", "epochs")
    changes = {name: value for name in names if (value := getattr(command, name)) is not None}
    plan = Plan(datasets=datasets, optimizers=optimizers, runs=command.runs, first=command.first, changes=changes)
    if command.list:
        print(markdown(SETTINGS, plan.listed()))
        return 0
    jobs = plan.jobs({name: GraphSource(dataset=name, root=command.root) for name in datasets})
    workers = command.workers or max(1, cores() // command.threads)
    with ManyRuns(len(jobs)) as view:
        outcomes = run_all(jobs, command.out, workers=workers, on_outcome=view.show, say=view.say)
    line = shlex.join(["cvgnn", "reproduce", *words])
    write_files(command.out, files(outcomes, command=line, machine=describe_machine()))
    view.show_line(markdown(HEADER, rows(outcomes)))
    view.show_line(NOTE)
    view.show_line(f"written to {command.out}: table.md, table.tex, table.json")
    return 1 if any(outcome.result is None for outcome in outcomes) else 0


def _names(kind: str, given: str, known: Sequence[str]) -> tuple[str, ...]:
    """The names in a list separated by commas; `all` for all of them."""
    if given == "all":
        return tuple(known)
    names = tuple(name.strip() for name in given.split(",") if name.strip())
    for name in names:
        if name not in known:
            raise unknown_name(kind, name, (*known, "all"))
    require(bool(names), f"{kind} is empty; name at least one of {', '.join(known)}")
    return names
