"""`warm_up` compiles every kernel, for every type of argument that the options lead to."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cvgnn.config import TrainConfig
from cvgnn.errors import CvgnnError
from cvgnn.training.kernel_warmup import small_graphs, warm_up
from cvgnn.training.run import train
from cvgnn.utils.compile_listeners import listening

SPACE: dict[str, list[Any]] = {
    "estimator": ["cvd", "cv", "ns", "exact"], "scheme": ["without-replacement", "with-replacement", "paper", "released"],
    "optimizer": ["sgd", "heavy-ball", "adam", "amsgrad", "adagrad"], "form": ["torch", "paper"],
    "model": ["gcn", "sage", "gin", "gcnii"], "layers": [1, 2, 3], "norm": ["layer", "batch", "none"],
    "residual": [False, True], "activation": ["relu", "elu", "gelu"], "jk": ["last", "concat"],
    "input_layer": [False, True], "bias": [True, False], "dropout": [0.0, 0.5], "input_dropout": [0.0, 0.3],
    "feature_norm": ["none", "row", "l2"], "feature_dtype": ["float32", "bfloat16"], "clip_norm": [None, 1.0],
    "history_dtype": ["float32", "bfloat16"], "batches": ["shuffle", "replacement"], "output": ["best", "tau"],
    "threads": [1, 2], "weight_decay": [0.0, 1e-3], "sampled_start": [0, 2],
}  # fmt: skip


def test_after_it_no_options_compile_anything() -> None:
    shares: list[float] = []
    warm_up(lambda what, share: shares.append(share))
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    graphs = small_graphs()
    draw = random.Random(0)
    trained = 0
    for _ in range(25):
        compiled: list[str] = []
        kind, options = draw.choice(list(graphs)), {name: draw.choice(values) for name, values in SPACE.items()}
        with listening(lambda name, ended: compiled.append(name)):  # noqa: B023
            try:
                train(graphs[kind], TrainConfig(epochs=1, **options)).predict()
                trained += 1
            except CvgnnError:  # options that exclude each other
                continue
        assert compiled == [], (kind, options)
    assert trained > 10


@pytest.mark.slow
def test_it_fills_an_empty_cache_with_every_kernel(tmp_path: Path) -> None:
    code = """
import json, sys
from cvgnn.ops import compilation
from cvgnn.training.kernel_warmup import warm_up
count = warm_up(lambda what, share: None)
kernels = [f"{f.__module__.rpartition('.')[2]}.{f.__qualname__}" for f in compilation._kernels]
print(json.dumps({"count": count, "kernels": kernels, "folder": str(compilation.folders()[0])}))
"""
    env = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"} | {
        "CVGNN_HOME": str(tmp_path)
    }
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=300, check=True
    )
    result = json.loads(done.stdout)
    kept = {file.name.rsplit("-", 1)[0] for file in Path(result["folder"]).glob("*.nbi")}
    assert kept == set(result["kernels"])
    assert result["count"] >= len(kept) > 30
    assert Path(result["folder"]).is_relative_to(tmp_path)
