"""Time from tables to a graph: five million edges between 500,000 nodes, integer or string ids, CSV and Parquet.

    python benchmarks/read_tables.py

Each form is written to a temporary folder and read three times in a fresh process, so that no form finds the memory of
the one before. "CPU" is what the first time takes on all cores together, which other processes on the machine change
little. "quoted" is CSV with quotes around every name, as R writes it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

import common
from cvgnn.data.io import read_graph

NODES, EDGES, REPEATS = 500_000, 5_000_000, 3
GOALS = {("integer", "csv"): 4.0, ("integer", "parquet"): 2.5, ("string", "csv"): 8.0, ("string", "parquet"): 5.0}


def write(folder: Path, name: str, form: str, table: pa.Table) -> None:
    """Write a table; its form is csv, quoted or parquet."""
    if form == "parquet":
        pa.parquet.write_table(table, folder / f"{name}.parquet")
        return
    style = "needed" if form == "quoted" else "none"
    pa.csv.write_csv(table, folder / f"{name}.csv", pa.csv.WriteOptions(quoting_style=style))


def read(folder: str) -> None:
    """Read a folder several times; print the seconds, and the CPU seconds of the first time."""
    seconds, cpu = [], 0.0
    for _ in range(REPEATS):
        start, cpu_start = time.perf_counter(), time.process_time()
        graph = read_graph(folder)
        seconds.append(time.perf_counter() - start)
        cpu = cpu or time.process_time() - cpu_start
        assert graph.num_nodes == NODES
    print(json.dumps([seconds, cpu]))


def main() -> None:
    """Write each form, read it, report the seconds."""
    arguments = common.parser(__doc__ or "", "read_tables").parse_args()
    rng = np.random.default_rng(0)
    ends = rng.integers(0, NODES, (2, EDGES))
    rows = []
    for kind in ("integer", "string"):
        ids = np.arange(NODES) + 1000
        ids = ids if kind == "integer" else np.char.add("user", ids.astype(str))
        nodes = pa.table({"id": ids, "f": rng.normal(size=NODES), "label": rng.integers(0, 3, NODES)})
        edges = pa.table({"source": ids[ends[0]], "target": ids[ends[1]]})
        for form in ("csv", "parquet", *(["quoted"] if kind == "string" else [])):
            with tempfile.TemporaryDirectory() as name:
                write(Path(name), "nodes", form, nodes)
                write(Path(name), "edges", form, edges)
                size = sum(file.stat().st_size for file in Path(name).iterdir())
                done = subprocess.run([sys.executable, __file__, "--read", name], capture_output=True, check=True)
            seconds, cpu = json.loads(done.stdout)
            goal = GOALS.get((kind, form))
            rows.append(
                {
                    "ids": kind, "form": form, "MB": round(size / 1e6), "first": f"{seconds[0]:.2f}",
                    "least": f"{min(seconds):.2f}", "most": f"{max(seconds):.2f}", "CPU": f"{cpu:.2f}",
                    "goal": goal or "",
                }
            )  # fmt: skip
            print(rows[-1], flush=True)
    common.report("read_tables", "From tables to a graph", __doc__ or "", {"Seconds": rows}, arguments.out)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--read"]:
        read(sys.argv[2])
    else:
        main()
