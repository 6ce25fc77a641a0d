"""A graph that is bigger than memory.

A store is a folder of arrays that are mapped, not read. A compact store holds only what training reads of a graph with
few labels, `P X` among it, and histories can be in a mapped file too. This graph is small, so that the example runs in
seconds; the steps are those for a large one.
"""

from pathlib import Path

import cvgnn
from cvgnn.data.named.synthetic import SyntheticSpec, generate_store
from cvgnn.data.store import compact_store, open_store


def size(folder: str) -> str:
    return f"{sum(f.stat().st_size for f in Path(folder).iterdir()) / 1e6:.1f} MB"


counts = {"num_nodes": 50_000, "num_edges": 500_000, "train": 600, "val": 600, "test": 600}
spec = SyntheticSpec(**counts, num_features=64, num_classes=8)
generate_store(spec, Path("whole"))  # your own tables: cvgnn convert tables whole --memory 8G
graph = open_store("whole")
print(graph, size("whole"))

# What a network of two layers reads: the nodes of the split, and their neighbors.
compact_store(graph, Path("part"), hops=1, propagate="symmetric")
part = open_store("part")
print(part, size("part"))

run = cvgnn.fit(part, model="gcn", epochs=20, histories="disk", out="run")
print(f"test accuracy {run.result['test_accuracy']:.1%}")
# The part and the whole have the same weights in P, so that the model predicts every node of the whole graph.
print("classes of nodes 0 to 4:", cvgnn.load_run("run", graph).predict(range(5)).tolist())
