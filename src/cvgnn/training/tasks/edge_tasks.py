"""Tasks whose items are pairs of nodes: classes on labelled edges, and link prediction."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self, final, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from cvgnn.config import TrainConfig
from cvgnn.data import Graph
from cvgnn.data.edge_split import random_parts, split_edges
from cvgnn.data.split import SPLITS
from cvgnn.errors import require, require_integer, require_known
from cvgnn.rng import Purpose, derive
from cvgnn.sampling import Batch
from cvgnn.sampling.edge_items import EdgeItems, Negatives, NegativeSampler
from cvgnn.training.tasks import metrics as m
from cvgnn.training.tasks.base import Metrics, Task
from cvgnn.training.tasks.node_tasks import LossFunction, NodeClassification, probability_columns

Head = Literal["dot", "hadamard-mlp", "concat-mlp"]
HEADS: tuple[str, ...] = get_args(Head)

PAIRS_AT_A_TIME = 1 << 16
"""Pairs that are scored at once: their embeddings are copied, and there may be millions of pairs."""


@final
class PairHead(nn.Module):
    """Scores of pairs from the embeddings of their two nodes, `[n, d]` and `[n, d]` to `[n, C]`:

        dot: <a, b>        hadamard-mlp: W2 relu(W1 (a * b) + b1) + b2        concat-mlp: the same of [a, b]

    Args:
        head: which of the three.
        width: `d`; the MLP's hidden layer has it, too.
        outputs: `C`; `dot` has one.
        symmetric: whether `concat-mlp` takes the mean over both orders, for edges without direction.
        seed: of the initial weights, drawn as those of `torch.nn.Linear`.
        dtype: of the weights.
    """

    def __init__(self, head: Head, width: int, outputs: int, *, symmetric: bool, seed: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.head, self.symmetric = head, symmetric
        self.mlp: nn.Module | None = None
        if head == "dot":
            return
        first = nn.Linear(2 * width if head == "concat-mlp" else width, width, dtype=dtype)
        last = nn.Linear(width, outputs, dtype=dtype)
        # The network's weights have the same seed and no coordinate.
        generator = torch.Generator().manual_seed(derive(seed, Purpose.WEIGHTS, 1) >> 1)
        with torch.no_grad():
            for layer in (first, last):
                bound = 1.0 / math.sqrt(layer.in_features)
                for parameter in (layer.weight, layer.bias):
                    parameter.uniform_(-bound, bound, generator=generator)
        self.mlp = nn.Sequential(first, nn.ReLU(), last)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """The scores of the pairs, `[n, C]`."""
        if self.mlp is None:
            return (a * b).sum(dim=1, keepdim=True)
        if self.head == "hadamard-mlp":
            return self.mlp(a * b)  # type: ignore[no-any-return]
        score: Tensor = self.mlp(torch.cat([a, b], dim=1))
        return (score + self.mlp(torch.cat([b, a], dim=1))) / 2 if self.symmetric else score


class PairTask(Task):
    """Items that are pairs of nodes. The network gives every node an embedding, and the readout scores pairs of them.

    Args:
        graph: of `P`, see `Task`.
        items: the training pairs.
        pairs: integers `[2, n]` by split: what is evaluated.
        labels: `[n]` by split.
        head, width: see `PairHead`; the width of the embeddings.
        outputs: scores of a pair.
        loss: a function of scores and labels, in place of the task's own.
        metric: see `Task`.
    """

    of_pairs = True
    items: EdgeItems
    _symmetric = False
    """Whether `(u, v)` and `(v, u)` are the same item."""

    def __init__(
        self,
        graph: Graph,
        items: EdgeItems,
        pairs: Mapping[str, Tensor],
        labels: Mapping[str, Tensor],
        *,
        head: Head,
        width: int,
        outputs: int,
        loss: LossFunction | None,
        metric: str | None,
    ) -> None:
        super().__init__(graph, metric=metric)
        require_known("head", head, HEADS)
        self.items, self.pairs, self.labels = items, pairs, labels
        self.head, self.out_channels, self.outputs = head, width, outputs
        self.function = loss

    @classmethod
    def from_config(cls, graph: Graph, config: TrainConfig, *, num_outputs: int | None, loss: Any) -> Self:
        """See `Task`."""
        for name in ("class_weight", "label_smoothing"):
            require(not getattr(config, name), f"{name} has no use with task {cls.name!r}; leave it out")
        same = {name: getattr(config, name) for name in ("head", "val_edges", "test_edges", "edge_seed", "metric")}
        return cls(graph, width=config.hidden, loss=loss, **same, **cls._further(config))

    @classmethod
    def _further(cls, config: TrainConfig) -> dict[str, Any]:
        """Options of one task alone."""
        return {}

    def make_readout(self, *, seed: int, dtype: torch.dtype) -> PairHead:
        """See `Task`."""
        return PairHead(self.head, self.out_channels, self.outputs, symmetric=self._symmetric, seed=seed, dtype=dtype)

    def scores(self, rows: Tensor, readout: nn.Module | None) -> Tensor:
        """What loss and metrics take, `[n, C]`, of the embeddings of pairs, `[2, n, d]`."""
        assert readout is not None
        return readout(rows[0], rows[1])  # type: ignore[no-any-return]

    def loss(self, rows: Tensor, batch: Batch, readout: nn.Module | None = None) -> Tensor:
        """See `Task`."""
        assert batch.place is not None
        ends = rows.index_select(0, batch.place.flatten()).reshape(2, -1, self.out_channels)
        return self._criterion(self.scores(ends, readout), batch)

    @abstractmethod
    def _criterion(self, scores: Tensor, batch: Batch) -> Tensor:
        """The loss of the scores of a batch's pairs, negatives last."""

    def evaluate(self, rows: Tensor, metrics: Sequence[str], readout: nn.Module | None = None) -> Metrics:
        """See `Task`."""
        found: Metrics = {}
        for split in SPLITS:
            pairs, y = self.pairs[split].to(rows.device), self.labels[split].cpu()
            if y.numel():
                parts = [
                    self.scores(rows[part.long()], readout).cpu() for part in torch.split(pairs, PAIRS_AT_A_TIME, dim=1)
                ]
                scores = torch.cat(parts)
            for name in metrics:
                found[f"{split}_{name}"] = self._measure(name, scores, y) if y.numel() else None
        return found

    @abstractmethod
    def _measure(self, metric: str, scores: Tensor, y: Tensor) -> float | None:
        """A metric of the scores `[n, C]` of pairs and their labels `[n]`."""


@final
class EdgeClassification(PairTask):
    """One class a labelled pair of nodes, by cross entropy. The labelled pairs are split at random.

    Args:
        graph: has `edge_label_index` and `edge_label`; its edges stay in `P`, whatever their label.
        val_edges, test_edges: shares of the labelled pairs.
        edge_seed: of the split.
        head, width, loss, metric: see `PairTask`. `dot` is for two classes: its score is the logit of class 1.
    """

    name = "edge"
    metrics = NodeClassification.metrics

    def __init__(
        self,
        graph: Graph,
        *,
        head: Head = "hadamard-mlp",
        width: int = 64,
        val_edges: float = 0.05,
        test_edges: float = 0.1,
        edge_seed: int = 0,
        loss: LossFunction | None = None,
        metric: str | None = None,
    ) -> None:
        index, label = graph.edge_label_index, graph.edge_label
        require(
            index is not None and label is not None and bool((label >= 0).any()),
            "task 'edge' needs labelled edges and this graph has none; give edge_label_index and edge_label "
            "(cvgnn.data.with_edge_labels, or keys of an .npz file), or use task 'link' to predict edges",
        )
        assert index is not None
        assert label is not None
        known = (label >= 0).nonzero().flatten()
        classes = int(label.max()) + 1
        require(
            head != "dot" or classes == 2,
            f"head 'dot' gives one score a pair, for two classes; the edges have {classes}: use 'hadamard-mlp' or "
            "'concat-mlp'",
        )
        parts = random_parts(known.numel(), val=val_edges, test=test_edges, seed=edge_seed)
        ids = {split: known[torch.from_numpy(part)] for split, part in zip(SPLITS, parts, strict=True)}
        pairs, labels = ({split: t[..., at] for split, at in ids.items()} for t in (index, label))
        super().__init__(
            graph, EdgeItems(pairs["train"]), pairs, labels, head=head, width=width,
            outputs=1 if head == "dot" else classes, loss=loss, metric=metric,
        )  # fmt: skip
        self.y = labels["train"]  # on the device of the loss

    def to(self, device: torch.device) -> Self:
        """See `Task`."""
        self.y = self.y.to(device)
        return self

    def sizes(self) -> dict[str, int]:
        """See `Task`."""
        return {split: y.numel() for split, y in self.labels.items()}

    def scores(self, rows: Tensor, readout: nn.Module | None) -> Tensor:
        """Logits of the classes; one score `s` is the pair of logits `(0, s)`."""
        found = super().scores(rows, readout)
        return found if self.head != "dot" else torch.cat([torch.zeros_like(found), found], dim=1)

    def _criterion(self, scores: Tensor, batch: Batch) -> Tensor:
        return (self.function or cross_entropy)(scores, self.y[batch.ids])

    def _measure(self, metric: str, scores: Tensor, y: Tensor) -> float | None:
        return NodeClassification.functions[metric](scores, y)

    def predict(self, rows: Tensor, readout: nn.Module | None = None) -> Tensor:
        """int64 `[n]`: classes of pairs, whose embeddings are `[2, n, d]`."""
        return self.scores(rows, readout).argmax(dim=1)

    def predict_proba(self, rows: Tensor, readout: nn.Module | None = None) -> Tensor:
        """`[n, C]`: class probabilities of pairs."""
        return self.scores(rows, readout).softmax(dim=1)

    def prediction_columns(
        self, rows: Tensor, ids: Sequence[int] | None, names: Sequence[str] | None, readout: nn.Module | None = None
    ) -> dict[str, np.ndarray]:
        """`class`, its `probability`, and `p_CLASS` for each class."""
        probabilities = self.predict_proba(rows, readout).cpu()
        highest, classes = (t.numpy() for t in probabilities.max(dim=1))
        return {"class": classes, "probability": highest, **probability_columns(probabilities, None)}


@final
class LinkPrediction(PairTask):
    """Which pairs of nodes are edges, by binary cross entropy against negatives, one for each edge.

    Validation and test edges are held out of the graph of `P`. Training draws fresh negatives at every step; splits are
    evaluated with fixed ones. Of the training edges a random part is evaluated, as many as the test edges.

    Args:
        graph: the whole graph.
        negatives: see `NegativeSampler`.
        hits_k: `K` of Hits@K.
        seed: of the training negatives.
        edge_seed: of the split, and of the negatives that it is evaluated with.
        val_edges, test_edges: shares of the edges.
        head, width, loss, metric: see `PairTask`.
    """

    name = "link"
    metrics = ("roc_auc", "average_precision", "hits_at_k", "mrr")

    def __init__(
        self,
        graph: Graph,
        *,
        head: Head = "hadamard-mlp",
        width: int = 64,
        val_edges: float = 0.05,
        test_edges: float = 0.1,
        negatives: Negatives = "uniform",
        hits_k: int = 50,
        seed: int = 0,
        edge_seed: int = 0,
        loss: LossFunction | None = None,
        metric: str | None = None,
    ) -> None:
        require(graph.num_edges > 0, "task 'link' predicts edges and this graph has none")
        split = split_edges(graph, val=val_edges, test=test_edges, seed=edge_seed)
        require(split.train.shape[1] > 0, "no edge is left to train on; lower val_edges and test_edges")
        fixed = NegativeSampler(graph, negatives, degrees=split.graph, seed=edge_seed)
        # The parts are in random order, so that a beginning is a random part.
        true = {
            "train": split.train[:, : max(split.test.shape[1], split.val.shape[1], 1)],
            "val": split.val,
            "test": split.test,
        }
        drawn = {s: fixed.draw(edges.shape[1], 0, SPLITS.index(s)) for s, edges in true.items()}
        pairs = {s: torch.cat([edges, drawn[s].to(edges.dtype)], dim=1) for s, edges in true.items()}
        labels = {s: torch.arange(p.shape[1]) < p.shape[1] // 2 for s, p in pairs.items()}
        fresh = NegativeSampler(graph, negatives, degrees=split.graph, seed=seed)
        super().__init__(
            split.graph, EdgeItems(split.train, fresh), pairs, labels, head=head, width=width, outputs=1, loss=loss,
            metric=metric,
        )  # fmt: skip
        self._symmetric = not graph.directed
        self._sizes = {"train": len(self.items), "val": split.val.shape[1], "test": split.test.shape[1]}
        self.hits_k = require_integer("hits_k", hits_k, at_least=1)
        require(
            self.metric != "hits_at_k" or self._sizes["val"] >= hits_k,
            f"metric 'hits_at_k' ranks edges among at least hits_k={hits_k} negatives, and there are as many as "
            f"validation edges, {self._sizes['val']}; lower hits_k, or raise val_edges",
        )

    @classmethod
    def _further(cls, config: TrainConfig) -> dict[str, Any]:
        return {name: getattr(config, name) for name in ("negatives", "hits_k", "seed")}

    @property
    def result_metrics(self) -> tuple[str, ...]:
        """All metrics: they need the same scores."""
        return self.metrics

    def sizes(self) -> dict[str, int]:
        """See `Task`; negatives do not count."""
        return self._sizes

    def _criterion(self, scores: Tensor, batch: Batch) -> Tensor:
        labels = torch.zeros(len(scores), dtype=scores.dtype, device=scores.device)
        labels[: batch.ids.numel()] = 1
        return (self.function or binary_cross_entropy_with_logits)(scores.squeeze(1), labels)

    def _measure(self, metric: str, scores: Tensor, y: Tensor) -> float | None:
        if metric in ("roc_auc", "average_precision"):
            return (m.roc_auc if metric == "roc_auc" else m.average_precision)(scores, y[:, None])
        positive, negative = scores[y].flatten(), scores[~y].flatten()
        return mrr(positive, negative) if metric == "mrr" else hits_at_k(positive, negative, self.hits_k)

    def predict(self, rows: Tensor, readout: nn.Module | None = None) -> Tensor:
        """int8 `[n]`: 1 for pairs, whose embeddings are `[2, n, d]`, of probability above 1/2."""
        return (self.scores(rows, readout).squeeze(1) > 0).to(torch.int8)

    def predict_proba(self, rows: Tensor, readout: nn.Module | None = None) -> Tensor:
        """`[n]`: the probability that a pair is an edge, among as many edges as negatives."""
        return self.scores(rows, readout).squeeze(1).sigmoid()

    def prediction_columns(
        self, rows: Tensor, ids: Sequence[int] | None, names: Sequence[str] | None, readout: nn.Module | None = None
    ) -> dict[str, np.ndarray]:
        """`score`, the logit, and `probability`."""
        score = self.scores(rows, readout).squeeze(1).cpu()
        return {"score": score.numpy(), "probability": score.sigmoid().numpy()}


def hits_at_k(positive: Tensor, negative: Tensor, k: int) -> float | None:
    """Share of positive scores above the `k`-th highest negative one; None if there are fewer negatives.

    >>> hits_at_k(torch.tensor([3.0, 1.0]), torch.tensor([2.0, 0.0]), 1)
    0.5
    """
    if negative.numel() < k:
        return None
    return int((positive > negative.topk(k).values[-1]).sum()) / positive.numel()


def mrr(positive: Tensor, negative: Tensor) -> float:
    """Mean of 1 / rank, the rank of each positive score among all negative ones; a tie counts half.

    >>> mrr(torch.tensor([3.0, 1.0]), torch.tensor([2.0, 0.0]))
    0.75
    """
    ascending, n = negative.sort().values, negative.numel()
    above, not_below = (n - torch.searchsorted(ascending, positive, right=right) for right in (True, False))
    return float((1 / (1 + (above + not_below) / 2)).double().mean())
