"""Checks between the passes of the planner.

A failure is a fault in itfuse, never in the user's code.
"""

from __future__ import annotations

from itfuse.errors import PlanError
from itfuse.expr import template_of
from itfuse.ops import OPS
from itfuse.plan.stages import Plan, Program, Stage


def _demand(condition: bool, what: str) -> None:
    if not condition:
        raise PlanError(f"the planner made an inconsistent plan: {what}; please report this")


def _check_program(program: Program, stage: Stage, where: str) -> None:
    for at, instr in enumerate(program.instrs):
        _demand(all(arg < at for arg in instr.args), f"{where}: value used before it is made")
        if instr.op in ("load", "scalar", "gather"):
            _demand(0 <= instr.slot < len(stage.inputs), f"{where}: no input {instr.slot}")
            source = stage.inputs[instr.slot]
            _demand(source.dtype == instr.dtype, f"{where}: input {instr.slot} is {source.dtype}")
            _demand((source.kind == "scalar") == (instr.op == "scalar"), f"{where}: wrong load")
            gathered = source.layout == "gathered"
            _demand(gathered == (instr.op == "gather"), f"{where}: wrong gather")
            places = [program.instrs[arg].dtype for arg in instr.args]
            _demand(places == ["int64"] * gathered, f"{where}: a place is no int64")
        elif instr.op == "combined":
            _demand(stage.combine[instr.slot].dtype == instr.dtype, f"{where}: wrong accumulator")
        else:
            op = OPS[instr.op]
            operands = [program.instrs[arg].dtype for arg in instr.args]
            _demand(len(operands) == op.arity, f"{where}: {op.name} of {len(operands)} operands")
            _demand(bool(template_of(op, operands, instr.dtype)), f"{where}: no code: {op.name}")


def verify(plan: Plan) -> Plan:
    """Return `plan` if it is consistent.

    Raises
    ------
    PlanError
        Naming what does not fit.
    """
    for s, stage in enumerate(plan.stages):
        _check_program(stage.element, stage, f"pass {s + 1}")
        made = stage.element.result_dtypes
        if stage.primitive == "reduce":
            _demand(made == tuple(c.dtype for c in stage.combine), f"pass {s + 1}: accumulators")
            _demand(stage.finish is not None, f"pass {s + 1}: a reduction without a finish")
            assert stage.finish is not None
            _check_program(stage.finish, stage, f"finish of pass {s + 1}")
            made = stage.finish.result_dtypes
        else:
            _demand(all(o.size == stage.size for o in stage.outputs), f"pass {s + 1}: shapes")
        _demand(made == tuple(o.dtype for o in stage.outputs), f"pass {s + 1}: output dtypes")
        for i in stage.inputs:
            if i.kind == "carried":
                _demand(isinstance(i.source, tuple) and i.source[0] < s, f"pass {s + 1}: order")
    for root, (s, o) in zip(plan.roots, plan.results, strict=True):
        output = plan.stages[s].outputs[o]
        _demand(output.node is root, "a result is another expression's")
        _demand((output.shape, output.dtype) == (root.shape, root.dtype.name), "a result's type")
    return plan
