"""Is a fan-out of 1 enough?

`diagnose_estimator` measures, on your graph and with your settings, how much of a gradient's variance comes from the
sampled neighbors, beside what comes from the batch anyway. Where the neighbors' part is the smaller one, more neighbors
cannot help much. (`cvgnn diagnose estimator --batch-size 20 --fan-outs 1 5` prints more of it.)
"""

import cvgnn
from cvgnn.lab.diagnose import diagnose_estimator

graph = cvgnn.load("citeseer")
config = cvgnn.TrainConfig(batch_size=20, dropout=0.0)
found = diagnose_estimator(graph, config, fan_outs=[[1], [5]], steps=[64], batches=16, test_draws=20)
print(found.verdict)
print()
table = found.tables[0]
for row in [table.header, *table.rows]:
    print("  ".join(cell.ljust(16) for cell in row[:6]).rstrip())
