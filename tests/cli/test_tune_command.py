"""`cvgnn tune`: the defaults first, then others, for so many minutes; stopped and continued."""

from __future__ import annotations

import dataclasses
import json
import signal
from pathlib import Path
from typing import Any

import pytest

from cvgnn import load
from cvgnn.cli.main import main
from cvgnn.config import TrainConfig
from cvgnn.data import Graph
from cvgnn.errors import CvgnnError
from cvgnn.lab.search.search_space import check_space, parse_space
from cvgnn.lab.search.study import Trial
from cvgnn.lab.search.tuner import tune, tuning_space
from cvgnn.training import EpochRecord
from cvgnn.training.defaults import FEW_LABELS, default_options
from tests.build import graph_from_dense, random_adjacency

pytest.importorskip("optuna", reason="needs Optuna: pip install 'cvgnn[search]'")

SMALL = {"epochs": 2, "hidden": 4, "layers": 2}
WORDS = ["tune", "--set", "epochs=2", "hidden=4", "layers=2", "--minutes", "0.005", "--sampler-seed", "1"]
DENSE = graph_from_dense(random_adjacency(6 * FEW_LABELS, mean_degree=4, weighted=False, seed=3))


def test_it_starts_with_the_defaults_and_ends_with_a_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "t"
    assert main([*WORDS, "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert f"train with: cvgnn train --settings {out / 'best.toml'} --out DIR\n" in printed
    found = json.loads((out / "search.json").read_text(encoding="utf-8"))
    fixed = TrainConfig(weight_decay=5e-3, feature_norm="l2")  # the defaults for few labels
    first = found["trials"][0]["options"]
    assert {**first, "num_neighbors": fixed.num_neighbors} == {name: getattr(fixed, name) for name in first}
    assert first.keys() >= {"lr", "dropout", "model", "norm"}
    assert not first.keys() & SMALL.keys()
    best = max(t["val_accuracy_mean"] for t in found["trials"] if t["state"] == "complete")
    assert found["best"]["val_accuracy_mean"] == best

    assert main(["train", "--settings", str(out / "best.toml"), "--out", str(tmp_path / "run")]) == 0
    result = json.loads((tmp_path / "run" / "result.json").read_text(encoding="utf-8"))
    assert result["val_accuracy"] == best

    assert main([*WORDS, "--out", str(out)]) == 0  # goes on
    more = json.loads((out / "search.json").read_text(encoding="utf-8"))
    ended = [t for t in found["trials"] if t["state"] in ("complete", "pruned")]
    assert more["trials"][: len(ended)] == ended
    assert main(["tune", "--set", "epochs=3", "hidden=4", "layers=2", "--out", str(out)]) == 2
    assert "is another search: epochs" in capsys.readouterr().err
    assert main(["tune", "--minutes", "0", "--out", str(out)]) == 2
    assert "--minutes must be a number above 0" in capsys.readouterr().err


def test_a_signal_interrupts_a_trial_which_the_next_call_continues(tmp_path: Path) -> None:
    graph, seen = load("citeseer"), []

    def stop_in_the_second(record: EpochRecord) -> None:
        seen.append(record.epoch)
        if seen == [1, 2, 1]:
            signal.raise_signal(signal.SIGINT)

    options: dict[str, Any] = {"options": SMALL, "sampler_seed": 1}
    stopped = tune(graph, tmp_path, minutes=10, on_epoch=stop_in_the_second, **options)
    assert stopped.stopped == signal.SIGINT
    assert [t.state for t in stopped.trials] == ["complete", "interrupted", "waiting"]
    ended: list[Trial] = []
    found = tune(graph, tmp_path, minutes=0.005, on_trial=ended.append, **options)
    assert found.stopped is None
    states = [t.state for t in found.trials]
    assert states[:3] in (["complete", "interrupted", "complete"], ["complete", "interrupted", "interrupted"])
    assert found.trials[2].params == found.trials[1].params
    assert found.config is not None
    assert (found.config.hidden, found.config.epochs) == (4, 2)


def test_a_setting_that_fails_is_one_trial(tmp_path: Path) -> None:
    ended: list[Trial] = []
    options = {**SMALL, "optimizer": "sgd", "lr": 1e300, "batch_size": 10, "norm": "none"}
    found = tune(DENSE, tmp_path, minutes=0.001, options=options, on_trial=ended.append)
    assert {trial.state for trial in ended} == {"failed"}
    assert "infinite or NaN" in (ended[0].reason or "")
    assert found.config is None


def test_spaces_fit_the_graph() -> None:
    few, many = load("citeseer"), DENSE
    assert many.train_ids.numel() >= FEW_LABELS * many.num_classes
    assert "feature_norm" in tuning_space(few, {})
    assert "feature_norm" not in tuning_space(many, {})
    assert "residual" in tuning_space(many, {})
    assert "residual" not in tuning_space(few, {})
    assert "lr" not in tuning_space(few, {"lr": 0.1})
    stored = dataclasses.replace(few, PX=few.x, PX_normalization="sum", validated=True)
    assert tuning_space(few, {}).keys() - tuning_space(stored, {}).keys() == {"model", "feature_norm"}
    for graph in (few, many):
        space = tuning_space(graph, {})
        chosen = {**TrainConfig().to_dict(), **default_options(graph, "auto")}
        check_space(parse_space(f"{k}={v}" for k, v in space.items()), {k: v for k, v in chosen.items() if k not in space})  # fmt: skip


def test_what_cannot_be_tuned(tmp_path: Path) -> None:
    with pytest.raises(CvgnnError, match="minutes must be a number above 0"):
        tune(DENSE, tmp_path, minutes=-1)
    graph: Graph = graph_from_dense(random_adjacency(8, mean_degree=2, weighted=False, seed=3))
    with pytest.raises(CvgnnError, match="unknown option 'epoch'"):
        tune(graph, tmp_path, options={"epoch": 3})
    space = tuning_space(graph, {})
    with pytest.raises(CvgnnError, match="nothing is left to tune"):
        tune(graph, tmp_path, options={name: getattr(TrainConfig(), name) for name in space})
