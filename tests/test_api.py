"""The Python door: whatever the command line does with a run, one call does."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch

import cvgnn
from cvgnn.cli.main import main
from cvgnn.config import TrainConfig
from cvgnn.data.store import write_store
from cvgnn.errors import CvgnnError, Stopped
from cvgnn.training import EpochRecord, Trainer
from cvgnn.training.trainer_builder import build_trainer
from tests.data.store.cases import make_graph
from tests.faults.harness import assert_same_run, metrics_of
from tests.logs import logged

GRAPH = make_graph(n=60)
OPTIONS = {"epochs": 4, "hidden": 8, "batch_size": 7, "threads": 1}


def same_weights(a: cvgnn.Run, b: cvgnn.Run) -> bool:
    mine, theirs = a.model.state_dict(), b.model.state_dict()
    return mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)


def test_a_run_in_a_folder_is_the_command_lines(tmp_path: Path) -> None:
    run = cvgnn.fit(cvgnn.load("citeseer"), out=tmp_path / "python", epochs=2, hidden=8, threads=1)
    assert main(["train", "--epochs", "2", "--hidden", "8", "--threads", "1", "--out", str(tmp_path / "shell")]) == 0
    assert run.path == tmp_path / "python"
    assert metrics_of(tmp_path / "python") == metrics_of(tmp_path / "shell")
    weights = [(tmp_path / name / "weights.safetensors").read_bytes() for name in ("python", "shell")]
    assert weights[0] == weights[1]


def test_out_and_resume(tmp_path: Path) -> None:
    cvgnn.fit(GRAPH, out=tmp_path / "a", **OPTIONS)
    resumed = cvgnn.fit(GRAPH, resume=tmp_path / "a", epochs=7)
    whole = cvgnn.fit(GRAPH, out=tmp_path / "b", **OPTIONS | {"epochs": 7})
    assert [r.epoch for r in resumed.records] == list(range(1, 8))
    assert same_weights(resumed, whole)
    assert_same_run(tmp_path / "a", tmp_path / "b")


def test_resume_true_starts_or_goes_on(tmp_path: Path) -> None:
    first = cvgnn.fit(GRAPH, out=tmp_path / "a", resume=True, **OPTIONS)
    again = cvgnn.fit(GRAPH, out=tmp_path / "a", resume=True, epochs=6)
    assert (len(first.records), len(again.records)) == (4, 6)
    with pytest.raises(CvgnnError, match="resume=True continues the run in out"):
        cvgnn.fit(GRAPH, resume=True)
    with pytest.raises(CvgnnError, match="leave out= out"):
        cvgnn.fit(GRAPH, out=tmp_path / "b", resume=tmp_path / "a")
    with pytest.raises(CvgnnError, match="is not empty"):
        cvgnn.fit(GRAPH, out=tmp_path / "a", **OPTIONS)


def test_what_would_be_wrong_is_refused(tmp_path: Path) -> None:
    cvgnn.fit(GRAPH, out=tmp_path / "a", **OPTIONS)
    with pytest.raises(CvgnnError, match=r"cannot resume .*a: lr was 0.01 and is 0.5"):
        cvgnn.fit(GRAPH, resume=tmp_path / "a", lr=0.5)
    with pytest.raises(CvgnnError, match="the graph's content has changed"):
        cvgnn.fit(make_graph(n=60, seed=9), resume=tmp_path / "a", epochs=9)
    with pytest.raises(CvgnnError, match="trained on a graph that was made in Python"):
        cvgnn.fit(resume=tmp_path / "a", epochs=9)
    with pytest.raises(CvgnnError, match=r"graph must be a cvgnn\.Graph, a PyG Data, .*, not None"):
        cvgnn.fit()
    with pytest.raises(CvgnnError, match=r"config must be a cvgnn\.TrainConfig"):
        cvgnn.fit(GRAPH, config={"lr": 1})


def test_a_run_on_a_store_opens_it_again(tmp_path: Path) -> None:
    write_store(GRAPH, tmp_path / "store")
    words = ["--epochs", "2", "--hidden", "8", "--threads", "1"]
    assert main(["train", "--graph", str(tmp_path / "store"), *words, "--out", str(tmp_path / "a")]) == 0
    assert len(cvgnn.fit(resume=tmp_path / "a", epochs=3).records) == 3
    with pytest.raises(CvgnnError, match=r"trained on the store .*, which is opened again; leave graph out"):
        cvgnn.fit(GRAPH, resume=tmp_path / "a", epochs=4)


def test_save_load_and_go_on_in_another_process(tmp_path: Path) -> None:
    graph = cvgnn.load("citeseer")
    run = cvgnn.fit(graph, epochs=3, hidden=8, threads=1)
    run.save(tmp_path / "saved")
    assert sorted(p.name for p in (tmp_path / "saved").iterdir()) == [
        "checkpoints", "config.json", "metrics.jsonl", "result.json", "weights.safetensors"
    ]  # fmt: skip
    loaded = cvgnn.load_run(tmp_path / "saved", graph)
    assert torch.equal(loaded.predict(), run.predict())
    assert torch.equal(loaded.embed(1), run.embed(1))
    assert [r.loss for r in loaded.records] == [r.loss for r in run.records]
    torch.save((run.predict(), run.embed(1)), tmp_path / "outputs.pt")
    code = (
        "import cvgnn, sys, torch\n"
        "graph = cvgnn.load('citeseer')\n"
        "loaded = cvgnn.load_run(sys.argv[1], graph)\n"
        "classes, hidden = torch.load(sys.argv[2])\n"
        "assert torch.equal(loaded.predict(), classes) and torch.equal(loaded.embed(1), hidden)\n"
        "run = cvgnn.fit(graph, resume=sys.argv[1], epochs=5)\n"
        "assert len(run.records) == 5\n"
    )
    arguments = [str(tmp_path / "saved"), str(tmp_path / "outputs.pt")]
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    cvgnn.fit(graph, out=tmp_path / "whole", epochs=5, hidden=8, threads=1)
    assert_same_run(tmp_path / "saved", tmp_path / "whole")
    with pytest.raises(CvgnnError, match=r"loaded from .*saved; copy that folder"):
        loaded.save(tmp_path / "again")
    with pytest.raises(CvgnnError, match="made in Python"):
        cvgnn.load_run(tmp_path / "saved")


def test_predict_needs_the_graph_of_a_python_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cvgnn.fit(GRAPH, out=tmp_path / "a", **OPTIONS)
    write_store(GRAPH, tmp_path / "store")
    assert main(["predict", str(tmp_path / "a")]) == 2
    assert "give the graph, as load_run(folder, graph), or --graph" in capsys.readouterr().err
    assert main(["predict", str(tmp_path / "a"), "--graph", str(tmp_path / "store")]) == 0


def test_config_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("epochs = 3\nhidden = 8\nnum_neighbors = [4]\nthreads = 1\n")
    config = cvgnn.config_from(tmp_path / "mine.toml")
    assert config == TrainConfig(epochs=3, hidden=8, num_neighbors=4, threads=1)
    run = cvgnn.fit(GRAPH, config=config, epochs=2, out=tmp_path / "a")
    assert run.config == TrainConfig(epochs=2, hidden=8, num_neighbors=4, threads=1)
    assert cvgnn.config_from(tmp_path / "a" / "config.json") == run.config


class Journal(cvgnn.Callback):
    """What is called, in order."""

    def __init__(self, *, stop_at: int | None = None) -> None:
        self.calls: list[object] = []
        self.stop_at = stop_at

    def on_start(self, trainer: Trainer, records: Sequence[EpochRecord]) -> None:
        self.calls.append(("start", len(records)))

    def on_step(self, trainer: Trainer) -> None:
        self.calls.append(trainer.iterations)
        if trainer.iterations == self.stop_at:
            raise KeyboardInterrupt

    def on_epoch(self, trainer: Trainer, record: EpochRecord) -> None:
        self.calls.append(("epoch", record.epoch))

    def on_end(self, trainer: Trainer, error: BaseException | None) -> None:
        self.calls.append(("end", type(error).__name__))


def test_callbacks_are_called_in_order(tmp_path: Path) -> None:
    options = OPTIONS | {"epochs": 2, "batch_size": 20}
    journal = Journal()
    run = cvgnn.fit(GRAPH, callbacks=[journal], **options)
    steps = run.result["iterations"] // 2
    first, second = range(1, steps + 1), range(steps + 1, 2 * steps + 1)
    assert journal.calls == [("start", 0), *first, ("epoch", 1), *second, ("epoch", 2), ("end", "NoneType")]
    cvgnn.fit(GRAPH, out=tmp_path / "a", **options)
    later = Journal()
    cvgnn.fit(GRAPH, resume=tmp_path / "a", epochs=3, callbacks=[later])
    assert later.calls[0] == ("start", 2)
    assert ("epoch", 3) in later.calls


def test_every_callback_is_ended_when_one_fails() -> None:
    before, failing, after = Journal(), Journal(stop_at=2), Journal()
    with pytest.raises(KeyboardInterrupt):
        cvgnn.fit(GRAPH, callbacks=[before, failing, after], **OPTIONS)
    assert [journal.calls[-1] for journal in (before, failing, after)] == [("end", "KeyboardInterrupt")] * 3


def test_a_callback_does_not_change_the_run() -> None:
    assert same_weights(cvgnn.fit(GRAPH, callbacks=[Journal()], **OPTIONS), cvgnn.fit(GRAPH, **OPTIONS))


def test_everything_along_a_run_is_a_callback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The progress bar, metrics.jsonl, the checkpointer, TensorBoard through torch's writer, and a user's logger."""
    from cvgnn.cli.console import TrainProgress
    from cvgnn.training.checkpoint import Checkpointer
    from cvgnn.training.run_folder import MetricsLog
    from cvgnn.training.tensorboard import TensorBoard

    assert all(issubclass(kind, cvgnn.Callback) for kind in (TrainProgress, Checkpointer, MetricsLog, TensorBoard))
    written: list[tuple[str, int]] = []

    class Writer:
        def __init__(self, folder: str, purge_step: int) -> None:
            assert folder == str(tmp_path / "events")

        def __getattr__(self, name: str) -> Callable[..., None]:
            return lambda *args, **options: None

        def add_scalar(self, name: str, value: float, step: int, walltime: float) -> None:
            written.append((name, step))

    monkeypatch.setattr("torch.utils.tensorboard.SummaryWriter", Writer)
    config, lines = TrainConfig(**OPTIONS), []

    class Logger(cvgnn.Callback):
        def on_epoch(self, trainer: Trainer, record: EpochRecord) -> None:
            lines.append(record.loss)

    run = cvgnn.fit(GRAPH, config=config, callbacks=[TensorBoard(tmp_path / "events", config), Logger()])
    assert lines == [record.loss for record in run.records]
    assert [step for name, step in written if name == "loss"] == [1, 2, 3, 4]
    assert {"accuracy/val", "learning_rate", "seconds/train"} <= {name for name, _ in written}


def test_the_library_logs_and_does_not_print(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with logged(logging.DEBUG) as messages:
        cvgnn.fit(GRAPH, out=tmp_path / "a", **OPTIONS)
    assert capfd.readouterr() == ("", "")
    assert "training with 1 threads" in messages
    assert any(message.startswith("saved ") for message in messages)


def test_other_versions_are_a_warning_and_an_error_with_exact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cvgnn.fit(GRAPH, out=tmp_path / "a", **OPTIONS)
    monkeypatch.setattr("cvgnn.training.resume._version_of", lambda name: "9.9")
    with pytest.raises(
        CvgnnError, match=r"to the same bits: numba was .*; numpy was .*; torch was .*\. Leave exact out"
    ):
        cvgnn.fit(GRAPH, resume=tmp_path / "a", epochs=5, exact=True)
    with logged(logging.WARNING) as messages:
        assert len(cvgnn.fit(GRAPH, resume=tmp_path / "a", epochs=5).records) == 5
    assert len(messages) == 1
    assert "its last bits may differ: numba was" in messages[0]


class Kill(cvgnn.Callback):
    """Sends this process a signal after a step."""

    def __init__(self, step: int, number: int = signal.SIGINT) -> None:
        self.step, self.number = step, number

    def on_step(self, trainer: Trainer) -> None:
        if trainer.iterations == self.step:
            os.kill(os.getpid(), self.number)


def test_ctrl_c_returns_the_best_so_far_and_the_folder_can_be_resumed(tmp_path: Path) -> None:
    with logged() as messages:
        run = cvgnn.fit(GRAPH, out=tmp_path / "a", callbacks=[Kill(8)], **OPTIONS)
    assert run.result["iterations"] == 8  # it ended after the step in which the signal came
    assert run.interrupted
    assert run.path == tmp_path / "a"
    assert any(f"fit(resume={str(tmp_path / 'a')!r}) continues it" in message for message in messages)
    assert not (tmp_path / "a" / "result.json").exists()  # a folder with a result is complete
    best = cvgnn.fit(GRAPH, **{**OPTIONS, "epochs": len(run.records)})
    assert torch.equal(run.predict_proba(), best.predict_proba())
    assert not cvgnn.fit(GRAPH, resume=tmp_path / "a").interrupted
    cvgnn.fit(GRAPH, out=tmp_path / "b", **OPTIONS)
    assert_same_run(tmp_path / "a", tmp_path / "b")


@pytest.mark.parametrize(("step", "number"), [(1, signal.SIGINT), (8, signal.SIGTERM)], ids=["no result", "SIGTERM"])
def test_other_stops_save_and_say_how_to_go_on(step: int, number: int, tmp_path: Path) -> None:
    with pytest.raises(Stopped, match=r"continue with: cvgnn train --resume"), logged():
        cvgnn.fit(GRAPH, out=tmp_path / "a", callbacks=[Kill(step, number)], **OPTIONS)
    assert len(cvgnn.fit(GRAPH, resume=tmp_path / "a").records) == OPTIONS["epochs"]


def test_a_trainers_state_dict(tmp_path: Path) -> None:
    """Through torch.save, as users of torch do it, amid an epoch."""
    config = TrainConfig(**OPTIONS)
    whole, first, second = (build_trainer(GRAPH, config) for _ in range(3))
    list(whole.epochs(3))
    batches = first.loader.epoch(1)
    for _ in range(2):
        first.step(next(batches))
        first.position.steps += 1
    torch.save(first.state_dict(), tmp_path / "state.pt")
    second.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    list(second.epochs(3))
    for mine, theirs in zip(whole.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    with pytest.raises(CvgnnError, match="state must be a Trainer's state_dict"):
        second.load_state_dict({})


def _import(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if k not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=clean | environment)


def test_openmp_settings_on_import() -> None:
    show = "; import os; print(os.environ.get('OMP_WAIT_POLICY'), os.environ.get('GOMP_SPINCOUNT'))"
    assert _import("import cvgnn" + show).stdout == "passive 0\n"
    assert _import("import cvgnn" + show, OMP_WAIT_POLICY="active").stdout == "active 0\n"
    late = _import("import sys, types; sys.modules['torch'] = types.ModuleType('torch'); import cvgnn" + show)
    assert late.stdout == "None None\n"
    assert "set OMP_WAIT_POLICY=passive GOMP_SPINCOUNT=0 before Python starts" in late.stderr


def test_quiet_and_verbose(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "--epochs", "2", "--hidden", "8", "--threads", "1"]
    assert main([*words, "--quiet"]) == 0
    quiet = capsys.readouterr()
    assert quiet.out.startswith("test accuracy ")
    assert main(["--verbose", *words, "--out", str(tmp_path / "run")]) == 0
    loud = capsys.readouterr()
    assert "epoch 2/2" in loud.out
    assert "cvgnn: training with 1 threads\n" in loud.err
    assert "cvgnn: saved " in loud.err


def test_a_folder_that_was_moved_can_be_resumed(tmp_path: Path) -> None:
    cvgnn.fit(GRAPH, out=tmp_path / "a", **OPTIONS)
    shutil.move(tmp_path / "a", tmp_path / "b")
    assert len(cvgnn.fit(GRAPH, resume=tmp_path / "b", epochs=5).records) == 5
    assert json.loads((tmp_path / "b" / "config.json").read_text())["dataset"] == "in-memory"


def test_the_pieces_and_fit_build_the_same_network() -> None:
    """Defaults of the pieces are the fixed ones of `fit`."""
    graph = cvgnn.load("citeseer")
    run = cvgnn.fit(graph, defaults="fixed", epochs=3, output="last")
    model = cvgnn.GCN(in_channels=graph.num_features, out_channels=graph.num_classes)
    P = cvgnn.Propagation(graph)
    features = cvgnn.propagate_features(graph, P)
    cv = cvgnn.ControlVariate(features, model.hidden_widths)
    cv.initialize(cvgnn.exact_hidden(model, features, P))
    trainer = cvgnn.Trainer(
        model=model,
        estimator=cv,
        loader=cvgnn.BatchLoader(graph.train_ids, cvgnn.NeighborSampler(P, num_layers=model.num_layers)),
        optimizer=cvgnn.make_optimizer("adam", model.parameters(), weight_decay=5e-4),
        task=cvgnn.NodeClassification(graph),
    )
    list(trainer.epochs(3))
    expected = run.model.state_dict()
    assert expected.keys() == model.state_dict().keys()
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, expected[name]), name
