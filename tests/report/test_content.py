"""Grouping, curves and tables, against numbers computed by hand."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from cvgnn.cli.options import parse
from cvgnn.cli.train import TrainCommand
from cvgnn.config import GraphSource
from cvgnn.experiments.recipes import PAPER_OPTIMIZERS
from cvgnn.report import Report, build, collect
from cvgnn.report.charts import MOST_POINTS, curve, thinned
from cvgnn.report.colors import CURVES, DASHES, contrast, heat_color, look, text_color
from cvgnn.report.lines import colors, lines
from cvgnn.report.origin import repeat
from cvgnn.report.settings import best, by_dataset, group, in_words, varying
from cvgnn.report.tables import Table
from tests.report.folders import write_methods, write_run, write_sweep


def report_on(*folders: Path) -> Report:
    return build(collect(folders))


def texts(table: Table | None) -> list[list[str]]:
    assert table is not None
    return [[cell.text for cell in row] for row in table.rows]


def test_runs_that_differ_in_their_seed_are_one_setting(tmp_path: Path) -> None:
    for seed, lr in ((1, 0.1), (0, 0.1), (0, 0.2)):
        write_run(tmp_path / f"{lr}-{seed}", seed=seed, lr=lr, val=(0.5, 0.6 + 0.1 * seed, 0.5))
    settings, older = group(collect([tmp_path]).runs)
    assert older == 0
    assert [(s.options["lr"], [run.config.seed for run in s.runs]) for s in settings] == [(0.1, [0, 1]), (0.2, [0])]
    assert varying(settings) == ["lr"]
    assert settings[0].mean("val_accuracy") == pytest.approx(0.65)
    assert settings[0].deviation("val_accuracy") == pytest.approx(0.1 / 2**0.5)
    assert settings[1].deviation("val_accuracy") is None


def test_a_curve_is_the_mean_with_the_lowest_and_the_highest(tmp_path: Path) -> None:
    write_run(tmp_path / "0", val=(0.2, 0.4, 0.9), test=(0, 0, 0), seed=0)
    write_run(tmp_path / "1", val=(0.4, 0.8), test=(0, 0), seed=1, epochs=3, finished=False)
    (setting,), _ = group(collect([tmp_path]).runs)
    found = curve(setting, lambda r: r.accuracies.val if r.accuracies else None)
    assert (found.x, found.runs) == ([1, 2, 3], [2, 2, 1])
    assert found.mean == pytest.approx([0.3, 0.6, 0.9])
    assert (found.low, found.high) == ([0.2, 0.4, 0.9], [0.4, 0.8, 0.9])
    by_time = curve(setting, lambda r: r.loss, seconds=True)
    assert by_time.x == [0.5, 1.0, 1.5]
    (figure, *_) = report_on(tmp_path).figures
    assert "2 runs, seeds 0, 1; unfinished after epoch 2" in figure.views[0].rows[0].notes[0][2]


def test_long_curves_keep_their_extremes() -> None:
    values = [0.5] * 5000
    values[1234], values[4321] = 0.9, 0.1
    keep = thinned(values, MOST_POINTS)
    assert {0, 1234, 4321, 4999} <= set(keep)
    assert len(keep) <= MOST_POINTS + 2
    assert keep == sorted(keep)


def test_what_makes_a_curve(tmp_path: Path) -> None:
    settings, _ = group(collect([write_sweep(tmp_path / "sweep")]).runs)
    (part,) = by_dataset(settings)
    names = varying(settings)
    by_validation, by_test = lines(part, names, "validation"), lines(part, names, "test")
    assert [(line.label, line.among) for line in by_validation] == [("adam", 4), ("sgd", 4)]
    assert in_words(by_validation[0].setting, ["lr", "batch_size"]) == "lr=0.05, batch_size=20"
    assert in_words(by_test[0].setting, ["lr", "batch_size"]) == "lr=0.01, batch_size=10"
    only = [s for s in part if s.options["optimizer"] == "sgd"]
    assert [line.label for line in lines(only, varying(only), "validation")] == [
        "lr=0.01, batch_size=10", "lr=0.01, batch_size=20", "lr=0.05, batch_size=10", "lr=0.05, batch_size=20",
    ]  # fmt: skip
    assert colors({"x": "x", "sgd": "sgd", "adam": "adam"}) == {"adam": 0, "sgd": 1, "x": 2}


def test_methods_are_told_apart(tmp_path: Path) -> None:
    for number, estimator in enumerate(("cv", "ns")):
        for optimizer in ("adam", "sgd"):
            write_run(tmp_path / f"{number}{optimizer}", estimator=estimator, optimizer=optimizer)
    report = report_on(tmp_path)
    labels = [c.label for c in report.figures[0].views[0].rows[0].panels[0].curves]
    assert labels == ["adam, estimator=cv", "adam, estimator=ns", "sgd, estimator=cv", "sgd, estimator=ns"]
    assert [row[0] for row in texts(report.table_5) if len(row) == 1] == [
        "citeseer, estimator=cv",
        "citeseer, estimator=ns",
    ]
    assert len(report.figures[0].views) == 1
    assert report.appendix_b == report.heat == []


def test_of_too_many_curves_the_best_are_drawn(tmp_path: Path) -> None:
    for number in range(13):
        write_run(tmp_path / f"{number}", lr=0.01 * (number + 1), val=(0.1, 0.2 + 0.01 * number, 0.1))
    figure = report_on(tmp_path).figures[0]
    labels = [c.label for c in figure.views[0].rows[0].panels[0].curves]
    assert labels == [f"lr={0.01 * (n + 1):g}" for n in range(3, 13)]
    assert "Left out: 3 of 13 curves on citeseer; the best are drawn" in figure.caption


def test_every_optimizer_has_a_curve(tmp_path: Path) -> None:
    write_methods(tmp_path, ("cv", "ns", "exact"))
    figure = report_on(tmp_path).figures[0]
    curves = figure.views[0].rows[0].panels[0].curves
    assert len(curves) == 10
    assert [c.label for c in curves if c.label.startswith("adagrad")] == ["adagrad, estimator=exact"]  # its best
    assert {c.label.split(",")[0] for c in curves} == set(PAPER_OPTIMIZERS)
    assert (
        "Left out: 5 of 15 curves on citeseer; the best are drawn, at least one of every optimizer." in figure.caption
    )
    few = report_on(write_methods(tmp_path / "few", ("cv", "ns"))).figures[0]
    assert len(few.views[0].rows[0].panels[0].curves) == 10
    assert "Left out" not in few.caption


def test_all_curves_look_different() -> None:
    assert len({look(number) for number in range(64)}) == 64
    five = {f"{o}{rest}": o for rest in ("", ", b", ", c") for o in reversed(PAPER_OPTIMIZERS)}
    looks = {label: look(number) for label, number in colors(five).items()}
    assert len(set(looks.values())) == 15
    for label, (color, dash) in looks.items():  # the color is the optimizer, the dash what else differs
        assert color == PAPER_OPTIMIZERS.index(five[label])
        assert dash == ["", ", b", ", c"].index(label.removeprefix(five[label]))
    for many in (9, 18, 64):  # settings of one method
        found = [look(number) for number in colors({f"lr={i}": f"lr={i}" for i in range(many)}).values()]
        assert len(set(found)) == many
        assert found == sorted(found)  # the order of the legend


def test_table_5(tmp_path: Path) -> None:
    tuned = {"hidden": 32, "norm": "layer", "epochs": 100}
    for seed, optimizer, top in ((0, "adam", 0.70), (1, "adam", 0.72), (0, "sgd", 0.60), (0, "amsgrad", 0.70)):
        write_run(tmp_path / f"{optimizer}{seed}", optimizer=optimizer, seed=seed, test=(0.5, top - 0.1, top), **tuned)
    write_run(tmp_path / "half", optimizer="adagrad", finished=False, **tuned)
    report = report_on(tmp_path)
    assert report.table_5 is not None
    assert report.table_5.header == ["", "adam", "amsgrad", "sgd"]
    assert texts(report.table_5) == [
        ["citeseer"],
        ["published", "69.00", "69.07", "70.97"],
        ["ours, paper's protocol", "71.00 ± 1.41", "70.00", "60.00"],
        ["ours, validation protocol", "61.00 ± 1.41", "60.00", "50.00"],
    ]
    ours = report.table_5.rows[2]
    assert [cell.rank for cell in ours] == [0, 1, 2, 0]
    assert [cell.small for cell in ours[1:]] == [
        "+2.00 to the paper, 2 runs",
        "+0.93 to the paper, 1 run",
        "-10.97 to the paper, 1 run",
    ]
    assert report.table_5.notes == []
    assert report.warnings == ["1 run unfinished: shown with the epochs they have, and not counted in tables."]


def test_table_5_says_what_is_not_the_papers(tmp_path: Path) -> None:
    write_run(tmp_path / "a", hidden=32, norm="layer", epochs=3)
    table = report_on(tmp_path).table_5
    assert table is not None
    assert table.notes == [
        "citeseer: other than in the recipes of the paper (cvgnn reproduce --list): epochs 3 instead of 100."
    ]
    write_run(tmp_path / "b", hidden=32, norm="layer", epochs=100, optimizer="sgd")
    table = report_on(tmp_path).table_5
    assert table is not None
    assert table.notes == [
        "citeseer: other than in the recipes of the paper (cvgnn reproduce --list) in 1 of 2 settings: epochs 3 instead of 100."
    ]


def test_a_graph_that_the_paper_does_not_have(tmp_path: Path) -> None:
    write_run(tmp_path / "a", source=GraphSource(graph=tmp_path / "mine.npz"), name="mine")
    assert texts(report_on(tmp_path).table_5) == [
        ["mine"], ["ours, paper's protocol", "80.00"], ["ours, validation protocol", "60.00"],
    ]  # fmt: skip


def test_appendix_b(tmp_path: Path) -> None:
    (table,) = report_on(write_sweep(tmp_path)).appendix_b
    assert table.header[:4] == ["optimizer", "chosen by", "lr", "batch_size"]
    # Seeds 0 and 1 differ by 0.01, so every deviation is 0.01 / sqrt(2). By validation: 0.62 + 0.005; its test is 0.275.
    assert texts(table)[:3] == [
        ["adam", "the paper", "0.01", "10", "-", "-", "69.00", "3", "-"],
        ["", "validation accuracy", "0.05", "20", "62.50 ± 0.71", "27.50 ± 0.71", "29.50 ± 0.71", "2", "4"],
        ["", "test accuracy (the paper's way)", "0.01", "10", "50.50 ± 0.71", "39.50 ± 0.71", "41.50 ± 0.71", "2", "4"],
    ]  # fmt: skip
    assert [row[0] for row in texts(table)] == ["adam", "", "", "sgd", "", ""]


def test_heat_maps(tmp_path: Path) -> None:
    (heat,) = report_on(write_sweep(tmp_path)).heat
    assert [(m.method, m.title, m.x_name, m.x, m.y_name, m.y) for m in heat.maps] == [
        (o, "", "lr", ["0.01", "0.05"], "batch_size", ["10", "20"]) for o in ("adam", "sgd")
    ]
    squares = [[square for square in row if square is not None] for row in heat.maps[0].squares]
    assert [[round(s.value, 3) for s in row] for row in squares] == [[0.505, 0.605], [0.525, 0.625]]
    assert [[s.best for s in row] for row in squares] == [[False, False], [False, True]]
    assert [[s.paper for s in row] for row in squares] == [[True, False], [False, False]]  # lr 0.01, 2 neighbors, 10


def test_heat_maps_of_three_options_and_of_one(tmp_path: Path) -> None:
    for lr in (0.1, 0.2, 0.3):
        for neighbors in (2, 5):
            for size in (10, 20):
                if (lr, size) != (0.3, 20):
                    write_run(
                        tmp_path / "a" / f"{lr}{neighbors}{size}", lr=lr, num_neighbors=neighbors, batch_size=size
                    )
    (heat,) = report_on(tmp_path / "a").heat
    assert [(m.title, m.x_name, m.y_name) for m in heat.maps] == [
        (f"num_neighbors={n}", "lr", "batch_size") for n in (2, 5)
    ]
    assert [[s is None for s in row] for row in heat.maps[0].squares] == [[False] * 3, [False, False, True]]
    write_run(tmp_path / "a" / "longer", lr=0.1, num_neighbors=2, batch_size=10, epochs=4)
    (with_single,) = report_on(tmp_path / "a").heat
    assert [m.title for m in with_single.maps] == [f"num_neighbors={n}, epochs=3" for n in (2, 5)]
    assert "Combinations with a single setting are not drawn." in with_single.caption
    for lr in (0.1, 0.2):
        write_run(tmp_path / "b" / str(lr), lr=lr)
    (heat,) = report_on(tmp_path / "b").heat
    assert [(m.x, m.y_name, m.y, len(m.squares)) for m in heat.maps] == [(["0.1", "0.2"], "", [""], 1)]


def test_settings_with_unfinished_runs_are_not_chosen(tmp_path: Path) -> None:
    write_run(tmp_path / "a", lr=0.1, val=(0.5, 0.5, 0.5))
    write_run(tmp_path / "b", lr=0.2, val=(0.9, 0.9, 0.9))
    write_run(tmp_path / "c", lr=0.2, seed=1, finished=False)
    settings, _ = group(collect([tmp_path]).runs)
    found = best(settings, by="validation")
    assert found is not None
    assert found.options["lr"] == 0.1


def test_the_command_that_repeats_a_run(tmp_path: Path) -> None:
    options = {"num_neighbors": (10, 5), "layers": 3, "bias": False, "lr": 0.02, "seed": 3, "clip_norm": 0.5}
    source = GraphSource(dataset="cora", root=tmp_path / "a folder")
    (run,) = collect([write_run(tmp_path / "a", source=source, **options)]).runs
    line = repeat(run)
    assert "'" in line  # quoted, because of the blank
    program, train, *words = shlex.split(line)
    assert (program, train) == ("cvgnn", "train")
    command = parse(TrainCommand, words, prog="cvgnn train")
    assert (command.config, command.source) == (run.config, run.source)


def test_commands_and_machines_behind_the_runs(tmp_path: Path) -> None:
    write_sweep(tmp_path / "sweep")
    write_run(tmp_path / "alone", seed=7, result={"machine": {"processor": "Other"}})
    write_run(tmp_path / "python", seed=8, result={"machine": None, "command": None})
    report = report_on(tmp_path)
    commands = {row[1]: row for row in texts(report.commands)}
    assert {command: row[2] for command, row in commands.items()} == {
        "cvgnn sweep --grid lr=0.01,0.05": "16",
        "cvgnn train --out here": "1",
    }
    assert sorted(row[1] for row in texts(report.machines)) == ["Other", "Test CPU"]
    runs = {row[-2]: row for row in texts(report.runs)}
    assert runs[str(tmp_path / "alone")][-4] == commands["cvgnn train --out here"][0]
    assert runs[str(tmp_path / "python")][-4:-2] == ["Python", "not recorded"]


def test_colors_can_be_read() -> None:
    assert len(CURVES) == len(set(CURVES)) == len(DASHES) == len(set(DASHES))
    assert min(contrast(color, "#ffffff") for color in CURVES) >= 3
    for step in range(101):
        color = heat_color(step / 100, 0, 1)
        assert contrast(color, text_color(color)) >= 4.5
    assert json.dumps(DASHES)


def test_the_axis_may_begin_above_the_first_epochs(tmp_path: Path) -> None:
    values = [0.1, 0.3, *(0.7 + 0.01 * (i % 3) for i in range(38))]
    write_run(tmp_path / "a", val=values, test=values)
    report = report_on(tmp_path)
    for panel in report.figures[0].views[0].rows[0].panels[1:]:
        assert panel.floor == pytest.approx(0.7)
    assert "the axis begins above them" in report.figures[0].caption
    assert report.figures[1].views[0].rows[0].panels[0].floor is None
    write_run(tmp_path / "b", val=values[:5], test=values[:5])
    assert report_on(tmp_path / "b").figures[0].views[0].rows[0].panels[1].floor is None
