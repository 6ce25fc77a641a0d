"""The runs of a search's trials, without any process."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cvgnn.config import GraphSource
from cvgnn.errors import CvgnnError
from cvgnn.lab.search.search_loop import Search, register
from cvgnn.lab.search.search_plan import SearchPlan, failures, files, table
from cvgnn.lab.search.search_space import parse_space
from cvgnn.lab.search.study import Study, Trial, open_study, ranked
from cvgnn.lab.sweep.jobs import Job, make_jobs
from cvgnn.lab.sweep.pool import Outcome
from tests.build import graph_from_dense
from tests.tiny import PATH

pytest.importorskip("optuna", reason="needs Optuna: pip install 'cvgnn[search]'")

GRAPH = graph_from_dense(PATH)


def make_plan(*words: str, base: dict[str, Any] | None = None, runs: int = 2) -> SearchPlan:
    return SearchPlan(GRAPH, GraphSource(), base or {"epochs": 3}, parse_space(words), runs=runs, threads=1)


def test_runs_do_not_fight_for_cores() -> None:
    assert make_plan("lr=0.01,0.1").max_threads == 1
    assert make_plan("lr=0.01,0.1", base={"epochs": 3, "threads": 2}).max_threads == 2
    assert make_plan("threads=1,3").max_threads == 3


@pytest.fixture
def plan() -> SearchPlan:
    return make_plan("lr=0.001..0.1:log", "hidden=8..64")


@pytest.fixture
def study(tmp_path: Path, plan: SearchPlan) -> Iterator[Study]:
    with open_study("s", str(tmp_path / "j"), space=plan.space, sampler_seed=0) as study:
        yield study


def good(job: Job, val: float = 0.5) -> Outcome:
    result = {"val_accuracy": val, "test_accuracy": 1 - val, "dataset": "d", "train_seconds": 1.0}
    return Outcome(job, "done", result, None)


def bad(job: Job) -> Outcome:
    return Outcome(job, "failed", None, "it diverged")


def taken(search: Search, count: int) -> list[Job]:
    jobs = [search.next_job() for _ in range(count)]
    return [job for job in jobs if job is not None]


def test_a_trial_is_its_runs(plan: SearchPlan, study: Study) -> None:
    seen: list[Trial] = []
    search = Search(plan, study, owner="me", trials=2, on_trial=seen.append)
    jobs = taken(search, 5)
    assert [job.config.seed for job in jobs] == [0, 1, 0, 1]  # and no fifth
    assert jobs[0].config == dataclasses.replace(jobs[1].config, seed=0)
    assert (jobs[0].config.epochs, jobs[0].config.threads) == (3, 1)
    assert jobs[0].label == f"graph lr={jobs[0].config.lr:g} hidden={jobs[0].config.hidden} seed=0"
    (same,) = make_jobs(GraphSource(), [jobs[0].config], graph=GRAPH)
    assert same.name == jobs[0].name  # a sweep would find its run
    search.record(good(jobs[1], 0.75))
    assert seen == []
    search.record(good(jobs[0], 0.25))
    search.record(good(jobs[2], 0.5))
    search.record(good(jobs[3], 0.75))
    first, second = study.trials()
    assert [(t.number, t.state) for t in seen] == [(0, "complete"), (1, "complete")]
    assert [(r["seed"], r["run"], r["val_accuracy"]) for r in first.results] == [
        (0, jobs[0].name, 0.25),
        (1, jobs[1].name, 0.75),
    ]
    assert (first.mean("val_accuracy"), second.mean("val_accuracy")) == (0.5, 0.625)
    assert ranked(study.trials()) == [second, first]  # though its test accuracy is lower
    assert search.next_job() is None


def test_a_failed_run_fails_its_trial_and_nothing_else(plan: SearchPlan, study: Study) -> None:
    search = Search(plan, study, owner="me", trials=2)
    (first,) = taken(search, 1)
    search.record(bad(first))
    jobs = taken(search, 3)
    assert len(jobs) == 2  # the other run of the failed trial is not begun
    search.record(good(jobs[0]))
    search.record(good(jobs[1]))
    failed, done = study.trials()
    assert (failed.state, failed.reason, done.state) == ("failed", "seed 0: it diverged", "complete")
    assert failures(study.trials()) == ["trial 0: seed 0: it diverged"]


def test_a_run_that_ends_after_its_trial_has_failed(plan: SearchPlan, study: Study) -> None:
    search = Search(plan, study, owner="me", trials=1)
    jobs = taken(search, 2)
    search.record(bad(jobs[1]))
    search.record(good(jobs[0]))
    assert [trial.state for trial in study.trials()] == ["failed"]


def test_equal_settings_share_their_runs(tmp_path: Path) -> None:
    plan = make_plan("optimizer=adam,sgd")
    with open_study("s", str(tmp_path / "j"), space=plan.space, sampler_seed=0) as study:
        search = Search(plan, study, owner="me", trials=6)
        jobs = taken(search, 20)
        assert len({job.name for job in jobs}) == len(jobs) == 4
        for job in jobs:
            search.record(good(job, 0.5 if job.config.optimizer == "adam" else 0.25))
        assert [trial.state for trial in study.trials()] == ["complete"] * 6
        assert [trial.params for trial in ranked(study.trials())] == [{"optimizer": "adam"}, {"optimizer": "sgd"}]


def test_values_that_do_not_go_together_fail_their_trial(tmp_path: Path) -> None:
    plan = make_plan("num_neighbors=5,10+5", "layers=2,3", runs=1)
    with open_study("s", str(tmp_path / "j"), space=plan.space, sampler_seed=0) as study:
        search = Search(plan, study, owner="me", trials=12)
        for job in taken(search, 12):
            search.record(good(job))
        states = {(t.params["num_neighbors"], t.params["layers"]): t.state for t in study.trials()}
        assert states[("10+5", 2)] == "failed"
        assert {state for key, state in states.items() if key != ("10+5", 2)} == {"complete"}
        assert "num_neighbors has 2 entries, (10, 5), but 2 layers sample at 1 hops" in failures(study.trials())[0]


def test_trials_of_others_count_and_are_not_waited_for(plan: SearchPlan, study: Study) -> None:
    study.ask("another machine")
    search = Search(plan, study, owner="me", trials=2)
    assert len(taken(search, 5)) == 2


def test_what_a_killed_search_left_continues_here_and_nowhere_else(
    tmp_path: Path, plan: SearchPlan, study: Study
) -> None:
    with pytest.raises(ZeroDivisionError), register(tmp_path / "a") as dead:
        raise ZeroDivisionError
    before = taken(Search(plan, study, owner=dead, trials=9), 1)
    with register(tmp_path / "a") as alive:
        study.ask(alive)
        assert Search(plan, study, owner="me", trials=9).take_over(tmp_path / "b") == 0
        search = Search(plan, study, owner="me", trials=9)
        assert search.take_over(tmp_path / "a") == 1
        assert search.take_over(tmp_path / "a") == 0
        assert taken(search, 1)[0].name == before[0].name
        assert [trial.state for trial in study.trials()] == ["interrupted", "running", "running"]


def test_an_owner_in_a_shared_study_leads_to_no_other_file(tmp_path: Path, plan: SearchPlan, study: Study) -> None:
    (tmp_path / "victim").write_text("x")
    (tmp_path / "a" / "searching").mkdir(parents=True)
    for name in ("../victim", "../../victim", "", str(tmp_path / "victim")):
        study.ask(name)
    assert Search(plan, study, owner="me", trials=9).take_over(tmp_path / "a") == 0
    assert (tmp_path / "victim").read_text() == "x"


def test_a_graph_without_validation_nodes_is_refused() -> None:
    bare = dataclasses.replace(GRAPH, val_ids=GRAPH.val_ids[:0])
    with pytest.raises(CvgnnError, match="chooses by validation accuracy, and this graph has no validation nodes"):
        SearchPlan(bare, GraphSource(), {}, parse_space(["lr=0.1..1"]), runs=1, threads=1)


def test_the_same_search_from_words_and_from_a_file() -> None:
    words = make_plan("lr=0.1..1", base={"num_neighbors": (5,)})
    assert words.setting == make_plan("lr=0.1..1", base={"num_neighbors": 5}).setting
    assert words.setting == make_plan("lr=0.1..1", base={"num_neighbors": [5], "threads": 4}).setting
    assert words.setting != make_plan("lr=0.1..1", base={"num_neighbors": [5]}, runs=3).setting


def test_what_is_written(plan: SearchPlan) -> None:
    def trial(number: int, val: float) -> Trial:
        results = tuple({"seed": s, "val_accuracy": val, "test_accuracy": 0.9 - val} for s in (0, 1))
        params = {"lr": 0.01 * (number + 1), "hidden": 9}
        return Trial(number=number, state="complete", params=params, results=results)

    failed = Trial(number=2, state="failed", params={"lr": 0.5, "hidden": 9}, reason="it diverged")
    waiting = Trial(number=3, state="waiting", params={})
    trials = [trial(0, 0.5), trial(1, 0.75), failed, waiting, trial(4, 0.25)]
    rows = table(plan, trials).splitlines()
    assert [row.split("|")[1].strip() for row in rows] == ["trial", "-----", "1", "0", "4"]
    assert rows[2].split("|")[2:7] == [" 0.02 ", " 9      ", " 2    ", " 75.00 ± 0.00 ", " 15.00 ± 0.00            "]
    written = files(plan, trials, study="s", storage="j", about={})
    assert written["search.json"]["best"]["number"] == 1
    assert [t["state"] for t in written["search.json"]["trials"]] == [t.state for t in trials]
    assert "\nlr = 0.02\n" in written["best.toml"]
    assert written["best.toml"].startswith(
        "# trial 1 of the study s: validation accuracy 75.00 ± 0.00 % over 2 seeds\n"
    )
    assert "best.toml" not in files(plan, [failed], study="s", storage="j", about={})
