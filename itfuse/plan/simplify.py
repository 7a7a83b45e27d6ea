"""Node -> Node rules that change no bit of any result. One table, applied operands first."""

from __future__ import annotations

from collections.abc import Callable

from itfuse.expr import Node, rewrite
from itfuse.ops import OPS


def _cast_to_itself(node: Node) -> Node:
    """`astype` to the dtype that is there already."""
    return node.srcs[0] if node.op is OPS["astype"] and node.dtype == node.srcs[0].dtype else node


def _positive(node: Node) -> Node:
    """`+x` is x."""
    return node.srcs[0] if node.op.idle else node


def _double_invert(node: Node) -> Node:
    """`~~x` is x, for integers and bools alike."""
    src = node.srcs[0] if node.srcs else node
    return src.srcs[0] if node.op is src.op and node.op.undoes else node


RULES: tuple[Callable[[Node], Node], ...] = (_cast_to_itself, _positive, _double_invert)


def simplify(roots: tuple[Node, ...]) -> tuple[Node, ...]:
    """Apply every rule to every node; the same objects come back if nothing changed."""

    def apply(node: Node) -> Node:
        for rule in RULES:
            if node.op.kind != "leaf":
                node = rule(node)
        return node

    return rewrite(roots, apply)
