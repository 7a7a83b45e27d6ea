"""What a case is: one expression, how libraries write it, and what it may be compared with."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

FULL = (-1,)
"""Shape of an input with all of the benchmark's elements; -1 stands for their number."""

FULL_SIZE = 1 << 28
"""Elements of an input on a GPU where nothing else is asked for."""

BANDWIDTH, LATENCY = "bandwidth", "latency"

FUSED, COPY = "itfuse", "copy"
"""Names of timings; the others are called after their peers."""

EVERY_PEER = "every peer"
"""Against the fastest of those that are timed beside."""


@dataclass(frozen=True)
class Kernel:
    """A case as its CUDA C++ would be written by hand, over inputs `x0`, `x1`, ... of type `T`.

    Attributes
    ----------
    map : str
        An expression for each element.
    combine : str
        For a reduction of the whole array: an expression of two values `a` and `b`.
    finish : str
        For a reduction: an expression of the total `a` and the number of elements `n`.
    identity : str
        For a reduction: the neutral element.
    scan : bool
        Whether every partial total is wanted, in order.
    keep : str
        For a selection: which elements stay, an expression.
    before : str
        Statements before `map`, which may use what they declare.
    also : tuple of str
        The elements of the further results, expressions as `map`.
    """

    map: str
    combine: str = ""
    finish: str = "a"
    identity: str = "T(0)"
    scan: bool = False
    keep: str = ""
    before: str = ""
    also: tuple[str, ...] = ()


@dataclass(frozen=True)
class Bar:
    """A promise of a case: kept or not by a run on a GPU at the case's full size.

    Attributes
    ----------
    limit : float
        Against a copy: the least share of its bandwidth, each input and each output counted once.
        Against a peer: how many times as fast at least. Against nothing: the most seconds.
    against : str
        `copy`, a peer, `every peer`, or nothing.
    of : str
        Whose promise it is: `itfuse`, or another timing.
    """

    limit: float
    against: str = COPY
    of: str = FUSED

    def __str__(self) -> str:
        """Return it in words.

        Examples
        --------
        >>> print(Bar(0.98), "|", Bar(1.1, "cupy"), "|", Bar(0.015, ""))
        at least 0.98 of a copy | at least 1.1x cupy | at most 15 ms
        """
        who = "" if self.of == FUSED else f"{self.of} "
        if not self.against:
            return f"{who}at most {self.limit * 1e3:g} ms"
        if self.against == COPY:
            return f"{who}at least {self.limit:g} of a copy"
        return f"{who}at least {self.limit:.3g}x {self.against}"


@dataclass(frozen=True)
class Case:
    """One expression to time.

    Attributes
    ----------
    name : str
        What `--case` takes.
    meaning : str
        The expression in NumPy, over inputs `x`, `y`, `z`, `w` in order.
    inputs : tuple of tuple of int
        Shape of each input; -k stands for the benchmark's number of elements over k.
    form : callable
        (library, *inputs, out) -> the answer, one library call after the other; `library` has
        NumPy's names and those of spaces.py. The last call takes `out`, an array or None.
    suites : tuple of str
        The suites that it belongs to.
    tolerance : float
        Allowed difference from the unfused answer, in units of the dtype's epsilon times
        (|answer| + 1); 0 asks for equality.
    temporaries : int
        Arrays of the input's size that `form` holds at most, `out` not counted.
    fused : callable, optional
        Lazy inputs -> `itfuse.Array`, or a tuple of them, where that is not `form`.
    dtype, size : optional
        Where the case has its own, whatever the run was asked for.
    kind : str
        `bandwidth`, or `latency`: host time a call.
    results : int
        Arrays that the answer has.
    dynamic : bool
        Whether the data decide the shape of the answer.
    allocates : bool
        Whether the answer is a new array at each call, of which the call is a part.
    kernel : Kernel, optional
        For the peers that are written in CUDA C++.
    numexpr, triton : str
        The expression as numexpr and (before a reduction) as Triton take it.
    hand : str
        Name of a whole hand-written kernel in peers/cuda_rows.py or peers/cuda_reduce.py.
    prepare : callable, optional
        (library, *random inputs) -> the inputs, where random numbers alone do not serve.
    truth : callable, optional
        (library, *inputs) -> the right answer, or a tuple of them, where the library's own way
        loses too much.
    undecided : float
        Share of the elements that rounding may decide otherwise, as ties of an argmin.
    bars : tuple of Bar
        What itfuse promises on a GPU, with this many elements and in float32 if the case has no
        size and dtype of its own: 2**28.
    extra : bool
        Whether `--quick` leaves the case out.
    """

    name: str
    meaning: str
    inputs: tuple[tuple[int, ...], ...]
    form: Callable[..., Any]
    suites: tuple[str, ...] = ()
    tolerance: float = 0.0
    temporaries: int = 2
    fused: Callable[..., Any] | None = None
    dtype: str = ""
    size: int = 0
    kind: str = BANDWIDTH
    results: int = 1
    dynamic: bool = False
    allocates: bool = False
    kernel: Kernel | None = None
    numexpr: str = ""
    triton: str = ""
    hand: str = ""
    prepare: Callable[..., Any] | None = None
    truth: Callable[..., Any] | None = None
    undecided: float = 0.0
    bars: tuple[Bar, ...] = ()
    extra: bool = False

    def __post_init__(self) -> None:
        """Kernels write into arrays that are there; one for each result."""
        written = 1 + len(self.kernel.also) if self.kernel else self.results
        nowhere = self.allocates and (self.kernel or self.triton or self.hand)
        if nowhere or written != self.results or (self.triton and self.results > 1):
            raise ValueError(f"{self.name}: a hand-written kernel needs an array for its answer")

    def shapes(self, size: int) -> tuple[tuple[int, ...], ...]:
        """Return the inputs' shapes for a benchmark of `size` elements.

        Examples
        --------
        >>> Case("rows", "", ((-1024, 1024), (1024,)), len).shapes(1 << 20)
        ((1024, 1024), (1024,))
        """
        return tuple(
            tuple(max(1, size // -n) if n < 0 else n for n in shape) for shape in self.inputs
        )

    def elements(self, size: int) -> int:
        """Return the number of elements of all inputs."""
        return sum(math.prod(shape) for shape in self.shapes(size))

    @property
    def small(self) -> int:
        """Size of the second check: a prime, which no block divides, or three rows."""
        rows = max((-n for shape in self.inputs for n in shape if n < 0), default=1)
        return 1009 if rows == 1 else 3 * rows

    @property
    def elementwise(self) -> bool:
        """Whether the hand-written kernel is a map without a reduction."""
        return self.kernel is not None and not self.kernel.combine and not self.kernel.keep

    def promises(self, engine: str, size: int, dtype: str) -> tuple[Bar, ...]:
        """Return the bars that a run of `size` elements on `engine` can keep or miss."""
        full = size == (self.size or FULL_SIZE) and (self.dtype or dtype) == (
            self.dtype or "float32"
        )
        return self.bars if engine == "cuda" and full else ()
