"""Make the bundled CiteSeer file from the raw Planetoid files.

python tools/make_bundled_citeseer.py RAW_FOLDER OUT

RAW_FOLDER holds ind.citeseer.*; OUT is usually src/cvgnn/datasets/data/citeseer.npz. The layout is described in
src/cvgnn/datasets/data/README.md, which also states the file's SHA-256: update it when the bytes change.
"""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path

import numpy as np

from cvgnn.datasets.planetoid import read_planetoid
from cvgnn.errors import CvgnnError


def make(raw_folder: Path, out: Path) -> None:
    """Write the file; numpy stamps every member with 1980-01-01, so the bytes depend on zlib's version only."""
    arrays = read_planetoid(raw_folder, "citeseer")
    counts = np.diff(arrays.x_indptr)
    if not (arrays.x_values == 1).all():
        raise CvgnnError("CiteSeer's features are not binary, but the bundled file stores only their positions")
    if max(arrays.num_nodes, arrays.num_features) > 2**16 or max(counts.max(), arrays.num_classes) > 255:
        raise CvgnnError("CiteSeer's ids do not fit the small integers of the bundled file")
    with out.open("wb") as file:
        np.savez_compressed(
            file,
            edges=arrays.edges.astype(np.uint16),
            x_counts=counts.astype(np.uint8),
            x_indices=arrays.x_indices.astype(np.uint16),
            num_features=np.uint16(arrays.num_features),
            y=arrays.y.astype(np.uint8),
            num_classes=np.uint8(arrays.num_classes),
            train_ids=arrays.train_ids.astype(np.uint16),
            val_ids=arrays.val_ids.astype(np.uint16),
            test_ids=arrays.test_ids.astype(np.uint16),
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
