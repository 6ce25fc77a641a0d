"""Data sets by name."""

from cvgnn.data.named.dataset_loader import DATASETS as DATASETS
from cvgnn.data.named.dataset_loader import load as load
