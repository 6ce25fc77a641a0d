"""Cora, CiteSeer and PubMed from the raw Planetoid files, `ind.NAME.{x,y,tx,ty,allx,ally,graph,test.index}`.

The files are Python 2 pickles, and unpickling a foreign file runs what it says. So a file is unpickled only if its
SHA-256 is the known one, and even then by an unpickler that knows the six names these files need and no other.
"""

from __future__ import annotations

import hashlib
import io
import pickle
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cvgnn.datasets.arrays import GraphArrays
from cvgnn.errors import CvgnnError, unknown_name

NAMES = ("cora", "citeseer", "pubmed")
SUFFIXES = ("x", "y", "tx", "ty", "allx", "ally", "graph", "test.index")
NUM_VAL = 500

SHA256 = {
    "ind.citeseer.allx": "2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668",
    "ind.citeseer.ally": "f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95",
    "ind.citeseer.graph": "d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7",
    "ind.citeseer.test.index": "2af990671580b6b2df5d158d1038f8292e30c9cd821b5453f399659b25b723d4",
    "ind.citeseer.tx": "539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21",
    "ind.citeseer.ty": "55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce",
    "ind.citeseer.x": "d20de19150741e555de0ed037195630fc194114ebc7fd72ced62810148aa22f6",
    "ind.citeseer.y": "8ba87e515d8e3ee3cf52f6d2c5b86aa73f11ecad825a808455209ec26cd54924",
    "ind.cora.allx": "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543",
    "ind.cora.ally": "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71",
    "ind.cora.graph": "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d",
    "ind.cora.test.index": "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875",
    "ind.cora.tx": "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a",
    "ind.cora.ty": "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad",
    "ind.cora.x": "23cfa55d91c6f624233f5eb7b6e3f141f1bd2b2ae39608a63cf5d084bb27baab",
    "ind.cora.y": "94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1",
    "ind.pubmed.allx": "508e538e2abdccdd54c4d3e9f49d638b4af7107d85845f66ddea5a5152658b7e",
    "ind.pubmed.ally": "0c37bbe3b5014ec365e9d393cf4791925e5ed94fb194305d74f064a8d7b50f0e",
    "ind.pubmed.graph": "5b89f0036ca22909471f1e6558eb42fa06e0c730a577bde5b058b40638f81dc9",
    "ind.pubmed.test.index": "b101d421688bbaecbd82e8a18f1e282378d6830f3a37666f28ebc47f844341b5",
    "ind.pubmed.tx": "4eb5f5d0f30f26497eb0ac6ac9719d09c67e284f1ed0385c93f3ef27a671da3d",
    "ind.pubmed.ty": "ee2e0d4819d9fbcc403689c3bf2e49face401b605932f093bc58ab6461130fdd",
    "ind.pubmed.x": "fbe9cb5c47200d1b7769a26e579be3b7130b556831f9d850e77c4c74f2599b33",
    "ind.pubmed.y": "e6c807633307a07ed659249006536a147c7999c797f11a2560752990181b41b3",
}


class _RawCsr:
    """Stands in for the pickled `csr_matrix`: takes its attributes as they are, whatever SciPy's version."""

    _shape: tuple[int, int]
    indptr: npt.NDArray[np.int32]
    indices: npt.NDArray[np.int32]
    data: npt.NDArray[np.float32]

    def entries(self, row_ids: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], ...]:
        """The node id of every stored entry, if row i belongs to node `row_ids[i]`, and its column."""
        return np.repeat(row_ids, np.diff(self.indptr)), self.indices.astype(np.int64)


_ALLOWED: Mapping[tuple[str, str], Any] = {
    ("scipy.sparse.csr", "csr_matrix"): _RawCsr,
    # The function is private and has moved within numpy; any array's own pickle names it.
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
        """The object behind a pickled name."""
        if (module, name) not in _ALLOWED:
            raise CvgnnError(
                f"{self._path} asks for '{module}.{name}', which no Planetoid file needs, so it was not "
                "executed; do not trust this file, take it again from its original source"
            )
        return _ALLOWED[module, name]


def _unpickle(data: bytes, path: Path) -> Any:
    return _RestrictedUnpickler(data, path).load()


def _read_checked(path: Path) -> bytes:
    """The bytes of a raw file whose checksum is the known one."""
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        dataset = path.name.split(".")[1]
        raise CvgnnError(
            f"the file {path.name} is missing in the folder {path.parent}; put the {len(SUFFIXES)} raw Planetoid "
            f"files ind.{dataset}.{{{','.join(SUFFIXES)}}} there, or give the folder that has them"
        ) from None
    except OSError as error:
        raise CvgnnError(f"cannot read {path}: {error.strerror}; check the file and its permissions") from error
    found, expected = hashlib.sha256(data).hexdigest(), SHA256[path.name]
    if found != expected:
        raise CvgnnError(
            f"{path} is not the known Planetoid file and was not opened: its SHA-256 should be {expected} "
            f"but is {found}; take it again, unchanged, from the `data` folder of Planetoid's repository"
        )
    return data


def _simple_edges(graph: Mapping[int, list[int]], num_nodes: int) -> npt.NDArray[np.int32]:
    """Each undirected edge of an adjacency dict once, as sorted (u, v) with u < v; self loops are dropped."""
    sources = np.repeat(
        np.fromiter(graph.keys(), np.int64, len(graph)), [len(neighbors) for neighbors in graph.values()]
    )
    targets = np.array([v for neighbors in graph.values() for v in neighbors], dtype=np.int64)
    low, high = np.minimum(sources, targets), np.maximum(sources, targets)
    keys = np.unique((low * num_nodes + high)[low < high])
    return np.stack([keys // num_nodes, keys % num_nodes], axis=1).astype(np.int32)


def read_planetoid(folder: Path, name: str) -> GraphArrays:
    """Read one Planetoid data set from its eight raw files, with the public split.

    Train are the first `len(y)` nodes, validation the next 500, test the ids in `test.index`. CiteSeer has 15 node
    ids in the range of the test nodes that `test.index` does not list: they have edges but neither features nor a
    label. As in Planetoid, Kipf's GCN and PyG they get a zero row and, by argmax of a zero row, class 0; they are
    in no part of the split.

    Args:
        folder: Where the files `ind.NAME.*` are.
        name: "cora", "citeseer" or "pubmed".
    """
    if name not in NAMES:
        raise unknown_name("Planetoid data set", name, NAMES)
    paths = {suffix: Path(folder) / f"ind.{name}.{suffix}" for suffix in SUFFIXES}
    # All eight are checked before the first is unpickled, and what is unpickled are the very bytes checked.
    raw = {suffix: _read_checked(path) for suffix, path in paths.items()}
    y_train, y_test, y_rest = (_unpickle(raw[s], paths[s]) for s in ("y", "ty", "ally"))
    x_test: _RawCsr = _unpickle(raw["tx"], paths["tx"])
    x_rest: _RawCsr = _unpickle(raw["allx"], paths["allx"])
    graph: Mapping[int, list[int]] = _unpickle(raw["graph"], paths["graph"])

    # Row i of tx and ty belongs to node test_index[i]; test.index is not sorted.
    test_index = np.array(raw["test.index"].split(), dtype=np.int64)
    rest_index = np.arange(len(y_rest), dtype=np.int64)
    num_nodes = int(test_index.max()) + 1

    y = np.zeros(num_nodes, dtype=np.int64)
    y[rest_index] = y_rest.argmax(axis=1)
    y[test_index] = y_test.argmax(axis=1)

    parts = (x_rest.entries(rest_index), x_test.entries(test_index))
    rows, columns = (np.concatenate(part) for part in zip(*parts, strict=True))
    order = np.lexsort((columns, rows))
    x_indptr = np.zeros(num_nodes + 1, dtype=np.int64)
    np.cumsum(np.bincount(rows, minlength=num_nodes), out=x_indptr[1:])

    num_train = len(y_train)
    return GraphArrays(
        name=name,
        num_nodes=num_nodes,
        edges=_simple_edges(graph, num_nodes),
        x_indptr=x_indptr,
        x_indices=columns[order].astype(np.int32),
        x_values=np.concatenate([x_rest.data, x_test.data])[order].astype(np.float32),
        num_features=int(x_rest._shape[1]),
        y=y,
        num_classes=int(y_rest.shape[1]),
        train_ids=np.arange(num_train, dtype=np.int64),
        val_ids=np.arange(num_train, num_train + NUM_VAL, dtype=np.int64),
        test_ids=np.sort(test_index),
    )
