"""Find run folders and read them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from cvgnn.config import GraphSource
from cvgnn.errors import CvgnnError
from cvgnn.lab.report import collect
from cvgnn.lab.report.run_groups import group_runs
from tests.lab.report.folders import MACHINE, write, write_run, write_sweep


def test_a_run_folder(tmp_path: Path) -> None:
    (run,) = collect([write_run(tmp_path / "a", optimizer="sgd", seed=4)]).runs
    assert (run.dataset, run.config.optimizer, run.config.seed, run.state) == ("citeseer", "sgd", 4, "finished")
    assert [record.epoch for record in run.records] == [1, 2, 3]
    assert (run.command, dict(run.machine or ())) == ("cvgnn train --out here", MACHINE)


def test_a_sweep_gives_its_runs_command_and_machine(tmp_path: Path) -> None:
    found = collect([write_sweep(tmp_path)])
    assert len(found.runs) == 16
    assert not found.skipped
    assert {run.command for run in found.runs} == {"cvgnn sweep --grid lr=0.01,0.05"}
    (tmp_path / "table.json").write_text("{", encoding="utf-8")
    assert {run.command for run in collect([tmp_path]).runs} == {None}
    (tmp_path / "search.json").write_text('{"command": "cvgnn search --space lr=0.01..0.1"}', encoding="utf-8")
    assert {run.command for run in collect([tmp_path]).runs} == {"cvgnn search --space lr=0.01..0.1"}


def test_folders_below_are_searched_once(tmp_path: Path) -> None:
    write_run(tmp_path / "x" / "y" / "run")
    write_run(tmp_path / "x" / ".hidden" / "run", seed=1)
    write_run(tmp_path / "x" / "checkpoints" / "run", seed=2)
    write_run(tmp_path / "x" / "1" / "2" / "3" / "4" / "too deep", seed=3)
    os.symlink(tmp_path, tmp_path / "x" / "y" / "around")
    found = collect([tmp_path / "x", tmp_path / "x" / "y", tmp_path / "x" / "y" / "run"])
    assert [run.path.name for run in found.runs] == ["run"]


def test_unfinished_runs_are_read(tmp_path: Path) -> None:
    cut = write_run(tmp_path / "cut", finished=False)
    with (cut / "metrics.jsonl").open("a") as file:
        file.write('{"epoch": 4, "iter')  # being written
    begun = write_run(tmp_path / "begun", finished=False, seed=1)
    (begun / "metrics.jsonl").unlink()
    given_up = write_run(tmp_path / "failed", finished=False, seed=2)
    write(given_up / "failure.json", {"reason": "it diverged"})
    runs = {run.path.name: run for run in collect([tmp_path]).runs}
    assert {name: (run.state, len(run.records)) for name, run in runs.items()} == {
        "begun": ("unfinished", 0),
        "cut": ("unfinished", 3),
        "failed": ("failed", 3),
    }
    assert runs["failed"].failure == "it diverged"


def edit(name: str, old: str, new: str) -> Callable[[Path], object]:
    def damage(folder: Path) -> object:
        text = (folder / name).read_text(encoding="utf-8")
        assert old in text
        return (folder / name).write_text(text.replace(old, new, 1), encoding="utf-8")

    return damage


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (edit("metrics.jsonl", '"epoch": 2', '"epoch"'), "metrics.jsonl, line 2: "),
        (edit("metrics.jsonl", '"epoch": 2', '"epoch": 1'), "line 2: its numbers cannot be an epoch's"),
        (edit("metrics.jsonl", '"test_accuracy": 0.4', '"test_accuracy": 4.0'), "line 1: its numbers cannot be"),
        (edit("metrics.jsonl", '"loss": 1.0', '"loss": NaN'), "line 1: NaN is no number in JSON; the file is damaged"),
        (edit("metrics.jsonl", '"loss": 1.0, ', ""), "line 1: a record lacks 'loss'; the file is damaged"),
        (edit("metrics.jsonl", '"loss": 1.0', '"loss": 1e300'), "line 1: its numbers cannot be an epoch's"),
        (edit("result.json", '"peak_rss_bytes": ', '"peak_rss_bytes": -'), "result.json: peak_rss_bytes is -314572800; the file"),
        (edit("config.json", '"lr"', '"rate"'), "config.json: unknown option 'rate'"),
        (edit("config.json", "{", "["), "config.json is not valid JSON"),
        (edit("result.json", '"val_accuracy": 0.7', '"val_accuracy": "0.7"'), "result.json: val_accuracy is '0.7'; the file"),
        (edit("result.json", "}", ""), "result.json is not valid JSON"),
    ],
)  # fmt: skip
def test_damaged_runs_are_skipped_with_a_message(
    tmp_path: Path, damage: Callable[[Path], object], message: str
) -> None:
    write_run(tmp_path / "good")
    damage(write_run(tmp_path / "bad", seed=1))
    found = collect([tmp_path])
    assert [run.path.name for run in found.runs] == ["good"]
    assert len(found.skipped) == 1
    assert message in found.skipped[0]
    with pytest.raises(CvgnnError, match=r"none of the 1 runs in .* can be read; the first: .*json"):
        collect([tmp_path / "bad"])


def test_nothing_to_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(
        CvgnnError, match=r"^no runs in .*; give folders that cvgnn train --out, sweep or reproduce has"
    ):
        collect([tmp_path])
    with pytest.raises(CvgnnError, match=r"^there is no folder .*nothing; give folders"):
        collect([tmp_path / "nothing"])


def test_options_of_the_split_are_in_the_name(tmp_path: Path) -> None:
    one, other = (GraphSource(graph=tmp_path / f"{n}" / "mine.npz", split_seed=3) for n in (1, 2))
    write_run(tmp_path / "a", source=one, name="mine", finished=False)
    assert [run.dataset for run in collect([tmp_path]).runs] == ["mine (split_seed=3)"]
    write_run(tmp_path / "b", source=other, name="mine")
    names = sorted(run.dataset for run in collect([tmp_path]).runs)
    assert names == [f"mine (split_seed=3) ({tmp_path}/{n}/mine.npz)" for n in (1, 2)]


def test_of_equal_runs_the_newest_finished_one_counts(tmp_path: Path) -> None:
    for number, finished in enumerate((True, True, False)):
        folder = write_run(tmp_path / str(number), finished=finished, val=(0.1 * number, 0.5, 0.5))
        for file in folder.iterdir():
            os.utime(file, (number, number))
    settings, older = group_runs(collect([tmp_path]).runs)
    assert [run.path.name for setting in settings for run in setting.runs] == ["1"]
    assert older == 2
