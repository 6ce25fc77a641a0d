"""The layer of one's own in docs/layers.md, run as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

import cvgnn
from cvgnn.nn import exact_logits

PAGE = Path(__file__).parents[1] / "docs" / "layers.md"


def test_a_layer_of_ones_own(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    names: dict[str, object] = {}
    exec(code, names)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 20
    assert float(lines[-1].split()[2]) > 0.5  # far above the sixth that is chance
    model, features, P, graph = names["model"], names["features"], names["P"], names["graph"]
    layer, head = model.layer(0), model.layer(1)  # type: ignore[attr-defined]
    X, M = graph.x.to_dense(), P.dense()  # type: ignore[attr-defined]
    with torch.no_grad():  # exact inference against the formula written out
        H = torch.relu(layer.norm((M @ X + layer.share * X) @ layer.weight + layer.bias))
        expected = (M @ H + head.share * H) @ head.weight + head.bias
        assert abs(float(layer.share)) > 1e-3
    torch.testing.assert_close(exact_logits(model, features, P), expected, rtol=0, atol=1e-4)  # type: ignore[arg-type]


def test_the_pieces_and_fit_build_the_same_network() -> None:
    """Defaults of the pieces are the fixed ones of `fit`."""
    graph = cvgnn.load("citeseer")
    run = cvgnn.fit(graph, defaults="fixed", epochs=3, output="last")
    model = cvgnn.GCN(in_channels=graph.num_features, out_channels=graph.num_classes)
    P = cvgnn.Propagation(graph)
    features = cvgnn.propagate_features(graph, P)
    cv = cvgnn.ControlVariate(features, model.hidden_widths)
    cv.initialize(cvgnn.exact_hidden(model, features, P))
    trainer = cvgnn.Trainer(
        model=model,
        estimator=cv,
        loader=cvgnn.BatchLoader(graph.train_ids, cvgnn.NeighborSampler(P, num_layers=model.num_layers)),
        optimizer=cvgnn.make_optimizer("adam", model.parameters(), weight_decay=5e-4),
        task=cvgnn.NodeClassification(graph),
    )
    list(trainer.epochs(3))
    expected = run.model.state_dict()
    assert expected.keys() == model.state_dict().keys()
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, expected[name]), name
