"""Histories in a mapped file: the same bits, resumed either way, nothing left behind."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
import torch

import cvgnn
from cvgnn.config import TrainConfig
from cvgnn.data.named.synthetic import generate, small_spec
from cvgnn.errors import CvgnnError
from cvgnn.training.machine import estimate_memory

OPTIONS = {"batch_size": 64, "hidden": 16, "layers": 3, "num_neighbors": 2, "seed": 1, "history_dtype": "bfloat16"}


def weights(run: cvgnn.Run) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in run.model.parameters()])


def test_the_same_bits_and_resumed_from_one_to_the_other(tmp_path: Path) -> None:
    graph = generate(small_spec(600))
    memory = cvgnn.fit(graph, epochs=3, **OPTIONS)
    disk = cvgnn.fit(graph, epochs=3, histories="disk", out=tmp_path / "disk", **OPTIONS)
    assert torch.equal(weights(disk), weights(memory))
    assert sorted(p.name for p in (tmp_path / "disk").iterdir() if not p.name.startswith(".")) == [
        "checkpoints", "config.json", "metrics.jsonl", "result.json", "weights.safetensors",
    ]  # fmt: skip
    cvgnn.fit(graph, epochs=1, histories="disk", out=tmp_path / "part", **OPTIONS)
    resumed = cvgnn.fit(graph, epochs=3, histories="memory", resume=tmp_path / "part", **OPTIONS)
    assert torch.equal(weights(resumed), weights(memory))


def test_reading_ahead_reads_every_row() -> None:
    """The kernel reads what it is told to: a page of the first row, and the end of the last."""
    from cvgnn.ops.history_write import touch_rows

    table = torch.arange(3 * 5000, dtype=torch.int64).remainder(251).to(torch.uint8).view(3, 5000).numpy()
    expected = sum(int(table[i, c]) for i in (0, 2) for c in (0, 4096, 4999))
    assert touch_rows(table, torch.tensor([0, 2]).numpy()) == expected


def test_the_estimate_leaves_them_out() -> None:
    graph = generate(small_spec(600))
    configs = [TrainConfig(histories=where) for where in ("memory", "disk")]  # type: ignore[arg-type]
    needed = [estimate_memory(graph, config)["histories"] for config in configs]
    assert needed[0] > 0 == needed[1]


def test_what_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = generate(small_spec(600))
    with pytest.raises(CvgnnError, match="histories on disk need device='cpu'"):
        cvgnn.fit(graph, histories="disk", device="meta")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with pytest.raises(CvgnnError, match=r"cannot map a new file of .* No such file or directory; choose memory"):
        cvgnn.fit(graph, epochs=1, histories="disk", **OPTIONS)
