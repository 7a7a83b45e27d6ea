"""The table of cases. A case is one row, and is added in one place.

The rows are in basic.py, layouts.py (views), along.py (rows and columns), series.py (the same case
in many dtypes, sizes and lengths) and apps.py.

`meaning` is NumPy and is what the other columns compute: the tests evaluate it, with `erf`,
`softmax` and `layernorm` added. `form` is how a user of NumPy, CuPy, torch or JAX writes it with
the library's own operations, which is also what a user of itfuse writes.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from itfuse.bench.along import ALONG
from itfuse.bench.apps import APPS
from itfuse.bench.basic import BASIC, DEFAULT
from itfuse.bench.case import Case
from itfuse.bench.layouts import LAYOUTS
from itfuse.bench.series import SERIES
from itfuse.errors import ConfigError

SUITES: dict[str, str] = {
    DEFAULT: "eight transforms and reductions: what `itfuse bench` runs",
    "article": "sum(abs(x)), NVIDIA's example of what fusion saves (July 2026)",
    "elementwise": "one to four inputs, one or two outputs, arrays of any layout",
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

CASES: dict[str, Case] = {case.name: case for case in (*BASIC, *LAYOUTS, *ALONG, *SERIES, *APPS)}


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
        # Names of cases have commas of their own.
        text = ", ".join(map(repr, listed[:20]))
        raise ConfigError(f"no {kind} {name!r}; {hint}there are {text}{more}")
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
