"""Grouping, curves and tables, against numbers computed by hand."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from cvgnn.cli.argv import parse
from cvgnn.cli.options import TrainCommand
from cvgnn.config import GraphSource
from cvgnn.lab.recipes import PAPER_OPTIMIZERS
from cvgnn.lab.report import Report, build, collect, render
from cvgnn.lab.report.charts import MAX_POINTS, Chart, Panel, ParallelPanel, kept_points
from cvgnn.lab.report.colors import COLORS, DARK_COLORS, DASHES, curve_style, heat_color, luminance, text_color
from cvgnn.lab.report.report_tables import AccuracyTable
from cvgnn.lab.report.run_groups import Choice, RunGroup, best, by_dataset, group_runs, variant_options, varying
from cvgnn.lab.report.training_charts import CurveCandidate, candidates, curve_styles, mean_curve, select
from cvgnn.lab.report.typesetting import as_html, typeset
from tests.lab.report.folders import section, write_methods, write_run, write_search, write_sweep
from tests.lab.report.pages import Page


def report_on(*folders: Path) -> Report:
    return build(collect(folders))


def charts_of(*folders: Path) -> list[Chart]:
    return [chart for section in report_on(*folders).sections for chart in section.charts]


def table_of(report: Report, key: str = "table5") -> AccuracyTable:
    table = section(report, key).accuracies
    assert table is not None
    return table


def tables_in(report: Report, key: str) -> list[list[list[str]]]:
    """The texts of a section's tables in the page, header first."""
    return Page(render(report, title="", command="")).tables[key]


def drawn(groups: list[RunGroup], by: Choice) -> list[CurveCandidate]:
    return select(candidates(groups, variant_options(groups), by), by)


def test_runs_that_differ_in_their_seed_are_one_setting(tmp_path: Path) -> None:
    for seed, lr in ((1, 0.1), (0, 0.1), (0, 0.2)):
        write_run(tmp_path / f"{lr}-{seed}", seed=seed, lr=lr, val=(0.5, 0.6 + 0.1 * seed, 0.5))
    settings, older = group_runs(collect([tmp_path]).runs)
    assert older == 0
    assert [(s.options["lr"], [run.config.seed for run in s.runs]) for s in settings] == [(0.1, [0, 1]), (0.2, [0])]
    assert varying(settings) == ["lr"]
    assert settings[0].mean("val_accuracy") == pytest.approx(0.65)
    assert settings[0].text("val_accuracy") == "65.00 ± 7.07"  # 0.1 / sqrt(2)
    assert settings[1].text("val_accuracy") == "60.00"


def test_a_number_of_threads_that_was_chosen_by_itself_is_no_other_setting(tmp_path: Path) -> None:
    write_run(tmp_path / "given", seed=0)
    write_run(tmp_path / "chosen", seed=1, threads=None)
    (setting,), _ = group_runs(collect([tmp_path]).runs)
    assert setting.options["threads"] == 1
    assert "--threads 1" in setting.runs[1].repeat_command


def test_a_curve_is_the_mean_with_the_lowest_and_the_highest(tmp_path: Path) -> None:
    write_run(tmp_path / "0", val=(0.2, 0.4, 0.9), test=(0, 0, 0), seed=0)
    write_run(tmp_path / "1", val=(0.4, 0.8), test=(0, 0), seed=1, epochs=3, finished=False)
    (setting,), _ = group_runs(collect([tmp_path]).runs)
    found = mean_curve(setting, lambda r: r.metrics["val_accuracy"])
    assert (found.x, found.runs) == ([1, 2, 3], [2, 2, 1])
    assert found.mean == pytest.approx([0.3, 0.6, 0.9])
    assert (found.low, found.high) == ([0.2, 0.4, 0.9], [0.4, 0.8, 0.9])
    by_time = mean_curve(setting, lambda r: r.loss, seconds=True)
    assert by_time.x == [0.5, 1.0, 1.5]
    chart = charts_of(tmp_path)[0]
    assert "2 runs, seeds 0, 1; unfinished after epoch 2" in chart.views[0].rows[0].panels[0].curves[0].note


def test_long_curves_keep_their_extremes() -> None:
    values = [0.5] * 5000
    values[1234], values[4321] = 0.9, 0.1
    keep = kept_points(values, MAX_POINTS)
    assert {0, 1234, 4321, 4999} <= set(keep)
    assert len(keep) <= MAX_POINTS + 2
    assert keep == sorted(keep)


def test_curve_candidates(tmp_path: Path) -> None:
    settings, _ = group_runs(collect([write_sweep(tmp_path / "sweep")]).runs)
    (part,) = by_dataset(settings)
    by_validation, by_test = drawn(part, "validation"), drawn(part, "test")
    assert [(line.label, line.settings) for line in by_validation] == [("adam", 4), ("sgd", 4)]
    assert by_validation[0].group.describe(["lr", "batch_size"]) == "learning rate 0.05, batch size 20"
    assert by_test[0].group.describe(["lr", "batch_size"]) == "learning rate 0.01, batch size 10"
    only = [s for s in part if s.options["optimizer"] == "sgd"]
    assert [line.label for line in drawn(only, "validation")] == [
        "learning rate 0.01, batch size 10", "learning rate 0.01, batch size 20", "learning rate 0.05, batch size 10", "learning rate 0.05, batch size 20",
    ]  # fmt: skip
    assert curve_styles({"x": "x", "sgd": "sgd", "adam": "adam"}) == {"adam": (0, 0), "sgd": (1, 1), "x": (2, 2)}


def test_methods_have_different_labels(tmp_path: Path) -> None:
    for number, estimator in enumerate(("cv", "ns")):
        for optimizer in ("adam", "sgd"):
            write_run(tmp_path / f"{number}{optimizer}", estimator=estimator, optimizer=optimizer)
    report = report_on(tmp_path)
    labels = [c.label for c in section(report, "accuracy").charts[0].views[0].rows[0].panels[0].curves]
    assert labels == ["adam, estimator cv", "adam, estimator ns", "sgd, estimator cv", "sgd, estimator ns"]
    assert [row[0] for row in tables_in(report, "accuracies")[0] if len(row) == 1] == [
        "citeseer, estimator cv",
        "citeseer, estimator ns",
    ]
    assert len(section(report, "accuracy").charts[0].views) == 1
    assert not {"appendix-b", "heat"} & {section.key for section in report.sections}


def test_of_too_many_curves_the_best_are_drawn(tmp_path: Path) -> None:
    for number in range(13):
        write_run(tmp_path / f"{number}", lr=0.01 * (number + 1), val=(0.1, 0.2 + 0.01 * number, 0.1))
    figure = charts_of(tmp_path)[0]
    labels = [c.label for c in figure.views[0].rows[0].panels[0].curves]
    assert labels == [f"learning rate {0.01 * (n + 1):g}" for n in range(3, 13)]
    assert "Left out: 3 of 13 curves on citeseer; the best are drawn" in figure.caption


def test_every_optimizer_has_a_curve(tmp_path: Path) -> None:
    write_methods(tmp_path, ("cv", "ns", "exact"))
    figure = charts_of(tmp_path)[0]
    curves = figure.views[0].rows[0].panels[0].curves
    assert len(curves) == 10
    assert [c.label for c in curves if c.label.startswith("adagrad")] == ["adagrad, estimator exact"]  # its best
    assert {c.label.split(",")[0] for c in curves} == set(PAPER_OPTIMIZERS)
    assert (
        "Left out: 5 of 15 curves on citeseer; the best are drawn, at least one of every optimizer." in figure.caption
    )
    few = charts_of(write_methods(tmp_path / "few", ("cv", "ns")))[0]
    assert len(few.views[0].rows[0].panels[0].curves) == 10
    assert "Left out" not in few.caption


def test_all_curves_look_different() -> None:
    assert len({curve_style(number) for number in range(64)}) == 64
    five = {f"{o}{rest}": o for rest in ("", ", b", ", c") for o in reversed(PAPER_OPTIMIZERS)}
    looks = curve_styles(five)
    assert len(set(looks.values())) == 15
    for label, (color, dash) in looks.items():  # the color is the optimizer, the dash what else differs
        assert color == PAPER_OPTIMIZERS.index(five[label])
        assert dash == ["", ", b", ", c"].index(label.removeprefix(five[label]))
    for many in (9, 18, 64):  # settings of one method
        found = list(curve_styles({f"lr={i}": f"lr={i}" for i in range(many)}).values())
        assert len(set(found)) == many
        assert found == sorted(found)  # the order of the legend


def test_table_5(tmp_path: Path) -> None:
    tuned = {"estimator": "cv", "hidden": 32, "norm": "layer", "epochs": 100}
    for seed, optimizer, top in ((0, "adam", 0.70), (1, "adam", 0.72), (0, "sgd", 0.60), (0, "amsgrad", 0.70)):
        write_run(tmp_path / f"{optimizer}{seed}", optimizer=optimizer, seed=seed, test=(0.5, top - 0.1, top), **tuned)
    write_run(tmp_path / "half", optimizer="adagrad", finished=False, **tuned)
    report = report_on(tmp_path)
    table = table_of(report)
    assert table.optimizers == ["adam", "amsgrad", "sgd"]
    assert tables_in(report, "table5")[0][1:] == [
        ["citeseer"],
        ["published", "69.00", "69.07", "70.97"],
        ["ours, paper's protocol", "71.00 ± 1.41", "70.00", "60.00"],
        ["ours, validation protocol", "61.00 ± 1.41", "60.00", "50.00"],
    ]
    ours = list((table.rows[2][1] or {}).values())
    assert [cell.rank for cell in ours] == [1, 2, 0]
    assert [cell.small for cell in ours] == [
        "+2.00 to the paper, 2 runs",
        "+0.93 to the paper, 1 run",
        "-10.97 to the paper, 1 run",
    ]
    assert table.notes == []
    assert report.warnings == ["1 run unfinished: shown with the epochs they have, and not counted in tables."]


def test_table_5_has_the_papers_settings_only(tmp_path: Path) -> None:
    write_run(tmp_path / "a", estimator="cv", hidden=32, norm="layer", epochs=3)
    report = report_on(tmp_path)
    assert "table5" not in [part.key for part in report.sections]
    table = table_of(report, "accuracies")
    assert table.notes == [
        "citeseer: other than in the recipes of the paper (cvgnn reproduce --list): epochs 3 instead of 100."
    ]
    assert "published" not in [name.text for name, _ in table.rows]
    write_run(tmp_path / "b", estimator="cv", hidden=32, norm="layer", epochs=100, optimizer="sgd")
    report = report_on(tmp_path)
    assert table_of(report).optimizers == ["sgd"]
    assert table_of(report).notes == []
    assert table_of(report, "accuracies").optimizers == ["adam"]


def test_a_graph_that_the_paper_does_not_have(tmp_path: Path) -> None:
    write_run(tmp_path / "a", source=GraphSource(graph=tmp_path / "mine.npz"), name="mine")
    assert tables_in(report_on(tmp_path), "accuracies")[0][1:] == [
        ["mine"], ["ours, paper's protocol", "80.00"], ["ours, validation protocol", "60.00"],
    ]  # fmt: skip


def test_appendix_b(tmp_path: Path) -> None:
    ((header, *rows),) = tables_in(report_on(write_sweep(tmp_path)), "appendix-b")
    assert header[:4] == ["optimizer", "chosen by", "learning rate", "batch size"]
    # Seeds 0 and 1 differ by 0.01, so every deviation is 0.01 / sqrt(2). By validation: 0.62 + 0.005; its test is 0.275.
    assert rows[:3] == [
        ["adam", "the paper", "0.01", "10", "-", "-", "69.00", "3", "-"],
        ["", "validation accuracy", "0.05", "20", "62.50 ± 0.71", "27.50 ± 0.71", "29.50 ± 0.71", "2", "4"],
        ["", "test accuracy (the paper's way)", "0.01", "10", "50.50 ± 0.71", "39.50 ± 0.71", "41.50 ± 0.71", "2", "4"],
    ]  # fmt: skip
    assert [row[0] for row in rows] == ["adam", "", "", "sgd", "", ""]


def test_heat_maps(tmp_path: Path) -> None:
    (heat,) = section(report_on(write_sweep(tmp_path)), "heat").heat_maps
    assert [(o, m.title, m.x_name, m.x, m.y_name, m.y) for o, several in heat.methods.items() for m in several] == [
        (o, "", "learning rate", ["0.01", "0.05"], "batch size", ["10", "20"]) for o in ("adam", "sgd")
    ]
    squares = [[square for square in row if square is not None] for row in heat.methods["adam"][0].rows]
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
    (heat,) = section(report_on(tmp_path / "a"), "heat").heat_maps
    assert [(m.title, m.x_name, m.y_name) for m in heat.methods["adam"]] == [
        (f"neighbors {n}", "learning rate", "batch size") for n in (2, 5)
    ]
    assert [[s is None for s in row] for row in heat.methods["adam"][0].rows] == [[False] * 3, [False, False, True]]
    write_run(tmp_path / "a" / "longer", lr=0.1, num_neighbors=2, batch_size=10, epochs=4)
    (with_single,) = section(report_on(tmp_path / "a"), "heat").heat_maps
    assert [m.title for m in with_single.methods["adam"]] == [f"neighbors {n}, epochs 3" for n in (2, 5)]
    assert "Combinations with a single setting are not drawn." in with_single.caption
    for lr in (0.1, 0.2):
        write_run(tmp_path / "b" / str(lr), lr=lr)
    (heat,) = section(report_on(tmp_path / "b"), "heat").heat_maps
    assert [(m.x, m.y_name, m.y, len(m.rows)) for m in heat.methods["adam"]] == [(["0.1", "0.2"], "", [""], 1)]


def test_a_random_search_has_charts_of_its_own(tmp_path: Path) -> None:
    report = report_on(write_search(tmp_path))
    assert "heat" not in [part.key for part in report.sections]
    scatter, parallel = section(report, "searched").charts
    (row,) = scatter.views[0].rows
    panels = [panel for panel in row.panels if isinstance(panel, Panel)]
    assert [(p.x_label, p.log_x, p.points) for p in panels] == [
        ("learning rate", True, True), ("hidden units", False, True), ("dropout", False, True),
    ]  # fmt: skip
    assert [(c.label, len(c.x)) for c in panels[0].curves] == [("adam", 6), ("sgd", 6)]
    assert panels[0].curves[1].x[0] == 0.001
    (plot,) = parallel.views[0].rows[0].panels
    assert isinstance(plot, ParallelPanel)
    assert [axis.name for axis in plot.axes] == [
        "optimizer", "learning rate", "hidden units", "dropout", "validation accuracy in %",
    ]  # fmt: skip
    assert plot.axes[0].ticks == [(0.0, "adam"), (1.0, "sgd")]
    assert plot.axes[3].ticks == [(round((v - 0.04) / 0.55, 4), f"{v:g}") for v in (0.1, 0.2, 0.3, 0.4, 0.5)]
    assert len(plot.lines) == 12
    assert [line.best for line in plot.lines] == [False] * 11 + [True]
    assert (plot.lines[-1].at[-1], plot.lines[-1].share, plot.lines[0].at[-1]) == (1.0, 1.0, 0.0)
    assert plot.lines[-1].label.endswith("hidden units 44, dropout 0.59: 51.00 %")


def test_curves_that_share_a_color_name_what_differs(tmp_path: Path) -> None:
    for number, estimator in enumerate(("cv", "ns")):
        for optimizer in PAPER_OPTIMIZERS:
            lr = 0.1 if (number, optimizer) == (1, "sgd") else 0.01
            write_run(tmp_path / f"{number}{optimizer}", estimator=estimator, optimizer=optimizer, lr=lr)
    labels = [c.label for c in charts_of(tmp_path)[0].views[0].rows[0].panels[0].curves]
    assert [label for label in labels if label.startswith("sgd")] == [
        "sgd, estimator cv, learning rate 0.01", "sgd, estimator ns, learning rate 0.1",
    ]  # fmt: skip
    assert "adam, estimator cv" in labels


def test_options_in_words_and_mathematics_in_symbols() -> None:
    group = RunGroup((), "cora", {"residual": False, "bias": True, "beta1": 0.9}, ())
    assert group.describe(["residual", "bias", "beta1"]) == "no residual, bias, β₁ 0.9"
    assert typeset("||E[G] - grad F(W_t)|| <= 2.5e-03") == "‖E[G] − ∇F(W_{t})‖ ≤ 2.5 × 10^{−3}"
    assert typeset("alpha <grad F, grad F / sqrt(V)>, H^(k), P^, -1/2") == "α ⟨∇F, ∇F / √V⟩, H^{(k)}, P̂, −1/2"
    for text in ("num_neighbors", "without-replacement", "x_y.npz", "2024-01-02", "a - b"):
        assert typeset(text) == text
    assert str(as_html("<i>W_t</i>")) == "&lt;i&gt;W<sub>t</sub>&lt;/i&gt;"


def test_settings_with_unfinished_runs_are_not_chosen(tmp_path: Path) -> None:
    write_run(tmp_path / "a", lr=0.1, val=(0.5, 0.5, 0.5))
    write_run(tmp_path / "b", lr=0.2, val=(0.9, 0.9, 0.9))
    write_run(tmp_path / "c", lr=0.2, seed=1, finished=False)
    settings, _ = group_runs(collect([tmp_path]).runs)
    found = best(settings, by="validation")
    assert found is not None
    assert found.options["lr"] == 0.1


def test_the_command_that_repeats_a_run(tmp_path: Path) -> None:
    options = {"num_neighbors": (10, 5), "layers": 3, "bias": False, "lr": 0.02, "seed": 3, "clip_norm": 0.5}
    source = GraphSource(dataset="cora", root=tmp_path / "a folder")
    (run,) = collect([write_run(tmp_path / "a", source=source, **options)]).runs
    line = run.repeat_command
    assert "'" in line  # quoted, because of the blank
    program, train, *words = shlex.split(line)
    assert (program, train) == ("cvgnn", "train")
    command = parse(TrainCommand, words, prog="cvgnn train")
    assert (command.config, command.source) == (run.config, run.source)


def test_commands_and_machines_behind_the_runs(tmp_path: Path) -> None:
    write_sweep(tmp_path / "sweep")
    write_run(tmp_path / "alone", seed=7, result={"machine": {"processor": "Other"}})
    write_run(tmp_path / "python", seed=8, result={"machine": None, "command": None})
    tables = tables_in(report_on(tmp_path), "origin")
    command_rows, machines, settings, run_rows = (rows for _, *rows in tables)
    commands = {row[1]: row for row in command_rows}
    assert {command: row[2] for command, row in commands.items()} == {
        "cvgnn sweep --grid lr=0.01,0.05": "16",
        "cvgnn train --out here": "1",
    }
    assert sorted(row[1] for row in machines) == ["Other", "Test CPU"]
    assert len(settings) == 9
    label = "optimizer adam, learning rate 0.01, batch size 10"
    assert settings[0][:6] == ["citeseer", label, "accuracy", "2", "0, 1", "50.50 ± 0.71"]
    runs = {row[-2]: row for row in run_rows}
    assert len(runs) == 18
    assert runs[str(tmp_path / "alone")][1:13] == [
        "adam", "7", "finished", "3", "2", "70.00", "60.00", "80.00", "1.50", "0.30", "300", "1",
    ]  # fmt: skip
    assert runs[str(tmp_path / "alone")][-4] == commands["cvgnn train --out here"][0]
    assert runs[str(tmp_path / "python")][-4:-2] == ["Python", "not recorded"]


def contrast(one: str, other: str) -> float:
    """The contrast of two colors as WCAG 2 defines it, from 1 to 21."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_colors_can_be_read() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert len(COLORS) == len(set(COLORS)) == len(DARK_COLORS) == len(DASHES) == len(set(DASHES))
    assert min(contrast(color, "#ffffff") for color in COLORS) >= 3
    for step in range(101):
        color = heat_color(step / 100, 0, 1)
        assert contrast(color, text_color(color)) >= 4.5
    assert json.dumps(DASHES)


def test_the_axis_may_start_above_the_first_epochs(tmp_path: Path) -> None:
    values = [0.1, 0.3, *(0.7 + 0.01 * (i % 3) for i in range(38))]
    write_run(tmp_path / "a", val=values, test=values)
    report = report_on(tmp_path)
    accuracy, loss = (section(report, key).charts[0] for key in ("accuracy", "loss"))
    for panel in accuracy.views[0].rows[0].panels[1:]:
        assert panel.span == pytest.approx((0.7, 0.72))
    assert render(report, title="", command="").count("the y axis starts above them") == 2  # not for the loss
    assert loss.views[0].rows[0].panels[0].span is None
    write_run(tmp_path / "b", val=values[:5], test=values[:5])
    assert charts_of(tmp_path / "b")[0].views[0].rows[0].panels[1].span is None
