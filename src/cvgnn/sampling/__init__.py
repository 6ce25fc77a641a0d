"""Batches, neighbor draws and rows of `P X`: everything a training step reads of the graph."""

from cvgnn.ops.row_input import LayerInput as LayerInput
from cvgnn.ops.row_input import SparseInput as SparseInput
from cvgnn.sampling.batch import Batch as Batch
from cvgnn.sampling.batch import Block as Block
from cvgnn.sampling.features import FEATURE_NORMS as FEATURE_NORMS
from cvgnn.sampling.features import FeatureSource as FeatureSource
from cvgnn.sampling.features import propagate_features as propagate_features
from cvgnn.sampling.graph_items import GraphItems as GraphItems
from cvgnn.sampling.items import Items as Items
from cvgnn.sampling.items import NodeItems as NodeItems
from cvgnn.sampling.items import Targets as Targets
from cvgnn.sampling.items import distinct_nodes as distinct_nodes
from cvgnn.sampling.loader import BatchLoader as BatchLoader
from cvgnn.sampling.neighbor import NeighborSampler as NeighborSampler
from cvgnn.sampling.schemes import SCHEMES as SCHEMES
