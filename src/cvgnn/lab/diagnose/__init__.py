"""Diagnosis: the estimator's bias and variance, the histories' age, the convergence rate, the theorem's constants.

A diagnosis is one file: `estimator.py`, `history_error.py`, `bias_vs_lr.py`, `rate.py`, `bound.py`. Each has the same
parts, and takes what is shared from the files named here:

    diagnose_*   check the arguments, measure, put the `Diagnosis` together
    measure      numbers of one trainer at one step, or of one run. `trainers.py` gives trainers in float64, fresh or
                 from a checkpoint, paused at given steps; `theory.py` Algorithm 1 to the letter, and Theorems 1 to 4;
                 `gradient.py` has `F`, its gradient and curvature; `workers.py` spreads seeds over processes
    estimates    a number and its interval: `estimates.py` (jackknife, bootstrap, slopes), `error_split.py` and
                 `gradient_errors.py` (bias^2, the batch's and the neighbors' part), `bias.py`, `ztest.py` (E[P^] = P)
    views        verdict, tables and charts of these numbers: `record.py`, with the captions in `texts.toml`
"""

from cvgnn.lab.diagnose.bias_vs_lr import diagnose_bias as diagnose_bias
from cvgnn.lab.diagnose.bound import diagnose_bound as diagnose_bound
from cvgnn.lab.diagnose.estimator import diagnose_estimator as diagnose_estimator
from cvgnn.lab.diagnose.gradient import Gradient as Gradient
from cvgnn.lab.diagnose.gradient import Objective as Objective
from cvgnn.lab.diagnose.gradient import batch_gradient as batch_gradient
from cvgnn.lab.diagnose.history_error import diagnose_history as diagnose_history
from cvgnn.lab.diagnose.rate import diagnose_rate as diagnose_rate
from cvgnn.lab.diagnose.record import Diagnosis as Diagnosis
