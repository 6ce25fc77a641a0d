"""The model card: the run's own numbers with their protocol, and nothing that a name could break."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cvgnn.cli.main import main
from cvgnn.errors import CvgnnError
from cvgnn.export.model_card import model_card
from tests.serving.runs import small_graph, small_run


def test_numbers_and_protocol(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    assert main(["train", "--epochs", "3", "--hidden", "8", "--seed", "4", "--out", str(out), "--quiet"]) == 0
    capsys.readouterr()
    assert main(["card", str(out)]) == 0
    text = capsys.readouterr().out
    result = json.loads((out / "result.json").read_text())
    assert f"| at the best validation epoch, {result['best_epoch']} | {100 * result['test_accuracy']:.2f}% |" in text
    assert (
        f"chosen by the test set: optimistic, for comparison only | {100 * result['max_test_accuracy']:.2f}% |" in text
    )
    shown = " | ".join(f"{100 * result[f'output_{split}_macro_f1']:.2f}%" for split in ("train", "val", "test"))
    assert f"| macro_f1 | {shown} |" in text
    for line in (
        "| seed | 4 |",
        "| hidden | 8 |",
        "| graph | citeseer |",
        f"    cvgnn train --epochs 3 --hidden 8 --seed 4 --out {out} --quiet".removesuffix(" --quiet"),
        "| torch | 2.",
    ):
        assert line in text
    assert text.startswith("---\nlibrary_name: cvgnn\n")
    assert main(["card", str(out), "--out", str(tmp_path / "card.md")]) == 0
    assert (tmp_path / "card.md").read_text() == text
    assert main(["card", str(out), "--out", str(tmp_path / "card.md")]) == 2


def test_names_from_strangers(tmp_path: Path) -> None:
    names = ["a|b", "<script>\n# head", "`x`"]
    graph = small_graph(y=[names[i // 2 % 3] for i in range(60)], node_names=None)
    small_run(tmp_path / "run", graph=graph)
    text = model_card(tmp_path / "run")
    assert "<script>" not in text
    assert "\n# head" not in text
    assert "| a\\|b | " in text
    (tmp_path / "run" / "result.json").unlink()
    with pytest.raises(CvgnnError, match=r"result\.json is missing: the run is not finished"):
        model_card(tmp_path / "run")
