"""What a row of the op table holds; the table is ops.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from itfuse.errors import Unsupported

ELEMENTWISE, REDUCTION, COMPOSITE, LEAF = "elementwise", "reduction", "composite", "leaf"
INDEX, PLACE, COMBINE = "index", "place", "combine"
FOLD, STATISTIC, RANDOM = "fold", "statistic", "random"
TERMINAL = "terminal"
SELECTION = "selection"


@dataclass(frozen=True, eq=False)
class Op:
    """One operation.

    Attributes
    ----------
    name : str
        NumPy's name where NumPy has the operation.
    arity : int
        Number of array operands.
    kind : str
        `elementwise`, `reduction`, `fold` (a reduction with several accumulators), `composite`
        (written in terms of others), `statistic` (a composite along axes), `combine` (the operator
        of a reduction and nothing else), `random` (words that `itf.random` is made of), `terminal`
        (a device algorithm of its own, in a pass of its own), `index`, `place` or `leaf`.
    numpy : callable, optional
        What the CPU engine calls, `numpy(*operands, out=block)`: this is the op's definition.
        For a reduction, the ufunc whose `reduce` defines it.
    ufunc : numpy.ufunc, optional
        Whom to ask for result dtypes, and what `np.<ufunc>(array)` means. By default `numpy`.
    result : callable, optional
        Dtype rule for an op that is no ufunc: operand dtypes -> (operand dtypes, result dtype).
    refuses : callable, optional
        Operands, scalars as NumPy scalars of the dtype that is computed in and all others as None
        -> why NumPy has no answer, or an empty string.
    cpp : dict of str to str
        C++ templates by signature.
    numpy_c : callable, optional
        What the CPU engine calls for complex results instead of `numpy`.
    helper : dict of str to tuple of str
        C++ functions that the templates call, by signature.
    symbol : str
        How an expression is printed, `a + b` or `-a`; a function call by default.
    dunder : str
        Python operator: `add` gives `__add__`, `__radd__` (binary) or `__neg__` (unary).
    operator : callable, optional
        `(F, x, y)` -> expression, where the Python operator is not quite the function.
    method : bool
        Whether arrays have it as a method, as NumPy's have.
    aliases : tuple of str
        Other public names (the Array API standard's).
    compares : bool
        Whether it compares, and so takes a Python integer by its exact value.
    wraps : bool
        Whether a Python integer beyond the dtype is stored as the installed NumPy's `where` does,
        and not refused.
    idle : bool
        Whether its result is its operand.
    undoes : bool
        Whether it undoes itself.
    takes_dtype : bool
        For a reduction: whether `dtype=` says in which dtype it adds up.
    combine : str
        For a reduction: the row of the associative operator.
    identity : callable, optional
        For a reduction: dtype -> neutral element. Reductions without a value for nothing set
        `of_nothing=False`. For an elementwise row: that of an associative operator, where its
        ufunc knows none.
    expand : callable, optional
        For a composite: `(F, *args)` -> expression, `F` having every op as a function.
    fields : callable, optional
        For a fold: dtype of its first operand -> ((dtype, identity), ...), one for each operand.
        The operands of the node are the fields of one element.
    merge : callable, optional
        For a fold: (fields of a, fields of b) -> fields of both; a comes first. Its C++ is the
        template `merge`, a function call on `{a}` and `{b}`, the fields separated by commas.
    pick : int
        For a fold: the field that is its value.
    well_known : str
        Name of the CUB operator that means the same on scalars, if any.
    ulp : float
        Largest error of any engine in units in the last place of the correctly rounded result.
    scale : float
        Where a function has zeros: the error is in units in the last place of
        max(|result|, `scale`).
    ulp_c : float
        The same for complex operands, in units in the last place of the result's magnitude; by
        default `ulp`.
    doc : str
        One line for the docs.
    """

    name: str
    arity: int
    kind: str
    doc: str
    numpy: Callable[..., Any] | None = None
    ufunc: np.ufunc | None = None
    result: Callable[..., Any] | None = None
    refuses: Callable[..., str] | None = None
    cpp: dict[str, str] = field(default_factory=dict)
    numpy_c: Callable[..., Any] | None = None
    helper: dict[str, tuple[str, ...]] = field(default_factory=dict)
    symbol: str = ""
    dunder: str = ""
    operator: Callable[..., Any] | None = None
    method: bool = False
    aliases: tuple[str, ...] = ()
    compares: bool = False
    wraps: bool = False
    idle: bool = False
    undoes: bool = False
    takes_dtype: bool = False
    combine: str = ""
    identity: Callable[[np.dtype[Any]], Any] | None = None
    of_nothing: bool = True
    expand: Callable[..., Any] | None = None
    fields: Callable[[np.dtype[Any]], tuple[tuple[np.dtype[Any], Any], ...]] | None = None
    merge: Callable[..., Any] | None = None
    pick: int = 0
    well_known: str = ""
    ulp: float = 0.0
    ulp_c: float | None = None
    scale: float = 0.0

    def error(self, kind: str) -> float:
        """Return the bound `ulp` or, for complex operands (kind `c`), `ulp_c`."""
        return self.ulp_c if kind == "c" and self.ulp_c is not None else self.ulp

    @property
    def shown(self) -> str:
        """The name in texts: a user's row has more behind an @, to be told from others."""
        return self.name.partition("@")[0]

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    def twin(self, kind: str) -> Callable[..., Any]:
        """Return what the CPU engine calls where the result is of this NumPy kind."""
        found = self.numpy_c if kind == "c" and self.numpy_c is not None else self.numpy
        if found is None:
            raise Unsupported(
                f"{self.shown}(...): its C++ cannot run on the CPU engine, which compiles nothing; "
                "give itf.cpp_function(..., numpy=...) a NumPy twin, or use arrays on a GPU"
            )
        return found

    def merger(self) -> Callable[..., Any]:
        """Return how the CPU engine merges the accumulators of a fold."""
        return self.merge if self.merge is not None else self.twin("")

    @property
    def reduces(self) -> bool:
        """Whether it takes many elements to one."""
        return self.kind in (REDUCTION, FOLD)

    @property
    def asks(self) -> np.ufunc | None:
        """The ufunc that knows the dtypes."""
        if self.ufunc is not None:
            return self.ufunc
        return self.numpy if isinstance(self.numpy, np.ufunc) else None
