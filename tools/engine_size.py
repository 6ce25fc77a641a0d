"""Code lines of files, of functions and of classes: the numbers of "Size of the engine" in docs/design.md.

    python tools/engine_size.py FILE [FILE::NAME ...]

A code line is one with a token that is neither a comment nor part of a docstring. `FILE::NAME` counts a function or a
class, `FILE::Class.method` a method, decorators included.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from pathlib import Path

_NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
Node = ast.Module | ast.ClassDef | ast.FunctionDef


def code_lines(source: str) -> set[int]:
    """The numbers of the lines that hold code."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        for statement in getattr(node, "body", []) if isinstance(getattr(node, "body", None), list) else []:
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                assert statement.end_lineno is not None
                lines.difference_update(range(statement.lineno, statement.end_lineno + 1))
    return lines


def part(tree: ast.Module, name: str) -> ast.ClassDef | ast.FunctionDef:
    """The definition of `name`, such as `Class.method`."""
    node: Node = tree
    for each in name.split("."):
        node = next(n for n in node.body if isinstance(n, ast.ClassDef | ast.FunctionDef) and n.name == each)
    assert not isinstance(node, ast.Module)
    return node


def count(what: str) -> int:
    """The code lines of a file, or of `FILE::NAME`."""
    path, _, name = what.partition("::")
    source = Path(path).read_text()
    lines = code_lines(source)
    if not name:
        return len(lines)
    node = part(ast.parse(source), name)
    assert node.end_lineno is not None
    first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
    return len(lines & set(range(first, node.end_lineno + 1)))


def main() -> None:
    """Print the count of each argument, and the sum."""
    total = 0
    for what in sys.argv[1:]:
        total += (lines := count(what))
        print(f"{lines:5} {what}")
    print(f"{total:5}")


if __name__ == "__main__":
    main()
