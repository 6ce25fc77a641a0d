"""`cvgnn sweep`: runs over any options."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence

from cvgnn.cli.options import SweepCommand
from cvgnn.cli.output import set_result
from cvgnn.cli.runs_progress import RunsProgress, default_workers
from cvgnn.config import GraphSource, TrainConfig
from cvgnn.errors import require
from cvgnn.lab import sweep
from cvgnn.lab.recipes import paper_grid, paper_recipe, paper_runs
from cvgnn.lab.sweep import result_tables as tables
from cvgnn.lab.sweep.grid import configs, parse_grid, parse_options, product, read_sweep
from cvgnn.lab.sweep.summary import group_by_setting
from cvgnn.registry import plugin_options
from cvgnn.training.machine import describe_machine


def sweep_command(command: SweepCommand, argv: Sequence[str]) -> int:
    """Run what is missing, print and write the tables."""
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
