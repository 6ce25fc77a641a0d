"""`cvgnn search`: settings chosen by Optuna, beyond grids."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from cvgnn.cli.options import SearchCommand
from cvgnn.cli.output import set_result
from cvgnn.cli.runs_progress import RunsProgress, default_workers, trial_line
from cvgnn.errors import Stopped, require
from cvgnn.lab.search.search_loop import Search, register
from cvgnn.lab.search.search_plan import SearchPlan, failures, files, table
from cvgnn.lab.search.search_space import parse_space, read_search
from cvgnn.lab.search.study import Trial, ended, hide_credentials, open_study, ranked, require_optuna
from cvgnn.lab.sweep.grid import parse_options
from cvgnn.lab.sweep.result_tables import prepare, write_files
from cvgnn.registry import plugin_options
from cvgnn.training.graph_source import load_source
from cvgnn.training.machine import describe_machine


def search_command(command: SearchCommand, argv: Sequence[str]) -> int:
    """Search, print and write the results."""
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
        return f"  (best: trial {order[0].number}, {order[0].text('val', unit='%')})" if order else ""

    def show(trial: Trial) -> None:
        done.append(trial)
        view.advance(trial_line(trial) + best(), failed=trial.reason is not None)

    if command.storage is None:
        prepare(command.out)
    seed = command.sampler_seed
    with open_study(command.study, storage, space=space, sampler_seed=seed, maximize=plan.maximize) as study:
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
        view.print(f"best of {len(done)} trials ({plan.note}):\n{table(plan, trials)}")
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
