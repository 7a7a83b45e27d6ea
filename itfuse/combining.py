"""Operators that users write in Python with operations of arrays: `lambda a, b: itf.maximum(a, b)`.

Called once with two stand-ins, a function says what it combines: that becomes one C++ function for
generated code, and one function of blocks for the CPU engine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from itfuse.array import Array, asarray, spec
from itfuse.dtypes import DTYPES
from itfuse.errors import DTypeError, ItfuseError, Unsupported
from itfuse.expr import Node, signature_of
from itfuse.form import Deferred
from itfuse.frozen import PREFIX
from itfuse.lower.cpp import expression
from itfuse.ops import SCALAR
from itfuse.rows.op import ELEMENTWISE
from itfuse.wording import toposort


class Combined(NamedTuple):
    """An operator that a Python function was traced to.

    Attributes
    ----------
    name : str
        What the user called the function.
    source : str
        Its C++, which is its identity.
    helpers : tuple of str
        C++ that it calls, then itself.
    call : str
        How C++ calls it.
    twin : callable
        What the CPU engine calls.
    """

    name: str
    source: str
    helpers: tuple[str, ...]
    call: str
    twin: Callable[..., Any]


class _Blocks:
    """The operator as the CPU engine calls it: with blocks, into `out`."""

    def __init__(self, order: list[Node], leaves: tuple[Node, Node]) -> None:
        self.order, self.leaves = order, leaves

    def __call__(self, a: Any, b: Any, out: Any = None) -> Any:
        values: dict[Node, Any] = dict(zip(self.leaves, map(np.asarray, (a, b)), strict=True))
        shape = np.broadcast_shapes(*(x.shape for x in values.values()))
        for node in self.order:
            if node.op is SCALAR:
                values[node] = np.asarray(node.arg)
            elif node not in values:
                block = np.empty(shape, node.dtype)
                operands = [values[src] for src in node.srcs]
                node.op.twin(node.dtype.kind)(*operands, out=block)
                values[node] = block
        result = np.broadcast_to(values[self.order[-1]], shape)
        if out is None:
            return result.copy()
        np.copyto(out, result)
        return out


def combined(function: Callable[..., Any], dtype: np.dtype[Any], label: str) -> Combined:
    """Return what a Python function of two operands of `dtype` combines.

    Raises
    ------
    TypeError
        If it cannot be called so, or returns no array.
    DTypeError
        If it returns another dtype than it takes.
    Unsupported
        If it does something else than elementwise operations on its operands.
    """
    given = getattr(function, "__name__", type(function).__name__)
    name = given if given.isidentifier() and given != "<lambda>" else "combine"
    pair = spec((), dtype), spec((), dtype)
    try:
        result = asarray(function(*pair))
    except (ItfuseError, TypeError, ValueError) as why:
        raise TypeError(
            f"{label}: {given} is no operator that can be traced ({why}); write it as a function "
            "of two arrays with itfuse's operations, such as itf.where for a choice, or with "
            "itf.cpp_function"
        ) from None
    leaves = pair[0]._node, pair[1]._node
    order = toposort((result._node,))
    _check(order, leaves, result, dtype, f"{label}: {given}")
    return _written(name, order, leaves, dtype)


def _check(
    order: list[Node], leaves: tuple[Node, Node], result: Array, dtype: np.dtype[Any], what: str
) -> None:
    for node in order:
        known = node.op is SCALAR and not isinstance(node.arg, Deferred)
        if not (known or node in leaves or (node.op.kind == ELEMENTWISE and node.shape == ())):
            raise Unsupported(
                f"{what} uses {node!r}; an operator is made of elementwise operations on its two "
                "operands and numbers"
            )
        if any(PREFIX in text for text in node.op.cpp.values()):
            raise Unsupported(f"{what} calls {node.op.shown}, which itf.map compiles by itself")
        row = DTYPES[node.dtype.name]
        if (row.narrow or row.part) and node.dtype != dtype:
            raise Unsupported(f"{what} computes in {node.dtype} beside {dtype}; .astype(...) first")
    if result.dtype != dtype:
        raise DTypeError(
            f"{what} takes {dtype} and returns {result.dtype}; an operator that combines its own "
            "results takes and returns one dtype: .astype(...) the result"
        )


def _written(
    name: str, order: list[Node], leaves: tuple[Node, Node], dtype: np.dtype[Any]
) -> Combined:
    """Write one statement a node."""
    row = DTYPES[dtype.name]
    kind = row.computes or row.cpp  # in which templates hand their operands over
    values = {leaves[0]: "a", leaves[1]: "b"}
    lines, helpers = [], {}
    for at, node in enumerate(order):
        if node in values:
            continue
        if node.op is SCALAR:
            values[node] = literal(node.arg)
            continue
        names = [src.dtype.name for src in node.srcs]
        code = expression(node.op.name, [values[src] for src in node.srcs], names, node.dtype.name)
        lines.append(f"  const {DTYPES[node.dtype.name].cpp} v{at} = {code};\n")
        values[node] = f"v{at}"
        signature = signature_of(node.op.helper, names, node.dtype.name)
        helpers.update(dict.fromkeys(node.op.helper[signature] if signature else ()))
    body = "".join([
        f"__device__ __forceinline__ {kind} {name}({kind} x, {kind} y) {{\n",
        f"  const {row.cpp} a = ({row.cpp})x, b = ({row.cpp})y;\n",
        *lines, f"  return ({kind}){values[order[-1]]};\n}}\n",
    ])  # fmt: skip
    space = f"itf_user_{hashlib.sha256(body.encode()).hexdigest()[:16]}"
    own = f"\nnamespace {space} {{\n{body}}}\n"
    twin = _Blocks(order, leaves)
    return Combined(name, body, (*helpers, own), f"{space}::{name}", twin)


def literal(value: Any) -> str:
    """Write a NumPy scalar in C++, by its bits."""
    row = DTYPES[value.dtype.name]
    if row.part:
        return f"{row.cpp}{{{literal(value.real)}, {literal(value.imag)}}}"
    if row.kind == "b":
        return "true" if value else "false"
    bits = int.from_bytes(value.tobytes(), "little")
    if row.narrow:
        return f"itf_from_bits({row.cpp}(), (unsigned short){bits:#x})"
    if row.kind == "f":
        wide = value.dtype.itemsize == 8
        return f"__longlong_as_double({bits:#x}LL)" if wide else f"__int_as_float({bits:#x})"
    return f"({row.cpp}){bits:#x}ULL"
