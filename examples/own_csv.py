"""From your own CSV files to predictions.

A folder with `nodes.csv` and `edges.csv` is a graph. Columns may be numbers, words or dates; labels may be missing, and
the model predicts them. Here: customers who call each other, and which of two tariffs they have. On the command line it
is `cvgnn inspect phone`, `cvgnn train --graph phone --out run` and `cvgnn predict run --out predictions.csv`.
"""

import random
from pathlib import Path

import cvgnn

# Two tables, as a database would give them. Every tenth customer's tariff is not known.
random.seed(0)
kind = {f"c{i}": random.choice(["family", "business"]) for i in range(400)}
Path("phone").mkdir()
with open("phone/nodes.csv", "w") as nodes:
    print("id,age,city,calls_per_week,label", file=nodes)
    for i, (name, label) in enumerate(kind.items()):
        calls = random.gauss(20 if label == "family" else 30, 10)
        city = random.choice(["Bonn", "Ulm", "Kiel"])
        print(f"{name},{random.gauss(45, 12):.0f},{city},{calls:.1f},{label if i % 10 else ''}", file=nodes)
with open("phone/edges.csv", "w") as edges:
    print("source,target", file=edges)
    for _ in range(2500):
        a, b = random.sample(sorted(kind), 2)
        if kind[a] == kind[b] or random.random() < 0.3:  # customers of a kind call each other more often
            print(f"{a},{b}", file=edges)

graph = cvgnn.read_graph("phone")
print(graph)
run = cvgnn.fit(graph, epochs=30, out="run")  # the folder `run` keeps everything
print(f"test accuracy {run.result['test_accuracy']:.0%}")

unknown = [v for v in range(graph.num_nodes) if graph.y[v] < 0]
names = graph.node_names[unknown]
classes = [graph.class_names[c] for c in run.predict(unknown)]
probabilities = run.predict_proba(unknown).max(dim=1).values
for i in range(5):
    print(f"{names[i]}: {classes[i]} ({probabilities[i]:.0%})")
right = sum(kind[name] == tariff for name, tariff in zip(names, classes, strict=True))
print(f"{right} of {len(unknown)} customers without a known tariff are predicted rightly")
