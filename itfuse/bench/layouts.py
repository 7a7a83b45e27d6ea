"""Rows of the table: arrays that are not aligned, contiguous or of one shape; changes of dtype."""

from __future__ import annotations

from typing import Any

from itfuse.bench.basic import gelu
from itfuse.bench.case import FULL, Bar, Case

_SUITE = ("elementwise",)


def _rows(columns: int) -> Case:
    return Case(
        f"gelu(x+b), rows of {columns}",
        "0.5 * (t := x + y) * (1 + erf(t * 0.7071067811865476))",
        ((-columns, columns), (columns,)),
        gelu,
        _SUITE,
        8,
        temporaries=20,
        bars=(Bar(0.95),),
    )


def _cast(given: str, wanted: str) -> Case:
    def form(F: Any, x: Any, out: Any = None) -> Any:
        return F.astype(x, wanted, out=out)

    return Case(f"{given} to {wanted}", f"x.astype({wanted!r})", (FULL,), form, ("dtypes",),
                dtype=given, bars=(Bar(0.94),))  # fmt: skip


LAYOUTS: tuple[Case, ...] = (
    Case(
        "relu(2x+1), misaligned",
        "np.maximum(2 * x + 1, 0)",
        (FULL,),
        lambda F, x, out=None: F.maximum(2 * x + 1, 0, out=out),
        _SUITE,
        prepare=lambda xp, x: (x[1:],),  # an odd length at an odd address
        bars=(Bar(0.95),),
    ),
    _rows(1000),
    _rows(4096),
    Case(
        "2x[::-1]",
        "2 * x[::-1]",
        (FULL,),
        lambda F, x, out=None: F.multiply(F.flip(x), 2, out=out),
        _SUITE,
        bars=(Bar(0.97),),
    ),
    Case(
        "x.T+y",
        "x.T + y",
        ((-4096, 4096), (4096, -4096)),
        lambda F, x, y, out=None: F.add(x.T, y, out=out),
        _SUITE,
        bars=(Bar(0.93),),
    ),
    Case(
        "2x[::2]",
        "2 * x[::2]",
        (FULL,),
        lambda F, x, out=None: F.multiply(x[::2], 2, out=out),
        _SUITE,
        bars=(Bar(0.94),),  # all of x counts: its lines are read whole
    ),
    _cast("float32", "float16"),
    _cast("float16", "float32"),
)
