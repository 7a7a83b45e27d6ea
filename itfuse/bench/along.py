"""Rows of the table: along the last axis and along the first one, over many lengths."""

from __future__ import annotations

from itfuse.bench.basic import SUM
from itfuse.bench.case import Bar, Case

_LENGTHS = (3, 8, 10, 32, 37, 100, 128, 257, 512, 1000, 1001, 1024, 2001, 4096, 5000, 5001, 10_000,
            12_288, 16_384, 20_000, 20_001, 32_768, 33_333, 49_152, 65_536, 65_537, 131_072,
            131_073, 262_144)  # fmt: skip
_QUICK = (32, 257, 1024, 4096, 16_384, 65_536)
_COLUMNS = (64, 256, 1024, 4096, 16_384, 65_536, 262_144)
_QUICK_COLUMNS = (64, 1024, 16_384)

_COMPILERS = (Bar(1.0, "torch.compile"), Bar(1.0, "jax.jit"))
_ALIGNED = 4  # float32 in one load: rows of another length begin at odd addresses


def _softmax_share(length: int) -> float:
    if length > 49_152:
        return 0.9 if length % _ALIGNED == 0 else 0.88
    return 0.9 if length == 33_333 else 0.95


def _layernorm_share(length: int) -> float:
    if length <= 12_288:
        return 0.94
    return 0.88 if length % _ALIGNED == 0 else 0.8


def _rows_of(length: int) -> tuple[Case, ...]:
    shape = (-length, length)
    extra = length not in _QUICK
    cpu = ("rows", "cpu") if length == 1024 else ("rows",)
    return (
        Case(
            f"sum(x*x), rows of {length}",
            "np.sum(x * x, axis=-1)",
            (shape,),
            lambda F, x, out=None: F.sum(x * x, axis=-1, out=out),
            cpu,
            SUM,
            hand="squares",
            bars=(Bar(1.0), *_COMPILERS),
            extra=extra,
        ),
        Case(
            f"softmax, rows of {length}",
            "softmax(x)",
            (shape,),
            lambda F, x, out=None: F.softmax(x, axis=-1, out=out),
            cpu,
            SUM,
            temporaries=4,
            hand="softmax",
            bars=(Bar(_softmax_share(length)), *_COMPILERS),
            extra=extra,
        ),
        Case(
            f"layernorm, rows of {length}",
            "layernorm(x, y, z)",
            (shape, (length,), (length,)),
            lambda F, x, w, b, out=None: F.layernorm(x, w, b),
            cpu,
            # Divided by a root: what x - mean cancels shows where the values of a row are almost
            # equal, which happens in short ones.
            256 if length >= 128 else 4096,
            temporaries=6,
            hand="layernorm",
            bars=(Bar(_layernorm_share(length)), *_COMPILERS),
            extra=extra,
        ),
    )


def _columns(count: int) -> tuple[Case, ...]:
    # The libraries add millions of float32 one after the other: only float64 tells who is right.
    shape = (-count, count)
    suites = ("columns", "cpu") if count == 1024 else ("columns",)
    extra = count not in _QUICK_COLUMNS
    return (
        Case(
            f"sum(x*x), {count} columns",
            "np.sum(x * x, axis=0)",
            (shape,),
            lambda F, x, out=None: F.sum(x * x, axis=0, out=out),
            suites,
            SUM,
            temporaries=4,
            hand="columns",
            truth=lambda xp, x: xp.sum(xp.square(x.astype("float64")), axis=0),
            bars=(Bar(1.0), *_COMPILERS),
            extra=extra,
        ),
        Case(
            f"var, {count} columns",
            "np.var(x, axis=0)",
            (shape,),
            lambda F, x, out=None: F.var(x, axis=0),
            suites,
            SUM,
            temporaries=6,
            hand="columns var",
            truth=lambda xp, x: xp.var(x, axis=0, dtype="float64"),
            bars=_COMPILERS,
            extra=extra,
        ),
    )


ALONG: tuple[Case, ...] = (
    *(case for length in _LENGTHS for case in _rows_of(length)),
    Case(
        "max, rows of 1024",
        "np.max(x, axis=-1)",
        ((-1024, 1024),),
        lambda F, x, out=None: F.max(x, axis=-1),
        ("rows",),
        hand="max",
        bars=_COMPILERS,
    ),
    Case(
        "var, rows of 1024",
        "np.var(x, axis=-1)",
        ((-1024, 1024),),
        lambda F, x, out=None: F.var(x, axis=-1),
        ("rows",),
        SUM,
        temporaries=4,
        hand="var",
        bars=_COMPILERS,
    ),
    Case(
        "argmax, rows of 1024",
        "np.argmax(x, axis=-1)",
        ((-1024, 1024),),
        lambda F, x, out=None: F.argmax(x, axis=-1),
        ("rows",),
        hand="argmax of rows",
        bars=_COMPILERS,
    ),
    *(case for count in _COLUMNS for case in _columns(count)),
)
