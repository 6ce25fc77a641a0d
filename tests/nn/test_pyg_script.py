"""docs/pyg.md: the script, and the same script with the five changed lines, as they stand there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

import cvgnn
from cvgnn.data.named.synthetic import generate, small_spec
from cvgnn.training.machine import thread_count

loaders = pytest.importorskip("torch_geometric.loader", reason="torch_geometric is not installed")

PAGE = (Path(__file__).parents[2] / "docs" / "pyg.md").read_text(encoding="utf-8")
SCRIPT, GRAPHS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
(DIFF,) = re.findall(r"```diff\n(.*?)```", PAGE, flags=re.DOTALL)


def changed(script: str, diff: str) -> str:
    """The script with each `-` line replaced by the `+` lines that follow it."""
    old: str | None = None
    for line in diff.splitlines(keepends=True):
        if line.startswith("-"):
            old = line[1:]
            assert script.count(old) == 1, old
            script = script.replace(old, "\0")
        elif line.startswith("+"):
            assert "\0" in script, line
            script = script.replace("\0", line[1:])
        elif not line.startswith("..."):
            script = script.replace("\0", "")  # a line that is left out
            assert line[1:] in script, line
    return script


class WholeGraph:
    """Stands in for `NeighborLoader`, which needs pyg-lib or torch-sparse: one batch of all nodes, training nodes first."""

    def __init__(
        self, data: Any, num_neighbors: list[int], *, input_nodes: Any, batch_size: int, shuffle: bool
    ) -> None:
        order = torch.cat([input_nodes.nonzero().flatten(), (~input_nodes).nonzero().flatten()])
        self.batch = data.clone()
        place = torch.empty_like(order)
        place[order] = torch.arange(len(order))
        self.batch.x, self.batch.y, self.batch.edge_index = data.x[order], data.y[order], place[data.edge_index]
        self.batch.batch_size = int(input_nodes.sum())

    def __iter__(self) -> Any:
        yield self.batch


def run(script: str, data: Any, epochs: int) -> tuple[float, float, float]:
    names: dict[str, Any] = {}
    exec(compile(script, "script", "exec"), names)
    torch.manual_seed(0)
    with thread_count(1):
        return names["main"](data, epochs)  # type: ignore[no-any-return]


def test_the_diff_changes_five_lines() -> None:
    removed = [line for line in DIFF.splitlines() if line.startswith("-")]
    assert len(removed) == 5
    assert "F.dropout" not in changed(SCRIPT, DIFF)


def test_both_scripts_run(monkeypatch: pytest.MonkeyPatch) -> None:
    data = cvgnn.to_pyg(generate(small_spec(1000)))
    _, ours, _ = run(changed(SCRIPT, DIFF), data, epochs=20)
    monkeypatch.setattr(loaders, "NeighborLoader", WholeGraph)
    _, theirs, _ = run(SCRIPT, data, epochs=20)
    assert ours > 0.6
    assert theirs > 0.6


def test_graphs_and_batches(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    exec(GRAPHS, names)
    edges, batch = names["edges"], names["batch"]
    assert capsys.readouterr().out == f"{edges}\n"
    P = torch.zeros(60, len(batch.inputs)).index_put_((edges.edge_index[1], edges.edge_index[0]), edges.edge_weight)
    torch.testing.assert_close(P.double(), batch.block(1).sampled.dense(len(batch.inputs)))
