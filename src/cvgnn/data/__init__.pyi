"""The names of the package; `__init__.py` serves what is imported here on first use."""

from cvgnn.data.array_converter import from_arrays as from_arrays
from cvgnn.data.converters import as_graph as as_graph
from cvgnn.data.converters import from_networkx as from_networkx
from cvgnn.data.converters import from_pyg as from_pyg
from cvgnn.data.converters import from_scipy as from_scipy
from cvgnn.data.converters import to_pyg as to_pyg
from cvgnn.data.edge_split import with_edge_labels as with_edge_labels
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
