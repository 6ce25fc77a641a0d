"""The bias of Lemma 6: the two tricks behind its measurement, proven by enumeration of every draw on tiny graphs."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
import torch

from cvgnn.config import TrainConfig, make_config
from cvgnn.diagnose.bias import BiasPlan, bias_draws, measure_bias
from cvgnn.diagnose.bias_vs_lr import diagnose_bias
from cvgnn.diagnose.slopes import log_slope, squared_norm
from cvgnn.diagnose.staleness import readable_rows, steps_to_refresh
from cvgnn.diagnose.subject import fresh_trainer
from cvgnn.diagnose.theory import as_in_theory, prepared, with_optimizer
from cvgnn.errors import CvgnnError
from cvgnn.estimator import ControlVariate
from cvgnn.reference import P_hat, cv_forward_backward, dense_P, exact_forward, neighbor_lists
from cvgnn.training import Trainer
from tests.build import graph_from_dense, random_adjacency
from tests.tiny import PATH, TRIANGLE_WITH_TAIL, WITH_ISOLATED, all_draws, random_params

UNBIASED = ["without-replacement", "with-replacement"]


class Tiny:
    """A network on a tiny graph, with every outcome of its neighbor draws."""

    def __init__(self, A: list[list[float]], K: int, scheme: str, D: int = 1, norm: bool = False) -> None:
        rng = np.random.default_rng(5)
        self.A, self.K, self.n = A, K, len(A)
        self.P, self.X = dense_P(A), rng.normal(size=(self.n, 3))
        self.y = rng.integers(0, 3, size=self.n)
        self.params = random_params(rng, [3, *[4] * (K - 1), 3], norm=norm, bias=True)
        H, _ = exact_forward(self.params, self.P, self.X, K)
        self.H = {k: H[k] for k in range(1, K)}
        self.noise = {k: rng.normal(size=H[k].shape) for k in range(1, K)}
        neighbors = neighbor_lists(A)
        matrices = []
        for draws in itertools.product(*(all_draws(scheme, len(v), D) for v in neighbors)):
            matrices.append(P_hat(self.P, neighbors, range(self.n), scheme, D, dict(enumerate(draws))))
        self.outcomes = [
            dict(zip(range(1, K), each, strict=True)) for each in itertools.product(matrices, repeat=K - 1)
        ]

    def stale(self, size: float) -> dict[int, np.ndarray]:
        return {k: self.H[k] + size * self.noise[k] for k in self.H}

    def G(self, P_hats: dict[int, np.ndarray], Hbar: dict[int, np.ndarray], batch: list[int]) -> np.ndarray:
        _, grads, _, _ = cv_forward_backward(self.params, self.P, P_hats, Hbar, self.X, self.y, batch)
        return np.concatenate([g.ravel() for g in grads.values()])

    def mean(self, Hbar: dict[int, np.ndarray], batch: list[int]) -> np.ndarray:
        return np.mean([self.G(outcome, Hbar, batch) for outcome in self.outcomes], axis=0)

    def exact(self, batch: list[int]) -> np.ndarray:
        _, grads, _, _ = cv_forward_backward(self.params, self.P, {}, self.H, self.X, self.y, batch, estimator="exact")
        return np.concatenate([g.ravel() for g in grads.values()])


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("scheme", UNBIASED)
@pytest.mark.parametrize(("A", "K"), [(PATH, 2), (WITH_ISOLATED, 2), (TRIANGLE_WITH_TAIL, 2), (PATH, 3)])
def test_with_exact_histories_the_gradient_is_unbiased(A: list[list[float]], K: int, scheme: str, norm: bool) -> None:
    """Trick 2: so `grad F` may be replaced by `G(xi; H)` with the same draws."""
    tiny = Tiny(A, K, scheme, norm=norm)
    nodes = list(range(tiny.n))
    assert np.abs(tiny.mean(tiny.H, nodes) - tiny.exact(nodes)).max() < 1e-10
    assert np.abs(tiny.mean(tiny.stale(0.1), nodes) - tiny.exact(nodes)).max() > 1e-5


@pytest.mark.parametrize("scheme", ["paper", "released"])
def test_the_biased_schemes_may_not_use_it(scheme: str) -> None:
    tiny = Tiny(PATH, 2, scheme, D=2)
    nodes = list(range(tiny.n))
    assert np.abs(tiny.mean(tiny.H, nodes) - tiny.exact(nodes)).max() > 1e-3


@pytest.mark.parametrize("K", [2, 3])
def test_the_mean_over_batches_is_the_gradient_of_all_training_nodes(K: int) -> None:
    """Trick 1, for batches of two drawn with replacement, and stale histories."""
    tiny, train = Tiny(PATH, K, "without-replacement"), [0, 1, 3]
    Hbar = tiny.stale(0.3)
    by_batches = np.mean([tiny.mean(Hbar, list(pair)) for pair in itertools.product(train, repeat=2)], axis=0)
    assert np.abs(by_batches - tiny.mean(Hbar, train)).max() < 1e-10


def test_orders_of_the_layers() -> None:
    """The last layer's bias is of second order in `H - Hbar`, the other's of first: exactly, by enumeration."""
    tiny, sizes = Tiny(TRIANGLE_WITH_TAIL, 2, "without-replacement"), [1e-3, 1e-2]
    nodes, first = list(range(tiny.n)), 3 * 4 + 4  # entries of layer 0
    biases = [tiny.mean(tiny.stale(size), nodes) - tiny.exact(nodes) for size in sizes]
    assert log_slope(sizes, [np.linalg.norm(b[:first]) for b in biases]) == pytest.approx(1.0, abs=0.02)
    assert log_slope(sizes, [np.linalg.norm(b[first:]) for b in biases]) == pytest.approx(2.0, abs=0.02)


def trainer_like(tiny: Tiny, scheme: str, size: float) -> Trainer:
    """The fast code's trainer with the same weights, features and histories."""
    graph = dataclasses.replace(graph_from_dense(tiny.A), x=torch.from_numpy(tiny.X), y=torch.from_numpy(tiny.y))
    config = make_config(
        hidden=4, layers=tiny.K, num_neighbors=1, scheme=scheme, norm="none", dropout=0.0, batches="replacement"
    )
    trainer = fresh_trainer(graph, config)
    trainer.model.load_state_dict({name: torch.from_numpy(W) for name, W in tiny.params.items()})
    assert isinstance(trainer.estimator, ControlVariate)
    trainer.estimator.initialize([torch.from_numpy(H) for H in tiny.stale(size).values()])
    return trainer


@pytest.mark.parametrize("scheme", UNBIASED)
@pytest.mark.parametrize(("A", "K"), [(PATH, 2), (PATH, 3), (TRIANGLE_WITH_TAIL, 2)])
def test_the_measured_bias_is_that_of_enumeration(A: list[list[float]], K: int, scheme: str) -> None:
    """Every outcome that the sampler draws, taken once, gives the enumerated bias to 1e-10."""
    tiny = Tiny(A, K, scheme)
    trainer = trainer_like(tiny, scheme, 0.2)
    ids = trainer.loader.train_ids
    full = torch.from_numpy(tiny.exact(ids.tolist()))
    found = list(bias_draws(trainer, ids, torch.from_numpy(tiny.y), full, draws=150 if K == 2 else 400))
    expected = [tiny.G(o, tiny.stale(0.2), ids.tolist()) - tiny.G(o, tiny.H, ids.tolist()) for o in tiny.outcomes]
    distance = np.abs(np.array([f.numpy() for f in found])[:, None] - np.array(expected)[None]).max(axis=2)
    assert distance.min(axis=1).max() < 1e-10  # each draw is one of the outcomes
    assert distance.min(axis=0).max() < 1e-10  # and each outcome was drawn
    once = np.mean([found[int(i)].numpy() for i in distance.argmin(axis=0)], axis=0)
    bias = tiny.mean(tiny.stale(0.2), ids.tolist()) - full.numpy()
    assert np.abs(once - bias).max() < 1e-10
    assert np.abs(bias).max() > 1e-4


@pytest.mark.parametrize(("A", "K"), [(PATH, 2), (TRIANGLE_WITH_TAIL, 2), (PATH, 3)])
def test_the_noise_that_is_subtracted_has_expectation_zero(A: list[list[float]], K: int) -> None:
    """Trick 3: the first-order term of the last layer's gradient, over all draws."""
    tiny, step = Tiny(A, K, "without-replacement"), 1e-6
    nodes, last = list(range(tiny.n)), slice(-(4 * 3 + 3), None)
    there, back = tiny.stale(step), tiny.stale(-step)
    terms = [(tiny.G(o, there, nodes) - tiny.G(o, back, nodes))[last] / (2 * step) for o in tiny.outcomes]
    assert np.abs(terms).max() > 1e-2
    assert np.abs(np.mean(terms, axis=0)).max() < 1e-8


def test_subtracting_it_leaves_the_bias_and_takes_the_noise() -> None:
    tiny = Tiny(PATH, 2, "without-replacement")
    trainer = trainer_like(tiny, "without-replacement", 0.01)
    ids, y = trainer.loader.train_ids, torch.from_numpy(tiny.y)
    full = torch.from_numpy(tiny.exact(ids.tolist()))
    plain, quiet = (torch.stack(list(bias_draws(trainer, ids, y, full, draws=100, quiet=q))) for q in (False, True))
    first = 3 * 4 + 4
    assert torch.equal(plain[:, :first], quiet[:, :first])
    assert quiet[:, first:].std(dim=0).max() < 0.05 * plain[:, first:].std(dim=0).max()
    bias = torch.from_numpy(tiny.mean(tiny.stale(0.01), ids.tolist())) - full
    assert (quiet.mean(dim=0) - bias)[first:].abs().max() < 0.3 * bias[first:].abs().max()


def test_measuring_changes_nothing_and_draws_can_go_on() -> None:
    tiny = Tiny(PATH, 2, "without-replacement")
    trainer = trainer_like(tiny, "without-replacement", 0.2)
    before = {n: t.clone() for n, t in trainer.estimator.state_dict().items()}
    ids, y = trainer.loader.train_ids, torch.from_numpy(tiny.y)
    zero = torch.zeros(sum(p.numel() for p in trainer.model.parameters()), dtype=torch.float64)
    four = list(bias_draws(trainer, ids, y, zero, draws=4))
    later = list(bias_draws(trainer, ids, y, zero, draws=2, first=2))
    assert torch.equal(torch.stack(four[2:]), torch.stack(later))
    assert all(torch.equal(t, trainer.estimator.state_dict()[n]) for n, t in before.items())


def test_readable_rows_and_the_steps_that_refresh_them() -> None:
    graph = graph_from_dense(PATH)  # training nodes 0 and 2
    trainer = fresh_trainer(graph, make_config(layers=3, hidden=4, batch_size=1, num_neighbors=1, norm="none"))
    deep, near = readable_rows(trainer)
    assert near.tolist() == [True, True, True, True]
    assert deep.tolist() == [True, True, True, True]
    steps, reached = steps_to_refresh(trainer, share=1.0, most=500)
    assert 2 <= steps < 500
    assert reached == 1.0
    assert steps_to_refresh(trainer, share=2.0, most=7)[0] == 7


def small(**options: object) -> TrainConfig:
    return as_in_theory(make_config(hidden=4, batch_size=2, num_neighbors=1, norm="none", **options))


def test_the_bias_grows_linearly_on_a_small_graph() -> None:
    """The whole diagnosis."""
    graph = graph_from_dense(random_adjacency(40, mean_degree=6, weighted=False, seed=1))
    options = {"lrs": (1e-4, 1e-3), "seeds": 2, "draws": 80, "steps": 12, "burn_in": 1}
    one = diagnose_bias(graph, small(), **options)  # type: ignore[arg-type]
    assert one.kind == "bias-vs-lr"
    assert one.settings["steps"] == 12
    assert [part["name"] for part in one.data["parts"]] == ["layer 0", "layer 1", "all"]
    assert one.data["parts"][0]["slope_linear"]["value"] == pytest.approx(1.0, abs=0.05)
    assert "Lemma 6" in one.verdict
    one.to_json()
    plan = BiasPlan(lrs=(1e-3,), optimizer="sgd", burn_in=1, steps=12, draws=80)
    (sample,) = measure_bias((graph, small(), plan), 0)
    squares = [float(squared_norm(gram)[0]) for gram in sample.gram]
    assert squares[2] == pytest.approx(squares[0] + squares[1])
    assert squares == next(s["squared"] for s in one.data["samples"] if s["lr"] == 1e-3 and s["seed"] == 0)


def test_a_diagnosis_is_a_function_of_its_seeds() -> None:
    graph, options = graph_from_dense(PATH), {"lrs": (1e-3, 1e-2), "draws": 4, "steps": 2, "burn_in": 1}
    one, two = (diagnose_bias(graph, small(), seeds=2, **options) for _ in range(2))  # type: ignore[arg-type]
    assert one == two
    other = diagnose_bias(graph, small(seed=2), seeds=2, **options)  # type: ignore[arg-type]
    assert other.data["samples"] != one.data["samples"]


def test_the_released_scheme_is_biased_at_any_learning_rate() -> None:
    graph = graph_from_dense(TRIANGLE_WITH_TAIL)
    config = small(scheme="released")
    found = diagnose_bias(graph, config, lrs=(1e-5, 1e-4), seeds=2, draws=60, steps=4, burn_in=1)
    assert found.data["parts"][2]["slope_linear"]["value"] == pytest.approx(0.0, abs=0.05)
    assert "Lemma 6 does not cover the scheme released, which is biased whatever the learning rate" in found.verdict
    assert "disagrees" not in found.verdict
    assert [row[1] for row in found.tables[0].rows] == ["0", "0", "0"]
    assert [line.name for line in found.figures[0].lines if line.reference] == ["slope 0"]


def test_gradients_that_are_zero() -> None:
    graph = graph_from_dense(PATH)
    graph = dataclasses.replace(graph, y=graph.y.clamp(max=0), num_classes=1)
    found = diagnose_bias(graph, small(weight_decay=0.0), lrs=(1e-3, 1e-2), seeds=2, draws=4, steps=2, burn_in=1)
    assert "not told from noise" in found.verdict
    found.to_json()


def test_options_of_another_optimizer_are_left_out() -> None:
    adam = make_config(optimizer="adam", form="paper", beta1=0.5, beta2=0.9, nu_min=1e-3)
    assert with_optimizer(adam, "adam", 0.1).beta2 == 0.9
    sgd = with_optimizer(adam, "sgd", 0.1)
    assert (sgd.form, sgd.beta1, sgd.beta2, sgd.nu_min, sgd.lr) == ("paper", None, None, None, 0.1)
    adagrad = with_optimizer(adam, "adagrad", 0.1)
    assert (adagrad.beta1, adagrad.beta2, adagrad.nu_min) == (0.5, None, 1e-3)
    amsgrad = with_optimizer(dataclasses.replace(adam, form="torch"), "amsgrad", 0.1)
    assert (amsgrad.form, amsgrad.beta1, amsgrad.beta2) == ("paper", 0.5, 0.9)


@pytest.mark.parametrize("feature_norm", ["none", "row"])
@pytest.mark.parametrize("normalization", ["symmetric", "random-walk"])
def test_a_prepared_graph_gives_the_same_rows(feature_norm: str, normalization: str) -> None:
    graph, config = graph_from_dense(PATH), small(feature_norm=feature_norm, normalization=normalization)
    sources = [fresh_trainer(g, config).estimator.features.span(0, 4) for g in (graph, prepared(graph, config))]
    assert isinstance(sources[0], torch.Tensor)
    assert isinstance(sources[1], torch.Tensor)
    assert torch.equal(*sources)


@pytest.mark.parametrize(
    ("options", "config", "sentence"),
    [
        ({}, {"estimator": "exact"}, "has no bias; choose cv or ns"),
        ({}, {"layers": 1}, "samples nothing"),
        ({"optimizer": "sdg"}, {}, r"unknown optimizer 'sdg'.*did you mean 'sgd'"),
        ({"lrs": (0.1, 0.1)}, {}, "in increasing order"),
        ({"lrs": (-0.1, 0.1)}, {}, "lr must be a number above 0"),
        ({"seeds": 0}, {}, "seeds must be a whole number of at least 1"),
        ({"draws": 2}, {}, "draws must be a whole number of at least 4"),
        ({"steps": 0}, {}, "steps must be a whole number of at least 1"),
    ],
)
def test_refused(options: dict[str, object], config: dict[str, object], sentence: str) -> None:
    with pytest.raises(CvgnnError, match=sentence):
        diagnose_bias(graph_from_dense(PATH), small(**config), **options)  # type: ignore[arg-type]


def test_a_learning_rate_that_diverges_ends_the_range() -> None:
    graph = graph_from_dense(random_adjacency(20, mean_degree=5, weighted=False, seed=3))
    lrs = (1e-4, 1e-3, 1e200)
    found = diagnose_bias(graph, small(), lrs=lrs, seeds=2, draws=8, steps=20)
    alone = diagnose_bias(graph, small(), lrs=lrs[:2], seeds=2, draws=8, steps=20)
    assert found.data == alone.data
    assert found.settings["diverged"] == [1e200]
    assert found.verdict.endswith("Training diverged with lr = 1e+200: from there on nothing is measured.")
    with pytest.raises(CvgnnError, match=r"training diverged with lr = 1e\+200, so no two learning rates are left"):
        diagnose_bias(graph, small(), lrs=(1e-3, 1e200), seeds=1, draws=8, steps=20)
