"""Several labels a node, one of them rare.

A matrix of 0 and 1 as `y` makes a multi-label task. Without weights a rare label is hardly predicted;
`class_weight="balanced"` weighs it up. Compare both on your validation nodes: weights cost precision.
"""

import cvgnn
import numpy as np
import scipy.sparse as sp

rng = np.random.default_rng(0)
N = 2000
x = rng.normal(size=(N, 8)).astype(np.float32)
near = np.argsort(x[:, 0] + 0.1 * rng.normal(size=N))  # nodes with a similar first feature are neighbors
rows = np.concatenate([near[:-1], near[:-2]])
columns = np.concatenate([near[1:], near[2:]])
A = sp.coo_array((np.ones(len(rows)), (rows, columns)), shape=(N, N)).tocsr()
noise = rng.normal(size=(N, 3))
y = np.stack([x[:, 0] > 0, x[:, 1] + noise[:, 1] > 0, x[:, 0] + 0.5 * noise[:, 2] > 1.9], axis=1)
print(f"share of nodes with each label: {y.mean(axis=0).round(3).tolist()}")

for weight in (None, "balanced"):
    run = cvgnn.fit(A + A.T, x=x, y=y, class_weight=weight, metric="macro_f1", epochs=20)
    table = run.result["per_class"]  # on the test nodes
    print(f"class_weight={weight}: test macro F1 {run.result['test_macro_f1']:.3f},", end=" ")
    print(f"the rare label's precision {table['precision'][2]:.2f}, recall {table['recall'][2]:.2f}")
