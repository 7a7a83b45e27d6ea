"""Whether `out` may share memory with inputs: in place, element by element, and nowhere else."""

from __future__ import annotations

from itfuse.errors import AliasError
from itfuse.expr import Memory, Node, leaf_names, toposort
from itfuse.plan.index import contiguous_strides
from itfuse.plan.stages import Input, Output, Plan, Stage


def span(memory: Memory, shape: tuple[int, ...], itemsize: int) -> tuple[int, int]:
    """Return the first address of an array and the one behind its last."""
    if 0 in shape:
        return (memory.pointer, memory.pointer)
    low = high = memory.pointer
    for size, step in zip(shape, memory.strides, strict=True):
        reach = (size - 1) * step
        low, high = low + min(reach, 0), high + max(reach, 0)
    return low, high + itemsize


def check(plan: Plan, out: dict[tuple[int, int], Memory]) -> None:
    """Raise `AliasError` if writing `out` could change what a pass still has to read.

    Parameters
    ----------
    plan : Plan
        The passes.
    out : dict of (int, int) to Memory
        For each given output, by (stage, output), where it lies.
    """
    written = []
    for (s, o), memory in out.items():
        output = plan.stages[s].outputs[o]
        itemsize = output.node.dtype.itemsize
        written.append((s, output, memory, span(memory, output.shape, itemsize)))
    for at, (_, output, _, own) in enumerate(written):
        for _, other, _, theirs in written[:at]:
            if own[0] < theirs[1] and theirs[0] < own[1]:
                raise AliasError(
                    f"out= for result {_place(plan, other.node)} and result "
                    f"{_place(plan, output.node)} share memory; pass separate arrays"
                )
    names = leaf_names(toposort(plan.roots))
    for s, output, memory, own in written:
        for number, stage in enumerate(plan.stages[s:], s):
            for i in stage.inputs:
                node = i.source
                if not isinstance(node, Node) or i.kind != "array":
                    continue
                theirs = _read(stage, i, node)
                if not (own[0] < theirs[1] and theirs[0] < own[1]):
                    continue
                if number == s and _in_place(stage, i, node, memory, output):
                    continue
                later = "" if number == s else f", which pass {number + 1} reads afterwards"
                raise AliasError(
                    f"out= for result {_place(plan, output.node)} shares memory with input "
                    f"{names[node]}{later}: bytes {own[0]:#x}..{own[1]:#x} and "
                    f"{theirs[0]:#x}..{theirs[1]:#x}. Only exactly in place is possible, where "
                    "every element reads its own place; pass another array as out="
                )


def _place(plan: Plan, node: Node) -> int:
    return next(at for at, root in enumerate(plan.roots) if root is node)


def _read(stage: Stage, i: Input, node: Node) -> tuple[int, int]:
    """Return the first address that an input of a pass reads and the one behind its last."""
    assert isinstance(node.arg, Memory)
    itemsize = node.dtype.itemsize
    if i.layout == "gathered":
        return span(node.arg, node.shape, itemsize)
    first = Memory(node.arg.device, node.arg.pointer + i.offset, i.strides)
    return span(first, stage.dims if i.strides else (), itemsize)


def _in_place(stage: Stage, i: Input, node: Node, memory: Memory, output: Output) -> bool:
    """Whether every element of `output` lies where the element of `i` at the same index does."""
    itemsize = node.dtype.itemsize
    if stage.primitive != "transform" or i.layout == "gathered":
        return False
    plain = contiguous_strides(stage.dims, itemsize)
    read = plain if i.layout == "linear" else i.strides
    same = stage.size == 1 or read == (output.strides or plain)
    return (
        same
        and node.arg.pointer + i.offset == memory.pointer
        and itemsize == output.node.dtype.itemsize
    )
