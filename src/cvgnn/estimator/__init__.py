"""Estimators of the exact aggregation, and the histories that the control variate keeps."""

from cvgnn.estimator.estimators import ESTIMATORS as ESTIMATORS
from cvgnn.estimator.estimators import ControlVariate as ControlVariate
from cvgnn.estimator.estimators import Estimator as Estimator
from cvgnn.estimator.estimators import EstimatorName as EstimatorName
from cvgnn.estimator.estimators import SampledSum as SampledSum
from cvgnn.estimator.history import History as History
