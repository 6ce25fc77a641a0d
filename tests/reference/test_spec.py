"""Every network of the family against dense torch autograd over all nodes, written without receptive fields."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from cvgnn.errors import CvgnnError
from cvgnn.reference import (
    P_hat,
    ReferenceTrainer,
    Spec,
    batch_statistics,
    cv_forward_backward,
    dense_P,
    exact_forward,
    neighbor_lists,
    receptive_fields,
)
from cvgnn.reference.gcn import num_layers
from cvgnn.reference.propagation_matrix import Array
from tests.tiny import PATH, WEIGHTED, random_draws

WIDTH, CLASSES, N = 4, 3, 6
# kinds, and the normalization that goes with them
NETWORKS = {
    "gcn": (("gcn", "gcn", "gcn"), "symmetric"),
    "sage": (("sage", "sage", "sage"), "mean"),
    "gin": (("gin", "gin", "gin"), "sum"),
    "gcnii": (("linear", "gcnii", "gcnii"), "symmetric"),
    "mixed": (("linear", "sage", "gin", "gcnii", "gcn"), "random-walk"),
}
NORMS, ACTIVATIONS, HEADS = ("none", "layer", "batch"), ("relu", "elu", "gelu"), (None, "last", "concat")


def make_params(rng, spec: Spec, head: bool, residual: bool, bias: bool) -> dict[str, Array]:
    """Random parameters; layer 0 reads 3 features, and the last layer gives the classes unless a head or GCNII does."""
    params, K = {}, len(spec.kinds)
    for k, kind in enumerate(spec.kinds):
        d_in = 3 if k == 0 else WIDTH
        d_out = WIDTH if head or k < K - 1 or kind == "gcnii" else CLASSES
        shapes = {"weight": (d_in, WIDTH if kind == "gin" else d_out)}
        if bias and kind != "gcnii":
            shapes["bias"] = shapes["weight"][1:]
        if kind == "sage":
            shapes["own_weight"] = (d_in, d_out)
        if kind == "gin":
            shapes |= {"eps": (1,), "out_weight": (WIDTH, d_out), "out_bias": (d_out,)}
        if residual and kind != "linear":
            shapes["residual_weight"] = (d_in, d_out)
        if spec.norm != "none" and (head or k < K - 1):
            shapes |= {"norm.weight": (d_out,), "norm.bias": (d_out,)}
        params |= {f"layers.{k}.{name}": rng.normal(size=shape) for name, shape in shapes.items()}
    if head:
        read = K - (spec.kinds[0] == "linear") if spec.jk == "concat" else 1
        params["head.weight"] = rng.normal(size=(read * WIDTH, CLASSES))
        if bias:
            params["head.bias"] = rng.normal(size=CLASSES)
    return params


def make_arguments(rng, spec: Spec, A=WEIGHTED, normalization="symmetric", *, D=1, **options):
    """The arguments of `cv_forward_backward`: random draws, stale histories, every mask, any statistics."""
    options = {"head": True, "residual": True, "bias": True, **options}
    K, N = len(spec.kinds), len(A)
    params = make_params(rng, spec, **options)
    P, neighbors, scheme = dense_P(A, normalization), neighbor_lists(A), "without-replacement"

    def mask(width: int) -> Array:
        return (rng.random((N, width)) < 0.7) / 0.7

    return {
        "params": params,
        "P": P,
        "P_hats": {
            k: P_hat(P, neighbors, range(N), scheme, D, lambda v: random_draws(rng, scheme, len(neighbors[v]), D))
            for k in range(1, K)
        },
        "Hbar": {k: rng.normal(size=(N, WIDTH)) for k in range(1, K)},
        "X": rng.normal(size=(N, 3)),
        "y": rng.integers(CLASSES, size=N),
        "batch": [0, 3, 0],
        "masks": {"x": mask(3), 0: mask(3), **{k: mask(WIDTH) for k in range(1, K + 1)}},
        "statistics": {k: (rng.normal(size=WIDTH), rng.random(WIDTH) + 0.1) for k in range(K)},
        "spec": spec,
    }


def torch_twin(a, estimator: str) -> tuple[float, dict[str, Array], list[Array]]:
    """Loss, gradients and [Z or H of every layer, logits] over all nodes, by autograd."""
    spec, K = a["spec"], len(a["spec"].kinds)
    w = {name: torch.tensor(value, requires_grad=True) for name, value in a["params"].items()}
    P, X = torch.tensor(a["P"]), torch.tensor(a["X"])
    m = {k: torch.tensor(mask) for k, mask in a["masks"].items()}
    act = {"relu": F.relu, "elu": F.elu, "gelu": F.gelu}[spec.activation]
    head, H, dropped, outputs, gcnii = "head.weight" in w, X, [m["x"] * X], [], 0
    for k, kind in enumerate(spec.kinds):
        own = dropped[k]
        if k == 0:
            agg = m[0] * (P @ X)
        elif estimator == "exact":
            agg = P @ own
        else:
            P_hat, Hbar = torch.tensor(a["P_hats"][k]), torch.tensor(a["Hbar"][k])
            agg = P_hat @ own + ((P - P_hat) @ Hbar if estimator == "cv" else 0)

        def get(name: str, k: int = k):
            return w.get(f"layers.{k}.{name}", torch.zeros(1))

        W, b = get("weight"), get("bias")
        if kind == "linear":
            Z = own @ W + b
        elif kind == "gcn":
            Z = agg @ W + b
        elif kind == "sage":
            Z = torch.cat([agg, own], 1) @ torch.cat([W, get("own_weight")]) + b
        elif kind == "gin":
            Z = act((agg + own + get("eps") * own) @ W + b) @ get("out_weight") + get("out_bias")
        else:
            gcnii += 1
            beta = math.log(spec.theta / gcnii + 1)
            S = (1 - spec.alpha) * agg + spec.alpha * dropped[1]
            Z = (1 - beta) * S + beta * (S @ W)
        if f"layers.{k}.residual_weight" in w:
            Z = Z + own @ get("residual_weight")
        if k == K - 1 and not head:
            logits = Z
            outputs.append(Z)
            break
        if spec.norm == "layer":
            Z = F.layer_norm(Z, Z.shape[1:], get("norm.weight"), get("norm.bias"))
        elif spec.norm == "batch":
            mean, var = map(torch.tensor, a["statistics"][k])
            Z = F.batch_norm(Z, mean, var, get("norm.weight"), get("norm.bias"))
        H = act(Z)
        outputs.append(H)
        dropped.append(m[k + 1] * H)
    if head:
        convolutions = dropped[2 if spec.kinds[0] == "linear" else 1 :]
        J = torch.cat(convolutions, 1) if spec.jk == "concat" else dropped[-1]
        logits = J @ w["head.weight"] + w.get("head.bias", torch.zeros(1))
        outputs.append(logits)
    loss = F.cross_entropy(logits[a["batch"]], torch.tensor(a["y"])[a["batch"]])
    loss.backward()
    return loss.item(), {name: t.grad.numpy() for name, t in w.items()}, [o.detach().numpy() for o in outputs]


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("network", NETWORKS)
def test_forward_and_gradient_are_torchs(network: str, norm: str, activation: str, head: str | None) -> None:
    kinds, normalization = NETWORKS[network]
    spec = Spec(kinds, norm, activation, head or "last", alpha=0.2, theta=0.7)
    for residual, estimator in itertools.product((True, False), ("cv", "ns", "exact")):
        options = {"head": head is not None, "residual": residual, "bias": residual}
        a = make_arguments(np.random.default_rng(0), spec, WEIGHTED, normalization, **options)
        loss, grads, H, r = cv_forward_backward(**a, estimator=estimator)
        expected_loss, expected_grads, outputs = torch_twin(a, estimator)
        assert loss == pytest.approx(expected_loss, rel=1e-10)
        assert list(grads) == list(a["params"])
        for name, G in expected_grads.items():
            scale = max(1.0, np.abs(G).max())
            np.testing.assert_allclose(grads[name], G, rtol=1e-10, atol=1e-10 * scale, err_msg=name)
        for ours, theirs, v in zip(H[1:], outputs, [*r[1:], r[-1]][: len(outputs)], strict=True):
            np.testing.assert_allclose(ours[v], theirs[v], rtol=1e-10, atol=1e-10)
            assert np.isnan(ours[np.setdiff1d(np.arange(N), v)]).all()


@pytest.mark.parametrize("estimator", ["cv", "ns", "exact"])
def test_gradient_is_the_finite_difference(estimator: str) -> None:
    spec = Spec(NETWORKS["mixed"][0], "batch", "gelu", "concat")
    a = make_arguments(np.random.default_rng(1), spec)
    grads = cv_forward_backward(**a, estimator=estimator)[1]
    for name, W in a["params"].items():
        index = tuple(0 for _ in W.shape)
        losses = []
        for h in (1e-5, -1e-5):
            moved = W.copy()
            moved[index] += h
            losses.append(cv_forward_backward(**{**a, "params": {**a["params"], name: moved}}, estimator=estimator)[0])
        np.testing.assert_allclose(grads[name][index], (losses[0] - losses[1]) / 2e-5, rtol=1e-6, atol=1e-8)
        assert np.abs(grads[name]).max() > 1e-6


@pytest.mark.parametrize("network", NETWORKS)
def test_rows_outside_the_receptive_fields_are_not_read(network: str) -> None:
    kinds, normalization = NETWORKS[network]
    spec = Spec(kinds, "layer", "elu", "concat")
    a = make_arguments(np.random.default_rng(2), spec, PATH, normalization)
    a["batch"] = [0]
    loss, grads, _, r = cv_forward_backward(**a, estimator="ns")
    K = len(kinds)
    assert len(r[K - 1]) < 4
    for k in range(1, K + 1):
        a["masks"][k][np.setdiff1d(np.arange(4), r[k])] = np.nan
    for k in range(1, K):
        a["P_hats"][k][np.setdiff1d(np.arange(4), r[k + 1])] = np.nan
    for k in (0, "x"):
        a["masks"][k][np.setdiff1d(np.arange(4), r[1])] = np.nan
    again = cv_forward_backward(**a, estimator="ns")
    assert again[0] == loss
    for name, G in grads.items():
        np.testing.assert_array_equal(again[1][name], G)


def test_a_linear_input_layer_reaches_nothing() -> None:
    P = dense_P(PATH)
    fields = receptive_fields({1: P}, P, [0], 2, Spec(("linear", "gcn")))
    assert [r.tolist() for r in fields] == [[0, 1], [0, 1], [0]]
    fields = receptive_fields({1: dense_P(PATH, "mean")}, dense_P(PATH, "mean"), [0], 2, Spec(("sage", "sage")))
    assert [r.tolist() for r in fields] == [[0, 1, 2], [0, 1], [0]]


def test_batch_statistics_are_those_of_torch_in_training() -> None:
    """BatchNorm over all nodes in training mode normalizes by the same numbers."""
    spec = Spec(("sage", "sage", "sage"), "batch", "elu")
    a = make_arguments(np.random.default_rng(3), spec, normalization="mean", head=False, residual=False)
    p, P, H = a["params"], a["P"], a["X"]
    statistics = batch_statistics(p, P, H, spec)
    assert sorted(statistics) == [0, 1]
    for k in range(3):
        name = f"layers.{k}"
        Z = P @ H @ p[f"{name}.weight"] + H @ p[f"{name}.own_weight"] + p[f"{name}.bias"]
        if k < 2:
            np.testing.assert_allclose(statistics[k][0], Z.sum(axis=0) / N, rtol=1e-12, atol=1e-14)
            np.testing.assert_allclose(statistics[k][1], ((Z - Z.mean(axis=0)) ** 2).sum(axis=0) / N, rtol=1e-12)
            affine = (torch.tensor(p[f"{name}.norm.{x}"]) for x in ("weight", "bias"))
            H = F.elu(F.batch_norm(torch.tensor(Z), None, None, *affine, training=True)).numpy()
    np.testing.assert_allclose(exact_forward(p, P, a["X"], 3, spec, statistics)[1], Z, rtol=1e-11, atol=1e-11)
    assert batch_statistics(p, P, a["X"], replace(spec, norm="layer")) == {}


@pytest.mark.parametrize("network", NETWORKS)
def test_exact_forward_is_the_exact_estimator_and_fresh_histories_make_cv_exact(network: str) -> None:
    kinds, normalization = NETWORKS[network]
    spec = Spec(kinds, "batch", "gelu", "concat")
    a = make_arguments(np.random.default_rng(4), spec, normalization=normalization) | {"masks": None}
    H, logits = exact_forward(a["params"], a["P"], a["X"], len(kinds), spec, a["statistics"])
    assert len(H) == len(kinds) + 2
    a["Hbar"] = {k: H[k] for k in a["Hbar"]}
    for estimator, batch in (("exact", range(N)), ("cv", [1, 4])):
        a["batch"] = list(batch)
        np.testing.assert_allclose(
            cv_forward_backward(**a, estimator=estimator)[2][-1][batch], logits[batch], atol=1e-11
        )


class SGD:
    def step(self, W: list[Array], G: list[Array]) -> list[Array]:
        return [w - 0.05 * g for w, g in zip(W, G, strict=True)]


def make_trainer(spec: Spec, normalization: str, *, D: int = 1, **options) -> ReferenceTrainer:
    a = make_arguments(np.random.default_rng(5), spec)
    K = len(spec.kinds)
    return ReferenceTrainer(
        WEIGHTED,
        a["X"],
        a["y"],
        a["params"],
        K=K,
        fan_outs=[None] + [D] * (K - 1),
        optimizer=SGD(),
        spec=spec,
        normalization=normalization,
        **options,
    )


@pytest.mark.parametrize("network", NETWORKS)
def test_all_neighbors_train_as_exact(network: str) -> None:
    kinds, normalization = NETWORKS[network]
    spec = Spec(kinds, "batch", "elu", "concat")
    sampled, exact = (
        make_trainer(spec, normalization, D=-1, estimator=estimator, statistics_every=2)
        for estimator in ("cv", "exact")
    )
    for t in range(4):
        masks = make_arguments(np.random.default_rng(t), spec)["masks"]
        sampled.step([t, 5, t], {}, masks)
        exact.step([t, 5, t], {}, masks)
    for name, W in exact.params.items():
        np.testing.assert_allclose(sampled.params[name], W, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("every", [0, 1, 3])
def test_statistics_are_computed_anew_on_schedule(every: int) -> None:
    spec = Spec(("linear", "gcnii", "gcnii"), "batch")
    trainer = make_trainer(spec, "symmetric", D=-1, statistics_every=every)
    at = batch_statistics(trainer.params, trainer.P, trainer.X, spec)
    H, _ = exact_forward(trainer.params, trainer.P, trainer.X, 3, spec, at)
    for k in (1, 2):
        np.testing.assert_array_equal(trainer.Hbar[k], H[k])
    for t in range(1, 8):
        new = batch_statistics(trainer.params, trainer.P, trainer.X, spec)
        if t > 1:
            assert np.abs(new[2][0] - at[2][0]).max() > 1e-8  # the weights have moved
        at = new if every and (t - 1) % every == 0 else at
        trainer.step([0, 1], {})
        for k in range(3):
            np.testing.assert_array_equal(trainer.statistics[k][0], at[k][0])
            np.testing.assert_array_equal(trainer.statistics[k][1], at[k][1])


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"kinds": ()}, "at least one layer"),
        ({"kinds": ("gcn", "gat")}, r"unknown kinds\[1\] 'gat'"),
        ({"kinds": ("gcn", "linear")}, r"kinds\[1\] must not be 'linear'"),
        ({"kinds": ("linear",)}, r"kinds\[0\] must not be 'linear'"),
        ({"kinds": ("gcn", "gcnii")}, r"kinds\[0\] must be 'linear' .* not 'gcn'"),
        ({"norm": "bach"}, "unknown norm 'bach'.*did you mean 'batch'"),
        ({"activation": "rellu"}, "did you mean 'relu'"),
        ({"jk": "max"}, "unknown jk 'max'; known: last, concat"),
        ({"alpha": 1.5}, r"alpha must lie in 0\.\.1.*not 1\.5"),
        ({"theta": 0.0}, r"theta must be above 0, not 0\.0"),
    ],
)
def test_a_spec_that_makes_no_sense(change: dict[str, object], sentence: str) -> None:
    with pytest.raises(CvgnnError, match=sentence):
        Spec(**change)


@pytest.mark.parametrize(
    ("spec", "names", "sentence"),
    [
        (Spec(("gcn",) * 3), [], "spec.kinds must have one entry for each of the 2 layers in params, not 3"),
        (Spec(jk="concat"), [], "needs 'head.weight'"),
        (
            Spec(("sage", "sage")),
            ["layers.0.own_weight"],
            "params must hold 'layers.1.own_weight', for layer 1 is 'sage'",
        ),
        (Spec(("gin", "gcn")), [], "'layers.0.out_weight'"),
        (Spec(norm="none"), ["layers.0.norm.weight", "layers.0.norm.bias"], "unknown parameter 'layers.0.norm.weight'"),
        (Spec(norm="batch"), [], "must hold layers.0.norm.weight with spec.norm='batch'"),
        (Spec(("linear", "gcnii")), ["layers.1.bias"], "unknown parameter 'layers.1.bias'"),
        (Spec(), ["head.bias"], "unknown parameter 'head.bias'"),
        (Spec(), ["layers.0.own_weight"], "unknown parameter 'layers.0.own_weight'"),
        (Spec(("linear", "gcnii")), [], r"must have shape \(3, 3\).*not \(2, 3\)"),
    ],
)
def test_parameters_that_do_not_fit_the_spec(spec: Spec, names: list[str], sentence: str) -> None:
    params = {name: np.ones((2, 3)) for name in ("layers.0.weight", "layers.1.weight", *names)}
    with pytest.raises(CvgnnError, match=sentence):
        num_layers(params, spec)


def test_other_mistakes() -> None:
    spec = Spec(("gcn", "gcn"), "batch")
    a = make_arguments(np.random.default_rng(0), spec)
    with pytest.raises(CvgnnError, match=r"statistics must hold layer 0.*batch_statistics"):
        cv_forward_backward(**a | {"statistics": None})
    with pytest.raises(CvgnnError, match="statistics must hold layer 1"):
        exact_forward(a["params"], a["P"], a["X"], 2, spec, {0: a["statistics"][0]})
    with pytest.raises(CvgnnError, match=r"statistics_every must be .* not -1"):
        make_trainer(spec, "symmetric", statistics_every=-1)
    a = make_arguments(np.random.default_rng(0), Spec(("sage", "sage")))
    with pytest.raises(CvgnnError, match=r"masks\['x'\].*shape \(6, 3\), not \(6, 1\)"):
        cv_forward_backward(**a | {"masks": {"x": np.ones((6, 1))}})
