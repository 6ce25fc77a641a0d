"""The loss of graph classification: pooling, head and cross entropy, graph by graph, with all derivatives.

Legend:
    h_v      outputs of the network for node v, [d]; a_v = max(h_v, 0)
    V_b      nodes of graph b of the batch
    s_b      mean, or sum, of a_v over V_b; for "set" (mean, maximum, sum) side by side
    z_b      logits: W_out s_b + b_out; for "set" W_out max(W_hidden s_b + b_hidden, 0) + b_out
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from cvgnn.reference.losses import softmax_cross_entropy
from cvgnn.reference.propagation_matrix import Array


def graph_loss(
    h: Array, graphs: Sequence[Sequence[int]], y: npt.NDArray[np.int64], head: Mapping[str, Array], pool: str
) -> tuple[float, Array, dict[str, Array]]:
    """The mean loss over the graphs of a batch, its derivative by h, and by the head's parameters.

    Args:
        h: Rows [n, d].
        graphs: The rows of each graph of the batch.
        y: The class of each [B].
        head: "out.weight" [C, d], "out.bias"; for "set" also "hidden.weight" [d, 3 d], "hidden.bias".
        pool: "mean", "sum" or "set".
    """
    a, d = np.maximum(h, 0.0), h.shape[1]
    pooled, inner = [], []
    for rows in graphs:
        mean, largest, total = a[rows].mean(axis=0), a[rows].max(axis=0), a[rows].sum(axis=0)
        pooled.append({"mean": mean, "sum": total, "set": np.concatenate([mean, largest, total])}[pool])
        inner.append(head["hidden.weight"] @ pooled[-1] + head["hidden.bias"] if pool == "set" else pooled[-1])
    u = [np.maximum(row, 0.0) for row in inner]  # pooled rows are not negative already
    logits = np.array([head["out.weight"] @ row + head["out.bias"] for row in u])
    loss, dz = softmax_cross_entropy(logits, y)
    da, grads = np.zeros_like(h), {name: np.zeros_like(W) for name, W in head.items()}
    for b, rows in enumerate(graphs):
        grads["out.weight"] += np.outer(dz[b], u[b])
        grads["out.bias"] += dz[b]
        ds = head["out.weight"].T @ dz[b]
        if pool == "set":
            ds = ds * (inner[b] > 0)
            grads["hidden.weight"] += np.outer(ds, pooled[b])
            grads["hidden.bias"] += ds
            ds = head["hidden.weight"].T @ ds
        for v in rows:
            if pool in ("mean", "set"):
                da[v] += ds[:d] / len(rows)
            if pool in ("sum", "set"):
                da[v] += ds[-d:]
        if pool == "set":  # the derivative of a maximum goes to the rows that have it, in equal parts
            for j in range(d):
                most = [v for v in rows if a[v, j] == a[rows, j].max()]
                for v in most:
                    da[v, j] += ds[d + j] / len(most)
    return loss, da * (h > 0), grads
