"""A model card, in Markdown as the Hugging Face Hub shows it: data, settings, metrics and their protocol, origin."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from cvgnn.config import IN_MEMORY, GraphSource, TrainConfig
from cvgnn.data.split import SPLITS
from cvgnn.training.callbacks import format_metric
from cvgnn.training.run_folder import check_is_folder, read_object, read_settings
from cvgnn.training.tasks import METRICS
from cvgnn.utils.formatting import join_printable

_MOST_CLASSES = 100
_WHAT = {
    "node": "the class of a node", "multilabel": "the labels of a node", "regression": "numbers of a node",
    "edge": "the class of a pair of nodes", "link": "whether two nodes have an edge", "graph": "the class of a graph",
}  # fmt: skip


def model_card(run: Path) -> str:
    """The card of a finished run, from its config.json and result.json alone; the graph is not read."""
    check_is_folder(run)
    source, config = read_settings(run / "config.json")
    result = read_object(run / "result.json")
    name, task, metric = _name(source, result), str(result.get("task", "node")), str(result.get("metric", "accuracy"))
    classes = result.get("class_names")
    lines = ["---", "library_name: cvgnn", "tags:", "- graph-neural-network", f"- cvgnn-{_plain(task)}", "---", ""]
    lines += [f"# {_plain(config.model)} on {_plain(name)}", ""]
    lines += [
        f"A graph neural network ({_plain(config.model)}, {config.layers} layers) that predicts "
        f"{_WHAT.get(task, _plain(task))}. Trained with cvgnn {_plain(result.get('version'))}.",
        "", "## Data", "",
        *_table(["what", "value"], [
            ("graph", name), ("split", result.get("split")), ("features a node", result.get("num_features")),
            ("outputs", result.get("num_classes")),
            ("classes", None if not classes else join_printable(classes[:_MOST_CLASSES])),
        ]),
    ]  # fmt: skip
    lines += ["", "## Metrics", "", *_metrics(result, metric), "", "## Settings", ""]
    lines += ["Options that differ from the command line's defaults; `config.json` of the run has all.", ""]
    lines += _table(["option", "value"], _changed(config))
    machine = result.get("machine") if isinstance(result.get("machine"), dict) else {}
    lines += ["", "## Origin", "", "Command:", "", *_code(result.get("command") or "(from Python)"), ""]
    lines += _table(["what", "value"], [
        ("iterations", result.get("iterations")), ("epochs", result.get("epochs")), ("seed", config.seed),
        ("training, seconds", result.get("train_seconds")), ("threads", result.get("threads")),
        *(machine or {}).items(),
    ])  # fmt: skip
    return "\n".join([*lines, ""])


def _metrics(result: dict[str, Any], metric: str) -> list[str]:
    """The run's number by either protocol, and every metric of the weights that the run returned."""
    top = "max" if metric not in METRICS or METRICS[metric].larger_is_better else "min"
    best, highest = result.get(f"test_{metric}"), result.get(f"{top}_test_{metric}")
    lines = _table(
        ["protocol", f"test {metric}"],
        [
            (f"at the best validation epoch, {result.get('best_epoch')}", _value(metric, best)),
            ("best of all epochs, chosen by the test set: optimistic, for comparison only", _value(metric, highest)),
        ],
    )
    lines += ["", f"All metrics of the returned weights (output `{_plain(result.get('output'))}`):", ""]
    names = dict.fromkeys(
        key.removeprefix("output_").partition("_")[2]
        for key in result
        if key.startswith(tuple(f"output_{s}_" for s in SPLITS))
    )
    rows = [(name, *(_value(name, result.get(f"output_{split}_{name}")) for split in SPLITS)) for name in names]
    lines += _table(["metric", *SPLITS], rows)
    each = result.get("per_class")
    if isinstance(each, dict) and isinstance(each.get("f1"), list) and len(each["f1"]) <= _MOST_CLASSES:
        classes = result.get("class_names") or range(len(each["f1"]))
        columns = [[_value("f1", value) for value in each.get(name, [])] for name in ("precision", "recall", "f1")]
        lines += ["", f"By class, on the {_plain(each.get('split'))} items:", ""]
        lines += _table(["class", "precision", "recall", "f1"], zip(classes, *columns, strict=False))
    return lines


def _name(source: GraphSource, result: dict[str, Any]) -> str:
    # The name of a file, and not its path: a card is for others.
    if source.graph is not None:
        return source.graph.name
    return str(result.get("dataset") if source.dataset == IN_MEMORY else source.name)


def _changed(config: TrainConfig) -> list[tuple[str, Any]]:
    default = TrainConfig()
    names = [field.name for field in dataclasses.fields(TrainConfig)]
    changed = [(name, getattr(config, name)) for name in names if getattr(config, name) != getattr(default, name)]
    return [(name, "+".join(map(str, value)) if isinstance(value, tuple) else value) for name, value in changed]


def _value(metric: str, value: Any) -> str:
    if not isinstance(value, int | float):
        return "-"
    return format_metric(f"test_{metric}", value) if metric in METRICS else f"{value:.4f}"


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    kept = [row for row in rows if row[-1] is not None]
    return [_row(head), _row(["---"] * len(head)), *map(_row, kept)]


def _row(cells: Sequence[Any]) -> str:
    return f"| {' | '.join(map(_plain, cells))} |"


def _plain(value: Any) -> str:
    """A value from a file as text that Markdown shows as it is."""
    text = join_printable([value])[:2000].replace("&", "&amp;").replace("<", "&lt;")
    return "".join(f"\\{c}" if c in "\\|`*[]" else c for c in text)


def _code(text: Any) -> list[str]:
    return [f"    {join_printable([text])}"]  # an indented block has no mark that could end it
