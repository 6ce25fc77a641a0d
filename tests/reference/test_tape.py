from __future__ import annotations

import numpy as np

from cvgnn.reference.tape import Node, concatenate, derivatives


def test_every_operation_is_the_finite_difference() -> None:
    rng = np.random.default_rng(0)
    values = [rng.normal(size=shape) for shape in ((3, 2), (2, 4), (4,), (1,))]
    C, R = rng.normal(size=(3, 4)), rng.normal(size=(4, 8))

    def formula(a: Node, W: Node, b: Node, eps: Node) -> Node:
        Z = (1.0 + eps) * (a @ W) - C + b
        return concatenate([Z, Z * C])[np.array([2, 0, 2, 1])] * R  # Z is used twice, row 2 too

    nodes = [Node(value) for value in values]
    output = formula(*nodes)
    d = derivatives(output, np.ones_like(output.value))
    for i, value in enumerate(values):
        assert d[nodes[i]].shape == value.shape
        for index in np.ndindex(*value.shape):
            sums = []
            for h in (1e-5, -1e-5):
                moved = [v.copy() for v in values]
                moved[i][index] += h
                sums.append(formula(*map(Node, moved)).value.sum())
            np.testing.assert_allclose(d[nodes[i]][index], (sums[0] - sums[1]) / 2e-5, rtol=1e-8, atol=1e-8)
