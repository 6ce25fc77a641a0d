"""Readers of graph files: `.npz`, a folder of tables, a PyG `.pt`, a store. See docs/files.md."""

from cvgnn.data.io.dense_features import standardize as standardize
from cvgnn.data.io.graph_file import read_graph as read_graph
from cvgnn.data.table_options import TableOptions as TableOptions
