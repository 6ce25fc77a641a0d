"""The pages run as they stand.

Of the README and every page of docs/, in the order of the page: a table (` ```csv ` below a line that names its file) is
written, Python is executed, and commands of `cvgnn` are run or, where a page is not in `RUN` or a line is indented, parsed. What a page says
about its output is compared by the function of `CHECKS` with its name.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

import cvgnn
from cvgnn.cli import diagnose_options, options
from cvgnn.cli.argv import parse
from cvgnn.cli.main import main
from cvgnn.config import REGISTERED
from cvgnn.training.tasks import METRICS, TASKS

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
RUN = {"start.md", "inductive.md", "tasks.md", "tasks_edges.md", "tasks_graphs.md"}
"""Pages whose commands are run, and not only parsed: they have their own small tables."""
NOT_RUN = {
    ("search.md", "from cvgnn.lab.search.tuner import tune"): "takes 20 minutes; examples/tune.py runs",
    ("synthetic.md", "from pathlib import Path"): "makes a graph of a million nodes",
    ("synthetic.md", "import statistics, sys"): "is a script that trains on the large synthetic graphs",
}
"""Python blocks that are not run, by page and first line, and why."""
ELSEWHERE = {
    "sklearn.md": "test_sklearn_estimators.py",
    "pyg.md": "nn/test_pyg_script.py",
    "export.md": "export/test_dense_part.py",
}
"""Pages whose Python other tests run: those need what the blocks define."""
BLOCK = re.compile(r"(?:`([\w/]+\.csv)`[^`]*\n\n)?^```(\w+)\n(.*?)^```$|^    (cvgnn [^\n]*)$", re.DOTALL | re.MULTILINE)


@dataclass
class Result:
    """What a page did."""

    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "page"})
    python: list[str] = field(default_factory=list)
    """What each Python block printed."""
    commands: list[str] = field(default_factory=list)
    """What each command printed."""


def commands_of(language: str, text: str) -> Iterator[list[str]]:
    """The arguments of the commands in a block: those after `$` on a console, all lines of a script."""
    text = text.replace("\\\n", " ")
    start = r"\$ " if language == "console" else ""
    for command in re.findall(rf"^{start}cvgnn (.*)$", text, flags=re.MULTILINE):
        words = shlex.split(re.split(r" 2?> | 2>| \| ", command)[0], comments=True)
        if words and not words[0].startswith("-") and "--help" not in words:
            yield words


def check_options(words: list[str]) -> None:
    """Every option of the command exists, and has the number of values that it is given."""
    of_main = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for option in ("--plugin", "--config"):
        of_main.add_argument(option)
    for flag in ("--json", "--quiet", "--verbose"):
        of_main.add_argument(flag, action="store_true")
    name, *argv = of_main.parse_known_args(words)[1]
    if name == "diagnose":
        kind, *argv = argv
        names = {"estimator": "Estimator", "history": "History", "bias-vs-lr": "Bias", "rate": "Rate", "bound": "Bound"}
        command: Any = getattr(diagnose_options, f"{names[kind]}Command")
        parse(command, argv, prog="cvgnn")
        return
    command = getattr(options, f"{name.capitalize()}Command")
    parse(command, argv, prog="cvgnn", flags=command.flags)


def run_page(page: Path, capsys: pytest.CaptureFixture[str]) -> Result:
    """Go through the blocks of a page, in the current folder."""
    result = Result()
    for name, language, text, command in BLOCK.findall(page.read_text(encoding="utf-8")):
        if language == "csv" and name:
            Path(name).parent.mkdir(exist_ok=True)
            Path(name).write_text(text, encoding="utf-8")
        elif language == "python":
            if page.name in ELSEWHERE or (page.name, text.partition("\n")[0]) in NOT_RUN:
                continue
            exec(compile(text, page.name, "exec"), result.names)
            result.python.append(capsys.readouterr().out)
        elif command or language in {"console", "sh"}:
            for words in commands_of("sh" if command else language, f"{command or text}\n"):
                if command or page.name not in RUN:
                    check_options(words)
                    continue
                assert main(words) == 0, words
                result.commands.append(capsys.readouterr().out)
    return result


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")  # on import of PyG
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    for kind in REGISTERED:
        monkeypatch.setitem(REGISTERED, kind, {})
    torch.manual_seed(0)
    result = run_page(page, capsys)
    if page.name in CHECKS:
        CHECKS[page.name](result, page.read_text(encoding="utf-8"))


def test_what_is_not_run_is_there() -> None:
    """An exception that no page needs any more is taken off the list."""
    for name, first in NOT_RUN:
        assert f"```python\n{first}\n" in (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert {page.name for page in PAGES} >= {*RUN, *CHECKS}
    for name, test in ELSEWHERE.items():
        assert name in (ROOT / "tests" / test).read_text(encoding="utf-8")


def test_a_wrong_option_is_found() -> None:
    for words in (["train", "--nonsense", "1"], ["diagnose", "history", "--nonsense", "1"]):
        with pytest.raises(SystemExit):
            check_options(words)


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def file_rows(name: str) -> list[dict[str, str]]:
    return rows_of(Path(name).read_text(encoding="utf-8"))


def check_readme(result: Result, text: str) -> None:
    assert 0.6 < float(result.python[0]) < 0.8
    assert result.names["classes"].shape == (3,)
    assert result.names["embeddings"].shape == (3327, 64)


def check_start(result: Result, text: str) -> None:
    rows = file_rows("predictions.csv")
    assert [row["node"] for row in rows][:2] == ["ann", "bob"]
    assert {row["class"] for row in rows} == {"family", "business"}
    known = [row for row in rows if row["label"]]
    assert len(known) == 12
    assert all(row["class"] == row["label"] for row in known)
    assert {row["node"]: row["class"] for row in rows if not row["label"]} == {"eve": "family", "leo": "business"}
    assert "'ann': 'family'" in result.python[0]


def check_custom(result: Result, text: str) -> None:
    assert len(result.python[0].splitlines()) == 2
    assert 0.6 < float(result.python[1]) < 0.8


def check_inductive(result: Result, text: str) -> None:
    new = file_rows("new.csv")
    assert [row["node"] for row in new] == ["kim", "leo"]
    assert {row["class"] for row in new} <= {"news", "sport"}
    # The same as a graph with all of them in its tables, without any label.
    Path("whole").mkdir()
    unlabelled = [row.rpartition(",")[0] for row in Path("town/nodes.csv").read_text().splitlines()]
    more = Path("new_nodes.csv").read_text().splitlines()[1:]
    Path("whole/nodes.csv").write_text("\n".join([*unlabelled, *more]))
    Path("whole/edges.csv").write_text(
        Path("town/edges.csv").read_text() + Path("new_edges.csv").read_text().partition("\n")[2]
    )
    assert main(["predict", "run", "--graph", "whole", "--out", "whole.csv"]) == 0
    everyone = {row["node"]: row for row in file_rows("whole.csv")}
    assert len(everyone) == 12
    for row in new:
        assert everyone[row["node"]]["class"] == row["class"]
        assert float(everyone[row["node"]]["probability"]) == pytest.approx(float(row["probability"]), abs=1e-6)
    assert torch.equal(result.names["logits"].argmax(dim=1), result.names["classes"])


def check_layers(result: Result, text: str) -> None:
    lines = result.python[0].splitlines()
    assert len(lines) == 20
    assert float(lines[-1].split()[2]) > 0.5  # far above the sixth that is chance
    model, features, P, graph = (result.names[name] for name in ("model", "features", "P", "graph"))
    layer, head = model.layer(0), model.layer(1)
    X, M = graph.x.to_dense(), P.dense()
    with torch.no_grad():  # exact inference against the formula written out
        H = torch.relu(layer.norm((M @ X + layer.share * X) @ layer.weight + layer.bias))
        expected = (M @ H + head.share * H) @ head.weight + head.bias
        assert abs(float(layer.share)) > 1e-3
    torch.testing.assert_close(cvgnn.exact_logits(model, features, P), expected, rtol=0, atol=1e-4)


def check_tasks(result: Result, text: str) -> None:
    found = [json.loads(Path(f"runs/{run}/result.json").read_text())["task"] for run in "abc"]
    assert found == ["node", "multilabel", "regression"]
    assert "expected calibration error" in result.commands[1]
    labels, numbers = rows_of(result.commands[3]), rows_of(result.commands[5])
    assert [row["label"] for row in labels] == ["news|sport", "art"]
    assert labels[0].keys() == {"node", "labels", "label", "split", "p_art", "p_news", "p_sport"}
    assert [float(row["label"]) for row in numbers] == [310.5, 90.0]
    assert all(0 < float(row["prediction"]) < 400 for row in numbers)
    assert result.python == ["multilabel torch.Size([2, 3]) torch.Size([2, 3])\n"]
    rows = re.findall(r"^\| `(\w+)` \|.*\| (`.*`) \|$", text, flags=re.MULTILINE)
    assert {name: tuple(re.findall(r"\w+", metrics)) for name, metrics in rows} == {
        name: task.metrics for name, task in TASKS.items() if name in ("node", "multilabel", "regression")
    }
    assert {metric for _, metrics in rows for metric in re.findall(r"\w+", metrics)} <= METRICS.keys()


def check_tasks_edges(result: Result, text: str) -> None:
    said, labelled = result.python
    assert float(re.findall(r"test AUC (\S+),", said)[0]) > 0.75
    same, other = (float(number) for number in re.findall(r"tensor\(\[(\S+), (\S+)\]\)", said)[0])
    assert same > other
    rows = file_rows("scores.csv")
    assert [row["target"] for row in rows] == ["p4", "p1"]
    assert [float(row["probability"]) for row in rows] == pytest.approx([same, other], abs=1e-4)
    assert float(re.findall(r"test accuracy (\S+)", labelled)[0]) > 0.9
    assert "tensor([1, 0])" in labelled or "tensor([0, 1])" in labelled  # one of the two has more
    assert "by class, on the test edges" in "".join(result.commands)
    rows = file_rows("classes.csv")
    assert list(rows[0]) == ["source", "target", "class", "probability", "p_fraud", "p_ok"]
    assert (rows[-1]["source"], rows[-1]["target"]) == ("dan", "ann")


def check_tasks_graphs(result: Result, text: str) -> None:
    graphs, accuracy, classes = result.python[0].splitlines()
    assert f"    {graphs}\n" in text
    assert float(accuracy.split()[-1]) >= 0.95
    assert f"    {classes}\n" in text
    assert "by class, on the test graphs" in "".join(result.commands)
    rows = file_rows("graphs.csv")
    assert [(row["graph"], row["label"], row["split"]) for row in rows] == [
        ("m4", "base", "test"),
        ("m1", "acid", "train"),
    ]


CHECKS: dict[str, Callable[[Result, str], None]] = {
    "README.md": check_readme,
    "start.md": check_start,
    "custom.md": check_custom,
    "inductive.md": check_inductive,
    "layers.md": check_layers,
    "tasks.md": check_tasks,
    "tasks_edges.md": check_tasks_edges,
    "tasks_graphs.md": check_tasks_graphs,
}
