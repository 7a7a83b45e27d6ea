"""Whether `out` may share memory with inputs: in place, element by element, and nowhere else."""

from __future__ import annotations

from itfuse.errors import AliasError
from itfuse.expr import Memory, Node
from itfuse.plan.index import contiguous_strides
from itfuse.plan.stages import Input, Output, Plan, Stage
from itfuse.wording import leaf_names, toposort


def span(memory: Memory, shape: tuple[int, ...], itemsize: int) -> tuple[int, int]:
    """Return the first address of an array and the one behind its last."""
    if 0 in shape:
        return (memory.pointer, memory.pointer)
    low = high = memory.pointer
    for size, step in zip(shape, memory.strides, strict=True):
        reach = (size - 1) * step
        low, high = low + min(reach, 0), high + max(reach, 0)
    return low, high + itemsize


def check(
    plan: Plan, out: dict[tuple[int, int], Memory], where: dict[Node, Memory] | None = None
) -> None:
    """Raise `AliasError` if writing `out` could change what a pass still has to read.

    Parameters
    ----------
    plan : Plan
        The passes.
    out : dict of (int, int) to Memory
        For each given output, by (stage, output), where it lies.
    where : dict of Node to Memory, optional
        Where the inputs lie in this call, if elsewhere than their nodes say.
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
    for s, output, memory, own in written:
        for number, stage in enumerate(plan.stages[s:], s):
            for i in stage.inputs:
                node = i.source
                if not isinstance(node, Node) or i.kind != "array":
                    continue
                read = (where or {}).get(node, node.arg)
                assert isinstance(read, Memory)
                theirs = _read(stage, i, node, read)
                if not (own[0] < theirs[1] and theirs[0] < own[1]):
                    continue
                same = number == s and read.pointer + i.offset == memory.pointer
                if same and _in_place(stage, i, node, output):
                    continue
                names = leaf_names(toposort(plan.asked))
                later = "" if number == s else f", which pass {number + 1} reads afterwards"
                raise AliasError(
                    f"out= for result {_place(plan, output.node)} shares memory with input "
                    f"{names[node]}{later}: bytes {own[0]:#x}..{own[1]:#x} and "
                    f"{theirs[0]:#x}..{theirs[1]:#x}. Only exactly in place is possible, where "
                    "every element reads its own place; pass another array as out="
                )


def _place(plan: Plan, node: Node) -> int:
    return next(at for at, root in enumerate(plan.roots) if root is node)


def _read(stage: Stage, i: Input, node: Node, memory: Memory) -> tuple[int, int]:
    """Return the first address that an input of a pass reads and the one behind its last."""
    itemsize = node.dtype.itemsize
    if i.layout == "gathered" or len(i.strides) != len(stage.dims):
        return span(memory, node.shape, itemsize)
    first = Memory(memory.device, memory.pointer + i.offset, i.strides)
    return span(first, stage.dims, itemsize)


def _in_place(stage: Stage, i: Input, node: Node, output: Output) -> bool:
    """Whether every element reads only its own place, if both begin at the same address."""
    if stage.primitive == "scatter" and i.layout == "whole":
        return True  # what is not written stays
    # A row program has read all of a row before it writes the first element of it; what a scan
    # needs of other elements is in their tiles' totals.
    whole = stage.primitive in ("transform", "scan") or (
        stage.primitive == "rows" and output.size == stage.size
    )
    if not whole:
        return False
    itemsize = node.dtype.itemsize
    if i.layout == "gathered" or itemsize != output.node.dtype.itemsize:
        return False
    plain = contiguous_strides(stage.dims, itemsize)
    read = plain if i.layout == "linear" else i.strides
    if stage.primitive == "rows":
        return i.layout == "linear" or stage.size == 1
    return stage.size == 1 or read == (output.strides or plain)
