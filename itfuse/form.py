"""Forms: what expressions of one structure have in common, whatever arrays they stand on.

The lowest part of expr.py, which makes the nodes; a form is interned like a node.
"""

from __future__ import annotations

import weakref
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from itfuse.ops import INPUT, SCALAR
from itfuse.rows.op import Op

if TYPE_CHECKING:
    from itfuse.expr import Node, Shape


class Fields:
    """The fields of a node while it is made; setting them one by one past `Node` costs more."""

    __slots__ = ("__weakref__", "arg", "dtype", "form", "leaves", "op", "shape", "srcs")

    def __init__(  # noqa: PLR0917  # by position, which costs least
        self,
        op: Op,
        srcs: tuple[Node, ...],
        dtype: np.dtype[Any],
        shape: Shape,
        arg: Any,
        form: Form | None,
        leaves: tuple[Node, ...],
    ) -> None:
        self.op = op
        self.srcs = srcs
        self.dtype = dtype
        self.shape = shape
        self.arg = arg
        self.form = form
        self.leaves = leaves


class Number:
    """A Python number that is known only when a call is made: an argument of a traced function.

    As an operand it is weak, like the number it stands for; the scalar leaf that it becomes has a
    `Deferred` value.

    Attributes
    ----------
    kind : type
        `bool`, `int` or `float`.
    device : str
        Where the arrays of the call are.
    """

    __slots__ = ("device", "kind")

    kind: type
    device: str


class Deferred:
    """The value of a scalar leaf that is known only when a call is made.

    Attributes
    ----------
    number : object
        What gives the value at the call (a `Number`, or an argument that is a NumPy scalar).
    casts : tuple of numpy.dtype
        The dtypes it is converted to, in turn.
    """

    __slots__ = ("casts", "number")

    def __init__(self, number: Any, casts: tuple[np.dtype[Any], ...]) -> None:
        self.number = number
        self.casts = casts

    def tobytes(self) -> Any:
        """Return the identity of the leaf."""
        return (id(self.number), *(dtype.num for dtype in self.casts))

    def astype(self, dtype: np.dtype[Any]) -> Deferred:
        """Return the value converted once more."""
        return Deferred(self.number, (*self.casts, dtype))

    def item(self) -> Any:
        """Return what stands for the value in texts."""
        return self.number


class Fixed:
    """The value of a scalar leaf that planning made: the same in every call of a plan."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def tobytes(self) -> Any:
        """Return the identity of the leaf: never that of a scalar that a call may change."""
        return ("fixed", self.value.dtype.num, self.value.tobytes())

    def astype(self, dtype: np.dtype[Any]) -> Fixed:
        """Return the value converted."""
        return Fixed(self.value.astype(dtype))

    def item(self) -> Any:
        """Return the value as a Python number."""
        return self.value.item()


class Form:
    """What two nodes have in common that differ only in their leaves; compared by identity.

    Equal forms over leaves in the same order are equal expressions, so that a plan made for one
    runs the other: only the leaves are bound anew.
    """

    __slots__ = ("__weakref__", "srcs")

    def __init__(self, srcs: tuple[Form, ...]) -> None:
        self.srcs = srcs  # the key holds their ids


FORM_LEAVES = 32
"""Expressions of more leaves have no form: numbering the leaves at every node would cost more than
planning once."""


class Entry(weakref.ref[Any]):
    """A weak reference in a table, which knows its key."""

    __slots__ = ("key",)

    key: Any


class Interned:
    """A table of living values by key, for callers that hold a lock.

    `WeakValueDictionary` does the same with a Python call at each birth and each death, which is
    most of what a node costs. Here a death costs an append, and the next `put` sweeps.
    """

    __slots__ = ("dead", "entries", "gone")

    def __init__(self) -> None:
        self.entries: dict[Any, Entry] = {}
        self.dead: deque[Entry] = deque()
        self.gone = self.dead.append

    def put(self, key: Any, value: Any) -> None:
        """Enter a value; its key must not hold it."""
        dead, entries = self.dead, self.entries
        while dead:
            old = dead.popleft()
            if entries.get(old.key) is old:  # not entered again since
                del entries[old.key]
        entry = Entry(value, self.gone)
        entry.key = key
        entries[key] = entry


_forms = Interned()


def leaves_of(node: Node) -> tuple[Node, ...]:
    """Return the distinct leaves under `node` in order of appearance; empty without a form."""
    return (node,) if node.op is INPUT or node.op is SCALAR else node.leaves


def form_of(  # noqa: PLR0912  # one walk over the operands
    op: Op, srcs: tuple[Node, ...], dtype: np.dtype[Any], shape: Shape, arg: Any
) -> tuple[Form | None, tuple[Node, ...]]:
    """Return the form of a node, and its leaves; a leaf does not list itself (a cycle)."""
    leaves: tuple[Node, ...] = ()
    if not srcs:
        if op is SCALAR:
            arg = isinstance(arg, Deferred)  # never to be taken for a value that is there
        elif op is INPUT:
            arg = arg.strides
        key: tuple[Any, ...] = (op.name, dtype.num, shape, arg)
    else:
        parts: list[Any] = [op.name, dtype.num, shape, arg]
        for src in srcs:
            if src.form is None:
                return None, ()
            parts.append(id(src.form))
            own = src.leaves or leaves_of(src)
            if not leaves:
                leaves = own
            elif own != leaves:
                for leaf in own:
                    if leaf not in leaves:
                        leaves = (*leaves, leaf)
                    parts.append(leaves.index(leaf))
        if len(leaves) > FORM_LEAVES:
            return None, ()
        key = tuple(parts)
    try:
        entry = _forms.entries.get(key)
    except TypeError:  # an op whose argument cannot be a key
        return None, ()
    form: Form | None = None if entry is None else entry()
    if form is None:
        form = Form(tuple([src.form for src in srcs if src.form is not None]))
        _forms.put(key, form)
    return form, leaves
