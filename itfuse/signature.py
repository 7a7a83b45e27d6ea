"""Parameters of a fused function: what is given for each, and what in it is part of a signature."""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from itfuse import pytree
from itfuse.trace import CONSTANTS, Same, is_leaf

Trees = tuple[pytree.Tree, ...]
"""The structure of each parameter's value."""

_RESERVED = ("out", "stream")
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Signature:
    """The parameters of a function.

    Parameters
    ----------
    function : callable
        The function.
    static : tuple of str
        Parameters whose values are part of a signature.
    watch : callable, optional
        For a method: told of the object that it is called on, and what stands for it.

    Attributes
    ----------
    label : str
        What errors call the function.
    names : list of str
        The parameters.
    fixed : list of bool
        Which of them are part of a signature as they are.
    count : int
        Number of parameters if all can be given by position, else -1.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        static: tuple[str, ...],
        watch: Callable[[Same, Any], None] | None,
    ) -> None:
        self._function = function
        self._watch = watch
        if isinstance(function, np.ufunc) or type(function) is type(len):
            raise TypeError(
                f"itf.fuse({function.__name__}): {function!r} is not written in Python, so that "
                f"it cannot be traced; fuse a function that calls it, or itfuse's own function"
            )
        self._of = inspect.signature(function)
        self._parameters = list(self._of.parameters.values())
        self.names = [one.name for one in self._parameters]
        self.label = getattr(function, "__qualname__", repr(function))
        for name in static:
            if name not in self.names:
                raise TypeError(
                    f"static={name!r}: {self.label} has the parameters {self.names}, not that one"
                )
        for name in _RESERVED:
            if name in self.names:
                raise TypeError(
                    f"{self.label}: a parameter called {name!r} would hide the one of a fused "
                    "call; rename it"
                )
        self._plain = all(one.kind in _POSITIONAL for one in self._parameters)
        self.count = len(self.names) if self._plain else -1
        self.fixed = [name in static for name in self.names]
        if watch is not None:
            self.fixed[0] = True
        self._patterns: dict[Any, list[Any]] = {}

    def complete(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """Return a value for every parameter, in order."""
        pattern = (len(args), *kwargs)
        found = self._patterns.get(pattern)
        if found is None:
            bound = self._of.bind(*args, **kwargs)
            if not self._plain:
                bound.apply_defaults()
                return tuple(bound.arguments.values())
            found = [(one.name, one.default) for one in self._parameters[len(args) :]]
            self._patterns[pattern] = found
        return (*args, *[kwargs.get(name, default) for name, default in found])

    def apply(self, full: Sequence[Any]) -> Any:
        """Call the function with a value for every parameter."""
        if self._plain:
            return self._function(*full)
        named: Any = OrderedDict(zip(self.names, full, strict=True))
        bound = inspect.BoundArguments(self._of, named)
        return self._function(*bound.args, **bound.kwargs)

    def flatten(self, full: tuple[Any, ...]) -> tuple[list[Any], Trees]:
        """Return the arrays and numbers among the arguments, and the structure around them."""
        leaves: list[Any] = []
        trees: list[pytree.Tree] = []
        for at, (fixed, x) in enumerate(zip(self.fixed, full, strict=True)):
            if fixed:
                trees.append(self._tree(at, x))
                continue
            try:
                trees.append(pytree.flatten(x, is_leaf, leaves))
            except TypeError:
                raise self._no_argument(at, x) from None
            except RecursionError:
                if is_leaf(x):  # of the function, which calls itself
                    raise
                raise TypeError(
                    f"{self.label}: {self.names[at]} holds itself, or is nested too deeply; "
                    "pass what it holds in a list"
                ) from None
            if trees[-1] is not pytree.LEAF:
                self._check(at, trees[-1])
        return leaves, tuple(trees)

    def _tree(self, at: int, x: Any) -> pytree.Tree:
        if at == 0 and self._watch is not None:
            same = Same(x)
            self._watch(same, x)
            return ("constant", Same, same)
        try:
            hash(x)
        except TypeError:
            raise TypeError(
                f"{self.label}: the static argument {self.names[at]} is a {type(x).__name__}, "
                "which has no hash; pass a tuple, a string, a number or the like"
            ) from None
        return pytree.constant(x)

    def _check(self, at: int, tree: pytree.Tree) -> None:
        if tree[0] == "constant":
            if not (tree[2] is None or isinstance(tree[2], CONSTANTS)):
                raise self._no_argument(at, tree[2])
        elif tree != pytree.LEAF:
            for child in tree[2]:
                self._check(at, child)

    def _no_argument(self, at: int, x: Any) -> TypeError:
        name = self.names[at]
        static = f"a static argument: itf.fuse(static=({name!r},))"
        if isinstance(x, complex):
            return TypeError(
                f"{self.label}: {name} is or holds the complex number {x}; a number of a call is a "
                f"bool, an int or a float. Pass a 0-d array, or make it {static}"
            )
        return TypeError(
            f"{self.label}: {name} is or holds a {type(x).__name__} object, which is neither "
            f"an array nor a number; make it {static}"
        )
