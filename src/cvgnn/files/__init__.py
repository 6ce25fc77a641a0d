"""A user's own graph from files: `.npz`, a folder of CSV or Parquet, a PyG `.pt`, a store. See docs/files.md."""

from cvgnn.files.read import read_graph as read_graph
