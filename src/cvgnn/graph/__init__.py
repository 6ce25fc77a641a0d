"""Graphs and the propagation matrix `P`."""

from cvgnn.graph.arrays import from_arrays as from_arrays
from cvgnn.graph.convert import from_pyg as from_pyg
from cvgnn.graph.convert import from_scipy as from_scipy
from cvgnn.graph.convert_networkx import from_networkx as from_networkx
from cvgnn.graph.edges import from_edges as from_edges
from cvgnn.graph.graph import Graph as Graph
from cvgnn.graph.propagation import AGGREGATIONS as AGGREGATIONS
from cvgnn.graph.propagation import NORMALIZATIONS as NORMALIZATIONS
from cvgnn.graph.propagation import Aggregation as Aggregation
from cvgnn.graph.propagation import Normalization as Normalization
from cvgnn.graph.propagation import Propagation as Propagation
from cvgnn.graph.sparse_features import SparseFeatures as SparseFeatures
from cvgnn.graph.split import RandomSplit as RandomSplit
from cvgnn.ops.row_sum import Rows as Rows
from cvgnn.ops.row_sum import differentiable_sum as differentiable_sum
from cvgnn.ops.row_sum import weighted_sum as weighted_sum
