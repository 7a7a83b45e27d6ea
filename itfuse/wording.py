"""The words for expressions: what errors, plans, sources and `repr` call them.

Below expr.py, which makes the nodes. All walks are iterative.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from itfuse.form import Fields
from itfuse.ops import CONSTANT, INPUT, IOTA, OPS, POSITION, SCALAR
from itfuse.rows.op import INDEX, PLACE, SELECTION, Op

if TYPE_CHECKING:
    from itfuse.expr import Node


def toposort(roots: Iterable[Node]) -> list[Node]:
    """Return every node under `roots` once, operands before users, in a stable order."""
    order: list[Node] = []
    done: set[Node] = set()
    stack: list[tuple[Node, bool]] = [(root, False) for root in reversed(list(roots))]
    while stack:
        node, expanded = stack.pop()
        if expanded:
            order.append(node)
        elif node not in done:
            done.add(node)
            stack.append((node, True))
            stack.extend((src, False) for src in reversed(node.srcs) if src not in done)
    return order


def leaf_names(order: Iterable[Node]) -> dict[Node, str]:
    """Name the arrays of an expression a, b, c, ..., z, a1, b1, ... in order of appearance.

    Arguments of a traced function have their own names already.
    """
    inputs = [node for node in dict.fromkeys(order) if node.op is INPUT]
    names = {node: node.arg.name for node in inputs if hasattr(node.arg, "name")}
    taken = set(names.values())
    count = itertools.count()
    for node in inputs:
        while node not in names:
            number, letter = divmod(next(count), 26)
            name = chr(ord("a") + letter) + (str(number) if number else "")
            if name not in taken:
                names[node] = name
    return names


_TEXT_LIMIT = 160


def text(root: Node, names: dict[Node, str] | None = None, limit: int = _TEXT_LIMIT) -> str:
    """Return the user's expression as Python would write it, elided when longer than `limit`."""
    order = toposort((root,))
    names = leaf_names(order) if names is None else names
    written: dict[Node, str] = {}
    for node in order:
        if node in names:
            written[node] = names[node]
        elif node.op is SCALAR:
            written[node] = repr(node.arg.item())
        elif node.op is CONSTANT:
            written[node] = repr(node.arg)
        elif node.op is POSITION:
            written[node] = "position"
        elif node.op.kind in (PLACE, INDEX) or node.op is IOTA:
            line = _place_text(node, [written[src] for src in node.srcs])
            written[node] = line if len(line) <= limit else f"{node.op.shown}(...)"
        elif node.op.kind == SELECTION:
            line = _selection_text(node, [written[src] for src in node.srcs])
            written[node] = line if len(line) <= limit else f"{node.op.shown}(...)"
        else:
            parts = [written[src] for src in node.srcs]
            line = call_of(node.op, parts, node.dtype.name, node)
            written[node] = line if len(line) <= limit else f"{node.op.shown}(...)"
    result = written[root]
    outer = result.startswith("(") and root.op.symbol and root.op.arity == 2
    return result[1:-1] if outer else result


def _place_text(node: Node, parts: list[str]) -> str:
    # A view carries the text of what the user wrote; what planning makes shows its array.
    label = getattr(node.arg, "label", "")
    if label:
        return str(label).format(*parts)
    if node.op.kind == INDEX:
        return parts[0]
    if node.op.name == "reshape":
        return f"reshape({parts[0]}, {node.shape})"
    return f"{parts[0]}[...]" if parts else f"{node.op.shown}({node.shape})"


def _selection_text(node: Node, parts: list[str]) -> str:
    label = node.arg.label
    indexed = label.startswith("{")  # values[flags]: only the values keep their parentheses
    last = len(parts) - 1
    bare = [p if indexed and at == last else _bare_text(p) for at, p in enumerate(parts)]
    return str(label).format(*bare)


def _bare_text(part: str) -> str:
    return part[1:-1] if part.startswith("(") and _closes_at_end(part) else part


class Lazily:
    """A text that is made only when it is shown: naming a deep expression takes a walk of it."""

    __slots__ = ("_make",)

    def __init__(self, make_text: Callable[[], str]) -> None:
        self._make = make_text

    def __str__(self) -> str:
        return self._make()


def call_text(op: Op, operands: tuple[Any, ...]) -> str:
    """Return the text of a call that has no node yet."""
    nodes: list[Any] = [x for x in operands if isinstance(x, Fields)]
    names = leaf_names(toposort(nodes))
    parts = [_bare(x, names) for x in operands]
    result = call_of(op, parts, "dtype")
    return result[1:-1] if result.startswith("(") else result


def _bare(operand: Any, names: dict[Node, str]) -> str:
    node: Any = operand
    if not isinstance(operand, Fields):
        return repr(operand.item() if isinstance(operand, np.generic) else operand)
    inner = text(node, names)
    return f"({inner})" if operand.op.symbol and operand.op.arity == 2 else inner


def call_of(op: Op, parts: list[str], dtype: str, node: Node | None = None) -> str:
    """Return a call of `op` as Python would write it, in parentheses if it is an operator's."""
    if op.symbol and len(parts) == 2:
        return f"({parts[0]} {op.symbol} {parts[1]})"
    if op.symbol and len(parts) == 1:
        return f"{op.symbol}{parts[0]}"
    # A binary operand brings its own parentheses.
    bare = [_bare_text(p) for p in parts]
    if op is OPS["astype"]:
        return f"astype({bare[0]}, {dtype})"
    if node is not None and op.reduces:
        domain = node.srcs[0].shape
        along = node.arg if len(node.arg) != 1 else node.arg[0]
        where = "" if len(node.arg) == len(domain) else f", axis={along}"
        kept = ", keepdims=True" if len(node.shape) == len(domain) and domain else ""
        return f"{op.shown}({bare[0]}{where}{kept})"
    return f"{op.shown}({', '.join(bare)})"


def _closes_at_end(part: str) -> bool:
    depth = 0
    for at, character in enumerate(part):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return at == len(part) - 1
    return False
