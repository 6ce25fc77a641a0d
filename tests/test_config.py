"""The config: what it refuses, that its choices are the parts' own, and that it survives JSON."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest

from cvgnn.config import GraphSource, TrainConfig
from cvgnn.data.propagation import NORMALIZATIONS
from cvgnn.errors import CvgnnError
from cvgnn.nn import ACTIVATIONS, ESTIMATORS, INITS, JUMPS, MODELS, NORMS
from cvgnn.optim import FORMS, OPTIMIZERS, TORCH_OPTIMIZERS
from cvgnn.sampling import FEATURE_NORMS
from cvgnn.sampling.edge_items import NEGATIVES
from cvgnn.sampling.loader import BATCH_MODES
from cvgnn.sampling.schemes import SCHEMES
from cvgnn.training.outputs import OUTPUTS
from cvgnn.training.schedules import SCHEDULES
from cvgnn.training.tasks import TASKS
from cvgnn.training.tasks.edge_tasks import HEADS
from cvgnn.training.tasks.graph_tasks import POOLS

CHOICES = {
    "model": tuple(MODELS),
    "activation": ACTIVATIONS,
    "jk": JUMPS,
    "estimator": ESTIMATORS,
    "scheme": SCHEMES,
    "optimizer": (*OPTIMIZERS, *TORCH_OPTIMIZERS),
    "form": FORMS,
    "batches": BATCH_MODES,
    "norm": NORMS,
    "init": INITS,
    "feature_norm": FEATURE_NORMS,
    "schedule": SCHEDULES,
    "normalization": NORMALIZATIONS,
    "history_dtype": ("float32", "bfloat16"),
    "histories": ("memory", "disk"),
    "feature_dtype": ("float32", "bfloat16"),
    "output": OUTPUTS,
    "bad_step": ("stop", "skip"),
    "task": ("auto", *TASKS),
    "head": HEADS,
    "negatives": NEGATIVES,
    "pool": POOLS,
}

NOT_WHOLE = (0, -1, True, 1.0, 2.5, "2", None)
DROPPED = ("dropout", "input_dropout", "label_smoothing", "val_edges", "test_edges")
NOT_A_NUMBER = (math.nan, math.inf, -math.inf, True, "0.1")
REFUSED: list[tuple[str, Any]] = [
    *(
        (name, value)
        for name in ("batch_size", "epochs", "layers", "hidden", "eval_every", "norm_every")
        for value in NOT_WHOLE
    ),
    *(("threads", value) for value in (0, -1, True, 1.5, "2")),
    *((name, value) for name in ("seed", "edge_seed") for value in (-1, True, 0.0, "0", None)),
    *(("hits_k", value) for value in NOT_WHOLE),
    *((name, value) for name in ("bias", "residual", "input_layer", "calibrate") for value in (0, 1, None, "False")),
    *(("device", value) for value in ("", None, 0)),
    *(("lr", value) for value in (0, 0.0, -0.01, None, *NOT_A_NUMBER)),
    *(("weight_decay", value) for value in (-1e-9, None, *NOT_A_NUMBER)),
    *((name, value) for name in ("nu_min", "clip_norm") for value in (0.0, -1e-8, *NOT_A_NUMBER)),
    *((name, value) for name in ("beta1", "beta2") for value in (1, 1.0, 1.5, -0.1, *NOT_A_NUMBER)),
    *((name, value) for name in DROPPED for value in (1, 1.0, 1.5, -0.1, None, *NOT_A_NUMBER)),
    *(("patience", value) for value in (-1, True, 0.0, "0", None)),
]


@pytest.mark.parametrize(("name", "value"), REFUSED, ids=str)
def test_an_impossible_value_is_refused_by_name_and_value(name: str, value: Any) -> None:
    with pytest.raises(CvgnnError) as caught:
        TrainConfig(**{name: value})
    sentence = str(caught.value)
    assert sentence.startswith(f"{name} must be ")
    assert sentence.endswith(f", not {value!r}")


@pytest.mark.parametrize("value", [0, -2, 2.5, True, None, "2", "25"], ids=repr)
@pytest.mark.parametrize("wrap", [lambda v: v, lambda v: [v], lambda v: (3, v)], ids=["bare", "list", "second"])
def test_an_impossible_fan_out_is_refused(wrap: Any, value: Any) -> None:
    with pytest.raises(CvgnnError) as caught:
        TrainConfig(num_neighbors=wrap(value), layers=3)
    assert str(caught.value) == (
        f"num_neighbors must be whole numbers of at least 1, or -1 for all neighbors, not {value!r}"
    )


def test_an_empty_fan_out_is_refused() -> None:
    with pytest.raises(CvgnnError, match=r"num_neighbors is empty, \(\); give one number, or layers - 1 of them"):
        TrainConfig(num_neighbors=[])


@pytest.mark.parametrize(
    ("layers", "fan_outs", "hops", "way_out"),
    [(2, (1, 2), 1, "give one number"), (3, (1, 2, 3), 2, "give 2 entries or one number")],
)
def test_a_wrong_number_of_fan_outs_is_refused(layers: int, fan_outs: tuple[int, ...], hops: int, way_out: str) -> None:
    with pytest.raises(CvgnnError) as caught:
        TrainConfig(layers=layers, num_neighbors=fan_outs)
    sentence = str(caught.value)
    assert f"num_neighbors has {len(fan_outs)} entries, {fan_outs}" in sentence
    assert f"{layers} layers sample at {hops} hops" in sentence
    assert sentence.endswith(way_out)


@pytest.mark.parametrize("name", CHOICES)
@pytest.mark.parametrize("value", ["nonsense", "", None, 3, ["cv"]], ids=repr)
def test_an_unknown_name_lists_the_known_ones(name: str, value: Any) -> None:
    with pytest.raises(CvgnnError) as caught:
        TrainConfig(**{name: value})
    sentence, _, _hint = str(caught.value).partition(" (did you mean ")
    start, _, known = sentence.partition("; known: ")
    assert start == f"unknown {name} {value!r}"
    assert set(known.split(", ")) == set(CHOICES[name])


def test_a_near_miss_gets_a_hint() -> None:
    with pytest.raises(CvgnnError, match=r"unknown optimizer 'amsgrd'; .* \(did you mean 'amsgrad'\?\)"):
        TrainConfig(optimizer="amsgrd")


def test_an_unknown_keyword_of_the_class_itself() -> None:
    with pytest.raises(CvgnnError, match="did you mean 'hidden'"):
        TrainConfig(hiden=3)  # type: ignore[call-arg]
    config = TrainConfig(hidden=5)
    assert copy.deepcopy(config) == pickle.loads(pickle.dumps(config)) == config


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(CvgnnError) as caught:
        TrainConfig(batchsize=3)
    assert str(caught.value).startswith(
        "unknown option 'batchsize'; known: estimator, control, scheme, num_neighbors, "
    )
    assert str(caught.value).endswith("(did you mean 'batch_size'?)")


def test_every_choice_is_that_of_the_part() -> None:
    hints = get_type_hints(TrainConfig)
    choices = {name: get_args(hint) for name, hint in hints.items() if isinstance((*get_args(hint), 0)[0], str)}
    assert choices.keys() == CHOICES.keys()
    for name, names in choices.items():
        assert len(names) == len(set(names))
        assert set(names) == set(CHOICES[name]), name


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, names in CHOICES.items() for v in names])
def test_every_choice_is_taken(name: str, value: str) -> None:
    assert getattr(TrainConfig(**{name: value}), name) == value


@pytest.mark.parametrize(
    "options",
    [
        {"lr": 1, "dropout": 0, "weight_decay": 0, "beta1": 0, "beta2": 0.0, "nu_min": 1},
        {"dropout": 0.999, "beta1": 0.999999, "lr": 1e-300},
        {"batch_size": 1, "epochs": 1, "layers": 1, "hidden": 1, "eval_every": 1, "threads": 1},
        {"num_neighbors": -1},
        {"num_neighbors": (7,), "layers": 1},
        {"num_neighbors": range(1, 4), "layers": 4},
        {"seed": 2**64},
    ],
    ids=str,
)
def test_the_edges_of_what_is_possible(options: dict[str, Any]) -> None:
    config = TrainConfig(**options)
    for name, value in options.items():
        assert getattr(config, name) == value or name == "num_neighbors"


@pytest.mark.parametrize(
    ("given", "kept", "fan_out"),
    [(5, (5,), 5), ([5], (5,), 5), ((5, 3), (5, 3), (5, 3)), ([-1, 2], (-1, 2), (-1, 2))],
)
def test_fan_out(given: Any, kept: tuple[int, ...], fan_out: Any) -> None:
    config = TrainConfig(num_neighbors=given, layers=3)
    assert (config.num_neighbors, config.fan_out) == (kept, fan_out)


def test_a_config_leaves_its_arguments_alone() -> None:
    options = {"num_neighbors": [2, 3], "layers": 3}
    TrainConfig(**options)
    assert options == {"num_neighbors": [2, 3], "layers": 3}


DEFAULTS = TrainConfig()
OTHER = {
    **{name: next(n for n in names if n != getattr(DEFAULTS, name)) for name, names in CHOICES.items()},
    "model": "gcnii",  # sage and gin have a normalization of their own
    "metric": "macro_f1",
    "calibrate": True,
    "norm_every": 17,
    "residual": True,
    "input_layer": True,
    "device": "cuda",
    "num_neighbors": (5, -1, 2),
    "lr": 0.123,
    "control": 0.5,
    "ema": 0.5,
    "beta1": 0.5,
    "beta2": 0.25,
    "nu_min": 1e-3,
    "weight_decay": 0.0625,
    "batch_size": 7,
    "epochs": 9,
    "layers": 3,
    "hidden": 11,
    "bias": not DEFAULTS.bias,
    "dropout": 0.12,
    "input_dropout": 0.13,
    "label_smoothing": 0.14,
    "loss": "custom:focal",
    "class_weight": "1,2.5,1",
    "patience": 8,
    "eval_every": 4,
    "seed": 13,
    "clip_norm": 2.5,
    "inductive": True,
    "threads": 2,
    "val_edges": 0.15,
    "test_edges": 0.25,
    "edge_seed": 3,
    "hits_k": 20,
}


@pytest.mark.parametrize("options", [{}, OTHER], ids=["defaults", "nothing-default"])
def test_round_trip_through_json(options: dict[str, Any]) -> None:
    config = TrainConfig(**options)
    again = TrainConfig(**json.loads(json.dumps(config.to_dict())))
    assert again == config
    assert hash(again) == hash(config)


def test_to_dict_has_every_field() -> None:
    names = [field.name for field in dataclasses.fields(TrainConfig)]
    assert list(DEFAULTS.to_dict()) == names
    assert OTHER.keys() == set(names) - {"sampled_start"}  # which excludes input_layer
    defaults, other = DEFAULTS.to_dict(), TrainConfig(**OTHER).to_dict()
    assert [name for name in names if other[name] == defaults[name]] == ["sampled_start"]
    assert TrainConfig(sampled_start=5).to_dict()["sampled_start"] == 5


def test_a_config_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        TrainConfig().lr = 1.0  # type: ignore[misc]
    with pytest.raises(CvgnnError, match=r"lr must be a number above 0, not -1\.0"):
        dataclasses.replace(TrainConfig(), lr=-1.0)


def test_numbers_of_numpy_become_what_json_can_hold() -> None:
    assert type(TrainConfig(hidden=np.int64(3)).hidden) is int
    assert json.dumps(TrainConfig(lr=np.float64(0.5)).to_dict())  # a float64 is a float


def test_the_config_is_light() -> None:
    """`cvgnn train --help` and a wrong word must not wait for torch."""
    heavy = "[m for m in ('torch', 'numba', 'scipy', 'numpy', 'rich') if m in sys.modules]"
    code = f"import sys; import cvgnn.config; print({heavy})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"dataset": "cora", "graph": Path("g.npz")}, r"either dataset or graph, not both \('cora' and 'g\.npz'\)"),
        ({"graph": Path("g.npz"), "root": Path("r")}, "root goes with dataset, not with graph"),
        ({"directed": "yes"}, "directed must be True or False, not 'yes'"),
        ({"split_seed": -1}, "split_seed must be a whole number of at least 0, not -1"),
        ({"train_fraction": 0.0}, r"train_fraction must be a number in \(0, 1\), not 0\.0"),
        ({"train_fraction": 1.0}, r"train_fraction must be a number in \(0, 1\), not 1\.0"),
        ({"val_fraction": -0.1}, r"val_fraction must be a number in \[0, 1\), not -0\.1"),
        ({"train_fraction": 0.7, "val_fraction": 0.4}, r"must sum to at most 1, not 0\.7 \+ 0\.4"),
        ({"per_class": 0}, "per_class must be a whole number of at least 1, not 0"),
    ],
)
def test_impossible_sources(options: dict[str, Any], said: str) -> None:
    with pytest.raises(CvgnnError, match=said):
        GraphSource(**options)


def test_a_source_without_a_name_is_the_bundled_graph() -> None:
    assert GraphSource().name == GraphSource().to_dict()["dataset"] == "citeseer"
    assert GraphSource(graph=Path("g.npz")).name is None


def test_a_source_is_recorded_with_absolute_paths() -> None:
    recorded = GraphSource(dataset="cora", root=Path("some/where")).to_dict()
    assert recorded["root"] == str(Path("some/where").resolve())
    assert json.loads(json.dumps(recorded)) == recorded
