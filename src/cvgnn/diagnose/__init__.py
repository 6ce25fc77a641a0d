"""Diagnosis: the estimator's bias and variance, the histories' age, the convergence rate, the theorem's constants."""

from cvgnn.diagnose.gradient import FullGradient as FullGradient
from cvgnn.diagnose.gradient import Gradient as Gradient
from cvgnn.diagnose.gradient import batch_gradient as batch_gradient
from cvgnn.diagnose.record import Diagnosis as Diagnosis
