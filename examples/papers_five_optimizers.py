"""The paper's five optimizers, side by side.

Adam, heavy-ball, AMSGrad, AdaGrad and SGD with the settings of the paper's Appendix B for CiteSeer, and our unbiased
neighbor draw. Each runs once here, for 40 epochs of the paper's 100, so a difference of a point means nothing; `cvgnn
reproduce --dataset citeseer --runs 3` makes the paper's table.
"""

from dataclasses import replace

import cvgnn
from cvgnn.lab.recipes import PAPER_OPTIMIZERS, paper_recipe

graph = cvgnn.load("citeseer")
print("optimizer   rate  first loss  last loss  best validation  test then")
for name in PAPER_OPTIMIZERS:
    losses: list[float] = []
    config = replace(paper_recipe("citeseer", name), epochs=40)
    run = cvgnn.fit(graph, config=config, on_epoch=lambda record, losses=losses: losses.append(record.loss))
    validation, test = run.result["val_accuracy"], run.result["test_accuracy"]
    print(f"{name:10}  {config.lr:4}  {losses[0]:10.3f}  {losses[-1]:9.3f}  {validation:15.1%}  {test:9.1%}")
