"""Views of expressions are index maps of the leaves: one pass, no copy, NumPy's answer."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import host_cpp, nvrtc
from support.generated import HostEngine, plan_for, unit
from support.views import chain, leaf

import itfuse as itf
from itfuse.lower import lower_tile
from itfuse.plan import make_plan
from itfuse.plan.index import Form, finer, unravel
from itfuse.plan.stages import Plan
from itfuse.testing import assert_same, evaluate

X = np.random.default_rng(0).normal(size=(4, 6)).astype("f4")
Y = np.arange(120.0).reshape(2, 3, 4, 5)

TEXTS = """
x[1:, ::-2]
x[-1]
x[..., 2]
x[None, :, 1:4, None]
x[2, 3]
x[3:1]
x[::-1, ::-1]
x[()]
x[..., None]
x[-3:-1, 5:0:-3]
x.T
x.transpose(1, 0)
x.transpose((1, 0))
x.swapaxes(0, 1)
x.ravel()
x.ravel(order='F')
x.flatten()
x.reshape(-1)
x.reshape(3, 8)
x.reshape((2, -1, 3))
x.reshape(3, 8, order='F')
x.T.reshape(4, 6)
x.T.reshape(-1)[::5]
x.T.ravel()[::-1]
x.reshape(2, 2, 6).transpose(2, 0, 1).reshape(6, 4)
x.ravel()[3:21].reshape(3, 6)
xp.flip(x)
xp.flip(x, 1)
xp.moveaxis(x, 0, -1)
xp.broadcast_to(x, (3, 4, 6))
xp.broadcast_to(x[:, :1], (4, 6))
xp.expand_dims(x, (0, 2))
xp.squeeze(x[:1], 0)
xp.squeeze(x[None, :, :1])
xp.diagonal(x)
xp.diagonal(x, -1)
xp.diagonal(x, 2)
xp.permute_dims(x, (1, 0))
xp.matrix_transpose(x)
xp.unstack(x, axis=1)[2]
xp.broadcast_arrays(x, x[0])[1]
x[1:] - x[:-1]
x[1:-1, 1:-1]
x[:, :0]
x[:0].reshape(0, 2, 3)
(x[:1] + x.reshape(4, 6))[::2]
x.mT
""".strip().splitlines()
VIEWS: list[tuple[str, Callable[[Any], Any], Callable[[Any], Any]]] = [
    (
        text,
        lambda x, t=text: eval(t, {"x": x, "xp": itf}),
        lambda x, t=text: eval(t, {"x": x, "xp": np}),
    )
    for text in TEXTS
]


@pytest.mark.parametrize("case", range(len(VIEWS)), ids=[text for text, _, _ in VIEWS])
@pytest.mark.parametrize("layout", ["C", "F", "strided", "leaf"])
def test_a_view_is_numpys_in_one_pass(case: int, layout: str) -> None:
    _, ours, theirs = VIEWS[case]
    x = {"C": X, "F": np.asfortranarray(X), "strided": np.repeat(X, 3, 1)[:, ::3], "leaf": X}[
        layout
    ]
    source = itf.asarray(x)
    lazy, want = (ours(source), theirs(x)) if layout == "leaf" else (
        ours(source * 2 + 1), theirs(x * 2 + 1))  # fmt: skip
    plan = itf.plan(lazy)
    assert plan.passes == 1
    assert plan.bytes_written == want.nbytes
    assert plan.bytes_read <= x.nbytes
    assert plan.bytes_temporary == 0
    assert_same(lazy.compute(), want)
    assert_same(evaluate(lazy), want)
    assert_same(lazy.sum(dtype="float64").compute() * 0, np.float64(0) * want.sum())


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("x[0]", 24), ("x[:, 0]", 16), ("x[::2, ::3]", 16), ("x.T", 96), ("x[1:] - x[:-1]", 96),
        ("x[0] + x[0][::-1]", 24), ("xp.broadcast_to(x[0, 0], (9, 9))", 4), ("x[2, 3]", 4),
        ("x[:, :0]", 0),
    ],
)  # fmt: skip
def test_only_what_is_used_is_read(text: str, read: int) -> None:
    assert itf.plan(eval(text, {"x": itf.asarray(X) * 2, "xp": itf})).bytes_read == read


def layouts(lazy: itf.Array) -> list[str]:
    (stage,) = itf.plan(lazy).stages
    return [i.layout for i in stage.inputs if i.kind == "array"]


def test_reshapes_split_the_domain_instead_of_dividing() -> None:
    x = itf.asarray(np.asfortranarray(X)) * 2
    assert layouts(x.ravel()) == ["strided"]
    assert layouts((itf.asarray(X) * 2).ravel()) == ["linear"]
    assert layouts((itf.asarray(X) * 2).ravel()[::5]) == ["strided"]
    assert layouts(x.reshape(2, 12)) == ["strided"]
    assert layouts(x.reshape(3, 8)) == ["gathered"]  # rows of 6 and of 8 share no border
    assert itf.plan(x.ravel()).stages[0].dims == (4, 6)


def test_unravel_and_finer() -> None:
    assert unravel(Form(5, (-3, -1)), (2, 3), (2, 3)) == [Form(1, (-1, 0)), Form(2, (0, -1))]
    assert unravel(Form(0, (4,)), (3,), (3, 3)) == [Form(0, (1,)), Form(0, (1,))]
    assert unravel(Form(0, (1,)), (4,), (2, 3)) is None
    assert finer(Form(0, (1,)), (6,), (2, 3)) == (2, 3)
    assert finer(Form(5, (-1,)), (6,), (2, 3)) == (2, 3)
    assert finer(Form(0, (1,)), (4,), (2, 3)) is None


@settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32), steps=st.integers(1, 8), gathers=st.booleans())
def test_random_chains(seed: int, steps: int, gathers: bool) -> None:
    random = np.random.default_rng(seed)
    x = leaf(random, seed % 4)
    lazy, want = chain(random, (itf.asarray(x) * 2 + 1, x * 2 + 1), steps, gathers)
    plan = itf.plan(lazy)
    assert (plan.passes, plan.bytes_written, plan.bytes_temporary) == (1, want.nbytes, 0)
    assert_same(lazy.compute(), want, what=f"seed {seed}")
    assert_same(evaluate(lazy), want, what=f"seed {seed}, node by node")
    assert_same(itf.asarray(lazy).sum().compute(), want.sum(), what=f"sum, seed {seed}")


@pytest.mark.skipif(bool(host_cpp.why_not()), reason=host_cpp.why_not())
@pytest.mark.parametrize("first", [0, 1000])
def test_random_chains_in_generated_code(first: int) -> None:
    cases = []
    for seed in range(first, first + 25):
        random = np.random.default_rng(seed)
        x = leaf(random, seed % 4)
        lazy, want = chain(random, (itf.asarray(x) * 2 + 1, x * 2 + 1), 5, gathers=seed % 2 == 0)
        cases += [(seed, lazy, want), (seed, lazy.sum() + 1, want.sum() + 1)]
    run_generated(cases)


def run_generated(cases: list[tuple[Any, itf.Array, Any]]) -> None:
    plans = [(case, plan_for(s, case[1])) for case in cases for s in ("tile", "cub.iterator")]
    engine = HostEngine(plan for _, plan in plans)
    for (what, lazy, want), plan in plans:
        (got,) = engine.run(plan, lazy)
        assert_same(got, np.asarray(want), what=f"{what} by {plan.stages[0].strategy}")


@pytest.mark.skipif(bool(host_cpp.why_not()), reason=host_cpp.why_not())
def test_views_in_generated_code() -> None:
    run_generated([(text, ours(itf.asarray(X) * 2 + 1), theirs(X * 2 + 1))
                   for text, ours, theirs in VIEWS])  # fmt: skip


def test_views_of_values_that_come_late() -> None:
    x = itf.asarray(X.astype(float))
    want = X.astype(float)
    for lazy, passes in (
        (x.sum()[None], 1), ((x.sum() * 2)[None, None] + 1, 1), (x.sum().reshape(1, 1), 1),
        (itf.broadcast_to(x.sum(), (3,)), 2), (x - x.mean()[None, None], 2),
        ((x.T - x.mean()).ravel(), 2), ((x - x.mean())[1:].sum()[None], 2),
    ):  # fmt: skip
        assert itf.plan(lazy).passes == passes, lazy
        np.testing.assert_allclose(lazy.compute(), evaluate(lazy), rtol=1e-12)
    flat = (x.sum() * 0).astype("int64") + 3
    picked = itf.asarray(np.arange(10.0))[flat]  # the index is made by the epilogue
    assert itf.plan(picked).passes == 1 and float(picked) == 3.0
    assert float((x - want)[0, 0]) == 0.0


def test_several_results_of_one_domain_share_a_pass() -> None:
    x = itf.asarray(np.asfortranarray(X)) * 2
    plan = itf.plan(x.ravel(), x.ravel()[::-1], x.T.ravel() + 1)
    assert plan.passes == 1
    assert plan.bytes_read == X.nbytes
    a, b, c = itf.compute(x.ravel(), x.ravel()[::-1], x.T.ravel() + 1)
    assert_same(a, (X * 2).ravel())
    assert_same(b, (X * 2).ravel()[::-1])
    assert_same(c, (X * 2).T.ravel() + 1)


def test_a_reshape_under_a_whole_reduction_changes_no_bit() -> None:
    x = itf.asarray(np.random.default_rng(1).normal(size=(100, 333)).astype("f4"))
    assert x.sum().compute() == (x + 0).reshape(333, 100).sum().compute()
    assert x.sum().compute() == (x + 0).ravel()[:].sum().compute()


def test_32_axes_and_sizes_beyond_2_to_the_31() -> None:
    x = np.arange(8).reshape((2, 2, 2) + (1,) * 29)
    lazy = (itf.asarray(x) + 1).T[..., ::-1]
    assert_same(lazy.compute(), (x + 1).T[..., ::-1])
    big = itf.broadcast_to(itf.asarray(np.arange(4, dtype="u1")), (1 << 30, 4))
    plan = itf.plan((big + 0)[:, ::-1].T)
    assert plan.passes == 1 and plan.bytes_written == 1 << 32
    assert plan.stages[0].wide
    assert_same(
        (big + 1)[1 << 29 :: 1 << 28].T.compute(), np.arange(1, 5, dtype="u1")[:, None].repeat(2, 1)
    )


def test_thousands_of_views_plan_quickly_and_share_nodes() -> None:
    lazy = itf.asarray(np.arange(50))
    for _ in range(2000):
        lazy = (lazy + 1)[::-1]
    assert_same(lazy.compute(), np.arange(2000, 2050))
    doubled = itf.asarray(np.arange(50, dtype="u8"))
    want = np.arange(50, dtype="u8")
    for _ in range(60):  # a tree of 2**60 without sharing
        doubled, want = doubled + doubled[::-1], want + want[::-1]
    (stage,) = itf.plan(doubled).stages
    assert len(stage.element.instrs) < 200
    assert_same(doubled.compute(), want)


def outs() -> list[np.ndarray]:
    return [
        np.zeros((6, 4), "f4").T,
        np.zeros((4, 12), "f4")[:, ::2],
        np.zeros((4, 6), "f4")[::-1, ::-1],
        np.zeros((4, 3, 6), "f4")[:, 1],
        np.zeros((4, 6), "f4"),
        np.zeros((12, 12), "f4")[::3, 1::2],
    ]


def expressions() -> list[tuple[itf.Array, np.ndarray]]:
    lazy, value = itf.asarray(X) * 2 + 1, X * 2 + 1
    return [
        (lazy, value), (lazy.T.ravel().reshape(6, 4).T, value), (lazy[::-1], value[::-1]),
        (itf.roll(lazy, 3), np.roll(value, 3)), (lazy.T.reshape(4, 6), value.T.reshape(4, 6)),
    ]  # fmt: skip


def test_out_of_any_layout() -> None:
    for lazy, want in expressions():
        for out in outs():
            whole = out.base if out.base is not None else out
            assert lazy.compute(out=out) is out
            assert_same(out, want)
            assert np.count_nonzero(whole) <= np.count_nonzero(want)


@pytest.mark.skipif(bool(host_cpp.why_not()), reason=host_cpp.why_not())
def test_out_of_any_layout_in_generated_code() -> None:
    runs: list[tuple[itf.Array, np.ndarray, np.ndarray, Plan]] = []
    for lazy, want in expressions():
        for out in outs():
            strides = None if out.flags.c_contiguous else out.strides
            second = lazy[::-1, ::-1]
            plan = plan_for("tile", lazy, second, layouts=(strides, None))
            runs.append((lazy, want, out, plan))
    engine = HostEngine(plan for *_, plan in runs)
    for lazy, want, out, plan in runs:
        _, second = engine.run(plan, lazy, lazy[::-1, ::-1], out=(out, None))
        assert_same(out, want)
        assert_same(second, want[::-1, ::-1])


def test_a_fortran_result_of_a_fortran_operand_is_linear_and_in_place() -> None:
    x = np.asfortranarray(X)
    plan = make_plan(((itf.asarray(x) * 2)._node,), layouts=(x.strides,))
    (stage,) = plan.stages
    assert (stage.inputs[0].layout, stage.outputs[0].strides, stage.dims) == ("linear", (), (24,))
    (itf.asarray(x) * 2).compute(out=x)
    assert_same(x, X * 2)
    every_other = np.repeat(X, 2, 1)
    view = every_other[:, ::2]
    (itf.asarray(view) * 3).compute(out=view)
    assert_same(every_other[:, ::2], X * 3)
    assert_same(every_other[:, 1::2], X)


def test_aliases_are_found_through_views() -> None:
    buffer = np.arange(24.0)
    x = itf.asarray(buffer)
    (x * 2)[:12].compute(out=buffer[:12])
    assert_same(buffer[:12], np.arange(0.0, 24, 2))
    (x * 2)[12:].compute(out=buffer[:12])  # what is written is not what is read
    assert_same(buffer[:12], np.arange(24.0, 48, 2))
    before = buffer.copy()
    for lazy in ((x * 2)[11::-1], (x * 2)[1:13], (x * 2)[:12] + (x * 2)[6:18], (x * 2)[[0] * 12]):
        with pytest.raises(itf.AliasError, match="input a"):
            lazy.compute(out=buffer[:12])
    overlapping = np.lib.stride_tricks.as_strided(np.zeros(24), (3, 4), (8, 8))
    with pytest.raises(itf.AliasError, match="share memory"):
        itf.asarray(np.ones((3, 4))).compute(out=overlapping)
    assert_same(buffer, before)


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("x[4]", IndexError, ["(a * 2.0)[4]", "axis 0"]),
        ("x[0, -7]", IndexError, ["-7", "axis 1"]),
        ("x[0, 0, 0]", IndexError, ["3 indices"]),
        ("x[..., ...]", IndexError, ["ellipsis"]),
        ("x[0.5]", IndexError, ["integers"]),
        ("x[::0]", ValueError, ["zero"]),
        ("x.reshape(5, -1)", ValueError, ["(5, -1)", "24 elements"]),
        ("x.reshape(4, 7)", ValueError, ["(4, 7)"]),
        ("x.transpose(0, 0)", ValueError, ["twice"]),
        ("x.transpose(0)", ValueError, ["1 axes"]),
        ("x.T.squeeze(0)", ValueError, ["(6, 4)"]),
        ("xp.flip(x, 2)", ValueError, ["axis 2"]),
        ("xp.broadcast_to(x, (3, 6))", ValueError, ["(4, 6)"]),
        ("xp.broadcast_arrays(x, x.T)", ValueError, ["(6, 4)"]),
        ("xp.diagonal(x[0])", ValueError, ["needs two"]),
        ("x[x[:2] > 0]", IndexError, ["mask", "axis 0"]),
        ("x.__setitem__(0, 1)", NotImplementedError, ["where"]),
        ("x.reshape(3, 8, order='Q')", ValueError, ["order"]),
    ],
)
def test_errors(text: str, kind: type[Exception], words: list[str]) -> None:
    x = itf.asarray(X) * 2.0
    with pytest.raises(kind) as caught:
        eval(text, {"x": x, "xp": itf})
    for word in words:
        assert word in str(caught.value)
    assert_same((x + 0)[0].compute(), X[0] * 2)


def test_the_text_of_a_view_is_what_was_written() -> None:
    x = itf.asarray(X)
    for lazy, text in (
        ((x * 2)[1:, ::-2], "(a * 2.0)[1:, ::-2]"), (x.T, "a.T"),
        (x[..., None, 0], "a[..., None, 0]"),
        (x.reshape(24), "reshape(a, (24,))"), (x[itf.asarray([0, 1])], "a[b]"),
    ):  # fmt: skip
        assert repr(lazy).startswith(f"itf.Array({text}, shape")
        assert f"= {text}" in itf.explain(lazy)


def test_dividers_divide() -> None:
    import dataclasses

    (stage,) = itf.plan(itf.asarray(X).T + 0).stages
    random = np.random.default_rng(0)
    for _ in range(3000):
        size = int(random.integers(2, 1 << int(random.integers(2, 31))))
        multiplier, shift = dataclasses.replace(stage, dims=(size,)).dividers
        assert multiplier < 1 << 32
        top = (1 << 31) - 1
        for n in (0, 1, size - 1, size, top, top // size * size, top // size * size - 1,
                  int(random.integers(0, top))):  # fmt: skip
            assert (n * multiplier >> 32) >> shift == n // size
    assert math.prod(stage.dims) == 24


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_120"])
def test_generated_code_compiles_without_spills(arch: str) -> None:
    pytest.importorskip("cuda.core")
    x, i = itf.spec((1024, 4096), "f4") * 2, itf.spec((77,), "i4")
    lazies = [
        x.T, x.T.ravel()[::3], x[i], x[:, i].sum(), itf.concat([x, x * 3]), itf.roll(x, 5, 1),
        x.reshape(4096, 1024).T.reshape(-1) + itf.arange(1 << 22), itf.tril(x),
        itf.shift(x, 1, 0, "edge") - itf.shift(x, -1, 0, "reflect"),
        x.reshape(512, 8192)[::2].max(),
        x.T.reshape(2, -1)[1:],
        itf.broadcast_to(x[0], (1 << 30, 4096)),
    ]  # fmt: skip
    stages = [plan_for("tile", one).stages[0] for one in lazies]
    stages += plan_for("tile", x, layouts=((4, 4 << 11),)).stages
    sources = [
        lower_tile(stage, f"k{at}_{'ba'[aligned]}", bool(aligned)).source
        for at, stage in enumerate(stages)
        for aligned in (1, 0)
    ]
    _, report = nvrtc.compile_cubin(unit(sources), arch)
    for name, one in report.functions.items():
        assert one.spill_stores == one.spill_loads == 0, (name, one)
    with itf.config(engine="null", arch=arch):
        for strategy in ("tile", "cub"):
            with itf.config(strategy=strategy):
                itf.compute(*lazies[2:4])


def test_views_and_reductions_along_axes() -> None:
    x = itf.asarray(Y[0])
    value = Y[0]
    for lazy, want, passes in (
        (x - x.mean(axis=2)[:, :, None], value - value.mean(2)[:, :, None], 1),
        ((x * 2).transpose(1, 0, 2).sum(axis=0), (value * 2).transpose(1, 0, 2).sum(0), 1),
        (x.sum(axis=2).reshape(4, 3), value.sum(2).reshape(4, 3), 1),
        ((x - x.max(axis=2, keepdims=True)).reshape(12, 5),
         (value - value.max(2, keepdims=True)).reshape(12, 5), 1),
        (x.sum(axis=2)[::-1] + 1, value.sum(2)[::-1] + 1, 2),
        (x.max(axis=0)[[1, -1]], value.max(0)[[1, -1]], 2),
        ((x[[1, 2]] * 2).sum(axis=(0, 2)), (value[[1, 2]] * 2).sum((0, 2)), 1),
        ((x + itf.arange(5)).max(axis=1) + itf.arange(5),
         (value + np.arange(5)).max(1) + np.arange(5), 1),
        ((x * 2).ravel()[::-1].argmax(), np.asarray((value * 2).ravel()[::-1].argmax()), 1),
        ((x * 2).transpose(2, 0, 1).ravel().argmax(),
         np.asarray((value * 2).transpose(2, 0, 1).ravel().argmax()), 1),
    ):  # fmt: skip
        assert itf.plan(lazy).passes == passes, lazy
        np.testing.assert_allclose(lazy.compute(), want, rtol=1e-12)


def test_a_plan_kept_for_a_form_takes_other_numbers_and_sizes() -> None:
    # Sizes and strides that planning makes are not the user's scalars, even where equal.
    for size in (4, 7):
        values = np.arange(size * 3).reshape(size, 3)
        for number in (3, 4, 7, 8, 24):
            lazy = itf.asarray(values)
            assert_same((lazy.T.reshape(size, 3) + number).compute(),
                        values.T.reshape(size, 3) + number)  # fmt: skip
            assert_same(
                (lazy.ravel()[[0, -1]] * number).compute(), values.ravel()[[0, -1]] * number
            )


def test_fused_functions_of_views() -> None:
    f = itf.fuse(lambda x, i: itf.roll((x * 2)[::-1].T.ravel(), 1)[i] + itf.arange(2))
    index = np.array([1, -2])
    for shape in ((3, 5), (4, 6)):
        x = np.arange(float(np.prod(shape))).reshape(shape)
        want = np.roll((x * 2)[::-1].T.ravel(), 1)[index] + np.arange(2)
        for _ in range(3):
            assert_same(f(x, index), want)
            assert_same(f(np.asfortranarray(x), index), want)
    with pytest.raises(IndexError, match="out of bounds"):
        f(x, np.array([99, 0]))
    with pytest.raises(itf.ShapeError, match="not C-contiguous"):
        f(x, index, out=np.zeros(4)[::2])
