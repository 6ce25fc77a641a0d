"""What is measured is what the reference computes for the same draws, and measuring changes nothing."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cvgnn.config import TrainConfig
from cvgnn.errors import CvgnnError
from cvgnn.lab.diagnose.error_split import ErrorSplit
from cvgnn.lab.diagnose.gradient_errors import (
    Resampling,
    Variant,
    VariantErrors,
    batch_outputs,
    exact_outputs,
    first_batch,
    measure,
    require_histories,
    variants,
)
from cvgnn.lab.diagnose.trainers import FIRST_STEP, fresh_trainer, train_until
from cvgnn.nn import ControlVariate, exact_logits
from cvgnn.reference import cv_forward_backward, exact_forward
from cvgnn.sampling import Batch
from cvgnn.training import Trainer
from tests.build import graph_from_dense, random_adjacency

GRAPH = graph_from_dense(random_adjacency(24, mean_degree=4, weighted=False, seed=3))


def trained(**options: object) -> Trainer:
    trainer = fresh_trainer(GRAPH, config(**options))
    for _ in train_until(trainer, [5]):
        pass
    return trainer


def config(**options: object) -> TrainConfig:
    return TrainConfig(**{"hidden": 4, "batch_size": 5, "lr": 0.05, "dropout": 0.5, **options})


def plan(**options: object) -> Resampling:
    return Resampling(**{"batch": "resampled", "batches": 4, "draws": 3, "batch_size": 5, "seed": 7, **options})  # type: ignore[arg-type]


def sampled_matrices(batch: Batch, P: np.ndarray) -> dict[int, np.ndarray]:
    """`P^(k)` by `k`, written out."""
    P_hats = {}
    for k, block in enumerate(batch.blocks, start=1):
        P_hats[k] = np.zeros_like(P)
        P_hats[k][np.ix_(block.targets.numpy(), block.sources.numpy())] = block.sampled.dense(block.sources.numel())
    return P_hats


def by_reference(trainer: Trainer, variant: Variant, draws: list[tuple[torch.Tensor, int]]) -> np.ndarray:
    """The gradients of the reference for the matrices P^ that the sampler drew, `[draws, d]`."""
    loader = variant.loader(trainer, plan())
    params = {name: p.detach().numpy() for name, p in trainer.model.named_parameters()}
    P, K = loader.sampler.propagation.dense().numpy(), trainer.model.num_layers
    Hbar = {}
    if isinstance(trainer.estimator, ControlVariate):
        Hbar = {k: trainer.estimator.history(k).values.numpy() for k in range(1, K)}
    rows = []
    for ids, step in draws:
        P_hats = sampled_matrices(loader.batch(ids, step), P)
        _, grads, _, _ = cv_forward_backward(
            params, P, P_hats, Hbar, GRAPH.x.numpy(), GRAPH.y.numpy(), ids.numpy(), estimator=variant.estimator  # type: ignore[union-attr]
        )  # fmt: skip
        rows.append(np.concatenate([g.ravel() for g in grads.values()]))
    return np.array(rows)


@pytest.mark.parametrize("batches", ["shuffle", "replacement"])
@pytest.mark.parametrize(("estimator", "layers"), [("cv", 2), ("ns", 2), ("cv", 3)])
def test_the_split_of_the_gradients_of_the_reference(estimator: str, layers: int, batches: str) -> None:
    trainer = trained(layers=layers, batches=batches)
    variant = Variant(estimator=estimator, scheme="without-replacement", fan_out=(2,))
    found = measure(trainer, variant, plan())
    loader = variant.loader(trainer, plan())
    ids = [first_batch(loader, b) for b in range(4)]
    draws = [(ids[b], FIRST_STEP + 3 * b + r) for b in range(4) for r in range(3)]
    G = by_reference(trainer, variant, draws).reshape(4, 3, -1)
    exact = Variant(estimator="exact", scheme="without-replacement", fan_out=(-1,))
    own = by_reference(trainer, exact, [(one, 0) for one in ids])
    g = by_reference(trainer, exact, [(GRAPH.train_ids, 0)])[0]

    given = G.mean(axis=1)
    neighbors = ((G - given[:, None]) ** 2).sum(axis=2).sum() / (4 * (3 - 1))
    batch = ((given - given.mean(axis=0)) ** 2).sum() / 3 - neighbors / 3
    e = given - own
    bias2 = (e.mean(axis=0) ** 2).sum() - ((e - e.mean(axis=0)) ** 2).sum() / 3 / 4
    expected = (bias2, batch, neighbors, bias2 + batch + neighbors)
    np.testing.assert_allclose(found.split, expected, rtol=1e-10, atol=1e-13)
    assert found.gradient_norm2["all"] == pytest.approx((g**2).sum(), rel=1e-10)
    cosine = (G @ g) / np.linalg.norm(G, axis=2) / np.linalg.norm(g)
    np.testing.assert_allclose(found.cosines["all"], cosine.mean(axis=1), rtol=1e-10)
    ends = np.cumsum([0, *(sum(p.numel() for p in layer.parameters()) for layer in trainer.model.layers)])
    for k in range(layers):
        part = slice(ends[k], ends[k + 1])
        assert found.gradient_norm2[f"layer {k}"] == pytest.approx((g[part] ** 2).sum(), rel=1e-10)
        cosine = (G[..., part] @ g[part]) / np.linalg.norm(G[..., part], axis=2) / np.linalg.norm(g[part])
        np.testing.assert_allclose(found.cosines[f"layer {k}"], cosine.mean(axis=1), rtol=1e-10)
    parts = np.sum([found.gradient[f"layer {k}"][0] for k in range(layers)], axis=0)
    np.testing.assert_allclose(parts, expected, rtol=1e-10, atol=1e-13)


def test_a_fixed_batch_against_its_own_gradient() -> None:
    trainer = trained()
    variant = Variant(estimator="cv", scheme="paper", fan_out=(2,))
    found = measure(trainer, variant, plan(batch="fixed", batches=1, draws=6))
    loader = variant.loader(trainer, plan())
    ids = first_batch(loader)
    G = by_reference(trainer, variant, [(ids, FIRST_STEP + r) for r in range(6)])
    exact = Variant(estimator="exact", scheme="without-replacement", fan_out=(-1,))
    g = by_reference(trainer, exact, [(ids, 0)])[0]
    spread = G.var(axis=0, ddof=1).sum()
    split = found.split
    np.testing.assert_allclose(split[1:3], (0.0, spread), rtol=1e-10)
    assert split.bias2 == pytest.approx(((G.mean(axis=0) - g) ** 2).sum() - spread / 6, rel=1e-8)
    assert len(found.gradient["all"]) - 1 == len(found.cosines["all"]) == 6


def test_outputs_of_the_batch() -> None:
    trainer = trained(layers=3)
    logits = exact_logits(trainer.model, trainer.estimator.features, trainer.loader.sampler.propagation)
    rows = exact_outputs(trainer)
    assert list(rows) == ["A^(1)", "Z^(2)", "A^(2)", "Z^(3)"]
    torch.testing.assert_close(rows["Z^(3)"], logits)
    for name in ("exact", "cv"):
        variant = Variant(estimator=name, scheme="without-replacement", fan_out=(-1,))
        batch = variant.loader(trainer, plan(batch_size=5, seed=0)).batch(GRAPH.train_ids[:4], 1)
        found = batch_outputs(trainer.model, batch, variant.aggregator(trainer))
        for key, exact in rows.items():
            torch.testing.assert_close(found[key][:4], exact[GRAPH.train_ids[:4]])
    sampled = measure(trainer, Variant(estimator="ns", scheme="without-replacement", fan_out=(1,)), plan())
    splits = [ErrorSplit(*errors[0]) for errors in sampled.outputs.values()]
    assert all(split.neighbors > 0 and split.batch == 0 for split in splits)


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("estimator", ["cv", "ns"])
def test_the_split_of_the_outputs_of_the_reference(estimator: str, fixed: bool) -> None:
    """Of the errors of `A^(1)` and `Z^(2)` at a fan-out that draws: from dense matrices, a node's on average."""
    trainer, variant = trained(), Variant(estimator=estimator, scheme="without-replacement", fan_out=(1,))
    chosen = plan(batch="fixed", batches=1) if fixed else plan()
    found = measure(trainer, variant, chosen)
    loader = variant.loader(trainer, plan())
    params = {name: p.detach().numpy() for name, p in trainer.model.named_parameters()}
    P = loader.sampler.propagation.dense().numpy()
    H = exact_forward(params, P, GRAPH.x.numpy(), 2)[0][1]  # type: ignore[union-attr]
    assert isinstance(trainer.estimator, ControlVariate)
    Hbar = trainer.estimator.history(1).values.numpy() if estimator == "cv" else np.zeros_like(H)
    W, b = params["layers.1.weight"], params["layers.1.bias"]
    splits: dict[str, list[tuple[float, float]]] = {"A^(1)": [], "Z^(2)": []}
    sizes: dict[str, list[float]] = {"A^(1)": [], "Z^(2)": []}
    for number in range(chosen.batches):
        ids = first_batch(loader, number)
        errors: dict[str, list[np.ndarray]] = {"A^(1)": [], "Z^(2)": []}
        for r in range(3):
            P_hat = sampled_matrices(loader.batch(ids, FIRST_STEP + 3 * number + r), P)[1]
            off = (P_hat @ (H - Hbar) + P @ Hbar - P @ H)[ids.numpy()]
            errors["A^(1)"].append(off)
            errors["Z^(2)"].append(off @ W)
        for name, exact in (("A^(1)", P @ H), ("Z^(2)", P @ H @ W + b)):
            e, n = np.array(errors[name]), len(ids)
            neighbors = ((e - e.mean(axis=0)) ** 2).sum() / (3 - 1) / n
            splits[name].append(((e.mean(axis=0) ** 2).sum() / n - neighbors / 3, neighbors))
            sizes[name].append((exact[ids.numpy()] ** 2).sum() / n)
    assert list(found.outputs) == list(splits)
    for name in splits:
        bias2, neighbors = np.mean(splits[name], axis=0)
        assert neighbors > 1e-4
        expected = (bias2, 0.0, neighbors, bias2 + neighbors)
        np.testing.assert_allclose(found.outputs[name][0], expected, rtol=1e-10, atol=1e-13)
        assert found.output_norm2[name] == pytest.approx(np.mean(sizes[name]), rel=1e-10)


def test_a_batch_that_is_always_the_same_has_no_variance() -> None:
    variant = Variant(estimator="ns", scheme="without-replacement", fan_out=(1,))
    for batch_size, batches, alike in ((12, "shuffle", True), (11, "shuffle", False), (12, "replacement", False)):
        found = measure(trained(batches=batches), variant, plan(batch_size=batch_size))
        for errors in found.gradient.values():
            split = ErrorSplit(*errors[0].tolist())
            assert (split.batch == 0) is alike
            assert split.mse == pytest.approx(split.bias2 + split.batch + split.neighbors)


def test_smoothed_labels_are_part_of_the_loss() -> None:
    """With all neighbors and one batch of all nodes a step's gradient is the exact one, of the loss that is trained."""
    variant = Variant(estimator="cv", scheme="without-replacement", fan_out=(-1,))
    trainer = trained(label_smoothing=0.3, dropout=0.0, batch_size=12)
    found = measure(trainer, variant, plan(batch_size=12))
    assert found.split.mse < 1e-20
    batch = trainer.loader.batch(GRAPH.train_ids, 1)
    trainer.model.train()
    exact = Variant(estimator="exact", scheme="without-replacement", fan_out=(-1,))
    trainer.estimator = exact.aggregator(trainer)
    trainer._loss_and_gradient(exact.loader(trainer, plan(batch_size=12, seed=0)).batch(batch.ids, 1))
    squares = sum(float(p.grad.square().sum()) for p in trainer.model.parameters() if p.grad is not None)
    assert found.gradient_norm2["all"] == pytest.approx(squares, rel=1e-10)


def test_the_exact_estimator_has_no_error_but_the_batchs() -> None:
    found = measure(trained(), Variant(estimator="exact", scheme="without-replacement", fan_out=(-1,)), plan())
    split = found.split
    assert split.bias2 == pytest.approx(0, abs=1e-25)
    assert split.neighbors == pytest.approx(0, abs=1e-25)
    assert split.batch > 1e-4


def test_measuring_changes_nothing_and_repeats_itself() -> None:
    trainer = trained()
    before = [p.detach().clone() for p in trainer.model.parameters()]
    state = {name: t.clone() for name, t in trainer.estimator.state_dict().items()}
    variant = Variant(estimator="cv", scheme="without-replacement", fan_out=(2,))

    def numbers(found: VariantErrors) -> list[object]:
        return [found.split, found.outputs["Z^(2)"].tolist(), found.cosines["all"].tolist()]

    assert numbers(measure(trainer, variant, plan())) == numbers(measure(trainer, variant, plan()))
    assert all(torch.equal(a, b) for a, b in zip(before, trainer.model.parameters(), strict=True))
    assert all(torch.equal(t, state[name]) for name, t in trainer.estimator.state_dict().items())
    assert trainer.model.training


def test_which_ways_are_compared() -> None:
    three = config(layers=3)
    found = variants(three, ["cv", "exact", "ns"], ["paper", "without-replacement"], [[2], [10, 5]])
    assert [v.label for v in found] == [
        "cv 2 (paper)", "exact", "ns 2 (paper)", "cv 10-5 (paper)", "ns 10-5 (paper)", "cv 2", "ns 2", "cv 10-5", "ns 10-5",
    ]  # fmt: skip
    assert [v.label for v in variants(config(num_neighbors=[-1]), ["cv"], [], [])] == ["cv all"]


@pytest.mark.parametrize(
    ("estimators", "schemes", "fan_outs", "message"),
    [
        ([], [], [], "name at least one estimator: cvd, cv, ns, exact"),
        (["cvv"], [], [], "unknown estimator 'cvv'; known: cvd, cv, ns, exact"),
        (["cv"], ["with"], [], "unknown scheme 'with'"),
        (["cv"], [], [[1, 2]], r"fan-out has 2 numbers, \(1, 2\), but 2 layers sample at 1 hops"),
        (["cv"], [], [[0]], "--fan-outs must be whole numbers of at least 1, or -1"),
    ],
)
def test_wrong_ways(estimators: list[str], schemes: list[str], fan_outs: list[list[int]], message: str) -> None:
    with pytest.raises(CvgnnError, match=message):
        variants(config(), estimators, schemes, fan_outs)


def test_the_control_variate_needs_histories() -> None:
    trainer = fresh_trainer(GRAPH, config(estimator="ns"))
    require_histories(trainer, variants(config(), ["ns", "exact"], [], []))
    with pytest.raises(CvgnnError, match=r"cv cannot be measured: .* train with --estimator cv"):
        require_histories(trainer, variants(config(), ["cv"], [], []))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch": "other"}, "unknown batch 'other'; known: resampled, fixed"),
        ({"batches": 2}, "batches must be a whole number of at least 3"),
        ({"draws": 1}, "draws must be a whole number of at least 2"),
    ],
)
def test_wrong_plans(options: dict[str, object], message: str) -> None:
    with pytest.raises(CvgnnError, match=message):
        plan(**options)
