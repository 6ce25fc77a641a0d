"""Trials in Optuna's storages: asked for, ended, released and taken over."""

from __future__ import annotations

import inspect
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cvgnn.errors import CvgnnError
from cvgnn.lab.search import study as study_file
from cvgnn.lab.search.search_space import parse_space
from cvgnn.lab.search.study import Study, Trial, hide_credentials, open_study, ranked

optuna = pytest.importorskip("optuna", reason="needs Optuna: pip install 'cvgnn[search]'")
sqlalchemy = pytest.importorskip("sqlalchemy", reason="comes with Optuna")

SPACE = parse_space(["lr=0.001..0.1:log", "hidden=8..64", "num_neighbors=2,10+5"])
SETTING = {"epochs": 3, "num_neighbors": "2,10+5", "runs": 2}
Captured = pytest.CaptureFixture[str]


@pytest.fixture(params=["journal", "sqlite"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "journal.log") if request.param == "journal" else f"sqlite:///{tmp_path / 'study.db'}"


@contextmanager
def opened(storage: str, *, setting: dict[str, Any] = SETTING, seed: int | None = None) -> Iterator[Study]:
    with open_study("mine", storage, space=SPACE, sampler_seed=seed) as study:
        study.check(setting, {"code": "1"}, warn=pytest.fail)
        yield study


def results(*accuracies: float) -> list[dict[str, Any]]:
    return [{"seed": i, "val_accuracy": a, "test_accuracy": 1 - a} for i, a in enumerate(accuracies)]


def states(study: Study) -> list[str]:
    return [trial.state for trial in study.trials()]


def test_a_trial_that_falls_behind_is_pruned(storage: str) -> None:
    with opened(storage) as study:
        study.prune_by_median(first_trials=1, first_epochs=2)
        study.enqueue({"lr": 0.05, "hidden": 16, "num_neighbors": "2"})
        good, bad = study.ask("me"), study.ask("me")
        assert good.params["lr"] == 0.05
        assert [study.falls_behind(good.number, value, epoch) for epoch, value in enumerate((0.5, 0.8, 0.9), 1)] == [
            False
        ] * 3
        study.complete(good.number, results(0.9))
        assert [study.falls_behind(bad.number, 0.3, epoch) for epoch in (1, 2, 3)] == [False, True, True]
        study.prune(bad.number)
        assert states(study) == ["complete", "pruned"]
        assert [trial.number for trial in ranked(study.trials())] == [0]


def test_trials_are_asked_for_and_ended(storage: str, capsys: Captured) -> None:
    verbosity = optuna.logging.get_verbosity()
    with opened(storage) as study:
        first, second = study.ask("me"), study.ask("me")
        assert 0.001 <= first.params["lr"] <= 0.1
        assert first.params["hidden"] in range(8, 65)
        assert first.params["num_neighbors"] in (2, "2", "10+5")
        assert (first.number, first.state, first.owner) == (0, "running", "me")
        study.complete(0, results(0.5, 0.7))
        study.fail(1, "it diverged")
        third = study.ask("me")
        with opened(storage) as other:  # another process
            assert states(other) == ["complete", "failed", "running"]
            done, failed, running = other.trials()
        assert (done.params, done.results) == (first.params, tuple(results(0.5, 0.7)))
        assert done.mean("val_accuracy") == pytest.approx(0.6)
        assert (failed.params, failed.reason, failed.results) == (second.params, "it diverged", ())
        assert (running.params, running.owner) == (third.params, "me")
        assert study.study.best_value == pytest.approx(0.6)  # of validation, never of test accuracy
    assert capsys.readouterr() == ("", "")
    assert optuna.logging.get_verbosity() == verbosity


def test_a_trial_that_is_given_back_is_the_next(storage: str) -> None:
    with opened(storage) as study, opened(storage) as other:
        trial = study.ask("me")
        assert study.release(trial)
        assert not other.release(trial)  # once is enough
        assert states(study) == ["interrupted", "waiting"]
        again = other.ask("you")
        assert (again.number, again.params, again.owner) == (1, trial.params, "you")
        other.complete(1, results(0.5))
        assert states(study) == ["interrupted", "complete"]


def test_a_seed_repeats_a_search_and_interruptions_change_nothing(tmp_path: Path) -> None:
    def params(name: str, *interrupted: int) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        while len(found) < 12:  # the first ten are drawn, the others chosen
            with opened(str(tmp_path / name), seed=5) as study:
                while len(found) < 12:
                    trial = study.ask("me")
                    if trial.number in interrupted:
                        study.release(trial)
                        break
                    study.complete(trial.number, results(abs(trial.params["hidden"] - 30) / 100))
                    found.append(trial.params)
        return found

    undisturbed = params("undisturbed")
    assert len({trial["lr"] for trial in undisturbed}) == 12
    assert params("rough", 0, 4, 12) == undisturbed
    with opened(str(tmp_path / "other"), seed=6) as study:
        assert study.ask("me").params != undisturbed[0]


def test_the_trial_of_a_dead_machine_is_taken_over(tmp_path: Path) -> None:
    """Where the storage has a heartbeat; one that has only been away learns it when it tells."""
    storage = f"sqlite:///{tmp_path / 'study.db'}"
    with opened(storage) as dead, opened(storage) as alive:
        trial = dead.ask("dead")
        assert alive.ask("alive").params != trial.params
        with sqlite3.connect(tmp_path / "study.db") as database:
            database.execute("UPDATE trial_heartbeats SET heartbeat = '2020-01-01 00:00:00' WHERE trial_id = 1")
        database.close()
        taken = alive.ask("alive")
        assert (taken.number, taken.params) == (2, trial.params)
        assert states(alive) == ["interrupted", "running", "running"]
        dead.complete(trial.number, results(0.5))
        assert states(alive) == ["interrupted", "running", "running"]
        alive.complete(taken.number, results(0.5))


def test_a_live_machine_sends_heartbeats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(f"sqlite:///{tmp_path / 'study.db'}") as study:
        study.ask("me")
        with sqlite3.connect(tmp_path / "study.db") as database:
            database.execute("UPDATE trial_heartbeats SET heartbeat = '2020-01-01 00:00:00'")
        study.heartbeat()  # not yet
        monkeypatch.setattr("cvgnn.lab.search.study._HEARTBEAT_SECONDS", 0)
        study.heartbeat()
        ((heartbeat,),) = database.execute("SELECT heartbeat FROM trial_heartbeats").fetchall()
        database.close()
        assert not heartbeat.startswith("2020-01-01 00:00:00")
        study.ask("me")
        assert states(study) == ["running", "running"]


def test_another_search_is_not_mixed_in(tmp_path: Path) -> None:
    storage = str(tmp_path / "journal.log")
    with opened(storage) as study:
        study.ask("me")
    with opened(storage):
        pass
    with pytest.raises(CvgnnError) as caught, opened(storage, setting={**SETTING, "epochs": 4}):
        pass
    assert str(caught.value).startswith("the study 'mine' in ")
    assert str(caught.value).endswith(
        " is another search: epochs was 3 and is 4. Use the same options, or another --study"
    )
    message: list[str] = []
    with open_study("mine", storage, space=SPACE) as study:
        study.check(SETTING, {"code": "2"}, warn=message.append)
    assert len(message) == 1
    assert message[0].endswith(" was started with other code or versions; its trials are kept")


def test_a_study_of_somebody_else_is_refused(tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path / 'study.db'}"
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    optuna.create_study(storage=storage, study_name="mine").ask()
    with pytest.raises(CvgnnError, match=r"was not made by cvgnn search; give another --study$"), opened(storage):
        pass


def test_trials_that_another_program_has_ended(tmp_path: Path) -> None:
    with opened(str(tmp_path / "j")) as study:
        study.study.tell(study.ask("me").number, 0.5)
        (trial,) = study.trials()
        assert (trial.state, trial.reason, trial.results) == ("failed", "unknown", ())


@pytest.mark.parametrize(
    ("storage", "message"),
    [
        ("sqlite:////no/such/folder/s.db", "cannot use sqlite:////no/such/folder/s.db for the study: (sqlite3.Op"),
        ("no/such/folder/j.log", "cannot use no/such/folder/j.log for the study: No such file or directory; check"),
        ("nosuch://me:secret@host/db", "cannot use nosuch://host/db for the study: Can't load plugin"),
        ("postgresql+none://me:secret@host/db", "cannot use postgresql+none://host/db for the study: "),
        ("://", "cannot use :// for the study: "),
    ],
)
def test_a_storage_that_cannot_be_used(storage: str, message: str) -> None:
    with pytest.raises(CvgnnError) as caught, opened(storage):
        pass
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_the_driver_of_a_storage_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymysql", None)
    with (
        pytest.raises(CvgnnError, match=r"cannot use mysql\+pymysql://host/db .* is missing \(pip install pymysql\)"),
        opened("mysql+pymysql://me:secret@host/db"),
    ):
        pass


def test_a_new_database_that_others_create_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    message = ["(1050, \"Table 'trials' already exists\")", "UNIQUE constraint failed"]

    class Unlucky(optuna.storages.RDBStorage):  # type: ignore[misc, name-defined]
        def __init__(self, *args: Any, **options: Any) -> None:
            if message:
                raise sqlalchemy.exc.OperationalError("CREATE TABLE", {}, Exception(message.pop()))
            super().__init__(*args, **options)

    monkeypatch.setattr(Unlucky, "__signature__", inspect.signature(optuna.storages.RDBStorage), raising=False)
    monkeypatch.setattr(optuna.storages, "RDBStorage", Unlucky)
    monkeypatch.setattr(study_file, "_ATTEMPT_SECONDS", 0.0)
    monkeypatch.setattr(study_file, "_ATTEMPTS", 3)
    storage = f"sqlite:///{tmp_path / 'study.db'}"
    with opened(storage) as study:
        assert study.trials() == []
    message += ["already exists"] * 3
    with pytest.raises(CvgnnError, match="already exists"), opened(storage):
        pass


def test_what_is_shown_of_a_storage() -> None:
    assert hide_credentials("mysql+pymysql://u:p@h:3306/d?password=x") == "mysql+pymysql://h:3306/d"
    assert hide_credentials("sqlite:///a@b.db") == "sqlite:///a@b.db"


def test_half_a_line_at_the_end_of_a_journal(tmp_path: Path) -> None:
    """A full disk leaves one; the trials before it are kept, and others can follow."""
    journal = tmp_path / "journal.log"
    with opened(str(journal)) as study:
        study.complete(study.ask("me").number, results(0.5))
    with journal.open("ab") as file:
        file.write(b'{"op_code": 4, "work')
    for expected in (1, 2):
        with opened(str(journal)) as study:
            assert states(study) == ["complete"] * expected
            study.complete(study.ask("me").number, results(0.5))
    lines = journal.read_bytes().splitlines()
    journal.write_bytes(b"\n".join([*lines[:3], b"nonsense", *lines[3:]]) + b"\n")
    damaged = pytest.raises(CvgnnError, match=r"^cannot use .*journal.log for the study: Expecting value")
    with damaged, opened(str(journal)):
        pass


def test_without_optuna(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with (
        pytest.raises(CvgnnError, match=r"^cvgnn search needs the package optuna: pip install 'cvgnn\[search\]'$"),
        opened(str(tmp_path / "j")),
    ):
        pass


def test_a_trial_has_means_and_deviations() -> None:
    trial = Trial(number=0, state="complete", params={}, results=tuple(results(0.5, 0.7)))
    assert trial.mean("test_accuracy") == pytest.approx(0.4)
    assert trial.deviation("val_accuracy") == pytest.approx(0.02**0.5)
