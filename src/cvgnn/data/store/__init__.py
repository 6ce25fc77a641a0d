"""The store: a graph of any size as a folder of plain `.npy` files, opened by memory map. See docs/store.md."""

from cvgnn.data.store.compact import compact_store as compact_store
from cvgnn.data.store.contents_check import check_indices as check_indices
from cvgnn.data.store.header import is_store as is_store
from cvgnn.data.store.propagated_features import add_product as add_product
from cvgnn.data.store.save_graph import write_store as write_store
from cvgnn.data.store.store_reader import describe_store as describe_store
from cvgnn.data.store.store_reader import open_store as open_store
from cvgnn.data.store.store_reader import verify_store as verify_store
from cvgnn.data.store.store_writer import StoreWriter as StoreWriter
