"""What a case is: one expression, how libraries write it, and what it may be compared with."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

FULL = (-1,)
"""Shape of an input with all of the benchmark's elements; -1 stands for their number."""

BANDWIDTH, LATENCY = "bandwidth", "latency"


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
    """

    map: str
    combine: str = ""
    finish: str = "a"
    identity: str = "T(0)"


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
    kernel : Kernel, optional
        For the peers that are written in CUDA C++.
    numexpr, triton : str
        The expression as numexpr and (before a reduction) as Triton take it.
    hand : str
        Name of a whole hand-written kernel in peers/rows.py.
    prepare : callable, optional
        (library, *random inputs) -> the inputs, where random numbers alone do not serve.
    truth : callable, optional
        (library, *inputs) -> the right answer, where the library's own way loses too much.
    undecided : float
        Share of the elements that rounding may decide otherwise, as ties of an argmin.
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
    kernel: Kernel | None = None
    numexpr: str = ""
    triton: str = ""
    hand: str = ""
    prepare: Callable[..., Any] | None = None
    truth: Callable[..., Any] | None = None
    undecided: float = 0.0

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
        return self.kernel is not None and not self.kernel.combine
