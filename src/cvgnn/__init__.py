"""cvgnn: fast training of graph neural networks on large graphs.

Nothing is imported until it is used: `import cvgnn` takes milliseconds, the first name that needs torch loads it.
"""

import importlib
from typing import TYPE_CHECKING, Any

from cvgnn._version import __version__ as __version__
from cvgnn.errors import CvgnnError as CvgnnError

if TYPE_CHECKING:
    from cvgnn.config import TrainConfig as TrainConfig
    from cvgnn.datasets import load as load
    from cvgnn.experiments import Run as Run
    from cvgnn.experiments import fit as fit
    from cvgnn.files import read_graph as read_graph
    from cvgnn.graph import Graph as Graph
    from cvgnn.graph import Propagation as Propagation
    from cvgnn.graph import SparseFeatures as SparseFeatures
    from cvgnn.graph import from_edges as from_edges
    from cvgnn.graph import from_pyg as from_pyg
    from cvgnn.nn import GCN as GCN
    from cvgnn.nn import GCNII as GCNII
    from cvgnn.nn import GIN as GIN
    from cvgnn.nn import SAGE as SAGE
    from cvgnn.nn import ControlVariate as ControlVariate
    from cvgnn.nn import History as History
    from cvgnn.nn import Network as Network
    from cvgnn.nn import SampledSum as SampledSum
    from cvgnn.nn import exact_hidden as exact_hidden
    from cvgnn.nn import exact_logits as exact_logits
    from cvgnn.optim import AdamType as AdamType
    from cvgnn.optim import make_optimizer as make_optimizer
    from cvgnn.sampling import BatchLoader as BatchLoader
    from cvgnn.sampling import NeighborSampler as NeighborSampler
    from cvgnn.sampling import propagate_features as propagate_features
    from cvgnn.training import Evaluator as Evaluator
    from cvgnn.training import Trainer as Trainer

_HOMES = {
    "config": ("TrainConfig",),
    "datasets": ("load",),
    "experiments": ("Run", "fit"),
    "files": ("read_graph",),
    "graph": ("Graph", "Propagation", "SparseFeatures", "from_edges", "from_pyg"),
    "nn": (
        "GCN",
        "GCNII",
        "GIN",
        "SAGE",
        "ControlVariate",
        "History",
        "Network",
        "SampledSum",
        "exact_hidden",
        "exact_logits",
    ),
    "optim": ("AdamType", "make_optimizer"),
    "sampling": ("BatchLoader", "NeighborSampler", "propagate_features"),
    "training": ("Evaluator", "Trainer"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = ["CvgnnError", "__version__", *_HOME_OF]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'cvgnn' has no attribute {name!r}")
    return getattr(importlib.import_module(f"cvgnn.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
