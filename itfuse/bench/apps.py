"""Rows of the table that are pieces of real programs: suite `apps`."""

from __future__ import annotations

from typing import Any

from itfuse.bench.case import FULL, Case, Kernel

_HALF_ROOT = 0.7071067811865476  # sqrt(1/2)
_APPS = ("apps",)


def _normal(F: Any, d: Any) -> Any:
    """Return the normal distribution function."""
    return 0.5 * (1 + F.erf(d * _HALF_ROOT))


def _black_scholes(F: Any, x: Any, y: Any, z: Any, out: Any = None) -> Any:
    """Return the price of a European call (Black and Scholes 1973): rate 0.02, volatility 0.3."""
    spot, strike, years = F.abs(x) + 0.5, F.abs(y) + 0.5, F.abs(z) + 0.25
    spread = 0.3 * F.sqrt(years)
    d1 = (F.log(spot / strike) + 0.065 * years) / spread
    worth = strike * F.exp(-0.02 * years)
    return F.subtract(spot * _normal(F, d1), worth * _normal(F, d1 - spread), out=out)


_BLACK_SCHOLES = (
    "(s := abs(x) + 0.5) * 0.5 * (1 + erf((d := (np.log(s / (k := abs(y) + 0.5)) + 0.065 * "
    "(t := abs(z) + 0.25)) / (v := 0.3 * np.sqrt(t))) * 0.7071067811865476)) - k * "
    "np.exp(-0.02 * t) * 0.5 * (1 + erf((d - v) * 0.7071067811865476))"
)


def _dropout(F: Any, x: Any, b: Any, z: Any, out: Any = None) -> Any:
    """Return gelu(x + b) with a tenth dropped, where the random `z` says so."""
    t = x + b
    gelu = 0.5 * t * (1 + F.erf(t * _HALF_ROOT))
    return F.multiply(gelu * (z > -0.7), 1 / 0.9, out=out)


def _adam(F: Any, p: Any, g: Any, m: Any, v: Any, out: Any = None) -> Any:
    """Return parameter and moments after a step of Adam (Kingma and Ba 2014), its tenth."""
    m = 0.9 * m + 0.1 * g
    v = 0.999 * F.abs(v) + 0.001 * (g * g)
    return p - 0.001 * (m * 1.5353) / (F.sqrt(v * 100.4509) + 1e-8), m, v


def _entropy(F: Any, x: Any, label: Any, column: Any, out: Any = None) -> Any:
    """Return each row's softmax cross-entropy: log(sum(exp(x))) - x[label]."""
    chosen = F.sum(F.where(column == label, x, x * 0), axis=-1)
    return F.subtract(F.logsumexp(x, axis=-1), chosen, out=out)


def _labels(xp: Any, x: Any, label: Any, column: Any) -> tuple[Any, ...]:
    return (
        x,
        xp.floor((label + 1) * (column.size / 3)).astype("int32"),
        xp.arange(column.size, dtype="int32"),
    )


def _assign(F: Any, x: Any, y: Any, cx: Any, cy: Any, out: Any = None) -> Any:
    """Return the nearest of the centres for each point."""
    dx, dy = x - cx, y - cy
    return F.argmin(dx * dx + dy * dy, axis=-1)


_WIDE = (-1024, 1024)

APPS: tuple[Case, ...] = (
    Case(
        "black-scholes",
        _BLACK_SCHOLES,
        (FULL, FULL, FULL),
        _black_scholes,
        _APPS,
        256,
        temporaries=24,
        kernel=Kernel(
            "[](T s, T k, T t) { T v = T(0.3) * sqrt(t); T d = (log(s / k) + T(0.065) * t) / v; "
            "return s * T(0.5) * (T(1) + erf(d * T(0.7071067811865476))) - k * exp(T(-0.02) * t) "
            "* T(0.5) * (T(1) + erf((d - v) * T(0.7071067811865476))); }"
            "(abs(x0) + T(0.5), abs(x1) + T(0.5), abs(x2) + T(0.25))"
        ),
    ),
    Case(
        "gelu, bias, dropout",
        "0.5 * (t := x + y) * (1 + erf(t * 0.7071067811865476)) * (z > -0.7) * (1 / 0.9)",
        (_WIDE, (1024,), _WIDE),
        _dropout,
        _APPS,
        16,
        temporaries=24,
    ),
    Case(
        "layernorm",
        "layernorm(x, y, z)",
        (_WIDE, (1024,), (1024,)),
        lambda F, x, w, b, out=None: F.layernorm(x, w, b),
        _APPS,
        256,
        temporaries=6,
        hand="layernorm",
    ),
    Case(
        "softmax cross-entropy",
        "np.log(np.sum(np.exp(x), axis=-1)) - np.sum(np.where(z == y, x, 0.0), axis=-1)",
        (_WIDE, (-1024, 1), (1024,)),
        _entropy,
        _APPS,
        256,
        temporaries=5,
        prepare=_labels,
    ),
    Case(
        "adam step",
        "(x - 0.001 * ((m := 0.9 * z + 0.1 * y) * 1.5353) / (np.sqrt((v := 0.999 * np.abs(w) + "
        "0.001 * (y * y)) * 100.4509) + 1e-8), m, v)",
        (FULL, FULL, FULL, FULL),
        _adam,
        _APPS,
        64,
        temporaries=8,
        results=3,
        kernel=Kernel(
            "x0 - T(0.001) * (m * T(1.5353)) / (sqrt(v * T(100.4509)) + T(1e-8))",
            before="T m = T(0.9) * x2 + T(0.1) * x1; "
            "T v = T(0.999) * abs(x3) + T(0.001) * (x1 * x1);",
            also=("m", "v"),
        ),
    ),
    Case(
        "monte-carlo pi",  # 9 times the share of [-1, 2) x [-1, 2) inside the unit circle
        "np.sum(x * x + y * y < 1)",
        (FULL, FULL),
        lambda F, x, y, out=None: F.sum(x * x + y * y < 1),
        _APPS,
        16,
        temporaries=4,
        hand="pi",
        numexpr="sum(where(x * x + y * y < 1, 1, 0))",
    ),
    Case(
        "k-means, 16 centres",
        "np.argmin((x - z) * (x - z) + (y - w) * (y - w), axis=-1)",
        ((-16, 1), (-16, 1), (1, 16), (1, 16)),
        _assign,
        _APPS,
        temporaries=5,
        undecided=1e-4,
    ),
    Case(
        "rgb to grey",
        "np.sum(x * y, axis=-1)",
        ((-3, 3), (3,)),
        lambda F, x, w, out=None: F.sum(x * w, axis=-1, out=out),
        _APPS,
        16,
        temporaries=3,
        numexpr="sum(x * y, axis=1)",
    ),
    Case(
        "stream copy",  # BabelStream (Deakin et al. 2018)
        "+x",
        (FULL,),
        lambda F, x, out=None: F.copy(x, out=out),
        _APPS,
        kernel=Kernel("x0"),
        triton="x0",
        numexpr="x",
    ),
    Case(
        "stream mul",
        "0.4 * x",
        (FULL,),
        lambda F, x, out=None: F.multiply(0.4, x, out=out),
        _APPS,
        kernel=Kernel("T(0.4) * x0"),
        triton="0.4 * x0",
        numexpr="0.4 * x",
    ),
    Case(
        "stream add",
        "x + y",
        (FULL, FULL),
        lambda F, x, y, out=None: F.add(x, y, out=out),
        _APPS,
        kernel=Kernel("x0 + x1"),
        triton="x0 + x1",
        numexpr="x + y",
    ),
    Case(
        "stream triad",
        "x + 0.4 * y",
        (FULL, FULL),
        lambda F, x, y, out=None: F.add(x, 0.4 * y, out=out),
        _APPS,
        kernel=Kernel("x0 + T(0.4) * x1"),
        triton="x0 + 0.4 * x1",
        numexpr="x + 0.4 * y",
    ),
    Case(
        "stream dot",
        "np.sum(x * y)",
        (FULL, FULL),
        lambda F, x, y, out=None: F.sum(x * y, out=out),
        _APPS,
        64,
        kernel=Kernel("x0 * x1", "a + b"),
        triton="x0 * x1",
        numexpr="sum(x * y)",
    ),
)
