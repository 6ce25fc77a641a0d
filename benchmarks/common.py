"""What the benchmarks share: the machine they ran on, the graphs, and how results are printed and written.

Import this before torch: it sets what torch's threads need to share a machine (docs/design.md).
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("GOMP_SPINCOUNT", "0")

import argparse
import json
import platform
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared" / "data"
SIZES = ("cora", "flickr", "arxiv", "reddit")
RECIPE = {"cora": "cora", "flickr": "flickr", "arxiv": "ogbn-arxiv", "reddit": "reddit"}


_before: dict[str, Any] = {}  # machine, load and commit when the benchmark began


def parser(doc: str, name: str) -> argparse.ArgumentParser:
    """A parser with `--out`; `doc` is the benchmark's docstring."""
    _before.update(machine())
    p = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--out", type=Path, default=ROOT / "runs" / "bench", help=f"folder for {name}.json and {name}.md")
    return p


def source(size: str, data: Path = SHARED) -> tuple[str, Path | None]:
    """The name of a size's graph and the folder it is read from: real Cora where `data` has it, else the bundled
    CiteSeer, which the report then says; the synthetic presets."""
    if size != "cora":
        return f"synthetic-{size}", None
    if (data / "planetoid").is_dir():
        return "cora", data / "planetoid"
    _before["stand_in"] = " Cora's files are not at hand: `cora` is the bundled CiteSeer here."
    return "citeseer", None


def load(size: str, data: Path = SHARED) -> Any:
    """The graph of a size; see `source`."""
    import cvgnn

    name, root = source(size, data)
    return cvgnn.load(name) if root is None else cvgnn.load(name, root=root)


def machine() -> dict[str, Any]:
    """Processor, memory and versions."""
    cpu, caches = platform.processor(), ""
    try:
        lines = subprocess.run(["lscpu"], capture_output=True, text=True, check=True).stdout
        found = dict(re.findall(r"^\s*([^:\n]+):\s*(.+)$", lines, flags=re.MULTILINE))
        cpu = found.get("Model name", cpu)
        caches = ", ".join(f"{level} {found[level + ' cache'].split(' (')[0]}" for level in ("L2", "L3"))
        flags = found.get("Flags", "")
        caches += ", AVX-512" if "avx512f" in flags else ", AVX2" if "avx2" in flags else ""
    except (OSError, subprocess.CalledProcessError, KeyError):
        pass
    unix = hasattr(os, "sysconf")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30 if unix else float("nan")
    return {
        "cpu": cpu,
        "caches": caches,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": round(memory, 1),
        "load_before": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "python": platform.python_version(),
        **{name: _version(name) for name in ("cvgnn", "torch", "numpy", "numba")},
        "commit": commit(ROOT),
        "date": date.today().isoformat(),
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def commit(checkout: Path) -> str:
    """What git calls a checkout's state."""
    command = ["git", "-C", str(checkout), "describe", "--always", "--dirty"]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as a Markdown table; numbers are aligned and rounded by the caller."""
    names = list(rows[0])
    cells = [names, *([_show(row.get(name)) for name in names] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(names))]
    ruled = [cells[0], ["-" * w for w in widths], *cells[1:]]
    return "\n".join("| " + " | ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) + " |" for line in ruled)


def _show(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def report(
    name: str, title: str, about: str, tables: Mapping[str, Sequence[Mapping[str, Any]]], out: Path, **more: Any
) -> None:
    """Print the tables; write `name.json` and `name.md` with machine, versions and command."""
    here = _before or machine()
    arguments = [a for i, a in enumerate(sys.argv[1:]) if a != "--out" and sys.argv[i] != "--out"]
    command = " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *arguments])
    text = [f"# {title}", "", about.strip(), "", f"Command: `{command}`", "", describe(here)]
    for heading, rows in tables.items():
        if rows:
            text += ["", f"## {heading}", "", table(rows)]
    out.mkdir(parents=True, exist_ok=True)
    content = {"command": command, "machine": here, "tables": tables, **more}
    (out / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")
    (out / f"{name}.md").write_text("\n".join(text) + "\n")
    for heading, rows in tables.items():
        if rows:
            print(f"\n{heading}\n{table(rows)}")
    if "stand_in" in here:
        print(f"\n{here['stand_in'].strip()}")
    print(f"\nwritten: {name}.json and {name}.md in {out}")


def describe(here: Mapping[str, Any]) -> str:
    return (
        f"Machine: {here['cpu']}, {here['cores']} cores ({here['caches']}), {here['memory_gib']} GiB; load before the "
        f"run {here['load_before']}. Python {here['python']}, torch {here['torch']}, numpy {here['numpy']}, numba "
        f"{here['numba']}, cvgnn {here['cvgnn']} ({here['commit']}), {here['date']}.{here.get('stand_in', '')}"
    )
