"""What `diagnose bound` measures, beside a slow twin of Algorithm 1 in the paper's letters: dense, in plain loops."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch

from cvgnn.config import TrainConfig
from cvgnn.lab.diagnose.bound import diagnose_bound
from cvgnn.lab.diagnose.gradient import Objective
from cvgnn.lab.diagnose.theory import as_in_theory
from cvgnn.lab.diagnose.trainers import FIRST_STEP, fresh_trainer
from cvgnn.optim import OPTIMIZERS
from cvgnn.reference import cv_forward_backward, dense_P, exact_forward
from cvgnn.sampling import Batch
from tests.build import graph_from_dense, random_adjacency

A = random_adjacency(12, mean_degree=3, weighted=True, seed=3)
GRAPH = graph_from_dense(A)  # 6 training nodes
T, SEEDS, POINTS, DRAWS, ETA, K = 9, 2, 3, 5, 0.3, 2
BETA1, BETA2, NU_MIN, DECAY = 0.8, 0.9, 0.02, 0.01
CONFIG = as_in_theory(
    TrainConfig(
        hidden=3, batch_size=3, num_neighbors=1, batches="replacement", weight_decay=DECAY, form="paper",
        beta1=BETA1, beta2=BETA2, nu_min=NU_MIN,
    )
)  # fmt: skip

Vector = np.ndarray[Any, np.dtype[np.float64]]


class Twin:
    """One run: `W_t`, `G_t`, `g_t = grad F(W_t)`, `M_t`, `V_t`, each a list over `t = 1..T`, and what is seen of them.

    From the fast code come the first weights, the batches and the neighbors drawn, and nothing else.
    """

    def __init__(self, optimizer: str, seed: int, config: TrainConfig) -> None:
        self.trainer = fresh_trainer(GRAPH, dataclasses.replace(config, seed=seed))
        self.biased = config.scheme == "paper"
        self.P, self.X, self.y = dense_P(A), np.asarray(GRAPH.x), GRAPH.y.numpy()
        self.train = GRAPH.train_ids.numpy()
        params = {name: p.detach().numpy().copy() for name, p in self.trainer.model.named_parameters()}
        self.shapes = {name: value.shape for name, value in params.items()}
        self.alpha, beta1 = ETA / math.sqrt(T), 0.0 if optimizer == "sgd" else BETA1
        batches = [b for epoch in range(1, 10) for b in self.trainer.loader.epoch(epoch)]
        W = np.concatenate([value.ravel() for value in params.values()])
        Hbar = self.exact_H(W)
        written = np.zeros(len(A))
        M, V_hat, V, squares = (np.zeros_like(W) for _ in range(4))
        self.W, self.G, self.g, self.F, self.M, self.V = [], [], [], [], [], []
        self.at_points = []
        for t in range(1, T + 1):
            loss, _, g = self.gradient(W, {}, {1: Hbar}, self.train, "exact")
            self.F.append(loss + DECAY / 2 * sum(w**2 for w in W))
            self.g.append(g + DECAY * W)
            if t in (1, 5, 9):  # the first, the middle one, the last
                self.at_points.append(self.look(t, W, Hbar))
            batch = batches[t - 1]
            _, H, G = self.gradient(W, self.P_hats(batch), {1: Hbar}, batch.ids.numpy(), "cv")
            G = G + DECAY * W
            M = beta1 * M + (1 - beta1) * G
            V_hat = BETA2 * V_hat + (1 - BETA2) * G**2
            squares = squares + G**2
            if optimizer in ("sgd", "heavy-ball"):
                V = np.ones_like(W)
            elif optimizer == "adam":
                V = np.maximum(V_hat, NU_MIN**2)
            elif optimizer == "amsgrad":
                V = np.maximum(np.maximum(V, V_hat), NU_MIN**2)
            else:
                V = squares / t + NU_MIN**2
            for all_of, now in ((self.W, W), (self.G, G), (self.M, M), (self.V, V)):
                all_of.append(now)
            W = W - self.alpha * M / np.sqrt(V)
            for v in batch.block(1).sources.tolist():
                Hbar[v], written[v] = H[v], t
        ages = [T - written[v] for v in range(len(A)) if v in self.train or any(A[u][v] for u in self.train)]
        self.limit = K * math.ceil(len(self.train) / config.batch_size)
        self.largest_age, self.older = max(ages), sum(age > self.limit for age in ages) / len(ages)

    def params(self, W: Vector) -> dict[str, Vector]:
        """The weights by name."""
        parts = np.split(W, np.cumsum([math.prod(shape) for shape in self.shapes.values()])[:-1])
        return {name: part.reshape(shape) for (name, shape), part in zip(self.shapes.items(), parts, strict=True)}

    def exact_H(self, W: Vector) -> Vector:
        return exact_forward(self.params(W), self.P, self.X, K)[0][1]

    def gradient(
        self, W: Vector, P_hats: dict[int, Vector], Hbar: dict[int, Vector], batch: Vector, estimator: str
    ) -> tuple[float, Vector, Vector]:
        """The loss, `H^(1)` and the gradient, without weight decay."""
        loss, grads, H, _ = cv_forward_backward(
            self.params(W), self.P, P_hats, Hbar, self.X, self.y, batch, estimator=estimator
        )
        return loss, H[1], np.concatenate([grads[name].ravel() for name in self.shapes])

    def P_hats(self, batch: Batch) -> dict[int, Vector]:
        block, P_hat = batch.block(1), np.zeros_like(self.P)
        rows = block.sampled.dense(block.sources.numel()).numpy()
        P_hat[np.ix_(block.targets.numpy(), block.sources.numpy())] = rows
        return {1: P_hat}

    def look(self, t: int, W: Vector, Hbar: Vector) -> dict[str, float]:
        """Curvature, and the bias from the draws that are made there: `E[G(xi; Hbar) - G(xi; H)]`, or, with draws that
        are biased themselves, `E[G(xi; Hbar)] - g` without the weight decay's part."""
        total, H = np.zeros_like(W), self.exact_H(W)
        for i in range(DRAWS):
            P_hats = self.P_hats(self.trainer.loader.batch(GRAPH.train_ids, FIRST_STEP + i))
            total += self.gradient(W, P_hats, {1: Hbar}, self.train, "cv")[2]
            total -= self.gradient(W, P_hats, {1: H}, self.train, "exact" if self.biased else "cv")[2]
        model = self.trainer.model
        model.load_state_dict({name: torch.from_numpy(value) for name, value in self.params(W).items()})
        largest = (
            Objective(self.trainer, weight_decay=DECAY).curvature(model, seed=self.trainer.loader.sampler.seed).value
        )
        return {
            "t": t, "F": self.F[-1], "rho": largest, "bias_inf": max(abs(total / DRAWS)), "gradient_inf": max(abs(self.g[-1])),
        }  # fmt: skip

    def seen(self) -> dict[str, float]:
        """What is largest, smallest or summed up."""
        gradients = [*self.g, *self.G]
        steps = [self.alpha / np.sqrt(V) for V in self.V]
        jumps = [now - before for before, now in itertools.pairwise(steps)]
        return {
            "H_F": max(math.sqrt(sum(x * x for x in g)) for g in gradients),
            "H_inf": max(max(abs(x) for x in g) for g in gradients),
            "H_1": max(sum(abs(x) for x in g) for g in gradients),
            "nu": min(math.sqrt(min(V)) for V in self.V),
            "quotient": max(
                np.linalg.norm(self.g[i] - self.g[i - 1]) / np.linalg.norm(self.W[i] - self.W[i - 1])
                for i in range(1, T)
            ),
            "S_1": sum(sum(abs(x) for x in jump) for jump in jumps),
            "S_2": sum(sum(x * x for x in jump) for jump in jumps),
            "left": sum(sum(x * x * s for x, s in zip(g, step, strict=True)) for g, step in zip(self.g, steps, strict=True)),
            "squared": sum(sum(x * x for x in g) for g in self.g),
        }  # fmt: skip


BIASED = {"scheme": "paper", "num_neighbors": (2,), "batch_size": 60}


@pytest.mark.parametrize(("optimizer", "changes"), [*((name, {}) for name in OPTIMIZERS), ("sgd", BIASED)])
def test_everything_that_is_measured(optimizer: str, changes: dict[str, Any]) -> None:
    config = dataclasses.replace(CONFIG, **changes)
    found = diagnose_bound(
        GRAPH, config, optimizers=[optimizer], steps=T, etas={optimizer: ETA}, seeds=SEEDS, points=POINTS, draws=DRAWS
    )
    twins = [Twin(optimizer, seed, config) for seed in range(SEEDS)]
    seen = [twin.seen() for twin in twins]

    def near(number: float) -> Any:
        return pytest.approx(number, rel=1e-10, abs=1e-15)

    for run, twin, of_twin in zip(found.data["runs"], twins, seen, strict=True):
        assert {name: run["seen"][name] for name in of_twin} == {name: near(value) for name, value in of_twin.items()}
        assert run["mean_squared"] == near(of_twin["squared"] / T)
        assert run["first"] == near(twin.F[0])
        assert run["d"] == len(twin.W[0])
        assert (run["age_limit"], run["largest_age"]) == (twin.limit, twin.largest_age)
        assert run["older"] == near(twin.older)
        for point, expected in zip(run["at_points"], twin.at_points, strict=True):
            assert {name: point[name] for name in expected} == {n: near(value) for n, value in expected.items()}

    (r,) = found.data["results"]
    c, points = r["constants"], [point for twin in twins for point in twin.at_points]
    largest = {name: max(each[name] for each in seen) for name in ("H_F", "H_inf", "H_1", "quotient")}
    assert {name: c[name] for name in ("H_F", "H_inf", "H_1")} == {n: near(largest[n]) for n in ("H_F", "H_inf", "H_1")}
    nu, rho, bias = min(each["nu"] for each in seen), max(p["rho"] for p in points), max(p["bias_inf"] for p in points)
    assert (r["rho_quotient"], r["rho_hessian"]) == (near(largest["quotient"]), near(rho))
    assert (c["rho"], c["nu_min"]) == (near(max(rho, largest["quotient"])), near(nu))
    assert c["C"] == near(bias * nu / (ETA / math.sqrt(T) * largest["H_inf"]))
    assert c["C"] > 1e-6
    for name in ("S_1", "S_2"):
        assert r[name] == near(np.mean([each[name] for each in seen]))
        assert (r[name] > 0) == (optimizer not in ("sgd", "heavy-ball"))
    assert r["gap"] == near(np.mean([twin.F[0] for twin in twins]))
    assert r["theorem1_left"] == near(np.mean([each["left"] for each in seen]))
    assert r["rate_left"] == near(np.mean([each["squared"] for each in seen]) / T)
    assert r["largest_age"] == max(twin.largest_age for twin in twins)
    assert r["older"] == near(np.mean([twin.older for twin in twins]))
    assert 0 < r["older"] < 1 or changes
