"""`cvgnn sweep`: runs over any options."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from cvgnn.cli.argv import RunCount, parse, require_at_least
from cvgnn.config import GraphSource
from cvgnn.errors import require
from cvgnn.registry import plugin_options

if TYPE_CHECKING:
    from cvgnn.config import TrainConfig


@dataclass(frozen=True, kw_only=True)
class SweepCommand:
    """Train every combination of some options, on all cores, and show which is best on the validation set.

    cvgnn sweep --grid lr=0.01,0.05 num_neighbors=2,5 optimizer=adam,sgd --set epochs=50 hidden=32 --runs 3
    cvgnn sweep --paper cora --root DIR        the paper's grid (Table 3), five optimizers, three runs each
    cvgnn sweep --file sweep.toml              tables base, grid and list; see docs/sweeps.md
    Finished runs are kept in --out and never repeated; the same command continues an interrupted sweep.
    """

    grid: tuple[str, ...] = ()
    """Options and their values, such as lr=0.01,0.05; every combination is run. Hops of num_neighbors: 10+5."""

    set: tuple[str, ...] = ()
    """Options of every run, such as epochs=50."""

    runs: RunCount[int | None] = None
    """Runs of each setting, with seeds 0, 1, ...; a setting's numbers are means over them. Default: 1, with --paper as
    many as the paper's."""

    paper: Annotated[str | None, tyro.conf.arg(metavar="DATASET")] = None
    """The paper's grid for a data set, with its fixed settings; --grid and --set change it."""

    file: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """A .toml file with the runs, instead of --grid, --set and --paper; it may leave --dataset, --root and --runs
    to the command line."""

    source: Annotated[GraphSource, tyro.conf.arg(name="")] = dataclasses.field(default_factory=GraphSource)

    out: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("runs/sweep")
    """Folder for the runs and the tables."""

    choose: Literal["validation", "test"] = "validation"
    """The split whose metric selects the best settings; test is the paper's protocol, which selects on the test set."""

    threads: int | None = None
    """Threads of a run; default: 1."""

    workers: int | None = None
    """Runs at a time; default: as many as there are cores for their threads."""


def sweep_command(argv: Sequence[str]) -> int:
    """Parse the options, run what is missing, print and write the tables."""
    command = parse(SweepCommand, argv, prog="cvgnn sweep")
    require_at_least(command, runs=1, threads=1, workers=1)

    from cvgnn.cli.output import set_result
    from cvgnn.cli.runs_progress import RunsProgress, default_workers
    from cvgnn.lab import sweep
    from cvgnn.lab.sweep import result_tables as tables
    from cvgnn.lab.sweep.summary import group_by_setting
    from cvgnn.training.machine import describe_machine

    source, configs = _configs(command)
    twice = command.threads is not None and any(c.threads is not None for c in configs)
    require(not twice, "threads is an option of the runs and --threads is given as well; leave one of them out")
    configs = [dataclasses.replace(c, threads=c.threads or command.threads or 1) for c in configs]
    tables.prepare(command.out, "runs")
    jobs = sweep.make_jobs(source, configs)
    workers = command.workers or default_workers(max(config.threads or 1 for config in configs))
    line = shlex.join(["cvgnn", "sweep", *argv, *plugin_options()])
    with RunsProgress(len(jobs), "runs") as view:
        outcomes = sweep.run_all(jobs, command.out, workers=workers, command=line, on_outcome=view.show, warn=view.warn)
    files = tables.sweep_files(outcomes, {"command": line, "machine": describe_machine()})
    tables.write_files(command.out, files)
    set_result(files["table.json"])
    settings = group_by_setting(outcomes)
    columns = tables.sweep_columns(settings)
    how = tables.choice_text(command.choose, tables.metrics_of(settings))
    view.print(f"best of {len(settings)} settings for each optimizer, {how}:")
    view.print(tables.markdown(list(columns), tables.rows(columns, tables.chosen(settings, by=command.choose))))
    failed = sum(outcome.result is None for outcome in outcomes)
    if failed:
        view.print(f"{failed} of {len(jobs)} runs failed; the reasons are in {command.out / 'table.md'}")
    view.print(f"written to {command.out}: table.md, table.json")
    return 1 if failed else 0


def _configs(command: SweepCommand) -> tuple[GraphSource, list[TrainConfig]]:
    """The source of the graph, and the config of every run."""
    from cvgnn.lab.recipes import paper_grid, paper_recipe, paper_runs
    from cvgnn.lab.sweep.grid import configs, parse_grid, parse_options, product, read_sweep

    if command.file is not None:
        alone = not command.grid and not command.set and command.paper is None
        require(alone, "--file has all options of a sweep; leave --grid, --set and --paper out")
        return read_sweep(command.file, source=command.source, seeds=command.runs)
    base, grid, given = {}, parse_grid(command.grid), parse_options(command.set, several="--grid")
    for name in given:
        require(name not in grid, f"{name} is in --set and in --grid; leave one of them out")
    source, seeds = command.source, command.runs or 1
    if command.paper is not None:
        require(source.graph is None, "--paper names the data set; leave --graph out")
        require(source.dataset in (None, command.paper), "--paper names the data set; leave --dataset out")
        source = dataclasses.replace(source, dataset=command.paper)
        grid = {**paper_grid(command.paper), **grid}
        base = paper_recipe(command.paper, "adam").to_dict()
        del base["seed"]
        seeds = command.runs or paper_runs(command.paper)
    base |= given
    grid = {name: values for name, values in grid.items() if name not in given}
    wanted = bool(grid) or seeds > 1 or command.paper is not None
    require(wanted, "nothing to sweep over; give --grid, --paper, --file or --runs")
    if "seed" not in base and "seed" not in grid:
        grid["seed"] = list(range(seeds))
    else:
        require(command.runs is None, "seed and --runs are both given; leave one of them out")
    return source, configs(base, product(grid))
