"""Diagnosis: the estimator's bias and variance, the histories' age, the convergence rate, the theorem's constants."""

from cvgnn.diagnose.bias_vs_lr import diagnose_bias as diagnose_bias
from cvgnn.diagnose.bound_vs_theory import diagnose_bound as diagnose_bound
from cvgnn.diagnose.estimator import diagnose_estimator as diagnose_estimator
from cvgnn.diagnose.gradient import FullGradient as FullGradient
from cvgnn.diagnose.gradient import Gradient as Gradient
from cvgnn.diagnose.gradient import batch_gradient as batch_gradient
from cvgnn.diagnose.history import diagnose_history as diagnose_history
from cvgnn.diagnose.rate_vs_steps import diagnose_rate as diagnose_rate
from cvgnn.diagnose.record import Diagnosis as Diagnosis
