"""The path of other devices: the whole training loop in plain torch, on CPU tensors, and where each tensor lives.

No GPU was at hand. What a CUDA user runs is the plain implementation; here it trains on the CPU, to 1e-10 of the compiled
one. The `meta` device, which has shapes and no data, shows that nothing mixes tensors of two devices.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

import cvgnn
from cvgnn.config import TrainConfig
from cvgnn.errors import CvgnnError
from cvgnn.nn import exact_logits
from cvgnn.ops.backend import plain
from cvgnn.training import Trainer, trainer_state
from cvgnn.training.trainer_builder import build_trainer
from tests.data.store.cases import make_graph

GRAPHS = {"dense": make_graph(n=60, dtype=torch.float64), "sparse": make_graph(n=60, sparse=True, dtype=torch.float64)}
OPTIONS: dict[str, Any] = {"hidden": 6, "batch_size": 7, "epochs": 4, "num_neighbors": 2, "threads": 1, "lr": 0.05}


def trained(graph: str, **options: Any) -> Trainer:
    trainer = build_trainer(GRAPHS[graph], TrainConfig(**{**OPTIONS, **options}))
    list(trainer.epochs(4))
    return trainer


@pytest.mark.parametrize("graph", list(GRAPHS))
@pytest.mark.parametrize(
    "options",
    [
        {"layers": 3, "norm": "layer"},
        {"layers": 2, "estimator": "ns", "input_dropout": 0.3},
        {"layers": 1, "input_dropout": 0.3, "optimizer": "adagrad", "form": "paper"},
        {"layers": 3, "estimator": "exact", "norm": "batch", "norm_every": 3, "activation": "elu"},
        {"model": "sage", "layers": 3, "residual": True, "norm": "layer", "activation": "gelu"},
        {"model": "gin", "layers": 2, "jk": "concat", "norm": "layer"},
        {"model": "gcnii", "layers": 4, "optimizer": "heavy-ball"},
        {"layers": 2, "batches": "replacement", "optimizer": "sgd", "output": "tau"},
    ],
    ids=str,
)
def test_the_training_loop_in_plain_torch(graph: str, options: dict[str, Any]) -> None:
    """Weights, moments, histories and accuracies after 20 steps."""
    compiled = trained(graph, **options)
    with plain():
        other = trained(graph, **options)
        logits = exact_logits(other.model, other.estimator.features, other.loader.sampler.propagation)
    mine, theirs = trainer_state(compiled)[0], trainer_state(other)[0]
    assert mine.keys() == theirs.keys()
    for name, tensor in mine.items():
        torch.testing.assert_close(tensor, theirs[name], rtol=0, atol=1e-10, msg=name)
    expected = exact_logits(compiled.model, compiled.estimator.features, compiled.loader.sampler.propagation)
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-10)
    assert compiled.best.score == other.best.score


@pytest.mark.parametrize("model", ["gcn", "sage", "gin", "gcnii"])
def test_no_tensor_is_left_on_another_device(model: str) -> None:
    """A step on the meta device: an operation that met a tensor of the CPU would raise."""
    meta = torch.device("meta")
    trainer = build_trainer(
        GRAPHS["dense"], TrainConfig(**OPTIONS, model=model, layers=3, norm="layer", residual=True, jk="concat")
    )
    batch = next(iter(trainer.loader)).to(meta)
    network, estimator = trainer.model.to(meta), trainer.estimator.to(meta)
    estimator.features = estimator.features.to(meta)
    logits = network(batch, estimator)
    assert logits.device == meta
    trainer.task.to(meta).loss(logits, batch).backward()  # type: ignore[no-untyped-call]
    assert all(p.grad is not None and p.grad.device == meta for p in network.parameters())
    optimizer = cvgnn.make_optimizer("adam", network.parameters(), lr=0.01)
    optimizer.step()
    estimator.commit(1)


@pytest.mark.parametrize("device", ["cuda", "cuda:7", "nonsense"])
def test_a_missing_device_is_refused_before_any_work(device: str) -> None:
    if device == "cuda" and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(CvgnnError, match=rf"device '{device}' cannot be used here \(.*\); device='cpu' always can"):
        cvgnn.fit(GRAPHS["dense"], device=device, epochs=1)
