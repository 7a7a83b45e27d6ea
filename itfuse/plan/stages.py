"""The structures that flow: Program, Stage, Note, Plan. All are immutable values.

A `Stage` is one device pass. Its `key` is its structure: no pointers, no sizes, no runtime values.
What a particular run adds (where inputs come from, sizes, strides) lies beside it, outside the key.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from itfuse import ops
from itfuse.expr import Node, Shape
from itfuse.plan.index import How
from itfuse.plan.order import column_class, row_class, scan_class


@dataclass(frozen=True)
class Instr:
    """One step of a `Program`; its value is known by its position.

    Attributes
    ----------
    op : str
        A row of the op table, or `load` (element of input `slot`), `gather` (element of input
        `slot` at the byte offset that its operand gives), `scalar` (runtime scalar `slot`),
        `constant` (the integer `slot`), `position` (place of the element among those that
        are reduced together), `combined` (field `slot` of what the phase combined), and from an
        earlier phase `row` (value `slot` of the row) or `kept` (value `slot` of the element).
    args : tuple of int
        Positions of the operands.
    dtype : str
        Dtype of the value; it is rounded or wrapped to it at once.
    slot : int
        Index into the stage's inputs, combined fields or row values; -1 for an op.
    """

    op: str
    args: tuple[int, ...]
    dtype: str
    slot: int = -1


@dataclass(frozen=True)
class Program:
    """Straight-line code: `instrs` in order, then the values at `results` leave."""

    instrs: tuple[Instr, ...]
    results: tuple[int, ...]

    @property
    def slots(self) -> tuple[int, ...]:
        """Stage inputs that the program reads, in slot order."""
        return tuple(sorted({i.slot for i in self.instrs if i.op in ("load", "scalar", "gather")}))

    @property
    def result_dtypes(self) -> tuple[str, ...]:
        """Dtypes of the results."""
        return tuple(self.instrs[at].dtype for at in self.results)


@dataclass(frozen=True)
class Combine:
    """One associative operator of a reduction.

    Attributes
    ----------
    op : str
        The row of the operator, or of a fold.
    dtype : str
        Dtype of what is combined; for a fold, of its first field.
    """

    op: str
    dtype: str

    @property
    def shown(self) -> str:
        """The operator's name in texts."""
        return self.op.partition("@")[0]

    @cached_property
    def fields(self) -> tuple[tuple[str, Any], ...]:
        """Dtype name and identity of every field of the accumulator; usually one."""
        return ops.fields(self.op, self.dtype)


def fields(combine: tuple[Combine, ...]) -> tuple[tuple[str, Any], ...]:
    """Return dtype name and identity of every field of several operators, in order."""
    return tuple(field for one in combine for field in one.fields)


@dataclass(frozen=True)
class Phase:
    """One walk over the rows of a `rows` stage.

    Attributes
    ----------
    element : Program
        Inputs and row values of earlier phases -> the fields to combine; in the last phase, then
        the elements to write.
    combine : tuple of Combine
        How the fields combine.
    finish : Program or None
        Combined fields, inputs and earlier row values -> further row values.
    """

    element: Program
    combine: tuple[Combine, ...]
    finish: Program | None


@dataclass(frozen=True)
class Input:
    """One input of a stage.

    Attributes
    ----------
    kind : str
        `array`; `iota`, a number made from the index; `scalar`, a runtime value in the state
        block; or `carried`, what an earlier stage left on the device.
    dtype : str
        Dtype of an element.
    layout : str
        `linear`: element i of the domain lies at place i; `fixed`: one element serves all;
        `strided`: an index map over the stage's `dims`; `index`: the same map of an iota, whose
        value is the place itself; `gathered`: read where the program says; `whole`: an operand of
        a terminal, in row-major order, of which the program knows nothing.
    source : Node or (int, int)
        The leaf, or (stage, output) of a carried value. Not part of the key.
    strides : tuple of int
        For `strided`: step in bytes along each of the stage's `dims`. Not part of the key.
    elements : int
        Distinct elements read. Not part of the key.
    inner : int or None
        For `strided`: elements from one to the next along the last of `dims`, if -1 to 4, so that
        vectors can be loaded.
    turned : int or None
        For `strided`: the axis of `dims`, not the last, along which it is contiguous, if both are
        long enough to be worth turning squares of it.
    moves : tuple of bool
        For `strided` and `index`: whether it moves along each of the stage's `dims`.
    offset : int
        Bytes from the source's first element to the first one read; the first number of an iota.
        Not part of the key.
    """

    kind: str
    dtype: str
    layout: str
    source: Node | tuple[int, int]
    strides: tuple[int, ...] = ()
    elements: int = 1
    inner: int | None = None
    turned: int | None = None
    moves: tuple[bool, ...] = ()
    offset: int = 0

    @property
    def bytes(self) -> int:
        """Bytes that must be read from memory; a scalar travels with the launch."""
        made = self.kind in ("scalar", "iota")
        return 0 if made else self.elements * np.dtype(self.dtype).itemsize

    @property
    def mapped(self) -> bool:
        """Whether the place follows from an index along each of the stage's `dims`."""
        return self.layout in ("strided", "index")


@dataclass(frozen=True)
class Output:
    """One array that a stage writes.

    Attributes
    ----------
    dtype : str
        Dtype of an element.
    shape : tuple of int
        Its shape.
    node : Node
        The expression it holds.
    strides : tuple of int
        Step in bytes along each of the stage's `dims` where element i of the domain does not lie
        at place i; else empty. Only whether it is empty is part of the key.
    """

    dtype: str
    shape: Shape
    node: Node
    strides: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Bytes written."""
        return self.size * np.dtype(self.dtype).itemsize


class Key:
    """The structure of a stage, with its hash computed once."""

    __slots__ = ("_hash", "parts")

    def __init__(self, parts: tuple[object, ...]) -> None:
        self.parts = parts
        self._hash = hash(parts)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and self.parts == other.parts


@dataclass(frozen=True)
class Stage:
    """One pass over a domain of index tuples.

    Attributes
    ----------
    primitive : str
        A row of plan/primitives.py, such as `transform`, `rows`, `select` or `scan`.
    element : Program
        The fused map before: inputs at an index -> values.
    combine : tuple of Combine
        For a reduction: how the element's results combine, one each.
    finish : Program or None
        The fused map after: combined values -> outputs. For `rows` and `columns` these three are of
        the last phase.
    inputs, outputs : tuple
        What is read and written.
    shape, dims : tuple of int
        The domain as the user sees it; with axes merged wherever every input allows it, one axis
        when all are linear.
    strategy : str
        How the engine runs it; empty before it is chosen.
    axes : tuple of int
        For `rows`, `columns`, `scan`: the axes combined along. Not part of the key.
    kept : int
        For the same: how many of `dims` are the other axes; these come first.
    before : tuple of Phase
        For `rows`: the phases before the last.
    written : tuple of int
        For `rows` and `columns`: the row values that are outputs, after the element outputs.
    how : How or None
        For a terminal (plan/terminals.py): what it is to do. Its first `fused` operands are the
        element's results; the others are the inputs of layout `whole`.
    sides : tuple of int
        For a terminal: which of its results each output is.
    parts : tuple of int
        For `select`, for each output: which elements it takes (see `Choice.part`), or -1 for the
        number of elements that each flag chooses. The element's results are the flags, then a value
        for each output that takes elements.
    """

    primitive: str
    element: Program
    combine: tuple[Combine, ...]
    finish: Program | None
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    shape: Shape
    dims: Shape
    strategy: str = ""
    axes: tuple[int, ...] = ()
    kept: int = 0
    before: tuple[Phase, ...] = ()
    written: tuple[int, ...] = ()
    how: How | None = None
    sides: tuple[int, ...] = ()
    parts: tuple[int, ...] = ()

    @property
    def flags(self) -> int:
        """Of a `select`: how many of the element's results are flags."""
        return len(self.element.results) - sum(part >= 0 for part in self.parts)

    @property
    def phases(self) -> tuple[Phase, ...]:
        """All walks over the rows, the last included."""
        return (*self.before, Phase(self.element, self.combine, self.finish))

    @property
    def by_rows(self) -> bool:
        """Whether it is one of the primitives with rows."""
        return self.primitive in ("rows", "columns")

    @property
    def rows(self) -> int:
        """Number of rows."""
        return math.prod(self.dims[: self.kept])

    @property
    def length(self) -> int:
        """Elements of a row."""
        return math.prod(self.dims[self.kept :])

    @cached_property
    def size_class(self) -> tuple[object, ...]:
        """How rows are shared out among threads; kernels know it, so it is part of the key."""
        if self.primitive in ("scan", "columns"):
            scan = self.primitive == "scan"
            return scan_class(self.length) if scan else column_class(self.length, self.rows)
        walks = bool(self.before) or self.element_outputs > 0
        return row_class(self.length, walks) if self.by_rows else ()

    @property
    def element_outputs(self) -> int:
        """How many of the outputs have an element for each of the domain."""
        return len(self.outputs) - len(self.written) if self.by_rows else len(self.outputs)

    @cached_property
    def key(self) -> Key:
        """Structure only: equal keys may share compiled code."""
        return Key(
            (
                self.primitive,
                self.strategy,
                self.element,
                self.combine,
                self.finish,
                tuple((i.kind, i.dtype, i.layout, i.inner, i.turned, i.moves) for i in self.inputs),
                tuple(o.dtype if not o.strides else o.dtype + " strided" for o in self.outputs),
                len(self.dims) if self.strided else 1,
                self.wide,
                *((self.kept, self.before, self.written, self.size_class) if self.by_rows else ()),
                *((self.how.fused, self.how.options, self.sides) if self.how else ()),
                *(self.size_class if self.primitive == "scan" else ()),
                *self.parts,
            )
        )

    @property
    def strided(self) -> bool:
        """Whether any input or output needs the index map."""
        return any(i.mapped for i in self.inputs) or any(o.strides for o in self.outputs)

    @property
    def wide(self) -> bool:
        """Whether indices need 64 bits: 2**31 elements, or as many bytes from one to the next."""
        steps = [abs(step) for i in self.inputs if i.mapped for step in i.strides]
        steps += [abs(step) for o in self.outputs for step in (*o.strides, o.size)]
        # A margin for the last block, whose threads count past the end.
        return max([self.size + (1 << 16), *steps]) >= 1 << 31

    @cached_property
    def dividers(self) -> tuple[int, ...]:
        """A multiplier and then a shift for each of `dims`: n // d is n * multiplier >> shift.

        Of n below 2**31: with l the bits of d - 1, the multiplier is 2**(31 + l) / d rounded up and
        the shift 31 + l (Granlund and Montgomery, Division by Invariant Integers, 1994). The shift
        is kept less the 32 bits that taking the high half of the product shifts by.
        """
        lengths = [max(1, (size - 1).bit_length()) for size in self.dims]
        multipliers = [
            -(-(1 << (31 + bits)) // max(size, 2))
            for size, bits in zip(self.dims, lengths, strict=True)
        ]
        return (*multipliers, *(bits - 1 for bits in lengths))

    @property
    def size(self) -> int:
        """Number of elements of the domain."""
        return math.prod(self.shape)

    @property
    def bytes_read(self) -> int:
        """Bytes of every array input, each counted once.

        An array read in several places counts no more than all of it, or than lies between the
        first and the last element read.
        """
        of: dict[object, list[Input]] = {}
        for i in self.inputs:
            of.setdefault(i.source, []).append(i)
        return sum(
            min(sum(i.bytes for i in inputs), self._reach(inputs))
            if len(inputs) > 1
            else inputs[0].bytes
            for inputs in of.values()
        )

    def _reach(self, inputs: list[Input]) -> int:
        """Return the bytes from the first element that `inputs` read to the last."""
        source = inputs[0].source
        if not isinstance(source, Node):
            return sum(i.bytes for i in inputs)
        whole = source.size * source.dtype.itemsize
        if any(i.layout in ("gathered", "whole") for i in inputs):
            return whole
        ends: list[int] = []
        for i in inputs:
            steps = zip(self.dims, i.strides or (0,) * len(self.dims), strict=True)
            reach = [(size - 1) * step for size, step in steps]
            ends += [i.offset + sum(r for r in reach if r < 0)]
            ends += [i.offset + sum(r for r in reach if r > 0) + source.dtype.itemsize]
        return min(whole, max(ends) - min(ends))

    @property
    def bytes_written(self) -> int:
        """Bytes of every output; of a `select` the most that it can be."""
        return sum(o.bytes for o in self.outputs)


@dataclass(frozen=True)
class Note:
    """Why something was not fused, or what a reader of the plan should know.

    Attributes
    ----------
    reason : str
        A stable word for tests: `needs-result`, `no-common-input`, `different-domain`,
        `different-axes`, `different-flags`, `different-primitive`, `read-again`, `strategy`,
        `materialized` (a pass that writes an operand which an algorithm needs in memory),
        `determinism`, `strided-out` (a pass that copies results into the caller's array).
    text : str
        The sentence for people.
    """

    reason: str
    text: str


@dataclass(frozen=True, repr=False)
class Plan:
    """What will run, with its numbers.

    Attributes
    ----------
    stages : tuple of Stage
        The passes, in order.
    results : tuple of (int, int)
        For each expression asked for: (stage, output).
    notes : tuple of Note
        What was not fused, and why.
    device : str
        `cpu`, `cuda:0`, ..., or `none`.
    roots : tuple of Node
        The expressions as the stages compute them.
    asked : tuple of Node
        The same as the user wrote them.
    layouts : tuple
        For each root the byte strides of the array that it is written to, None for row-major
        order; empty if that is all of them.
    """

    stages: tuple[Stage, ...]
    results: tuple[tuple[int, int], ...]
    notes: tuple[Note, ...]
    device: str
    roots: tuple[Node, ...] = field(repr=False, default=())
    asked: tuple[Node, ...] = field(repr=False, default=())
    layouts: tuple[tuple[int, ...] | None, ...] = field(repr=False, default=())

    def __repr__(self) -> str:
        return f"<Plan of {self.passes} on {self.device}, moves {self.bytes_moved:,} bytes>"

    @property
    def passes(self) -> int:
        """Number of device passes."""
        return len(self.stages)

    @property
    def bytes_read(self) -> int:
        """Bytes read from memory by all passes."""
        return sum(stage.bytes_read for stage in self.stages)

    @property
    def bytes_written(self) -> int:
        """Bytes written to memory by all passes."""
        return sum(stage.bytes_written for stage in self.stages)

    @property
    def bytes_moved(self) -> int:
        """Bytes read and written."""
        return self.bytes_read + self.bytes_written

    @property
    def bytes_temporary(self) -> int:
        """Bytes of values that go from one pass to the next and are no result."""
        asked = set(self.results)
        return sum(
            output.bytes
            for s, stage in enumerate(self.stages)
            for o, output in enumerate(stage.outputs)
            if (s, o) not in asked
        )

    def floor_time(self, bandwidth: float) -> float:
        """Return the least time in seconds at `bandwidth` bytes per second."""
        return self.bytes_moved / bandwidth
