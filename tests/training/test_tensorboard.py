"""Event files for TensorBoard, read back with its own reader."""

from __future__ import annotations

import errno
import math
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cvgnn.cli.main import main
from cvgnn.config import TrainConfig
from cvgnn.errors import CvgnnError
from cvgnn.training import EpochRecord, Metrics
from cvgnn.training.tensorboard import TensorBoard
from tests.faults.harness import metrics_of, result_of

RUN = ["--epochs", "4", "--batch-size", "30", "--hidden", "8", "--threads", "1", "--defaults", "fixed"]
TAGS = {"loss", "accuracy/train", "accuracy/val", "accuracy/test", "seconds/train", "seconds/eval", "learning_rate"}
FULL = OSError(errno.ENOSPC, "No space left on device")
Captured = pytest.CaptureFixture[str]

pytest.importorskip("tensorboard", reason="needs TensorBoard: pip install 'cvgnn[tensorboard]'")


def train(*words: object) -> int:
    return main(["train", *map(str, words)])


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Steps and values by tag, as TensorBoard shows them."""
    found = _read(folder)
    return {tag: [(e.step, _float(e)) for e in found.Tensors(tag)] for tag in found.Tags()["tensors"] if tag in TAGS}


def text(folder: Path) -> list[str]:
    return [e.tensor_proto.string_val[0].decode() for e in _read(folder).Tensors("hyperparameters/text_summary")]


def _read(folder: Path) -> Any:
    from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder), tensor_size_guidance={"scalars": 0, "text": 0})  # 0: keep them all
    found.Reload()
    return found


def _float(event: Any) -> float:
    from tensorboard.util.tensor_util import make_ndarray

    return float(make_ndarray(event.tensor_proto))


def record(epoch: int, *, loss: float = 0.5, metrics: Metrics | None = None) -> EpochRecord:
    return EpochRecord(
        epoch=epoch, iterations=epoch, loss=loss, metrics=metrics or {}, train_seconds=0.25, eval_seconds=0.125
    )


@contextmanager
def running(events: TensorBoard, earlier: Iterable[int] = ()) -> Iterator[TensorBoard]:
    """As a run calls it; the trainer is not looked at."""
    events.on_start(None, [record(epoch) for epoch in earlier])
    yield events
    events.on_end(None, None)


def test_a_run_is_written_and_is_the_same_run(tmp_path: Path, capsys: Captured) -> None:
    assert train(*RUN, "--schedule", "linear", "--out", tmp_path / "plain") == 0
    assert train(*RUN, "--schedule", "linear", "--out", tmp_path / "watched", "--tensorboard") == 0
    assert capsys.readouterr().err == ""
    weights = [(tmp_path / name / "weights.safetensors").read_bytes() for name in ("plain", "watched")]
    configs = [(tmp_path / name / "config.json").read_bytes() for name in ("plain", "watched")]
    assert (weights[0], configs[0]) == (weights[1], configs[1])
    assert metrics_of(tmp_path / "plain") == metrics_of(tmp_path / "watched")
    assert result_of(tmp_path / "plain") == result_of(tmp_path / "watched")
    found = scalars(tmp_path / "watched" / "tensorboard")
    assert found.keys() == TAGS
    rows = metrics_of(tmp_path / "watched")
    assert [step for step, _ in found["loss"]] == [1, 2, 3, 4]
    assert [value for _, value in found["loss"]] == pytest.approx([row["loss"] for row in rows])
    for split in ("train", "val", "test"):
        expected = [row[f"{split}_accuracy"] for row in rows]
        assert [value for _, value in found[f"accuracy/{split}"]] == pytest.approx(expected)
    assert [value for _, value in found["learning_rate"]] == pytest.approx([0.01, 0.0075, 0.005, 0.0025])
    assert all(value > 0 for _, value in found["seconds/train"] + found["seconds/eval"])
    (table,) = text(tmp_path / "watched" / "tensorboard")
    assert "|dataset|citeseer|" in table
    assert "|hidden|8|" in table


def test_a_run_that_goes_on_has_every_step_once(tmp_path: Path, capsys: Captured) -> None:
    """Whatever the earlier process wrote: too much, too little, or nothing at all."""
    from tensorboard.backend.event_processing import event_accumulator

    folder, events = tmp_path / "run", tmp_path / "run" / "tensorboard"
    assert train(*RUN, "--out", folder) == 0
    for epochs in (5, 6, 8):
        assert train("--resume", folder, "--epochs", epochs, "--tensorboard") == 0
        with running(TensorBoard(events, TrainConfig(), resume=True), range(1, 20)):
            pass  # epochs that no checkpoint has
    assert train("--resume", folder, "--tensorboard") == 0
    found = scalars(events)
    assert {tag: [step for step, _ in values] for tag, values in found.items()} == {tag: [*range(1, 9)] for tag in TAGS}
    assert [v for _, v in found["loss"]] == pytest.approx([row["loss"] for row in metrics_of(folder)])
    old = event_accumulator.EventAccumulator(str(events)).Reload()  # as other tools read them
    assert [e.step for e in old.Scalars("loss")] == [*range(1, 9)]
    assert len(text(events)) == 1
    assert "|epochs|8|" in text(events)[0]


def test_what_was_not_measured_is_left_out(tmp_path: Path) -> None:
    with running(TensorBoard(tmp_path, TrainConfig())) as events:
        events.on_epoch(None, record(1, loss=math.nan))
        events.on_epoch(None, record(2, metrics={"train_accuracy": 1.0, "val_accuracy": 0.5, "test_accuracy": None}))
    found = scalars(tmp_path)
    assert math.isnan(found["loss"][0][1])
    assert found["accuracy/val"] == [(2, 0.5)]
    assert "accuracy/test" not in found


def test_every_epoch_is_there_before_the_next(tmp_path: Path) -> None:
    with running(TensorBoard(tmp_path, TrainConfig())) as events:
        for epoch in (1, 2):
            events.on_epoch(None, record(epoch))
            assert [step for step, _ in scalars(tmp_path)["loss"]] == list(range(1, epoch + 1))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # of TensorBoard's writer thread
def test_a_run_is_worth_more_than_its_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    """A disk that is full from the second write on: one warning, and the run is finished."""
    from tensorboard.summary.writer.record_writer import RecordWriter

    real, written = RecordWriter.write, []

    def full(self: Any, data: bytes) -> None:
        written.append(data)
        if len(written) > 1:
            raise FULL
        real(self, data)

    monkeypatch.setattr(RecordWriter, "write", full)
    assert train(*RUN, "--out", tmp_path / "run", "--tensorboard") == 0
    assert capsys.readouterr().err == (
        f"cvgnn: no more events are written to {tmp_path / 'run' / 'tensorboard'}: No space left on device; free some "
        "space; the run continues\n"
    )
    assert (tmp_path / "run" / "result.json").exists()


def test_where_the_files_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.chdir(tmp_path)
    assert train(*RUN, "--tensorboard", "events") == 0
    assert [path.name for path in tmp_path.iterdir()] == ["events"]
    assert len(scalars(tmp_path / "events")["loss"]) == 4
    capsys.readouterr()
    assert train(*RUN, "--tensorboard", "events") == 2
    assert train(*RUN, "--tensorboard") == 2
    assert train(*RUN, "--tensorboard", "a", "b") == 2
    (tmp_path / "file").write_text("x")
    assert train(*RUN, "--tensorboard", "file") == 2
    assert capsys.readouterr().err.splitlines() == [
        "cvgnn: events holds the event files of another run; choose another --tensorboard",
        "cvgnn: --tensorboard writes into the run's folder; give --out, or name a folder: --tensorboard DIR",
        "cvgnn: --tensorboard takes one folder, not 2",
        "cvgnn: cannot write to file: Not a directory; check the disk and the folder's permissions",
    ]
    assert train(*RUN, "--out", "run") == 0
    (tmp_path / "run" / "tensorboard").symlink_to(tmp_path)
    assert train("--resume", "run", "--tensorboard") == 2
    assert "run/tensorboard is a link; a run writes inside its own folder: remove the link" in capsys.readouterr().err


def test_without_tensorboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "tensorboard"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    assert train(*RUN, "--out", tmp_path / "run", "--tensorboard") == 2
    sentence = "--tensorboard needs the package tensorboard: pip install 'cvgnn[tensorboard]'"
    assert capsys.readouterr().err == f"cvgnn: {sentence}\n"
    assert not (tmp_path / "run").exists()
    with pytest.raises(CvgnnError, match="--tensorboard needs the package tensorboard"):
        TensorBoard(tmp_path, TrainConfig())


def test_nothing_of_it_is_imported_unless_asked_for(tmp_path: Path) -> None:
    code = (
        "import sys, warnings\n"
        "warnings.simplefilter('error')\n"
        "from cvgnn.cli.main import main\n"
        "run = ['--epochs', '1']\n"
        "assert main(['train', *run]) == 0\n"
        "assert not {'tensorboard', 'google.protobuf', 'optuna', 'sqlalchemy'} & set(sys.modules)\n"
        f"assert main(['train', *run, '--tensorboard', {str(tmp_path / 'events')!r}]) == 0\n"
        "assert 'tensorboard' in sys.modules\n"
        "assert not {'tensorflow', 'grpc'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
