"""Tables with text ids to a store, in bounded memory: seconds and peak memory of each stage.

    python benchmarks/ingest.py --edges 100000000

The tables are generated piece by piece: `nodes` with an id such as u0123456789, 16 columns of numbers, a label and a
split; `edges` with two ids, in both directions and skewed (the node at quantile q of a list of ends is q^2 N). There is
a node for each 14 edges, as in papers100M. `cvgnn convert --memory` runs in a process of its own whose memory the
kernel limits: by a control group, which counts the pages of files too and takes them back, or where there is none by
RLIMIT_DATA. The peak is the process's resident memory (VmHWM), pages of mapped files included.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

import common
from cvgnn.utils.formatting import format_bytes

FEATURES, PIECE, EDGES_PER_NODE = 16, 1 << 20, 14
GOALS = {"parquet": 300, "csv": 600}
CGROUP = Path("/sys/fs/cgroup/memory")


def names(numbers: np.ndarray) -> pa.Array:
    """Ids that are no integers and in no order: u and ten digits, a permutation of the numbers."""
    digits = pc.utf8_lpad(pa.array(numbers * 2654435761 % 10_000_000_019).cast(pa.string()), 11, "0")
    return pc.binary_join_element_wise("u", digits, "")


def write(file: Path, pieces: Any) -> None:
    """Write tables one after another to a Parquet or CSV file."""
    writer: Any = None
    for piece in pieces:
        if writer is None:
            kind = pa.parquet.ParquetWriter if file.suffix == ".parquet" else pa.csv.CSVWriter
            options = {} if file.suffix == ".parquet" else {"write_options": pa.csv.WriteOptions(quoting_style="none")}
            writer = kind(file, piece.schema, **options)
        writer.write_table(piece)
    writer.close()


def generate(folder: Path, form: str, num_edges: int) -> None:
    """Write both tables."""
    num_nodes = max(100, num_edges // EDGES_PER_NODE)

    def nodes() -> Any:
        for first in range(0, num_nodes, PIECE):
            rng = np.random.default_rng([1, first])
            ids = np.arange(first, min(first + PIECE, num_nodes))
            columns = {"id": names(ids)}
            columns |= {f"f{i}": pa.array(np.round(rng.normal(i, 3, ids.size), 4)) for i in range(FEATURES)}
            columns["label"] = pa.array(rng.integers(0, 40, ids.size))
            columns["split"] = pa.array(np.array(["train", "val", "test"])[rng.integers(0, 3, ids.size)])
            yield pa.table(columns)

    def edges() -> Any:
        for first in range(0, num_edges, PIECE):
            rng = np.random.default_rng([2, first])
            ends = (rng.random((2, min(PIECE, num_edges - first))) ** 2 * num_nodes).astype(np.int64)
            yield pa.table({"source": names(ends[0]), "target": names(ends[1])})

    write(folder / f"nodes.{form}", nodes())
    write(folder / f"edges.{form}", edges())


def convert(folder: Path, out: Path, memory: str, limit: int) -> None:
    """In a process of its own: `cvgnn convert`, with the time and peak of each stage."""
    stages: list[dict[str, Any]] = []
    clock = {"start": time.perf_counter()}

    def peak() -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) * 1024

    def close() -> None:
        if "stage" in clock:
            seconds = time.perf_counter() - clock["start"]
            stages.append({"stage": clock["stage"], "seconds": round(seconds, 1), "peak GiB": round(peak() / 2**30, 2)})
        clock["start"] = time.perf_counter()
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts again

    if not limit_by_group(limit):
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    from cvgnn.cli.main import main
    from cvgnn.utils import progress

    class Stages(progress.ProgressReporter):  # type: ignore[misc]
        def __call__(self, stage: str, share: float) -> None:
            if clock.get("stage") != stage:
                close()
                clock["stage"] = stage  # type: ignore[assignment]

    progress.ProgressReporter = Stages  # type: ignore[misc]
    start = time.perf_counter()
    code = main(["convert", str(folder), str(out), "--memory", memory, "--quiet"])
    close()
    if code:
        raise SystemExit(code)
    print(json.dumps({"stages": stages, "seconds": time.perf_counter() - start}))


def limit_by_group(limit: int) -> bool:
    """Move this process to a control group of its own; whether there could be one."""
    group = CGROUP / f"cvgnn-ingest-{os.getpid()}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(limit))
        (group / "cgroup.procs").write_text(str(os.getpid()))
    except OSError:
        return False
    return True


def main() -> None:
    """Generate each form, convert it, report."""
    parser = common.parser(__doc__ or "", "ingest")
    parser.add_argument("--edges", type=int, default=10_000_000)
    parser.add_argument("--forms", nargs="+", default=["parquet", "csv"])
    parser.add_argument("--memory", default="4G", help="of cvgnn convert, and the limit that the kernel enforces")
    parser.add_argument("--convert", nargs=2, type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    limit = int(arguments.memory.removesuffix("G")) * 2**30
    if arguments.convert is not None:
        convert(*arguments.convert, arguments.memory, limit)
        return
    totals, tables = [], {}
    for form in arguments.forms:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name, "tables")
            folder.mkdir()
            start = time.perf_counter()
            generate(folder, form, arguments.edges)
            size = sum(file.stat().st_size for file in folder.iterdir())
            print(f"{form}: {format_bytes(size)} generated in {time.perf_counter() - start:.0f} s", flush=True)
            command = [sys.executable, __file__, "--memory", arguments.memory, "--convert", folder, Path(name, "store")]
            child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            output, _ = child.communicate()
            group = CGROUP / f"cvgnn-ingest-{child.pid}"
            limited = "control group" if group.exists() else "RLIMIT_DATA"
            if group.exists():
                group.rmdir()
            if child.returncode:
                raise SystemExit(child.returncode)
            found = json.loads(output.splitlines()[-1])
            stages = found["stages"]
            store = sum(file.stat().st_size for file in Path(name, "store").iterdir())
            header = json.loads(Path(name, "store", "header.json").read_text())["graph"]
            shutil.rmtree(Path(name, "store"))
        totals.append(
            {
                "form": form, "edges": arguments.edges, "input": format_bytes(size), "nodes": header["num_nodes"],
                "entries": header["num_edges"], "store": format_bytes(store), "seconds": round(found["seconds"], 1),
                "goal": GOALS[form] if arguments.edges == 100_000_000 else None,
                "peak GiB": max(stage["peak GiB"] for stage in stages), "limit": f"{arguments.memory}, {limited}",
            }
        )  # fmt: skip
        tables[f"Stages, {form}"] = stages
    common.report("ingest", "Streaming ingest", __doc__ or "", {"To a store": totals, **tables}, arguments.out)


if __name__ == "__main__":
    main()
