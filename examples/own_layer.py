"""A layer of your own on the control variate.

A layer says what `Z` is, given the aggregated rows and the node's own rows. Sampling, histories, the fast path and
exact evaluation come with it. This one adds a learned share of the node itself to the mean of its neighbors.
"""

import cvgnn
import torch
from cvgnn.nn import Affine, Conv, Inputs


class OwnShareConv(Conv):
    """Z = (S + share H) W + b."""

    normalization = "mean"  # S is the mean of the neighbors
    uses_own = True  # the layer reads H, the node's own row
    only_multiplies = True  # nothing but products is done with S: the sum is fused with them

    def __init__(self, in_channels: int, out_channels: int, **options: object) -> None:
        super().__init__(in_channels, out_channels, **options)
        self.share = torch.nn.Parameter(torch.ones(1))

    def forward(self, x: Inputs) -> Affine:
        return Affine(((x.aggregate, self.weight), (x.own, self.share * self.weight)), self.bias)


def network(**options: object) -> cvgnn.Network:
    return cvgnn.Network(OwnShareConv, **options)


graph = cvgnn.load("citeseer")
run = cvgnn.fit(graph, model=network, epochs=40)
print(f"test accuracy {run.result['test_accuracy']:.1%}")
for k in range(2):
    print(f"layer {k}: share {run.model.layer(k).share.item():.2f}")
