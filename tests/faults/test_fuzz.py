"""Ten thousand spoiled inputs: each is read, or refused in one line; no crash, no hang, no memory without end.

`CVGNN_FUZZ=5` tries five times as many, `CVGNN_FUZZ_SEED=7` tries others. To see one again, with its traceback:

    python -m tests.faults.fuzz_child $(mktemp -d) SEED READER:NUMBER
"""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cvgnn.config import GraphSource, TrainConfig
from cvgnn.errors import CvgnnError
from cvgnn.training import EpochRecord, restore_trainer, trainer_state
from cvgnn.training.checkpoint import Checkpoint
from cvgnn.training.resume import check_same_run
from cvgnn.training.run_folder import as_row, from_row, read_settings
from cvgnn.training.trainer_builder import build_trainer
from cvgnn.utils.checked_json import parse_json
from tests.data.store.cases import make_graph
from tests.faults.fuzz_child import Watch, judge, wrong_sentence
from tests.faults.readers import COUNTS, READERS, Reader, step

ROOT = Path(__file__).resolve().parents[2]
TIMES, SEED = float(os.environ.get("CVGNN_FUZZ", "1")), int(os.environ.get("CVGNN_FUZZ_SEED", "0"))
GROUPS = {
    "graph files": ("npz", "csv", "parquet", "arrow", "pt"),
    "stores and raw files": ("store_header", "store_arrays", "planetoid", "arxiv", "flickr", "reddit"),
    "runs": (
        *("checkpoint_json", "checkpoint_tensors", "resume", "saved_run", "config_json", "config_toml", "metrics"),
        "diagnosis",
    ),
}
QUIET = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0", "OMP_NUM_THREADS": "1", "CVGNN_OFFLINE": "1"}
QUIET |= {"ARROW_DEFAULT_MEMORY_POOL": "system"}  # the others reserve more addresses than the limit on memory allows


def test_ten_thousand_inputs_of_every_reader() -> None:
    assert sum(COUNTS.values()) >= 10_000
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(READERS)


@pytest.mark.skipif(sys.platform != "linux", reason="the limit on memory is set from /proc")
@pytest.mark.parametrize("names", GROUPS.values(), ids=GROUPS)
def test_spoiled_input_is_read_or_refused(names: tuple[str, ...], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.faults.fuzz_child", str(tmp_path), str(SEED), str(TIMES), *names]
    child = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **QUIET}, capture_output=True, text=True, timeout=600 * max(1, TIMES)
    )
    found = [json.loads(line) for line in child.stdout.splitlines() if line.startswith("{")]
    wrong = [f"{line['input']}: {line['wrong']}" for line in found if "wrong" in line]
    assert not wrong, f"{len(wrong)} inputs:\n" + "\n".join(wrong[:20])
    at = (tmp_path / "current").read_text() if (tmp_path / "current").exists() else "the start"
    assert child.returncode == 0, f"ended with {child.returncode} at {at}:\n{child.stderr[-3000:]}"
    tried = {line["reader"]: line["tried"] for line in found if "reader" in line}
    assert tried == {name: int(COUNTS[READERS[name]] * TIMES) or 1 for name in names}


# The judge itself


@pytest.fixture(scope="module")
def watch(tmp_path_factory: pytest.TempPathFactory) -> Watch:
    return Watch(tmp_path_factory.mktemp("watched"))


def raises(error: BaseException) -> Any:
    def read(_: Path) -> None:
        raise error

    return read


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        (lambda path: None, None),
        (raises(CvgnnError("x is 3; give 2")), None),
        (raises(CvgnnError("two\nlines")), "not one line"),
        (raises(CvgnnError("clears the screen \x1b[2J")), "not one line"),
        (raises(CvgnnError("")), "not one line"),
        (raises(CvgnnError("x" * 20_000)), "20000 characters"),
        (raises(CvgnnError("a does not fit into memory")), "took memory"),
        (raises(KeyError("a")), "KeyError: 'a'"),
        (raises(ValueError("a")), "ValueError: a"),
        (raises(SystemExit(0)), "SystemExit"),
        (lambda path: (path.parent.parent / "beside").mkdir(), "did what it must not: ['os.mkdir"),
        (lambda path: (path.parent.parent / "beside.txt").write_text(""), "did what it must not: ['open"),
        (lambda path: subprocess.run(["true"], check=True), "subprocess.Popen"),
        (lambda path: path.write_text("inside"), None),
    ],
)
def test_what_is_noticed(read: Any, expected: str | None, watch: Watch) -> None:
    path = Path(watch.folder) / "file"
    said = judge(Reader({path: lambda data, rng: data}, read), path, watch)
    assert said is None if expected is None else expected in (said or "")


# Random values where a run's own are expected

TEXT = st.text(max_size=8)
SCALARS = st.none() | st.booleans() | st.integers() | st.integers(-(10**320), 10**320) | st.floats() | TEXT
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3), max_leaves=8
)
RANDOM = settings(max_examples=150, deadline=None, derandomize=SEED == 0)
ROW = as_row(
    EpochRecord(
        epoch=1,
        iterations=2,
        loss=0.5,
        metrics={"train_accuracy": None, "val_accuracy": None, "test_accuracy": None},
        train_seconds=0.1,
        eval_seconds=0.1,
    )
)
OPTIONS = sorted({*GraphSource.__dataclass_fields__, *TrainConfig.__dataclass_fields__})


def toml_of(value: Any) -> str:
    """A JSON value in TOML, which has no null."""
    if value is None:
        return '""'
    if isinstance(value, str):
        return '"' + "".join(f"\\U{ord(c):08x}" for c in value) + '"'
    if isinstance(value, list):
        return "[" + ", ".join(map(toml_of, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{toml_of(k)} = {toml_of(v)}" for k, v in value.items()) + "}"
    return str(value).lower()


def one_line(error: CvgnnError) -> None:
    assert wrong_sentence(str(error)) is None


@pytest.mark.parametrize("form", ["json", "toml"])
@given(options=st.dictionaries(st.sampled_from(OPTIONS) | TEXT, JSON, max_size=3))
@RANDOM
def test_random_settings(form: str, options: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.getbasetemp() / f"options.{form}"
    lines = [f"{toml_of(name)} = {toml_of(value)}\n" for name, value in options.items()]
    file.write_text(json.dumps(options) if form == "json" else "".join(lines), encoding="utf-8")
    try:
        source, config = read_settings(file)
    except CvgnnError as error:
        one_line(error)
    else:
        json.dumps({**source.to_dict(), **config.to_dict()}, allow_nan=False)


@cache
def saved() -> tuple[Any, TrainConfig, dict[str, torch.Tensor], dict[str, Any]]:
    """A graph, a config, and the state after a step."""
    graph, config = make_graph(n=12, features=3), TrainConfig(hidden=3, batch_size=5, threads=1, output="tau")
    trainer = build_trainer(graph, config)
    trainer.train_epoch(1)
    tensors, numbers = trainer_state(trainer)
    return graph, config, {name: tensor.clone() for name, tensor in tensors.items()}, numbers


@given(value=JSON, where=st.sampled_from(["", "position", "best", "optimizer"]), key=st.integers(0, 9))
@RANDOM
def test_random_numbers_in_a_state(value: Any, where: str, key: int) -> None:
    graph, config, tensors, numbers = saved()
    numbers = copy.deepcopy(numbers)
    numbers["best"] = numbers["best"] or {"epoch": 1, "accuracy": 0.5}
    holder = numbers[where] if where else numbers
    names = sorted(holder) or ["0.step"]
    holder[names[key % len(names)]] = value
    trainer = build_trainer(graph, config, initialize=False)
    try:
        restore_trainer(trainer, tensors, numbers)
        step(trainer)
    except CvgnnError as error:
        one_line(error)


BODIES = st.fixed_dictionaries(
    {},
    optional={
        "identity": SCALARS | st.dictionaries(st.sampled_from(OPTIONS), JSON, max_size=3),
        "trainer": JSON,
        "records": JSON | st.lists(st.dictionaries(st.sampled_from(sorted(ROW)), JSON), max_size=2),
    },
)


@given(body=BODIES, row=st.dictionaries(st.sampled_from(sorted(ROW)), JSON, max_size=2))
@RANDOM
def test_random_bodies_of_a_checkpoint(body: dict[str, Any], row: dict[str, Any]) -> None:
    graph, config, tensors, _ = saved()
    found = Checkpoint(Path("000001"), body, tensors)
    trainer = build_trainer(graph, config, initialize=False)
    rows = body.get("records")
    for use in (
        lambda: check_same_run(found, {"lr": 0.1}),
        lambda: [from_row(one) for one in rows] if isinstance(rows, list) else None,
        lambda: from_row(reread({**ROW, **row})),
        lambda: restore_trainer(trainer, tensors, body.get("trainer")),
    ):
        try:
            use()
        except CvgnnError as error:
            one_line(error)


def reread(row: dict[str, Any]) -> Any:
    """The row as it would be read from a file, which may refuse it."""
    try:
        return parse_json(json.dumps(row).encode())
    except ValueError:
        return None
