"""Tracing: what a function does to arrays and numbers that are not there yet."""

from __future__ import annotations

import itertools
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from itfuse import engines, expr, pytree, random, wording
from itfuse.array import Array, asarray
from itfuse.config import setting
from itfuse.engines import Ready, wrapped
from itfuse.errors import TraceError, Unsupported
from itfuse.evaluate import engine_of, show
from itfuse.expr import Memory, Node
from itfuse.form import Deferred
from itfuse.number import TracedNumber, as_array
from itfuse.ops import INPUT
from itfuse.origin import Search, guard, held_elsewhere, holds, owner
from itfuse.plan import cached_plan

NUMBERS = {int, float}
"""Types of arguments whose values are no part of a signature. A bool is a flag, and part of it."""
_CONTAINERS = {tuple, list, dict}
CONSTANTS = (bool, str, bytes, type, np.dtype)
"""Types of arguments that are part of a signature as they are, None beside."""
_PROTOCOLS = ("__cuda_array_interface__", "__dlpack_device__", "__array_interface__")
_unknown = itertools.count(1)


class Same:
    """Stands for an object that is itself part of the signature, by identity, not kept alive.

    `weak` is whether it can be referred to weakly: a trace for another one serves no later call.
    """

    __slots__ = ("get", "number", "weak")

    def __init__(self, obj: Any) -> None:
        self.number = id(obj)
        self.weak = True
        try:
            self.get: Callable[[], Any] = weakref.ref(obj)
        except TypeError:  # it cannot be referred to weakly, and so nothing may be kept for it
            self.get = lambda: obj
            self.weak = False

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.number == other.number


class Layout(NamedTuple):
    """What a signature holds of an array: everything but its place and its elements."""

    device: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class Argument(Memory):
    """The place of an array that a later call gives; its `pointer` is a number of its own."""

    name: str

    def __new__(
        cls, device: str, pointer: int, strides: tuple[int, ...], name: str = ""
    ) -> Argument:
        """Make the place of the argument that the user would write as `name`."""
        made = super().__new__(cls, device, pointer, strides)
        made.name = name
        return made


def is_leaf(x: Any) -> bool:
    """Return whether `x` is an array or a number, not something that holds them or a constant."""
    kind = type(x)
    if kind in NUMBERS or kind is np.ndarray or kind is TracedNumber:
        return True
    if kind is Same:
        return False
    if kind in _CONTAINERS or x is None or isinstance(x, CONSTANTS):
        return False
    return isinstance(x, (Array, np.generic)) or any(engines.offers(x, name) for name in _PROTOCOLS)


def is_number(x: Any) -> bool:
    """Return whether a leaf is a number, Python's or NumPy's."""
    return type(x) in NUMBERS or isinstance(x, (TracedNumber, np.generic))


def describe(leaves: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Return arguments as arrays of their engine's library and numbers, and what they look like.

    Parameters
    ----------
    leaves : sequence
        Arrays and numbers; a lazy `Array` that is an input stands for its layout.

    Returns
    -------
    arguments : list
        Arrays and numbers.
    layouts : list
        For each a `Layout`, or the type of the number.
    """
    arguments: list[Any] = []
    layouts: list[Any] = []
    for x in leaves:
        kind = type(x)
        if kind in NUMBERS or isinstance(x, np.generic):
            arguments.append(x)
            layouts.append(kind)
        elif kind is Array:
            node = x._node
            if node.op is not INPUT:
                raise TraceError(
                    f"{wording.text(node)} is an expression; give arrays or itf.spec(shape, dtype)"
                )
            arguments.append(None)
            layouts.append(Layout(x._device, node.dtype, node.shape, node.arg.strides))
        else:
            array, memory = engines.wrap(x)
            arguments.append(array)
            layouts.append(Layout(memory.device, array.dtype, tuple(array.shape), memory.strides))
    return arguments, layouts


class Record:
    """What one signature was traced to, for the sizes of one call.

    Attributes
    ----------
    ready : Ready or None
        The passes; None if the results are numbers only.
    sources : list
        For each leaf of the passes what gives its value: the place of an argument, a `Deferred`
        number, or a value.
    tree : tuple
        Structure of the results.
    results : list
        For each leaf of the results its place among the arrays, or (the number it is,).
    guard : callable, optional
        Returns whether what the function closes over still lies where it did.
    kept : bool
        Whether it serves later calls: not if nobody could tell that an array was replaced.
    short : callable, False or None
        The shortest way to call it; False if there is none, None if nobody has asked.
    """

    def __init__(  # noqa: PLR0917
        self,
        ready: Ready | None,
        sources: list[Any],
        tree: pytree.Tree,
        results: list[Any],
        guard: Callable[[], bool] | None = None,
        kept: bool = True,
    ) -> None:
        self.ready = ready
        self.sources = sources
        self.tree = tree
        self.results = results
        self.guard = guard
        self.kept = kept
        self.short: Any = None

    def current(self) -> bool:
        """Return whether what the function closes over is still what was traced."""
        return self.guard is None or self.guard()

    def values(self, arguments: Sequence[Any]) -> list[Any] | None:
        """Return the value of every leaf, or None if a number does not fit what was traced."""
        values = []
        for source in self.sources:
            if type(source) is int:
                values.append(arguments[source])
            elif type(source) is Deferred:
                value = source.number.value(arguments)
                if type(value) is not source.number.kind:
                    return None
                try:
                    value = source.casts[0].type(value)
                except OverflowError:
                    return None
                for dtype in source.casts[1:]:
                    value = value.astype(dtype)
                values.append(value)
            else:
                values.append(source)
        return values

    def rebuild(self, arrays: Sequence[Any], arguments: Sequence[Any]) -> Any:
        """Return the results as the function returned them."""
        leaves = [
            arrays[x]
            if type(x) is int
            else x[0].value(arguments)
            if isinstance(x[0], TracedNumber)
            else x[0]
            for x in self.results
        ]
        return pytree.unflatten(self.tree, iter(leaves))


class Trace:
    """One run of a function on what stands for its arguments.

    Parameters
    ----------
    name : str
        What errors call the function.
    function : callable
        A value for each parameter -> what the function returns.
    names : sequence of str
        The parameters.
    trees : tuple
        The structure of each parameter's value.
    arguments, layouts : sequence
        From `describe`.

    Attributes
    ----------
    results : list
        The leaves of what it returned.
    tree : tuple
        The structure around them.
    places : dict of Node to int
        Which argument each array leaf stands for.
    device : str
        Where the arguments are.
    """

    def __init__(  # noqa: PLR0917
        self,
        name: str,
        function: Callable[[Sequence[Any]], Any],
        names: Sequence[str],
        trees: Sequence[pytree.Tree],
        arguments: Sequence[Any],
        layouts: Sequence[Any],
    ) -> None:
        self.name = name
        self.arguments = arguments
        self.trees = trees
        self.device = next(one.device for one in layouts if type(one) is Layout)
        self.places: dict[Node, int] = {}
        self.numbers: list[TracedNumber] = []
        paths = [path for one, tree in zip(names, trees, strict=True)
                 for path in pytree.paths(tree, one)]  # fmt: skip
        stand_ins: Iterator[Any] = iter([
            self._stand_in(at, *one)
            for at, one in enumerate(zip(arguments, layouts, paths, strict=True))
        ])  # fmt: skip
        full = [pytree.unflatten(tree, stand_ins) for tree in trees]
        before, wrapped.seen = getattr(wrapped, "seen", None), []
        try:
            with random.tracing(name):
                returned = function([x.get() if isinstance(x, Same) else x for x in full])
        finally:
            seen, wrapped.seen = wrapped.seen, before
        self.wrapped = [(obj, array) for obj, array in seen if is_leaf(obj) and not is_number(obj)]
        found: list[Any] = []
        try:
            self.tree = pytree.flatten(returned, is_leaf, found)
        except (TypeError, RecursionError):
            raise self._returns(returned) from None
        self._check_returned(self.tree)
        self.results = [
            x if isinstance(x, (Array, TracedNumber)) or type(x) in NUMBERS else asarray(x)
            for x in found
        ]

    def _returns(self, x: Any) -> TypeError:
        return TypeError(
            f"{self.name} returns a {type(x).__name__}; return arrays and numbers, in tuples, "
            "lists, dicts or dataclasses"
        )

    def _check_returned(self, tree: pytree.Tree) -> None:
        """Refuse results that would bring what stands for arrays out of the trace."""
        if tree[0] == "constant":
            x = tree[2]
            if hasattr(type(x), "__next__") or hasattr(type(x), "__await__"):
                raise self._returns(x)
            if holds(x, lambda one: type(one) is TracedNumber or isinstance(one, Array)):
                raise self._returns(x)
        elif tree != pytree.LEAF:
            for child in tree[2]:
                self._check_returned(child)

    def _stand_in(self, at: int, x: Any, layout: Any, path: str) -> Any:
        if type(layout) is Layout:
            memory = Argument(layout.device, -next(_unknown), layout.strides, path)
            node = expr.make(INPUT, (), layout.dtype, layout.shape, memory)
            self.places[node] = at
            return Array(node, {}, layout.device)
        number = TracedNumber(x, path, self.device, at)
        self.numbers.append(number)
        return as_array(number) if isinstance(x, np.generic) else number

    @property
    def arrays(self) -> list[Array]:
        """The array results."""
        return [x for x in self.results if isinstance(x, Array)]

    def record(self, function: Any) -> Record:
        """Plan and build the results; `function` is asked for the arrays it closes over."""
        arrays = self.arrays
        count = itertools.count()
        results = [next(count) if isinstance(x, Array) else (x,) for x in self.results]
        if not arrays:
            return Record(None, [], self.tree, results)
        data: dict[Node, Any] = {}
        for one in arrays:
            data.update(one._data)
            if one._device != self.device:
                raise Unsupported(
                    f"{self.name} returns {wording.text(one._node)} on {one._device} for arguments "
                    f"on {self.device}; all results come from one device"
                )
        nodes = tuple([one._node for one in arrays])
        name = setting("engine")
        runner = engine_of(name, self.device, nodes)
        made = cached_plan(nodes, "none" if name == "null" else self.device, None)
        if setting("debug"):
            show(made, runner)
        leaves = [i.source for stage in made.stages for i in stage.inputs]
        wanted = list(dict.fromkeys(leaf for leaf in leaves if isinstance(leaf, Node)))
        sources = [self._source(leaf, data) for leaf in wanted]
        ready = engines.ready(made, wanted, runner)
        closed = [x for leaf, x in data.items() if leaf in wanted]
        theirs = self._theirs(closed, data, sources)
        missing, guard = self._guard(closed, function)
        foreign = [x for x, other in zip(closed, theirs, strict=True)
                   if other and id(x) in missing]  # fmt: skip
        if foreign:
            warnings.warn(
                f"{self.name} uses an array of shape {tuple(foreign[0].shape)} that is not found "
                "in its variables, nor near them: each call traces it again, because another "
                "array in its place would not be seen; pass it as an argument",
                RuntimeWarning,
                stacklevel=2,
            )
        return Record(ready, sources, self.tree, results, guard, not foreign)

    def _theirs(self, closed: list[Any], data: dict[Node, Any], sources: list[Any]) -> list[bool]:
        """Return which arrays somebody holds besides this trace: the function has not made them.

        Those of other libraries are taken for such.
        """
        owners = [owner(x) for x in closed]
        lazy = [x for x in self.results if isinstance(x, Array)]
        dicts = [*{id(one._data): one._data for one in lazy}.values(), data]
        held = Counter(id(x) for x in (*closed, *owners, *sources))
        held.update(id(x) for one in dicts for x in one.values())
        for at in range(len(closed)):
            if owners[at] is not closed[at]:  # a view of it
                held[id(owners[at])] += 1
        other = {id(array) for _, array in self.wrapped}
        return [
            id(closed[at]) in other
            or held_elsewhere(closed[at], held[id(closed[at])])
            or held_elsewhere(owners[at], held[id(owners[at])])
            for at in range(len(closed))
        ]

    def _guard(
        self, closed: list[Any], function: Any
    ) -> tuple[set[int], Callable[[], bool] | None]:
        """Return which arrays are found nowhere (their ids), and what guards the others."""
        objects = {id(array): obj for obj, array in self.wrapped}
        owners = [tree[2].get for tree in self.trees
                  if tree[0] == "constant" and isinstance(tree[2], Same)]  # fmt: skip
        search = Search([objects.get(id(x), x) for x in closed], function, owners)
        missing = {id(x) for x in closed if id(owner(objects.get(id(x), x))) in search.missing}
        return missing, guard(search)

    def _source(self, leaf: Node, data: dict[Node, Any]) -> Any:
        """Return what gives a leaf its value: see `Record.sources`."""
        if leaf in self.places:
            return self.places[leaf]
        if leaf.op is INPUT:
            if leaf not in data:
                raise self._foreign(leaf.arg.name)
            return data[leaf]
        if isinstance(leaf.arg, Deferred):
            given = leaf.arg.number
            for number in given.parts if isinstance(given, TracedNumber) else ():
                if number.place >= 0 and not any(number is own for own in self.numbers):
                    raise self._foreign(number.name)
        return leaf.arg

    def _foreign(self, what: str) -> TraceError:
        return TraceError(
            f"{self.name} uses {what}, an argument of an earlier call that it stored; what a trace "
            "makes must not leave the function except as its result"
        )
