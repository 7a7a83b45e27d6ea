"""The shortest way to make a fused call again, with arguments like those of a call before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from itfuse import pytree
from itfuse.engines import MISS, Argument
from itfuse.form import Deferred
from itfuse.trace import NUMBERS, Layout, Record, Same

Call = Callable[[tuple[Any, ...], Any], Any]
"""(a value for every parameter, out) -> what the function returns, or MISS."""


def shortest(  # noqa: PLR0912  # each reason why there is none
    record: Record,
    trees: Sequence[pytree.Tree],
    layouts: Sequence[Any],
    flatten: Callable[[tuple[Any, ...]], tuple[list[Any], Any]],
) -> Call | None:
    """Return the shortest way to call `record`, if there is one.

    Parameters
    ----------
    record : Record
        What a call like this was traced to.
    trees, layouts : sequence
        The structure of its parameters, and what the leaves look like.
    flatten : callable
        Parameters -> leaves and structures.
    """
    ready = record.ready
    count = len(record.results)
    if ready is None or record.results != list(range(count)):
        return None
    feeds: dict[int, list[int]] = {}
    values: list[Any] = []
    for leaf, source in enumerate(record.sources):
        place = source if type(source) is int else None
        if type(source) is Deferred:
            number = source.number
            if number.place < 0 or number.kind not in NUMBERS or len(set(source.casts)) > 1:
                return None
            place = number.place
        if place is not None:
            feeds.setdefault(place, []).append(leaf)
        values.append(None if place is not None else source)
    arguments = []
    for at, layout in enumerate(layouts):
        fed = tuple(feeds.get(at, ()))
        if type(layout) is Layout:
            arguments.append(Argument("array", fed, *layout[1:]))
        elif layout in NUMBERS:
            arguments.append(Argument("number", fed, type=layout))
        else:
            return None
    flat = all(tree == pytree.LEAF or tree[0] == "constant" for tree in trees)
    if flat:
        given = iter(arguments)
        arguments = [
            next(given) if tree == pytree.LEAF else Argument("same", get=_getter(tree[2]))
            for tree in trees
        ]
    call = ready.direct(arguments, values)
    if call is None:
        return None
    if not flat:
        call = _nested(call, flatten, tuple(trees))
    if record.guard is not None:
        call = _guarded(call, record)
    if record.tree != (pytree.LEAF if count == 1 else (tuple, None, (pytree.LEAF,) * count)):
        call = _rebuilt(call, record, count == 1)
    return call


def _getter(x: Any) -> Callable[[], Any]:
    return x.get if isinstance(x, Same) else lambda: x


def _nested(call: Call, flatten: Callable[[tuple[Any, ...]], Any], trees: Any) -> Call:
    def nested(args: tuple[Any, ...], out: Any) -> Any:
        leaves, own = flatten(args)
        return call(tuple(leaves), out) if own == trees else MISS

    return nested


def _guarded(call: Call, record: Record) -> Call:
    current = record.guard
    assert current is not None

    def guarded(args: tuple[Any, ...], out: Any) -> Any:
        return call(args, out) if current() else MISS

    return guarded


def _rebuilt(call: Call, record: Record, single: bool) -> Call:
    def rebuilt(args: tuple[Any, ...], out: Any) -> Any:
        if out is not None:
            return MISS
        result = call(args, out)
        if result is MISS:
            return MISS
        return record.rebuild((result,) if single else result, ())

    return rebuilt
