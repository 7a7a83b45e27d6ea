"""Rows of the table that are one case in many dtypes, sizes and lengths; and those of host time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import itfuse as itf
from itfuse.bench.basic import BASIC, RELU, SUM
from itfuse.bench.case import FULL, LATENCY, Bar, Case, Kernel

_ABS, _LINEAR = (next(c for c in BASIC if c.name == name) for name in ("sum(abs(x))", "relu(2x+1)"))

_DTYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
           "float16", "bfloat16", "float32", "float64", "complex64")  # fmt: skip

_PROMISED = ("float16", "bfloat16", "int8", "float64")


def _dtypes() -> tuple[Case, ...]:
    made = []
    for name in _DTYPES:
        own: dict[str, Any] = {"suites": ("dtypes",), "dtype": name, "temporaries": 3}
        if name not in ("bool", "complex64"):
            relu: dict[str, Any] = {"kernel": RELU, "triton": "tl.maximum(2 * x0 + 1, 0)"}
            if name in _PROMISED:
                relu["bars"] = (Bar(0.96),)
            relu["extra"] = name not in ("int8", "float16", "bfloat16", "float64")
            made.append(
                Case(f"relu(2x+1) {name}", _LINEAR.meaning, (FULL,), _LINEAR.form, **own, **relu)
            )
        if name in ("float16", "bfloat16"):  # a sum would soon be infinite
            made.append(
                Case(
                    f"mean {name}",
                    "np.mean(x, dtype='float32').astype(x.dtype)",
                    (FULL,),
                    lambda F, x, out=None: F.mean(x),
                    truth=lambda F, x: F.mean(x.astype("float32")).astype(x.dtype),
                    tolerance=2,
                    **own,
                )
            )
            continue
        made.append(
            Case(
                f"sum {name}",
                "np.sum(x)",
                (FULL,),
                lambda F, x, out=None: F.sum(x, out=out),
                tolerance=SUM,
                **own,
            )
        )
    return tuple(made)


_SIZES = (10**3, 10**4, 10**5, 10**6, 10**7, 1 << 24, 1 << 26, 1 << 28, 1 << 30)


def _at(name: str, suite: str, form: Callable[..., Any], meaning: str, **more: Any) -> Case:
    return Case(name, meaning, (FULL,), form, (suite,), **more)


def _sizes() -> tuple[Case, ...]:
    made = []
    for size in _SIZES:
        text = (
            f"2**{size.bit_length() - 1}" if size & (size - 1) == 0 else f"1e{len(str(size)) - 1}"
        )
        for one in (_LINEAR, _ABS):
            made.append(
                _at(f"{one.name} at {text}", "sizes", one.form, one.meaning, size=size,
                    tolerance=one.tolerance, kernel=one.kernel, triton=one.triton,
                    numexpr=one.numexpr)
            )  # fmt: skip
    made.append(
        _at("sum at 1e4", "sizes", lambda F, x, out=None: F.sum(x, out=out), "np.sum(x)",
            size=10**4, tolerance=SUM, kernel=Kernel("x0", "a + b"), triton="x0",
            bars=(Bar(1.0, "cupy"),))
    )  # fmt: skip
    return tuple(made)


def _host(
    name: str,
    inputs: int,
    meaning: str,
    form: Callable[..., Any],
    fused: Callable[..., Any],
    *bars: Bar,
    **more: Any,
) -> Case:
    """Return a case of host time; `fused` calls itfuse as its users do, without a library between.

    A fused function takes at most 0.85 of the time of cupy.add, and 0.75 where both have an `out`;
    an expression that is made and computed at each call at most 4 times as long as the function.
    """
    return Case(f"host time of {name}", meaning, (FULL,) * inputs, form, ("latency",), fused=fused,
                size=1024, kind=LATENCY, bars=bars, **more)  # fmt: skip


_HOST = (
    _host("x+y", 2, "x + y", lambda F, x, y, out=None: F.add(x, y, out=out), lambda x, y: x + y,
          Bar(1 / 0.85, "cupy", "itf.fuse"), allocates=True),
    _host("x+y, out=", 2, "x + y", lambda F, x, y, out=None: F.add(x, y, out=out),
          lambda x, y: x + y, Bar(1 / 0.75, "cupy", "itf.fuse"), kernel=Kernel("x0 + x1"),
          triton="x0 + x1"),
    _host("2x+y", 2, "2 * x + y", lambda F, x, y, out=None: F.add(x * 2, y, out=out),
          lambda x, y: x * 2 + y, Bar(1 / 4, "itf.fuse"),
          Bar(1 / 4, "itf.fuse", "itfuse from arrays"), allocates=True),
    _host("sum(x)", 1, "np.sum(x)", lambda F, x, out=None: F.sum(x), lambda x: x.sum(),
          Bar(1.0, "cupy", "itf.fuse"), tolerance=SUM, allocates=True),
    _host(_LINEAR.name, 1, _LINEAR.meaning, _LINEAR.form, lambda x: itf.maximum(2 * x + 1, 0),
          kernel=RELU, triton=_LINEAR.triton),
)  # fmt: skip


def _chain(length: int) -> Case:
    """`length` operations, each of the last one's result: x * 1.5 - 0.25 ..., kept in range."""

    def form(F: Any, x: Any, out: Any = None) -> Any:
        for at in range(length - 1):
            x = x * 0.75 if at % 2 == 0 else x + 0.25
        return F.multiply(x, 0.75, out=out)

    text, c = "x", "x0"
    for at in range(length - 1):
        text = f"({text} * 0.75)" if at % 2 == 0 else f"({text} + 0.25)"
        c = f"({c} * T(0.75))" if at % 2 == 0 else f"({c} + T(0.25))"
    return Case(
        f"{length} operation{'s' if length > 1 else ''}", f"{text} * 0.75", (FULL,), form,
        ("depth",), kernel=Kernel(f"{c} * T(0.75)"), numexpr=f"{text} * 0.75",
        triton=f"{c} * 0.75".replace("T(", "("), extra=length not in (1, 8, 64),
    )  # fmt: skip


SERIES: tuple[Case, ...] = (
    *_dtypes(),
    *_sizes(),
    *_HOST,
    *(_chain(length) for length in (1, 2, 4, 8, 16, 32, 64)),
)
