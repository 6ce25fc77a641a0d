"""`cvgnn search`: settings chosen by Optuna, beyond grids."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from cvgnn.cli.argv import parse, require_at_least
from cvgnn.config import GraphSource
from cvgnn.errors import Stopped, require
from cvgnn.registry import plugin_options


@dataclass(frozen=True, kw_only=True)
class SearchCommand:
    """Search for the options with the highest validation accuracy, on all cores, on several machines if you like.

    cvgnn search --space lr=0.001..0.1:log hidden=16..256 optimizer=adam,amsgrad --set epochs=50 --trials 40 --runs 3
    cvgnn search --file search.toml            tables base and space; see docs/search.md
    Needs Optuna: pip install 'cvgnn[search]'. The same command continues a stopped search; more --trials extend it.
    """

    space: tuple[str, ...] = ()
    """Options and what to try: ranges such as lr=0.001..0.1:log or hidden=16..256, lists such as optimizer=adam,sgd."""

    set: tuple[str, ...] = ()
    """Options of every run, such as epochs=50."""

    trials: int = 20
    """Settings to try in all, by every search that shares the study."""

    runs: int = 1
    """Runs of each setting, with seeds 0, 1, ...; settings are compared by their mean validation accuracy."""

    file: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """A .toml file with the space and the options of every run, instead of --space and --set."""

    source: Annotated[GraphSource, tyro.conf.arg(name="")] = dataclasses.field(default_factory=GraphSource)

    out: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("runs/search")
    """Folder for the runs, the result and, if --storage is not given, the study."""

    study: str = "search"
    """Name of the study; searches with the same name in the same storage share it."""

    storage: Annotated[str | None, tyro.conf.arg(metavar="URL")] = None
    """Where the study is stored: a database URL as Optuna takes it, or a journal file; default: DIR/journal.log."""

    sampler_seed: int | None = None
    """Seed of the choice of settings; with one worker the search is then repeatable."""

    threads: int = 1
    """Threads of a run."""

    workers: int | None = None
    """Runs at a time; default: as many as there are cores for their threads."""


def search_command(argv: Sequence[str]) -> int:
    """Parse the options, search, print and write the results."""
    command = parse(SearchCommand, argv, prog="cvgnn search")
    require_at_least(command, trials=1, runs=1, threads=1, workers=1, sampler_seed=0)
    require(bool(command.study), "--study needs a name, such as --study mine")

    from cvgnn.cli.output import set_result
    from cvgnn.cli.runs_progress import RunsProgress, default_workers, trial_line
    from cvgnn.lab.search.search_loop import Search, register
    from cvgnn.lab.search.search_plan import NOTE, SearchPlan, failures, files, table
    from cvgnn.lab.search.search_space import parse_space, read_search
    from cvgnn.lab.search.study import Trial, ended, hide_credentials, open_study, ranked, require_optuna
    from cvgnn.lab.sweep.accuracy_tables import prepare, write_files
    from cvgnn.lab.sweep.grid import parse_options
    from cvgnn.training.callbacks import percent
    from cvgnn.training.graph_source import load_source
    from cvgnn.training.machine import describe_machine

    require_optuna()
    if command.file is not None:
        alone = not command.space and not command.set
        require(alone, "--file has all options of a search; leave --space and --set out")
        source, base, space = read_search(command.file, source=command.source)
    else:
        base = parse_options(command.set, several="--space")
        source, space = command.source, parse_space(command.space)
    graph = load_source(source, task=str(base.get("task", "auto")))
    plan = SearchPlan(graph, source, base, space, runs=command.runs, threads=command.threads)
    storage = command.storage or str(command.out / "journal.log")
    location = hide_credentials(storage)
    line = shlex.join(["cvgnn", "search", *argv, *plugin_options()])
    line = line.replace(storage, location)  # without the storage's password
    view = RunsProgress(command.trials, "trials")
    done: list[Trial] = []

    def best() -> str:
        order = ranked(done)
        return f"  (best: trial {order[0].number}, {percent(order[0].mean('val_accuracy'))})" if order else ""

    def show(trial: Trial) -> None:
        done.append(trial)
        view.advance(trial_line(trial) + best(), failed=trial.reason is not None)

    if command.storage is None:
        prepare(command.out)
    with open_study(command.study, storage, space=space, sampler_seed=command.sampler_seed) as study:
        study.check(plan.setting, plan.code, warn=view.warn)
        with register(command.out) as owner:
            search = Search(plan, study, owner=owner, trials=command.trials, on_trial=show)
            count = search.take_over(command.out)
            if count:
                view.warn(f"continuing {count} trials of a search in this folder that was killed")
            done += ended(study.trials())
            if done:
                view.print(f"the study has {len(done)} of {command.trials} trials{best()}")
            with view:
                for _ in done:
                    view.advance(before=True)
                workers = command.workers or default_workers(plan.max_threads)
                stopped = search.run(command.out, workers=workers, command=line, warn=view.warn)
        trials = study.trials()
    about = {"command": line, "machine": describe_machine()}
    written = files(plan, trials, study=command.study, storage=location, about=about)
    write_files(command.out, written)
    set_result(written["search.json"])
    done, failed = ended(trials), failures(trials)
    if ranked(trials):
        view.print(f"best of {len(done)} trials ({NOTE}):\n{table(plan, trials)}")
    running = sum(trial.state == "running" for trial in trials)
    if running:
        view.print(f"{running} trials are still running on other machines or in other folders")
    if failed:
        view.print(f"{len(failed)} of {len(done)} trials failed; the reasons are in {command.out / 'search.json'}")
    view.print(f"written to {command.out}: {', '.join(written)}")
    if stopped is not None:
        left = command.trials - len(done)
        raise Stopped(stopped, f"stopped with {left} of {command.trials} trials left; the same command continues")
    return 0 if ranked(trials) else 1
