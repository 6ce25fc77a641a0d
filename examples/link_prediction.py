"""Link prediction: which papers cite each other?

Labels of nodes are not used. A tenth of the citations is held out of the graph for the test; the network scores them
against pairs that are no citations. Then the model says which other papers are most like those that a paper cites.
"""

import cvgnn
import torch

graph = cvgnn.load("citeseer")
run = cvgnn.fit(graph, task="link", hidden=64, epochs=20)
print(f"test AUC {run.result['test_roc_auc']:.3f}, average precision {run.result['output_test_average_precision']:.3f}")

paper = int(graph.degree.argmax())  # the paper with the most citations
known = set(graph.indices[graph.indptr[paper] : graph.indptr[paper + 1]].tolist()) | {paper}
others = [v for v in range(graph.num_nodes) if v not in known]
scores = run.predict_proba([[paper, v] for v in others])
best = torch.topk(scores, 3)
print(f"paper {paper} has {len(known) - 1} citations; the likeliest others:")
for place, score in zip(best.indices.tolist(), best.values.tolist(), strict=True):
    print(f"  paper {others[place]}, probability {score:.4f}")
