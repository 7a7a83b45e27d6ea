"""Text of a plan. It reads numbers that the planner made and decides nothing."""

from __future__ import annotations

from itfuse.config import setting
from itfuse.engines import engine_for
from itfuse.expr import Node
from itfuse.ops import INPUT
from itfuse.plan.stages import Plan, Stage
from itfuse.wording import leaf_names, text, toposort

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def bytes_text(count: float) -> str:
    """Return `count` bytes in binary units: `1.50 GiB`."""
    unit = 0
    while count >= 1024 and unit < len(_UNITS) - 1:
        count, unit = count / 1024, unit + 1
    return f"{count:.0f} B" if unit == 0 else f"{count:.2f} {_UNITS[unit]}"


def time_text(seconds: float) -> str:
    """Return a time in the unit that reads best: `12.3 us`."""
    for scale, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "us")):
        if seconds * scale >= 1:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def _bandwidth(plan: Plan) -> float | None:
    wished = setting("bandwidth")
    if wished is not None:
        return float(wished) * 1e9
    return None if plan.device == "none" else float(engine_for(plan.device).bandwidth())


def _inputs(stage: Stage, names: dict[Node, str]) -> str:
    parts = []
    for i in stage.inputs:
        if i.kind == "carried" and isinstance(i.source, tuple):
            size = "" if i.layout == "fixed" else f"[{i.elements}]"
            parts.append(f"value of pass {i.source[0] + 1}: {i.dtype}{size}")
        elif i.kind == "array" and isinstance(i.source, Node):
            how = "" if i.layout == "linear" else f" {i.layout}"
            parts.append(f"{names[i.source]}: {i.dtype}{list(i.source.shape)}{how}")
    scalars = sum(i.kind == "scalar" for i in stage.inputs)
    if scalars:
        parts.append(f"{scalars} runtime scalar{'s' if scalars > 1 else ''}")
    return ", ".join(parts) or "nothing"


def _along(stage: Stage) -> str:
    if not stage.by_rows:
        return ""
    axes = ", ".join(map(str, stage.axes))
    walks = f", {len(stage.phases)} walks over a row on chip" if stage.before else ""
    return f" along ax{'is' if len(stage.axes) == 1 else 'es'} {axes}{walks}"


def at_most(*stages: Stage) -> str:
    """Return the words before a number of bytes that the data may make less."""
    return "at most " if any(stage.primitive == "select" for stage in stages) else ""


def explain_text(plan: Plan) -> str:
    """Return what `plan` will do, for people.

    Parameters
    ----------
    plan : Plan
        From `itf.plan(...)`.

    Returns
    -------
    str
        Passes with their inputs, outputs, bytes and floor time; totals; notes.
    """
    names = leaf_names(node for node in toposort(plan.asked) if node.op is INPUT)
    shown = {(s, o): root for (s, o), root in zip(plan.results, plan.asked, strict=True)}
    speed = _bandwidth(plan)
    passes = f"{plan.passes} pass" + ("" if plan.passes == 1 else "es")
    lines = [
        f"{passes} on {plan.device}: reads {bytes_text(plan.bytes_read)}, writes "
        f"{at_most(*plan.stages)}{bytes_text(plan.bytes_written)}" + _floor(plan.bytes_moved, speed)
    ]
    if plan.bytes_temporary:
        lines.append(f"between passes: {bytes_text(plan.bytes_temporary)}")
    for number, stage in enumerate(plan.stages):
        lines.append(
            f"{number + 1}. {stage.primitive} over {list(stage.shape)}{_along(stage)} by "
            f"{stage.strategy or 'no strategy yet'}"
        )
        lines.append(f"     in   {_inputs(stage, names)}")
        for at, output in enumerate(stage.outputs):
            written = text(shown.get((number, at), output.node), names)
            most = "at most " if stage.parts and stage.parts[at] >= 0 else ""
            lines.append(
                f"     out  {output.dtype}[{most}{str(list(output.shape))[1:]} = {written}"
            )
        lines.append(
            f"     reads {bytes_text(stage.bytes_read)}, writes {at_most(stage)}"
            f"{bytes_text(stage.bytes_written)}"
            + _floor(stage.bytes_read + stage.bytes_written, speed)
        )
    lines += [f"note: {note.text}" for note in plan.notes]
    return "\n".join(lines)


def _floor(count: int, speed: float | None) -> str:
    if speed is None:
        return ""
    return f", at least {time_text(count / speed)} at {speed / 1e9:.0f} GB/s"
