"""The pipeline on one page: expressions -> simplified -> views -> fused -> chosen -> verified."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

from itfuse.config import option, setting
from itfuse.errors import NeedsBuffer
from itfuse.expr import Node
from itfuse.ops import INPUT
from itfuse.plan.fuse import Layouts, fuse
from itfuse.plan.ordered import in_order
from itfuse.plan.primitives import choose
from itfuse.plan.simplify import simplify
from itfuse.plan.stages import Input, Instr, Note, Output, Plan, Program, Stage
from itfuse.plan.stored import copied
from itfuse.plan.terminals import compose, has_terminals
from itfuse.plan.verify import verify
from itfuse.plan.views import push_views
from itfuse.wording import text, toposort

STEPS = ("simplify", "views", "fuse", "choose")


_RECENT = 512
_recent: OrderedDict[Any, Plan] = OrderedDict()
_recent_lock = threading.Lock()


def cached_plan(
    roots: tuple[Node, ...], device: str, max_passes: int | None, layouts: Layouts = ()
) -> Plan:
    """Return `make_plan` of these very nodes, remembered: the last 512 plans are kept.

    Nodes hold no data, so that a remembered plan keeps no array alive.
    """
    limit = option("max_passes", max_passes)
    key = (roots, device, limit, setting("strategy"), setting("determinism"), layouts)
    with _recent_lock:
        plan = _recent.get(key)
        if plan is not None:
            _recent.move_to_end(key)
            return plan
    plan = make_plan(roots, device=device, max_passes=max_passes, layouts=layouts)
    with _recent_lock:
        _recent[key] = plan
        if len(_recent) > _RECENT:
            _recent.popitem(last=False)
    return plan


def make_plan(
    roots: tuple[Node, ...],
    *,
    device: str = "cpu",
    strategy: str | None = None,
    max_passes: int | None = None,
    until: str | None = None,
    layouts: Layouts = (),
) -> Plan:
    """Plan the passes that compute `roots`.

    Parameters
    ----------
    roots : tuple of Node
        What is asked for.
    device : str
        Where the arrays are: `cpu`, `cuda:0`, ...
    strategy, max_passes : optional
        The settings of the same names, by default from `itf.config`.
    until : str, optional
        Stop after this one of `STEPS`, to see what the planner has by then.
    layouts : tuple, optional
        For each root the byte strides of the array to write it to, None for row-major order.

    Returns
    -------
    Plan
        Immutable, with `passes`, `bytes_read`, `bytes_written`, `notes`.

    Raises
    ------
    NeedsBuffer
        If the plan has more passes than `max_passes` allows, or needs an array between passes that
        nobody asked for.
    ConfigError, ValueError
        If an option is not valid.
    """
    if until is not None and until not in STEPS:
        raise ValueError(f"until={until!r}: expected one of {', '.join(STEPS)}")
    limit = option("max_passes", max_passes)
    wish = option("strategy", strategy)
    asked = roots
    roots = simplify(roots)
    if until == "simplify":
        return Plan((), (), (), device, roots)
    engine = "cpu" if device == "cpu" else "cuda"
    if has_terminals(roots):  # the next two steps for one terminal after another
        roots, why = in_order(roots, engine)
        made = compose(roots, (), engine)
        if any(layouts):
            roots, layouts, also = copied(roots, layouts, made.stages, made.results)
            why += also
            made = compose(roots, layouts, engine)
        stages, results, notes = made.stages, made.results, why + made.notes
        roots = tuple(made.roots)
    else:
        roots = push_views(roots)
        if until == "views":
            return Plan((), (), (), device, roots)
        stages, results, notes = fuse(roots)
        if any(layouts):
            roots, layouts, why = copied(roots, layouts, stages, results)
            stages, results, notes = fuse(roots, layouts)
            notes += why
    if until in ("views", "fuse"):
        return Plan(tuple(stages), tuple(results), tuple(notes), device, roots, asked, layouts)
    for number, stage in enumerate(stages):
        stages[number], why = choose(stage, number, engine, wish)
        notes += why
    plan = verify(Plan(tuple(stages), tuple(results), tuple(notes), device, roots, asked, layouts))
    if limit is not None and plan.passes > limit:
        raise NeedsBuffer(_too_many(asked, plan, limit))
    return plan


def _too_many(asked: tuple[Node, ...], plan: Plan, limit: int) -> str:
    what = ", ".join(text(root) for root in asked)
    why = "; ".join(note.text for note in plan.notes if note.reason != "strategy")
    return (
        f"{what} takes {plan.passes} passes and max_passes is {limit}: {why}. Raise max_passes, "
        "or compute the value that the others wait for first"
    )


def leaves(roots: tuple[Node, ...]) -> list[Node]:
    """Return the array leaves of `roots` in order of appearance."""
    return [node for node in toposort(roots) if node.op is INPUT]


__all__ = [
    "STEPS",
    "Input",
    "Instr",
    "Note",
    "Output",
    "Plan",
    "Program",
    "Stage",
    "cached_plan",
    "leaves",
    "make_plan",
]
