"""CiteSeer in ten lines.

A graph network learns to which of six fields each of 3,327 papers belongs, from its words and its citations. Only 120
papers have a label to learn from. `fit` chooses settings that suit this graph.
"""

import cvgnn

graph = cvgnn.load("citeseer")
print(graph)
run = cvgnn.fit(graph)
print(f"test accuracy {run.result['test_accuracy']:.1%} at the best validation epoch, {run.result['best_epoch']}")
print("classes of papers 0 to 4:", run.predict(range(5)).tolist())
print("probabilities of paper 0:", [round(p, 2) for p in run.predict_proba([0])[0].tolist()])
