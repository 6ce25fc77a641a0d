"""A graph of papers100M's shape on one machine: every stage in a process of its own, whose memory the kernel limits.

    python benchmarks/billion.py --scale 0.1 --memory 4G

Generate (tables: nodes.parquet, edges.npy, features.npy), convert to a store, compact to what two layers read, train
with histories on disk (width 128, fan-out 5, batches of 1,000), evaluate, and, with --kill, end training by SIGKILL
after half an epoch and resume it. Scale 1 is 111,059,956 nodes, 1,615,685,872 edges that are listed, 128 features, 172
classes, 1,207,179 training, 125,265 validation and 214,338 test nodes. Each stage's input is deleted when nobody needs
it any more. The limit is a control group, which counts pages of files, too, mapped or not, and takes them back; `group`
is the most that it ever counted. The peak is the process's resident memory (VmHWM), which has pages of libraries that
other processes brought into the page cache, too. Before each stage the page cache is emptied, where that is allowed
(root). Read: bytes that came from the disk.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import common
from cvgnn.utils.formatting import format_bytes, parse_bytes
from ingest import CGROUP, limit_by_group

# Each with the folder that it reads and the one that it writes.
STAGES = {"generate": ("", "tables"), "convert": ("tables", "store"), "compact": ("store", "compact"),
          "train": ("compact", "run")}  # fmt: skip
NODES, EDGES, FEATURES, CLASSES, SPLIT = 111_059_956, 1_615_685_872, 128, 172, (1_207_179, 125_265, 214_338)


def run_stage(stage: str, folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """What one stage does, in its own process."""
    from cvgnn.cli.main import main

    if stage == "generate":
        from cvgnn.data.named.synthetic import SyntheticSpec, generate_tables

        scale = arguments.scale
        train, val, test = (max(CLASSES, round(scale * part)) for part in SPLIT)
        spec = SyntheticSpec(
            num_nodes=round(scale * NODES), num_edges=2 * round(scale * EDGES), num_features=arguments.features,
            num_classes=CLASSES, train=train, val=val, test=test, max_degree=max(200, round(scale * 250_000)),
            feature_noise=0.6, name="synthetic-papers",
        )  # fmt: skip
        generate_tables(spec, folder / "tables")
        return {}
    codes: dict[str, list[Any]] = {
        "convert": ["convert", folder / "tables", folder / "store", "--memory", arguments.memory],
        "compact": [
            "convert", folder / "store", folder / "compact", "--compact", 1, "--memory", arguments.memory,
        ],
        "train": [
            "train", "--graph", folder / "compact", "--out", folder / "run", "--model", "gcn", "--layers", 2,
            "--hidden", 128, "--num-neighbors", 5, "--batch-size", 1000, "--epochs", arguments.epochs,
            "--norm", "layer", "--histories", "disk", "--history-dtype", arguments.history_dtype,
            "--checkpoint-minutes", 0.2 if arguments.kill else 0,
        ],
        "resume": ["train", "--resume", folder / "run"],
    }  # fmt: skip
    code = main([*map(str, codes[stage]), "--quiet"])
    if code:
        raise SystemExit(code)
    result = folder / "run" / "result.json"
    if stage in ("train", "resume"):
        found = json.loads(result.read_text())
        digest = hashlib.sha256((folder / "run" / "weights.safetensors").read_bytes()).hexdigest()
        seconds = round(found["train_seconds"] / arguments.epochs, 1)
        return {"epoch seconds": seconds, "val_accuracy": found["val_accuracy"], "weights": digest[:16]}
    return {}


def memory(process: int, kind: str) -> int:
    """Bytes of a process's memory, 0 if it has ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{kind}:")), 0)


def measured(
    stage: str, folder: Path, arguments: argparse.Namespace, *, kill_after: float | None = None
) -> dict[str, Any]:
    """Run a stage in a process with limited memory; its seconds, peak and bytes read."""
    command = [sys.executable, __file__, "--stage", stage, "--folder", folder, "--scale", arguments.scale, "--memory",
               arguments.memory, "--epochs", arguments.epochs, "--features", arguments.features, "--history-dtype",
               arguments.history_dtype, *(["--kill"] if arguments.kill else [])]  # fmt: skip
    drop = Path("/proc/sys/vm/drop_caches")
    os.sync()
    if os.access(drop, os.W_OK):
        drop.write_text("3")
    start = time.perf_counter()
    child = subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, text=True)
    if kill_after is not None:
        time.sleep(kill_after)
        child.send_signal(signal.SIGKILL)
    anonymous = 0
    while child.poll() is None:
        anonymous = max(anonymous, memory(child.pid, "RssAnon"))
        time.sleep(0.05)
    output, _ = child.communicate()
    group, counted = CGROUP / f"cvgnn-ingest-{child.pid}", {}
    if group.exists():
        most = int((group / "memory.max_usage_in_bytes").read_text())
        counted = {"group GiB": round(most / 2**30, 2)}
        group.rmdir()
    seconds = time.perf_counter() - start
    if kill_after is not None:
        return {"stage": f"{stage}, killed", "seconds": round(seconds, 1)}
    if child.returncode:
        raise SystemExit(f"{stage} ended with exit code {child.returncode}")
    own = {"anonymous GiB": round(anonymous / 2**30, 2)}  # what no kernel can take back
    row = {"stage": stage, "seconds": round(seconds, 1), **own, **counted, **json.loads(output.splitlines()[-1])}
    row["on disk"] = format_bytes(sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()))
    print(row, flush=True)
    return row


def run_stages(folder: Path, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """All stages, but for those that `stages.json` in the folder has."""
    record = folder / "stages.json"
    rows: list[dict[str, Any]] = json.loads(record.read_text()) if record.exists() else []
    for stage, (read, written) in STAGES.items():
        if stage in arguments.stages and all(row["stage"] != stage for row in rows):
            shutil.rmtree(folder / written, ignore_errors=True)  # of a stage that was killed
            rows.append(measured(stage, folder, arguments))
            record.write_text(json.dumps(rows))
            if stage in ("convert", "compact"):
                shutil.rmtree(folder / read)
    if arguments.kill:
        half = rows[-1]["seconds"] - rows[-1]["epoch seconds"] / 2
        os.rename(folder / "run", folder / "whole")
        rows.append(measured("train", folder, arguments, kill_after=half))
        rows.append(measured("resume", folder, arguments))
    if arguments.unlimited:
        shutil.rmtree(folder / "run")
        arguments.memory = "none"
        rows.append({**measured("train", folder, arguments), "stage": "train, no limit"})
    return rows


def main() -> None:
    """Run all stages, report."""
    parser = common.parser(__doc__ or "", "billion")
    parser.add_argument("--scale", type=float, default=0.1, help="of papers100M's numbers of nodes and edges")
    parser.add_argument("--features", type=int, default=FEATURES, help="fewer take less disk")
    parser.add_argument("--history-dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--memory", default="4G", help="of every stage, enforced by the kernel")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--kill", action="store_true", help="also kill training after half an epoch, and resume it")
    where = "where to work; files stay, and stages that are done are not done again; a temporary folder if not given"
    parser.add_argument("--folder", type=Path, help=where)
    parser.add_argument("--stages", nargs="*", default=list(STAGES), help="to run now, where --folder keeps the rest")
    parser.add_argument("--unlimited", action="store_true", help="train once more without a limit, and compare weights")
    parser.add_argument("--stage", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.stage is not None:
        if arguments.memory != "none" and not limit_by_group(parse_bytes(arguments.memory)):
            raise SystemExit("no control group of memory can be made here; run as root, or with cgroup v1 memory")
        found = run_stage(arguments.stage, arguments.folder, arguments)
        read = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())["read_bytes"]
        peak = round(memory(os.getpid(), "VmHWM") / 2**30, 2)
        print(json.dumps({"peak GiB": peak, "read": format_bytes(int(read)), **found}))
        return
    with ExitStack() as stack:
        folder = arguments.folder
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        rows = run_stages(folder, arguments)
    common.report("billion", "A billion edges on one machine", __doc__ or "", {"Stages": rows}, arguments.out)


if __name__ == "__main__":
    main()
