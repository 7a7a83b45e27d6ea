"""Distinct elements: `unique` and the array API's `unique_*`.

A sort, then a selection of where runs of equal elements begin; the inverse is a running count of
those, put where the elements were. Nothing is computed before it is asked for: how many distinct
elements there are is found by the selection.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from itfuse import wording
from itfuse.array import Array, asarray
from itfuse.errors import Unsupported
from itfuse.functions import FUNCTIONS as F
from itfuse.ordering import in_order
from itfuse.selected import Selected, select
from itfuse.selection import run_starts
from itfuse.terminals import buffered, flat


class UniqueAllResult(NamedTuple):
    """What `unique_all` returns, with NumPy's names."""

    values: Selected
    indices: Selected
    inverse_indices: Array
    counts: Selected


class UniqueCountsResult(NamedTuple):
    """What `unique_counts` returns, with NumPy's names."""

    values: Selected
    counts: Selected


class UniqueInverseResult(NamedTuple):
    """What `unique_inverse` returns, with NumPy's names."""

    values: Selected
    inverse_indices: Array


def _found(x: Any, wanted: str, equal_nan: bool) -> dict[str, Any]:
    """Return the `wanted` ones of v(alues), (f)irst places, i(nverse) and c(ounts)."""
    x = asarray(x)
    rows = flat(x)
    keys, order = in_order(rows)
    flag: Any = run_starts(keys, equal_nan)
    flag = flag if wanted == "v" else buffered(flag)  # read by several passes
    made: dict[str, Any] = {}
    chosen = {"v": keys}
    if "f" in wanted:
        chosen["f"] = order
    if "c" in wanted:
        place = F["arange"](rows.size)
        begins = F["where"](flag, place, np.int64(rows.size))
        # Where the next run begins: the least beginning behind an element.
        behind = F["scan"](begins, "min", reverse=True, exclusive=True)
        chosen["c"] = buffered(F["minimum"](behind, rows.size) - place)
    made.update(zip(chosen, select([flag], list(chosen.values()), rows.shape, "unique({1})"),
                    strict=True))  # fmt: skip
    if "i" in wanted:
        number = F["cumulative_sum"](flag, axis=0, dtype=np.int64) - 1
        nothing = F["zeros"](x.shape, dtype=np.int64)
        made["i"] = F["put"](nothing, order, buffered(number)) if rows.size else nothing
    return made


def unique(
    ar: Any, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False,
    axis: int | None = None, *, equal_nan: bool = True, sorted: bool = True,
) -> Any:  # fmt: skip
    """Return the distinct elements in order, as `numpy.unique` does.

    Parameters
    ----------
    ar : array
        Flattened.
    return_index, return_inverse, return_counts : bool
        Whether to return, too, where each comes first, the number of the distinct element that
        each element is (in the shape of `ar`), and how often each comes.
    axis : None
        Rows are not compared as wholes.
    equal_nan : bool
        Whether all NaN are one.
    sorted : bool
        Accepted: they are.

    Returns
    -------
    Selected, or tuple of Selected and Array
        Lazy. A sort, and a selection; counts and the inverse take a scan each, and the inverse a
        pass that scatters it: `explain` states them.

    Raises
    ------
    Unsupported
        For an axis.

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.unique(itf.asarray([3, 1, 3, 2])).compute()
    array([1, 2, 3])
    >>> values, counts = itf.compute(itf.unique(itf.asarray([3, 1, 3]), return_counts=True))
    >>> values, counts
    (array([1, 3]), array([1, 2]))
    """
    if axis is not None:
        raise Unsupported(
            f"unique({wording.text(asarray(ar)._node)}, axis={axis}): rows are not compared as "
            "wholes; compute() the operand first"
        )
    asked = {"f": return_index, "i": return_inverse, "c": return_counts}
    wanted = "v" + "".join(key for key, yes in asked.items() if yes)
    made = _found(ar, wanted, equal_nan)
    return made["v"] if wanted == "v" else tuple(made[key] for key in wanted)


def unique_values(x: Any, /) -> Selected:
    """Return the distinct elements in order, each NaN being one; see `unique`.

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.unique_values(itf.asarray([2, 1, 2])).compute()
    array([1, 2])
    """
    return _found(x, "v", False)["v"]  # type: ignore[no-any-return]


def unique_counts(x: Any, /) -> UniqueCountsResult:
    """Return the distinct elements and how often each comes; see `unique`.

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.compute(itf.unique_counts(itf.asarray([2, 1, 2]))).counts
    array([1, 2])
    """
    made = _found(x, "vc", False)
    return UniqueCountsResult(made["v"], made["c"])


def unique_inverse(x: Any, /) -> UniqueInverseResult:
    """Return the distinct elements, and which of them each element is; see `unique`.

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.compute(itf.unique_inverse(itf.asarray([7, 5, 7]))).inverse_indices
    array([1, 0, 1])
    """
    made = _found(x, "vi", False)
    return UniqueInverseResult(made["v"], made["i"])


def unique_all(x: Any, /) -> UniqueAllResult:
    """Return the distinct elements, where each comes first, the inverse and the counts.

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.compute(itf.unique_all(itf.asarray([7, 5, 7]))).indices
    array([1, 0])
    """
    made = _found(x, "vfic", False)
    return UniqueAllResult(made["v"], made["f"], made["i"], made["c"])


_PUBLIC = (unique, unique_values, unique_counts, unique_inverse, unique_all)
F.update({one.__name__: one for one in _PUBLIC})
