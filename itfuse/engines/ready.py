"""Ready: a plan with its passes built, to be run over any arrays of the layout it was made for.

Planning, building and wiring are done once; a call takes one value for each leaf.
"""

from __future__ import annotations

import functools
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from itfuse.cache import BUILT
from itfuse.engines import alias
from itfuse.errors import AliasError, DeviceError, DTypeError, ShapeError
from itfuse.expr import Memory, Node
from itfuse.form import Fixed
from itfuse.ops import INPUT, IOTA, SCALAR
from itfuse.plan.stages import Input, Plan
from itfuse.plan.stored import WITH_STRIDES
from itfuse.wording import text

MISS: Any = type("Miss", (), {"__repr__": lambda _: "MISS"})()
"""What a direct call returns, having done nothing, for arguments it was not made for."""


@dataclass(frozen=True)
class Argument:
    """One argument that a direct call takes.

    Attributes
    ----------
    kind : str
        `array`; `number`, a Python number; or `same`, an object that must be the very one.
    leaves : tuple of int
        The leaves that it gives values to; none for an argument that the results do not need.
    dtype, shape, strides
        Of an array.
    type : type
        Of a number.
    get : callable, optional
        Returns the object that `same` asks for, or None when it is gone.
    """

    kind: str
    leaves: tuple[int, ...] = ()
    dtype: Any = None
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    type: Any = None
    get: Callable[[], Any] | None = None


class Ready:
    """A plan, built.

    Attributes
    ----------
    plan : Plan
        What runs; its leaves stand for those of any call.
    leaves : tuple of Node
        What a call gives values for, in order.
    engine : Engine
        Where it runs.
    """

    array_type: type | None = None
    """The class of arrays that direct calls take."""

    def __init__(self, plan: Plan, leaves: Sequence[Node], engine: Any) -> None:
        self.plan = plan
        self.leaves = tuple(leaves)
        self.engine = engine
        key = engine.build_key()
        with engine.on(None):
            self.built = [
                BUILT.get((key, s.key), functools.partial(engine.build, s)) for s in plan.stages
            ]
        number = {leaf: at for at, leaf in enumerate(self.leaves)}
        self.constants: list[Any] = []  # values behind those of the leaves
        self.wiring = [[self._wire(i, number) for i in stage.inputs] for stage in plan.stages]

    def _wire(self, i: Input, number: dict[Node, int]) -> Any:
        """Return where the operand of an input comes from: (stage, output), or a value's number."""
        if isinstance(i.source, tuple):
            return i.source
        if not made_by_planning(i.source):
            return number[i.source]
        self.constants.append(np.int64(i.offset) if i.kind == "iota" else i.source.arg.value)
        return len(self.leaves) + len(self.constants) - 1

    def __call__(
        self,
        values: Sequence[Any],
        out: tuple[Any, ...] | None = None,
        stream: Any = None,
        roots: Sequence[Node] | None = None,
    ) -> tuple[Any, ...]:
        """Queue one run.

        Parameters
        ----------
        values : sequence
            For each leaf an array of the engine's library, or a NumPy scalar of its dtype.
        out : tuple, optional
            An array for each result, or None for a new one.
        stream : object, optional
            A CUDA stream; CuPy's current one by default.
        roots : sequence of Node, optional
            What errors call the results, if another expression than the plan was made for.

        Returns
        -------
        tuple
            An array for each result.

        Raises
        ------
        ShapeError, DTypeError, AliasError, DeviceError
            If `out` does not fit; nothing has run then.
        """
        given = None
        if out is not None:
            if len(out) == 1 and self._takes(out[0], values):
                given = {self.plan.results[0]: out[0]}
            else:
                given = self.check_out(values, out, roots)
        with self.engine.on(stream):
            results: tuple[Any, ...] = self.run(values, given)
        return results

    def _takes(self, out: Any, values: Sequence[Any]) -> bool:
        """Whether an array is known at a glance to take the one result; else it is looked at."""
        kind = self.array_type
        return kind is not None and _separate(out, self.plan.asked[0], values, kind)

    def run(self, values: Sequence[Any], given: dict[tuple[int, int], Any] | None) -> Any:
        """Queue one run where the device and the stream are current already."""
        given = given or {}
        values = [*values, *self.constants] if self.constants else values
        made: list[list[Any]] = []
        for s, stage in enumerate(self.plan.stages):
            outputs = [
                given[s, o] if (s, o) in given else self.engine.empty(one.shape, one.dtype)
                for o, one in enumerate(stage.outputs)
            ]
            operands = [
                values[spot] if isinstance(spot, int) else made[spot[0]][spot[1]]
                for spot in self.wiring[s]
            ]
            self.built[s](stage, operands, outputs)
            made.append(outputs)
        self.queued(made)
        return tuple([made[s][o] for s, o in self.plan.results])

    def queued(self, made: list[list[Any]]) -> None:
        """Take note of what a run has queued: the outputs of every stage."""

    def direct(
        self, arguments: Sequence[Argument], values: Sequence[Any]
    ) -> Callable[[tuple[Any, ...], Any], Any] | None:
        """Return the shortest way to call this plan with `arguments`, if there is one.

        Parameters
        ----------
        arguments : sequence of Argument
            What a call is given.
        values : sequence
            The values of the leaves that no argument gives.

        Returns
        -------
        callable or None
            `(arguments, out) -> array`, a tuple of arrays for several results, or `MISS` if the
            arguments are others than those it was made for. It raises nothing of its own.
        """
        kind: Any = self.array_type
        if kind is None:
            return None
        dtypes = [None if node.op is INPUT else node.dtype.type for node in self.leaves]
        single = len(self.plan.results) == 1
        root, spot = self.plan.asked[0], self.plan.results[0]
        closed_over = tuple(x for x in values if isinstance(x, kind))

        def call(given: tuple[Any, ...], out: Any) -> Any:
            if len(given) != len(arguments):
                return MISS
            if out is not None and not (
                single and _separate(out, root, (*given, *closed_over), kind)
            ):
                return MISS
            own = list(values)
            for x, want in zip(given, arguments, strict=True):
                if want.kind == "array":
                    if (
                        type(x) is not kind
                        or x.dtype != want.dtype
                        or x.shape != want.shape
                        or x.strides != want.strides
                    ):
                        return MISS
                    for leaf in want.leaves:
                        own[leaf] = x
                elif want.kind == "number":
                    if type(x) is not want.type:
                        return MISS
                    for leaf in want.leaves:
                        try:
                            own[leaf] = dtypes[leaf](x)  # type: ignore[misc]
                        except OverflowError:
                            return MISS
                elif want.get is None or want.get() is not x:
                    return MISS
            results: Any = self.run(own, None if out is None else {spot: out})
            return results[0] if single else results

        return call

    def check_out(
        self, values: Sequence[Any], out: tuple[Any, ...], roots: Sequence[Node] | None = None
    ) -> dict[tuple[int, int], Any]:
        """Return the arrays of `out` by (stage, output), or raise saying why one does not fit."""
        plan = self.plan
        wanted: dict[tuple[int, int], Any] = {}
        places: dict[tuple[int, int], Memory] = {}
        wished = zip(plan.results, roots or plan.asked, out, strict=True)
        for at, (spot, root, array) in enumerate(wished):
            if array is None:
                continue
            memory: Memory | None
            try:
                memory = self.engine.memory(array)
            except (AttributeError, TypeError):  # another library's
                array, memory = self.engine.adopt(array)  # noqa: PLW2901
            error = _misfit(plan, root, array, memory)
            if not error and not array.flags.c_contiguous:
                known = plan.layouts[at] == memory.strides if plan.layouts and memory else False
                error = _disorder(plan, spot, array, memory, known)
            if error:
                kind, why = error
                raise kind(f"out= for {text(root)} {why}")
            wanted[spot] = array
            if memory is not None:
                places[spot] = memory
        if places:
            where = {
                leaf: self.engine.memory(x)
                for leaf, x in zip(self.leaves, values, strict=True)
                if leaf.op is INPUT and x is not None
            }
            alias.check(plan, places, where)
        return wanted


def _misfit(plan: Plan, root: Node, array: Any, memory: Memory | None) -> Any:
    """Say why `array` cannot take the result `root`: (error, text), or None if it can."""
    if memory is None:
        return DeviceError, (
            f"is a {type(array).__name__}, and the expression is on "
            f"{plan.device}; pass an array of that device"
        )
    if memory.device != plan.device:
        return DeviceError, (
            f"is on {memory.device}, and the expression on {plan.device}; pass an "
            "array of the same device"
        )
    if tuple(array.shape) != root.shape:
        return ShapeError, f"has shape {tuple(array.shape)}, and the result {root.shape}"
    if array.dtype != root.dtype:
        return DTypeError, (
            f"has dtype {array.dtype}, and the result {root.dtype}; pass a "
            f"{root.dtype} array, or cast with .astype({str(array.dtype)!r})"
        )
    if not getattr(array.flags, "writeable", True):
        return ShapeError, "is read-only; pass a writable array"
    return None


def _disorder(
    plan: Plan, spot: tuple[int, int], array: Any, memory: Memory | None, known: bool
) -> Any:
    """Say why an `array` that is not C-contiguous cannot take the result at `spot`.

    `known` is whether the plan was made for its strides.
    """
    assert memory is not None
    stage = plan.stages[spot[0]]
    itemsize = array.dtype.itemsize
    if stage.primitive not in WITH_STRIDES:
        return ShapeError, (
            f"is not C-contiguous (strides {memory.strides} bytes), and a pass of "
            f"{stage.primitive} stores its results in row-major order; pass a contiguous array, or "
            "assign what compute() returns"
        )
    if not known:
        return ShapeError, (
            f"is not C-contiguous (strides {memory.strides} bytes), and its pass was made for a "
            "contiguous result, or computes it in another shape; pass a contiguous array, or "
            "compute() the expression itself"
        )
    reach = itemsize
    for step, size in sorted((abs(s), n) for s, n in zip(memory.strides, array.shape, strict=True)):
        if size > 1 and step < reach:
            return AliasError, (
                f"has elements that share memory (strides {memory.strides} bytes); pass an array "
                "whose elements are apart"
            )
        reach += (size - 1) * step
    if plan.device != "cpu" and any(step % itemsize for step in memory.strides):
        return ShapeError, f"is not aligned to its elements (strides {memory.strides} bytes)"
    return None


def made_by_planning(leaf: Node | tuple[int, int]) -> bool:
    """Whether a leaf is no leaf of the user's: numbers of the index, and sizes and strides."""
    if isinstance(leaf, tuple):
        return False
    return leaf.op is IOTA or (leaf.op is SCALAR and isinstance(leaf.arg, Fixed))


def _separate(out: Any, root: Node, given: Sequence[Any], kind: Any) -> bool:
    """Return whether a NumPy array can take `root`, and lies away from the arrays given."""
    return (
        type(out) is kind
        and out.dtype == root.dtype
        and out.shape == root.shape
        and out.flags.c_contiguous
        and out.flags.writeable
        and not any(isinstance(x, kind) and np.may_share_memory(out, x) for x in given)
    )


class ReadyCache:
    """The `Ready` used last, by key: bounded, for any number of threads."""

    def __init__(self, most: int = 512) -> None:
        self._most = most
        self._kept: OrderedDict[Any, Ready] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Any) -> Ready | None:
        """Return what `key` stands for, or None."""
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
            return found

    def put(self, key: Any, ready: Ready) -> None:
        """Keep `ready`; the one not used for longest goes."""
        with self._lock:
            self._kept[key] = ready
            if len(self._kept) > self._most:
                self._kept.popitem(last=False)

    def clear(self) -> None:
        """Forget all, also where another thread held the lock when the process was forked."""
        self._lock = threading.Lock()
        self._kept = OrderedDict()


READY = ReadyCache()
"""What eager expressions have run as, by form."""

BUILT.on_clear.append(READY.clear)

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=READY.clear)
