"""Tensors in a safetensors file, written from where they lie and read one by one, so that nothing is held twice."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, final

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from cvgnn import disk
from cvgnn.sealed import short

_PIECE = 1 << 22
_MAX_HEADER = 1 << 24
_DTYPES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip


def write_tensors(file: BinaryIO, tensors: Mapping[str, Tensor]) -> str:
    """Write tensors in the safetensors format; returns the file's SHA-256.

    Args:
        file: new and open.
        tensors: on the CPU; contiguous ones, as histories are, are not copied.
    """
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))  # each lies aligned
    header, end = {}, 0
    for name, tensor in ordered:
        size = tensor.numel() * tensor.element_size()
        header[name] = {"dtype": _DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    start = len(text).to_bytes(8, "little") + text
    digest = hashlib.sha256(start)
    disk.write(file, start)
    for _, tensor in ordered:
        for piece in _pieces(tensor):
            disk.write(file, piece)
            digest.update(piece)
    return digest.hexdigest()


def _pieces(tensor: Tensor) -> Iterator[memoryview]:
    if tensor.numel():
        data = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().data
        for first in range(0, len(data), _PIECE):
            yield data[first : first + _PIECE]


@final
class TensorFile(Mapping[str, Tensor]):
    """The tensors of a safetensors file, each read when it is asked for.

    Args:
        path: the file. `ValueError` says what is wrong with it.
        sha256: what its bytes must have.
    """

    def __init__(self, path: Path, *, sha256: str) -> None:
        try:
            with disk.open_regular(path) as file:
                found = _digest_of(file)
                if found != sha256:
                    raise ValueError(f"{path.name} is damaged: its SHA-256 is {found}, not {sha256}")
                file.seek(0)
                header = int.from_bytes(file.read(8), "little")
                if header > min(_MAX_HEADER, os.fstat(file.fileno()).st_size):
                    raise ValueError(f"{path.name} states a header of {header} bytes")
            self._file = safe_open(path, framework="pt")
            self._names = frozenset(self._file.keys())  # type: ignore[no-untyped-call]
            for name in self._names:
                kind = self._file.get_slice(name).get_dtype()  # type: ignore[no-untyped-call]
                if kind not in _DTYPES.values():
                    raise ValueError(f"{path.name} holds {short(name)} as {kind}, which is not read")
        except OSError as error:
            raise ValueError(f"{path.name} cannot be read ({error.strerror})") from None
        except SafetensorError as error:
            raise ValueError(f"{path.name} is damaged ({short(str(error))})") from None

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._names:
            raise KeyError(name)
        tensor: Tensor = self._file.get_tensor(name)  # type: ignore[no-untyped-call]
        return tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _digest_of(file: BinaryIO) -> str:
    digest = hashlib.sha256()
    while piece := file.read(_PIECE):
        digest.update(piece)
    return digest.hexdigest()
