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

    seeds: int = 1
    """Runs of each setting, with seeds 0, 1, ...; a setting's numbers are means over them."""

    paper: Annotated[str | None, tyro.conf.arg(metavar="DATASET")] = None
    """The paper's grid for a data set, with its fixed settings; --grid and --set change it."""

    file: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """A .toml file with the runs, instead of --grid, --set and --paper."""

    source: Annotated[GraphSource, tyro.conf.arg(name="")] = dataclasses.field(default_factory=GraphSource)

    out: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("runs/sweep")
    """Folder for the runs and the tables."""

    choose: Literal["validation", "test"] = "validation"
    """By which accuracy the best settings are shown; test is the paper's way, which looks at the answers."""

    threads: int = 1
    """Threads of a run."""

    workers: int | None = None
    """Runs at a time; as many as cores for their threads if not given."""


def sweep_command(words: Sequence[str]) -> int:
    """Parse the options, run what is missing, print and write the tables."""
    command = parse(SweepCommand, words, prog="cvgnn sweep")
    require_integer("seeds", command.seeds, at_least=1)
    require_integer("threads", command.threads, at_least=1)

    from cvgnn.cli.many import ManyRuns
    from cvgnn.experiments.machine import cores, describe_machine
    from cvgnn.sweeps import make_jobs, run_all
    from cvgnn.sweeps.results import CHOICES, chosen, files, header, rows, varying
    from cvgnn.sweeps.summary import settings
    from cvgnn.sweeps.tables import markdown, write_files

    source, configs = _runs(command)
    configs = [dataclasses.replace(c, threads=c.threads or command.threads) for c in configs]
    jobs = make_jobs(source, configs)
    workers = command.workers or max(1, cores() // command.threads)
    with ManyRuns(len(jobs)) as view:
        outcomes = run_all(jobs, command.out, workers=workers, on_outcome=view.show, say=view.say)
    line = shlex.join(["cvgnn", "sweep", *words])
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

    seeds = {"seed": list(range(command.seeds))}
    if command.file is not None:
        require(
            not command.grid and not command.set and command.paper is None,
            "--file says all of a sweep; leave --grid, --set and --paper out",
        )
        named, found = read_sweep(command.file)
        paths = {k: command.file.parent / v for k, v in named.items() if k in ("root", "graph") and v is not None}
        source = GraphSource(**{**named, **paths}) if named else command.source
        several = [dataclasses.replace(c, seed=s) for c in found for s in seeds["seed"]] if command.seeds > 1 else found
        return source, several
    base, grid = {}, parse_grid(command.grid)
    source = command.source
    if command.paper is not None:
        recipe = paper_recipe(command.paper, "adam").to_dict()
        base = {k: v for k, v in recipe.items() if k not in ("optimizer", "lr", "num_neighbors", "batch_size", "seed")}
        grid = {**paper_grid(command.paper), **grid}
        seeds = {"seed": list(range(command.seeds if command.seeds > 1 else paper_runs(command.paper)))}
        require(source.graph is None, "--paper names the data set; leave --graph out")
        source = dataclasses.replace(source, dataset=command.paper)
    for name, values in parse_grid(command.set).items():
        require(len(values) == 1, f"--set gives one value to {name}, not {len(values)}; several belong to --grid")
        base[name] = values[0]
        grid.pop(name, None)
    require(bool(grid) or command.seeds > 1, "nothing to sweep over; give --grid, --paper, --file or --seeds")
    return source, configs(base, product({**grid, **({} if "seed" in grid else seeds)}))
