"""The exported programs give what exact inference gives, in every format, and the folder is complete."""

from __future__ import annotations

import inspect
import json
import re
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch import Tensor, nn

from cvgnn.cli.main import main
from cvgnn.errors import CvgnnError
from cvgnn.export.dense_part import DenseLayer, _onnx, dense_layers, export_run
from cvgnn.export.hub import push_to_hub
from cvgnn.nn import Affine, Conv, Inputs, Network
from cvgnn.training.run import Run
from tests.serving.runs import N, small_graph, small_run
from tests.training.test_edge_tasks import random_links

PAGE = Path(__file__).parents[2] / "docs" / "export.md"
Compute = Callable[[DenseLayer, list[Tensor]], Tensor]
OPTIONS: dict[str, dict[str, Any]] = {
    "gcn, LayerNorm": {"norm": "layer"},
    "sage, residual, BatchNorm": {"model": "sage", "residual": True, "norm": "batch"},
    "gin, three layers": {"model": "gin", "layers": 3, "activation": "elu"},
    "gcnii": {"model": "gcnii", "layers": 2},
    "jumping knowledge, gelu": {"jk": "concat", "layers": 3, "activation": "gelu"},
    "an input layer, no bias": {"input_layer": True, "bias": False},
    "one layer": {"layers": 1},
    "temperature": {"calibrate": True},
    "random walk, normed features": {"normalization": "random-walk", "feature_norm": "l2"},
    "a number": {"graph": small_graph(y=100 + 30 * np.random.default_rng(0).normal(size=N))},
    "two numbers, no norm": {"graph": small_graph(y=np.random.default_rng(0).normal(size=(N, 2))), "norm": "none"},
}


def scores(run: Run, layers: list[DenseLayer], compute: Compute) -> Tensor:
    """The programs with the run's own sparse products between them."""
    X = run.graph.x.clone()  # type: ignore[union-attr]
    if run.config.feature_norm == "l2":
        X /= X.norm(dim=1, keepdim=True)
    values = {"X": X}
    for layer in layers:
        rows = []
        for name in layer.inputs:
            if name not in values:
                values[name] = run.propagation.product(values[name[1:]])
            rows.append(values[name])
        values[layer.output] = compute(layer, rows)
    return values["scores"]


def onnx(layer: DenseLayer, rows: list[Tensor]) -> Tensor:
    import onnxruntime

    session = onnxruntime.InferenceSession(_onnx(layer), providers=["CPUExecutionProvider"])
    inputs = dict(zip(layer.inputs, (tensor.numpy() for tensor in rows), strict=True))
    (found,) = session.run([layer.output], inputs)
    return torch.from_numpy(found)


@pytest.mark.parametrize("compute", [lambda layer, rows: layer(*rows), onnx], ids=["torch", "onnx"])
@pytest.mark.parametrize("name", OPTIONS)
def test_equal_to_exact_inference(name: str, compute: Compute) -> None:
    run = small_run(**OPTIONS[name])
    expected = run.task.scores(run.outputs(), run.model.readout)  # type: ignore[attr-defined]
    found = scores(run, dense_layers(run), compute)
    assert float((found - expected).abs().max() / expected.abs().max()) < 1e-5


def test_a_pt2_file(tmp_path: Path) -> None:
    """It computes any number of rows, and holds no pickle."""
    run = small_run(norm="layer")
    layers = export_run(run, tmp_path / "out", format="torch-export")
    names = {layer.output: f"{layer.output}.pt2" for layer in layers}
    found = scores(
        run, layers, lambda layer, rows: torch.export.load(tmp_path / "out" / names[layer.output]).module()(*rows)
    )
    assert float((found - run.outputs()).abs().max() / found.abs().max()) < 1e-5
    for name in names.values():
        with zipfile.ZipFile(tmp_path / "out" / name) as archive:
            pickles = [member for member in archive.infolist() if member.filename.endswith((".pt", ".pkl"))]
            assert sum(member.file_size for member in pickles) == 0  # torch keeps a place for sample inputs


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    assert main(["train", "--epochs", "2", "--hidden", "8", "--out", str(out), "--quiet"]) == 0
    for format, files in (("safetensors", ["model.safetensors"]), ("onnx", ["H1.onnx", "scores.onnx"])):
        capsys.readouterr()
        folder = tmp_path / format
        assert main(["export", str(out), "--out", str(folder), "--format", format, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["layers"] == {"H1": ["PX"], "scores": ["PH1"]}
        assert sorted(path.name for path in folder.iterdir()) == sorted([*files, "README.md", "model.json"])
    program = json.loads((tmp_path / "safetensors" / "model.json").read_text())
    weights = load_file(tmp_path / "safetensors" / "model.safetensors")
    named = {
        name
        for layer in program["layers"]
        for step in layer["steps"]
        for name in [*step["terms"].values(), step["bias"]]
    }
    assert named == set(weights)
    data = (tmp_path / "onnx" / "H1.onnx").read_bytes()
    assert not [name for name in (str(tmp_path), str(Path.cwd()), ".py") if name.encode() in data]  # of this machine
    assert main(["export", str(out), "--out", str(folder)]) == 2
    assert "is not empty; choose another --out" in capsys.readouterr().err


class Squared(Conv):
    """A layer that does more than multiply."""

    def forward(self, x: Inputs) -> Affine:
        """See `Conv.forward`."""
        return Affine(((x.aggregate**2, self.weight),), self.bias)  # type: ignore[operator]


class Doubled(Conv):
    """A layer of one's own with tensors alone."""

    def forward(self, x: Inputs) -> Tensor:
        """See `Conv.forward`."""
        return x.aggregate @ self.weight + x.aggregate @ (2 * self.weight)


def test_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The example of docs/export.md, as it stands: NumPy and SciPy give the scores of exact inference."""
    monkeypatch.chdir(tmp_path)
    assert main(["train", "--epochs", "3", "--hidden", "8", "--norm", "layer", "--out", "runs/a", "--quiet"]) == 0
    assert main(["export", "runs/a", "--out", "exported"]) == 0
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    capsys.readouterr()
    names: dict[str, Any] = {}
    exec(example, names)
    assert float(capsys.readouterr().out.split()[-1]) < 1e-5 * abs(names["scores"]).max()


def test_layers_of_ones_own() -> None:
    def network(kind: type[Conv]) -> Callable[..., Network]:
        return lambda **options: Network(kind, **options)

    run = small_run(model=network(Doubled))
    found = scores(run, dense_layers(run), lambda layer, rows: layer(*rows))
    np.testing.assert_allclose(found, run.outputs(), rtol=1e-5, atol=1e-5)
    model = run.model
    for k in range(model.num_layers):
        model.layers[k].__class__ = Squared
    with pytest.raises(CvgnnError, match="layer 1, a Squared, does more than multiply its inputs and activate"):
        dense_layers(run)


def test_what_is_refused() -> None:
    with pytest.raises(CvgnnError, match="a run of task 'link' cannot be exported: only tasks with labels at nodes"):
        dense_layers(small_run(graph=random_links(), task="link"))
    run = small_run()
    run.model.readout = nn.Linear(3, 3)
    with pytest.raises(CvgnnError, match="the head Linear is not one of cvgnn's own"):
        dense_layers(run)


class LocalHub:
    """What `push_to_hub` uses of `HfApi`, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def create_repo(self, repo_id: str, **options: Any) -> None:
        from huggingface_hub import HfApi

        inspect.signature(HfApi.create_repo).bind(self, repo_id, **options)
        (self.folder / repo_id).mkdir(parents=True, exist_ok=options["exist_ok"])
        assert options["private"]

    def upload_folder(self, **options: Any) -> str:
        from huggingface_hub import HfApi

        inspect.signature(HfApi.upload_folder).bind(self, **options)
        place = self.folder / options["repo_id"]
        shutil.copytree(options["folder_path"], place, dirs_exist_ok=True)
        return place.as_uri()


def test_push_to_a_local_folder(tmp_path: Path) -> None:
    export_run(small_run(), tmp_path / "out", format="safetensors", files=[("README.md", b"# card\n")])
    hub = LocalHub(tmp_path / "hub")
    address = push_to_hub(tmp_path / "out", "me/model", api=hub)
    assert address == (tmp_path / "hub" / "me" / "model").as_uri()
    names = sorted(path.name for path in (tmp_path / "hub" / "me" / "model").iterdir())
    assert names == ["README.md", "model.json", "model.safetensors"]
    with pytest.raises(CvgnnError, match=r"has no model\.json"):
        push_to_hub(tmp_path, "me/model", api=hub)
    with pytest.raises(CvgnnError, match="must be USER/NAME"):
        push_to_hub(tmp_path / "out", "model", api=hub)
    with pytest.raises(CvgnnError, match=r"cannot upload to me/other: .*; the folder .* is complete"):
        push_to_hub(tmp_path / "out", "me/other", api=object())
