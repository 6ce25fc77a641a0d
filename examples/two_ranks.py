"""Two processes, the same bits.

A partitioned graph trains on any number of processes that divides its shards, and the number does not change the
result by a bit. Here it is one process and then two; on several machines `torchrun` starts them.
"""

import hashlib
import subprocess
import sys
from pathlib import Path

from cvgnn.data.named.synthetic import generate_store, small_spec


def cvgnn(*arguments: str) -> None:
    print("$ cvgnn", *arguments, flush=True)
    subprocess.run([sys.executable, "-m", "cvgnn", *arguments, "--quiet"], check=True)


generate_store(small_spec(4000), Path("graph"))
cvgnn("partition", "graph", "parts", "--shards", "2", "--method", "stream")
for ranks in (1, 2):
    cvgnn("train", "--graph", "parts", "--epochs", "5", "--ranks", str(ranks), "--out", f"run-{ranks}")
    weights = Path(f"run-{ranks}/weights.safetensors").read_bytes()
    print(f"{ranks} rank(s): SHA-256 of the weights {hashlib.sha256(weights).hexdigest()[:16]}")
