"""Time from tables to a graph: five million edges between 500,000 nodes, integer or string ids, CSV and Parquet.

python benchmarks/read_tables.py
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from cvgnn.data.io import read_graph

NODES, EDGES = 500_000, 5_000_000


def write(folder: Path, name: str, form: str, table: pa.Table) -> None:
    """Write a table without quotes."""
    if form == "csv":
        pa.csv.write_csv(table, folder / "t", pa.csv.WriteOptions(quoting_style="none"))
        (folder / "t").rename(folder / f"{name}.csv")
    else:
        pa.parquet.write_table(table, folder / f"{name}.parquet")


def main() -> None:
    """Write each form, read it three times, print the fastest and the slowest."""
    rng = np.random.default_rng(0)
    ends = rng.integers(0, NODES, (2, EDGES))
    for kind in ("integer", "string"):
        ids = np.arange(NODES) + 1000
        ids = ids if kind == "integer" else np.char.add("user", ids.astype(str))
        nodes = pa.table({"id": ids, "f": rng.normal(size=NODES), "label": rng.integers(0, 3, NODES)})
        edges = pa.table({"source": ids[ends[0]], "target": ids[ends[1]]})
        for form in ("csv", "parquet"):
            with tempfile.TemporaryDirectory() as name:
                write(Path(name), "nodes", form, nodes)
                write(Path(name), "edges", form, edges)
                seconds = []
                for _ in range(3):
                    start = time.perf_counter()
                    read_graph(name)
                    seconds.append(time.perf_counter() - start)
            print(f"{kind} ids, {form}: {min(seconds):.1f} to {max(seconds):.1f} s", flush=True)


if __name__ == "__main__":
    main()
