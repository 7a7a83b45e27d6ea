"""From nodes and arrays to results: an expression of a form that has run before runs at once."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from itfuse import engines
from itfuse.config import option, setting, settings_key
from itfuse.engines import READY
from itfuse.errors import BoundsError, DeviceError, RangeError, ShapeError, TraceError
from itfuse.explain import explain_text
from itfuse.expr import Node
from itfuse.form import Deferred, leaves_of
from itfuse.ops import INPUT, SCALAR
from itfuse.plan import cached_plan
from itfuse.plan import leaves as input_leaves
from itfuse.plan.stages import Plan
from itfuse.plan.views import bounds_checks
from itfuse.wording import text

Nodes = tuple[Node, ...]


def evaluate(  # noqa: PLR0917  # by position, which costs least
    nodes: Nodes,
    data: dict[Node, Any],
    device: str,
    out: tuple[Any, ...] | None = None,
    stream: Any = None,
    engine: str | None = None,
    max_passes: int | None = None,
) -> tuple[Any, ...]:
    """Compute expressions together; see `itfuse.compute`.

    Parameters
    ----------
    nodes : tuple of Node
        The expressions.
    data : dict of Node to array
        The array of every input leaf.
    device : str
        Where they are.
    out, stream, engine, max_passes : optional
        As for `itfuse.compute`.

    Returns
    -------
    tuple
        An array for each expression; (shape, dtype) pairs with the null engine.
    """
    form, leaves = form_of_all(nodes)
    layouts = tuple(map(_layout, out)) if out and any(map(_layout, out)) else ()
    key = (form, device, engine, max_passes, settings_key(), layouts)
    if device.startswith("cuda") and setting("bounds_check") and engine != "null":
        check_bounds(nodes, data, device, stream)
    made = READY.get(key) if form is not None else None
    if made is not None:
        try:
            values = [data[leaf] if leaf.op is INPUT else leaf.arg for leaf in leaves]
        except KeyError:
            raise traced_error(nodes, "compute") from None
        return _named(nodes, made, values, out, stream, nodes)

    check_values(nodes, data, "compute")
    name = option("engine", engine)
    runner = engine_of(name, device, nodes)
    plan = cached_plan(nodes, "none" if name == "null" else device, max_passes, layouts)
    if setting("debug"):
        show(plan, runner)
    if form is None or name == "null" or setting("debug"):
        return _named(nodes, engines.run, plan, data, out, stream, runner)
    made = engines.ready(plan, leaves, runner)
    READY.put(key, made)
    values = [data[leaf] if leaf.op is INPUT else leaf.arg for leaf in leaves]
    return _named(nodes, made, values, out, stream, nodes)


def _named(nodes: Nodes, run: Any, *arguments: Any) -> tuple[Any, ...]:
    """Run, and name the expressions if an element has no value: what a plan does not know."""
    try:
        results: tuple[Any, ...] = run(*arguments)
    except (BoundsError, RangeError) as why:
        raise type(why)(f"{_texts(nodes)}: {why}") from None
    return results


def _layout(out: Any) -> tuple[int, ...] | None:
    """Return the strides of an `out` that is not in row-major order; it is checked later."""
    flags = getattr(out, "flags", None)
    in_order = getattr(flags, "c_contiguous", True)
    return None if in_order else tuple(out.strides)


def check_bounds(nodes: Nodes, data: dict[Node, Any], device: str, stream: Any) -> None:
    """Raise `BoundsError` if an index on a GPU is out of bounds and the setting asks to look."""
    looks = setting("bounds_check") and device.startswith("cuda")
    checks = bounds_checks(nodes) if looks else ()
    if checks:
        wrong = engines.run(cached_plan(checks, device, None), data, None, stream)
        if any(bool(one) for one in wrong):
            raise BoundsError(f"{_texts(nodes)}: an index array has values out of bounds")


def form_of_all(nodes: Nodes) -> tuple[Any, Nodes]:
    """Return what equal expressions of other arrays have in common, and where they differ.

    The former is None if they have too many leaves to tell; the latter are their leaves.
    """
    if len(nodes) == 1:
        return nodes[0].form, leaves_of(nodes[0])
    parts: list[Any] = []
    leaves: Nodes = ()
    for node in nodes:
        if node.form is None:
            return None, ()
        parts.append(node.form)
        for leaf in leaves_of(node):
            if leaf not in leaves:
                leaves = (*leaves, leaf)
            parts.append(leaves.index(leaf))
    return tuple(parts), leaves


def check_values(nodes: Nodes, data: dict[Node, Any], what: str) -> None:
    """Raise `TraceError` if an expression stands on values that are not there yet."""
    if any(leaf not in data for leaf in input_leaves(nodes)) or any(
        isinstance(leaf.arg, Deferred) for node in nodes for leaf in leaves_of(node)
        if leaf.op is SCALAR
    ):  # fmt: skip
        raise traced_error(nodes, what)


def traced_error(nodes: Nodes, what: str) -> TraceError:
    """Return the error that says what a traced function cannot do, and what to do instead."""
    names = ", ".join(map(text, nodes))
    return TraceError(
        f"{what}({names}): inside a fused function values are not known yet, because it is traced "
        "once and then run with other data. Use itf.where(condition, a, b) instead of a branch, "
        "make what decides a static argument (itf.fuse(static=...)), or compute it outside"
    )


def engine_of(name: str, device: str, nodes: Nodes) -> Any:
    """Return the engine that runs `nodes` on `device`, where the setting `engine` is `name`."""
    kind = device.partition(":")[0]
    if name == "null":
        return engines.engine_for("none")
    if kind == "none":
        raise DeviceError(
            f"{_texts(nodes)} stands on placeholders without elements; pass real arrays, or "
            "engine='null' to plan and compile only"
        )
    if name not in ("auto", kind):
        raise DeviceError(
            f"{_texts(nodes)} is on {device}, and the engine {name!r} was asked for; move the "
            "arrays there first (cupy.asarray(...) or .get()), or use engine='auto'"
        )
    return engines.engine_for(device)


def _texts(nodes: Nodes) -> str:
    return ", ".join(text(node) for node in nodes)


def show(made: Plan, runner: Any) -> None:
    """Print what runs, as far as the setting `debug` asks."""
    level = setting("debug")
    for number, stage in enumerate(made.stages):
        print(
            f"itfuse: pass {number + 1} of {made.passes}: {stage.primitive} over "
            f"{list(stage.shape)} by {stage.strategy}",
            file=sys.stderr,
        )
    if level >= 2:
        print(explain_text(made), file=sys.stderr)
    if level >= 3 and hasattr(runner, "source"):
        for stage in made.stages:
            print(runner.source(stage), file=sys.stderr)


class Asked:
    """Expressions taken together: all nodes, their arrays, and which nodes each asked for."""

    def __init__(self, arrays: Sequence[Any], device: str) -> None:
        self.arrays, self.device = arrays, device
        self.data: dict[Node, Any] = {}
        self.spots: list[list[int]] = []
        nodes: list[Node] = []
        shared: dict[Node, int] = {}  # what comes with results is needed once
        for x in arrays:
            (result, *beside), data = x._asked()
            self.data.update(data)
            spots = [len(nodes)]
            nodes.append(result)
            for node in beside:
                if node not in shared:
                    shared[node] = len(nodes)
                    nodes.append(node)
                spots.append(shared[node])
            self.spots.append(spots)
        self.nodes = tuple(nodes)

    def outs(self, out: Any) -> tuple[Any, ...] | None:
        """Return an `out` for each node."""
        if out is None:
            return None
        wanted: list[Any] = [None] * len(self.nodes)
        for one, spots in zip(outs_of(out, len(self.arrays)), self.spots, strict=True):
            wanted[spots[0]] = one
        return tuple(wanted)

    def answers(self, results: Sequence[Any], outs: Any, stream: Any) -> tuple[Any, ...]:
        """Return the result of each expression."""
        found = []
        for x, spots in zip(self.arrays, self.spots, strict=True):
            given = outs is not None and outs[spots[0]] is not None
            found.append(x._answer([results[at] for at in spots], stream, given))
        return tuple(found)


def outs_of(out: Any, wanted: int) -> tuple[Any, ...]:
    """Return an `out` for each of `wanted` expressions."""
    outs = tuple(out) if isinstance(out, (tuple, list)) else (out,)
    if len(outs) != wanted:
        what = f"{len(outs)} arrays" if isinstance(out, (tuple, list)) else "one array"
        there = f"there are {wanted} expressions" if wanted > 1 else "there is one expression"
        raise ShapeError(f"out= is {what}, and {there}: pass as many arrays, in a tuple")
    return outs
