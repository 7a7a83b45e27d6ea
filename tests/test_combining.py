"""Operators of `reduce` and `scan` that are Python functions of expressions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support import host_cpp, nvrtc
from support.generated import HostEngine, plan_for, unit

import itfuse as itf
from itfuse.dtypes import DTYPES
from itfuse.lower import lower_tile
from itfuse.testing import assert_same

RNG = np.random.default_rng(5)
X = RNG.integers(-9, 9, (40, 333)).astype("f4")


def larger(a: Any, b: Any) -> Any:
    return itf.where(a > b, a, b)


def capped(a: Any, b: Any) -> Any:
    return itf.minimum(a + b, 50)


def cases() -> list[tuple[Any, Any]]:
    lazy, whole = itf.asarray(X), np.abs(X).astype("i4")
    found = [
        (itf.reduce(lazy, lambda a, b: itf.maximum(b, a), -np.inf), X.max()),
        (itf.reduce(lazy * 2, larger, -np.inf, axis=1), (X * 2).max(1)),
        (itf.reduce(lazy, larger, -np.inf, axis=0, keepdims=True), X.max(0, keepdims=True)),
        (itf.reduce(whole, capped, 0, axis=1), np.minimum(whole.sum(1), 50).astype("i4")),
        (itf.scan(whole, capped, identity=0), np.minimum(whole.cumsum(1), 50).astype("i4")),
        (itf.scan(lazy, lambda a, b: a * 0 + b, identity=0), X),
        (itf.scan(lazy[0], larger, identity=-np.inf) + 1, np.maximum.accumulate(X[0]) + 1),
    ]
    for dtype in DTYPES:
        x = np.asarray(RNG.integers(0, 2, (3, 50)), dtype)
        if dtype == "bool":
            found.append((itf.reduce(x, lambda a, b: a | b, False, 1), x.any(1)))
        elif not dtype.startswith("complex"):
            found.append((itf.reduce(x, lambda a, b: itf.minimum(a, b + 0), 1, 1), x.min(1)))
        else:
            found.append((itf.reduce(x, lambda a, b: a + b + 0j, 0, 1), x.sum(1)))
    return found


def test_the_cpu_engine() -> None:
    for at, (lazy, want) in enumerate(cases()):
        assert_same(lazy.compute(), np.asarray(want), what=str(at))


@pytest.mark.skipif(bool(host_cpp.why_not()), reason=host_cpp.why_not())
def test_generated_code_gives_the_same() -> None:
    lazies = [lazy for lazy, _ in cases()]
    plans = [plan_for("tile", lazy) for lazy in lazies]
    engine = HostEngine(plans)
    for plan, lazy in zip(plans, lazies, strict=True):
        (got,) = engine.run(plan, lazy)
        assert_same(got, lazy.compute(), what=repr(lazy))


def test_nvrtc_compiles_them() -> None:
    nvrtc.require()
    plans = [plan_for("tile", lazy) for lazy, _ in cases()]
    sources = [lower_tile(stage, f"k{at}_{n}", True).source for at, plan in enumerate(plans)
               for n, stage in enumerate(plan.stages)]  # fmt: skip
    nvrtc.compile_cubin(unit(sources), "sm_90")


def test_the_text_is_the_key() -> None:
    x = itf.asarray(X)
    one, same, other = (
        itf.reduce(x, f, 0.0)
        for f in (lambda a, b: a + b * 1, lambda u, v: u + v * 1, lambda a, b: a + b * 2)
    )
    keys = [itf.plan(one).stages[0].key for one in (one, same, other)]
    assert keys[0] == keys[1] != keys[2]
    assert "larger(" in repr(itf.reduce(x, larger, 0)) and itf.plan(one).passes == 1


def of_itself(a: Any, b: Any) -> Any:
    return a + itf.spec((), "float32") + b


@pytest.mark.parametrize(
    ("call", "kind", "says"),
    [
        (lambda x: itf.reduce(x, lambda a, b: a if a > b else b, 0), TypeError, "itf.where"),
        (lambda x: itf.reduce(x, lambda a: a, 0), TypeError, "cpp_function"),
        (lambda x: itf.reduce(x, max, 0), TypeError, "operator"),
        (lambda x: itf.reduce(x, lambda a, b: a > b, 0), itf.DTypeError, "one dtype"),
        (lambda x: itf.reduce(x, lambda a, b: a + itf.arange(2) + b, 0), itf.Unsupported,
         "elementwise"),
        (lambda x: itf.reduce(x, of_itself, 0), itf.Unsupported, "elementwise"),
        (lambda x: itf.scan(x, lambda a, b: a + b), TypeError, "give identity="),
        (lambda x: itf.reduce(x.astype("f4"), lambda a, b: (a * 1j + b).real, 0),
         itf.Unsupported, "complex"),
    ],
)  # fmt: skip
def test_what_cannot_be_traced_says_so(call: Any, kind: Any, says: str) -> None:
    with pytest.raises(kind, match=says):
        call(itf.asarray(X))
