"""From a PyG `Data` and back.

A PyG graph goes into `fit` as it is. What the model says about each node goes back into the `Data`, for the rest of
your PyG code; `cvgnn.to_pyg` makes a `Data` of any of cvgnn's graphs.
"""

import cvgnn
import torch
from torch_geometric.data import Data
from torch_geometric.nn import LabelPropagation

torch.manual_seed(0)
N = 600
y = torch.arange(N) % 3
pairs = torch.randint(0, N, (2, 12_000))
pairs = pairs[:, (y[pairs[0]] == y[pairs[1]]) | (torch.rand(12_000) < 0.15)]
part = torch.rand(N)
x = torch.nn.functional.one_hot(y, 3) + 2 * torch.randn(N, 3)
data = Data(x=x, edge_index=torch.cat([pairs, pairs.flip(0)], dim=1), y=y)
data.train_mask, data.val_mask, data.test_mask = part < 0.1, (part >= 0.1) & (part < 0.3), part >= 0.3
print(data)

run = cvgnn.fit(data, epochs=30)
print(f"cvgnn: test accuracy {run.result['test_accuracy']:.1%}")

data.probability, data.embedding = run.predict_proba(), run.embed(layer=1)
print(data)
print(cvgnn.to_pyg(run.graph))

smooth = LabelPropagation(num_layers=2, alpha=0.5)  # one of PyG's own, to compare
scores = smooth(data.y, data.edge_index, mask=data.train_mask)
right = (scores.argmax(dim=1) == y)[data.test_mask]
print(f"PyG's label propagation: {right.float().mean():.1%}")
