"""Nested arguments and results: tuples, lists, dicts and dataclasses of arrays and numbers."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from itfuse.errors import ShapeError

Tree = tuple[Any, ...]
"""The structure, hashable: a kind, what it needs to be made again, and its children."""

LEAF: Tree = ("leaf",)
_DICTS = {dict, OrderedDict, defaultdict}
_STRINGS = {str}


def flatten(obj: Any, is_leaf: Callable[[Any], bool], leaves: list[Any]) -> Tree:
    """Append the leaves of `obj` to `leaves`, in order, and return the structure around them.

    Parameters
    ----------
    obj : object
        Leaves in tuples, named tuples, lists, dicts (`OrderedDict` and `defaultdict` too) and
        dataclasses; anything else is constant.
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
    RecursionError
        For what is nested too deeply, or holds itself.
    """
    if is_leaf(obj):
        leaves.append(obj)
        return LEAF
    kind = type(obj)
    if kind is tuple or kind is list:
        return (kind, None, tuple([flatten(x, is_leaf, leaves) for x in obj]))
    if kind in _DICTS:
        keys = tuple(obj)
        # 1, True and 1.0 are one key and not the same; strings are told apart by themselves.
        told = None if {*map(type, keys)} == _STRINGS else tuple(map(_told_apart, keys))
        made = getattr(obj, "default_factory", None)
        return (
            "map",
            (keys, told, kind, made),
            tuple([flatten(x, is_leaf, leaves) for x in obj.values()]),
        )
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
    return ("constant", _told_apart(obj), _one_nan(obj))


def _one_nan(obj: Any) -> Any:
    """Return a constant with the one NaN that equals itself: by being the same object."""
    if isinstance(obj, (float, np.inexact)):
        return _NANS.setdefault(_told_apart(obj), obj) if np.isnan(obj) else obj
    if type(obj) is tuple:
        held = [_one_nan(x) for x in obj]
        if any(new is not old for new, old in zip(held, obj, strict=True)):
            return tuple(held)
    return obj


_NANS: dict[Any, Any] = {}
"""NaNs by what tells them apart."""


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
    if kind == "map":
        keys, _, cls, made = detail
        items = zip(keys, values, strict=True)
        return defaultdict(made, items) if cls is defaultdict else cls(items)
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
    if kind == "map":
        names = [f"{name}[{key!r}]" for key in detail[0]]
    elif kind == "data":
        names = [f"{name}.{field}" for field in detail[1:]]
    elif kind == "named":
        names = [f"{name}.{field}" for field in detail._fields]
    else:
        names = [f"{name}[{at}]" for at in range(len(children))]
    return [path for one, child in zip(names, children, strict=True) for path in paths(child, one)]


def count(tree: Tree) -> int:
    """Return the number of leaves."""
    if tree == LEAF:
        return 1
    return 0 if tree[0] == "constant" else sum(map(count, tree[2]))


def match(tree: Tree, given: Any, name: str) -> list[Any]:
    """Return what `given`, called `name`, has for each leaf of a tree: by key, by field, by place.

    Parameters
    ----------
    tree : tuple
        The structure.
    given : object
        Of that structure. None stands for a part of which nothing is given, and a dict may lack
        keys; tuples, named tuples and lists stand for each other.
    name : str
        What errors call it.

    Raises
    ------
    ShapeError
        If the structure is another one.
    """
    if given is None:
        return [None] * count(tree)
    if tree == LEAF:
        if isinstance(given, (tuple, list, dict)):
            raise _unlike(name, "one array", given)
        return [given]
    kind, detail, children = tree
    if kind == "constant":
        if hasattr(type(given), "shape"):
            raise _unlike(name, f"no array where the result is {children!r}", given)
        return []
    if kind == "map":
        if not isinstance(given, dict) or given.keys() - set(detail[0]):
            raise _unlike(name, f"a dict with the keys {list(detail[0])}", given)
        parts = [given.get(key) for key in detail[0]]
    elif kind == "data":
        if not isinstance(given, detail[0]):
            raise _unlike(name, f"a {detail[0].__name__}", given)
        parts = [getattr(given, field) for field in detail[1:]]
    else:
        if not isinstance(given, (tuple, list)) or len(given) != len(children):
            raise _unlike(name, f"a sequence of {len(children)}", given)
        parts = list(given)
    names = paths((kind, detail, (LEAF,) * len(children)), name)
    return [x for parts in zip(children, parts, names, strict=True) for x in match(*parts)]


def _unlike(name: str, wanted: str, given: Any) -> ShapeError:
    found = f"a {type(given).__name__}"
    if isinstance(given, dict):
        found += f" with the keys {list(given)}"
    elif isinstance(given, (tuple, list)):
        found += f" of {len(given)}"
    return ShapeError(f"{name}= is {found}; expected {wanted}, or None")
