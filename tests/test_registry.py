"""Parts of the user's own by name: registries, `--plugin`, and sweeps."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import cvgnn
from cvgnn import registry
from cvgnn.cli.main import main
from cvgnn.config import REGISTERED
from cvgnn.errors import CvgnnError

PLUGIN = """
import torch
import cvgnn

class Doubled(cvgnn.GCN):
    def forward(self, batch, estimator):
        return 2 * super().forward(batch, estimator)

cvgnn.register_model("doubled", Doubled)
cvgnn.register_optimizer("adamax", torch.optim.Adamax)
cvgnn.register_estimator("plain", cvgnn.SampledSum)
cvgnn.register_loss("margin", torch.nn.functional.multi_margin_loss)
"""
OWN = ["--model", "doubled", "--optimizer", "adamax", "--estimator", "plain", "--loss", "margin"]


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module `my_parts` in the current folder; what it registers is removed afterwards."""
    (tmp_path / "my_parts.py").write_text(PLUGIN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(registry, "PLUGINS", registry.PLUGINS)
    yield tmp_path
    sys.modules.pop("my_parts", None)
    registry.PLUGINS.clear()
    for known in REGISTERED.values():
        known.clear()


def test_a_plugin_on_the_command_line(plugin: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", *OWN]) == 2  # not without the plugin
    assert "unknown " in capsys.readouterr().err
    options = ["--epochs", "2", "--hidden", "4", "--beta1", "None"]
    assert main(["train", "--plugin", "my_parts", *OWN, *options, "--out", "a"]) == 0
    config, result = (json.loads((plugin / "a" / name).read_text()) for name in ("config.json", "result.json"))
    assert [config[name] for name in ("model", "optimizer", "estimator", "loss")] == [
        "doubled", "adamax", "plain", "margin",
    ]  # fmt: skip
    assert result["command"].endswith("--plugin my_parts")
    # The run names its parts; only the user names the plugin.
    for known in REGISTERED.values():
        known.clear()
    assert main(["predict", "a"]) == 2
    assert "if it is your own, name the module that registers it with --plugin" in capsys.readouterr().err
    del sys.modules["my_parts"]
    assert main(["train", "--plugin=my_parts", "--resume", "a", "--epochs", "3"]) == 0
    assert main(["predict", "a", "--nodes", "3", "--plugin", "my_parts"]) == 0


def test_a_sweep_over_a_name_of_ones_own(plugin: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--grid", "optimizer=adamax,sgd", "--set", "epochs=2", "hidden=4", "--out", "s", "--workers", "1"]
    assert main(["sweep", "--plugin", "my_parts", *words]) == 0
    assert "adamax" in capsys.readouterr().out


def test_a_changed_plugin_is_another_run(plugin: Path) -> None:
    registry.import_plugin("my_parts")
    first = registry.plugins_digest()
    (plugin / "my_parts.py").write_text(PLUGIN + "# changed\n")
    assert first is not None
    assert registry.plugins_digest() != first
    registry.PLUGINS.clear()
    assert registry.plugins_digest() is None


def test_python_uses_the_same_names(plugin: Path) -> None:
    cvgnn.register_optimizer("adamax", torch.optim.Adamax)
    run = cvgnn.fit(cvgnn.load("citeseer"), optimizer="adamax", epochs=2, hidden=4)
    assert run.result["optimizer"] == "Adamax"
    with pytest.raises(CvgnnError, match="cannot make the optimizer 'adamax' with lr, beta1, weight_decay"):
        cvgnn.fit(cvgnn.load("citeseer"), optimizer="adamax", beta1=0.5, epochs=2)


@pytest.mark.parametrize(
    ("module", "said"),
    [
        ("not_there", "there is no module 'not_there' for --plugin in "),
        ("my_parts.py", "(without .py: --plugin my_parts)"),
        ("./my_parts", "--plugin takes the name of a module, such as my_parts"),
        ("", "--plugin takes the name of a module"),
        ("broken", "the plugin 'broken' needs the package 'not_installed'"),
    ],
)
def test_no_plugin(plugin: Path, module: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    (plugin / "broken.py").write_text("import not_installed\n")
    assert main(["train", "--plugin", module]) == 2
    assert said in capsys.readouterr().err


def test_names_that_are_taken_or_no_names() -> None:
    with pytest.raises(CvgnnError, match="model 'gcn' is built in; register yours under another name"):
        cvgnn.register_model("gcn", cvgnn.GCN)
    with pytest.raises(CvgnnError, match="loss 'cross-entropy' is built in"):
        cvgnn.register_loss("cross-entropy", print)
    for name in ("", "a,b", "custom:x"):
        with pytest.raises(CvgnnError, match="estimator must have a name without commas"):
            cvgnn.register_estimator(name, cvgnn.SampledSum)
    with pytest.raises(CvgnnError, match="optimizer 'mine' needs a class or a function, not 3"):
        cvgnn.register_optimizer("mine", 3)  # type: ignore[arg-type]
