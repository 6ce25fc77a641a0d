"""What fuzzing found, each made in code: once a traceback, seconds of computing, memory without end or several lines."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import struct
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from cvgnn.config import TrainConfig
from cvgnn.data.io import read_graph
from cvgnn.data.named import raw_files as raw
from cvgnn.data.named.raw_layouts import read_arxiv, read_graphsaint
from cvgnn.data.store import write_store
from cvgnn.errors import CvgnnError
from cvgnn.training import Trainer, restore_trainer, trainer_state
from cvgnn.training.checkpoint import Checkpoints, read_tensors
from cvgnn.training.run import read_run
from cvgnn.training.run_folder import read_settings
from cvgnn.training.trainer_builder import build_trainer
from cvgnn.utils.checked_json import add_checksum, parse_json, parse_object
from tests.data.io.broken_files import header, npz, tables
from tests.data.named import layouts
from tests.data.store.cases import edit_header, make_graph
from tests.faults.fuzz_child import wrong_sentence
from tests.logs import logged


@contextmanager
def refused(sentence: str, kind: type[ValueError] = CvgnnError) -> Iterator[None]:
    """Refused soon, in lines that are not too long; a report of tables has a line for each mistake, with its path."""
    start = time.process_time()
    with pytest.raises(kind, match=sentence) as caught:
        yield
    assert time.process_time() - start < 5
    assert wrong_sentence(str(caught.value)) is None
    lines = str(caught.value).splitlines()
    assert max(map(len, lines)) < 1000
    assert len(lines) <= 22


# Arrays

HEADERS = {
    "ends in the middle": header("{'descr': '<f4', 'fortran_order': False, 'shape': (3,"),  # tokenize.TokenError
    "a text without end": header("{'descr': '''<f4"),
    "nested": header("(" * 60),
    "a call": header("__import__('os')"),
    "numbers of 5000 digits": b"\x93NUMPY\x01\x00" + struct.pack("<H", 5010) + b"{'shape': " + b"9" * 5000,
    # numpy looks at every blank with a regular expression that looks at all that follow: 20 seconds for 8 KiB.
    "8 KiB of blanks": b"\x93NUMPY\x01\x00" + struct.pack("<H", 8224) + b"\0" + b" " * 8222 + b"(",
    "nothing of an array": b"x" * 200,
    "empty": b"",
}
SIZES = {
    "more than memory": "(4611686018427387904,)",
    "beyond 64 bits": "(99999999999999999999, 99999999999999999999)",
    "a product beyond 64 bits": "(4294967296, 4294967296)",
    "negative": "(-1,)",
    "negative twice": "(-4, -1)",
}


def archive(folder: Path, **members: bytes) -> Path:
    path = folder / "a.npz"
    with zipfile.ZipFile(path, "w") as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)
    return path


@pytest.mark.parametrize("content", HEADERS.values(), ids=HEADERS)
def test_a_broken_npy_header(content: bytes, tmp_path: Path) -> None:
    with refused(r"a\.npz: it is damaged, or no \.npz file \("):
        read_graph(archive(tmp_path, y=content))
    with refused(r"a\.npz is broken \(.*; take it again from its source"):
        raw.read_npz(archive(tmp_path, y=content), "y")
    (tmp_path / "a.npy").write_bytes(content)
    with refused(r"a\.npy is broken \(.*; take it again from its source"):
        raw.read_npy(tmp_path / "a.npy")


@pytest.mark.parametrize("shape", SIZES.values(), ids=SIZES)
def test_a_shape_is_compared_with_the_file_before_memory_is_taken(
    shape: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = header(f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}}}") + bytes(16)
    (tmp_path / "a.npy").write_bytes(content)
    path = archive(tmp_path, y=content)
    monkeypatch.setattr(np, "empty", None)
    monkeypatch.setattr(np, "memmap", None)
    with refused(r"y claims to have shape \["):
        read_graph(path)
    with refused(r"a\.npz is broken \('y' claims to have shape \["):
        raw.read_npz(path, "y")
    with refused(r"a\.npy is broken \(it claims to have shape \["):
        raw.read_npy(tmp_path / "a.npy")


def test_an_archive_where_an_array_is_expected(tmp_path: Path) -> None:
    """np.load gives out an archive instead, which has no shape."""
    layouts.write_flickr(tmp_path, layouts.small(symmetric=True))
    (tmp_path / "feats.npy").write_bytes((tmp_path / "adj_full.npz").read_bytes())
    with refused(r"feats\.npy is broken \("):
        read_graphsaint(tmp_path, "flickr")


def test_an_array_without_entries_has_no_pages_to_map(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((0, 3)))
    assert raw.read_npy(tmp_path / "a.npy").shape == (0, 3)


def test_a_member_whose_name_is_several_lines(tmp_path: Path) -> None:
    with refused(r"a\.npz is broken \(no array 'y', only 'a\\nb'\)"):
        raw.read_npz(archive(tmp_path, **{"a\nb": b""}), "y")


def test_an_encrypted_member(tmp_path: Path) -> None:
    data = bytearray(archive(tmp_path, y=header("")).read_bytes())
    for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(mark) + place] |= 1
    (tmp_path / "a.npz").write_bytes(data)
    with refused(r"a\.npz is broken \(.*encrypted"):
        raw.read_npz(tmp_path / "a.npz", "y")


# Stores


@pytest.mark.parametrize("name", ["\u2028", "a\nb", "\ud800", "\x1b[2J", "\0"], ids=repr)
def test_a_file_name_that_cannot_be_shown(name: str, tmp_path: Path) -> None:
    """One that is not there was shown as it is; and of a lone surrogate no system makes a name."""
    write_store(make_graph(n=12, features=3), tmp_path / "store")
    edit_header(tmp_path / "store", lambda body: body["arrays"]["y"].update(file=name))
    with refused("file in 'y' of header.json is '.*', not 'y.npy'"):
        read_graph(tmp_path / "store")


# Tables


def test_long_words_are_not_shown_at_length(tmp_path: Path) -> None:
    word = "x" * 5000
    for change in (
        tables(nodes=f"id,{word},{word}\na,1,2\n"),
        tables(nodes=f"id,{word}\na,1\n"),
        tables(nodes=f"id,f,label,split\na,1,0,{word}\n"),
        tables(nodes=f"id,f,label\na,{word},0\n"),
        tables(edges=f"source,target\na,{word}\n"),
    ):
        with refused("nodes.csv|edges.csv"):
            read_graph(change(tmp_path))


def test_a_long_name_of_a_column_that_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    read_graph(tables(edges=f"source,target,{'x' * 5000}\na,b,1\n")(tmp_path))
    (told,) = [record.getMessage() for record in caplog.records if "not used" in record.getMessage()]
    assert len(told) < 400


# JSON

JSON = {
    "400 digits": (b"9" * 400, "a number of more than 300 digits is too large"),  # no float is that large
    "5000 digits": (b"9" * 5000, "is not valid JSON"),  # no text is made of it
    "infinite": (b"1e999", "the number 1e999 is too large"),
    "NaN": (b"NaN", "NaN is no number in JSON"),
    "-Infinity": (b"-Infinity", "-Infinity is no number in JSON"),
    "lists": (b"[" * 500 + b"]" * 500, "it nests values more than 100 deep"),  # no text is made of it either
    "objects": (b'{"a":' * 900 + b"1" + b"}" * 900, "it nests values more than 100 deep"),
    "deeper": (b"[" * 100_000, "recursion"),
}


@pytest.mark.parametrize(("value", "sentence"), JSON.values(), ids=JSON)
def test_json_that_cannot_be_worked_with(value: bytes, sentence: str, tmp_path: Path) -> None:
    data = b'{"lr": ' + value + b"}"
    with refused(sentence, ValueError):
        parse_object(data)
    (tmp_path / "config.json").write_bytes(data)
    with refused(r"config\.json is not valid JSON \(.*the file is damaged"):
        read_settings(tmp_path / "config.json")
    with refused(r"config\.json is broken \("):
        raw.read_json(tmp_path / "config.json")


def test_what_can_be_worked_with_is_read() -> None:
    assert parse_json(b"[1e308, -1e-400, " + b"9" * 300 + b", " + b"[" * 90 + b"]" * 90 + b"]")[2] == 10**300 - 1


@pytest.mark.parametrize("key", ["9" * 5000, "9" * 30, "x" * 5000, "a\nb"], ids=lambda key: repr(key[:9]))
def test_a_class_map_of_nodes_that_are_not_there(key: str, tmp_path: Path) -> None:
    layouts.write_flickr(tmp_path, layouts.small(symmetric=True))
    (tmp_path / "class_map.json").write_text(json.dumps({key: 1}))
    with refused(r"class_map\.json names node '.*', which does not exist"):
        read_graphsaint(tmp_path, "flickr")


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        *(
            (value, r"the class of node '7' in .*class_map\.json must be a number 0, 1, \.\.\., not")
            for value in ("\u2028", "a\nb", "x" * 5000)
        ),
        ([[1] * 500], r"the labels of node '7' in .*class_map\.json must be 1 zeros or ones, not"),
    ],
    ids=lambda value: repr(value)[:9],
)
def test_a_class_that_is_no_number(value: object, rule: str, tmp_path: Path) -> None:
    layouts.write_flickr(tmp_path, layouts.small(symmetric=True))
    (tmp_path / "class_map.json").write_text(json.dumps({"7": value}))
    with refused(rule):
        read_graphsaint(tmp_path, "flickr")


def test_a_list_of_counts_that_grows_a_thousandfold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raw, "_BLOCK", 2**16)
    layouts.write_arxiv(tmp_path, layouts.small(symmetric=False))
    path = tmp_path / "raw" / "num-node-list.csv.gz"
    path.write_bytes(gzip.compress(b"0\n" * 2_000_000, mtime=0))
    with refused(r"num-node-list\.csv\.gz is broken \(it has more than 1 rows\)"):
        read_arxiv(tmp_path)


# Settings

TOML = {
    "5000 digits": ("lr = 0x" + "f" * 5000, "a number of more than 300 digits"),
    "5000 digits within": ("num_neighbors = [[0x" + "f" * 5000 + "]]", "a number of more than 300 digits"),
    "dotted keys": ("lr." + "a." * 5000 + "a = 1", "it nests values more than 100 deep"),
    "lists": ("lr = " + "[" * 150 + "]" * 150, "it nests values more than 100 deep"),
    "longer than by hand": ("lr." + "a." * 2_000_000 + "a = 1", r"run\.toml is longer than 65536 bytes"),  # hours
    "a path with a NUL": ('graph = "a\\u0000b"', r"graph must be a path, not 'a\\x00b'"),
    "a path of two lines": ('root = "a\\nb"', r"root must be a path, not 'a\\nb'"),
    "a path that clears the screen": ('root = "\\u001b[2J"', r"root must be a path, not '\\x1b\[2J'"),
    "a path that is empty": ('graph = ""', "graph must be a path, not ''"),
    "a data set that is a list": ("dataset = ['cora']", r"dataset must be a name, not \['cora'\]"),
    "a data set that is an empty table": ("dataset = {}", "dataset must be a name, not {}"),
    "an unknown option": ('"' + "x" * 9000 + '" = 1', "unknown option 'x{80}'"),
    "a long text": (f'estimator = "{"x" * 3000}"', "unknown estimator 'x"),
    "a longer text": (f'estimator = "{"x" * 9000}"', "estimator has 9000 characters or entries; at most 4096"),
    "a long list": (f"num_neighbors = {[1] * 3000}", "num_neighbors has 3000 entries"),
}


@pytest.mark.parametrize(("text", "sentence"), TOML.values(), ids=TOML)
def test_toml_that_no_run_has(text: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(text)
    with refused(sentence):
        read_settings(tmp_path / "run.toml")


def test_a_path_that_no_system_has(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"graph": "\\ud800"}')
    with refused(r"graph must be a path, not '\\ud800'"):
        read_settings(tmp_path / "config.json")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere names are text")
def test_a_path_that_is_no_text_is_read_as_it_was_written(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"graph": "/a\udcff"}))
    assert read_settings(tmp_path / "config.json")[0].graph == Path("/a\udcff")


# Runs


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run folder for `make_graph(n=12, features=3)`, made by hand."""
    options = {"hidden": 3, "threads": 1}
    trainer = build_trainer(make_graph(n=12, features=3), TrainConfig(**options))  # type: ignore[arg-type]
    (tmp_path / "config.json").write_text(json.dumps(options))
    (tmp_path / "result.json").write_text(json.dumps({"num_classes": 3}))
    save_file(trainer.model.state_dict(), tmp_path / "weights.safetensors")
    return tmp_path


def restore(run: Path) -> None:
    read_run(run, make_graph(n=12, features=3)).predict([0])


def test_the_run_is_sound(run: Path) -> None:
    restore(run)


@pytest.mark.parametrize(
    ("file", "changes"),
    [
        ("result.json", {"num_classes": 10**12}),
        ("config.json", {"hidden": 2**20}),
        ("config.json", {"layers": 100}),
        ("config.json", {"layers": 100, "hidden": 2**20}),
    ],
    ids=str,
)
def test_no_memory_is_taken_for_weights_that_are_not_there(file: str, changes: dict[str, int], run: Path) -> None:
    values = json.loads((run / file).read_text())
    (run / file).write_text(json.dumps({**values, **changes}))
    with refused(
        r"weights\.safetensors does not fit the graph 'random': layers\.\S+ is (nothing|\[.*\]) in the file|num_classes must be"
    ):
        restore(run)


@pytest.mark.parametrize("changes", [{"hidden": 10**12}, {"hidden": 10**40}, {"layers": 10**9}], ids=str)
def test_sizes_that_no_run_has(changes: dict[str, int], run: Path) -> None:
    values = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**values, **changes}))
    with refused(rf"config\.json: {next(iter(changes))} must be at most \d+, not 10+"):
        restore(run)


def test_classes_that_are_no_number(run: Path) -> None:
    (run / "result.json").write_text(json.dumps({"num_classes": "x" * 5000}))
    with refused(r"result\.json: num_classes must be a whole number of at least 1, not 'x+\.\.\.x+'"):
        restore(run)


def rename(old: bytes, new: bytes) -> Callable[[Path], None]:
    """Change the header of a safetensors file."""

    def change(path: Path) -> None:
        data = path.read_bytes()
        length = int.from_bytes(data[:8], "little")
        text = data[8 : 8 + length].replace(old, new, 1)
        path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])

    return change


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (rename(b'"F32"', b'"X\\n"'), r"cannot read .*weights\.safetensors: weights\.safetensors is damaged \('.*'\)$"),
        (rename(b"layers.0.bias", b"a\\nb"), r"'a\\nb' is \[3\] in the file, but"),
        (rename(b"layers.0.bias", b"x" * 5000), "x{80} is|layers.0.bias is nothing"),
        (lambda path: path.write_bytes(b"\xff" * 8), "weights.safetensors states a header of"),
        (lambda path: path.write_bytes(b""), "weights.safetensors is damaged"),
        (rename(b'"F32"', b'"I32"'), r"holds 'layers\.[01]\.(weight|bias)' as torch.int32; weights are"),
    ],
)
def test_spoiled_weights(change: Callable[[Path], None], sentence: str, run: Path) -> None:
    change(run / "weights.safetensors")
    with refused(sentence):
        restore(run)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.complex64, torch.int64, torch.bool, torch.bfloat16])
def test_weights_of_another_kind(dtype: torch.dtype, run: Path) -> None:
    """Of some, torch does not know whether they are finite; others it would convert, with a warning."""
    trainer = build_trainer(make_graph(n=12, features=3), TrainConfig(hidden=3, threads=1))
    save_file({k: t.to(dtype) for k, t in trainer.model.state_dict().items()}, run / "weights.safetensors")
    with refused(r"holds 'layers\.[01]\.[a-z]+' as torch\..*(; weights are float32 or float64|, which is not read)"):
        restore(run)


# Checkpoints


def checkpoint(folder: Path, **changes: Any) -> list[str]:
    """What is said of a checkpoint whose JSON has a right checksum."""
    Checkpoints(folder).save({"a": torch.ones(2)}, {})
    file = folder / "000001" / "checkpoint.json"
    body = {**json.loads(file.read_text()), **changes}
    del body["sha256"]
    file.write_text(add_checksum(body))
    with logged() as said, contextlib.suppress(CvgnnError):  # none is sound
        Checkpoints(folder).newest()
    return said


@pytest.mark.parametrize("digest", ["a\nb", "9" * 5000, "", "é" * 64])
def test_a_checksum_that_is_none(digest: str, tmp_path: Path) -> None:
    (said,) = checkpoint(tmp_path, tensors_sha256=digest)
    assert said.endswith("checkpoint.json lacks fields of a checkpoint, or has others")


def test_a_version_of_two_lines(tmp_path: Path) -> None:
    assert checkpoint(tmp_path, version="1\n2") == []  # not damaged, but not ours to read
    with refused(r"checkpoint\.json is of version '1\\n2', and this cvgnn reads version 1"):
        Checkpoints(tmp_path).newest()


@pytest.mark.parametrize(
    ("new", "sentence"),
    [
        (b'"X\\n"', r"t is damaged \(.*header"),
        (b'"' + b"x" * 5000 + b'"', r"t is damaged \("),
        (b'"F8_E4M3"', r"t is damaged \("),  # half as many bytes
        (b'"C64"', r"t is damaged \("),
    ],
)
def test_a_file_of_tensors_with_another_header(new: bytes, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "t"
    save_file({"a": torch.ones(2)}, path)
    rename(b'"F32"', new)(path)
    with refused(sentence, ValueError):
        read_tensors(path, sha256=hashlib.sha256(path.read_bytes()).hexdigest())


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.complex64, torch.uint32])
def test_tensors_of_a_kind_that_no_checkpoint_holds(dtype: torch.dtype, tmp_path: Path) -> None:
    path = tmp_path / "t"
    save_file({"a\nb": torch.ones(2).to(dtype)}, path)
    with refused(r"t holds 'a\\nb' as torch\.\w+, which is not read", ValueError):
        read_tensors(path, sha256=hashlib.sha256(path.read_bytes()).hexdigest())


State = tuple[dict[str, torch.Tensor], dict[str, Any]]
OPTIMIZERS = {"adam": {}, "paper": {"form": "paper", "optimizer": "adagrad"}}


def trained(**options: Any) -> tuple[Trainer, State]:
    """A trainer like the one whose state after an epoch comes with it."""
    graph, config = make_graph(n=12, features=3), TrainConfig(hidden=3, batch_size=3, threads=1, **options)
    trainer = build_trainer(graph, config)
    trainer.train_epoch(1)
    return build_trainer(graph, config, initialize=False), trainer_state(trainer)


def numbers(**changes: Any) -> Callable[[State], object]:
    return lambda state: state[1].update(changes)


def position(**changes: Any) -> Callable[[State], object]:
    return lambda state: state[1]["position"].update(changes)


def tensor(name: str, value: torch.Tensor) -> Callable[[State], object]:
    return lambda state: state[0].update({name: value})


STATES: dict[str, tuple[Callable[[State], object], str]] = {
    "names of two lines": (tensor("estimator.a\nb", torch.ones(1)), r"the state holds 'estimator.a\\nb', which this run does not have"),
    "names of other things": (tensor("other", torch.ones(1)), "the state holds 'other', which this run does not have"),
    "long names": (tensor("estimator." + "x" * 5000, torch.ones(1)), "which this run does not have"),
    "many names": (lambda state: [tensor(f"estimator.{i}", torch.ones(1))(state) for i in range(5000)], "which this run does not have"),
    "weights of another model": (tensor("model.layers.9.weight", torch.ones(1)), "the state holds 'model.layers.9.weight', which this run does not have"),
    "best weights of no best": (tensor("best.layers.0.bias", torch.ones(3)), "the state holds 'best.layers.0.bias', which this run does not have"),
    "an optimizer of another model": (tensor("optimizer.9.step", torch.ones(())), "the state holds 'optimizer.9.step', which this run does not have"),
    "numbers of another model": (lambda state: state[1]["optimizer"].update({"9.t": 1}), "the state holds 'optimizer.9.t', unlike the state of this optimizer"),
    "something more in the optimizer": (tensor("optimizer.0.more", torch.ones(())), "the state holds 'optimizer.0.more', which this run does not have"),
    "a list in the optimizer": (lambda state: state[1]["optimizer"].update({"0.more": [1]}), "the state holds 'optimizer.0.more', unlike"),
    "steps beyond all counting": (numbers(iterations=10**30), "the state's iterations is 10+"),
    "steps that do not fit the epoch": (numbers(iterations=7), "the state is at epoch 1, step 2, after 7 steps, but epochs have 2 steps"),
    "more steps than an epoch has": (position(steps=3), "but epochs have 2 steps"),
    "an epoch beyond all counting": (position(epoch=10**30), "the state's epoch is 10+"),
    "a loss of NaN": (position(loss_sum=float("nan")), "the state's loss_sum is nan"),
    "seconds below 0": (position(seconds=-1.0), "the state's seconds is -1.0"),
    "a text for an epoch": (position(epoch="x" * 5000), r"the state's epoch is 'x+\.\.\.x+'"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "sentence"), STATES.values(), ids=STATES)
def test_states_that_no_run_has(change: Callable[[State], object], sentence: str) -> None:
    trainer, state = trained()
    change(state)
    with refused(sentence):
        restore_trainer(trainer, *state)


OPTIMIZER_STATES: dict[str, tuple[str, Callable[[State], object], str]] = {
    "without a moment": ("adam", lambda state: state[0].pop("optimizer.0.M"), "the state lacks optimizer.0.M"),
    "a moment of one number": ("adam", tensor("optimizer.0.M", torch.ones(())), r"optimizer.0.M is torch.float32 \[\] in the state"),
    "a moment of another dtype": ("adam", tensor("optimizer.0.M", torch.ones(3, 3).double()), "optimizer.0.M is torch.float64"),
    "a step count as wide as the weights": ("adam", lambda state: (state[1]["optimizer"].pop("0.t"), tensor("optimizer.0.t", torch.ones(3, 3))(state)), "the state lacks 'optimizer.0.t'"),
    "a count of text": ("paper", lambda state: state[1]["optimizer"].update({"0.t": "1"}), "optimizer.0.t is '1' in the state"),
    "a count below 0": ("paper", lambda state: state[1]["optimizer"].update({"0.t": -1}), "optimizer.0.t is -1 in the state"),
    "without a count": ("paper", lambda state: state[1]["optimizer"].pop("0.t"), "the state lacks 'optimizer.0.t'"),
}  # fmt: skip


@pytest.mark.parametrize(("which", "change", "sentence"), OPTIMIZER_STATES.values(), ids=OPTIMIZER_STATES)
def test_states_that_no_optimizer_has(which: str, change: Callable[[State], object], sentence: str) -> None:
    """A step with one of these would fail, or take some other step."""
    trainer, state = trained(**OPTIMIZERS[which])
    change(state)
    with refused(sentence):
        restore_trainer(trainer, *state)


def test_the_states_before_the_changes_are_sound() -> None:
    for options in OPTIMIZERS.values():
        trainer, state = trained(**options)
        restore_trainer(trainer, *state)
        trainer.train_epoch(2)


def test_an_optimizer_that_takes_no_plain_step_is_restored_unlooked_at() -> None:
    """It may want a closure; then nobody knows beforehand what it keeps."""
    graph, config = make_graph(n=12, features=3), TrainConfig(hidden=3, batch_size=3, threads=1)

    def factory(parameters: Any) -> torch.optim.Optimizer:
        return torch.optim.LBFGS(parameters)

    tensors, numbers = trainer_state(build_trainer(graph, config, optimizer_factory=factory))
    restore_trainer(build_trainer(graph, config, optimizer_factory=factory), tensors, numbers)


def test_npz_is_still_read(tmp_path: Path) -> None:
    assert read_graph(npz()(tmp_path)).num_nodes == 4
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.arange(3), version=(2, 0))
    assert raw.read_npz(archive(tmp_path, y=stream.getvalue()), "y")[0].tolist() == [0, 1, 2]
