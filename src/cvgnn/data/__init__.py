"""Graphs and the propagation matrix `P`."""

from typing import TYPE_CHECKING

from cvgnn._lazy import lazy_names

if TYPE_CHECKING:
    from cvgnn.data.array_converter import from_arrays as from_arrays
    from cvgnn.data.converters import as_graph as as_graph
    from cvgnn.data.converters import from_networkx as from_networkx
    from cvgnn.data.converters import from_pyg as from_pyg
    from cvgnn.data.converters import from_scipy as from_scipy
    from cvgnn.data.edges import from_edges as from_edges
    from cvgnn.data.graph import Graph as Graph
    from cvgnn.data.graph_set import from_graphs as from_graphs
    from cvgnn.data.propagation import AGGREGATIONS as AGGREGATIONS
    from cvgnn.data.propagation import NORMALIZATIONS as NORMALIZATIONS
    from cvgnn.data.propagation import Aggregation as Aggregation
    from cvgnn.data.propagation import Normalization as Normalization
    from cvgnn.data.propagation import Propagation as Propagation
    from cvgnn.data.sparse_features import SparseFeatures as SparseFeatures
    from cvgnn.data.split import RandomSplit as RandomSplit
    from cvgnn.ops.row_sum import Rows as Rows
    from cvgnn.ops.row_sum import differentiable_sum as differentiable_sum
    from cvgnn.ops.row_sum import weighted_sum as weighted_sum

# Imported on first use: `cvgnn datasets` needs only the catalog of names, without torch.
__getattr__, _HOME_OF, __all__ = lazy_names(
    __name__,
    {
        "data.array_converter": ("from_arrays",),
        "data.converters": ("as_graph", "from_networkx", "from_pyg", "from_scipy"),
        "data.edges": ("from_edges",),
        "data.graph": ("Graph",),
        "data.graph_set": ("from_graphs",),
        "data.propagation": ("AGGREGATIONS", "NORMALIZATIONS", "Aggregation", "Normalization", "Propagation"),
        "data.sparse_features": ("SparseFeatures",),
        "data.split": ("RandomSplit",),
        "ops.row_sum": ("Rows", "differentiable_sum", "weighted_sum"),
    },
)
