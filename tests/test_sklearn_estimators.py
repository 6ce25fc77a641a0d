"""`GNNClassifier` and `GNNRegressor`: scikit-learn's own checks, model selection without leakage, files, bad input."""

from __future__ import annotations

import dataclasses
import json
import pickle
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError, SkipTestWarning
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from cvgnn import GNNClassifier, GNNRegressor
from cvgnn.data import from_scipy, to_pyg
from cvgnn.data.named.synthetic import generate, small_spec
from cvgnn.errors import CvgnnError

PAGE = Path(__file__).parents[1] / "docs" / "sklearn.md"
QUICK: dict[str, Any] = {
    "model": "gcn",
    "hidden": 16,
    "lr": 0.1,
    "weight_decay": 0.0,
    "dropout": 0.0,
    "random_state": 0,
}
CHECKED: dict[str, Any] = {
    **QUICK,
    "epochs": 40,
    "validation_fraction": 0.0,
    "options": {"eval_every": 40, "threads": 1},
}
GRAPH = generate(small_spec(600))
IDS, Y = np.arange(600), GRAPH.y.numpy()
A = sparse.csr_array((np.ones(GRAPH.num_edges), GRAPH.indices.numpy(), GRAPH.indptr.numpy()), shape=(600, 600))
X = GRAPH.x.numpy()


def quick(kind: Any = GNNClassifier, **options: Any) -> Any:
    return kind(**{**QUICK, "epochs": 8, **options})


@pytest.mark.parametrize("kind", [GNNClassifier, GNNRegressor])
def test_the_checks_of_scikit_learn(kind: Any) -> None:
    """Rows without edges. All pass; what is skipped needs pandas, array API, or a method that there is not."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SkipTestWarning)
        warnings.simplefilter("ignore", FutureWarning)  # of scikit-learn, about its own changes
        results = check_estimator(kind(**CHECKED), on_fail=None)
    assert [(r["check_name"], r["exception"]) for r in results if r["status"] == "failed"] == []
    assert sum(r["status"] == "passed" for r in results) > 45
    allowed = ("pandas", "SCIPY_ARRAY_API", "decision_function")
    assert all(any(word in str(r["exception"]) for word in allowed) for r in results if r["status"] == "skipped")


def test_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL):
        exec(code, names)
    out = capsys.readouterr().out.splitlines()
    assert float(out[0].split()[-1]) > 0.8  # by chance 0.5
    assert set(names["again"].predict(names["X"], adjacency=names["A"])) == {"upper", "lower"}
    assert names["search"].best_score_ > 0.65


@pytest.mark.parametrize("form", ["ids", "features"])
def test_labels_that_are_held_out_change_nothing(form: str) -> None:
    """No leakage: neither from the graph's own labels and split, nor from nodes that are marked as unknown."""
    train, test = IDS[::2], IDS[1::2]
    other = Y.copy()
    other[test] = (Y[test] + 1) % GRAPH.num_classes
    found = []
    for labels in (Y, other):
        if form == "ids":
            graph = dataclasses.replace(GRAPH, y=torch.from_numpy(labels))
            found.append(quick(graph=graph).fit(train, labels[train]).predict_proba(IDS))
        else:
            known = labels.copy()
            known[test] = -1
            found.append(quick().fit(X, known, adjacency=A).predict_proba(X, adjacency=A))
    assert np.array_equal(*found)
    assert not np.array_equal(found[0], quick(graph=GRAPH).fit(train, other[train][::-1]).predict_proba(IDS))


def test_ids_and_features_are_the_same_model() -> None:
    by_ids = quick(graph=GRAPH).fit(IDS, Y)
    by_features = quick().fit(X, Y, adjacency=A)
    np.testing.assert_allclose(by_ids.predict_proba(IDS), by_features.predict_proba(X, adjacency=A), atol=1e-6)
    np.testing.assert_allclose(
        by_features.predict_proba(), by_features.predict_proba(X, adjacency=A.toarray()), atol=1e-6
    )
    assert by_ids.score(IDS, Y) == by_features.score(X, Y, adjacency=A)
    assert np.array_equal(by_ids.predict(GRAPH), by_ids.predict())
    data = to_pyg(GRAPH)
    assert np.array_equal(quick(graph=data).fit(IDS, Y).predict(data), by_ids.predict())


def test_model_selection() -> None:
    names = np.array([f"class {c}" for c in range(GRAPH.num_classes)])[Y]
    model = quick(graph=GRAPH, epochs=25)
    copy = clone(model)
    assert copy.graph is GRAPH
    assert copy.get_params() == model.get_params()
    assert cross_val_score(model, IDS[:, None], names, cv=3).min() > 0.6
    assert set(cross_val_predict(model, IDS, names, cv=3)) <= set(names)
    search = GridSearchCV(model, {"hidden": [4, 16]}, cv=2).fit(IDS, names)
    assert search.best_params_["hidden"] in (4, 16)
    assert list(search.classes_) == sorted(set(names))


def test_parallel_model_selection() -> None:
    model = quick(graph=GRAPH, epochs=2)
    alone, two = (GridSearchCV(model, {"hidden": [4, 8]}, cv=2, n_jobs=n).fit(IDS, Y) for n in (1, 2))
    assert np.array_equal(alone.cv_results_["mean_test_score"], two.cv_results_["mean_test_score"])


def test_a_pipeline_of_features() -> None:
    pipe = make_pipeline(StandardScaler(), quick(epochs=25)).fit(X, Y, gnnclassifier__adjacency=A)
    assert (pipe.predict(X, adjacency=A) == Y).mean() > 0.6


def test_a_graph_with_its_own_labels_and_split() -> None:
    model = quick(epochs=25).fit(GRAPH)
    run = model.run_
    assert run.result["test_accuracy"] == pytest.approx(model.score(GRAPH))
    assert np.array_equal(model.predict([5, 7]), model.predict()[[5, 7]])
    assert model.n_features_in_ == GRAPH.num_features
    assert torch.equal(run.graph.train_ids, GRAPH.train_ids)


def test_names_of_columns_and_of_classes() -> None:
    table = pa.table({f"column {j}": X[:, j] for j in range(X.shape[1])})
    labels = np.where(Y == 0, "a", "b").astype(object)
    labels[::3] = None
    model = quick(epochs=25, class_weight={"a": 3.0}).fit(table, labels, adjacency=A)
    assert list(model.classes_) == ["a", "b"]
    assert list(model.feature_names_in_[:2]) == ["column 0", "column 1"]
    assert model.run_.config.class_weight == "3.0,1.0"
    assert model.run_.graph.train_ids.numel() + model.run_.graph.val_ids.numel() == 400
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(table.rename_columns([f"other {j}" for j in range(X.shape[1])]), adjacency=A)


def test_several_labels_and_numbers() -> None:
    several = np.stack([Y == 0, Y <= 1], axis=1).astype(int)
    model = quick(epochs=25).fit(sparse.csr_array(X), several, adjacency=A)
    assert model.predict(X, adjacency=A).shape == (600, 2)
    assert model.predict_proba(X, adjacency=A).shape == (600, 2)
    numbers = np.stack([X[:, 0], np.where(IDS % 2, X[:, 1], np.nan)], axis=1)
    regressor = quick(GNNRegressor, epochs=25).fit(X, numbers, adjacency=A)
    assert regressor.predict().shape == (600, 2)
    assert regressor.predict().dtype == np.float64
    assert regressor.run_.graph.train_ids.numel() + regressor.run_.graph.val_ids.numel() == 300
    assert np.isfinite(regressor.score(X, numbers, adjacency=A))


@pytest.mark.parametrize("form", ["ids", "features"])
@pytest.mark.parametrize("kind", [GNNClassifier, GNNRegressor])
def test_files(kind: Any, form: str, tmp_path: Path) -> None:
    y = np.array(["a", "b", "c"])[Y % 3] if kind is GNNClassifier else X[:, 0].astype(np.float64)
    graph, args = (GRAPH, (IDS,)) if form == "ids" else (None, (X, A))
    model = quick(kind, graph=graph, options={"optimizer": "amsgrad"})
    model.fit(*args[:1], y, *args[1:]).save(tmp_path / "model")
    again = kind.load(tmp_path / "model", graph)
    assert np.array_equal(model.predict(*args), again.predict(*args))
    assert again.get_params() == model.get_params()
    pickled = pickle.loads(pickle.dumps(model))
    assert np.array_equal(model.predict(*args), pickled.predict(*args))
    if form == "features":
        with pytest.raises(CvgnnError, match="a loaded estimator has no graph"):
            again.predict()
    else:
        with pytest.raises(CvgnnError, match="give load"):
            kind.load(tmp_path / "model")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"class": "os.system"}, "is not of a GNNClassifier"),
        ({"parameters": {"evil": 1}}, "holds .'evil'., which a GNNClassifier does not have"),
        ({"fitted": {"n_features_in_": -1}}, "must be a number of features"),
        ({"fitted": {"n_features_in_": 16, "by_ids_": False, "has_edges_": True, "classes_": ["a"]}}, "must name the"),
    ],
)
def test_files_of_strangers(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    quick().fit(X, Y, adjacency=A).save(tmp_path / "model")
    file = tmp_path / "model" / "estimator.json"
    content = json.loads(file.read_text()) | change
    if "n_features_in_" in content["fitted"] and content["fitted"]["n_features_in_"] == 16:
        content["fitted"]["n_features_in_"] = X.shape[1]
    file.write_text(json.dumps(content))
    with pytest.raises(CvgnnError, match=said):
        GNNClassifier.load(tmp_path / "model")


def without(edges: Any) -> Any:
    return quick().fit(X, Y) if edges is None else quick().fit(X, Y, adjacency=edges)


REFUSED = {
    "not fitted": (lambda: quick().predict(X), "not fitted yet"),
    "no labels": (lambda: quick().fit(X), "requires y to be passed"),
    "rows without their edges": (lambda: quick().fit(X[:50], Y[:50], adjacency=A[:50]), "let X be ids of nodes"),
    "not symmetric": (lambda: quick().fit(X, Y, adjacency=sparse.csr_array(np.triu(A.toarray()))), "is not symmetric"),
    "forgotten edges": (lambda: without(A).predict(X), "fitted with an adjacency"),
    "edges that were not fitted": (lambda: without(None).predict(X, adjacency=A), "fitted without an adjacency"),
    "features for ids": (lambda: quick(graph=GRAPH).fit(X, Y), "X must be ids of nodes"),
    "ids and edges": (lambda: quick(graph=GRAPH).fit(IDS, Y, adjacency=A), "leave adjacency out"),
    "twice": (lambda: quick(graph=GRAPH).fit([1, 1], [0, 1]), "names a node twice"),
    "no such node": (lambda: quick(graph=GRAPH).fit([1, 600], [0, 1]), "does not exist; ids must lie in 0..599"),
    "no such node to predict": (lambda: quick(graph=GRAPH).fit(IDS, Y).predict([-1]), "does not exist"),
    "not as many": (lambda: quick(graph=GRAPH).fit([1, 2], [0]), "inconsistent numbers of samples"),
    "no graph": (lambda: quick(graph=A).fit(IDS, Y), "graph must be a cvgnn.Graph"),
    "graph and labels": (lambda: quick().fit(GRAPH, Y), "give fit.graph. alone"),
    "no known label": (lambda: quick().fit(X, np.full(600, -1), adjacency=A), "no known label"),
    "wrong labels": (lambda: quick(GNNRegressor).fit(GRAPH), "needs floating point numbers"),
    "words": (lambda: quick(GNNRegressor).fit(X, np.array(["a"] * 600)), "y must hold numbers"),
    "unknown class": (lambda: quick(class_weight={9: 1.0}).fit(X, Y), "class_weight names"),
    "fraction": (lambda: quick(validation_fraction=1.0).fit(X, Y), "validation_fraction must be"),
    "option": (lambda: quick(options={"epoch": 3}).fit(X, Y), "unknown option 'epoch'"),
    "score": (lambda: without(A).score(X, adjacency=A), "score needs y"),
}


@pytest.mark.parametrize("case", list(REFUSED))
def test_refused(case: str) -> None:
    call, said = REFUSED[case]
    with pytest.raises((CvgnnError, NotFittedError), match=said):
        call()


def test_another_graph_with_other_features() -> None:
    other = from_scipy(A, x=X[:, :-1], y=None)
    with pytest.raises(CvgnnError, match="features a node, but the graph"):
        quick(graph=GRAPH).fit(IDS, Y).predict(other)
    with pytest.raises(CvgnnError, match="a set of graphs has no labels at nodes"):
        quick().fit(dataclasses.replace(GRAPH, graph_ids=torch.zeros(600, dtype=torch.int64), validated=True))
