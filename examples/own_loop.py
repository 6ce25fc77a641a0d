"""A training loop of your own.

The pieces that `fit` puts together, in a plain torch loop: `P X` (layer 0 is exact), a sampler, a loader, and the
control variate, which has the histories. Head, loss and optimizer are any of torch's.
"""

import cvgnn
import torch

torch.manual_seed(0)
graph = cvgnn.load("citeseer")
P = cvgnn.Propagation(graph)
features = cvgnn.propagate_features(graph, P)  # P X, once
cv = cvgnn.ControlVariate(features, widths=[64])  # histories of one hidden layer
sampler = cvgnn.NeighborSampler(P, num_neighbors=2, num_layers=2)
loader = cvgnn.BatchLoader(graph.train_ids, sampler, batch_size=60)

W = torch.nn.Parameter(0.01 * torch.randn(graph.num_features, 64))
head = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, graph.num_classes))
optimizer = torch.optim.Adam([W, *head.parameters()], lr=0.01, weight_decay=0.005)


def exact_hidden() -> torch.Tensor:
    """H of all nodes."""
    with torch.no_grad():
        return torch.relu(features.span(0, graph.num_nodes) @ W)


cv.initialize([exact_hidden()])  # histories start from an exact pass
for epoch in range(20):
    for batch in loader:
        H = torch.relu(cv.input(batch) @ W)  # of the batch and its sampled neighbors
        logits = head(cv.aggregate(1, batch, H))  # sampled neighbors + control variate
        loss = torch.nn.functional.cross_entropy(batch.select(logits), graph.y[batch.ids])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        cv.commit(batch.step)  # histories move only now
    if epoch % 5 == 4:
        with torch.no_grad():  # exact: all neighbors of all nodes
            right = head(P.product(exact_hidden())).argmax(dim=1) == graph.y
        accuracy = right[graph.test_ids].float().mean()
        print(f"epoch {epoch + 1}: loss {loss.item():.3f}, test accuracy {accuracy:.1%}")
