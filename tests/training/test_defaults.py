"""The rule that picks options for a graph, and the average of the weights."""

from __future__ import annotations

import dataclasses

import pytest
import torch

import cvgnn
from cvgnn.config import TrainConfig
from cvgnn.data import Graph
from cvgnn.errors import CvgnnError
from cvgnn.optim import make_optimizer
from cvgnn.training.defaults import choose_config, default_options
from cvgnn.training.outputs import WeightAverage
from tests.data.store.cases import make_graph


def graph_with(num_train: int) -> Graph:
    """A graph with so many training nodes and 3 classes; the rule reads nothing else."""
    graph = make_graph()
    return dataclasses.replace(graph, train_ids=torch.arange(num_train), num_classes=3, validated=True)


def test_few_labels_keep_the_fixed_defaults_with_more_weight_decay() -> None:
    graph = cvgnn.load("citeseer")
    assert choose_config(graph, "auto", {}) == TrainConfig(weight_decay=5e-3, feature_norm="l2")
    given = {"weight_decay": 0.1, "feature_norm": "none"}
    assert choose_config(graph, "auto", given) == TrainConfig(weight_decay=0.1)
    assert default_options(graph, "fixed") == {}


@pytest.mark.parametrize("task", ["edge", "link"])
def test_tasks_on_edges_keep_the_fixed_defaults(task: str) -> None:
    assert choose_config(cvgnn.load("citeseer"), "auto", {"task": task}) == TrainConfig(task=task)  # type: ignore[arg-type]


def test_auto_is_what_fit_does() -> None:
    graph = cvgnn.load("citeseer")
    assert cvgnn.fit(graph, epochs=1).config == choose_config(graph, "auto", {"epochs": 1})
    assert cvgnn.fit(graph, epochs=1, defaults="fixed").config == TrainConfig(epochs=1)


@pytest.mark.parametrize(
    ("num_train", "batch_size", "epochs"), [(150, 512, 300), (20_000, 1024, 204), (10**6, 1024, 20)]
)
def test_many_labels(monkeypatch: pytest.MonkeyPatch, num_train: int, batch_size: int, epochs: int) -> None:
    class Many:
        train_ids, num_classes, num_nodes = torch.arange(num_train), 3, 2 * num_train
        label_kind, PX_normalization, val_ids = "classes", None, torch.arange(3)

    config = choose_config(Many(), "auto", {"lr": 0.5, "hidden": 7})  # type: ignore[arg-type]
    assert (config.model, config.norm, config.batch_size, config.epochs) == ("sage", "layer", batch_size, epochs)
    assert (config.lr, config.hidden) == (0.5, 7)  # what is given wins
    assert config.patience == max(5, epochs // 5)
    config = choose_config(Many(), "auto", {"batch_size": 2 * batch_size})  # type: ignore[arg-type]
    assert config.epochs == min(300, max(20, 8000 * batch_size // num_train))  # as many steps
    with pytest.raises(CvgnnError, match="batch_size must be"):
        choose_config(Many(), "auto", {"batch_size": "many"})  # type: ignore[arg-type]


def test_a_normalization_is_a_wish_for_a_gcn() -> None:
    class Many:
        train_ids, num_classes, num_nodes = torch.arange(500), 3, 1000
        label_kind, PX_normalization, val_ids = "classes", None, torch.arange(3)

    config = choose_config(Many(), "auto", {"normalization": "random-walk"})  # type: ignore[arg-type]
    assert (config.model, config.hidden) == ("gcn", 256)


@pytest.mark.parametrize(
    ("normalization", "model"), [("symmetric", "gcn"), ("random-walk", "gcn"), ("mean", "sage"), ("sum", "gin")]
)
def test_a_stored_product_decides_on_the_model_and_says_so(
    normalization: str, model: str, caplog: pytest.LogCaptureFixture
) -> None:
    plain = cvgnn.load("citeseer")
    stored = dataclasses.replace(plain, PX=plain.x, PX_normalization=normalization, validated=True)
    with caplog.at_level("INFO", "cvgnn"):
        config = choose_config(stored, "auto", {})
    assert (config.model, config.aggregation, config.feature_norm) == (model, normalization, "none")
    assert f"P X is stored for '{normalization}', of features without a norm" in caplog.text
    assert choose_config(stored, "auto", {"model": "gcn"}).aggregation == "symmetric"  # what is given wins
    assert choose_config(stored, "fixed", {}) == TrainConfig()


def test_without_validation_nodes_there_is_no_patience() -> None:
    class Many:
        train_ids, num_classes, num_nodes = torch.arange(500), 3, 1000
        label_kind, PX_normalization, val_ids = "classes", None, torch.arange(0)

    assert choose_config(Many(), "auto", {"output": "last"}).patience == 0  # type: ignore[arg-type]


@pytest.mark.parametrize("estimator", ["ns", "exact"])
def test_a_control_needs_a_control_variate(estimator: str) -> None:
    with pytest.raises(CvgnnError, match=f"control has no use with estimator '{estimator}'"):
        TrainConfig(estimator=estimator, control=0.5)


def test_paper_and_unknown_defaults() -> None:
    graph = make_graph()
    config = choose_config(graph, "paper", {"epochs": 3})
    assert (config.estimator, config.hidden, config.norm, config.epochs) == ("cv", 256, "layer", 3)
    with pytest.raises(CvgnnError, match="unknown defaults 'best'; known: fixed, auto, paper"):
        cvgnn.fit(graph, defaults="best")  # type: ignore[arg-type]


def test_fit_with_auto_defaults_records_what_was_chosen() -> None:
    run = cvgnn.fit(make_graph(), defaults="auto", epochs=1, hidden=4)
    assert run.config == TrainConfig(epochs=1, hidden=4, weight_decay=5e-3)  # few labels


def test_the_average_by_hand() -> None:
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.constant_(model.weight, 1.0)
    average = WeightAverage(model, 0.5)
    expected = 1.0
    for t, value in enumerate((3.0, -2.0, 7.0, 7.0, 1.0, 0.5, 4.0, 8.0, 2.0, 6.0), start=1):
        torch.nn.init.constant_(model.weight, value)
        average.update(model, t)
        decay = min(0.5, (1 + t) / (10 + t))
        expected = decay * expected + (1 - decay) * value
        assert average.weights["weight"].item() == pytest.approx(expected, rel=1e-6)
    before = model.weight.item()
    with average.applied(model):
        assert model.weight.item() == pytest.approx(expected, rel=1e-6)
    assert model.weight.item() == before


def test_the_average_is_evaluated_and_returned() -> None:
    graph = make_graph()
    options = {"epochs": 6, "hidden": 4, "batch_size": 6, "output": "last"}
    plain, averaged = cvgnn.fit(graph, **options), cvgnn.fit(graph, ema=0.9, **options)
    assert averaged.trainer is not None
    assert plain.trainer is not None
    average = averaged.trainer.average
    assert average is not None
    for (name, mine), theirs in zip(
        averaged.trainer.model.named_parameters(), plain.trainer.model.parameters(), strict=True
    ):
        assert torch.equal(mine, theirs)  # training itself is the same
        assert torch.equal(averaged.model.state_dict()[name], average.weights[name])
        assert not torch.equal(averaged.model.state_dict()[name], mine)


@pytest.mark.parametrize("options", [{"norm": "batch"}, {"output": "tau"}])
def test_what_an_average_does_not_go_with(options: dict[str, str]) -> None:
    with pytest.raises(CvgnnError, match="ema returns an average of the weights"):
        TrainConfig(ema=0.9, **options)


@pytest.mark.parametrize(("name", "kind"), [("adamw", torch.optim.AdamW), ("nadam", torch.optim.NAdam)])
def test_optimizers_of_torch_by_name(name: str, kind: type[torch.optim.Optimizer]) -> None:
    parameter = torch.nn.Parameter(torch.ones(3))
    optimizer = make_optimizer(name, [parameter], lr=0.1, beta1=0.5, weight_decay=0.25)
    assert isinstance(optimizer, kind)
    group = optimizer.param_groups[0]
    assert (group["lr"], group["betas"], group["weight_decay"]) == (0.1, (0.5, 0.999), 0.25)
    with pytest.raises(CvgnnError, match=f"{name} has no paper form"):
        make_optimizer(name, [parameter], form="paper")
    run = cvgnn.fit(make_graph(), optimizer=name, epochs=2, hidden=4, batch_size=6)
    assert run.result["optimizer"] == name
