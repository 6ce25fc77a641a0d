"""The script of docs/pyg.md as it stands there, and with its five changed lines, on Amazon Photo.

    python benchmarks/pyg_door.py [--data ../shared/data] [--seeds 5] [--epochs 30] [--fan-outs 1 2] [--out DIR]

`NeighborLoader 10,10` is the script itself; it needs torch-sparse or pyg-lib, and is left out, with a line that says
so, where neither is installed. `full batch` is the script with one batch of all nodes: an epoch is one step, so it gets
`--full-epochs`. `fan-out D` is the script after the diff. Random split of 60/20/20, the same for all; seed S splits and
initialises. Accuracy is the test accuracy at the best validation epoch; seconds are CPU seconds (`process_time`) of one
thread, for set-up and training, without evaluation.
"""

from __future__ import annotations

import common  # isort: skip
import importlib.util
import re
import statistics
from pathlib import Path
from typing import Any

import torch
from torch_geometric import loader as pyg_loader

import cvgnn
from cvgnn.data import RandomSplit

PAGE = common.ROOT / "docs" / "pyg.md"
CALL = "[10, 10], "


def scripts(fan_outs: list[int]) -> dict[str, str]:
    """The script of the page, and the changed one for each fan-out."""
    text = PAGE.read_text()
    script = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)[0]
    (diff,) = re.findall(r"```diff\n(.*?)```", text, flags=re.DOTALL)
    changed = script
    lines = diff.splitlines(keepends=True)
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if line.startswith("-"):
            changed = changed.replace(line[1:], following[1:] if following.startswith("+") else "")
    made = {"NeighborLoader 10,10": script, "full batch": script}
    return made | {f"fan-out {D}": changed.replace("data, model, 2,", f"data, model, {D},") for D in fan_outs}


class WholeGraph:
    """In place of `NeighborLoader`: one batch of all nodes, the training nodes first."""

    def __init__(self, data: Any, _: Any, *, input_nodes: torch.Tensor, **__: Any) -> None:
        order = torch.cat([input_nodes.nonzero().flatten(), (~input_nodes).nonzero().flatten()])
        place = torch.empty_like(order)
        place[order] = torch.arange(len(order))
        self.batch = data.clone()
        self.batch.x, self.batch.y, self.batch.edge_index = data.x[order], data.y[order], place[data.edge_index]
        self.batch.batch_size = int(input_nodes.sum())

    def __iter__(self) -> Any:
        yield self.batch


def photo(file: Path, seed: int) -> Any:
    """Photo as PyG has it, with the split of a seed."""
    data = cvgnn.to_pyg(cvgnn.read_graph(file))
    for name, ids in zip(("train", "val", "test"), RandomSplit(seed=seed).ids(data.y.numpy()), strict=True):
        mask = torch.zeros(data.num_nodes, dtype=torch.bool)
        mask[torch.from_numpy(ids)] = True
        data[f"{name}_mask"] = mask
    return data


def main() -> None:
    p = common.parser(__doc__ or "", "pyg_door")
    p.add_argument("--data", type=Path, default=common.SHARED)
    p.add_argument("--seeds", type=int, default=5)
    p.add_argument("--epochs", type=int, default=30)
    p.add_argument("--full-epochs", type=int, default=200)
    p.add_argument("--fan-outs", type=int, nargs="+", default=[1, 2])
    p.add_argument("--scripts", nargs="+", help="which of them; all if not given")
    args = p.parse_args()
    torch.set_num_threads(1)
    known = scripts(args.fan_outs)
    names = args.scripts or list(known)
    if not any(importlib.util.find_spec(package) for package in ("torch_sparse", "pyg_lib")):
        print("NeighborLoader needs torch-sparse or pyg-lib, and neither is here: left out")
        names = [name for name in names if name != "NeighborLoader 10,10"]
    sampled = pyg_loader.NeighborLoader
    runs: dict[str, list[tuple[float, float, float]]] = {name: [] for name in names}
    for seed in range(-1, args.seeds):  # the first is a warm-up
        for name in names:
            data = photo(args.data / "amazon_photo.npz", max(seed, 0))
            pyg_loader.NeighborLoader = WholeGraph if name == "full batch" else sampled
            found: dict[str, Any] = {}
            exec(compile(known[name], name, "exec"), found)
            torch.manual_seed(seed + 1)
            epochs = args.full_epochs if name == "full batch" else args.epochs
            run = found["main"](data, epochs if seed >= 0 else 1)
            if seed >= 0:
                runs[name].append(run)
                print(f"seed {seed}, {name}: {100 * run[0]:.2f} {100 * run[1]:.2f} %, {run[2]:.2f} s", flush=True)
    rows = []
    for name, results in runs.items():
        val, test, seconds = ([row[i] for row in results] for i in range(3))
        spread = [100 * statistics.stdev(values) if len(values) > 1 else 0.0 for values in (val, test)]
        rows.append({
            "script": name,
            "epochs": args.full_epochs if name == "full batch" else args.epochs,
            "validation %": f"{100 * statistics.mean(val):.2f} ± {spread[0]:.2f}",
            "test %": f"{100 * statistics.mean(test):.2f} ± {spread[1]:.2f}",
            "CPU seconds, median": round(statistics.median(seconds), 2),
            "least to most": f"{min(seconds):.2f} to {max(seconds):.2f}",
        })  # fmt: skip
    about = (__doc__ or "").partition("\n\n")[2]
    common.report("pyg_door", "Five lines of a PyG script", about, {"Amazon Photo": rows}, args.out, runs=runs)


if __name__ == "__main__":
    main()
