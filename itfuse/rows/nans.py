"""Statistics of the elements that are not NaN: those of statistics.py behind a mask.

NumPy's definitions (numpy/lib/_nanfunctions_impl.py), except where the data alone would raise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from itfuse.dtypes import accumulator, kind
from itfuse.rows.statistics import arg_extreme, mean, var


def _instead_of_nan(F: Any, x: Any, value: float) -> Any:
    x = F.asarray(x)
    return F.where(F.isnan(x), value, x) if kind(x.dtype) in "fc" else x


def _present(F: Any, x: Any, where: Any) -> Any:
    """Return whether an element counts: it is no NaN, and the mask has it."""
    numbers = F.logical_not(F.isnan(x))
    return numbers if where is None else F.logical_and(numbers, where)


def _sum_like(name: str, neutral: int) -> Callable[..., Any]:
    def total(F: Any, x: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False,
              initial: Any = None, where: Any = None) -> Any:  # fmt: skip
        return getattr(F, name)(
            _instead_of_nan(F, x, neutral), axis=axis, dtype=dtype, keepdims=keepdims,
            initial=initial, where=where,
        )  # fmt: skip

    return total


nansum, nanprod = _sum_like("sum", 0), _sum_like("prod", 1)


def nanmean(F: Any, x: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False,
            where: Any = None) -> Any:  # fmt: skip
    """Mean of what is not NaN."""
    x = F.asarray(x)
    if kind(x.dtype) not in "fc":
        return mean(F, x, axis, dtype, keepdims=keepdims, where=where)
    result = x.dtype if dtype is None else np.dtype(dtype)
    # In the dtype that adds up: float16 has no count beyond 65,504.
    total = nansum(F, x, axis, accumulator(result.name), keepdims=keepdims, where=where)
    count = F.sum(_present(F, x, where), axis=axis, keepdims=keepdims)
    return F.astype(F.divide(total, F.astype(count, total.dtype)), result)


def nanvar(F: Any, x: Any, axis: Any = None, dtype: Any = None, *, ddof: float = 0,
           keepdims: bool = False, where: Any = None, mean: Any = None,
           correction: float | None = None) -> Any:  # fmt: skip
    """Variance of what is not NaN; NaN where no more than `ddof` elements are left."""
    x, ddof = F.asarray(x), ddof if correction is None else correction
    options: dict[str, Any] = {"ddof": ddof, "keepdims": keepdims, "mean": mean}
    if kind(x.dtype) not in "fc":
        return var(F, x, axis, dtype, where=where, **options)
    present = _present(F, x, where)
    found = var(F, x, axis, dtype, where=present, **options)
    count = F.sum(present, axis=axis, keepdims=keepdims)
    return F.where(F.less_equal(count, ddof), float("nan"), found)


def nanstd(F: Any, x: Any, axis: Any = None, dtype: Any = None, *, ddof: float = 0,
           keepdims: bool = False, where: Any = None, mean: Any = None,
           correction: float | None = None) -> Any:  # fmt: skip
    """Root of `nanvar`."""
    ddof = ddof if correction is None else correction
    return F.sqrt(nanvar(F, x, axis, dtype, ddof=ddof, keepdims=keepdims, where=where, mean=mean))


def nan_extreme(name: str, ignoring: str, worst: float) -> Callable[..., Any]:
    """Return `nanmin` or `nanmax`; `ignoring` is the operator that passes over NaN."""

    def extreme(F: Any, x: Any, axis: Any = None, *, keepdims: bool = False, initial: Any = None,
                where: Any = None) -> Any:  # fmt: skip
        x = F.asarray(x)
        over: dict[str, Any] = {"axis": axis, "keepdims": keepdims, "where": where}
        if kind(x.dtype) not in "fc":
            return getattr(F, name)(x, initial=initial, **over)
        # With `initial` there is a value of nothing, and it is combined with below.
        start = None if initial is None else worst
        found = getattr(F, name)(_instead_of_nan(F, x, worst), initial=start, **over)
        found = F.where(F.all(F.isnan(x), **over), float("nan"), found)
        if initial is None:
            return found
        return getattr(F, ignoring)(found.dtype.type(initial), found)

    return extreme


def nan_arg(name: str, worst: float) -> Callable[..., Any]:
    """Return `nanargmax` or `nanargmin`."""

    def find(F: Any, x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
        return arg_extreme(name)(F, _instead_of_nan(F, x, worst), axis, keepdims=keepdims)

    return find


# Name, doc, definition.
ROWS: tuple[tuple[str, str, Callable[..., Any]], ...] = (
    ("nanargmax", "Position of the first greatest element that is not NaN; 0 if all are, which "
     "NumPy raises for: that is known only behind the pass.", nan_arg("argmax", -np.inf)),
    ("nanargmin", "Position of the first least element that is not NaN; 0 if all are, which NumPy "
     "raises for: that is known only behind the pass.", nan_arg("argmin", np.inf)),
    ("nansum", "Sum of the elements that are not NaN.", nansum),
    ("nanprod", "Product of the elements that are not NaN.", nanprod),
    ("nanmean", "Mean of the elements that are not NaN.", nanmean),
    ("nanvar", "Variance of the elements that are not NaN, with `ddof`.", nanvar),
    ("nanstd", "Standard deviation of the elements that are not NaN, with `ddof`.", nanstd),
    ("nanmin", "Least element that is not NaN; with `initial` and `where`.",
     nan_extreme("min", "fmin", np.inf)),
    ("nanmax", "Greatest element that is not NaN; with `initial` and `where`.",
     nan_extreme("max", "fmax", -np.inf)),
)  # fmt: skip
