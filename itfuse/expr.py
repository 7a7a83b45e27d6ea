"""Node: an immutable, interned expression that holds no data.

Two expressions of the same structure over the same leaves are the same object, so shared
sub-expressions need no search. All walks are iterative: depth is limited by memory only.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from itfuse import dtypes
from itfuse.errors import DTypeError, RangeError, ShapeError, Unsupported
from itfuse.ops import INDEX, INPUT, OPS, PLACE, PRIVATE, SCALAR, Op

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Memory:
    """Where an input's elements lie: the identity of a leaf. It keeps nothing alive.

    Attributes
    ----------
    device : str
        `cpu`, `cuda:0`, ..., or `none` for a placeholder without memory.
    pointer : int
        Address of the first element.
    strides : tuple of int
        Step along each axis, in bytes.
    """

    device: str
    pointer: int
    strides: tuple[int, ...]


class Node:
    """One operation on other nodes, or a leaf.

    Attributes
    ----------
    op : Op
        Its row in the table.
    srcs : tuple of Node
        Operands, already converted to the dtypes that the operation computes in.
    dtype : numpy.dtype
        NumPy's dtype of the result; every node rounds or wraps to it.
    shape : tuple of int
        Shape of the result.
    arg : object
        `Memory` of an input, the value of a scalar, the index map of a view, else None.
    """

    __slots__ = ("__weakref__", "arg", "dtype", "op", "shape", "srcs")

    op: Op
    srcs: tuple[Node, ...]
    dtype: np.dtype[Any]
    shape: Shape
    arg: Any

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    def __repr__(self) -> str:
        return f"<{text(self)}: {self.dtype.name}{list(self.shape)}>"

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError("a Node is immutable")

    def __reduce__(self) -> tuple[Any, ...]:
        return make, (self.op.name, self.srcs, self.dtype, self.shape, self.arg)


_interned: weakref.WeakValueDictionary[Any, Node] = weakref.WeakValueDictionary()
_lock = threading.Lock()
_set = object.__setattr__


def make(
    op: Op | str, srcs: tuple[Node, ...], dtype: np.dtype[Any], shape: Shape, arg: Any = None
) -> Node:
    """Return the one node of this structure."""
    if isinstance(op, str):
        op = PRIVATE.get(op) or OPS[op]
    # A scalar's identity is its bits: -0.0 is not 0.0, and NaN equals itself.
    identity = arg.tobytes() if op is SCALAR else arg
    # Ids, not nodes: a key must not keep operands alive. They live as long as the node does.
    key = (op.name, *map(id, srcs), dtype.num, shape, identity)
    with _lock:
        node = _interned.get(key)
        if node is None:
            node = object.__new__(Node)
            _set(node, "op", op)
            _set(node, "srcs", srcs)
            _set(node, "dtype", dtype)
            _set(node, "shape", shape)
            _set(node, "arg", arg)
            _interned[key] = node
    return node


def scalar(value: Any, dtype: np.dtype[Any]) -> Node:
    """Return the leaf for a runtime scalar; its value is not part of any key."""
    try:
        exact = dtype.type(value)
    except OverflowError:
        raise RangeError(
            f"the Python integer {value} is out of bounds for {dtype.name}, the "
            "dtype it takes from the array beside it; cast that array with "
            ".astype(...) first"
        ) from None
    return make(SCALAR, (), dtype, (), exact)


def broadcast(shapes: Iterable[Shape], describe: Callable[[], str]) -> Shape:
    """Return NumPy's broadcast of `shapes`; `describe()` names the expression in the error."""
    shapes = [shape for shape in shapes if shape]
    if not shapes:
        return ()
    first = shapes[0]
    if shapes.count(first) == len(shapes):
        return first
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        listed = " and ".join(str(shape) for shape in shapes)
        raise ShapeError(
            f"{describe()}: shapes {listed} do not broadcast together; sizes must be "
            "equal or 1, aligned from the last axis"
        ) from None


_resolved: dict[Any, tuple[Any, Any]] = {}
_BOOL = np.dtype(bool)


def resolve(op: Op, kinds: tuple[Any, ...], describe: Callable[[], str]) -> tuple[Any, Any]:
    """Return (operand dtypes, result dtype) of `op`, asked of NumPy.

    `kinds` holds a dtype for each strong operand and `int` or `float` for each Python scalar.
    """
    found = _resolved.get((op.name, kinds))
    if found is None:
        try:
            if op.result is not None:
                found = op.result(*kinds)
            else:
                assert op.asks is not None
                *operands, result = op.asks.resolve_dtypes((*kinds, None))
                found = tuple(operands), result
        except (TypeError, ValueError) as why:
            raise DTypeError(f"{describe()}: {why}") from None
        for dtype in (*found[0], found[1]):
            if dtype.name == "float16":
                raise DTypeError(
                    f"{describe()} would compute in float16 (NumPy's rule for "
                    f"{', '.join(map(str, kinds))}), which itfuse does not support; "
                    "cast the operands with .astype('float32')"
                )
            dtypes.check(dtype, describe())
        if not template_of(op, [d.name for d in found[0]], found[1].name):
            raise Unsupported(
                f"{describe()}: {op.name} has no device code for "
                f"{', '.join(d.name for d in found[0])}"
            )
        _resolved[op.name, kinds] = found
    return found


def template_of(op: Op, operands: Iterable[str], result: str) -> str:
    """Return the C++ template of `op` for these dtypes (see ops.py), or an empty string."""
    kinds = "".join(dtypes.DTYPES[name].kind for name in operands)
    to = "->" + dtypes.DTYPES[result].kind
    for signature in (kinds + to, to, kinds, kinds[-1], "*"):
        if signature in op.cpp:
            return op.cpp[signature]
    return ""


def convert(node: Node, dtype: np.dtype[Any]) -> Node:
    """Return `node` as `dtype`."""
    if node.dtype == dtype:
        return node
    if node.op is SCALAR:
        return make(SCALAR, (), dtype, (), node.arg.astype(dtype))
    return make(OPS["astype"], (node,), dtype, node.shape)


def elementwise(op: Op, operands: tuple[Any, ...]) -> Node:
    """Apply a row of the table to nodes and scalars.

    Parameters
    ----------
    op : Op
        An elementwise row.
    operands : tuple of Node, bool, int, float or numpy.generic
        Python scalars are weak (NEP 50), NumPy scalars are not.
    """

    def describe() -> str:
        return call_text(op, operands)

    if len(operands) != op.arity:
        raise TypeError(f"{op.name} takes {op.arity} operands, not {len(operands)}")
    kinds = tuple(_kind(operand, describe) for operand in operands)
    if any(kind is int for kind in kinds):  # not `in`: np.dtype("int64") == int
        operands, kinds = _exact_comparison(op, operands, kinds)
    wanted, result = resolve(op, kinds, describe)
    srcs = tuple(
        [
            convert(x, dtype)
            if isinstance(x, Node)
            else convert(scalar(x, x.dtype), dtype)
            if isinstance(x, np.generic)
            else scalar(x, dtype)
            for x, dtype in zip(operands, wanted, strict=True)
        ]
    )
    shape = broadcast([src.shape for src in srcs], describe)
    return make(op, srcs, result, shape)


def _kind(operand: Any, describe: Callable[[], str]) -> Any:
    if isinstance(operand, Node):
        return operand.dtype
    if isinstance(operand, np.generic):
        if not dtypes.supported(operand.dtype):
            dtypes.check(operand.dtype, f"{describe()}: an operand")
        return operand.dtype
    if isinstance(operand, bool):
        return _BOOL
    if isinstance(operand, (int, float)):
        return int if isinstance(operand, int) else float
    raise DTypeError(
        f"{describe()}: a {type(operand).__name__} cannot be an operand; pass an "
        "array, a NumPy scalar, or a Python bool, int or float"
    )


def _exact_comparison(op: Op, operands: Any, kinds: Any) -> tuple[Any, Any]:
    # NumPy compares a Python integer exactly, whatever the array's dtype can hold. An integer
    # beyond all of its values compares like infinity, so compare as (exact enough) floats.
    if op.ufunc is None and op.numpy in _EXACT:
        strong = [kind for kind in kinds if not isinstance(kind, type)]
        if len(strong) == 1 and strong[0].kind in "iu":
            value = next(x for x, kind in zip(operands, kinds, strict=True) if kind is int)
            info = np.iinfo(strong[0])
            if not info.min <= value <= info.max:
                beyond = np.float64("inf") if value > 0 else -np.float64("inf")
                operands = tuple(
                    beyond if kind is int else x for x, kind in zip(operands, kinds, strict=True)
                )
                kinds = tuple(np.dtype(float) if kind is int else kind for kind in kinds)
    return operands, kinds


_EXACT = {np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal}


def reduction(op: Op, src: Node, dtype: np.dtype[Any] | None = None) -> Node:
    """Reduce all elements of `src` by a reduction row; NumPy chooses the dtype unless given."""
    if dtype is None:
        assert op.asks is not None
        dtype = op.asks.reduce(np.ones(1, src.dtype)).dtype
    if src.size == 0 and not op.of_nothing:
        raise ShapeError(
            f"{op.name}({text(src)}): the operand has shape {src.shape} and no "
            f"elements, and {op.name} of nothing has no value; check .size first"
        )
    return make(op, (convert(src, dtype),), dtype, ())


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


def rewrite(roots: tuple[Node, ...], rule: Callable[[Node], Node]) -> tuple[Node, ...]:
    """Apply `rule` to every node, operands first; the same objects come back if nothing changed."""
    new: dict[Node, Node] = {}
    for node in toposort(roots):
        srcs = tuple(new[src] for src in node.srcs)
        same = all(a is b for a, b in zip(srcs, node.srcs, strict=True))
        new[node] = rule(node if same else make(node.op, srcs, node.dtype, node.shape, node.arg))
    return tuple(new[root] for root in roots)


def leaf_names(order: Iterable[Node]) -> dict[Node, str]:
    """Name the arrays of an expression a, b, c, ..., z, a1, b1, ... in order of appearance."""
    names: dict[Node, str] = {}
    for node in order:
        if node.op is INPUT and node not in names:
            number, letter = divmod(len(names), 26)
            names[node] = chr(ord("a") + letter) + (str(number) if number else "")
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
        elif node.op.kind in (PLACE, INDEX) or not node.srcs:
            line = _place_text(node, [written[src] for src in node.srcs])
            written[node] = line if len(line) <= limit else f"{node.op.name}(...)"
        else:
            line = _call(node.op, [written[src] for src in node.srcs], node.dtype.name)
            written[node] = line if len(line) <= limit else f"{node.op.name}(...)"
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
    return f"{parts[0]}[...]" if parts else f"{node.op.name}({node.shape})"


class Lazily:
    """A text that is made only when it is shown: naming a deep expression takes a walk of it."""

    __slots__ = ("_make",)

    def __init__(self, make_text: Callable[[], str]) -> None:
        self._make = make_text

    def __str__(self) -> str:
        return self._make()


def call_text(op: Op, operands: tuple[Any, ...]) -> str:
    """Return the text of a call that has no node yet."""
    names = leaf_names(toposort(x for x in operands if isinstance(x, Node)))
    parts = [_bare(x, names) for x in operands]
    result = _call(op, parts, "dtype")
    return result[1:-1] if result.startswith("(") else result


def _bare(operand: Any, names: dict[Node, str]) -> str:
    if not isinstance(operand, Node):
        return repr(operand.item() if isinstance(operand, np.generic) else operand)
    inner = text(operand, names)
    return f"({inner})" if operand.op.symbol and operand.op.arity == 2 else inner


def _call(op: Op, parts: list[str], dtype: str) -> str:
    if op.symbol and len(parts) == 2:
        return f"({parts[0]} {op.symbol} {parts[1]})"
    if op.symbol and len(parts) == 1:
        return f"{op.symbol}{parts[0]}"
    # A binary operand brings its own parentheses.
    bare = [p[1:-1] if p.startswith("(") and _closes_at_end(p) else p for p in parts]
    if op is OPS["astype"]:
        return f"astype({bare[0]}, {dtype})"
    return f"{op.name}({', '.join(bare)})"


def _closes_at_end(part: str) -> bool:
    depth = 0
    for at, character in enumerate(part):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return at == len(part) - 1
    return False
