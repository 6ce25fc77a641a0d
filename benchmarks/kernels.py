"""The choices behind the kernels, each beside what it replaced: medians of interleaved repetitions, one thread.

    python benchmarks/kernels.py [--repetitions 15] [--out DIR]

The matrices have the sizes of a step at Flickr, arxiv and Reddit size, with random entries. A time is that of one call.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy's library for products reads it once

import common  # isort: skip
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.nn.functional import layer_norm

from cvgnn.data import Rows, weighted_sum
from cvgnn.nn import History
from cvgnn.ops.bf16_matmul import is_native
from cvgnn.ops.dropout import Dropout
from cvgnn.ops.fused_layer import NeighborSum, Sigma, hidden_layer
from cvgnn.ops.history_write import write_rows
from cvgnn.ops.matmul import product, weight_gradient

Work = Callable[[], object]
LAYER_0 = (("Flickr", 4700, 500, 256), ("arxiv", 2770, 128, 256), ("Reddit", 2920, 602, 128))


def compare(title: str, ours: Work, other: Work, repetitions: int) -> dict[str, Any]:
    """Both in turn; a ratio is the median of the repetitions' ratios."""
    times: dict[str, list[float]] = {"ours": [], "other": []}
    for r in range(repetitions + 2):
        for name, work in (("ours", ours), ("other", other)) if r % 2 else (("other", other), ("ours", ours)):
            start = time.perf_counter()
            work()
            if r >= 2:
                times[name].append((time.perf_counter() - start) * 1e3)
    ratios = [a / b for a, b in zip(times["ours"], times["other"], strict=True)]
    ms = {name: round(statistics.median(values), 3) for name, values in times.items()}
    return {"what": title, "ours ms": ms["ours"], "other ms": ms["other"], "ratio": round(statistics.median(ratios), 2)}


def layer_0(repetitions: int) -> list[dict[str, Any]]:
    """The products of layer 0 by torch's library and by NumPy's."""
    rows = []
    for size, n, F, d in LAYER_0:
        A, W, Z, G = torch.randn(n, F), torch.randn(F, d), torch.empty(n, d), torch.empty(F, d)
        a, w, z, g = A.numpy(), W.numpy(), Z.numpy(), G.numpy()
        forward = compare(
            f"{size}: {n}x{F} by {F}x{d}",
            lambda A=A, W=W, Z=Z: torch.mm(A, W, out=Z),  # type: ignore[misc]
            lambda a=a, w=w, z=z: np.matmul(a, w, out=z),  # type: ignore[misc]
            repetitions,
        )
        gradient_of_W = compare(
            f"{size}: gradient, {F}x{n} by {n}x{d}",
            lambda A=A, Z=Z, G=G: torch.mm(A.t(), Z, out=G),  # type: ignore[misc]
            lambda a=a, z=z, g=g: np.matmul(a.T, z, out=g),  # type: ignore[misc]
            repetitions,
        )
        for row in (forward, gradient_of_W):
            rows.append({**row, "ours GFLOP/s": round(2e-6 * n * F * d / row["ours ms"], 1)})
    return rows


def rounded(repetitions: int) -> list[dict[str, Any]]:
    """The products of layer 0 from bfloat16 rows, the other factor and the result converted, against float32."""
    rows = []
    for size, n, F, d in LAYER_0:
        A, W, dZ = torch.randn(n, F), torch.randn(F, d), torch.randn(n, d)
        a = A.bfloat16()
        for what, ours, other in (
            (f"{n}x{F} by {F}x{d}", lambda a=a, W=W: product(a, W), lambda A=A, W=W: product(A, W)),
            (
                f"{F}x{n} by {n}x{d}",
                lambda a=a, dZ=dZ: weight_gradient(a, dZ),
                lambda A=A, dZ=dZ: weight_gradient(A, dZ),
            ),
        ):
            rows.append(compare(f"{size}: {what}", ours, other, repetitions))
    return rows


def products(repetitions: int) -> list[dict[str, Any]]:
    rows = []
    for C in (3, 7, 8, 12, 15, 16, 40, 64):
        A, W, dZ = torch.randn(1000, 256), torch.randn(256, C), torch.randn(1000, C)
        rows.append(
            compare(f"1000x256 by 256x{C}", lambda A=A, W=W: product(A, W), lambda A=A, W=W: A @ W, repetitions)
        )  # type: ignore[misc]
        rows.append(
            compare(f"gradient, 256x1000 by 1000x{C}", lambda A=A, G=dZ: weight_gradient(A, G),
                    lambda A=A, G=dZ: A.t() @ G, repetitions)  # type: ignore[misc]
        )  # fmt: skip
    return rows


def activation(repetitions: int, n: int, d: int, p: float) -> list[dict[str, Any]]:
    """Bias, LayerNorm, ReLU and dropout; forward, and with backward. Ours also sums over a `P^`, the identity."""
    Z, bias, gain, shift = variables = [torch.randn(*s, requires_grad=True) for s in ((n, d), (d,), (d,), (d,))]
    grad = torch.randn(n, d)
    identity = Rows(torch.arange(n + 1).int(), torch.arange(n).int(), torch.ones(n))
    drop = Dropout(p, key=1) if p else None
    sigma = Sigma(gain, shift)

    def ours() -> torch.Tensor:
        return hidden_layer(Z + bias, sigma, drop=drop, summed=NeighborSum(identity, identity)).aggregate  # type: ignore[return-value]

    def torchs() -> torch.Tensor:
        Y = torch.relu(layer_norm(Z + bias, (d,), gain, shift))
        return torch.dropout(Y, p, train=True) if p else Y

    name = f"{n}x{d}, dropout {p}"
    back = compare(
        f"and its gradient {name}",
        lambda: torch.autograd.grad(ours(), variables, grad),
        lambda: torch.autograd.grad(torchs(), variables, grad),
        repetitions,
    )
    return [compare(f"activation {name}", ours, torchs, repetitions), back]


def writing(name: str, N: int, d: int, n: int, repetitions: int) -> dict[str, Any]:
    """Scattered rows of a large table, fresh ones each time."""
    table, rows, written = torch.randn(N, d), torch.randn(n, d), torch.zeros(N, dtype=torch.int64)
    draws = [torch.randperm(N)[:n] for _ in range(2 * repetitions + 4)]
    return compare(
        f"{n} rows of {d}, {name} size",
        lambda: write_rows(table, draws.pop(), rows, written, 1),
        lambda: table.index_copy_(0, draws.pop(), rows),
        repetitions,
    )


def histories(repetitions: int) -> list[dict[str, Any]]:
    """The sum of 1000 x 492 rows of 128 out of 232,965, fresh ones in each repetition."""
    N, d, entries = 232_965, 128, 492_000
    narrow = History(N, d, storage=torch.bfloat16)
    narrow.values.normal_()
    table = narrow.values.float()
    rng = np.random.default_rng(0)
    offsets = torch.arange(0, entries + 1, 492, dtype=torch.int32)
    draws = [torch.from_numpy(rng.integers(0, N, entries).astype(np.int32)) for _ in range(repetitions + 2)]
    weight = torch.rand(entries)
    turns = {"ours": 0, "other": 0}

    def rows(name: str) -> Rows:
        turns[name] += 1
        return Rows(offsets, draws[turns[name] - 1], weight)

    return [
        compare(
            "bfloat16 history against float32, Reddit size",
            lambda: weighted_sum(rows("ours"), narrow.values),
            lambda: weighted_sum(rows("other"), table),
            repetitions,
        )
    ]


def main() -> None:
    arguments = common.parser(__doc__ or "", "kernels")
    arguments.add_argument("--repetitions", type=int, default=15)
    options = arguments.parse_args()
    torch.set_num_threads(1)
    n = options.repetitions
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]["name"]
    tables = {
        f"The products of layer 0: torch's library against NumPy's ({blas})": layer_0(n),
        f"The products of layer 0 in bfloat16 ({'native' if is_native() else 'not native'} here)": rounded(n),
        "Products with few columns: ours takes the transposed product up to 15": products(n),
        "The hidden layer: one compiled pass against torch's operations": [
            *activation(n, 4700, 256, 0.2),
            *activation(n, 2800, 256, 0.0),
        ],
        "History writes against index_copy_": [
            writing("Flickr", 89_250, 256, 4700, n),
            writing("arxiv", 169_343, 256, 2800, n),
            writing("Reddit", 232_965, 128, 2900, n),
        ],
        "Histories": histories(n),
    }
    common.report("kernels", "The choices behind the kernels", __doc__ or "", tables, options.out)


if __name__ == "__main__":
    main()
