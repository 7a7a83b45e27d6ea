"""The table of cases. A case is one row and is added nowhere else (or in apps.py, if it is long).

`meaning` is NumPy and is what the other columns compute: the tests evaluate it, with `erf`,
`softmax` and `layernorm` added. `form` is how a user of NumPy, CuPy, torch or JAX writes it with
the library's own operations, which is also what a user of itfuse writes.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from typing import Any

from itfuse.bench.apps import APPS
from itfuse.bench.case import FULL, LATENCY, Case, Kernel
from itfuse.errors import ConfigError

DEFAULT = "default"

SUITES: dict[str, str] = {
    DEFAULT: "eight transforms and reductions: what `itfuse bench` runs",
    "article": "sum(abs(x)), NVIDIA's example of what fusion saves (July 2026)",
    "elementwise": "one to four inputs, one or two outputs",
    "reduce": "whole-array reductions with a map before or after",
    "rows": "along the last axis: sums, softmax, layernorm, argmax",
    "columns": "along the first axis",
    "scan": "running sums",
    "select": "what the data keep",
    "dtypes": "the same two cases in every dtype",
    "sizes": "10**3 to 2**30 elements: first launches rule, then bandwidth",
    "latency": "host time a call, first calls, import",
    "depth": "chains of 1 to 64 operations",
    "cpu": "the CPU engine beside NumPy and numexpr, on any machine",
    "apps": "pieces of real programs, and BabelStream's five kernels",
}
"""What each suite shows, in the order in which they are listed."""

_HALF_ROOT = 0.7071067811865476  # sqrt(1/2)


def _gelu(F: Any, x: Any, b: Any, out: Any = None) -> Any:
    t = x + b
    return F.multiply(0.5 * t, 1 + F.erf(t * _HALF_ROOT), out=out)


# Sums of float32 in other orders differ by some epsilons; 64 is far above that, and far below
# what one lost or doubled element does in the small check (1009 elements: about 8000 epsilons).
_SUM = 64.0

_RELU = Kernel("max(T(2) * x0 + T(1), T(0))")
_ABS = Kernel("abs(x0)", "a + b")

_TABLE: tuple[Case, ...] = (
    Case(
        "sum(abs(x))",
        "np.sum(np.abs(x))",
        (FULL,),
        lambda F, x, out=None: F.sum(F.abs(x), out=out),
        (DEFAULT, "article", "reduce", "cpu"),
        _SUM,
        kernel=_ABS,
        numexpr="sum(abs(x))",
        triton="tl.abs(x0)",
    ),
    Case(
        "relu(2x+1)",
        "np.maximum(2 * x + 1, 0)",
        (FULL,),
        lambda F, x, out=None: F.maximum(2 * x + 1, 0, out=out),
        (DEFAULT, "elementwise", "cpu"),
        kernel=_RELU,
        numexpr="where(2 * x + 1 > 0, 2 * x + 1, 0)",
        triton="tl.maximum(2 * x0 + 1, 0)",
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
    ),
    Case(
        "gelu(x+b)",
        "0.5 * (t := x + y) * (1 + erf(t * 0.7071067811865476))",
        (FULL, FULL),
        _gelu,
        (DEFAULT, "elementwise"),
        tolerance=8,
        temporaries=20,  # itfuse.reference.erf, which stands in for NumPy's missing one
        kernel=Kernel("T(0.5) * (x0 + x1) * (T(1) + erf((x0 + x1) * T(0.7071067811865476)))"),
        triton="0.5 * (x0 + x1) * (1 + tl.erf((x0 + x1) * 0.7071067811865476))",
    ),
    Case(
        "x+y, x-y",
        "(x + y, x - y)",
        (FULL, FULL),
        lambda F, x, y, out=None: (x + y, x - y),
        ("elementwise", "cpu"),
        results=2,
    ),
    Case(
        "dot",
        "np.sum(x * y)",
        (FULL, FULL),
        lambda F, x, y, out=None: F.sum(x * y, out=out),
        (DEFAULT, "reduce", "cpu"),
        _SUM,
        kernel=Kernel("x0 * x1", "a + b"),
        numexpr="sum(x * y)",
        triton="x0 * x1",
    ),
    Case(
        "norm",
        "np.sqrt(np.sum(x * x))",
        (FULL,),
        lambda F, x, out=None: F.sqrt(F.sum(x * x), out=out),
        (DEFAULT, "reduce", "cpu"),
        _SUM,
        kernel=Kernel("x0 * x0", "a + b", "sqrt(a)"),
    ),
    Case(
        "mean",
        "np.mean(x)",
        (FULL,),
        lambda F, x, out=None: F.mean(x, out=out),
        (DEFAULT, "reduce", "cpu"),
        _SUM,
        temporaries=0,
        kernel=Kernel("x0", "a + b", "a / T(n)"),
    ),
    Case(
        "mean, var",
        "(np.mean(x), np.var(x))",
        (FULL,),
        lambda F, x, out=None: (F.mean(x), F.var(x)),
        ("reduce",),
        _SUM,
        results=2,
    ),
    Case(
        "min, max",
        "(np.min(x), np.max(x))",
        (FULL,),
        lambda F, x, out=None: (F.min(x), F.max(x)),
        ("reduce", "cpu"),
        results=2,
    ),
    Case(
        "argmax",
        "np.argmax(x)",
        (FULL,),
        lambda F, x, out=None: F.argmax(x),
        ("reduce",),
    ),
    Case(
        "cumsum(x)",
        "np.cumsum(x)",
        (FULL,),
        lambda F, x, out=None: F.cumsum(x, out=out),
        ("scan",),
        _SUM,
        truth=lambda F, x: F.cumsum(x, dtype="float64").astype(x.dtype),
        temporaries=4,
    ),
    Case(
        "cumsum(x*x)",
        "np.cumsum(x * x)",
        (FULL,),
        lambda F, x, out=None: F.cumsum(x * x, out=out),
        ("scan",),
        _SUM,
        truth=lambda F, x: F.cumsum(x * x, dtype="float64").astype(x.dtype),
        temporaries=5,
    ),
    Case(
        "x[x>0]",
        "x[x > 0]",
        (FULL,),
        lambda F, x, out=None: F.select(x, x > 0),
        ("select",),
        dynamic=True,
    ),
    Case(
        "sum(x[x>0])",
        "np.sum(np.where(x > 0, x, np.zeros((), x.dtype)))",
        (FULL,),
        lambda F, x, out=None: F.sum(F.maximum(x, 0), out=out),
        ("select",),
        _SUM,
        kernel=Kernel("max(x0, T(0))", "a + b"),
        triton="tl.maximum(x0, 0)",
    ),
)


def _along(axis: int, columns: int) -> tuple[Case, ...]:
    """Return the cases over rows of `columns`, or down as many columns."""
    shape = (-columns, columns)
    at = "" if axis == -1 else f", axis={axis}"
    of = f"rows of {columns}" if axis == -1 else f"{columns} columns"
    suite = ("rows" if axis == -1 else "columns",)
    squares = Case(
        f"sum(x*x), {of}",
        f"np.sum(x * x, axis={axis})",
        (shape,),
        lambda F, x, out=None: F.sum(x * x, axis=axis, out=out),
        suite,
        _SUM,
        hand="squares" if axis == -1 else "columns",
    )
    if axis == 0:
        var = f"np.var(x{at})"
        return squares, Case(
            f"var, {of}", var, (shape,), lambda F, x, out=None: F.var(x, axis=0), suite, _SUM,
            temporaries=4,
        )  # fmt: skip
    return (
        squares,
        Case(
            f"softmax, {of}",
            "softmax(x)",
            (shape,),
            lambda F, x, out=None: F.softmax(x, axis=-1, out=out),
            suite,
            _SUM,
            temporaries=4,
            hand="softmax",
        ),
    )


def _rows() -> tuple[Case, ...]:
    made: list[Case] = []
    for columns in (32, 256, 1024, 4096, 16_384, 65_536):
        made += _along(-1, columns)
    made += [*_along(0, 1024), *_along(0, 16_384)]
    wide = (-1024, 1024)
    made.append(
        Case(
            "layernorm, rows of 1024",
            "layernorm(x, y, z)",
            (wide, (1024,), (1024,)),
            lambda F, x, w, b, out=None: F.layernorm(x, w, b),
            ("rows",),
            256,  # divided by a root: cancellation in x - mean, seen where rows are almost equal
            temporaries=6,
            hand="layernorm",
        )
    )
    made.append(
        Case(
            "argmax, rows of 1024",
            "np.argmax(x, axis=-1)",
            (wide,),
            lambda F, x, out=None: F.argmax(x, axis=-1),
            ("rows",),
        )
    )
    return tuple(made)


_DTYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
           "float16", "bfloat16", "float32", "float64", "complex64")  # fmt: skip


def _dtypes() -> tuple[Case, ...]:
    made = []
    for name in _DTYPES:
        own: dict[str, Any] = {"suites": ("dtypes",), "dtype": name, "temporaries": 3}
        if name not in ("bool", "complex64"):
            relu: dict[str, Any] = {"kernel": _RELU, "triton": "tl.maximum(2 * x0 + 1, 0)"}
            made.append(
                Case(
                    f"relu(2x+1) {name}", _TABLE[1].meaning, (FULL,), _TABLE[1].form, **own, **relu
                )
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
                tolerance=_SUM,
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
        relu, total = _TABLE[1], _TABLE[0]
        for one in (relu, total):
            made.append(
                _at(f"{one.name} at {text}", "sizes", one.form, one.meaning, size=size,
                    tolerance=one.tolerance, kernel=one.kernel, triton=one.triton,
                    numexpr=one.numexpr)
            )  # fmt: skip
    for one in (_TABLE[1], _TABLE[0]):
        made.append(
            _at(f"host time of {one.name}", "latency", one.form, one.meaning, size=1000,
                tolerance=one.tolerance, kind=LATENCY, kernel=one.kernel, triton=one.triton)
        )  # fmt: skip
    return tuple(made)


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
        ("depth",), kernel=Kernel(f"{c} * T(0.75)"), numexpr="",
        triton=f"{c} * 0.75".replace("T(", "("),
    )  # fmt: skip


CASES: dict[str, Case] = {
    case.name: case
    for case in (
        *_TABLE,
        *_rows(),
        *_dtypes(),
        *_sizes(),
        *(_chain(length) for length in (1, 2, 4, 8, 16, 32, 64)),
        *APPS,
    )
}


def of_suite(name: str) -> list[Case]:
    """Return the cases of a suite, in the table's order."""
    return [case for case in CASES.values() if name in case.suites]


def suites(names: Iterable[str]) -> list[str]:
    """Return the suites called `names`, which may be joined by commas; `all` is every one.

    Raises
    ------
    ConfigError
        For a name that is none, with the nearest one.

    Examples
    --------
    >>> suites(["rows,Article"])
    ['article', 'rows']
    """
    wanted = set()
    for name in (one.strip() for many in names for one in many.split(",") if one.strip()):
        if name.lower() == "all":
            wanted |= set(SUITES) - {DEFAULT}
        else:
            wanted.add(nearest("suite", name, SUITES))
    return [name for name in SUITES if name in wanted]


def nearest(kind: str, name: str, known: Iterable[str]) -> str:
    """Return the one of `known` that `name` means, whatever its case and spaces.

    Raises
    ------
    ConfigError
        Naming the nearest one.
    """
    by_key = {_key(one): one for one in known}
    found = by_key.get(_key(name))
    if found is None:
        near = difflib.get_close_matches(_key(name), by_key, n=1, cutoff=0.4)
        hint = f"did you mean {by_key[near[0]]!r}? " if near else ""
        listed = list(by_key.values())
        more = f" and {len(listed) - 20} more (itfuse bench list)" if len(listed) > 20 else ""
        raise ConfigError(f"no {kind} {name!r}; {hint}there are {', '.join(listed[:20])}{more}")
    return found


def select(names: Iterable[str], suite: str = DEFAULT) -> list[Case]:
    """Return the cases called `names`, in the table's order; those of `suite` for no names.

    Raises
    ------
    ConfigError
        For a name that is not in the table, with the nearest one.

    Examples
    --------
    >>> [case.name for case in select(["Dot", "sum( abs(x) )"])]
    ['sum(abs(x))', 'dot']
    """
    wanted = {nearest("case", name, CASES) for name in names}
    return [case for case in CASES.values() if case.name in wanted] or of_suite(suite)


def chosen(names: Iterable[str], wanted: Iterable[str]) -> list[Case]:
    """Return the cases called `names`; without names, those of the suites `wanted`, suite by suite.

    Raises
    ------
    ConfigError
        For a name that is not in the table, with the nearest one.
    """
    if names := list(names):
        return select(names)
    found = {case.name: case for suite in wanted for case in of_suite(suite)}
    return list(found.values())


def _key(name: str) -> str:
    return "".join(name.lower().split())
