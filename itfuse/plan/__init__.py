"""The pipeline on one page: expressions -> simplified -> fused -> chosen -> verified plan."""

from __future__ import annotations

from itfuse.config import setting
from itfuse.errors import NeedsBuffer
from itfuse.expr import INPUT, Node, text, toposort
from itfuse.plan.fuse import fuse
from itfuse.plan.primitives import choose
from itfuse.plan.simplify import simplify
from itfuse.plan.stages import Input, Instr, Note, Output, Plan, Program, Stage
from itfuse.plan.verify import verify

STEPS = ("simplify", "fuse", "choose")


def make_plan(
    roots: tuple[Node, ...],
    *,
    device: str = "cpu",
    strategy: str | None = None,
    max_passes: int | None = None,
    until: str | None = None,
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

    Returns
    -------
    Plan
        Immutable, with `passes`, `bytes_read`, `bytes_written`, `notes`.

    Raises
    ------
    NeedsBuffer
        If the plan has more passes than `max_passes` allows.
    """
    asked = roots
    roots = simplify(roots)
    if until == "simplify":
        return Plan((), (), (), device, roots)
    stages, results, notes = fuse(roots)
    if until == "fuse":
        return Plan(tuple(stages), tuple(results), tuple(notes), device, roots)
    engine = "cpu" if device == "cpu" else "cuda"
    wish = strategy or setting("strategy")
    for number, stage in enumerate(stages):
        stages[number], why = choose(stage, number, engine, wish)
        notes += why
    plan = verify(Plan(tuple(stages), tuple(results), tuple(notes), device, roots))
    limit = max_passes if max_passes is not None else setting("max_passes")
    if limit is not None and plan.passes > limit:
        raise NeedsBuffer(_too_many(asked, plan, limit))
    return plan


def _too_many(asked: tuple[Node, ...], plan: Plan, limit: int) -> str:
    what = ", ".join(text(root) for root in asked)
    why = "; ".join(note.text for note in plan.notes if note.reason != "strategy")
    return (f"{what} takes {plan.passes} passes and max_passes is {limit}: {why}. Raise max_passes, "
            "or compute the value that the others wait for first")  # fmt: skip


def leaves(roots: tuple[Node, ...]) -> list[Node]:
    """Return the array leaves of `roots` in order of appearance."""
    return [node for node in toposort(roots) if node.op is INPUT]


__all__ = ["STEPS", "Input", "Instr", "Note", "Output", "Plan", "Program", "Stage", "leaves",
           "make_plan"]  # fmt: skip
