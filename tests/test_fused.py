"""`@itf.fuse` on the CPU and null engines: meaning, signatures, lifetime, threads, errors."""

from __future__ import annotations

import dataclasses
import gc
import os
import shutil
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import itfuse as itf
from itfuse.cache import BUILT
from itfuse.fused import Fused
from itfuse.testing import assert_same, edge_values

X = np.linspace(-2, 2, 12, dtype="f4")
Y = np.linspace(5, 1, 12, dtype="f4")


def direct_calls(fused: Fused) -> int:
    """Return how many signatures are called the short way."""
    return len(fused._short[1])


# ---- meaning ----
def test_a_call_gives_what_the_expression_gives() -> None:
    @itf.fuse
    def gelu_bias(x: Any, b: Any) -> Any:
        t = x + b
        return 0.5 * t * (1 + itf.erf(t * 0.7071067811865476))

    want = itf.asarray(X) + Y
    want = (0.5 * want * (1 + itf.erf(want * 0.7071067811865476))).compute()
    for _ in range(3):
        got = gelu_bias(X, Y)
        assert type(got) is np.ndarray
        assert_same(got, want)
    assert gelu_bias.traces == 1


def test_scalars_are_runtime_values_and_their_type_is_not() -> None:
    f = itf.fuse(lambda x, a: x * a)
    i = np.arange(5, dtype="i4")
    before = BUILT.builds
    for a in (1, 7, -3, True, False, 2.5, float("nan"), np.float64(1.5), np.int8(3)):
        assert_same(f(i, a), i * a, what=repr(a))
        assert_same(f(X, a), X * a, what=repr(a))
    assert f.traces == 2 * 6  # int, True, False, float, float64, int8
    assert BUILT.builds - before <= 2 * 6
    before = f.traces, BUILT.builds
    for a in np.random.default_rng(1).uniform(-5, 5, 100).tolist():
        assert_same(f(X, a), X * a)
    assert (f.traces, BUILT.builds) == before


@pytest.mark.parametrize("name", ["int8", "uint8", "int64", "uint64", "float32"])
def test_numbers_that_do_not_fit_behave_as_in_numpy(name: str) -> None:
    x = np.arange(5).astype(name)
    compare = itf.fuse(lambda x, a: x < a)
    add = itf.fuse(lambda x, a: x + a)
    for a in (1, 3, 300, -300, 2**70, -(2**70), 1e300, -0.0):
        with np.errstate(all="ignore"):
            assert_same(compare(x, a), x < a, what=repr(a))
            try:
                want = x + a
            except OverflowError:
                for _ in range(2):
                    with pytest.raises(OverflowError):
                        add(x, a)
            else:
                for _ in range(2):
                    assert_same(add(x, a), want, what=repr(a))
    assert_same(add(x, 1), x + 1)


def test_arithmetic_among_numbers_is_pythons() -> None:
    @itf.fuse
    def f(x: Any, a: Any, b: Any) -> Any:
        return x * (a / b + a**2 - -b) + a // b % 3 + abs(a) + (a > b), a * b

    for a, b in ((7, 2), (-7, 3), (5, 9)):
        got, product = f(X, a, b)
        assert_same(got, X * (a / b + a**2 - -b) + a // b % 3 + abs(a) + (a > b))
        assert product == a * b and type(product) is int
    assert f.traces == 1
    with pytest.raises(ZeroDivisionError):
        f(X, 1, 0)
    power = itf.fuse(lambda x, a, b: x * a**b)
    assert_same(power(X, 2, 3), X * 8)
    assert_same(power(X, 2, -1), X * 0.5)  # a float now, though both are integers
    assert_same(power(X, 2, 3), X * 8)


def test_functions_of_numbers_alone_are_numpys() -> None:
    f = itf.fuse(lambda x, a: x * itf.sqrt(a) + itf.maximum(a, 2))
    for a in (4.0, 2.5):
        assert_same(f(X, a), X * np.sqrt(a) + np.maximum(a, 2))
    g = itf.fuse(lambda x, a: (itf.sqrt(a), itf.asarray(a), x.sum() * itf.sqrt(a)))
    for a in (4, 9):
        root, same, total = g(X, a)
        assert_same(root, np.sqrt(a))
        assert_same(same, np.asarray(a))
        assert_same(total, itf.asarray(X).sum().compute() * np.sqrt(a))


def test_numbers_meet_arrays_that_are_closed_over() -> None:
    w = np.arange(12, dtype="f4")
    f = itf.fuse(lambda x, a: (a * w + x) * (w - a))
    assert_same(f(X, 2.0), (2.0 * w + X) * (w - 2.0))
    assert_same(f(X, 3.0), (3.0 * w + X) * (w - 3.0))


def test_closed_over_numbers_are_literals() -> None:
    k = 2.0
    f = itf.fuse(lambda x: x * k)
    assert_same(f(X), X * np.float32(2))
    k = 3.0
    assert_same(f(X), X * np.float32(2))
    f.clear()
    assert_same(f(X), X * np.float32(3))


def test_an_array_that_is_closed_over_may_change() -> None:
    w = np.ones(12, "f4")
    f = itf.fuse(lambda x: x + w)
    assert_same(f(X), X + 1)
    w[:] = 2  # its elements are read at each call
    assert_same(f(X), X + 2)
    w = np.full(12, 5, "f4")
    assert_same(f(X), X + 5)
    assert_same(f(X), X + 5)
    assert f.traces == 2


def test_keywords_defaults_and_every_kind_of_parameter() -> None:
    @itf.fuse
    def f(x: Any, /, y: Any, *rest: Any, a: Any = 2.0, **more: Any) -> Any:
        total = x + y * a
        for z in (*rest, *more.values()):
            total = total + z
        return total

    assert_same(f(X, Y), X + Y * 2)
    assert_same(f(X, y=Y, a=3.0), X + Y * 3)
    assert_same(f(X, Y, X, Y, a=1.0, c=X), X + Y + X + Y + X)
    g = itf.fuse(lambda x, y, a=1.0: x * a - y)
    for _ in range(2):
        assert_same(g(y=Y, x=X), X - Y)
        assert_same(g(X, a=3.0, y=Y), X * 3 - Y)
    for call in (lambda: g(X), lambda: g(X, Y, b=1), lambda: g(X, Y, 1.0, 2.0), g):
        with pytest.raises(TypeError, match="argument"):
            call()


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclasses.dataclass
class State:
    position: Any
    speed: Any
    name: str = "s"


def test_nested_structures_go_in_and_out() -> None:
    @itf.fuse
    def f(pair: Pair, options: dict[str, Any], states: list[State]) -> Any:
        moved = [State(s.position + s.speed * options["dt"], s.speed, s.name) for s in states]
        return {"moved": moved, "pair": Pair(pair.second, pair.first * 2), "none": None, "k": 3}

    states = [State(X, Y, "p"), State(Y, X, "q")]
    for dt in (0.5, 2.0):
        got = f(Pair(X, Y), {"dt": dt}, states)
        assert_same(got["moved"][0].position, X + Y * np.float32(dt))
        assert_same(got["moved"][1].position, Y + X * np.float32(dt))
        assert got["moved"][1].name == "q" and type(got["moved"][0]) is State
        assert type(got["pair"]) is Pair and got["none"] is None and got["k"] == 3
        assert_same(got["pair"].second, X * 2)
    assert f.traces == 1
    f(Pair(X, Y), {"dt": 1.0}, [State(X, Y, "other")] * 2)
    assert f.traces == 2
    lists = itf.fuse(lambda xs: [x + 1 for x in xs])
    for _ in range(2):
        got = lists([X, Y])
        assert type(got) is list and len(got) == 2
        assert_same(got[1], Y + 1)
    assert direct_calls(lists) == 1


def test_static_arguments() -> None:
    @itf.fuse(static=("axis", "mode"))
    def f(x: Any, axis: int, mode: Any = "sum") -> Any:
        return getattr(x, mode)() + axis if axis > 1 else x

    assert_same(f(X, 1), X)
    assert_same(f(X, axis=2, mode="max"), X.max() + 2)
    assert f.traces == 2
    assert_same(f(X, 1), X)
    assert_same(f(X, True), X)
    assert f.traces == 3  # True is not 1
    with pytest.raises(TypeError, match=r"static argument axis .* no hash"):
        f(X, [1])
    one = itf.fuse(static="n")(lambda x, n: sum((x for _ in range(n)), 0))
    assert_same(one(X, 3), 0.0 + X + X + X)
    with pytest.raises(TypeError, match="has the parameters"):
        itf.fuse(static=("nothing",))(lambda x: x)
    with pytest.raises(TypeError, match="called 'out'"):
        itf.fuse(lambda x, out: x)


def test_none_strings_and_dtypes_are_part_of_the_signature() -> None:
    @itf.fuse
    def f(x: Any, bias: Any, kind: Any, dtype: Any) -> Any:
        x = x if bias is None else x + bias
        return (x * 2 if kind == "double" else x).astype(dtype)

    assert_same(f(X, None, "double", np.dtype("f8")), (X * 2).astype("f8"))
    assert_same(f(X, Y, "", np.float32), X + Y)
    assert_same(f(X, None, "double", np.dtype("f8")), (X * 2).astype("f8"))
    assert f.traces == 2
    with pytest.raises(TypeError, match=r"bias is or holds a object.*static=\('bias',\)"):
        f(X, object(), "", np.float32)


def test_methods() -> None:
    class Layer:
        def __init__(self, w: Any, scale: float) -> None:
            self.w = w
            self.scale = scale

        @itf.fuse
        def forward(self, x: Any, a: Any = 1.0) -> Any:
            """Doc."""
            return x * self.w * self.scale + a

    one, two = Layer(Y, 2.0), Layer(X, 3.0)
    for _ in range(2):
        assert_same(one.forward(X), X * Y * 2 + 1)
        assert_same(two.forward(X, a=0.5), X * X * 3 + np.float32(0.5))
    assert Layer.forward.traces == 2 and Layer.forward.__doc__ == "Doc."
    one.w = X
    assert_same(one.forward(X), X * X * 2 + 1)
    assert one.forward.plan(X).passes == 1 and "x" in one.forward.explain(X)
    gone = weakref.ref(one)
    del one
    gc.collect()
    assert gone() is None
    assert Layer.forward.signatures == 1  # that of `two`
    assert_same(two.forward(X, a=0.5), X * X * 3 + np.float32(0.5))


def test_fused_functions_inline() -> None:
    inner = itf.fuse(lambda x, a: itf.maximum(x * a, 0))
    outer = itf.fuse(lambda x, y: inner(x, 2.0) + inner(y, 3.0) + inner(x, 2.0))
    plan = outer.plan(X, Y)
    assert plan.passes == 1 and plan.bytes_read == X.nbytes + Y.nbytes
    assert_same(outer(X, Y), 2 * np.maximum(X * 2, 0) + np.maximum(Y * 3, 0), ulp=2)
    assert inner.traces == 0
    lazy = inner(itf.asarray(X), 2.0)
    assert isinstance(lazy, itf.Array)
    assert_same(lazy.compute(), np.maximum(X * 2, 0))
    with pytest.raises(TypeError, match="lazy"):
        inner(itf.asarray(X), 2.0, out=np.empty_like(X))


def test_sizes_change_without_compiling() -> None:
    @itf.fuse
    def f(x: Any, y: Any) -> Any:
        return x * 2 + y, (x * y).sum()

    f(np.ones((2, 3), "f4"), np.ones(3, "f4"))
    f(np.ones((4, 1), "f4"), np.ones((1, 5), "f4"))
    before = BUILT.builds
    rng = np.random.default_rng(0)
    for rows, columns in ((2, 3), (7, 2), (5, 9), (100, 17), (3, 2)):
        x, y = rng.random((rows, columns), "f4"), rng.random(columns, "f4")
        got, total = f(x, y)
        assert_same(got, x * 2 + y)
        assert_same(total, (itf.asarray(x) * y).sum().compute())
        got, _ = f(x[:, :1].copy(), y[None])
        assert_same(got, x[:, :1] * 2 + y)
    assert BUILT.builds == before
    for x in (np.ones((0, 3), "f4"), np.ones((1, 3), "f4")):
        got, total = f(x, np.ones(3, "f4"))
        assert_same(got, x * 2 + 1)
        assert float(total) == x.size


def test_many_sizes_in_turn_keep_the_short_way(monkeypatch: Any) -> None:
    f = itf.fuse(lambda x, a: x * a)
    arrays = [np.full((n, 3), n, "f4") for n in range(1, 12)]
    for x in arrays:
        f(x, 2.0)
    monkeypatch.setattr(f, "_call", None)
    for x in arrays * 2:
        assert_same(f(x, 3.0), x * 3)


def test_every_layout_is_read_right() -> None:
    f = itf.fuse(lambda x, y: x * 2 - y)
    base = np.arange(48, dtype="f4").reshape(6, 8)
    views: list[Callable[[Any], Any]] = [
        lambda a: a, lambda a: a[::2, ::2], lambda a: a[::-1], lambda a: a[:, ::-1],
        lambda a: a.T.reshape(6, 8, order="F"), lambda a: np.broadcast_to(a[0], (6, 8)),
        lambda a: a[:, :1], lambda a: a[:1],
    ]  # fmt: skip
    for _ in range(2):
        for view in views:
            for other in views:
                x, y = view(base), other(base + 100)
                try:
                    want = x * 2 - y
                except ValueError:
                    with pytest.raises(itf.ShapeError, match="x"):
                        f(x, y)
                    continue
                assert_same(f(x, y), want)


def test_out() -> None:
    f = itf.fuse(lambda x, y: x * 2 + y)
    for _ in range(3):
        out = np.full(12, np.nan, "f4")
        assert f(X, Y, out=out) is out
        assert_same(out, X * 2 + Y)
    x = X.copy()
    assert f(x, Y, out=x) is x
    assert_same(x, X * 2 + Y)
    big = np.arange(13, dtype="f4")
    for _ in range(2):
        with pytest.raises(itf.AliasError, match="input x"):
            f(big[1:], Y, out=big[:-1])
        with pytest.raises(itf.ShapeError, match="out="):
            f(X, Y, out=np.empty(11, "f4"))
        with pytest.raises(itf.DTypeError, match="out="):
            f(X, Y, out=np.empty(12, "f8"))
        with pytest.raises(itf.ShapeError, match="contiguous"):
            f(X, Y, out=np.empty(24, "f4")[::2])
    assert_same(big, np.arange(13, dtype="f4"))
    two = itf.fuse(lambda x, y: {"sum": x + y, "top": x.max()})
    outs = {"sum": np.empty(12, "f4"), "top": np.empty((), "f4")}
    for _ in range(2):
        got = two(X, Y, out=outs)
        assert got["sum"] is outs["sum"] and got["top"] is outs["top"]
        assert_same(outs["sum"], X + Y)
    got = two(X, Y, out={"top": outs["top"], "sum": None})
    assert got["top"] is outs["top"]
    assert_same(got["sum"], X + Y)


def test_out_is_matched_by_key_field_and_place() -> None:
    @itf.fuse
    def f(x: Any, a: Any) -> Any:
        return {"a": x * 2, "b": State(x + 1, [x - 1, a])}

    a, b, c = (np.empty(12, "f4") for _ in range(3))
    for _ in range(3):
        got = f(X, 3, out={"b": State(b, (c, None), "any"), "a": a})
        assert got["a"] is a and got["b"].position is b and got["b"].speed[0] is c
        for one, want in ((a, X * 2), (b, X + 1), (c, X - 1)):
            assert_same(one, want)
            one[:] = 0
        assert f(X, 3, out={"b": None, "a": a})["a"] is a
        assert f(X, 3, out={"a": a})["a"] is a
    pair = State(a, [b, None])
    for out, message in (
        ({"c": a}, r"out= is a dict with the keys \['c'\]; expected a dict with the keys"),
        (a, "out= is a ndarray; expected a dict"),
        ((a, b, c), "out= is a tuple of 3; expected a dict"),
        ({"b": (a, b)}, r"out\['b'\]= is a tuple of 2; expected a State"),
        ({"b": State(a, [b])}, r"out\['b'\].speed= is a list of 1; expected a sequence of 2"),
        ({"a": (a,)}, r"out\['a'\]= is a tuple of 1; expected one array"),
        ({"b": State(a, [b, c])}, "a number"),
        ({"a": np.empty(3, "f4"), "b": pair}, "shape"),
    ):
        with pytest.raises(itf.ShapeError, match=message):
            f(X, 3, out=out)
    both = itf.fuse(lambda x: [x + 1, x * 2])
    for _ in range(2):
        assert both(X, out=(a, None))[0] is a and both(X, out=[None, b])[1] is b
        with pytest.raises(itf.ShapeError, match="expected a sequence of 2"):
            both(X, out=a)


def test_reductions_and_later_passes() -> None:
    @itf.fuse
    def f(x: Any, eps: Any) -> Any:
        return (x - x.mean()) / itf.sqrt(((x - x.mean()) ** 2).mean() + eps)

    x = itf.asarray(X)
    want = ((x - x.mean()) / itf.sqrt(((x - x.mean()) ** 2).mean() + 0.25)).compute()
    for _ in range(2):
        assert_same(f(X, 0.25), want)
    assert f.plan(X, 0.25).passes > 1


def test_every_dtype_direct_and_again() -> None:
    f = itf.fuse(lambda x, y: (x < y, itf.maximum(x, y)))
    for name in ("bool", "int8", "uint16", "int32", "uint64", "float32", "float64"):
        x, y = edge_values(name, 37, 1), edge_values(name, 37, 2)
        for _ in range(2):
            less, top = f(x, y)
            assert_same(less, x < y, what=name)
            assert_same(top, np.maximum(x, y), what=name)


def test_numbers_alone_run_as_they_are() -> None:
    f = itf.fuse(lambda a, b: a * b)
    assert f(2, 3.5) == 7.0
    assert_same(itf.fuse(lambda a: itf.sqrt(a * 1.0))(4.0), np.float64(2.0))


# ---- errors ----
@pytest.mark.parametrize(
    ("function", "names"),
    [
        (lambda x, a: x if (x > 0).any() else -x, "any"),
        (lambda x, a: x if a > 0 else -x, "a > 0"),
        (lambda x, a: x * float(x.sum()), r"float\(sum\(x\)\)"),
        (lambda x, a: x * int(a), r"int\(a\)"),
        (lambda x, a: x * x.compute(), r"compute\(x\)"),
        (lambda x, a: sum((x for _ in range(a)), 0), r"index\(a\)"),
        (lambda x, a: x + np.asarray(x), r"compute\(x\)"),
        (lambda x, a: x + len(f"{a}"), r"format\(a\)"),
        (lambda x, a: x + len(f"{a:.2f}"), r"format\(a\)"),
        (lambda x, a: x + len(str(a)), r"str\(a\)"),
        (lambda x, a: x * {1: 2}[a], r"hash\(a\)"),
        (lambda x, a: x * complex(a), r"complex\(a\)"),
        (lambda x, a: x * a.bit_length(), r"int\.bit_length\(a\)"),
        (lambda x, a: x * np.arange(a), r"array\(a\)"),
        (lambda x, a: x[a], r"index\(a\)|x\[a\]"),
        (lambda x, a: x.sum(a), "the axis a is an argument"),
        (lambda x, a: x.reshape(a, 6), r"index\(a\)"),
        (lambda x, a: x if x else -x, r"bool\(x\)"),
        (lambda x, a: max(x, x + 1), r"bool\("),
        (lambda x, a: 1 < x < 3, r"bool\("),
        (lambda x, a: [1][x], r"index\(x\)"),
        (lambda x, a: x * x.sum().item(), r"item\(sum\(x\)\)"),
    ],
)
def test_values_are_refused_while_tracing(function: Any, names: str) -> None:
    f = itf.fuse(function)
    for _ in range(2):
        with pytest.raises(TypeError, match=names):
            f(X, 2)
    assert issubclass(itf.TraceError, TypeError)


def test_a_branch_names_the_expression_and_says_what_to_do() -> None:
    f = itf.fuse(lambda x, y: x if (x * 2 > y).all() else y)
    with pytest.raises(itf.TraceError, match=r"bool\(all\(.*x \* 2.*y.*itf\.where.*static"):
        f(X, Y)
    good = itf.fuse(lambda x, y: itf.where((x * 2 > y).all(), x, y))
    assert_same(good(X, Y), Y)


def test_what_a_trace_makes_does_not_leave_it() -> None:
    stored: list[Any] = []
    f = itf.fuse(lambda x, a: stored.append((x, x * a, a)) or x + a)
    f(X, 2.0)
    x, product, a = stored[0]
    for lazy in (x, product, itf.asarray(Y) * a):
        with pytest.raises(itf.TraceError):
            lazy.compute()
    (itf.asarray(Y) * 5.0).compute()  # the same form, with a value
    with pytest.raises(itf.TraceError):
        (itf.asarray(Y) * a).compute()
    with pytest.raises(itf.TraceError, match="earlier call"):
        itf.fuse(lambda y: y + x)(Y)
    with pytest.raises(itf.TraceError, match="earlier call"):
        itf.fuse(lambda y: y + a)(Y)


def test_after_an_error_everything_still_works() -> None:
    @itf.fuse
    def f(x: Any, fail: Any) -> Any:
        if fail is not None:
            raise RuntimeError("mine")
        return x + 1

    for _ in range(2):
        with pytest.raises(RuntimeError, match="mine"):
            f(X, "yes")
        assert_same(f(X, None), X + 1)


# ---- settings, engines ----
def test_settings_are_those_of_the_call() -> None:
    f = itf.fuse(lambda x: x - x.sum())
    assert_same(f(X), (itf.asarray(X) - X.sum(dtype="f4")).compute(), ulp=64)
    with itf.config(max_passes=1), pytest.raises(itf.NeedsBuffer):
        f(X)
    f(X)
    with itf.config(engine="cuda"), pytest.raises(itf.DeviceError):
        f(X)
    f(X)


def test_the_null_engine_compiles_and_runs_nothing() -> None:
    pytest.importorskip("cuda.core")
    f = itf.fuse(lambda x, a: (x * a, x.sum()))
    with itf.config(engine="null"):
        got = f(X, 2.0)
        assert got[0].shape == (12,) and got[1].dtype == np.float32 and got[0].device == "none"
    built = f.build(itf.spec((1000,), "f4"), 2.0, arch="sm_80")
    assert all(one.arch == "sm_80" and one.cubin[:4] == b"\x7fELF" for one in built)
    both = f.build(itf.spec((1000,), "f4"), 2.0, arch=("sm_80", "sm_90"))
    assert set(both) == {"sm_80", "sm_90"}


def test_build_runs_nothing_and_calls_find_it() -> None:
    f = itf.fuse(lambda x: itf.hypot(x, 3.25) * 1.5)
    assert len(f.build(X)) == 1
    before = f.traces, BUILT.builds
    assert_same(f(X), np.hypot(X, np.float32(3.25)) * np.float32(1.5), ulp=4)
    assert (f.traces, BUILT.builds) == before


def test_debug_prints_each_first_call(capsys: Any) -> None:
    f = itf.fuse(lambda x: x + 1)
    with itf.config(debug=1):
        f(X)
    assert "pass 1 of 1: transform over [12]" in capsys.readouterr().err


HELD: dict[str, Any] = {}


class Layer:
    def __init__(self) -> None:
        self.w = np.ones(3)
        self.inner: dict[str, Any] = {}


def helper(x: Any) -> Any:
    return x * HELD["list"][0]


@pytest.mark.parametrize("where", ["dict", "attribute", "deep", "helper", "module", "list"])
def test_another_array_there_is_seen(where: str) -> None:
    import types

    layer, module = Layer(), types.ModuleType("weights")
    module.w = np.ones(3)  # type: ignore[attr-defined]
    layer.inner["layer"] = Layer()
    HELD.update({"w": np.ones(3), "list": [np.ones(3)]})
    others = {"n": [np.ones(3)]}
    functions: dict[str, Any] = {
        "dict": lambda x: x * HELD["w"], "attribute": lambda x: x * layer.w,
        "deep": lambda x: x * layer.inner["layer"].w, "helper": lambda x: helper(x) + 0,
        "module": lambda x: x * module.w, "list": lambda x: x * others["n"][-1],
    }  # fmt: skip
    f = itf.fuse(functions[where])
    x = np.arange(3.0)
    for factor in (1, 1, 5, 5, 7):
        new = np.full(3, float(factor))
        if f(x)[1] != factor:  # another array is put there
            layer.w = layer.inner["layer"].w = HELD["w"] = HELD["list"][0] = new
            others["n"][0] = module.w = new  # type: ignore[attr-defined]
        assert f(x)[1] == factor


def test_many_operations_on_numbers() -> None:
    def newton(x: Any, a: Any, steps: int) -> Any:
        for _ in range(steps):
            a = 0.5 * (a + 2.0 / a)
        return x * a

    f = itf.fuse(newton, static=("steps",))
    x = np.ones(3)
    for steps in (3, 60, 2000):
        for a in (1.0, 7.0, 7.0):
            assert f(x, a, steps)[0] == newton(x, a, steps)[0]
    assert len(repr(f)) < 200


def test_equal_static_arguments_are_not_always_the_same() -> None:
    f = itf.fuse(lambda x, a: itf.copysign(x, a) + 0 * x, static=("a",))
    x = np.ones(3)
    for a in (0.0, -0.0, 0.0, np.float32(-0.0)):
        assert f(x, a)[0] == np.copysign(1, a)
    scaled = itf.fuse(lambda x, by: x * by[0], static=("by",))
    ints = np.ones(3, "i1")
    for by in ((1,), (1.0,), (True,), (np.float32(1),), (1,)):
        assert scaled(ints, by).dtype == (ints * by[0]).dtype


def test_arrays_made_by_the_function_stay() -> None:
    f = itf.fuse(lambda x: x + np.arange(3.0))
    for _ in range(3):
        assert f(np.ones(3))[2] == 3


def test_an_array_that_is_not_found_is_warned_of() -> None:
    many: dict[str, Any] = {str(k): [k] for k in range(10_000)}
    many["w"] = {"deep": [np.ones(3)]}
    with pytest.warns(RuntimeWarning, match=r"array of shape \(3,\).*pass it as an argument"):
        itf.fuse(lambda x: x * many["w"]["deep"][0])(np.ones(3))


def test_an_index_out_of_bounds_names_the_function() -> None:
    f = itf.fuse(itf.take)
    x = np.arange(5.0)
    for _ in range(3):
        assert f(x, np.array([1, -1]))[1] == 4
        with pytest.raises(itf.BoundsError, match=r"take: index 9 is out of bounds"):
            f(x, np.array([1, 9]))


def test_out_over_an_array_that_the_function_closes_over_is_refused() -> None:
    w = np.arange(float(1 << 16))
    f = itf.fuse(lambda x: x + itf.asarray(w)[::-1])
    x = np.ones_like(w)
    for _ in range(3):
        f(x)
    with pytest.raises(itf.AliasError):
        f(x, out=w)
    assert (f(x, out=np.empty_like(x)) == 1 + w[::-1]).all()


# ---- lifetime ----
def test_nothing_keeps_arguments_alive() -> None:
    f = itf.fuse(lambda x, y: x * 2 + y)
    g = itf.fuse(lambda d: d["x"].sum())
    x, y = X.copy(), Y.copy()
    f(x, y)
    f(x, y)
    g({"x": x})
    out = f(x, y, out=np.empty_like(x))
    (itf.asarray(x) * 2 + y).compute()
    (itf.asarray(x) * 2 + y).sum().compute()
    holders = [weakref.ref(one) for one in (x, y, out)]
    del x, y, out
    gc.collect()
    assert [one() for one in holders] == [None] * 3


def test_calls_leak_nothing() -> None:
    f = itf.fuse(lambda x, a: (x * a + 1).sum())
    x = np.ones(16, "f4")

    def calls(count: int) -> None:
        for k in range(count):
            f(x, float(k))
            (itf.asarray(x) * float(k) + 1).compute()

    calls(2000)
    gc.collect()
    before = sys.getallocatedblocks()
    calls(20_000)
    gc.collect()
    grown = sys.getallocatedblocks() - before
    # Blocks, not bytes: the interpreter's table of names grows by a megabyte at a time. A leak is
    # a block a call; the table of recent scalars holds between none and 512 of some blocks each.
    assert grown < 4000, grown


def test_signatures_are_bounded() -> None:
    f = itf.fuse(lambda x: x + 1)
    for n in range(1, 600):
        f(np.ones(n, "f4"))
    assert f.signatures <= 512


# ---- threads, processes ----
def test_threads_trace_and_build_once() -> None:
    f = itf.fuse(lambda x, a: itf.exp2(x * a) - 0.875)
    start = threading.Barrier(8)
    wrong: list[Any] = []
    before = BUILT.builds

    def work(k: int) -> None:
        x = np.full(257, k, "f4")
        start.wait()
        for step in range(60):
            got = f(x, float(step % 3))
            want = np.float32(2.0 ** (k * (step % 3)) - 0.875)
            out = f(x, 1.0, out=np.empty_like(x))
            if got[-1] != want or out[0] != np.float32(2.0**k - 0.875):
                wrong.append((k, step, got[-1], want))
            lazy = (itf.asarray(x) * float(step) + k).compute()
            if lazy[5] != k * step + k:
                wrong.append((k, step, "lazy"))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert f.traces == 1
    assert BUILT.builds - before <= 2


def test_interning_holds_under_threads() -> None:
    x = itf.asarray(X)
    seen: list[set[int]] = []

    def work() -> None:
        own = []
        for k in range(300):
            own.append((x * float(k % 7) + 1)._node)
        seen.append({id(node) for node in own})
        keep.append(own)

    keep: list[Any] = []
    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set.union(*seen)) == 7


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_works() -> None:
    code = """
import os, threading, warnings, numpy as np, itfuse as itf
warnings.simplefilter("ignore")
f = itf.fuse(lambda x, a: (x * a).sum())
x = np.ones(1 << 20, "f4")
stop = threading.Event()
def busy():
    while not stop.is_set():
        f(x[:64], 1.0); (itf.asarray(x[:64]) * 2 + 1).compute()
threads = [threading.Thread(target=busy) for _ in range(3)]
for t in threads: t.start()
f(x, 2.0)
failed = 0
for _ in range(10):
    child = os.fork()
    if not child:
        ok = f(x, 3.0) == 3 << 20 and (itf.asarray(x) + 1).compute()[7] == 2
        os._exit(0 if ok else 1)
    failed += os.waitpid(child, 0)[1]
stop.set()
for t in threads: t.join()
assert not failed and f(x, 2.0) == 2 << 20
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_a_forked_process_is_told_that_cuda_does_not_survive(monkeypatch: Any) -> None:
    from itfuse.engines import cuda

    monkeypatch.setattr(cuda, "_forked", True)
    with pytest.raises(itf.DeviceError, match=r"forked.*spawn"):
        cuda.engine("cuda:0")


# ---- import ----
def _milliseconds(code: str) -> tuple[float, float]:
    """Return the processor time and the time on the clock of a process that runs `code`."""
    timed = f"import time\n{code}\nprint(time.process_time())"
    # Modules are compiled once, as for every user: the first run may do that.
    env = {name: x for name, x in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    start = time.perf_counter()
    run = subprocess.run(
        [sys.executable, "-c", timed], check=True, capture_output=True, text=True, env=env
    )
    return 1e3 * float(run.stdout.split()[-1]), 1e3 * (time.perf_counter() - start)


def _quick(bar: float, code: str, beside: str = "pass") -> None:
    """Fail if `code` takes more than `bar` ms more than `beside`, of the processor or the clock.

    The least times of several runs count; where the machine is busy there are more.
    """
    found: list[list[float]] = []
    for _ in range(15):
        found.append([*_milliseconds(code), *_milliseconds(beside)])
        least = [min(each) for each in zip(*found, strict=True)]
        more = (least[0] - least[2], least[1] - least[3])
        if len(found) > 2 and max(more) <= bar:
            return
    pytest.fail(f"{more[0]:.0f} ms of the processor, {more[1]:.0f} ms on the clock")


def test_import_is_quick() -> None:
    _quick(150, "import itfuse", "import numpy")


@pytest.mark.parametrize("arguments", [["--help"], ["bench", "--help"], ["cache", "--help"]])
def test_the_help_of_the_command_line_is_quick(arguments: list[str]) -> None:
    pytest.importorskip("typer")
    code = (
        f"import runpy, sys\nsys.argv = ['itfuse', *{arguments}]\n"
        "try: runpy.run_module('itfuse', run_name='__main__')\nexcept SystemExit: pass"
    )
    _quick(400, code)


FREE = """
import os, sys, warnings
warnings.simplefilter("error", RuntimeWarning)  # a module that turns the lock on says so
assert not sys._is_gil_enabled()
import itfuse
assert not sys._is_gil_enabled(), "import itfuse has turned the lock on"
import pytest
options = ["-q", "-p", "no:cacheprovider", "-c", os.devnull]
sys.exit(pytest.main([*options, *sys.argv[1:]]))
"""


def test_threads_without_the_interpreter_lock() -> None:
    """The tests of threads, where a free-threaded interpreter with NumPy is installed."""
    found = [shutil.which(f"python3.{minor}t") for minor in (13, 14, 15)]
    able = [
        one for one in found
        if one and not subprocess.run([one, "-c", "import numpy, pytest"], check=False,
                                      capture_output=True).returncode
    ]  # fmt: skip
    if not able:
        pytest.skip("no free-threaded Python with NumPy and pytest: python3.13t, python3.14t")
    root = Path(itf.__file__).parents[1]
    done = subprocess.run(
        [able[0], "-c", FREE, str(Path(__file__)), "-k", "threads_trace or interning_holds"],
        check=False, cwd=root, capture_output=True, text=True, timeout=600,
        env={**os.environ, "PYTHONPATH": str(root)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
