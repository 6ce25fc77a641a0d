"""Tensors in a safetensors file: the same afterwards, never held twice, and nothing that is damaged is taken."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save
from torch import Tensor

from cvgnn.training import resume
from cvgnn.training.checkpoint import _DTYPES, read_tensors, write_tensors
from cvgnn.training.resume import tensor_bytes

SHAPES: list[tuple[int, ...]] = [(), (0,), (1,), (7,), (3, 5), (0, 4), (2, 3, 4), (2, 0, 3)]


def filled(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Any bits at all, NaNs and infinities among them."""
    size = int(np.prod(shape)) * torch.empty((), dtype=dtype).element_size()
    data = np.random.default_rng(len(shape)).integers(0, 2 if dtype == torch.bool else 256, size=size, dtype=np.uint8)
    if not size:
        return torch.empty(shape, dtype=dtype)
    return torch.from_numpy(data).view(dtype).reshape(shape)


def bits(tensor: Tensor) -> bytes:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def assert_same(found: Tensor, expected: Tensor) -> None:
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert bits(found) == bits(expected)


def written(path: Path, tensors: dict[str, Tensor]) -> str:
    with path.open("xb", buffering=0) as file:
        return write_tensors(file, tensors)


EVERY_KIND = {f"{dtype} {list(shape)}": filled(shape, dtype) for dtype in _DTYPES for shape in SHAPES}
SOME = {
    "a": torch.arange(6.0).reshape(2, 3),
    "b": torch.tensor([1, -1]),
    "empty": torch.empty(0),
    "c": torch.tensor(True),
}


def test_every_dtype_and_shape(tmp_path: Path) -> None:
    digest = written(tmp_path / "t", EVERY_KIND)
    found = read_tensors(tmp_path / "t", sha256=digest)
    assert len(found) == len(EVERY_KIND)
    assert set(found) == EVERY_KIND.keys()
    for name, tensor in EVERY_KIND.items():
        assert_same(found[name], tensor)


def test_it_is_a_safetensors_file(tmp_path: Path) -> None:
    written(tmp_path / "t.safetensors", EVERY_KIND)
    found = load_file(tmp_path / "t.safetensors")
    assert found.keys() == EVERY_KIND.keys()
    for name, tensor in EVERY_KIND.items():
        assert_same(found[name], tensor)


def test_the_digest_is_the_files(tmp_path: Path) -> None:
    digest = written(tmp_path / "t", SOME)
    assert digest == hashlib.sha256((tmp_path / "t").read_bytes()).hexdigest()


def test_a_file_of_safetensors_own_is_read(tmp_path: Path) -> None:
    data = save(SOME)
    (tmp_path / "t").write_bytes(data)
    found = read_tensors(tmp_path / "t", sha256=hashlib.sha256(data).hexdigest())
    assert found.keys() == SOME.keys()
    for name, tensor in SOME.items():
        assert_same(found[name], tensor)


def test_no_tensors(tmp_path: Path) -> None:
    digest = written(tmp_path / "t", {})
    assert dict(read_tensors(tmp_path / "t", sha256=digest)) == {}
    assert load_file(tmp_path / "t") == {}


def test_every_tensor_lies_aligned() -> None:
    file = io.BytesIO()
    write_tensors(file, EVERY_KIND)
    data = file.getvalue()
    header_size = int.from_bytes(data[:8], "little")
    assert header_size % 8 == 0
    header, end = json.loads(data[8 : 8 + header_size]), 0
    for name, entry in header.items():
        first, last = entry["data_offsets"]
        assert first == end, "a hole"
        end = last
        assert (8 + header_size + first) % EVERY_KIND[name].element_size() == 0, name
    assert len(data) == 8 + header_size + end


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(12.0).reshape(3, 4).t(),
        torch.arange(12).reshape(3, 4)[:, 1::2],
        torch.arange(12, dtype=torch.bfloat16)[::3],
        torch.tensor(2.5).expand(4, 3),
        torch.arange(10, dtype=torch.float64)[4:],
        torch.ones(3, requires_grad=True),
        torch.nn.Parameter(torch.ones(2, 2)).t(),
        torch.arange(4.0).flip(0),
    ],
    ids=[
        "transposed",
        "every second column",
        "every third",
        "expanded",
        "with an offset",
        "with gradient",
        "parameter",
        "flipped",
    ],
)
def test_tensors_that_do_not_lie_in_one_piece(tmp_path: Path, tensor: Tensor) -> None:
    digest = written(tmp_path / "t", {"other": torch.ones(1), "t": tensor})
    assert_same(read_tensors(tmp_path / "t", sha256=digest)["t"], tensor.detach())
    assert_same(load_file(tmp_path / "t")["t"], tensor.detach())


@pytest.mark.parametrize("dtype", _DTYPES, ids=str)
def test_a_contiguous_tensor_is_written_from_where_it_lies(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resume, "_PIECE", 48)
    tensor = filled((10, 5), dtype)
    pieces = list(tensor_bytes(tensor))
    assert max(map(len, pieces)) <= 48
    place = tensor.data_ptr()
    for piece in pieces:
        assert np.frombuffer(piece, dtype=np.uint8).ctypes.data == place
        place += len(piece)
    assert place == tensor.data_ptr() + tensor.numel() * tensor.element_size()


def test_many_pieces_make_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = written(tmp_path / "whole", EVERY_KIND)
    monkeypatch.setattr(resume, "_PIECE", 7)
    assert written(tmp_path / "pieces", EVERY_KIND) == whole
    read_tensors(tmp_path / "pieces", sha256=whole)


def test_the_same_tensors_make_the_same_file(tmp_path: Path) -> None:
    """The order in which they are named does not count."""
    assert written(tmp_path / "a", SOME) == written(tmp_path / "b", dict(reversed(SOME.items())))


def test_a_tensor_that_is_not_there(tmp_path: Path) -> None:
    found = read_tensors(tmp_path / "t", sha256=written(tmp_path / "t", SOME))
    with pytest.raises(KeyError, match="'no'"):
        found["no"]
    assert "no" not in found
    assert found.get("no") is None


@pytest.mark.parametrize("kind", ["another content", "another digest", "one byte more"])
def test_another_digest_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "t"
    digest = written(path, SOME)
    if kind == "another digest":
        digest = digest[:-1] + ("0" if digest[-1] != "0" else "1")
    else:
        path.write_bytes(save({"a": torch.ones(1)}) if kind == "another content" else path.read_bytes() + b"\0")
    with pytest.raises(ValueError, match=f"t is damaged: its SHA-256 is [0-9a-f]{{64}}, not '{digest}'"):
        read_tensors(path, sha256=digest)


def test_every_flipped_byte_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t"
    digest, data = written(path, SOME), bytearray(path.read_bytes())
    for place in range(len(data)):
        data[place] ^= 0x10
        path.write_bytes(data)
        data[place] ^= 0x10
        with pytest.raises(ValueError, match="is damaged: its SHA-256"):
            read_tensors(path, sha256=digest)


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    """By its digest; and by its header, if somebody has adapted the digest."""
    path = tmp_path / "t"
    digest, data = written(path, SOME), (tmp_path / "t").read_bytes()
    for size in range(len(data)):
        path.write_bytes(data[:size])
        with pytest.raises(ValueError, match="is damaged: its SHA-256"):
            read_tensors(path, sha256=digest)
        with pytest.raises(ValueError, match=r"t (is damaged|states a header)"):
            read_tensors(path, sha256=hashlib.sha256(data[:size]).hexdigest())


def forged(header: Any, data: bytes = bytes(16), *, size: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if size is None else size).to_bytes(8, "little") + text + data


F32 = {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}
LIES: dict[str, bytes] = {
    "a header longer than the file": forged({"a": F32}, size=10_000),
    "a header as long as the file": forged({"a": F32}, size=8 + len(json.dumps({"a": F32})) + 16),
    "a header of 2^63 bytes": forged({"a": F32}, size=1 << 63),
    "a header of 2^64 - 1 bytes": forged({"a": F32}, size=(1 << 64) - 1),
    "a header longer than any": forged(b" " * ((1 << 24) + 1)),
    "an empty header": forged(b""),
    "a header that is cut off": forged({"a": F32}, size=10),
    "no JSON": forged(b"not JSON at all!"),
    "no UTF-8": forged(b'{"\xff\xfe": {}}'),
    "a list": forged([1, 2]),
    "an entry without a shape": forged({"a": {"dtype": "F32", "data_offsets": [0, 16]}}),
    "an unknown dtype": forged({"a": {**F32, "dtype": "F33"}}),
    "a shape that is too large": forged({"a": {**F32, "shape": [5]}}),
    "a shape that overflows": forged({"a": {**F32, "shape": [1 << 62, 4]}}),
    "a negative shape": forged({"a": {**F32, "shape": [-4]}}),
    "offsets past the end": forged({"a": {**F32, "shape": [8], "data_offsets": [0, 32]}}),
    "offsets backwards": forged({"a": {**F32, "data_offsets": [16, 0]}}),
    "two tensors in one place": forged({"a": F32, "b": F32}),
    "a hole": forged({"a": {**F32, "shape": [2], "data_offsets": [8, 16]}}),
    "bytes of nobody": forged({"a": F32}, bytes(20)),
    "eight bytes": bytes(8),
    "three bytes": b"abc",
    "a pickle": b"\x80\x02}q\x00." * 10,
}


@pytest.mark.parametrize("data", LIES.values(), ids=LIES)
def test_a_header_that_lies_is_refused(tmp_path: Path, data: bytes) -> None:
    """Even with the right digest."""
    path = tmp_path / "t"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"^t (is damaged|states a header of)"):
        read_tensors(path, sha256=hashlib.sha256(data).hexdigest())


def test_any_changed_header_is_refused_or_read(tmp_path: Path) -> None:
    path = tmp_path / "t"
    written(path, {"a": torch.arange(4.0), "b": torch.tensor([1, 2], dtype=torch.int16)})
    data = path.read_bytes()
    for place in range(8 + int.from_bytes(data[:8], "little")):
        for bit in (0x01, 0x04, 0x20):
            changed = data[:place] + bytes([data[place] ^ bit]) + data[place + 1 :]
            path.write_bytes(changed)
            try:
                found = dict(read_tensors(path, sha256=hashlib.sha256(changed).hexdigest()))
            except ValueError:
                continue
            assert sum(t.numel() * t.element_size() for t in found.values()) == 20


MISSING: dict[str, Callable[[Path], None]] = {
    "no file": lambda path: None,
    "a folder": lambda path: path.mkdir(),
    "a link to nowhere": lambda path: path.symlink_to("nowhere"),
    "a link to itself": lambda path: path.symlink_to(path.name),
}


@pytest.mark.parametrize("make", MISSING.values(), ids=MISSING)
def test_a_file_that_cannot_be_read(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "t")
    with pytest.raises(ValueError, match=r"^t cannot be read \("):
        read_tensors(tmp_path / "t", sha256="")
