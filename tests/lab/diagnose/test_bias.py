"""The bias of Lemma 6: the two tricks behind its measurement, proven by enumeration of every draw on tiny graphs."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
import torch

from cvgnn.config import TrainConfig
from cvgnn.errors import CvgnnError
from cvgnn.lab.diagnose import Diagnosis, bias_vs_lr
from cvgnn.lab.diagnose.bias import (
    STEP,
    BiasPlan,
    BiasSample,
    _largest,
    bias_draws,
    check_draws,
    measure_bias,
    sample_bias,
)
from cvgnn.lab.diagnose.bias_vs_lr import _diagnosis, _judged, diagnose_bias
from cvgnn.lab.diagnose.estimates import Estimate, log_slope, squared_norm
from cvgnn.lab.diagnose.theory import as_in_theory, prepared, with_optimizer
from cvgnn.lab.diagnose.trainers import fresh_trainer, readable_rows, steps_to_refresh
from cvgnn.nn import ControlVariate
from cvgnn.reference import P_hat, cv_forward_backward, dense_P, exact_forward, neighbor_lists
from cvgnn.training import Trainer
from tests.build import graph_from_dense, random_adjacency
from tests.tiny import PATH, TRIANGLE_WITH_TAIL, WITH_ISOLATED, all_draws, random_params

UNBIASED = ["without-replacement", "with-replacement"]


@pytest.fixture(autouse=True)
def fewer_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Intervals are rougher, and there much sooner."""
    monkeypatch.setattr(bias_vs_lr, "RESAMPLES", 300)


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
    config = TrainConfig(
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
    found = list(bias_draws(trainer, full, draws=150 if K == 2 else 400))
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


@pytest.mark.parametrize(("A", "K"), [(PATH, 2), (TRIANGLE_WITH_TAIL, 2)])
def test_the_bias_without_that_noise_is_that_of_enumeration(A: list[list[float]], K: int) -> None:
    """As `diagnose bias-vs-lr` measures it: every outcome with its central difference, to 1e-10."""
    tiny, size = Tiny(A, K, "without-replacement"), 0.2
    trainer = trainer_like(tiny, "without-replacement", size)
    ids, last = trainer.loader.train_ids, slice(-(4 * 3 + 3), None)
    nodes, expected = ids.tolist(), []
    for o in tiny.outcomes:
        G = tiny.G(o, tiny.stale(size), nodes) - tiny.G(o, tiny.H, nodes)
        there, back = (tiny.G(o, tiny.stale(sign * STEP * size), nodes) for sign in (1, -1))
        G[last] -= (there - back)[last] / (2 * STEP)
        expected.append(G)
    full = torch.from_numpy(tiny.exact(nodes))
    found = list(bias_draws(trainer, full, draws=150, subtract_noise=True))
    distance = np.abs(np.array([f.numpy() for f in found])[:, None] - np.array(expected)[None]).max(axis=2)
    assert distance.min(axis=1).max() < 1e-10  # each draw is one of the outcomes
    assert distance.min(axis=0).max() < 1e-10  # and each outcome was drawn
    bias = tiny.mean(tiny.stale(size), nodes) - full.numpy()
    off = np.mean(expected, axis=0) - bias
    assert np.abs(off[: last.start]).max() < 1e-10
    assert (
        np.abs(off).max() < 1e-4 * np.abs(bias[last]).max()
    )  # the difference's own error, of third order times STEP^2


def test_subtracting_it_leaves_the_bias_and_takes_the_noise() -> None:
    tiny = Tiny(PATH, 2, "without-replacement")
    trainer = trainer_like(tiny, "without-replacement", 0.01)
    ids = trainer.loader.train_ids
    full = torch.from_numpy(tiny.exact(ids.tolist()))
    plain, quiet = (torch.stack(list(bias_draws(trainer, full, draws=100, subtract_noise=q))) for q in (False, True))
    first = 3 * 4 + 4
    assert torch.equal(plain[:, :first], quiet[:, :first])
    assert quiet[:, first:].std(dim=0).max() < 0.05 * plain[:, first:].std(dim=0).max()
    bias = torch.from_numpy(tiny.mean(tiny.stale(0.01), ids.tolist())) - full
    assert (quiet.mean(dim=0) - bias)[first:].abs().max() < 0.3 * bias[first:].abs().max()


@pytest.mark.parametrize("K", [2, 3])
def test_a_sample_of_given_histories(K: int) -> None:
    """Errors and ages of histories that were made by hand; norms of gradients; the largest entry of the bias."""
    tiny = Tiny(PATH, K, "without-replacement")
    trainer = trainer_like(tiny, "without-replacement", 0.2)
    assert isinstance(trainer.estimator, ControlVariate)
    trainer.iterations = 7
    trainer.estimator.histories[0].written[:] = torch.tensor([1, 2, 3, 7])
    graph = dataclasses.replace(graph_from_dense(PATH), y=torch.from_numpy(tiny.y))
    full = torch.from_numpy(tiny.exact(graph.train_ids.tolist()))
    found = sample_bias(trainer, 200 if K == 2 else 4, 3 * full, full)
    off = np.concatenate([0.2 * tiny.noise[k] for k in range(1, K)])  # training reads all rows of this graph
    assert found["history_error"] == pytest.approx(np.sqrt(np.mean(off**2)), rel=1e-12)
    assert found["mean_age"] == pytest.approx((6 + 5 + 4 + 0 + (K - 2) * 4 * 7) / (4 * (K - 1)))
    assert found["largest_age"] == (6 if K == 2 else 7)
    assert found["gradient"][-1] == pytest.approx(float(full.norm()))
    assert found["gradient_before"][-1] == pytest.approx(3 * float(full.norm()))
    if K == 2:
        bias = tiny.mean(tiny.stale(0.2), graph.train_ids.tolist()) - full.numpy()
        assert found["largest"][-1] == pytest.approx(np.abs(bias).max(), rel=0.2)


def test_the_largest_entry_is_chosen_by_one_half_and_told_by_the_other() -> None:
    one, other = torch.tensor([1.0, -3.0, 0.0]), torch.tensor([4.0, -2.0, 0.0])
    assert _largest(one, other) == (2.0 + 1.0) / 2
    assert _largest(torch.tensor([1.0, -3.0]), torch.tensor([-2.0, 1.0])) == 0.0  # nothing but noise


def test_measuring_changes_nothing_and_draws_repeat() -> None:
    tiny = Tiny(PATH, 2, "without-replacement")
    trainer = trainer_like(tiny, "without-replacement", 0.2)
    before = {n: t.clone() for n, t in trainer.estimator.state_dict().items()}
    zero = torch.zeros(sum(p.numel() for p in trainer.model.parameters()), dtype=torch.float64)
    four = list(bias_draws(trainer, zero, draws=4))
    two = list(bias_draws(trainer, zero, draws=2))
    assert torch.equal(torch.stack(four[:2]), torch.stack(two))
    assert not torch.equal(four[0], four[2])
    assert all(torch.equal(t, trainer.estimator.state_dict()[n]) for n, t in before.items())


def test_readable_rows_and_the_steps_that_refresh_them() -> None:
    graph = graph_from_dense(PATH)  # training nodes 0 and 2
    trainer = fresh_trainer(graph, TrainConfig(layers=3, hidden=4, batch_size=1, num_neighbors=1, norm="none"))
    deep, near = readable_rows(trainer)
    assert near.tolist() == [True, True, True, True]
    assert deep.tolist() == [True, True, True, True]
    steps, reached = steps_to_refresh(trainer, share=1.0, most=500)
    assert 2 <= steps < 500
    assert reached == 1.0
    assert steps_to_refresh(trainer, share=2.0, most=7)[0] == 7


def small(**options: object) -> TrainConfig:
    return as_in_theory(TrainConfig(**{"hidden": 4, "batch_size": 2, "num_neighbors": 1, "norm": "none", **options}))


def test_the_bias_grows_linearly_on_a_small_graph() -> None:
    """The whole diagnosis."""
    graph = graph_from_dense(random_adjacency(40, mean_degree=6, weighted=False, seed=1))
    options = {"lrs": (1e-4, 1e-3), "seeds": 2, "draws": 80, "steps": 12, "burn_in": 1}
    one = diagnose_bias(graph, small(), **options)  # type: ignore[arg-type]
    assert one.kind == "bias-vs-lr"
    assert one.settings["steps"] == 12
    assert [part["name"] for part in one.data["parts"]] == ["layer 0", "layer 1", "all"]
    assert one.data["parts"][0]["slope_linear"]["value"] == pytest.approx(1.0, abs=0.05)
    assert "2 seeds give no interval, so this is not judged beside Lemma 6's order, 1" in one.verdict
    assert "2 seeds give no interval. Points" in one.tables[0].caption
    assert {row[3] for row in one.tables[1].rows} == {"-"}
    assert [line.low for line in one.figures[0].lines] == [()] * 5
    assert "interval" not in one.figures[0].caption
    one.to_json()
    plan = BiasPlan(lrs=(1e-3,), optimizer="sgd", burn_in=1, steps=12, draws=80)
    (sample,) = measure_bias((graph, small(), plan), 0)
    squares = [float(squared_norm(gram)[0]) for gram in sample["gram"]]
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
    assert [line.name for line in found.figures[0].lines if line.reference] == ["slope 1", "slope 0"]


def test_without_the_control_variate() -> None:
    found = diagnose_bias(graph_from_dense(TRIANGLE_WITH_TAIL), small(estimator="ns", lr=0.1), lrs=(1e-5, 1e-4), seeds=2, draws=60, steps=2, burn_in=20)  # fmt: skip
    assert found.data["parts"][2]["slope_linear"]["value"] == pytest.approx(0.0, abs=0.05)
    assert "Lemma 6 does not cover the estimator ns, which is biased whatever the learning rate" in found.verdict
    assert "disagrees" not in found.verdict
    assert {sample["history_error"] for sample in found.data["samples"]} == {0.0}


def samples_of(norms: list[list[float]], change: list[float]) -> list[list[BiasSample]]:
    """Seeds whose draws do not vary: the bias has these norms, `[seeds, lrs]`, and steps change `||grad F||` so."""
    three = np.ones(3)
    return [
        [
            {
                "lr": 10.0 ** (j - 4), "seed": i, "gram": np.full((3, 4, 4), norm**2), "largest": norm * three,
                "gradient": (1 + change[j]) * three, "gradient_before": three,
                "mean_age": 1.0, "largest_age": 2, "history_error": 0.1,
            }
            for j, norm in enumerate(row)
        ]
        for i, row in enumerate(norms)
    ]  # fmt: skip


def diagnosed(norms: list[list[float]], change: list[float]) -> Diagnosis:
    plan = BiasPlan(
        lrs=tuple(10.0 ** (j - 4) for j in range(len(change))), optimizer="sgd", burn_in=0, steps=5, draws=4
    )
    return _diagnosis(graph_from_dense(PATH), small(), plan, samples_of(norms, change), 1.0)


def test_seeds_are_resampled() -> None:
    """Draws that do not vary leave intervals to the seeds."""
    apart = diagnosed([[1e-4, 1e-3], [2e-4, 1e-3], [1e-4, 3e-3]], [0.0, 0.0]).data["parts"][-1]
    alike = diagnosed([[1e-4, 1e-3]] * 3, [0.0, 0.0]).data["parts"][-1]
    assert apart["slope_linear"]["low"] < apart["slope_linear"]["value"] - 0.1
    assert apart["norms"][0]["high"] > 1.3 * apart["norms"][0]["value"]
    assert alike["slope_linear"]["low"] == pytest.approx(alike["slope_linear"]["high"], abs=1e-9)


def test_the_linear_range_ends_where_the_gradient_has_changed() -> None:
    found = diagnosed([[1e-4, 1e-3, 2e-3, 2e-3]] * 3, [0.01, -0.09, 0.11, 0.05])
    assert found.data["linear"] == [True, True, False, False]  # it does not begin anew
    assert found.data["parts"][-1]["slope_linear"]["value"] == pytest.approx(1.0)
    assert found.data["parts"][-1]["slope_all"]["value"] < 0.5
    assert "In the linear range (lr <= 0.001) the bias grows like lr^1.000" in found.verdict


@pytest.mark.parametrize(
    ("value", "bend", "words"),
    [
        (0.98, -0.8, "does not hold 1: the bend towards large learning rates starts here"),
        (1.02, 0.8, "does not hold 1: the bend towards large learning rates starts here"),
        (0.98, 0.8, "does not hold 1"),
        (1.02, -0.8, "does not hold 1"),
        (1.02, float("nan"), "does not hold 1"),
        (1.5, 0.0, "steeper than Lemma 6's order 1"),
        (0.5, 0.0, "this disagrees with Lemma 6"),
    ],
)
def test_a_bend_explains_what_goes_its_way(value: float, bend: float, words: str) -> None:
    told = _judged(Estimate(value=value, low=value - 0.01, high=value + 0.01), bend)
    assert words in told
    assert ("bend" in told) == ("bend" in words)


@pytest.mark.parametrize(
    ("A", "config", "most"),
    [
        (PATH, {"num_neighbors": 2}, 2),
        (PATH, {"num_neighbors": -1, "scheme": "paper"}, 2),
        (TRIANGLE_WITH_TAIL, {"num_neighbors": [3, 3], "layers": 3}, 3),
        ([[0.0, 0.0], [0.0, 0.0]], {}, 0),
    ],
)
def test_all_neighbors_have_no_bias(A: list[list[float]], config: dict[str, object], most: int) -> None:
    with pytest.raises(
        CvgnnError, match=rf"num_neighbors includes all .* has at most {most} there\), so there is no bias"
    ):
        diagnose_bias(graph_from_dense(A), small(**config), lrs=(1e-3, 1e-2), seeds=1)


@pytest.mark.parametrize("config", [{"num_neighbors": [3, 2], "layers": 3}, {"num_neighbors": 3, "scheme": "paper"}])
def test_some_neighbors_may_have_one(config: dict[str, object]) -> None:
    check_draws(fresh_trainer(graph_from_dense(TRIANGLE_WITH_TAIL), small(**config)))


def test_neighbors_count_where_they_are_drawn() -> None:
    """Node 1 has four neighbors and is no training node: a third layer draws among them, a second one does not."""
    graph = graph_from_dense([[0, 1, 0, 0, 0], [1, 0, 1, 1, 1], [0, 1, 0, 0, 0], [0, 1, 0, 0, 0], [0, 1, 0, 0, 0]])
    check_draws(fresh_trainer(graph, small(layers=3)))
    with pytest.raises(CvgnnError, match="a node has at most 1 there"):
        check_draws(fresh_trainer(graph, small(layers=2)))


def test_a_point_that_noise_hides_is_left_out() -> None:
    clear = samples_of([[1e-4, 1e-3, 1e-2]] * 3, [0.0] * 3)
    noisy = np.outer([2.0, 2.0, 2.0, -1.9], [2.0, 2.0, 2.0, -1.9])  # above 0 on average, and below in many resamples
    hidden = [[s | {"gram": np.stack([noisy] * 3)} if s["lr"] < 2e-4 else s for s in seed] for seed in clear]
    plan = BiasPlan(lrs=(1e-4, 1e-3, 1e-2), optimizer="sgd", burn_in=0, steps=5, draws=4)
    found = _diagnosis(graph_from_dense(PATH), small(), plan, hidden, 1.0)
    assert found.data["parts"][-1]["slope_linear"]["value"] == pytest.approx(1.0)
    assert list(found.figures[0].lines[0].x) == [1e-3, 1e-2]


def test_slope_1_is_always_drawn() -> None:
    zero = diagnosed([[0.0, 0.0]] * 3, [0.0, 0.0])
    assert [(line.name, line.reference) for line in zero.figures[0].lines] == [("slope 1", True)]
    assert zero.verdict == "The bias is exactly 0 with every learning rate: no draw has changed the gradient."


def test_gradients_that_are_zero() -> None:
    graph = graph_from_dense(PATH)
    graph = dataclasses.replace(graph, y=graph.y.clamp(max=0), num_classes=1)
    found = diagnose_bias(graph, small(weight_decay=0.0), lrs=(1e-3, 1e-2), seeds=2, draws=4, steps=2, burn_in=1)
    assert "The bias is exactly 0 with every learning rate" in found.verdict
    found.to_json()


def test_options_of_another_optimizer_are_left_out() -> None:
    adam = TrainConfig(optimizer="adam", form="paper", beta1=0.5, beta2=0.9, nu_min=1e-3)
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
        ({"draws": 20_000}, {}, "draws must be at most 10000, not 20000"),
        ({"seeds": 2_000}, {}, "seeds must be at most 1000, not 2000"),
        ({"steps": 10_000_000}, {}, "steps must be at most 1000000"),
        ({"burn_in": 10_000_000}, {}, "burn_in must be at most 1000000"),
        ({"lrs": tuple(range(1, 200))}, {}, r"lrs must be two to 100 learning rates in increasing order, not \[1, 2"),
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
