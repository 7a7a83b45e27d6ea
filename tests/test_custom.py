"""Functions and operators that users write: C++ on generated code, NumPy twins on the CPU."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from support import host_cpp, nvrtc
from support.generated import HostEngine, plan_for, unit

import itfuse as itf
from itfuse import cache
from itfuse.lower import lower_tile
from itfuse.testing import assert_same

X = np.random.default_rng(3).normal(size=(7, 300)).astype("f4")
K = np.random.default_rng(4).integers(-50, 50, (7, 300)).astype("i4")

STEP = itf.cpp_function(
    """
// Helpers come first: { and } in comments do not count.
float half_of(float x) { return 0.5f * x; }
float step(float x, float edge) { if (x < edge) { return half_of(x); } return edge; }
""",
    numpy=lambda x, edge: np.where(x < edge, np.float32(0.5) * x, edge),
)
BLEND = itf.cpp_function(
    "template <typename T, typename U> T blend(T a, T b, U at) { return at > U(0) ? a : b; }",
    numpy=lambda a, b, at: np.where(at > 0, a, b),
)
COUNT = itf.cpp_function(
    "unsigned char bits(int x) { return (unsigned char)__popc((unsigned)x); }",
    numpy=lambda x: np.bitwise_count(x.astype("u4")),
)
ONLY = itf.cpp_function("template <class T> T only(T x) { return x + T(1); }")
GREATEST = itf.cpp_function(
    "template <typename T> T greatest(T a, T b) { return a < b ? b : a; }", numpy=np.fmax
)


def chan(*six: Any) -> Any:
    mean, count, m2, other, many, its = six
    everything = count + many
    apart, share = other - mean, many / everything
    merged = (mean + apart * share, everything, m2 + its + apart * apart * (count * share))
    return tuple(np.where(everything == 0, a, b) for a, b in zip((mean, count, m2), merged,
                                                                 strict=True))  # fmt: skip


CHAN = itf.cpp_function(
    """void chan(double& mean, double& count, double& m2, double other, double many, double its) {
  const double all = __dadd_rn(count, many);
  if (all == 0) return;
  const double apart = __dadd_rn(other, -mean), share = __ddiv_rn(many, all);
  mean = __dadd_rn(mean, __dmul_rn(apart, share));
  m2 = __dadd_rn(__dadd_rn(m2, its), __dmul_rn(__dmul_rn(apart, apart), __dmul_rn(count, share)));
  count = all;
}""",
    numpy=chan,
)


def maps() -> list[tuple[itf.Array, Any]]:
    x, k = itf.asarray(X), itf.asarray(K)
    step = np.where(X * 2 < 0.3, np.float32(0.5) * (X * 2), np.float32(0.3))
    h = X.astype("f2")
    return [
        (STEP(x * 2, 0.3) + 1, step + 1),
        (STEP(x.T, X.T) * x.T, np.where(X.T < X.T, X.T, X.T) * X.T),
        (BLEND(k, 2, x), np.where(X > 0, K, 2)),
        (BLEND(x, 1.5, k) + BLEND(k, k * 2, k), np.where(K > 0, X, np.float32(1.5))
         + np.where(K > 0, K, K * 2)),
        (BLEND(itf.asarray(h), 2, k), np.where(K > 0, h, np.float16(2))),
        (BLEND(x, k.astype("f8"), True), X.astype("f8")),
        (COUNT(k) + 1, np.bitwise_count(K.astype("u4")) + np.uint8(1)),
        (COUNT(k).sum(axis=-1), np.bitwise_count(K.astype("u4")).sum(axis=-1)),
    ]  # fmt: skip


def reductions() -> list[tuple[itf.Array, Any]]:
    x, k = itf.asarray(X), itf.asarray(K)
    doubles = X.astype("f8")
    moments = itf.reduce((x.astype("f8"), 1.0, 0.0), CHAN, (0.0, 0.0, 0.0), axis=-1)
    return [
        (itf.reduce(k, np.gcd, 0), np.gcd.reduce(K, axis=None)),
        (itf.reduce(x * 2, GREATEST, -np.inf, axis=0), (X * 2).max(axis=0)),
        (itf.reduce(k, GREATEST, -(2**31), axis=1, keepdims=True), K.max(axis=1, keepdims=True)),
        (itf.reduce(k, itf.bitwise_xor, 0, axis=(0, 1)), np.bitwise_xor.reduce(K, axis=None)),
        (itf.reduce(x[:, :0], GREATEST, -1.5, axis=1), np.full(7, -1.5, "f4")),
        (itf.reduce(x > 0, np.logical_xor, False, axis=1), np.logical_xor.reduce(X > 0, axis=1)),
        (moments[0], doubles.mean(axis=-1)),
        (moments[2] / moments[1], doubles.var(axis=-1)),
        (itf.reduce(x.astype("f8"), itf.hypot, 0), np.sqrt((doubles**2).sum())),
    ]


def test_on_the_cpu_they_are_their_twins() -> None:
    for lazy, want in maps():
        assert_same(lazy.compute(), want, what=str(lazy))
        assert itf.plan(lazy).passes == 1
    for lazy, want in reductions():
        got = lazy.compute()
        assert got.shape == np.shape(want) and got.dtype == np.asarray(want).dtype
        np.testing.assert_allclose(got, want, rtol=1e-14)


@pytest.mark.skipif(bool(host_cpp.why_not()), reason=host_cpp.why_not())
@pytest.mark.parametrize("strategy", ["tile", "cub.iterator"])
def test_generated_code_equals_the_twins(strategy: str) -> None:
    lazies = [lazy for lazy, _ in (*maps(), *reductions())]
    wide = itf.asarray(np.random.default_rng(0).normal(size=70_000))
    lazies += [itf.reduce((wide, 1.0, 0.0), CHAN, (0.0, 0.0, 0.0))[2], itf.reduce(
        wide, GREATEST, -np.inf)]  # fmt: skip
    plans = []
    for lazy in lazies:
        rows = any(stage.by_rows for stage in plan_for("tile", lazy).stages)
        plans.append(plan_for("tile" if rows else strategy, lazy))
    engine = HostEngine(plans)
    for plan, lazy in zip(plans, lazies, strict=True):
        (got,), want = engine.run(plan, lazy), lazy.compute()
        if strategy == "tile" and "hypot" not in repr(lazy):
            assert got.tobytes() == want.tobytes(), lazy  # the library's own order
        else:
            np.testing.assert_allclose(got, want, rtol=1e-13)


def test_a_struct_is_reduced_in_one_walk() -> None:
    x = itf.asarray(X.astype("f8"))
    mean, count, m2 = itf.reduce((x, 1.0, 0.0), CHAN, (0.0, 0.0, 0.0))
    plan = itf.plan(mean, count, m2, m2 / count)
    assert (plan.passes, plan.bytes_read) == (1, x.nbytes)
    assert [one.shown for one in plan.stages[0].combine] == ["chan"]


def test_texts_show_the_user_s_name() -> None:
    assert "step(a * 2.0, 0.3" in repr(STEP(itf.asarray(X) * 2, 0.3))
    lazy = itf.reduce(itf.asarray(X), GREATEST, 0, axis=1)
    assert "greatest(a, axis=1)" in repr(lazy) and "@" not in itf.explain(lazy)


def test_keys_hold_the_text_and_the_twin() -> None:
    text = "float twice(float x) { return 2 * x; }"
    one = itf.cpp_function(text, numpy=lambda x: 2 * x)
    two = itf.cpp_function(text, numpy=lambda x: 3 * x)
    other = itf.cpp_function("float twice(float x) { return 4 * x; }", numpy=lambda x: 4 * x)
    x = itf.asarray(np.ones(3, "f4"))
    assert [f(x).tolist()[0] for f in (one, two, other, one)] == [2, 3, 4, 2]
    keys = {itf.plan(f(x)).stages[0].key for f in (one, two, other)}
    assert len(keys) == 3
    names = {cache.digest(plan_for("tile", f(x)).stages[0]) for f in (one, two, other)}
    assert len(names) == 3
    same = one.numpy_twin
    assert itf.plan(itf.cpp_function(text, numpy=same)(x)).stages[0].key in keys
    zeros = [itf.reduce(x * -0.0, np.add, zero) for zero in (0.0, -0.0)]
    assert [float(np.signbit(one.compute())) for one in zeros] == [0, 1]

    def fused(f: Any) -> Any:
        return itf.fuse(lambda x: f(x) + 1)(np.ones(3, "f4")).tolist()[0]

    assert [fused(f) for f in (one, two, other)] == [3, 4, 5]


def test_two_functions_of_one_name_meet_in_a_pass() -> None:
    pair = [itf.cpp_function(f"float same(float x) {{ return x + {k}; }}") for k in (1, 2)]
    lazy = pair[0](itf.asarray(X)) * pair[1](itf.asarray(X))
    engine_plan = plan_for("tile", lazy)
    if not host_cpp.why_not():
        (got,) = HostEngine([engine_plan]).run(engine_plan, lazy)
        assert_same(got, (X + 1) * (X + 2))
    nvrtc.require()
    nvrtc.compile_cubin(lower_tile(engine_plan.stages[0], "k", True).source, "sm_90")


def test_without_a_twin_the_cpu_engine_says_so() -> None:
    ran = []
    first = itf.cpp_function("float f(float x) { return x; }", numpy=lambda x: ran.append(1) or x)
    x = itf.asarray(X)
    for lazy in (ONLY(x), ONLY(x).sum(), itf.reduce(x, itf.cpp_function(
            "float m(float a, float b) { return a; }"), 0), ONLY(first(x).sum() - x)):  # fmt: skip
        with pytest.raises(itf.Unsupported, match=r"NumPy twin"):
            lazy.compute()
    both = itf.cpp_function("void m(float& a, float b) { a += b; }")
    with pytest.raises(itf.Unsupported, match=r"^m.*NumPy twin"):
        itf.reduce((x,), both, (0,))[0].compute()
    assert not ran
    assert itf.plan(ONLY(x)).passes == 1


def test_what_the_compiler_says_is_shown() -> None:
    nvrtc.require()
    wrong = itf.cpp_function("float wrong(float x) { return y; }")
    with (
        itf.config(engine="null", arch="sm_90"),
        pytest.raises(itf.CompileError, match="y") as raised,
    ):
        wrong(itf.spec((10,), "f4")).compute()
    assert "float wrong(float x)" in str(raised.value) and "undefined" in str(raised.value)


def test_nvrtc_compiles_them() -> None:
    nvrtc.require()
    lazies = [lazy for lazy, _ in (*maps(), *reductions()) if lazy.size and lazy._node.srcs]
    plans = [plan_for("tile", lazy) for lazy in lazies]
    sources = [lower_tile(stage, f"k{at}_{n}", True).source for at, plan in enumerate(plans)
               for n, stage in enumerate(plan.stages)]  # fmt: skip
    nvrtc.compile_cubin(unit(sources), "sm_90")


@pytest.mark.parametrize(
    ("call", "kind", "says"),
    [
        (lambda: itf.cpp_function("float x;"), ValueError, "no function found"),
        (lambda: itf.cpp_function("#include <x>\nint f(int x) {}"), ValueError, "headers"),
        (lambda: itf.cpp_function("half f(half x) { return x; }"), itf.DTypeError, "'half'"),
        (lambda: itf.cpp_function("int f() { return 1; }"), ValueError, "no parameters"),
        (lambda: itf.cpp_function("int f(int* x) { return *x; }"), ValueError, "int"),
        (lambda: itf.cpp_function(3), TypeError, "C\\+\\+ text"),
        (lambda: STEP(X.astype("f8"), 1), itf.DTypeError, "float64, which float32 cannot hold"),
        (lambda: COUNT(K, K), TypeError, "1 operand"),
        (lambda: COUNT(1.5 * K), itf.DTypeError, "astype"),
        (lambda: ONLY(X.astype("c8")), itf.DTypeError, "complex64"),
        (lambda: CHAN(X), TypeError, "itf.reduce"),
        (lambda: itf.reduce(X, CHAN, 0), TypeError, "tuples"),
        (lambda: itf.reduce(X, np.less, 0), itf.DTypeError, "one dtype"),
        (lambda: itf.reduce(X, np.exp, 0), TypeError, "two"),
        (lambda: itf.reduce(X, itf.clip, 0), itf.Unsupported, "cpp_function"),
        (lambda: itf.reduce(X, max, 0), TypeError, "operator"),
        (lambda: itf.reduce(K, np.add, 0.5), itf.DTypeError, "0.5"),
        (lambda: itf.reduce(K, np.add, 2**40), itf.DTypeError, "int32"),
        (lambda: itf.reduce(X, np.add, 0, axis=2), itf.AxisError, "axis 2"),
        (lambda: itf.reduce((X, X), CHAN, (0, 0)), TypeError, "2 fields"),
        (lambda: itf.reduce((X, X, X), CHAN, (0, 0)), TypeError, "3 scalars"),
        (lambda: itf.reduce((X, 1j, 1), CHAN, (0, 0, 0)), itf.DTypeError, "field 2"),
    ],
)
def test_what_cannot_be_is_refused(call: Any, kind: Any, says: str) -> None:
    with pytest.raises(kind, match=says):
        call()


def test_expressions_with_them_are_pickled() -> None:
    lazy = STEP(itf.asarray(X), 0.3)
    assert_same(pickle.loads(pickle.dumps(lazy)).compute(), lazy.compute())
    rows = pickle.dumps(lazy).replace(b"step@", b"stop@")
    with pytest.raises(itf.Unsupported, match=r"stop.*make it here first"):
        pickle.loads(rows)


def test_complex_operands_say_what_to_pass() -> None:
    twice = itf.cpp_function(
        "template <typename T> T twice(T x) { return x + x; }", numpy=lambda x: x + x
    )
    z = itf.asarray(np.array([1 + 2j, 3 - 1j], "c8"))
    with pytest.raises(itf.DTypeError, match=r"twice\(a\): operand 1 is complex64.*itf\.real"):
        twice(z)
    parts = itf.complex(twice(itf.real(z)), twice(itf.imag(z)))
    assert_same(parts.compute(), np.array([2 + 4j, 6 - 2j], "c8"))
