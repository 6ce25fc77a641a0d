"""Good settings in so many minutes.

`tune` tries settings that suit your graph, the defaults first, and keeps the best by validation accuracy. Here it has
seconds; give it minutes. (`cvgnn tune --graph my_graph.npz --minutes 20` is the same.)
"""

import cvgnn
from cvgnn.lab.search.tuner import tune

graph = cvgnn.load("citeseer")
found = tune(graph, "tuned", minutes=0.1, options={"epochs": 20}, sampler_seed=0)
print(f"{len(found.trials)} settings tried")
run = cvgnn.fit(graph, config=cvgnn.config_from("tuned/best.toml"))
print(f"the best: validation {run.result['val_accuracy']:.1%}, test {run.result['test_accuracy']:.1%}")
print(f"lr {run.config.lr:.3g}, dropout {run.config.dropout:.2f}, hidden {run.config.hidden}, norm {run.config.norm}")
