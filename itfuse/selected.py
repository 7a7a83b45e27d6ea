"""Selection: elements that a condition chooses, so that data decide how many there are.

`Selected` is lazy like any expression until somebody asks for its size. Then it is computed, once,
and goes on as an array. That is the one place where the library waits for a device by itself.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from itfuse import engines, expr, wording
from itfuse.array import Array, asarray, combine, compute, place_of
from itfuse.errors import BoundsError
from itfuse.evaluate import check_values
from itfuse.expr import Node, Shape
from itfuse.ops import COUNT, SELECT
from itfuse.plan.index import Choice
from itfuse.wording import Lazily

_INT64 = np.dtype(np.int64)


class Selected(Array):
    """Elements chosen by data: a lazy array of which one axis has an unknown size.

    Made by `x[mask]`, `itf.compress`, `itf.nonzero` and the like; never called directly. `compute`,
    `plan`, `explain`, `dtype`, `ndim`, `device` and `repr` need no size, and `itf.compute(a, s)`
    takes it beside other expressions. Whatever needs the size (`shape`, `len`, operators, indexing,
    iteration, conversion, use in another expression) computes it once, waits for the device, and
    goes on with the array that came out: later changes of the sources are not seen any more.

    Examples
    --------
    >>> import itfuse as itf, numpy as np
    >>> x = itf.asarray(np.array([3.0, -1.0, 2.0]))
    >>> positive = x[x > 0]
    >>> positive
    itf.Selected(a[a > 0.0], shape=(?,), dtype=float64, device='cpu')
    >>> positive.compute()
    array([3., 2.])
    >>> len(positive), float(positive.sum().compute())
    (2, 5.0)
    """

    __slots__ = ("_checks", "_count", "_dtype", "_kin", "_lead", "_sources", "_tail", "_value",
                 "_whole")  # fmt: skip

    def __init__(  # noqa: PLR0917 - made in one place
        self,
        value: Node,
        count: Node,
        checks: tuple[Node, ...],
        sources: tuple[dict[Node, Any], str],
        lead: Shape,
        tail: Shape,
        dtype: np.dtype[Any],
    ) -> None:
        self._value, self._count, self._checks = value, count, checks
        self._sources, self._device = sources
        self._lead, self._tail, self._dtype = lead, tail, dtype
        self._kin: tuple[weakref.ref[Selected], ...] = (weakref.ref(self),)
        self._whole: Array | None = None

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's dtype of the result."""
        return self._dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self._lead) + 1 + len(self._tail)

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self._dtype.itemsize

    def __repr__(self) -> str:
        sizes = [*map(str, self._lead), "?", *map(str, self._tail)]
        shape = f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"
        return (
            f"itf.Selected({wording.text(self._value)}, shape={shape}, dtype={self.dtype}, "
            f"device={self._device!r})"
        )

    @property
    def _node(self) -> Node:  # type: ignore[override]
        return self._array()._node

    @property
    def _data(self) -> dict[Node, Any]:  # type: ignore[override]
        return self._array()._data

    def _array(self) -> Array:
        """Return what came out: computed the first time, with all that one pass gives."""
        if self._whole is None:
            kin = [one for ref in self._kin if (one := ref()) is not None]
            results = compute(*kin)
            for one, result in zip(kin, results if len(kin) > 1 else (results,), strict=True):
                one._whole = asarray(result)
        assert self._whole is not None
        return self._whole

    def _asked(self) -> tuple[tuple[Node, ...], dict[Node, Any]]:
        if self._whole is not None:
            return self._whole._asked()
        return (self._value, self._count, *self._checks), self._sources

    def _answer(self, results: Sequence[Any], stream: Any, given: bool) -> Any:
        value, *rest = results
        if isinstance(value, Array) or not rest:  # of the null engine; computed before
            return value
        engine = engines.engine_for(place_of(self._device))
        with engine.on(stream):
            count, *checks = [engine.read(one) for one in rest]
            if any(checks):
                raise BoundsError(
                    f"{wording.text(self._value)}: the condition is longer than the axis and holds "
                    "beyond its end"
                )
            choice = self._value.arg
            flags = count.tolist()
            number = [*flags, self._value.size - sum(flags)][choice.part]
            unit = math.prod(self._lead) * math.prod(self._tail)
            shape = (*self._lead, number // max(unit, 1), *self._tail)
            if unit == 0:
                return engine.empty(shape, self._dtype.name)
            part = value[:number] if given else engine.cut(value, number)
            return part if part.shape == shape else part.reshape(shape)


def select(  # noqa: PLR0917 - what makes a selection
    flags: Sequence[Array],
    values: Sequence[Array],
    domain: Shape,
    label: str,
    lead: Shape = (),
    tail: Shape = (),
    checks: Sequence[Array] = (),
    parts: Sequence[int] = (),
) -> tuple[Selected, ...]:
    """Return a selection of each of `values` where flags, broadcast to `domain`, choose.

    The results have the shape `lead` + (number,) + `tail`: what flags choose in row-major order
    must be whole blocks of it.
    """
    dtypes = [one.dtype for one in values]
    if math.prod(lead) * math.prod(tail) == 0:  # there are no elements, only their number
        domain, values = flags[0].shape, [flags[0]] * len(values)
    what = Lazily(lambda: label.format(*(wording.text(x._node) for x in (*flags, *values))))
    sources = combine([*flags, *values, *checks], lambda: str(what))
    nodes = tuple(one._node for one in flags)
    size = math.prod(domain)
    counted = Choice(
        domain, len(flags), -1, f"count({', '.join(f'{{{f}}}' for f in range(len(flags)))})"
    )
    count = expr.make(COUNT, nodes, _INT64, (len(flags),), counted)
    found = []
    for at, one in enumerate(values):
        choice = Choice(domain, len(flags), parts[at] if parts else 0, label)
        found.append(expr.make(SELECT, (*nodes, one._node), one.dtype, (size,), choice))
    looked = tuple(one._node for one in checks)
    check_values((*found, *looked), sources[0], "select")
    made = tuple(
        Selected(node, count, looked, sources, lead, tail, dtype)
        for node, dtype in zip(found, dtypes, strict=True)
    )
    kin = tuple(weakref.ref(one) for one in made)
    for one in made:
        one._kin = kin
    return made
