"""Whole runs: from a config to a trained model and its record."""

from cvgnn.experiments.run import Run as Run
from cvgnn.experiments.run import fit as fit
from cvgnn.experiments.run import train as train
