"""`cvgnn sweep`: many runs over any options."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from cvgnn.cli.options import parse
from cvgnn.config import GraphSource
from cvgnn.errors import require, require_integer

if TYPE_CHECKING:
    from cvgnn.config import TrainConfig


@dataclass(frozen=True, kw_only=True)
class SweepCommand:
    """Train every combination of some options, on all cores, and show which is best by validation accuracy.

    cvgnn sweep --grid lr=0.01,0.05 num_neighbors=2,5 optimizer=adam,sgd --set epochs=50 hidden=32 --seeds 3
    cvgnn sweep --paper cora --root DIR        the paper's grid (Table 3), five optimizers, three runs each
    cvgnn sweep --file sweep.toml              tables base, grid and list; see docs/sweeps.md
    Finished runs are kept in --out and never repeated; an interrupted command goes on where it was.
    """

    grid: tuple[str, ...] = ()
    """Options and their values, such as lr=0.01,0.05; every combination is run. Hops of num_neighbors: 10+5."""

    set: tuple[str, ...] = ()
    """Options of every run, such as epochs=50."""

    seeds: int | None = None
    """Runs of each setting, with seeds 0, 1, ...; a setting's numbers are means over them. One if not given, with
    --paper as many as the paper's."""

    paper: Annotated[str | None, tyro.conf.arg(metavar="DATASET")] = None
    """The paper's grid for a data set, with its fixed settings; --grid and --set change it."""

    file: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """A .toml file with the runs, instead of --grid, --set and --paper; it may leave --dataset, --root and --seeds
    to the command line."""

    source: Annotated[GraphSource, tyro.conf.arg(name="")] = dataclasses.field(default_factory=GraphSource)

    out: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("runs/sweep")
    """Folder for the runs and the tables."""

    choose: Literal["validation", "test"] = "validation"
    """By which accuracy the best settings are shown; test is the paper's way, which looks at the answers."""

    threads: int | None = None
    """Threads of a run; one if not given."""

    workers: int | None = None
    """Runs at a time; as many as cores for their threads if not given."""


def sweep_command(words: Sequence[str]) -> int:
    """Parse the options, run what is missing, print and write the tables."""
    command = parse(SweepCommand, words, prog="cvgnn sweep")
    for name in ("seeds", "threads", "workers"):
        value = getattr(command, name)
        if value is not None:
            require_integer(name, value, at_least=1)

    from cvgnn.cli.many import ManyRuns, workers_for
    from cvgnn.experiments.machine import describe_machine
    from cvgnn.sweeps import make_jobs, run_all
    from cvgnn.sweeps.results import CHOICES, chosen, files, header, rows, varying
    from cvgnn.sweeps.summary import settings
    from cvgnn.sweeps.tables import markdown, prepare, write_files

    source, configs = _runs(command)
    require(
        command.threads is None or all(c.threads is None for c in configs),
        "threads is an option of the runs and --threads is given as well; leave one of them out",
    )
    configs = [dataclasses.replace(c, threads=c.threads or command.threads or 1) for c in configs]
    prepare(command.out)
    jobs = make_jobs(source, configs)
    workers = command.workers or workers_for(jobs)
    line = shlex.join(["cvgnn", "sweep", *words])
    with ManyRuns(len(jobs)) as view:
        outcomes = run_all(jobs, command.out, workers=workers, command=line, on_outcome=view.show, say=view.say)
    write_files(command.out, files(outcomes, command=line, machine=describe_machine()))
    found = settings(outcomes)
    names = varying(found)
    view.show_line(f"best of {len(found)} settings for each optimizer, {CHOICES[command.choose]}:")
    view.show_line(markdown(header(names), rows(chosen(found, by=command.choose), names)))
    failed = [outcome for outcome in outcomes if outcome.result is None]
    if failed:
        view.show_line(f"{len(failed)} of {len(jobs)} runs failed; the reasons are in {command.out / 'table.md'}")
    view.show_line(f"written to {command.out}: table.md, table.json")
    return 1 if failed else 0


def _runs(command: SweepCommand) -> tuple[GraphSource, list[TrainConfig]]:
    """Where the graph comes from, and the config of every run."""
    from cvgnn.experiments.recipes import paper_grid, paper_recipe, paper_runs
    from cvgnn.sweeps.grid import configs, parse_grid, product, read_sweep

    if command.file is not None:
        require(
            not command.grid and not command.set and command.paper is None,
            "--file says all of a sweep; leave --grid, --set and --paper out",
        )
        return read_sweep(command.file, source=command.source, seeds=command.seeds)
    base, grid = {}, parse_grid(command.grid)
    source, seeds = command.source, command.seeds or 1
    if command.paper is not None:
        recipe = paper_recipe(command.paper, "adam").to_dict()
        base = {k: v for k, v in recipe.items() if k not in ("optimizer", "lr", "num_neighbors", "batch_size", "seed")}
        grid = {**paper_grid(command.paper), **grid}
        seeds = command.seeds or paper_runs(command.paper)
        require(source.graph is None, "--paper names the data set; leave --graph out")
        require(source.dataset in (None, command.paper), "--paper names the data set; leave --dataset out")
        source = dataclasses.replace(source, dataset=command.paper)
    for name, values in parse_grid(command.set).items():
        require(len(values) == 1, f"--set gives one value to {name}, not {len(values)}; several belong to --grid")
        require(name not in parse_grid(command.grid), f"--set and --grid both say {name}; leave one of them out")
        base[name] = values[0]
        grid.pop(name, None)
    require(
        bool(grid) or seeds > 1 or command.paper is not None,
        "nothing to sweep over; give --grid, --paper, --file or --seeds",
    )
    if "seed" not in base and "seed" not in grid:
        grid["seed"] = list(range(seeds))
    else:
        require(command.seeds is None, "seed and --seeds both say which seeds to run; leave one of them out")
    return source, configs(base, product(grid))
