"""Compiled kernels and the operations built on them, each with an equal one in plain torch for any device."""
