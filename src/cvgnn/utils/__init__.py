"""Utilities without knowledge of graphs: atomic files, locks, checked JSON, memory, signals, progress bars."""
