"""Rows of the table: elementwise functions, whole reductions, running sums, selections."""

from __future__ import annotations

from typing import Any

from itfuse.bench.case import EVERY_PEER, FULL, Bar, Case, Kernel

DEFAULT = "default"

_HALF_ROOT = 0.7071067811865476  # sqrt(1/2)


def gelu(F: Any, x: Any, b: Any, out: Any = None) -> Any:
    """Return gelu(x + b)."""
    t = x + b
    return F.multiply(0.5 * t, 1 + F.erf(t * _HALF_ROOT), out=out)


# Sums of float32 in other orders differ by some epsilons; 64 is far above that, and far below
# what one lost or doubled element does in the small check (1009 elements: about 8000 epsilons).
SUM = 64.0
# NumPy's running sums are added one by one, and lose as much.
_RUNNING = 4 * SUM

RELU = Kernel("max(T(2) * x0 + T(1), T(0))")
_POSITIVE = Kernel("x0", keep="x0 > T(0)")

# CUB's scan, which is not deterministic, called at its best: built before, with its own scratch.
_CUB_SCAN = "cuda.compute iterator"
_CUB_SELECT = "cuda.compute"

_SCANS = (("", 0, 1.1), (" at 2**20", 1 << 20, 1.0), (" at 2**24", 1 << 24, 1.0))


def _running(name: str, size: int, least: float) -> Case:
    return Case(
        name,
        "np.cumsum(x * x)",
        (FULL,),
        lambda F, x, out=None: F.cumsum(x * x, out=out),
        ("scan",),
        _RUNNING,
        truth=lambda F, x: F.cumsum(x * x, dtype="float64").astype(x.dtype),
        temporaries=5,
        size=size,
        kernel=Kernel("x0 * x0", "a + b", scan=True),
        bars=(Bar(least, _CUB_SCAN),),
    )


BASIC: tuple[Case, ...] = (
    Case(
        "sum(abs(x))",
        "np.sum(np.abs(x))",
        (FULL,),
        lambda F, x, out=None: F.sum(F.abs(x), out=out),
        (DEFAULT, "article", "reduce", "cpu"),
        SUM,
        kernel=Kernel("abs(x0)", "a + b"),
        numexpr="sum(abs(x))",
        triton="tl.abs(x0)",
        bars=(Bar(1.02),),
    ),
    Case(
        "relu(2x+1)",
        "np.maximum(2 * x + 1, 0)",
        (FULL,),
        lambda F, x, out=None: F.maximum(2 * x + 1, 0, out=out),
        (DEFAULT, "elementwise", "cpu"),
        kernel=RELU,
        numexpr="where(2 * x + 1 > 0, 2 * x + 1, 0)",
        triton="tl.maximum(2 * x0 + 1, 0)",
        bars=(Bar(0.98),),
    ),
    Case(
        "relu(2x+y)",
        "np.maximum(2 * x + y, 0)",
        (FULL, FULL),
        lambda F, x, y, out=None: F.maximum(2 * x + y, 0, out=out),
        (DEFAULT, "elementwise", "cpu"),
        kernel=Kernel("max(T(2) * x0 + x1, T(0))"),
        numexpr="where(2 * x + y > 0, 2 * x + y, 0)",
        triton="tl.maximum(2 * x0 + x1, 0)",
        bars=(Bar(1.02),),
    ),
    Case(
        "relu(x*y+z)",
        "np.maximum(x * y + z, 0)",
        (FULL, FULL, FULL),
        lambda F, x, y, z, out=None: F.maximum(x * y + z, 0, out=out),
        (DEFAULT, "elementwise", "cpu"),
        kernel=Kernel("max(x0 * x1 + x2, T(0))"),
        numexpr="where(x * y + z > 0, x * y + z, 0)",
        triton="tl.maximum(x0 * x1 + x2, 0)",
        bars=(Bar(1.03),),
    ),
    Case(
        "gelu(x+b)",
        "0.5 * (t := x + y) * (1 + erf(t * 0.7071067811865476))",
        (FULL, FULL),
        gelu,
        (DEFAULT, "elementwise"),
        tolerance=8,
        temporaries=20,  # itfuse.reference.erf, which stands in for NumPy's missing one
        kernel=Kernel("T(0.5) * (x0 + x1) * (T(1) + erf((x0 + x1) * T(0.7071067811865476)))"),
        triton="0.5 * (x0 + x1) * (1 + tl.erf((x0 + x1) * 0.7071067811865476))",
    ),
    Case(
        "x*y+z*w",
        "x * y + z * w",
        (FULL, FULL, FULL, FULL),
        lambda F, x, y, z, w, out=None: F.add(x * y, z * w, out=out),
        ("elementwise", "cpu"),
        kernel=Kernel("x0 * x1 + x2 * x3"),
        numexpr="x * y + z * w",
        triton="x0 * x1 + x2 * x3",
        bars=(Bar(1.03),),
    ),
    Case(
        "x+y, x-y",
        "(x + y, x - y)",
        (FULL, FULL),
        lambda F, x, y, out=None: (x + y, x - y),
        ("elementwise", "cpu"),
        results=2,
        kernel=Kernel("x0 + x1", also=("x0 - x1",)),
        bars=(Bar(0.98),),
    ),
    Case(
        "dot",
        "np.sum(x * y)",
        (FULL, FULL),
        lambda F, x, y, out=None: F.sum(x * y, out=out),
        (DEFAULT, "reduce", "cpu"),
        SUM,
        kernel=Kernel("x0 * x1", "a + b"),
        numexpr="sum(x * y)",
        triton="x0 * x1",
        bars=(Bar(1.02),),
    ),
    Case(
        "sum(x*x)",
        "np.sum(x * x)",
        (FULL,),
        lambda F, x, out=None: F.sum(x * x, out=out),
        ("reduce", "cpu"),
        SUM,
        kernel=Kernel("x0 * x0", "a + b"),
        numexpr="sum(x * x)",
        triton="x0 * x0",
        bars=(Bar(1.02),),
    ),
    Case(
        "norm",
        "np.sqrt(np.sum(x * x))",
        (FULL,),
        lambda F, x, out=None: F.sqrt(F.sum(x * x), out=out),
        (DEFAULT, "reduce", "cpu"),
        SUM,
        kernel=Kernel("x0 * x0", "a + b", "sqrt(a)"),
    ),
    Case(
        "mean",
        "np.mean(x)",
        (FULL,),
        lambda F, x, out=None: F.mean(x, out=out),
        (DEFAULT, "reduce", "cpu"),
        SUM,
        temporaries=0,
        kernel=Kernel("x0", "a + b", "a / T(n)"),
    ),
    Case(
        "mean, var",
        "(np.mean(x), np.var(x))",
        (FULL,),
        lambda F, x, out=None: (F.mean(x), F.var(x)),
        ("reduce",),
        SUM,
        temporaries=6,
        results=2,
        hand="moments",
        truth=lambda F, x: (F.mean(x, dtype="float64"), F.var(x, dtype="float64")),
    ),
    Case(
        "mean, var, min, max, dot",
        "(np.mean(x), np.var(x), np.min(x), np.max(x), np.sum(x * y))",
        (FULL, FULL),
        lambda F, x, y, out=None: (F.mean(x), F.var(x), F.min(x), F.max(x), F.sum(x * y)),
        ("reduce", "cpu"),
        SUM,
        temporaries=6,
        results=5,
        hand="five",
        truth=lambda F, x, y: (
            F.mean(x, dtype="float64"),
            F.var(x, dtype="float64"),
            F.min(x),
            F.max(x),
            F.sum((x * y).astype("float64")),
        ),
        bars=(Bar(1.02), Bar(1.0, EVERY_PEER)),
    ),
    Case(
        "min, max",
        "(np.min(x), np.max(x))",
        (FULL,),
        lambda F, x, out=None: (F.min(x), F.max(x)),
        ("reduce", "cpu"),
        results=2,
        hand="minmax",
    ),
    Case(
        "argmax",
        "np.argmax(x)",
        (FULL,),
        lambda F, x, out=None: F.argmax(x),
        ("reduce",),
        hand="argmax",
        bars=(Bar(0.98),),
    ),
    *(_running(f"cumsum(x*x){at}", size, least) for at, size, least in _SCANS),
    Case(
        "cumsum(x)",
        "np.cumsum(x)",
        (FULL,),
        lambda F, x, out=None: F.cumsum(x, out=out),
        ("scan",),
        _RUNNING,
        truth=lambda F, x: F.cumsum(x, dtype="float64").astype(x.dtype),
        temporaries=4,
        kernel=Kernel("x0", "a + b", scan=True),
    ),
    Case(
        "x[x>0]",
        "x[x > 0]",
        (FULL,),
        lambda F, x, out=None: F.select(x, x > 0),
        ("select",),
        dynamic=True,
        kernel=_POSITIVE,
        bars=(Bar(1.4, _CUB_SELECT),),
    ),
    Case(
        "sum(x[x>0])",
        "np.sum(np.where(x > 0, x, np.zeros((), x.dtype)))",
        (FULL,),
        lambda F, x, out=None: F.sum(F.maximum(x, 0), out=out),
        ("select",),
        SUM,
        kernel=Kernel("max(x0, T(0))", "a + b"),
        triton="tl.maximum(x0, 0)",
    ),
)
