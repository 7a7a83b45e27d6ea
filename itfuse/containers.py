"""What is computed together may be held by containers, whose structure the results keep.

`compute`, `plan`, `explain` and what stands on them take their arguments apart here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from itfuse import engines, pytree
from itfuse.errors import ShapeError, Unsupported
from itfuse.form import Number

_ARRAYS = ("__cuda_array_interface__", "__dlpack_device__", "__array_interface__", "__array__")


def is_lazy(x: Any) -> bool:
    """Whether `x` is an expression."""
    return hasattr(type(x), "_asked")


def is_array(x: Any) -> bool:
    """Whether `x` is an expression or an array of any library, and no number."""
    return not isinstance(x, np.generic) and (
        is_lazy(x) or any(engines.offers(x, name) for name in _ARRAYS)
    )


def holds(obj: Any, found: Any) -> bool:
    """Whether nested lists and tuples hold what `found` says, asked once for each type."""
    if isinstance(obj, (list, tuple)):
        kinds = {type(x): x for x in obj}
        nested = any(issubclass(kind, (list, tuple)) for kind in kinds)
        return any(map(found, kinds.values())) or (nested and any(holds(x, found) for x in obj))
    return False


def no_expressions(obj: Any, what: str) -> None:
    """Refuse lists that hold expressions where an array is expected.

    Raises
    ------
    Unsupported
        NumPy would ask each for its elements: that computes them one by one, on the host.
    """
    if isinstance(obj, (list, tuple)) and holds(obj, is_lazy):
        raise Unsupported(
            f"{what}: the {type(obj).__name__} holds expressions; join them lazily with "
            "itf.stack or itf.concat, or compute() them together with itf.compute"
        )


def _is_leaf(x: Any) -> bool:
    if isinstance(x, (list, tuple)) and not hasattr(x, "_fields"):
        return bool(x) and not holds(x, lambda one: is_array(one) or _other(one))  # of numbers
    return isinstance(x, Number) or is_array(x)


def _other(x: Any) -> bool:
    """Whether `x` is something that no array is made of."""
    return x is None or isinstance(x, (str, bytes, dict)) or hasattr(x, "__dataclass_fields__")


class Given:
    """Arguments taken apart.

    Attributes
    ----------
    leaves : list
        The expressions and arrays in them, in order. A list of numbers is an array; a number, a
        string or None inside of a container stays what it is.
    """

    def __init__(self, arguments: Sequence[Any], what: str) -> None:
        self.leaves: list[Any] = []
        self._trees: list[pytree.Tree] = []
        for one in arguments:
            if isinstance(one, (bool, int, float, complex)):
                self.leaves.append(one)
                self._trees.append(pytree.LEAF)
                continue
            try:
                self._trees.append(pytree.flatten(one, _is_leaf, self.leaves))
            except TypeError as why:
                raise TypeError(
                    f"{what}: {why}; give expressions, or tuples, lists, dicts and dataclasses of "
                    "them"
                ) from None
            if self._trees[-1][0] == "constant":  # which only what makes arrays can refuse
                self.leaves.append(one)
                self._trees[-1] = pytree.LEAF

    @property
    def flat(self) -> bool:
        """Whether every argument is an expression or an array by itself."""
        return all(tree == pytree.LEAF for tree in self._trees)

    def rebuild(self, results: Sequence[Any]) -> Any:
        """Return results in the places of the leaves."""
        values = iter(results)
        made = [pytree.unflatten(tree, values) for tree in self._trees]
        return made[0] if len(made) == 1 else tuple(made)

    def outs(self, out: Any) -> Any:
        """Return an `out` for each leaf; None anywhere in it is one for nothing below."""
        if out is None or self.flat:
            return out
        whole = (out,) if len(self._trees) == 1 else out
        if not isinstance(whole, (tuple, list)) or len(whole) != len(self._trees):
            raise ShapeError(
                f"out= must be a tuple of {len(self._trees)}, one for each argument, or None"
            )
        return tuple(
            found
            for at, (one, tree) in enumerate(zip(whole, self._trees, strict=True))
            for found in pytree.match(tree, one, "out" if len(self._trees) == 1 else f"out[{at}]")
        )
