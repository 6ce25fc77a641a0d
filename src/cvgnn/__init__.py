"""cvgnn: fast training of graph convolutional networks on large graphs."""

from cvgnn._version import __version__ as __version__
