"""Tasks whose items are pairs of nodes: classes on labelled edges, and link prediction."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, Unpack, final, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from cvgnn.config import TrainConfig
from cvgnn.data import Graph
from cvgnn.data.edge_split import random_parts, split_edges
from cvgnn.data.split import SPLITS
from cvgnn.errors import require, require_integer, require_known
from cvgnn.sampling import Batch
from cvgnn.sampling.edge_items import EdgeItems, Negatives, NegativeSampler
from cvgnn.training.tasks import metrics as m
from cvgnn.training.tasks.base import Metrics, Task, draw_weights
from cvgnn.training.tasks.node_tasks import LabelOptions, LossFunction, NodeClassification

Head = Literal["dot", "hadamard-mlp", "concat-mlp"]
HEADS: tuple[str, ...] = get_args(Head)

PAIRS_AT_A_TIME = 1 << 16
"""Pairs that are scored at once: their embeddings are copied, and there may be millions of pairs."""


@final
@dataclass(frozen=True, kw_only=True)
class PairOptions:
    """What both tasks of pairs have.

    Args:
        head, width: see `PairHead`; the width of the embeddings.
        val_edges, test_edges: shares of the pairs, for a graph without an `edge_split` of its own.
        edge_seed: of a random split, and of the negatives that are evaluated.
    """

    head: Head = "hadamard-mlp"
    width: int = 64
    val_edges: float = 0.05
    test_edges: float = 0.1
    edge_seed: int = 0

    def __post_init__(self) -> None:
        require_known("head", self.head, HEADS)

    @classmethod
    def from_config(cls, config: TrainConfig) -> PairOptions:
        """The options of a run; its embeddings are as wide as `hidden`."""
        same = {name: getattr(config, name) for name in ("head", "val_edges", "test_edges", "edge_seed")}
        return cls(width=config.hidden, **same)

    def check_split(self, graph: Graph) -> None:
        """Refuse shares for a graph that has its own split: they would do nothing."""
        for name in ("val_edges", "test_edges"):
            # An option that would be ignored is refused: the user would believe in a split that was not
            # made.
            used = graph.edge_split is None or getattr(self, name) == getattr(DEFAULTS, name)
            require(used, f"the edges of {graph.name!r} have their own split, so {name} would do nothing; leave it out")

    def describe_split(self, graph: Graph) -> str:
        """The origin of the split, for the record of a run."""
        train = 1 - self.val_edges - self.test_edges
        parts = f"{train:g}/{self.val_edges:g}/{self.test_edges:g}"
        return f"random: seed {self.edge_seed}, edges {parts}" if graph.edge_split is None else "given"


DEFAULTS = PairOptions()


@final
class PairHead(nn.Module):
    """Scores of pairs from the embeddings of their two nodes, `[2, n, d]` to `[n, C]`:

        dot: <a, b>        hadamard-mlp: W2 relu(W1 (a * b) + b1) + b2        concat-mlp: the same of [a, b]

    Args:
        options: which of the three, and `d`; the MLP's hidden layer has this width, too.
        outputs: `C`; `dot` has one score, of two classes the logits `(0, score)`.
        symmetric: whether `concat-mlp` takes the mean over both orders, for edges without direction.
        seed: of the initial weights, drawn as those of `torch.nn.Linear`.
        dtype: of the weights.
    """

    def __init__(self, options: PairOptions, outputs: int, *, symmetric: bool, seed: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.head, self.outputs, self.symmetric = options.head, outputs, symmetric
        self.mlp: nn.Module | None = None
        if self.head == "dot":
            return
        width = options.width
        first = nn.Linear(2 * width if self.head == "concat-mlp" else width, width, dtype=dtype)
        last = nn.Linear(width, outputs, dtype=dtype)
        draw_weights((first, last), seed)
        self.mlp = nn.Sequential(first, nn.ReLU(), last)

    def forward(self, rows: Tensor) -> Tensor:
        """The scores of the pairs, `[n, C]`."""
        a, b = rows
        if self.mlp is None:
            product = (a * b).sum(dim=1, keepdim=True)
            # Two classes with the logits (0, s) have the probabilities of one score s through a sigmoid.
            return product if self.outputs == 1 else torch.cat([torch.zeros_like(product), product], dim=1)
        if self.head == "hadamard-mlp":
            return self.mlp(a * b)  # type: ignore[no-any-return]
        score: Tensor = self.mlp(torch.cat([a, b], dim=1))
        # An edge without direction has no first node: without the mean, its score would depend on the order
        # in the file.
        return (score + self.mlp(torch.cat([b, a], dim=1))) / 2 if self.symmetric else score


def pair_scores(rows: Tensor, pairs: Tensor, readout: nn.Module | None) -> Tensor:
    """The scores of pairs `[2, n]` on the CPU, `[n, C]`, of the embeddings of all nodes."""
    assert readout is not None
    # Piece by piece: the two embeddings of every pair at once would be 2 n d numbers.
    pieces = torch.split(pairs.to(rows.device), PAIRS_AT_A_TIME, dim=1)
    return torch.cat([readout(rows[piece.long()]).cpu() for piece in pieces])


@final
class EdgeClassification(NodeClassification):
    """One class a labelled pair of nodes, by cross entropy.

    `evaluate` and `report` take the embeddings of all nodes; `predict` and the like those of pairs, `[2, n, d]`.

    Args:
        graph: has `edge_label_index`, `edge_label` and perhaps `edge_split`; its edges stay in `P`, whatever their
            label. With `num_outputs`, a graph to predict on, which needs none of them.
        pairs: head and split. `dot` is for two classes: its score is the logit of class 1.
        options: `num_outputs`, `loss`, `metric`, `class_weight`, `label_smoothing`, see `NodeTask`.
    """

    name = "edge"
    options: ClassVar[tuple[str, ...]] = ("class_weight", "label_smoothing")
    of_pairs = True
    items: EdgeItems

    def __init__(
        self,
        graph: Graph,
        *,
        pairs: PairOptions = DEFAULTS,
        **options: Unpack[LabelOptions],
    ) -> None:
        label = graph.edge_label
        require(
            (label is not None and bool((label >= 0).any())) or options.get("num_outputs") is not None,
            "task 'edge' needs labelled edges and this graph has none; give edge_label_index and edge_label "
            "(cvgnn.data.with_edge_labels, or keys of an .npz file) or a table edge_labels, or use task 'link' to "
            "predict edges",
        )
        pairs.check_split(graph)
        self.pair_options = pairs
        super().__init__(graph, **options)
        self.out_channels = pairs.width
        require(
            pairs.head != "dot" or self.num_outputs == 2,
            f"head 'dot' gives one score a pair, for two classes; the edges have {self.num_outputs}: use "
            "'hadamard-mlp' or 'concat-mlp'",
        )

    @classmethod
    def _further(cls, config: TrainConfig) -> dict[str, Any]:
        return {"pairs": PairOptions.from_config(config)}

    @property
    def classes(self) -> tuple[int, tuple[str, ...] | None]:
        """See `Task`: those of the edges."""
        names = self.graph.edge_class_names
        return len(names) if names is not None else int(self.y.max()) + 1 if len(self.y) else 1, names

    @property
    def split(self) -> str:
        """See `Task`."""
        return self.pair_options.describe_split(self.graph)

    def make_readout(self, *, seed: int, dtype: torch.dtype) -> PairHead:
        """See `Task`."""
        # Labelled pairs may have a direction even where the graph has none (who pays whom).
        return PairHead(self.pair_options, self.num_outputs, symmetric=False, seed=seed, dtype=dtype)

    def _labels(self, graph: Graph) -> Tensor:
        return torch.empty(0, dtype=torch.int64) if graph.edge_label is None else graph.edge_label

    def _split(self, graph: Graph) -> dict[str, Tensor]:
        known, given, options = self.y >= 0, graph.edge_split, self.pair_options
        if given is not None:
            return {split: (known & (given == part)).nonzero().flatten() for part, split in enumerate(SPLITS)}
        ids = known.nonzero().flatten()
        parts = random_parts(len(ids), val=options.val_edges, test=options.test_edges, seed=options.edge_seed)
        return {split: ids[torch.from_numpy(part)] for split, part in zip(SPLITS, parts, strict=True)}

    def _items(self, graph: Graph) -> EdgeItems:
        index = graph.edge_label_index
        return EdgeItems(torch.empty(2, 0, dtype=torch.int64) if index is None else index, self.ids["train"])

    def _scores_of(self, ids: Tensor, rows: Tensor, readout: nn.Module | None) -> Tensor:
        return pair_scores(rows, self.items.pairs[:, ids], readout)

    def _label_column(self, ids: Sequence[int] | None, names: Sequence[str] | None) -> dict[str, np.ndarray]:
        return {}  # pairs to predict are no pairs of the graph


@final
class LinkPrediction(Task):
    """Which pairs of nodes are edges, by binary cross entropy against negatives, one for each edge.

    Validation and test edges are held out of the graph of `P`. Training draws fresh negatives at every step; splits are
    evaluated with fixed ones. Of the training edges a random part is evaluated, as many as the test edges.

    Args:
        graph: the whole graph; its `edge_split`, if it has one, holds edges out.
        pairs: head and split.
        negatives: see `NegativeSampler`.
        hits_k: `K` of Hits@K.
        seed: of the training negatives.
        loss: a function of scores `[n]` and labels `[n]`, 1 for edges, in place of the binary cross entropy.
        metric: see `Task`.
    """

    name = "link"
    metrics = ("roc_auc", "average_precision", "hits_at_k", "mrr")
    of_pairs = True
    items: EdgeItems

    def __init__(
        self,
        graph: Graph,
        *,
        pairs: PairOptions = DEFAULTS,
        negatives: Negatives = "uniform",
        hits_k: int = 50,
        seed: int = 0,
        loss: LossFunction | None = None,
        metric: str | None = None,
    ) -> None:
        require(graph.num_edges > 0, "task 'link' predicts edges and this graph has none")
        pairs.check_split(graph)
        # Held-out edges leave P before anything is computed: kept, they would tell the embeddings the answer
        # (an AUC of 0.89 on noise).
        split = split_edges(graph, val=pairs.val_edges, test=pairs.test_edges, seed=pairs.edge_seed)
        require(split.train.shape[1] > 0, "no edge is left to train on; lower val_edges and test_edges")
        super().__init__(split.graph, metric=metric)
        self._digest = edges_digest(graph)
        # Evaluation compares epochs and runs, so its negatives are fixed by edge_seed; training's follow the
        # run's own seed.
        fixed, fresh = (
            NegativeSampler(graph, negatives, degrees=split.graph, seed=seed) for seed in (pairs.edge_seed, seed)
        )
        self.items = EdgeItems(split.train, negatives=fresh)
        self.pair_options, self.out_channels, self.function = pairs, pairs.width, loss
        # The parts are in random order, so that a beginning is a random part.
        true = {
            "train": split.train[:, : max(split.test.shape[1], split.val.shape[1])],
            "val": split.val,
            "test": split.test,
        }
        # The split's number is a coordinate of the draw, so no two splits share their negatives.
        drawn = {s: fixed.draw(edges.shape[1], 0, SPLITS.index(s)) for s, edges in true.items()}
        self.pairs = {s: torch.cat([edges, drawn[s].to(edges.dtype)], dim=1) for s, edges in true.items()}
        self._sizes = {"train": len(self.items), "val": split.val.shape[1], "test": split.test.shape[1]}
        self.hits_k = require_integer("hits_k", hits_k, at_least=1)
        require(
            self.metric != "hits_at_k" or self._sizes["val"] >= hits_k,
            f"metric 'hits_at_k' ranks edges among at least hits_k={hits_k} negatives, and there are as many as "
            f"validation edges, {self._sizes['val']}; lower hits_k, or raise val_edges",
        )

    @classmethod
    def from_config(cls, graph: Graph, config: TrainConfig, *, num_outputs: int | None, loss: Any) -> Self:
        """See `Task`."""
        for name in ("class_weight", "label_smoothing", "calibrate"):
            require(not getattr(config, name), f"{name} has no use with task {cls.name!r}; leave it out")
        same = {name: getattr(config, name) for name in ("negatives", "hits_k", "seed", "metric")}
        return cls(graph, pairs=PairOptions.from_config(config), loss=loss, **same)

    @classmethod
    def of_all_edges(cls, graph: Graph, config: TrainConfig) -> Self:
        """The task that hides no edge, to predict on another graph than the run's."""
        options = dataclasses.replace(PairOptions.from_config(config), val_edges=0.0, test_edges=0.0)
        whole = dataclasses.replace(graph, edge_split=None, built=True)
        return cls(whole, pairs=options)

    @property
    def classes(self) -> tuple[int, None]:
        """See `Task`: labels of nodes, if there are any, do not matter."""
        return 1, None

    def report(self, rows: Tensor, readout: nn.Module | None = None) -> dict[str, Any]:
        """See `Task`: by which edges a run knows its graph again."""
        return {"edges_sha256": self._digest}

    @property
    def split(self) -> str:
        """See `Task`."""
        return self.pair_options.describe_split(self.graph)

    @property
    def result_metrics(self) -> tuple[str, ...]:
        """All metrics: they need the same scores."""
        return self.metrics

    def sizes(self) -> dict[str, int]:
        """See `Task`; negatives do not count."""
        return self._sizes

    def make_readout(self, *, seed: int, dtype: torch.dtype) -> PairHead:
        """See `Task`."""
        return PairHead(self.pair_options, 1, symmetric=not self.graph.directed, seed=seed, dtype=dtype)

    def loss(self, rows: Tensor, batch: Batch, readout: nn.Module | None = None) -> Tensor:
        """See `Task`; negatives come last."""
        scores = self._scores(batch.select(rows), readout)
        # EdgeItems puts the negatives last, as many as edges, so a position tells the label.
        labels = torch.zeros_like(scores)
        labels[: batch.ids.numel()] = 1
        return (self.function or binary_cross_entropy_with_logits)(scores, labels)

    def evaluate(self, rows: Tensor, metrics: Sequence[str], readout: nn.Module | None = None) -> Metrics:
        """See `Task`."""
        found: Metrics = {}
        for split, pairs in self.pairs.items():
            found |= dict.fromkeys(f"{split}_{name}" for name in metrics)
            if pairs.shape[1]:
                scores = pair_scores(rows, pairs, readout).squeeze(1)
                found |= {f"{split}_{name}": self._measure(name, *scores.chunk(2)) for name in metrics}
        return found

    def _measure(self, metric: str, positive: Tensor, negative: Tensor) -> float | None:
        if metric in ("mrr", "hits_at_k"):
            return mrr(positive, negative) if metric == "mrr" else hits_at_k(positive, negative, self.hits_k)
        scores, y = torch.cat([positive, negative])[:, None], torch.arange(2 * len(positive)) < len(positive)
        return (m.roc_auc if metric == "roc_auc" else m.average_precision)(scores, y[:, None])

    def _scores(self, rows: Tensor, readout: nn.Module | None) -> Tensor:
        """Logits `[n]` of pairs, whose embeddings are `[2, n, d]`."""
        assert readout is not None
        return readout(rows).squeeze(1)  # type: ignore[no-any-return]

    def predict(self, rows: Tensor, readout: nn.Module | None = None) -> Tensor:
        """int8 `[n]`: 1 for pairs of probability above 1/2."""
        return (self._scores(rows, readout) > 0).to(torch.int8)

    def predict_proba(self, rows: Tensor, readout: nn.Module | None = None) -> Tensor:
        """`[n]`: the probability that a pair is an edge, among as many edges as negatives."""
        return self._scores(rows, readout).sigmoid()

    def prediction_columns(
        self, rows: Tensor, ids: Sequence[int] | None, names: Sequence[str] | None, readout: nn.Module | None = None
    ) -> dict[str, np.ndarray]:
        """`score`, the logit, and `probability`."""
        score = self._scores(rows, readout).cpu()
        return {"score": score.numpy(), "probability": score.sigmoid().numpy()}


def edges_digest(graph: Graph) -> str:
    """SHA-256 of the edges of a graph."""
    total = hashlib.sha256()
    for part in (graph.indptr, graph.indices):
        total.update(part.numpy().data)
    return total.hexdigest()


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
    # Sorted once, every rank is a binary search: n log n instead of the n^2 comparisons of a matrix of scores.
    above, not_below = (n - torch.searchsorted(ascending, positive, right=right) for right in (True, False))
    return float((1 / (1 + (above + not_below) / 2)).double().mean())
