"""The table of cases. A case is one row and is added nowhere else.

`meaning` is NumPy and is what the other two columns compute: the tests evaluate it. `unfused` is
how a user of NumPy or CuPy writes it with the library's own operations, into a given `out`; its
first argument is the library's module, with `erf` added, which neither has under that name.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from itfuse.errors import ConfigError
from itfuse.functions import FUNCTIONS

erf, relu, sqrt = FUNCTIONS["erf"], FUNCTIONS["relu"], FUNCTIONS["sqrt"]

FULL = (-1,)
"""Shape of an input with all of the benchmark's elements; -1 stands for their number."""

_HALF_ROOT = 0.7071067811865476  # sqrt(1/2)


@dataclass(frozen=True)
class Case:
    """One expression to time.

    Attributes
    ----------
    name : str
        What `--case` takes.
    meaning : str
        The expression in NumPy, over inputs `x`, `y`, `z` in order.
    inputs : tuple of tuple of int
        Shape of each input; -1 stands for the benchmark's number of elements.
    fused : callable
        Lazy inputs -> `itfuse.Array`.
    unfused : callable
        (library, out, *inputs) -> the answer in `out`, one library call after the other.
    tolerance : float
        Allowed difference from the unfused answer, in units of the dtype's epsilon times
        (|answer| + 1); 0 asks for equality.
    temporaries : int
        Arrays of the input's size that `unfused` holds at most, `out` not counted.
    """

    name: str
    meaning: str
    inputs: tuple[tuple[int, ...], ...]
    fused: Callable[..., Any]
    unfused: Callable[..., Any]
    tolerance: float = 0.0
    temporaries: int = 2

    def shapes(self, size: int) -> tuple[tuple[int, ...], ...]:
        """Return the inputs' shapes for a benchmark of `size` elements."""
        return tuple(tuple(size if n == -1 else n for n in shape) for shape in self.inputs)

    def elements(self, size: int) -> int:
        """Return the number of elements of all inputs."""
        return sum(math.prod(shape) for shape in self.shapes(size))


def _gelu(x: Any, b: Any) -> Any:
    t = x + b
    return 0.5 * t * (1 + erf(t * _HALF_ROOT))


def _unfused_gelu(xp: Any, out: Any, x: Any, b: Any) -> Any:
    t = x + b
    return xp.multiply(0.5 * t, 1 + xp.erf(t * _HALF_ROOT), out=out)


# Sums of float32 in other orders differ by some epsilons; 64 is far above that, and far below
# what one lost or doubled element does in the small check (1009 elements: about 8000 epsilons).
_SUM = 64.0

CASES: dict[str, Case] = {
    case.name: case
    for case in (
        Case(
            "sum(abs(x))",
            "np.sum(np.abs(x))",
            (FULL,),
            lambda x: abs(x).sum(),
            lambda xp, out, x: xp.sum(xp.abs(x), out=out),
            _SUM,
        ),
        Case(
            "relu(2x+1)",
            "np.maximum(2 * x + 1, 0)",
            (FULL,),
            lambda x: relu(2 * x + 1),
            lambda xp, out, x: xp.maximum(2 * x + 1, 0, out=out),
        ),
        Case(
            "relu(2x+y)",
            "np.maximum(2 * x + y, 0)",
            (FULL, FULL),
            lambda x, y: relu(2 * x + y),
            lambda xp, out, x, y: xp.maximum(2 * x + y, 0, out=out),
        ),
        Case(
            "relu(x*y+z)",
            "np.maximum(x * y + z, 0)",
            (FULL, FULL, FULL),
            lambda x, y, z: relu(x * y + z),
            lambda xp, out, x, y, z: xp.maximum(x * y + z, 0, out=out),
        ),
        Case(
            "gelu(x+b)",
            "0.5 * (t := x + y) * (1 + erf(t * 0.7071067811865476))",
            (FULL, FULL),
            _gelu,
            _unfused_gelu,
            tolerance=8,
            temporaries=20,  # itfuse.reference.erf, which stands in for NumPy's missing one
        ),
        Case(
            "dot",
            "np.sum(x * y)",
            (FULL, FULL),
            lambda x, y: (x * y).sum(),
            lambda xp, out, x, y: xp.sum(x * y, out=out),
            _SUM,
        ),
        Case(
            "norm",
            "np.sqrt(np.sum(x * x))",
            (FULL,),
            lambda x: sqrt((x * x).sum()),
            lambda xp, out, x: xp.sqrt(xp.sum(x * x), out=out),
            _SUM,
        ),
        Case(
            "mean",
            "np.mean(x)",
            (FULL,),
            lambda x: x.mean(),
            lambda xp, out, x: xp.mean(x, out=out),
            _SUM,
            temporaries=0,
        ),
    )
}


def select(names: Iterable[str]) -> list[Case]:
    """Return the cases called `names`, in the table's order; all of them for no names.

    Raises
    ------
    ConfigError
        For a name that is not in the table, with the nearest one.

    Examples
    --------
    >>> [case.name for case in select(["Dot", "sum( abs(x) )"])]
    ['sum(abs(x))', 'dot']
    """
    by_key = {_key(name): name for name in CASES}
    wanted = set()
    for name in names:
        found = by_key.get(_key(name))
        if found is None:
            near = difflib.get_close_matches(_key(name), by_key, n=1, cutoff=0.4)
            hint = f"did you mean {by_key[near[0]]!r}? " if near else ""
            raise ConfigError(f"no case {name!r}; {hint}there are {', '.join(CASES)}")
        wanted.add(found)
    return [case for case in CASES.values() if not wanted or case.name in wanted]


def _key(name: str) -> str:
    return "".join(name.lower().split())
