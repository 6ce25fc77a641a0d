"""The `.npz` form: every way to write a part."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from cvgnn.data.io import read_graph
from cvgnn.data.io.npz import KEYS
from cvgnn.errors import CvgnnError
from tests.data.io.broken_files import CSR, GOOD, npz
from tests.data.io.writers import assert_same


@pytest.mark.parametrize(
    "changes",
    [
        {"edge_index": GOOD["edge_index"].astype(np.uint16)},
        {"edge_index": np.asfortranarray(GOOD["edge_index"])},
        {"edge_index": GOOD["edge_index"].astype(">i8")},
        {"x": GOOD["x"].astype(np.float64)},
        {"x": GOOD["x"].astype(np.float16)},
        {"x": GOOD["x"].astype(np.int8)},
        {"x": GOOD["x"].astype(">f4")},
        {"x": np.asfortranarray(GOOD["x"])},
        {"y": GOOD["y"].astype(np.int16)},
        {"edge_weight": np.ones(3)},
        {"num_classes": np.array([2])},
    ],
    ids=lambda changes: "".join(f"{key} {value.dtype}" for key, value in changes.items()),
)
def test_arrays_of_any_type_and_order(changes: dict[str, np.ndarray], tmp_path: Path) -> None:
    (tmp_path / "good").mkdir()
    assert_same(read_graph(npz(**changes)(tmp_path)), read_graph(npz()(tmp_path / "good")))


def test_every_optional_key(tmp_path: Path) -> None:
    graph = read_graph(
        npz(
            "x",
            **CSR,
            edge_weight=[1.0, 2.0, 3.0],
            node_names=np.array([7, 5, 3, 1], dtype=np.uint8),
            class_names=["cat", "dog", "cow"],
            num_classes=3,
        )(tmp_path)
    )
    assert graph.edge_weight is not None
    assert graph.edge_weight.tolist() == [1, 1, 2, 2, 3, 3]
    assert graph.node_names is not None
    assert (graph.node_names.dtype, graph.node_names.tolist()) == (np.int64, [7, 5, 3, 1])
    assert (graph.num_classes, graph.class_names) == (3, ("cat", "dog", "cow"))
    assert torch.equal(graph.x, torch.tensor([[1.0, 0], [0, 1], [0, 1], [0, 0]]))  # type: ignore[arg-type]
    assert (graph.name, graph.split) == ("graph", "given")


def test_string_labels(tmp_path: Path) -> None:
    assert read_graph(npz("train_ids val_ids test_ids", y=["b", "", "a", "b"])(tmp_path)).y.tolist() == [1, -1, 0, 1]
    given = read_graph(npz(y=["b", "a", "a", "b"], class_names=["b", "a"])(tmp_path))
    assert (given.y.tolist(), given.class_names) == ([0, 1, 1, 0], ("b", "a"))


def test_compressed_is_the_same(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "packed.npz", **GOOD)
    assert_same(read_graph(tmp_path / "packed.npz"), read_graph(npz()(tmp_path)))


def test_the_second_version_of_the_npy_format(tmp_path: Path) -> None:
    path = npz("y")(tmp_path)
    stream = io.BytesIO()
    np.lib.format.write_array(stream, GOOD["y"], version=(2, 0))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("y.npy", stream.getvalue())
    assert read_graph(path).y.tolist() == GOOD["y"].tolist()


def test_the_keys_are_documented() -> None:
    text = (Path(__file__).parents[3] / "docs" / "files.md").read_text(encoding="utf-8")
    assert [key for key in KEYS if f"`{key}`" not in text] == []


def test_a_flipped_bit_of_a_stored_array_is_found(tmp_path: Path) -> None:
    path = npz()(tmp_path)
    data = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        member = archive.getinfo("x.npy")
        assert member.compress_type == zipfile.ZIP_STORED
    data[member.header_offset + 30 + len("x.npy") + member.file_size] ^= 1  # in the last number of x
    path.write_bytes(data)
    with pytest.raises(CvgnnError, match=r"it is damaged, or no \.npz file .*Bad CRC-32"):
        read_graph(path)
