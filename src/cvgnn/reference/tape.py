"""Reverse-mode differentiation, literally: each operation keeps its value and the function back to its operands.

Legend:
    a, b    operands of an operation, each a `Node` or a constant
    d       derivative of the loss by the operation's value, of the shape of the value
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from cvgnn.reference.propagation_matrix import Array

_ORDER = itertools.count()


class Node:
    """A value in the graph of operations. The operators +, -, *, @ and rows [...] make new nodes.

    Args:
        value: Array of any shape; @ and rows take matrices.
        operands: The nodes that it was computed from; none for a parameter or a constant.
        back: From d to the derivatives by the operands, in their order.

    >>> W = Node(np.array([[2.0], [3.0]]))
    >>> Z = Node([[1.0, 10.0]]) @ W + 0.5
    >>> Z.value.tolist(), derivatives(Z, np.ones((1, 1)))[W].tolist()
    ([[32.5]], [[1.0], [10.0]])
    """

    # Without this numpy would evaluate `Array + Node` entry by entry; with it, it calls Node.__radd__.
    __array_ufunc__ = None

    def __init__(
        self,
        value: npt.ArrayLike,
        operands: Sequence[Node] = (),
        back: Callable[[Array], Sequence[Array]] = lambda d: (),
    ) -> None:
        self.value: Array = np.asarray(value, dtype=np.float64)
        self.operands, self.back, self.order = operands, back, next(_ORDER)

    def __add__(self, other: Node | Array | float) -> Node:
        a, b = self, _node(other)
        return Node(a.value + b.value, (a, b), lambda d: (_sum_to(d, a), _sum_to(d, b)))

    def __mul__(self, other: Node | Array | float) -> Node:
        a, b = self, _node(other)
        return Node(a.value * b.value, (a, b), lambda d: (_sum_to(d * b.value, a), _sum_to(d * a.value, b)))

    __radd__, __rmul__ = __add__, __mul__

    def __sub__(self, other: Array) -> Node:
        return self + -other

    def __matmul__(self, other: Node) -> Node:
        a, b = self, other
        return Node(a.value @ b.value, (a, b), lambda d: (d @ b.value.T, a.value.T @ d))

    def __getitem__(self, rows: npt.NDArray[np.int64]) -> Node:
        def back(d: Array) -> list[Array]:
            d_self = np.zeros_like(self.value)
            np.add.at(d_self, rows, d)  # those of a repeated row add up
            return [d_self]

        return Node(self.value[rows], (self,), back)


def _node(a: Node | Array | float) -> Node:
    return a if isinstance(a, Node) else Node(a)


def _sum_to(d: Array, a: Node) -> Array:
    """d summed over the axes along which a was broadcast."""
    shape = a.value.shape
    d = d.sum(axis=tuple(range(d.ndim - len(shape))))
    repeated = tuple(i for i, size in enumerate(shape) if size == 1)
    result: Array = np.asarray(d).sum(axis=repeated, keepdims=True)
    return result


def concatenate(nodes: Sequence[Node]) -> Node:
    """The nodes side by side, [rows, sum of the widths].

    >>> concatenate([Node([[1.0]]), Node([[2.0, 3.0]])]).value.tolist()
    [[1.0, 2.0, 3.0]]
    """
    ends = np.cumsum([node.value.shape[1] for node in nodes])[:-1]
    return Node(np.concatenate([node.value for node in nodes], axis=1), nodes, lambda d: np.split(d, ends, axis=1))


def derivatives(output: Node, d_output: Array) -> dict[Node, Array]:
    """The derivative by every node that `output` was computed from.

    Args:
        output: The last node.
        d_output: Derivative of the loss by it.

    Returns:
        node -> derivative, of the shape of the node's value.
    """
    d = {output: d_output}
    pending = {output}
    while pending:
        # The node made last has no other use that is still to come: its d is complete.
        node = max(pending, key=lambda n: n.order)
        pending.remove(node)
        for operand, d_operand in zip(node.operands, node.back(d[node]), strict=True):
            d[operand] = d[operand] + d_operand if operand in d else d_operand
            pending.add(operand)
    return d
