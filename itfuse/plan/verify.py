"""Checks between the passes of the planner.

A failure is a fault in itfuse, never in the user's code.
"""

from __future__ import annotations

from collections.abc import Sequence

from itfuse.errors import PlanError
from itfuse.expr import template_of
from itfuse.ops import ROWS
from itfuse.plan.stages import Plan, Program, Stage, fields


def _demand(condition: bool, what: str) -> None:
    if not condition:
        raise PlanError(f"the planner made an inconsistent plan: {what}; please report this")


def _check_program(
    program: Program,
    stage: Stage,
    where: str,
    given: Sequence[str] = (),
    rows: Sequence[str] = (),
) -> None:
    for at, instr in enumerate(program.instrs):
        _demand(all(arg < at for arg in instr.args), f"{where}: value used before it is made")
        if instr.op in ("load", "scalar", "gather"):
            _demand(0 <= instr.slot < len(stage.inputs), f"{where}: no input {instr.slot}")
            source = stage.inputs[instr.slot]
            _demand(source.dtype == instr.dtype, f"{where}: input {instr.slot} is {source.dtype}")
            _demand((source.kind == "scalar") == (instr.op == "scalar"), f"{where}: wrong load")
            gathered = source.layout == "gathered"
            _demand(gathered == (instr.op == "gather"), f"{where}: wrong gather")
            offsets = [program.instrs[arg].dtype for arg in instr.args]
            _demand(offsets == ["int64"] * gathered, f"{where}: a place is no int64")
        elif instr.op == "combined":
            _demand(given[instr.slot] == instr.dtype, f"{where}: wrong accumulator")
        elif instr.op == "row":
            _demand(rows[instr.slot] == instr.dtype, f"{where}: wrong row value")
        elif instr.op in ("constant", "position"):
            _demand(not instr.args, f"{where}: a leaf with operands")
        else:
            op = ROWS[instr.op]
            operands = [program.instrs[arg].dtype for arg in instr.args]
            _demand(len(operands) == op.arity, f"{where}: {op.name} of {len(operands)} operands")
            _demand(bool(template_of(op, operands, instr.dtype)), f"{where}: no code: {op.name}")


def _single(stage: Stage, where: str) -> tuple[str, ...]:
    """Check a stage without rows and return the dtypes of what it makes."""
    _check_program(stage.element, stage, where)
    made = stage.element.result_dtypes
    if stage.how is not None:
        whole = [i for i in stage.inputs if i.layout == "whole"]
        _demand(len(made) == stage.how.fused, f"{where}: operands")
        _demand(all(i.kind != "scalar" for i in whole), f"{where}: a number is no array")
        if stage.primitive in ("scan", "segments"):
            sizes = {o.size for o in stage.outputs}
            size = stage.size if stage.primitive == "scan" else whole[0].elements - 1
            _demand(sizes == {size}, f"{where}: shapes")
            return _finished(stage, made, where)
        return tuple(output.dtype for output in stage.outputs)
    if stage.primitive == "select":
        return _selected(stage, where)
    if stage.primitive != "reduce":
        _demand(all(o.size == stage.size for o in stage.outputs), f"{where}: shapes")
        return made
    return _finished(stage, made, where)


def _finished(stage: Stage, made: tuple[str, ...], where: str) -> tuple[str, ...]:
    """Check what is combined of the dtypes `made`, and return those of the finish."""
    given = tuple(name for name, _ in fields(stage.combine))
    _demand(made == given, f"{where}: accumulators")
    _demand(stage.finish is not None, f"{where}: combined without a finish")
    assert stage.finish is not None
    _check_program(stage.finish, stage, f"finish of {where}", given)
    return stage.finish.result_dtypes


def _selected(stage: Stage, where: str) -> tuple[str, ...]:
    """Check the outputs of a selection and return the dtypes of what it makes."""
    made = stage.element.result_dtypes
    flags = stage.flags
    _demand(made[:flags] == ("bool",) * flags and flags in {1, 2}, f"{where}: flags")
    _demand(len(stage.parts) == len(stage.outputs), f"{where}: parts")
    values = iter(made[flags:])
    for part, output in zip(stage.parts, stage.outputs, strict=True):
        _demand(-1 <= part <= flags, f"{where}: no part {part}")
        _demand(output.shape == (stage.size if part >= 0 else flags,), f"{where}: shapes")
    return tuple(next(values) if part >= 0 else "int64" for part in stage.parts)


def _phases(stage: Stage, where: str) -> tuple[str, ...]:
    """Check a stage with rows and return the dtypes of what it makes."""
    rows: list[str] = []
    elements: tuple[str, ...] = ()
    for phase in stage.phases:
        _check_program(phase.element, stage, where, (), rows)
        made = phase.element.result_dtypes
        given = tuple(name for name, _ in fields(phase.combine))
        _demand(not elements, f"{where}: elements are written before the last phase")
        _demand(made[: len(given)] == given, f"{where}: accumulators")
        elements = made[len(given) :]
        if phase.finish is not None:
            _check_program(phase.finish, stage, f"finish of {where}", given, rows)
            rows += phase.finish.result_dtypes
    _demand(len(elements) == stage.element_outputs, f"{where}: outputs")
    sizes = [stage.size] * len(elements) + [stage.rows] * len(stage.written)
    _demand([o.size for o in stage.outputs] == sizes, f"{where}: shapes")
    return (*elements, *(rows[at] for at in stage.written))


def verify(plan: Plan) -> Plan:
    """Return `plan` if it is consistent.

    Raises
    ------
    PlanError
        Naming what does not fit.
    """
    for s, stage in enumerate(plan.stages):
        where = f"pass {s + 1}"
        made = _phases(stage, where) if stage.by_rows else _single(stage, where)
        _demand(made == tuple(o.dtype for o in stage.outputs), f"pass {s + 1}: output dtypes")
        for i in stage.inputs:
            if i.kind == "carried":
                _demand(isinstance(i.source, tuple) and i.source[0] < s, f"pass {s + 1}: order")
    for root, (s, o) in zip(plan.roots, plan.results, strict=True):
        output = plan.stages[s].outputs[o]
        _demand(output.node is root, "a result is another expression's")
        _demand((output.shape, output.dtype) == (root.shape, root.dtype.name), "a result's type")
    return plan
