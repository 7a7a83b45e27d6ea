"""Creation functions are NumPy's to the bit, made in registers: they read nothing."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from support import host_cpp
from support.generated import HostEngine, plan_for

import itfuse as itf
from itfuse.testing import assert_same, evaluate

DTYPES = (None, "f4", "i4", "u1", "f8", "i8", "i2")


@pytest.mark.parametrize("dtype", DTYPES)
def test_arange(dtype: Any) -> None:
    for args in ((5,), (1, 9, 2), (9, 1, -3), (0.5, 3, 0.3), (1, 2, 0.1), (0, 1, 0.1), (5, 5),
                 (2, 1), (0,), (7.5,), (3, 4, 5), (250, 256)):  # fmt: skip
        got = itf.arange(*args, dtype=dtype, device="cpu")
        want = np.arange(*args, dtype=dtype)
        assert got.compute().tobytes() == want.tobytes(), args
        assert_same(got.compute(), want)
        assert itf.plan(got).bytes_read == 0


@pytest.mark.parametrize("dtype", DTYPES)
def test_linspace(dtype: Any) -> None:
    ends = itertools.product((0, 1, -3, 2.5), (1, 10, -7, 0), (0, 1, 2, 5, 50, 7), (True, False))
    for args in ends:
        got, step = itf.linspace(*args, retstep=True, dtype=dtype, device="cpu")
        want, want_step = np.linspace(*args, retstep=True, dtype=dtype)
        assert_same(got.compute(), want, what=str(args))
        np.testing.assert_equal(step, want_step)


CASES = """
zeros((2, 3))
ones(4, 'i2')
full((2, 2), 7)
full(3, True)
full((), 2.5)
full((0, 3), 1)
full(3, 2.7, 'i4')
empty((3, 0))
eye(4)
eye(3, 5, -1, 'u1')
identity(3)
tri(3, 4, 1)
indices((2, 3))
zeros_like(x)
ones_like(x, 'i1')
full_like(x, 3)
full_like(x, 3, shape=(2,))
tril(x)
triu(x, 1)
tril(x, -2)
triu(x[None, :, :2], -1)
meshgrid(x[0], x[:, 0])[0]
meshgrid(x[0], x[:, 0])[1]
meshgrid(x[0], x[:, 0], x[1], indexing='ij')[2]
arange(6)[::-2] * 2
arange(24).reshape(4, 6).T + 1
arange(6) + x
arange(12).reshape(3, 4).reshape(2, 6).T
arange(6)[[1, -1]]
concat([arange(3), x[0]])
""".strip().splitlines()
X = np.random.default_rng(0).normal(size=(4, 6)).astype("f4")


def lazies() -> list[tuple[str, itf.Array, np.ndarray]]:
    ours = {name: getattr(itf, name) for name in dir(itf) if not name.startswith("_")}
    with_x, numpys = {**ours, "x": itf.asarray(X)}, {**vars(np), "x": X}
    return [
        (text, eval(text, with_x), np.asarray(eval(text.replace("empty", "zeros"), numpys)))
        for text in CASES
    ]


def test_creation_is_numpys() -> None:
    for text, lazy, want in lazies():
        got = lazy.compute()
        assert_same(got, want, what=text)
        assert itf.plan(lazy).passes == 1
        assert_same(evaluate(lazy), want)
        if "x" not in text and "[[" not in text:
            assert itf.plan(lazy).bytes_read == 0


@pytest.mark.skipif(bool(host_cpp.why_not()), reason=host_cpp.why_not())
def test_creation_in_generated_code() -> None:
    cases = [*lazies(), ("sum", itf.arange(1000, device="cpu").sum(), np.arange(1000).sum())]
    for args in ((0, 1, 7), (3, -1, 50)):
        cases.append((str(args), itf.linspace(*args, device="cpu"), np.linspace(*args)))
    plans = [(case, plan_for(s, case[1])) for case in cases for s in ("tile", "cub.iterator")]
    engine = HostEngine(plan for _, plan in plans)
    for (text, lazy, want), plan in plans:
        (got,) = engine.run(plan, lazy)
        assert_same(got, np.asarray(want), what=f"{text} by {plan.stages[0].strategy}")


def test_devices() -> None:
    x = itf.asarray(X)
    assert itf.arange(3).device == "any"
    assert itf.zeros(3, device="cpu").device == itf.zeros(6, like=x).device == "cpu"
    assert (itf.arange(6) + x).device == (x + itf.arange(6)).device == "cpu"
    assert (itf.arange(3) * 2).device == "any"
    assert itf.concat([itf.arange(6)[None], itf.asarray(X)]).device == "cpu"
    assert (itf.spec((3,), "f4") + itf.arange(3)).device == "none"
    with itf.config(engine="cpu"):
        assert itf.arange(3).tolist() == [0, 1, 2]
        assert np.asarray(itf.ones(2)).tolist() == [1, 1]
    with pytest.raises(itf.DeviceError, match=r"cuda:<number>"):
        itf.zeros(3, device="tpu")
    with pytest.raises(itf.DeviceError, match="none"):
        itf.zeros(3, device="none") + x
    with itf.config(engine="null", arch="sm_90"):
        assert itf.plan(itf.arange(3)).device == "none"


def test_errors() -> None:
    for call, kind, word in (
        (lambda: itf.zeros((2, -1)), ValueError, "negative"),
        (lambda: itf.arange(0, 3, 0), ValueError, "zero"),
        (lambda: itf.linspace(0, 1, -1), ValueError, "-1"),
        (lambda: itf.zeros(3, "U3"), TypeError, "U3"),
        (lambda: itf.tril(itf.arange(3)[0]), ValueError, "no axes"),
        (lambda: itf.meshgrid(itf.arange(3), indexing="yx"), ValueError, "yx"),
        (lambda: itf.arange(3, dtype=bool), TypeError, "boolean"),
    ):
        with pytest.raises(kind, match=word):
            call()


def test_large_ones_cost_no_memory() -> None:
    n = 1 << 40
    total = itf.arange(n, dtype="u8")[:: 1 << 20]
    plan = itf.plan(total)
    assert plan.bytes_read == 0 and plan.bytes_written == 8 << 20
    assert int(total[-1]) == n - (1 << 20)


U = np.arange(4, dtype="u1")
FILLED = """
full(3, 300, dtype='u1')
full(2, -1, 'u1')
full(0, 300, 'u1')
full((), 2**63, 'i8')
full(2, 2**64, 'f4')
full(2, 2**64, 'u8')
full(2, 10**400, 'f4')
full(2, 10**400, 'c8')
full(2, 300, 'f2')
full(2, 10**6, 'f2')
full(2, 300, bool)
full(2, True, 'u1')
full(2, int64(300), 'u1')
full(2, [300, 1], 'u1')
full(2, 2**63)
full_like(u, 300)
full_like(u, -1)
full_like(u, 300, 'i2')
arange(300, 303, dtype='u1')
arange(300, 300, dtype='u1')
arange(-1, 3, dtype='u1')
arange(254, 258, dtype='u1')
arange(255, 258, dtype='u1')
arange(255, 256, dtype='u1')
arange(0, 300, 100, dtype='u1')
arange(int64(300), 302, dtype='u1')
arange(-1.5, 3, dtype='u1')
asarray(300, dtype='u1')
asarray([1, 300], dtype='u1')
asarray(array([1, 300]), dtype='u1')
linspace(0, 300, 4, dtype='u1')
pad(u, 1, constant_values=300)
where(u > 1, u, 300)
where(u > 1, -1, u)
where(u > 1, 300, 2)
max(u, initial=300)
sum(u, initial=300)
""".strip().splitlines()


@pytest.mark.parametrize("text", FILLED)
def test_python_integers_fit_or_raise_as_numpys(text: str) -> None:
    ours = {name: getattr(itf, name) for name in dir(itf) if not name.startswith("_")}
    names = {"u": itf.asarray(U), "int64": np.int64, "array": np.array}
    with np.errstate(all="ignore"):
        try:
            want = np.asarray(eval(text, {**vars(np), "u": U}))
        except OverflowError:
            with pytest.raises(OverflowError) as caught:
                eval(text, {**ours, **names})
            assert isinstance(caught.value, itf.RangeError) and "out of bounds" in str(caught.value)
            return
    assert_same(evaluate(eval(text, {**ours, **names})), want)
    assert_same(eval(text, {**ours, **names}).compute(), want)


def test_a_shifts_value_must_fit() -> None:
    with pytest.raises(itf.RangeError, match=r"shift\(a, 1\): .*300.*uint8"):
        itf.shift(itf.asarray(U), 1, value=300)
    assert itf.shift(itf.asarray(U), 1, value=255).compute().tolist() == [255, 0, 1, 2]


def test_a_number_of_a_traced_function_fills() -> None:
    @itf.fuse
    def filled(x: Any, n: int) -> Any:
        return itf.full(4, n) + itf.where(x > 1, x, n)

    for n in (7, 300, -1):
        assert_same(filled(U, n), np.full(4, n) + np.where(U > 1, U, n))
