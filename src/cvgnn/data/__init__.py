"""Graphs and the propagation matrix `P`; `__init__.pyi` lists the names."""

from cvgnn._lazy import lazy_names

# Imported on first use: `cvgnn datasets` needs only the catalog of names, without torch.
__getattr__, __all__ = lazy_names(__name__)
