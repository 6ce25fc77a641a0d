"""Settings over their seeds, and their tables in Markdown, LaTeX and JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cvgnn.config import GraphSource
from cvgnn.errors import CvgnnError
from cvgnn.lab.recipes import paper_recipe
from cvgnn.lab.reproduction import PAPER_NOTE, PaperPlan
from cvgnn.lab.sweep import Job, Outcome
from cvgnn.lab.sweep.result_tables import as_json, booktabs, marked, prepare, ranks, rows, tex
from cvgnn.lab.sweep.summary import group_by_setting

PLAN = PaperPlan(datasets=("cora",))
ABOUT: dict[str, Any] = {"command": "c", "machine": {}}


def outcome(
    seed: int, accuracy: float | None, dataset: str = "cora", optimizer: str = "adam", **changes: Any
) -> Outcome:
    """A run of a cell of Table 5; without an accuracy it failed."""
    config = replace(paper_recipe(dataset, optimizer, run=seed), threads=1, **changes)
    job = Job(GraphSource(dataset=dataset), config, f"{dataset}-{optimizer}-{seed}", f"{dataset} seed={seed}")
    if accuracy is None:
        return Outcome(job, "failed", None, "diverged")
    result = {"dataset": dataset, "val_accuracy": accuracy, "test_accuracy": accuracy - 0.1}
    return Outcome(
        job, "done", {**result, "max_test_accuracy": accuracy, "train_seconds": 2.0, "eval_seconds": 0.5}, None
    )


def balanced(latex: str) -> bool:
    """Whether what LaTeX would stumble over first is in order: environments, braces, math, cells of a line."""
    plain = latex
    for escaped in (r"\\", r"\%", r"\_", r"\&", r"\#", r"\$", r"\{", r"\}"):
        plain = plain.replace(escaped, "")
    lines = [line for line in latex.splitlines() if line.endswith(r"\\")]
    columns = {line.replace(r"\&", "").count("&") for line in lines}
    begun = [part.split("}")[0] for part in latex.split(r"\begin{")[1:]]
    ended = [part.split("}")[0] for part in latex.split(r"\end{")[1:]]
    return (
        latex.isascii()
        and sorted(begun) == sorted(ended)
        and plain.count("{") == plain.count("}")
        and plain.count("$") % 2 == 0
        and not set("#_^~") & set(plain)
        and all(line.endswith("%") or "%" not in line for line in plain.splitlines())
        and len(columns) == 1
    )


def test_numbers_stand_beside_their_seeds_when_a_run_failed() -> None:
    (setting,) = group_by_setting([outcome(2, 0.8), outcome(0, None), outcome(1, 0.7)])
    table = as_json(setting)
    assert table["seeds"] == [1, 2]
    assert table["runs"] == ["cora-adam-1", "cora-adam-2"]
    assert table["max_test_accuracy"] == [0.7, 0.8]
    assert table["failures"] == ["diverged"]
    assert (table["train_seconds"], table["eval_seconds"], table["eval_seconds_mean"]) == ([2.0, 2.0], [0.5, 0.5], 0.5)
    assert setting.seconds == 2.5


def test_best_bold_and_second_underlined() -> None:
    assert ranks({"a": "1.0"}) == {"a": 1}
    assert ranks({"a": "3.1 ± 0.2", "b": "0.5", "c": "1e+03"}, larger_is_better=False) == {"a": 2, "b": 1, "c": 0}
    assert marked({"a": "70.00", "b": "71.00 ± 0.50", "c": "69.00"}) == {
        "a": r"\underline{70.00}",
        "b": r"\textbf{71.00} $\pm$ 0.50",
        "c": "69.00",
    }


def test_a_table_in_latex() -> None:
    table = booktabs(["a", "b_"], [[tex("x%"), "1"], [], [tex("{y}\\"), "2"]], caption="C", label="l")
    assert r"a & b\_\\" in table
    assert "x\\% & 1\\\\\n\\midrule\n\\{y\\}" in table
    assert balanced(table)
    assert not balanced(table.replace(r"x\%", "x%"))
    assert not balanced(table.replace(r"\end{tabular}", ""))


def test_table_5_in_latex_has_all_of_a_cell() -> None:
    runs = [outcome(s, 0.8 + 0.01 * s) for s in (0, 1)] + [outcome(0, 0.82, optimizer="sgd")]
    runs += [outcome(0, 0.5, dataset="pubmed", optimizer="sgd"), outcome(0, None, dataset="citeseer")]
    latex = PLAN.files(runs, ABOUT)["table.tex"]
    first, second, details = latex.split("\n\n")
    assert all(map(balanced, (first, second, details)))
    assert r"cora & \underline{80.50} $\pm$ 0.71 & \textbf{82.00}\\" in first
    assert r"pubmed & -- & \textbf{50.00}\\" in first
    assert r"cora & \underline{70.50} $\pm$ 0.71 & \textbf{72.00}\\" in second
    both = r"\underline{80.50} $\pm$ 0.71 & $+0.30$ & \underline{70.50} $\pm$ 0.71 & 2 & 2.5\\"
    assert rf"cora & adam & \underline{{80.20}} & {both}" in details
    assert r" & sgd & \textbf{80.73} & \textbf{82.00} & $+1.27$ & \textbf{72.00} & 1 & 2.5\\" in details
    assert r"pubmed & sgd & -- & \textbf{50.00} & -- & \textbf{40.00} & 1 & 2.5\\" in details
    assert "citeseer" not in latex


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, None),
        ({"scheme": "released"}, None),
        ({"epochs": 5, "estimator": "ns"}, "(estimator=ns, epochs=5)"),
        ({"form": "paper"}, "(form=paper)"),
    ],
)
def test_another_experiment_than_the_papers_is_marked(changes: dict[str, Any], words: str | None) -> None:
    runs = [outcome(seed, 0.8, **changes) for seed in (0, 1)]
    files = PLAN.files(runs, ABOUT)
    texts = [
        files["table.md"],
        files["table.json"]["note"],
        PLAN.note(group_by_setting(runs)),
        *files["table.tex"].split("\n\n"),
    ]
    for text in texts:
        assert text.count("Not the paper's experiment") == (words is not None)
        assert words is None or words in text
    only_pubmed = [outcome(0, 0.8, dataset="pubmed", **changes)]
    assert PLAN.note(group_by_setting(only_pubmed)) == PAPER_NOTE  # there is no number of the paper's to compare with


def test_the_table_while_it_grows() -> None:
    ended = [outcome(0, 0.8), outcome(1, 0.7), outcome(0, None, optimizer="sgd")]
    jobs = [o.job for o in (*ended, outcome(1, None, optimizer="sgd"), outcome(0, None, dataset="pubmed"))]
    assert rows(PLAN.live_columns, group_by_setting([], jobs)) == [
        ["cora", "adam", "80.20", "-", "-", "0/2"],
        ["cora", "sgd", "80.73", "-", "-", "0/2"],
        ["pubmed", "adam", "-", "-", "-", "0/1"],
    ]
    assert rows(PLAN.live_columns, group_by_setting(ended, jobs)) == [
        ["cora", "adam", "80.20", "75.00 ± 7.07", "65.00 ± 7.07", "2/2"],
        ["cora", "sgd", "80.73", "-", "-", "1/2 (1 failed)"],
        ["pubmed", "adam", "-", "-", "-", "0/1"],
    ]


def test_what_could_not_be_run_is_written_down() -> None:
    files = PLAN.files([outcome(0, 0.8)], ABOUT, missing=["reddit: no files"])
    assert "## Not run\n\n- reddit: no files" in files["table.md"]
    assert json.loads(json.dumps(files["table.json"]))["not_run"] == ["reddit: no files"]


def test_a_folder_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        prepare(tmp_path / "a" / "b", "runs")
    assert [path.name for path in (tmp_path / "a" / "b").rglob("*")] == ["runs"]
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(CvgnnError, match=r"cannot use .* as output folder: Not a directory; choose another --out"):
            prepare(path, "runs")

    def refuse(**options: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    with pytest.raises(CvgnnError, match=r"cannot use .* as output folder: Permission denied"):
        prepare(tmp_path / "a", "runs")
