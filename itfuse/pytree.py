"""Nested arguments and results: tuples, lists, dicts and dataclasses of arrays and numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

Tree = tuple[Any, ...]
"""The structure, hashable: a kind, what it needs to be made again, and its children."""

LEAF: Tree = ("leaf",)


def flatten(obj: Any, is_leaf: Callable[[Any], bool], leaves: list[Any]) -> Tree:
    """Append the leaves of `obj` to `leaves`, in order, and return the structure around them.

    Parameters
    ----------
    obj : object
        Leaves in tuples, named tuples, lists, dicts and dataclasses; anything else is constant.
    is_leaf : callable
        Says what a leaf is.
    leaves : list
        Where the leaves go.

    Returns
    -------
    tuple
        Equal for equal structures with equal constants.

    Raises
    ------
    TypeError
        For a constant that cannot be compared by its hash.
    """
    if is_leaf(obj):
        leaves.append(obj)
        return LEAF
    kind = type(obj)
    if kind is tuple or kind is list:
        return (kind, None, tuple([flatten(x, is_leaf, leaves) for x in obj]))
    if kind is dict:
        return (dict, tuple(obj), tuple([flatten(x, is_leaf, leaves) for x in obj.values()]))
    if isinstance(obj, tuple) and hasattr(kind, "_fields"):
        return ("named", kind, tuple([flatten(x, is_leaf, leaves) for x in obj]))
    if dataclasses.is_dataclass(obj) and not isinstance(obj, type):
        names = [field.name for field in dataclasses.fields(obj)]
        return (
            "data",
            (kind, *names),
            tuple([flatten(getattr(obj, name), is_leaf, leaves) for name in names]),
        )
    hash(obj)
    return constant(obj)


def constant(obj: Any) -> Tree:
    """Return the structure of a constant, different wherever two are not the same."""
    return ("constant", _told_apart(obj), obj)


def _told_apart(obj: Any) -> Any:
    """Return what tells equal constants apart: 1 == True == 1.0, and -0.0 == 0.0."""
    kind = type(obj)
    if kind is float:
        return kind, obj.hex()
    if kind is complex:
        return kind, obj.real.hex(), obj.imag.hex()
    if isinstance(obj, np.generic):
        return kind, obj.tobytes()
    if isinstance(obj, tuple):
        return kind, tuple([_told_apart(x) for x in obj])
    if isinstance(obj, frozenset):
        return kind, frozenset([(_told_apart(x), x) for x in obj])
    if dataclasses.is_dataclass(obj) and not isinstance(obj, type):
        held = [getattr(obj, field.name) for field in dataclasses.fields(obj)]
        return kind, tuple([_told_apart(x) for x in held])
    return kind


def unflatten(tree: Tree, leaves: Iterator[Any]) -> Any:
    """Return what `flatten` took apart, with other leaves."""
    if tree is LEAF or tree == LEAF:
        return next(leaves)
    kind, detail, children = tree
    if kind == "constant":
        return children
    values = [unflatten(child, leaves) for child in children]
    if kind is tuple:
        return tuple(values)
    if kind is list:
        return values
    if kind is dict:
        return dict(zip(detail, values, strict=True))
    if kind == "named":
        return detail(*values)
    made = object.__new__(detail[0])  # as it was, without what its __init__ would do
    for name, value in zip(detail[1:], values, strict=True):
        object.__setattr__(made, name, value)
    return made


def paths(tree: Tree, name: str) -> list[str]:
    """Return how a user would write each leaf of a tree that is called `name`."""
    if tree == LEAF:
        return [name]
    kind, detail, children = tree
    if kind == "constant":
        return []
    if kind is dict:
        names = [f"{name}[{key!r}]" for key in detail]
    elif kind == "data":
        names = [f"{name}.{field}" for field in detail[1:]]
    elif kind == "named":
        names = [f"{name}.{field}" for field in detail._fields]
    else:
        names = [f"{name}[{at}]" for at in range(len(children))]
    return [path for one, child in zip(names, children, strict=True) for path in paths(child, one)]
