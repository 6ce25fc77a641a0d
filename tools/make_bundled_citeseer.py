"""Make the bundled CiteSeer file from the raw Planetoid files.

python tools/make_bundled_citeseer.py RAW_FOLDER OUT

RAW_FOLDER holds ind.citeseer.*; OUT is usually src/cvgnn/data/named/data/citeseer.npz. The layout is described in
src/cvgnn/data/named/data/README.md, which also states the file's SHA-256: update it when the bytes change.
"""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path

import numpy as np

from cvgnn.data import SparseFeatures
from cvgnn.data.named.planetoid import read_planetoid
from cvgnn.errors import CvgnnError


def make(raw_folder: Path, out: Path) -> None:
    """Write the file; numpy stamps every member with 1980-01-01, so the bytes depend on zlib's version only."""
    graph = read_planetoid(raw_folder, "citeseer")
    x = graph.x
    if not isinstance(x, SparseFeatures) or not (x.values == 1).all():
        raise CvgnnError("CiteSeer's features are not binary, but the bundled file stores them in one byte each")
    if max(graph.num_nodes, graph.num_features) > 2**16 or graph.num_classes > 255:
        raise CvgnnError("CiteSeer's ids do not fit the small integers of the bundled file")
    rows, columns = np.repeat(np.arange(graph.num_nodes), graph.degree), graph.indices.numpy()
    with out.open("wb") as file:
        np.savez_compressed(
            file,
            edges=np.stack([rows, columns], axis=1)[rows < columns].astype(np.uint16),
            x_data=x.values.numpy().astype(np.uint8),
            x_indices=x.indices.numpy().astype(np.uint16),
            x_indptr=x.indptr.numpy().astype(np.uint32),
            x_shape=np.array(x.shape, dtype=np.uint16),
            y=graph.y.numpy().astype(np.uint8),
            num_classes=np.uint8(graph.num_classes),
            train_ids=graph.train_ids.numpy().astype(np.uint16),
            val_ids=graph.val_ids.numpy().astype(np.uint16),
            test_ids=graph.test_ids.numpy().astype(np.uint16),
        )


def main() -> None:
    """Read the command line, make the file, print its size and SHA-256."""
    parser = argparse.ArgumentParser(description="Make the bundled CiteSeer file from the raw Planetoid files.")
    parser.add_argument("raw_folder", type=Path, help="the folder with ind.citeseer.*")
    parser.add_argument("out", type=Path, help="the .npz file to write")
    options = parser.parse_args()
    try:
        make(options.raw_folder, options.out)
    except CvgnnError as error:
        raise SystemExit(f"error: {error}") from None
    data = options.out.read_bytes()
    print(f"{options.out}: {len(data):,} bytes, SHA-256 {hashlib.sha256(data).hexdigest()}")


if __name__ == "__main__":
    main()
