"""cvgnn: fast training of graph neural networks on large graphs.

Names are imported on first use: `import cvgnn` takes milliseconds, and the first name that needs torch imports it.
"""

import os
import sys
from typing import TYPE_CHECKING

from cvgnn._lazy import lazy_names
from cvgnn._version import __version__ as __version__
from cvgnn.errors import CvgnnError as CvgnnError

if TYPE_CHECKING:
    from cvgnn.api import config_from as config_from
    from cvgnn.api import fit as fit
    from cvgnn.api import load_run as load_run
    from cvgnn.config import TrainConfig as TrainConfig
    from cvgnn.data import Graph as Graph
    from cvgnn.data import Propagation as Propagation
    from cvgnn.data import SparseFeatures as SparseFeatures
    from cvgnn.data import from_edges as from_edges
    from cvgnn.data import from_pyg as from_pyg
    from cvgnn.data.io import read_graph as read_graph
    from cvgnn.data.named import load as load
    from cvgnn.nn import GCN as GCN
    from cvgnn.nn import GCNII as GCNII
    from cvgnn.nn import GIN as GIN
    from cvgnn.nn import SAGE as SAGE
    from cvgnn.nn import ControlVariate as ControlVariate
    from cvgnn.nn import Estimator as Estimator
    from cvgnn.nn import History as History
    from cvgnn.nn import Network as Network
    from cvgnn.nn import SampledSum as SampledSum
    from cvgnn.nn import exact_hidden as exact_hidden
    from cvgnn.nn import exact_logits as exact_logits
    from cvgnn.optim import AdamType as AdamType
    from cvgnn.optim import make_optimizer as make_optimizer
    from cvgnn.registry import register_estimator as register_estimator
    from cvgnn.registry import register_loss as register_loss
    from cvgnn.registry import register_model as register_model
    from cvgnn.registry import register_optimizer as register_optimizer
    from cvgnn.registry import register_task as register_task
    from cvgnn.sampling import BatchLoader as BatchLoader
    from cvgnn.sampling import NeighborSampler as NeighborSampler
    from cvgnn.sampling import propagate_features as propagate_features
    from cvgnn.training import Callback as Callback
    from cvgnn.training import Evaluator as Evaluator
    from cvgnn.training import NodeClassification as NodeClassification
    from cvgnn.training import Task as Task
    from cvgnn.training import Trainer as Trainer
    from cvgnn.training.run import Run as Run

# While torch's OpenMP threads wait they spin by default, which makes small operations up to 100 times slower when
# another process is busy (docs/design.md). OpenMP reads these variables when torch is imported.
_OPENMP = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"}
if "torch" not in sys.modules:
    for _name, _value in _OPENMP.items():
        os.environ.setdefault(_name, _value)
elif any(_name not in os.environ for _name in _OPENMP):
    import logging

    logging.getLogger(__name__).warning(
        "torch was imported before cvgnn, so its threads spin while they wait, which is slow on a busy machine; import "
        "cvgnn first, or set %s before Python starts",
        " ".join(f"{_name}={_value}" for _name, _value in _OPENMP.items()),
    )

_HOMES = {
    "config": ("TrainConfig",),
    "data.named": ("load",),
    "api": ("config_from", "fit", "load_run"),
    "data.io": ("read_graph",),
    "data": ("Graph", "Propagation", "SparseFeatures", "from_edges", "from_pyg"),
    "nn": (
        "GCN", "GCNII", "GIN", "SAGE", "ControlVariate", "Estimator", "History", "Network", "SampledSum",
        "exact_hidden", "exact_logits",
    ),
    "optim": ("AdamType", "make_optimizer"),
    "registry": ("register_estimator", "register_loss", "register_model", "register_optimizer", "register_task"),
    "sampling": ("BatchLoader", "NeighborSampler", "propagate_features"),
    "training": ("Callback", "Evaluator", "NodeClassification", "Task", "Trainer"),
    "training.run": ("Run",),
}  # fmt: skip
__getattr__, _HOME_OF, _names = lazy_names(__name__, _HOMES)
__all__ = ["CvgnnError", "__version__", *_names]


def __dir__() -> list[str]:
    return sorted(__all__)
