"""`cvgnn serve` under load and under malformed requests, over 127.0.0.1.

    python benchmarks/serve.py [--run RUN] [--clients 200] [--seconds 60] [--malformed 5000] [--out DIR]

Starts a server in a process of its own (with a token), sends well-formed requests from many clients at once, each kind
equally often, then malformed ones from a seed. Exit code 1 if any request of the load failed, if a malformed one was
not refused with 4xx, or if the server printed a traceback.
"""

from __future__ import annotations

import common  # isort: skip

import asyncio
import os
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import http_client

TOKEN = "secret-Token"


def main() -> int:
    parser = common.parser(__doc__ or "", "serve")
    parser.add_argument("--run", type=Path, help="a finished run; by default one on CiteSeer is trained first")
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--malformed", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = options.run or Path(folder) / "run"
        if options.run is None:
            subprocess.run([sys.executable, "-m", "cvgnn", "--quiet", "train", "--out", str(run)], check=True)
        log = Path(folder) / "log"
        started = time.perf_counter()
        with log.open("w") as stream:
            command = [sys.executable, "-m", "cvgnn", "serve", str(run), "--port", "0"]
            server = subprocess.Popen(command, stderr=stream, env={**os.environ, "CVGNN_TOKEN": TOKEN})
        try:
            while (found := re.search(r"at http://127\.0\.0\.1:(\d+)", log.read_text())) is None:
                if server.poll() is not None:
                    raise SystemExit(f"the server ended: {log.read_text()}")
                time.sleep(0.05)
            ready = time.perf_counter() - started
            port, bearer = int(found[1]), {"authorization": f"Bearer {TOKEN}"}
            info = http_client.send(port, http_client.message("GET", "/info", **bearer)).value
            N, F = info["num_nodes"], info["num_features"]

            def nodes(rng: random.Random, count: int) -> list[int]:
                return [rng.randrange(N) for _ in range(count)]

            def new(rng: random.Random) -> bytes:
                features = {str(rng.randrange(F)): 1.0 for _ in range(30)}
                value = {"nodes": [{"features": features, "neighbors": nodes(rng, 5)}]}
                return http_client.post("/predict/new", value, **bearer)

            kinds = {
                "predict, 1 node": lambda rng: http_client.post("/predict", {"nodes": nodes(rng, 1)}, **bearer),
                "predict, 100 nodes": lambda rng: http_client.post("/predict", {"nodes": nodes(rng, 100)}, **bearer),
                "embeddings, 10 nodes": lambda rng: http_client.post(
                    "/embeddings", {"nodes": nodes(rng, 10)}, **bearer
                ),
                "a new node, 5 neighbors": new,
                "the page of a node": lambda rng: http_client.message("GET", f"/?node={rng.randrange(N)}", **bearer),
            }
            probe = http_client.post("/predict", {"nodes": list(range(100))}, **bearer)
            before = http_client.send(port, probe)
            load = asyncio.run(http_client.load(port, kinds, clients=options.clients, seconds=options.seconds))
            fuzz = asyncio.run(
                http_client.fuzz(port, options.malformed, num_features=F, token=TOKEN, seed=options.seed)
            )
            same = http_client.send(port, probe) == before
            stopped = time.perf_counter()
            server.send_signal(signal.SIGTERM)
            code = server.wait(60)
            stopped = time.perf_counter() - stopped
        finally:
            server.kill()
        text = log.read_text()
    memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    bad = {status: count for status, count in load.statuses.items() if status != 200}
    rows = []
    for kind, latencies in {**load.latencies, "all": [x for each in load.latencies.values() for x in each]}.items():
        points = (1000 * np.percentile(latencies, [50, 95, 99, 100])).round(1).tolist()
        row = {"request": kind, "answers": len(latencies), "a second": round(len(latencies) / load.seconds)}
        rows.append(row | dict(zip(("median ms", "95 % ms", "99 % ms", "longest ms"), points, strict=True)))
    refused = []
    for kind, found in sorted(fuzz.statuses.items()):
        answers = ", ".join(f"{status or 'closed'}: {count}" for status, count in sorted(found.items()))
        refused.append({"what is wrong": kind, "requests": found.total(), "answers": answers})
    summary = (
        f"{options.clients} clients at once for {load.seconds:.1f} s: {load.statuses.total()} answers, "
        f"{sum(bad.values())} errors{f' ({bad})' if bad else ''}. {options.malformed} malformed requests: "
        f"{len(fuzz.wrong)} not refused with 4xx; traceback printed: {'Traceback' in text}; the same answers "
        f"afterwards: {same}. Ready {ready:.1f} s after the start, ended {stopped:.1f} s after SIGTERM with exit code "
        f"{code}. Peak memory of the server {memory:.0f} MiB."
    )
    print(summary)
    print("\n".join(f"NOT REFUSED: {wrong}" for wrong in fuzz.wrong[:20]))
    title, tables = "cvgnn serve: load and malformed requests", {"Load": rows, "Malformed requests": refused}
    statuses = {str(status): count for status, count in load.statuses.items()}
    common.report("serve", title, summary, tables, options.out, info=info, statuses=statuses)
    good = not bad and not fuzz.wrong and same and code == 0 and "Traceback" not in text
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
