"""`cvgnn search`: settings chosen by Optuna, beyond grids."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from cvgnn.cli.options import parse
from cvgnn.config import GraphSource
from cvgnn.errors import Stopped, require, require_integer

if TYPE_CHECKING:
    from cvgnn.sweeps.space import Space


@dataclass(frozen=True, kw_only=True)
class SearchCommand:
    """Search for the options with the highest validation accuracy, on all cores, on several machines if you like.

    cvgnn search --space lr=0.001..0.1:log hidden=16..256 optimizer=adam,amsgrad --set epochs=50 --trials 40 --runs 3
    cvgnn search --file search.toml            tables base and space; see docs/search.md
    Needs Optuna: pip install 'cvgnn[search]'. An interrupted search goes on where it was; more --trials go on from it.
    """

    space: tuple[str, ...] = ()
    """Options and what to try: ranges such as lr=0.001..0.1:log or hidden=16..256, lists such as optimizer=adam,sgd."""

    set: tuple[str, ...] = ()
    """Options of every run, such as epochs=50."""

    trials: int = 20
    """Settings to try in all, by every search that shares the study."""

    runs: int = 1
    """Runs of each setting, with seeds 0, 1, ...; their mean validation accuracy is what counts."""

    file: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """A .toml file with the space and the options of every run, instead of --space and --set."""

    source: Annotated[GraphSource, tyro.conf.arg(name="")] = dataclasses.field(default_factory=GraphSource)

    out: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("runs/search")
    """Folder for the runs, the result and, if --storage is not given, the study."""

    study: str = "search"
    """Name of the study; searches with the same name in the same storage share it."""

    storage: Annotated[str | None, tyro.conf.arg(metavar="URL")] = None
    """Where the study is: a database URL as Optuna takes it, or a journal file; DIR/journal.log if not given."""

    sampler_seed: int | None = None
    """Seed of the choice of settings; with one worker the search can then be repeated."""

    threads: int = 1
    """Threads of a run."""

    workers: int | None = None
    """Runs at a time; as many as cores for their threads if not given."""


def search_command(words: Sequence[str]) -> int:
    """Parse the options, search, print and write what was found."""
    command = parse(SearchCommand, words, prog="cvgnn search")
    for name, at_least in (("trials", 1), ("runs", 1), ("threads", 1), ("workers", 1), ("sampler_seed", 0)):
        value = getattr(command, name)
        if value is not None:
            require_integer(name, value, at_least=at_least)
    require(bool(command.study), "--study needs a name, such as --study mine")

    from cvgnn.cli.trials import TrialsView
    from cvgnn.experiments.machine import cores, describe_machine
    from cvgnn.experiments.source import load_source
    from cvgnn.sweeps.found import NOTE, failures, files, table
    from cvgnn.sweeps.owners import at_work, make_folder
    from cvgnn.sweeps.plan import Plan
    from cvgnn.sweeps.search import Search
    from cvgnn.sweeps.study import open_study, require_optuna, shown_storage
    from cvgnn.sweeps.tables import write_files
    from cvgnn.sweeps.trials import ended, ranked

    require_optuna()
    source, base, space = _asked(command)
    plan = Plan(load_source(source), source, base, space, runs=command.runs, threads=command.threads)
    workers = command.workers or max(1, cores() // plan.most_threads)
    storage = command.storage or str(command.out / "journal.log")
    seed, shown = command.sampler_seed, shown_storage(storage)
    line = shlex.join(["cvgnn", "search", *words]).replace(storage, shown)  # which may have held a password
    view = TrialsView(command.trials)
    if command.storage is None:
        make_folder(command.out)
    with open_study(command.study, storage, space=space, sampler_seed=seed) as study:
        study.begin(plan.setting, plan.code, say=view.say)
        with at_work(command.out) as owner:
            search = Search(plan, study, owner=owner, trials=command.trials, on_trial=view.show)
            count = search.go_on(command.out)
            if count:
                view.say(f"going on with what a search that was killed here left: {count} of its trials")
            with view.running(ended(study.trials())):
                stopped = search.run(command.out, workers=workers, command=line, say=view.say)
        trials = study.trials()
    written = files(plan, trials, study=command.study, storage=shown, command=line, machine=describe_machine())
    write_files(command.out, written)
    best, failed, done = ranked(trials), failures(trials), ended(trials)
    if best:
        view.show_line(f"best of {len(done)} trials ({NOTE}):\n{table(plan, trials)}")
    elsewhere = sum(trial.state == "running" for trial in trials)
    if elsewhere:
        view.show_line(f"not waited for: {elsewhere} trials that are under way on other machines or in other folders")
    if failed:
        view.show_line(f"{len(failed)} of {len(done)} trials failed; the reasons are in {command.out / 'search.json'}")
    view.show_line(f"written to {command.out}: {', '.join(written)}")
    if stopped is not None:
        rest = command.trials - len(done)
        raise Stopped(stopped, f"stopped with {rest} of {command.trials} trials to go; the same command goes on")
    return 0 if best else 1


def _asked(command: SearchCommand) -> tuple[GraphSource, dict[str, Any], Space]:
    """Where the graph comes from, the options of every run, and the space."""
    from cvgnn.sweeps.grid import parse_grid
    from cvgnn.sweeps.space import parse_space, read_search

    if command.file is not None:
        require(not command.space and not command.set, "--file says all of a search; leave --space and --set out")
        return read_search(command.file, source=command.source)
    base = {}
    for name, values in parse_grid(command.set).items():
        require(len(values) == 1, f"--set gives one value to {name}, not {len(values)}; several belong to --space")
        base[name] = values[0]
    return command.source, base, parse_space(command.space)
