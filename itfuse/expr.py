"""Node: an immutable, interned expression that holds no data.

Two expressions of the same structure over the same leaves are the same object, so shared
sub-expressions need no search. All walks are iterative: depth is limited by memory only.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from itfuse import dtypes, reference
from itfuse.errors import DTypeError, RangeError, ShapeError, Unsupported
from itfuse.form import Deferred, Fields, Form, Interned, Number, form_of
from itfuse.ops import (
    CONSTANT,
    COUNT,
    FOLDS,
    GATHER,
    INPUT,
    IOTA,
    OPS,
    POSITION,
    RESHAPE,
    ROWS,
    SCALAR,
    SELECT,
    STRIDED,
    TERMINALS,
    VIEW,
)
from itfuse.rows.op import REDUCTION, Op
from itfuse.shapes import MOST_AXES, Shape, broadcast, check_axes, normalize_axes, shape_of
from itfuse.wording import call_text, text, toposort


class Memory(NamedTuple):
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


class Node(Fields):
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
        `Memory` of an input, the value of a scalar or constant, the reduced axes of a reduction,
        (shape, reduced axes) of a position, the index map of a view, else None.
    form : Form or None
        The structure above the leaves, interned too: equal forms over different leaves are the
        same expression of other data. None with more than `FORM_LEAVES` leaves.
    leaves : tuple of Node
        The distinct input and scalar leaves in order of appearance; empty without a form.
    """

    __slots__ = ()

    op: Op
    srcs: tuple[Node, ...]
    dtype: np.dtype[Any]
    shape: Shape
    arg: Any
    form: Form | None
    leaves: tuple[Node, ...]

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


_NOT_IN_OPS = {
    op.name: op
    for op in (INPUT, SCALAR, CONSTANT, POSITION, IOTA, VIEW, RESHAPE, STRIDED, GATHER,
               SELECT, COUNT, *TERMINALS, *FOLDS.values())
}  # fmt: skip
_interned = Interned()
_lock = threading.RLock()  # a node's death inside may run what interns another


def _reset_lock() -> None:
    global _lock  # noqa: PLW0603  # another thread may have held it when this process was forked
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_lock)


def make(
    op: Op | str, srcs: tuple[Node, ...], dtype: np.dtype[Any], shape: Shape, arg: Any = None
) -> Node:
    """Return the one node of this structure."""
    if isinstance(op, str):
        row = _NOT_IN_OPS.get(op) or ROWS.get(op)
        if row is None:
            raise Unsupported(
                f"{op.partition('@')[0]}: an operation that a user made and this process does not "
                "have; make it here first, from the same text"
            )
        op = row
    # A scalar's identity is its bits: -0.0 is not 0.0, and NaN equals itself. A view of a user's is
    # another node for each text, which errors show; its form is the same, and so is its plan.
    identity = arg
    if op is SCALAR:
        identity = arg.tobytes()
    elif op is VIEW:
        identity = (arg, getattr(arg, "label", ""))
    # Ids, not nodes: a key must not keep operands alive. They live as long as the node does.
    key = (op.name, *map(id, srcs), dtype.num, shape, identity)
    with _lock:
        entry = _interned.entries.get(key)
        node: Any = None if entry is None else entry()
        if node is None:
            form, leaves = form_of(op, srcs, dtype, shape, arg)
            node = Fields(op, srcs, dtype, shape, arg, form, leaves)
            node.__class__ = Node
            _interned.put(key, node)
    return node  # type: ignore[no-any-return]


_KEPT_SCALARS = 512
_scalars: dict[Any, Node] = {}
"""Scalars made lately: literals recur, and a node costs more than finding it here."""


def scalar(value: Any, dtype: np.dtype[Any]) -> Node:
    """Return the leaf for a runtime scalar; its value is not part of any key."""
    kind = type(value)
    literal = (dtype, kind, value) if (kind is int or kind is float) and value else None
    if literal is not None:  # 0.0 and -0.0 are equal, and NaN is not equal to itself
        node = _scalars.get(literal)
        if node is not None:
            return node
    if isinstance(value, Number):
        return make(SCALAR, (), dtype, (), Deferred(value, (dtype,)))
    try:
        with np.errstate(over="ignore"):  # a float beyond float16 is infinity, as in NumPy
            exact = dtype.type(value)
    except OverflowError:
        raise RangeError(
            f"the Python integer {value} is out of bounds for {dtype.name}, the "
            "dtype it takes from the array beside it; cast that array with "
            ".astype(...) first"
        ) from None
    key = (dtype, exact.tobytes())
    node = _scalars.get(key)
    if node is None:
        node = make(SCALAR, (), dtype, (), exact)
        if len(_scalars) >= _KEPT_SCALARS:
            _scalars.clear()
        _scalars[key] = node
    if literal is not None:
        _scalars[literal] = node
    return node


def stored(value: Any, dtype: np.dtype[Any], what: object) -> Any:
    """Return a number as NumPy stores it in `dtype`: a Python integer must fit, others convert.

    Raises
    ------
    RangeError
        If it is an integer that `dtype` cannot hold.
    """
    try:
        with np.errstate(all="ignore"):
            if type(value) is int and dtype.kind in "iu":
                return dtype.type(value)
            return np.asarray(value).astype(dtype)[()]
    except OverflowError:
        bounds = np.iinfo(dtype) if dtype.kind in "iu" else dtypes.finfo(dtype)
        raise RangeError(
            f"{what}: the Python integer {value} is out of bounds for {dtype.name}, which holds "
            f"{bounds.min} to {bounds.max}; use another dtype, or a number within"
        ) from None


_resolved: dict[Any, tuple[Any, Any, bool]] = {}
_BOOL = np.dtype(bool)


def resolve(op: Op, kinds: tuple[Any, ...], describe: Callable[[], str]) -> tuple[Any, Any, bool]:
    """Return (operand dtypes, result dtype, whether a value may change them), asked of NumPy.

    `kinds` holds a dtype for each strong operand and the type of each Python scalar.
    """
    found = _resolved.get((op.name, kinds))
    if found is None:
        try:
            if op.result is not None:
                operands, result = op.result(*kinds)
            else:
                assert op.asks is not None
                *operands, result = op.asks.resolve_dtypes((*kinds, None))
            by_value = op.compares and any(kind is int for kind in kinds)
            found = tuple(operands), result, by_value
        except (TypeError, ValueError) as why:
            raise DTypeError(f"{describe()}: {why}") from None
        for dtype in (*found[0], found[1]):
            dtypes.check(dtype, describe())
        if not template_of(op, [d.name for d in found[0]], found[1].name):
            raise Unsupported(
                f"{describe()}: {op.name} has no device code for "
                f"{', '.join(d.name for d in found[0])}"
            )
        _resolved[op.name, kinds] = found
    return found


def signature_of(table: Mapping[str, Any], operands: Sequence[str], result: str) -> str:
    """Return the key of `table` that fits these dtypes best (see ops.py), or an empty string."""
    kinds = "".join(dtypes.DTYPES[name].kind for name in operands)
    kind = dtypes.DTYPES[result].kind
    tries = [f"{operands[-1]}->{result}", operands[-1] if operands else "",
             f"{kinds}->{kind}", f"->{kind}", kinds, kinds[-1:]]  # fmt: skip
    if "c" not in kinds + kind:  # what holds for any real number need not for complex ones
        tries.append("*")
    return next((signature for signature in tries if signature in table), "")


def template_of(op: Op, operands: Sequence[str], result: str) -> str:
    """Return the C++ template of `op` for these dtypes (see ops.py), or an empty string."""
    signature = signature_of(op.cpp, operands, result)
    return op.cpp[signature] if signature else ""


def convert(node: Node, dtype: np.dtype[Any]) -> Node:
    """Return `node` as `dtype`."""
    if node.dtype == dtype:
        return node
    if node.op is SCALAR and isinstance(node.arg, Deferred):
        return make(SCALAR, (), dtype, (), node.arg.astype(dtype))
    if node.op is SCALAR:
        with np.errstate(all="ignore"):
            value = reference.astype(np.asarray(node.arg), np.empty((), dtype))
        return make(SCALAR, (), dtype, (), value[()])
    return make(OPS["astype"], (node,), dtype, node.shape)


def elementwise(op: Op, operands: tuple[Any, ...]) -> Node:
    """Apply a row of the table to nodes and scalars.

    Parameters
    ----------
    op : Op
        An elementwise row.
    operands : tuple of Node, bool, int, float, complex or numpy.generic
        Python scalars are weak (NEP 50), NumPy scalars are not.
    """

    def describe() -> str:
        return call_text(op, operands)

    if len(operands) != op.arity:
        raise TypeError(f"{op.shown} takes {op.arity} operands, not {len(operands)}")
    kinds = tuple([x.dtype if type(x) is Node else _kind(x, describe) for x in operands])
    found = _resolved.get((op.name, kinds))
    if found is None or found[2]:
        operands, kinds = _exact_comparison(op, operands, kinds)
        found = resolve(op, kinds, describe)
    srcs = []
    shape: Shape | None = None
    for x, dtype in zip(operands, found[0], strict=True):
        if type(x) is Node:
            src = x if x.dtype is dtype else convert(x, dtype)
        elif isinstance(x, np.generic):
            src = convert(scalar(x, x.dtype), dtype)
        else:
            try:
                src = scalar(_wrapped(x, dtype) if op.wraps and type(x) is int else x, dtype)
            except RangeError as error:
                raise RangeError(f"{describe()}: {error}") from None
        srcs.append(src)
        if shape is None or not shape:
            shape = src.shape
        elif src.shape and src.shape != shape:
            shape = broadcast([src.shape for src in _nodes(operands)], describe)
    assert shape is not None
    if op.refuses is not None:
        known = [src.arg if src.op is SCALAR else None for src in srcs]
        if why := op.refuses(*known):
            raise RangeError(f"{describe()}: {why}")
    return make(op, tuple(srcs), found[1], shape)


def _wrapped(value: int, dtype: np.dtype[Any]) -> Any:
    """Return what the installed NumPy makes of a Python integer in its own `where`."""
    try:
        found = np.where(True, value, np.zeros((), dtype))
    except OverflowError:  # `scalar` says so
        return value
    return found[()] if found.dtype == dtype else value


def _nodes(operands: tuple[Any, ...]) -> list[Node]:
    return [x for x in operands if isinstance(x, Node)]


def _kind(operand: Any, describe: Callable[[], str]) -> Any:
    if isinstance(operand, Node):
        return operand.dtype
    if isinstance(operand, np.generic):
        if not dtypes.supported(operand.dtype):
            dtypes.check(operand.dtype, f"{describe()}: an operand")
        return operand.dtype
    kind = operand.kind if isinstance(operand, Number) else type(operand)
    if issubclass(kind, bool):
        return _BOOL
    for known in (int, float, complex):
        if issubclass(kind, known):
            return known
    raise DTypeError(
        f"{describe()}: a {type(operand).__name__} cannot be an operand; pass an "
        "array, a NumPy scalar, or a Python bool, int, float or complex"
    )


def _exact_comparison(op: Op, operands: Any, kinds: Any) -> tuple[Any, Any]:
    # NumPy compares a Python integer exactly, whatever the array's dtype can hold. An integer
    # beyond all of its values compares like infinity, so compare as (exact enough) floats.
    if op.compares and any(kind is int for kind in kinds):  # not `in`: np.dtype("int64") == int
        strong = [kind for kind in kinds if not isinstance(kind, type)]
        if len(strong) == 1 and strong[0].kind in "iu":
            value = next(x for x, kind in zip(operands, kinds, strict=True) if kind is int)
            info = np.iinfo(strong[0])
            # A number of a later call is taken to fit; where it does not, that call is traced anew.
            if not isinstance(value, Number) and not info.min <= value <= info.max:
                beyond = np.float64("inf") if value > 0 else -np.float64("inf")
                operands = tuple(
                    beyond if kind is int else x for x, kind in zip(operands, kinds, strict=True)
                )
                kinds = tuple(np.dtype(float) if kind is int else kind for kind in kinds)
    return operands, kinds


def reduction(
    op: Op,
    src: Node | tuple[Node, ...],
    dtype: np.dtype[Any] | None = None,
    axes: tuple[int, ...] | None = None,
    *,
    keepdims: bool = False,
    of_nothing: bool = False,
) -> Node:
    """Reduce along axes by a reduction row; NumPy chooses the dtype unless given.

    Parameters
    ----------
    op : Op
        A reduction or a fold.
    src : Node, or tuple of Node
        What is reduced; for a fold the fields of its elements, the first of which has the shape.
    dtype : numpy.dtype, optional
        In which a reduction adds up.
    axes : tuple of int, optional
        Sorted; all by default.
    keepdims : bool
        Whether reduced axes stay, with one element.
    of_nothing : bool
        Whether the caller has a value for nothing, whatever the operator has.
    """
    srcs = src if isinstance(src, tuple) else (src,)
    domain = srcs[0].shape
    axes = tuple(range(len(domain))) if axes is None else axes
    length = math.prod(domain[axis] for axis in axes)
    if length == 0 and not op.of_nothing and not of_nothing:
        raise ShapeError(
            f"{op.name}({text(srcs[0])}): the operand has shape {domain} and no elements along "
            f"the axes {axes}, and {op.name} of nothing has no value; check .size first"
        )
    if op.kind == REDUCTION:
        if dtype is None:
            assert op.asks is not None
            dtype = op.asks.reduce(np.ones(1, srcs[0].dtype)).dtype
        srcs = (convert(srcs[0], dtype),)
    else:
        assert op.fields is not None
        dtype = op.fields(srcs[0].dtype)[op.pick][0]
    if not axes and op.kind == REDUCTION:
        return srcs[0]
    shape = tuple(
        1 if axis in axes else size
        for axis, size in enumerate(domain)
        if keepdims or axis not in axes
    )
    return make(op, srcs, dtype, shape, axes)


def constant(value: int, dtype: np.dtype[Any]) -> Node:
    """Return the leaf for a small integer that generated code may know."""
    return make(CONSTANT, (), dtype, (), value)


def position(shape: Shape, axes: tuple[int, ...]) -> Node:
    """Return the leaf whose elements are their own places along `axes`, in row-major order."""
    return make(POSITION, (), np.dtype(np.int64), shape, (shape, axes))


def rewrite(roots: tuple[Node, ...], rule: Callable[[Node], Node]) -> tuple[Node, ...]:
    """Apply `rule` to every node, operands first; the same objects come back if nothing changed."""
    new: dict[Node, Node] = {}
    for node in toposort(roots):
        srcs = tuple(new[src] for src in node.srcs)
        same = all(a is b for a, b in zip(srcs, node.srcs, strict=True))
        new[node] = rule(node if same else make(node.op, srcs, node.dtype, node.shape, node.arg))
    return tuple(new[root] for root in roots)


__all__ = [
    "MOST_AXES",
    "Memory",
    "Node",
    "Shape",
    "broadcast",
    "check_axes",
    "constant",
    "convert",
    "elementwise",
    "make",
    "normalize_axes",
    "position",
    "reduction",
    "resolve",
    "rewrite",
    "scalar",
    "shape_of",
    "signature_of",
    "stored",
    "template_of",
]
