"""The store: a graph of any size as a folder of plain `.npy` files, opened by memory map. See docs/store.md."""

from cvgnn.store.checks import check_indices as check_indices
from cvgnn.store.disk import ArrayStream as ArrayStream
from cvgnn.store.propagate import add_product as add_product
from cvgnn.store.reader import describe_store as describe_store
from cvgnn.store.reader import is_store as is_store
from cvgnn.store.reader import open_store as open_store
from cvgnn.store.reader import verify_store as verify_store
from cvgnn.store.save import write_store as write_store
from cvgnn.store.writer import StoreWriter as StoreWriter
