"""Time to start: imports, and all of `cvgnn train` from the shell.

    python benchmarks/startup.py [repetitions]

Medians over repetitions, each in a fresh process, after one unmeasured round that fills Python's and numba's caches.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time

CASES = {
    "import torch (for comparison)": [sys.executable, "-c", "import torch"],
    "import cvgnn": [sys.executable, "-c", "import cvgnn"],
    "import cvgnn; cvgnn.fit (everything a run needs)": [sys.executable, "-c", "import cvgnn; cvgnn.fit"],
    "cvgnn train --help": [sys.executable, "-m", "cvgnn", "train", "--help"],
    "cvgnn train (CiteSeer, 100 epochs, evaluated each epoch)": [sys.executable, "-m", "cvgnn", "train"],
}


def main() -> None:
    repetitions = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    env = {**os.environ, "OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"}
    seconds: dict[str, list[float]] = {name: [] for name in CASES}
    for repetition in range(repetitions + 1):
        for name, command in CASES.items():
            start = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=env)
            if repetition:
                seconds[name].append(time.perf_counter() - start)
    print("| what | median s | range s |\n|---|---|---|")
    for name, values in seconds.items():
        print(f"| {name} | {statistics.median(values):.2f} | {min(values):.2f} to {max(values):.2f} |")


if __name__ == "__main__":
    main()
