"""`GNNClassifier` and `GNNRegressor`: `cvgnn.fit` behind the interface of scikit-learn; see docs/sklearn.md.

scikit-learn cuts `X` and `y` into folds by rows, and knows of no edges. So there are two forms of input, and in neither
is an adjacency cut: `X` holds the features of all nodes, beside `adjacency=`; or the estimator has the graph, and `X`
holds ids of nodes.
"""

from __future__ import annotations

import dataclasses
import json
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, final

import numpy as np
import torch
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_is_fitted, column_or_1d, validate_data
from torch import Tensor

from cvgnn.api import fit, load_run
from cvgnn.data import Graph, RandomSplit, as_graph, from_scipy
from cvgnn.data.labels import labelled, to_labels, unknown_labels
from cvgnn.errors import CvgnnError, require, require_number
from cvgnn.training.run import Run
from cvgnn.training.run_folder import read_object
from cvgnn.utils.atomic_files import write_new
from cvgnn.utils.checked_json import short

_FILE = "estimator.json"
_FITTED = ("by_ids_", "has_edges_", "classes_", "n_features_in_", "feature_names_in_")
_FEATURES: dict[str, Any] = {"accept_sparse": "csr", "dtype": np.float32}
_GRAPHS = ("torch_geometric", "networkx")  # packages whose graphs are taken; a SciPy matrix as X is features
_OWN = ("graph", "class_weight", "validation_fraction", "directed", "random_state", "verbose", "options")


@dataclass(kw_only=True, eq=False, repr=False)
class GraphEstimator(BaseEstimator):  # type: ignore[misc]
    """What classifier and regressor share. An option that is None is chosen from the size and the labels of the graph.

    Args:
        graph: for model selection: a `cvgnn.Graph`, PyG `Data` or NetworkX graph with features, whose labels and split
            are not used. `X` is then ids of nodes, `[n]` or `[n, 1]`.
        model, hidden, layers, num_neighbors, dropout, lr, weight_decay, batch_size, epochs, patience: see
            `cvgnn.TrainConfig`.
        validation_fraction: share of the labelled nodes that is not trained on but chooses the best epoch; 0 trains on
            all of them and takes the last epoch.
        directed: whether `adjacency[i, j]` is an edge from `i` to `j` alone.
        random_state: seed of the validation nodes, weights, batches, neighbor draws and dropout.
        verbose: print every n-th epoch.
        options: more fields of `cvgnn.TrainConfig`, by name.
    """

    graph: Any = None
    model: Any = None
    hidden: int | None = None
    layers: int | None = None
    num_neighbors: Any = None
    dropout: float | None = None
    lr: float | None = None
    weight_decay: float | None = None
    batch_size: int | None = None
    epochs: int | None = None
    patience: int | None = None
    validation_fraction: float = 0.1
    directed: bool = False
    random_state: Any = None
    verbose: int = 0
    options: dict[str, Any] | None = None

    def fit(self, X: Any, y: Any = None, adjacency: Any = None) -> Self:
        """Train a network.

        Args:
            X: features of all nodes `[N, F]`, dense or sparse; ids of labelled nodes, if the estimator has a graph; or
                a graph with its own labels and split, alone.
            y: a label for each row of `X`. With edges, -1, "", None and NaN stand for nodes without a label, which take
                part all the same (for numbers: NaN).
            adjacency: `[N, N]`, SciPy matrix or array; if not given, the rows are nodes without edges.
        """
        seed = self.random_state
        if not isinstance(seed, int | np.integer):
            seed = check_random_state(seed).randint(2**31 - 1)
        graph = _graph_of(X)
        self.by_ids_ = graph is not None or self.graph is not None
        self.has_edges_ = self.by_ids_ or adjacency is not None
        if graph is not None:
            require(
                y is None and adjacency is None and self.graph is None,
                "a graph has edges and labels of its own: give fit(graph) alone; or make the estimator with "
                "graph=graph and give fit(ids, y)",
            )
            self._take_labels_of(graph)
        else:
            graph = self._labelled_graph(X, y, adjacency, seed)
        self.n_features_in_ = graph.num_features
        options = {name: value for name, value in self.get_params(deep=False).items() if name not in _OWN}
        options = {name: value for name, value in options.items() if value is not None} | self._further_options()
        if graph.val_ids.numel() == 0:
            options = {"output": "last", **options, "patience": 0}
        self.run_ = fit(graph, seed=int(seed), verbose=int(self.verbose), **options, **(self.options or {}))
        return self

    def predict(self, X: Any = None, adjacency: Any = None) -> np.ndarray:
        """What is predicted for each row of `X`, by exact inference.

        Args:
            X: in the form that `fit` had; ids, too, if `fit` had a graph; or another graph, for all of its nodes. None
                for all nodes of the graph that was fitted.
            adjacency: goes with features, as in `fit`.
        """
        run, ids = self._place(X, adjacency)
        return self._decode(run.predict(ids))

    def score(self, X: Any, y: Any = None, sample_weight: Any = None, adjacency: Any = None) -> float:
        """Accuracy of a classifier, R^2 of a regressor, over the rows whose label is known.

        Args:
            X, adjacency: as in `predict`.
            y: as in `fit`; a graph without it is scored on its own test nodes.
            sample_weight: of each row.
        """
        predicted, graph = self.predict(X, adjacency), _graph_of(X)
        if y is None:
            if graph is None:
                raise CvgnnError("score needs y, or a graph with labels as X")
            y, predicted = self._decode(graph.y[graph.test_ids]), predicted[graph.test_ids.numpy()]
        y = np.asarray(y)
        known = self._known(y) if self.has_edges_ else np.ones(len(y), dtype=bool)
        weight = None if sample_weight is None else np.asarray(sample_weight)[known]
        return float(self._score(y[known], predicted[known], weight))

    def save(self, path: str | Path) -> None:
        """Write the fitted estimator into a new folder, without pickle: a run, as `Run.save` writes it, and a JSON file
        with the parameters."""
        check_is_fitted(self, "run_")
        parameters = {name: value for name, value in self.get_params(deep=False).items() if name != "graph"}
        if not isinstance(self.random_state, int | np.integer):
            parameters["random_state"] = None  # a generator was used up
        fitted = {name: value for name in _FITTED if (value := getattr(self, name, None)) is not None}
        try:
            text = json.dumps(
                {"class": type(self).__name__, "parameters": parameters, "fitted": fitted}, default=_plain
            )
        except TypeError as error:
            raise CvgnnError(
                f"a parameter is an object that no file holds ({error}); save run_, and read it with cvgnn.load_run"
            ) from None
        self.run_.save(path)
        write_new(Path(path) / _FILE, text + "\n")

    @classmethod
    def load(cls, path: str | Path, graph: Any = None) -> Self:
        """A fitted estimator from the folder of `save`.

        Args:
            path: the folder.
            graph: the graph, where `X` is ids of nodes; else features and adjacency come with each call.
        """
        file = Path(path) / _FILE
        stored = read_object(file)
        parameters, fitted, kind = (stored.get(name) for name in ("parameters", "fitted", "class"))
        if kind != cls.__name__ or not (isinstance(parameters, dict) and isinstance(fitted, dict)):
            raise CvgnnError(f"{file} is not of a {cls.__name__}, but of {short(kind)}")
        foreign = sorted((set(parameters) - set(cls._get_param_names())) | (set(fitted) - set(_FITTED)))
        require(not foreign, f"{file} holds {short(foreign)}, which a {cls.__name__} does not have")
        features = fitted.get("n_features_in_")
        if type(features) is not int or not 0 < features < 2**31:
            raise CvgnnError(f"{file}: n_features_in_ must be a number of features, not {short(features)}")
        loaded = cls(**parameters)
        for name, value in fitted.items():
            setattr(loaded, name, np.asarray(value) if isinstance(value, list) else value)
        require(graph is not None or not loaded.by_ids_, "X of this estimator is ids of nodes: give load(path, graph)")
        # A run needs a graph; features and adjacency make another one at each call.
        one_node = from_scipy(sparse.csr_array((1, 1)), x=sparse.csr_array((1, features), dtype=np.float32), y=None)
        loaded.graph = graph
        loaded.run_ = load_run(path, one_node if graph is None else _graph_of(graph, unlabelled=True))
        classes, outputs = fitted.get("classes_"), loaded.run_.result["num_classes"]
        if classes is not None and (not isinstance(classes, list) or len(classes) != outputs):
            raise CvgnnError(f"{file}: classes_ must name the {outputs} classes of the run")
        return loaded

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.multi_output = True
        return tags

    def _labelled_graph(self, X: Any, y: Any, adjacency: Any, seed: int) -> Graph:
        """The graph with the labels `y` alone, and validation nodes among them."""
        if y is None:
            raise CvgnnError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        if self.graph is None:
            graph = self._graph_of_features(validate_data(self, X, **_FEATURES), adjacency)
            ids = torch.arange(graph.num_nodes)
        else:
            require(adjacency is None, "the estimator has a graph with its own edges; leave adjacency out")
            found = _graph_of(self.graph, unlabelled=True)
            if found is None:
                raise CvgnnError(f"graph must be a cvgnn.Graph, PyG Data or NetworkX graph, not {self.graph!r}")
            graph, ids = found, _ids(X)
        y = check_array(
            y, ensure_2d=False, dtype=None, ensure_all_finite="allow-nan" if self.has_edges_ else True, input_name="y"
        )
        y = column_or_1d(y, warn=True) if y.ndim == 2 and y.shape[1] == 1 else y
        if len(y) != len(ids):
            raise CvgnnError(f"inconsistent numbers of samples: X names {len(ids)} nodes, and y has {len(y)} labels")
        given = torch.from_numpy(self._encode(y))
        labels = unknown_labels(graph.num_nodes, like=given)
        labels[_checked(ids, graph.num_nodes, distinct=True)] = given
        known, share = labelled(labels.numpy()), self.validation_fraction
        require_number("validation_fraction", share, "a number in [0, 1)", at_least=0.0, below=1.0)
        require(bool(known.any()), "y has no known label, so there is nothing to learn")
        train, val = np.flatnonzero(known), np.empty(0, np.int64)
        if share > 0:
            train, val, _ = RandomSplit(seed=int(seed), train=1 - share, val=share).ids(labels.numpy())
        classes = getattr(self, "classes_", None)
        return dataclasses.replace(
            graph,
            y=labels,
            num_classes=labels.shape[1] if classes is None else len(classes),
            class_names=None if classes is None else tuple(map(str, classes)),
            test_ids=torch.empty(0, dtype=torch.int64),
            split="given",
            built=True,
            train_ids=torch.from_numpy(train),
            val_ids=torch.from_numpy(val),
        )

    def _place(self, X: Any, adjacency: Any) -> tuple[Run, Tensor | None]:
        """The run on the graph that the caller means, and the nodes there; None for all."""
        check_is_fitted(self, "run_")
        other = _graph_of(X, unlabelled=True)
        if X is None or other is not None or self.by_ids_:
            require(adjacency is None, "adjacency goes with the features of all nodes; leave it out")
            run = self.run_ if other is None else self.run_.on(other)
            complete = X is not None or self.by_ids_ or run.trainer is not None
            require(complete, "a loaded estimator has no graph; give predict(X, adjacency)")
            return run, None if X is None or other is not None else _checked(_ids(X), run.graph.num_nodes)
        x = validate_data(self, X, reset=False, **_FEATURES)
        require(
            self.has_edges_ == (adjacency is not None),
            "the estimator was fitted with an adjacency: give predict(X, adjacency=...)"
            if self.has_edges_
            else "the estimator was fitted without an adjacency; leave it out",
        )
        return self.run_.on(self._graph_of_features(x, adjacency)), None

    def _graph_of_features(self, x: Any, adjacency: Any) -> Graph:
        n = x.shape[0]
        A = sparse.csr_array((n, n)) if adjacency is None else adjacency
        A = A if sparse.issparse(A) else sparse.csr_array(check_array(A, input_name="adjacency"))
        require(
            A.shape == (n, n),
            f"X has {n} rows and adjacency has shape {list(A.shape)}: both need all nodes. Cross-validation cuts rows; "
            "for it make the estimator with graph=, and let X be ids of nodes",
        )
        return from_scipy(A, x=x, y=None, directed=self.directed)

    def _further_options(self) -> dict[str, Any]:
        """Options of `fit` that are not among the parameters as they are."""
        return {}

    @abstractmethod
    def _take_labels_of(self, graph: Graph) -> None:
        """Refuse labels of a wrong form, and keep the names of the classes."""

    @abstractmethod
    def _encode(self, y: np.ndarray) -> np.ndarray:
        """`y` in a form of `cvgnn.data.labels`."""

    @abstractmethod
    def _decode(self, predicted: Tensor) -> np.ndarray:
        """The opposite."""

    @abstractmethod
    def _known(self, y: np.ndarray) -> np.ndarray:
        """bool `[n]`: which rows of `y` have a label, where there are edges."""

    @abstractmethod
    def _score(self, y: np.ndarray, predicted: np.ndarray, weight: np.ndarray | None) -> float: ...


@final
@dataclass(kw_only=True, eq=False, repr=False)
class GNNClassifier(ClassifierMixin, GraphEstimator):  # type: ignore[misc]
    """A graph neural network that classifies nodes, for scikit-learn.

    `y` holds a class for each row, of any type, or a matrix of 0 and 1 for several labels.

    Args:
        class_weight: `"balanced"`, or a dict of classes and their weights (1 for those that it leaves out).

    See `GraphEstimator` for the other parameters.

    >>> import cvgnn
    >>> from sklearn.model_selection import cross_val_score
    >>> graph = cvgnn.load("citeseer")
    >>> ids = np.concatenate([graph.train_ids, graph.val_ids])
    >>> model = GNNClassifier(graph=graph, epochs=30, random_state=0)
    >>> bool((cross_val_score(model, ids, graph.y[ids], cv=3) > 0.6).all())
    True
    """

    class_weight: Any = None

    score = GraphEstimator.score  # the mixin's knows no adjacency

    def predict_proba(self, X: Any = None, adjacency: Any = None) -> np.ndarray:
        """`[n, C]`: the probability of each class in the order of `classes_`, or of each label. See `predict`."""
        run, ids = self._place(X, adjacency)
        return run.predict_proba(ids).numpy()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    def _further_options(self) -> dict[str, Any]:
        weight = self.class_weight
        if isinstance(weight, Mapping):
            classes = self.classes_.tolist()
            unknown = [key for key in weight if key not in classes]
            require(not unknown, f"class_weight names {unknown[:3]}; the classes are {short(classes)}")
            weight = [float(weight.get(label, 1.0)) for label in classes]
        return {} if weight is None else {"class_weight": weight}

    def _take_labels_of(self, graph: Graph) -> None:
        fits = graph.label_kind != "targets"
        require(fits, "a classifier needs classes or several labels at nodes; see GNNRegressor and cvgnn.fit")
        names = graph.class_names if graph.label_kind == "classes" else None
        self.classes_ = np.arange(graph.num_classes) if names is None else np.array(names)

    def _encode(self, y: np.ndarray) -> np.ndarray:
        known = self._known(y) if self.has_edges_ else np.ones(len(y), dtype=bool)
        check_classification_targets(y[known])
        if y.ndim == 2:
            self.classes_ = np.arange(y.shape[1])
            return to_labels(np.where(known[:, None], y, -1).astype(np.int64))
        codes = np.full(len(y), -1)
        self.classes_, codes[known] = np.unique(y[known], return_inverse=True)
        return codes

    def _decode(self, predicted: Tensor) -> np.ndarray:
        codes = predicted.numpy()
        return codes.astype(np.int64) if codes.ndim == 2 else self.classes_[codes]

    def _known(self, y: np.ndarray) -> np.ndarray:
        known: np.ndarray = (y == y) & (y != -1) & (y != "") & (y != None)  # noqa: E711 - elementwise
        return known.all(axis=1) if known.ndim == 2 else known  # type: ignore[return-value]

    def _score(self, y: np.ndarray, predicted: np.ndarray, weight: np.ndarray | None) -> float:
        return accuracy_score(y, predicted, sample_weight=weight)  # type: ignore[no-any-return]


@final
@dataclass(kw_only=True, eq=False, repr=False)
class GNNRegressor(RegressorMixin, GraphEstimator):  # type: ignore[misc]
    """A graph neural network that predicts one or several numbers a node, for scikit-learn.

    See `GraphEstimator` for the parameters.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 3))
    >>> model = GNNRegressor(epochs=100, lr=0.01, random_state=0).fit(X, X[:, 0] - X[:, 1])
    >>> model.score(X, X[:, 0] - X[:, 1]) > 0.9
    True
    """

    score = GraphEstimator.score

    def _take_labels_of(self, graph: Graph) -> None:
        fits = graph.label_kind == "targets"
        require(fits, "a regressor needs floating point numbers at nodes; see GNNClassifier and cvgnn.fit")

    def _encode(self, y: np.ndarray) -> np.ndarray:
        try:
            return y.astype(np.float64).reshape(len(y), -1)
        except (TypeError, ValueError):
            raise CvgnnError(f"y must hold numbers, not {y.dtype}; for classes use GNNClassifier") from None

    def _decode(self, predicted: Tensor) -> np.ndarray:
        numbers = predicted.double().numpy()
        return numbers[:, 0] if numbers.ndim == 2 and numbers.shape[1] == 1 else numbers

    def _known(self, y: np.ndarray) -> np.ndarray:
        return labelled(y.astype(np.float64))

    def _score(self, y: np.ndarray, predicted: np.ndarray, weight: np.ndarray | None) -> float:
        return r2_score(y, predicted, sample_weight=weight)  # type: ignore[no-any-return]


def _graph_of(X: Any, *, unlabelled: bool = False) -> Graph | None:
    """`X` as a graph, if it is one of the kinds that hold features; `unlabelled` takes its labels and split away."""
    if not isinstance(X, Graph) and type(X).__module__.partition(".")[0] not in _GRAPHS:
        return None
    graph = as_graph(X, allow_unlabelled=unlabelled)
    if not isinstance(graph, Graph):
        return None
    require(graph.graph_ids is None, "a set of graphs has no labels at nodes; use cvgnn.fit")
    if not unlabelled:
        return graph
    nobody = torch.empty(0, dtype=torch.int64)
    return dataclasses.replace(
        graph, y=torch.full((graph.num_nodes,), -1), num_classes=1, class_names=None, train_ids=nobody, val_ids=nobody,
        test_ids=nobody, validated=True,
    )  # fmt: skip


def _ids(X: Any) -> Tensor:
    """int64 `[n]`, node ids from `[n]` or `[n, 1]`."""
    X = check_array(X, ensure_2d=False, dtype=None, input_name="X")
    integers = X.dtype.kind in "iu" and (X.ndim == 1 or X.shape[1:] == (1,))
    require(integers, f"X must be ids of nodes, integers [n] or [n, 1], not {X.dtype} of shape {list(X.shape)}")
    return torch.from_numpy(X.reshape(-1).astype(np.int64))


def _checked(ids: Tensor, n: int, *, distinct: bool = False) -> Tensor:
    """Ids that exist, and that are distinct if they must be."""
    outside = ids[(ids < 0) | (ids >= n)].tolist()
    require(not outside, f"node {outside[:1]} does not exist; ids must lie in 0..{n - 1}")
    require(
        not distinct or np.unique(ids.numpy()).size == len(ids), "X names a node twice; give each labelled node once"
    )
    return ids


def _plain(value: Any) -> Any:
    """NumPy's numbers and arrays as JSON values."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"{type(value).__name__}")
