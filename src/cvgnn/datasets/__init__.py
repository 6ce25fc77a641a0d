"""Data sets by name."""

from cvgnn.datasets.registry import DATASETS as DATASETS
from cvgnn.datasets.registry import load as load
