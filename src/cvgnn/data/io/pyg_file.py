"""Reads a PyTorch Geometric graph from a `.pt` file. It is a pickle; only torch's restricted loader opens it."""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cvgnn.data import Graph, RandomSplit, from_pyg
from cvgnn.data.io.size_checks import check_archive, check_memory
from cvgnn.errors import CvgnnError, require
from cvgnn.utils.formatting import join_printable
from cvgnn.utils.optional_import import import_optional

# The classes inside a saved `Data`; no others are loaded.
_PYG_CLASSES = (
    "torch_geometric.data.data.Data",
    "torch_geometric.data.data.DataEdgeAttr",
    "torch_geometric.data.data.DataTensorAttr",
    "torch_geometric.data.storage.GlobalStorage",
)
_EXPORT = (
    "load it where it was made and save plain tensors: "
    "torch.save({k: v for k, v in data.to_dict().items() if torch.is_tensor(v)}, 'graph.pt')"
)


def read_pt(path: Path, *, split: RandomSplit | None = None, directed: bool = False) -> Graph:
    """Read a graph from a file of `torch.save` with `weights_only=True`: no code in it runs.

    Args:
        path: holds a `torch_geometric.data.Data`, a dict of tensors with its names (see `cvgnn.data.from_pyg`), or
            the file of PyG's `InMemoryDataset` with one graph (`processed/data.pt`).
        split, directed: as in `read_graph`.
    """
    fields = dict(_fields(_load(path)))
    x = fields.get("x")
    if isinstance(x, Tensor) and x.dtype == torch.float64:
        fields["x"] = x.float()  # as every file reader does, so that a graph trains alike from any file
    return from_pyg(fields, split=split, directed=directed, name=path.stem)


def _load(path: Path) -> Any:
    path.open("rb").close()  # a file that cannot be opened is not a damaged one
    try:
        with zipfile.ZipFile(path) as archive:
            check_archive(archive.infolist())
            damaged = archive.testzip()  # torch does not compare checksums
    except (CvgnnError, OSError, MemoryError):
        raise
    except Exception:  # on a damaged archive, zipfile raises errors of many kinds
        raise CvgnnError("it is damaged, or no file of torch.save (in the form of PyTorch 1.6 and later)") from None
    require(damaged is None, f"it is damaged: the checksum of {damaged!r} inside is wrong")
    try:
        needed = sorted(torch.serialization.get_unsafe_globals_in_checkpoint(str(path)))  # reads, runs nothing
    except Exception as error:
        what = f"it is damaged, or not written by torch.save with its default settings ({_first_line(error)})"
        raise CvgnnError(f"{what}; {_EXPORT}") from None
    refused = [name for name in needed if name not in _PYG_CLASSES]
    require(not refused, f"it needs {join_printable(refused[:3])} to load, which is not allowed; {_EXPORT}")
    classes = [_pyg_class(name) for name in (_PYG_CLASSES if needed else ())]
    try:
        with torch.serialization.safe_globals(classes), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns that its sparse tensors are in beta
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # on a crafted or damaged file, torch's loader raises errors of many kinds
        raise CvgnnError(f"torch refuses to load it ({_first_line(error)}); {_EXPORT}") from None


def _pyg_class(name: str) -> Any:
    module, _, cls = name.rpartition(".")
    return getattr(import_optional(module, extra="pyg", purpose="a file with a torch_geometric Data"), cls)


def _fields(loaded: Any) -> Mapping[str, Any]:
    """The tensors by name, out of a `Data`, a dict, or the tuple of an `InMemoryDataset`."""
    if isinstance(loaded, tuple | list) and 2 <= len(loaded) <= 3:
        require(loaded[1] is None, "it holds a data set of several graphs; save the one to train on: torch.save(data)")
        loaded = loaded[0]
    if not isinstance(loaded, Mapping):
        require(
            type(loaded).__module__ == "torch_geometric.data.data",
            f"it holds a {type(loaded).__name__}, neither a torch_geometric Data nor a dict of tensors; {_EXPORT}",
        )
        try:
            loaded = loaded.to_dict()
        except Exception as error:  # a Data whose insides are not a Data's
            raise CvgnnError(f"the Data in it is broken ({_first_line(error)})") from None
        require(isinstance(loaded, Mapping), "the Data in it is broken (it has no fields)")
    fields: Mapping[str, Any] = loaded
    for key, value in fields.items():
        # A tensor may repeat one stored number many times; written out it takes what its shape says.
        if isinstance(value, Tensor) and value.layout is torch.strided:
            check_memory(value.numel() * value.element_size(), str(key))
    return fields


def _first_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    line = next((line for line in text.splitlines() if "WeightsUnpickler error" in line), text.splitlines()[0])
    return join_printable([line.strip()[:200]])
