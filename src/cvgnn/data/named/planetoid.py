"""Cora, CiteSeer and PubMed from the raw Planetoid files, and the CiteSeer that comes with the package.

The raw files `ind.NAME.{x,y,tx,ty,allx,ally,graph,test.index}` are Python 2 pickles, and unpickling a foreign file can
run any code. So a file is unpickled only if its SHA-256 is the known one, and even then by an unpickler that resolves
the six names that these files need and no other.
"""

from __future__ import annotations

import hashlib
import io
import pickle
from collections import defaultdict
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from cvgnn.data import Graph, from_arrays
from cvgnn.data.io import read_graph
from cvgnn.data.named.catalog import DATA_FOLDER, PLANETOID_SHA256, PLANETOID_SUFFIXES
from cvgnn.data.named.raw_files import read_errors
from cvgnn.errors import CvgnnError, require

NUM_VAL = 500


def load_bundled_citeseer() -> Graph:
    """CiteSeer with the public split, from a graph file inside the package (see data/README.md).

    >>> load_bundled_citeseer().num_nodes
    3327
    """
    file = DATA_FOLDER / "citeseer.npz"
    require(file.is_file(), f"the bundled data set {file} is missing: this installation is incomplete; reinstall cvgnn")
    with resources.as_file(file) as path:  # a copy, where the package is a zip file
        return read_graph(path)


class _RawCsr:
    """Replaces the pickled `csr_matrix`; takes its `_shape`, `indptr`, `indices`, `data`, whatever SciPy's version."""


_ALLOWED: Mapping[tuple[str, str], Any] = {
    ("scipy.sparse.csr", "csr_matrix"): _RawCsr,
    # The function is private and has moved within numpy; the pickle of any array names it.
    ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("collections", "defaultdict"): defaultdict,
    ("__builtin__", "list"): list,
}


class _RestrictedUnpickler(pickle.Unpickler):
    """An unpickler that resolves the names in `_ALLOWED` and refuses all others."""

    def __init__(self, data: bytes, path: Path) -> None:
        super().__init__(io.BytesIO(data), encoding="latin1")
        self._path = path

    def find_class(self, module: str, name: str) -> Any:
        """Return the object that a pickled name stands for."""
        if (module, name) not in _ALLOWED:
            raise CvgnnError(
                f"{self._path} asks for '{module}.{name}', which no Planetoid file needs, so it was not "
                "executed; do not trust this file, take it again from its original source"
            )
        return _ALLOWED[module, name]


def _unpickle(data: bytes, path: Path) -> Any:
    return _RestrictedUnpickler(data, path).load()


def _read_checked(path: Path) -> bytes:
    """Read a raw file if its checksum is the known one."""
    with read_errors(path):
        data = path.read_bytes()
    found, expected = hashlib.sha256(data).hexdigest(), PLANETOID_SHA256[path.name]
    if found != expected:
        raise CvgnnError(
            f"{path} is not the known Planetoid file and was not opened: its SHA-256 should be {expected} "
            f"but is {found}; take it again, unchanged, from the `data` folder of Planetoid's repository"
        )
    return data


def read_planetoid(folder: Path, name: str) -> Graph:
    """Read one Planetoid data set from its eight raw files, with the public split.

    The training nodes are the first `len(y)`, the validation nodes the next 500, the test nodes those in `test.index`.
    CiteSeer has 15 node ids in the range of the test nodes that `test.index` does not list: they have edges but
    neither features nor a label. As in Planetoid, Kipf's GCN and PyG they get a zero row and, by argmax of a zero row,
    class 0; they are in no part of the split.

    Args:
        folder: holds the files `ind.NAME.*`.
        name: "cora", "citeseer" or "pubmed".
    """
    paths = {suffix: Path(folder) / f"ind.{name}.{suffix}" for suffix in PLANETOID_SUFFIXES}
    # All eight are checked before the first is unpickled, and the bytes that are unpickled are the bytes checked.
    raw = {suffix: _read_checked(path) for suffix, path in paths.items()}
    y_train, y_test, y_rest, x_test, x_rest, graph = (
        _unpickle(raw[suffix], paths[suffix]) for suffix in ("y", "ty", "ally", "tx", "allx", "graph")
    )

    # Row i of tx and ty belongs to node test_index[i]; test.index is not sorted.
    test_index = np.array(raw["test.index"].split(), dtype=np.int64)
    rest_index = np.arange(len(y_rest))
    num_nodes, num_train = int(test_index.max()) + 1, len(y_train)
    y = np.zeros(num_nodes, dtype=np.int64)
    y[rest_index] = y_rest.argmax(axis=1)
    y[test_index] = y_test.argmax(axis=1)

    rows = np.concatenate([np.repeat(i, np.diff(x.indptr)) for i, x in ((rest_index, x_rest), (test_index, x_test))])
    columns, values = (np.concatenate([getattr(x, part) for x in (x_rest, x_test)]) for part in ("indices", "data"))
    shape = (num_nodes, int(x_rest._shape[1]))
    return from_arrays(
        # The files list most edges in both directions, some twice and some as self loops: each counts once.
        np.array([(u, v) for u, neighbors in graph.items() for v in neighbors]).T,
        x=scipy.sparse.coo_array((values.astype(np.float32), (rows, columns)), shape=shape),
        y=y,
        train_ids=np.arange(num_train),
        val_ids=np.arange(num_train, num_train + NUM_VAL),
        test_ids=test_index,
        num_classes=int(y_rest.shape[1]),
        name=name,
    )
