"""Bad input raises before anything runs, names the expression, and leaves everything working."""

from __future__ import annotations

import datetime
import subprocess
import sys

import numpy as np
import pytest

import itfuse as itf

A, B = np.ones(4, "f4"), np.ones((2, 3), "f4")
BUFFER = np.zeros(12, "f4")


def lazy(x: object) -> itf.Array:
    return itf.asarray(x)


CASES = [
    (lambda: lazy(A) * 2 + B, itf.ShapeError, ValueError, ["a * 2.0", "(4,)", "(2, 3)"]),
    (lambda: lazy(np.ones(3, "G")), itf.DTypeError, TypeError, ["complex256", "complex128"]),
    (lambda: lazy(np.array([object()])), itf.DTypeError, TypeError, ["object"]),
    (lambda: lazy(np.array(["a"])), itf.DTypeError, TypeError, ["<U1", "strings"]),
    (lambda: lazy(np.array([datetime.datetime.now()], "M8[s]")), itf.DTypeError, TypeError,
     ["datetime64", "int64"]),
    (lambda: lazy(np.ones(3, ">f4")), itf.DTypeError, TypeError, [">f4", "astype"]),
    (lambda: lazy(np.ones(3, "g")), itf.DTypeError, TypeError, ["float128", "astype"]),
    (lambda: lazy(A).astype("longdouble"), itf.DTypeError, TypeError, ["astype(a"]),
    (lambda: lazy(A).astype("nonsense"), itf.DTypeError, TypeError, ["nonsense"]),
    (lambda: lazy(A) + datetime.timedelta(1), itf.DTypeError, TypeError, ["object"]),
    (lambda: lazy(A) // 1j, itf.DTypeError, TypeError, ["a // 1j", "floor_divide"]),
    (lambda: itf.erf(lazy(A) * 1j), itf.DTypeError, TypeError, ["erf(", "real"]),
    (lambda: lazy(A) << 1, itf.DTypeError, TypeError, ["a << 1"]),
    (lambda: -lazy(A > 0), itf.DTypeError, TypeError, ["-a"]),
    (lambda: lazy(A.astype("u1")) + 256, itf.RangeError, OverflowError, ["256", "uint8"]),
        (lambda: (lazy(A) * 2).compute(out=np.empty(3, "f4")), itf.ShapeError, ValueError,
     ["a * 2.0", "(3,)", "(4,)"]),
    (lambda: (lazy(A) * 2).compute(out=np.empty(4, "f8")), itf.DTypeError, TypeError,
     ["float64", "float32"]),
    (lambda: lazy(B).compute(out=np.lib.stride_tricks.as_strided(BUFFER, (2, 3), (4, 4))),
     itf.AliasError, ValueError, ["elements that share memory"]),
    (lambda: lazy(A).compute(out=[1, 2, 3, 4]), itf.ShapeError, ValueError, ["4 arrays"]),
    (lambda: lazy(A).compute(out="x"), itf.DeviceError, RuntimeError, ["str"]),
    (lambda: (lazy(BUFFER[:8]) + 1).compute(out=BUFFER[1:9]), itf.AliasError, ValueError,
     ["shares memory", "input a"]),
    (lambda: (lazy(BUFFER[:8]) + lazy(BUFFER[7::-1])).compute(out=BUFFER[:8]),
     itf.AliasError, ValueError, ["input b"]),
    (lambda: itf.compute(lazy(A) + 1, lazy(A) - 1, out=(BUFFER[:4], BUFFER[2:6])),
     itf.AliasError, ValueError, ["result 0", "result 1"]),
    (lambda: itf.compute(lazy(BUFFER[:8]) + 1, lazy(BUFFER[:8]) - lazy(BUFFER[:8]).mean(),
                         out=(BUFFER[:8], None)), itf.AliasError, ValueError, ["pass 3"]),
    (lambda: lazy(np.empty(0)).min(), itf.ShapeError, ValueError, ["min(a)", "no elements"]),
    (lambda: bool(lazy(A)), itf.ShapeError, ValueError, ["bool(a)", "any()"]),
    (lambda: lazy(B).sum(axis=2), itf.AxisError, np.exceptions.AxisError, ["sum(a)", "axis 2"]),
    (lambda: lazy(B).sum(axis=2), itf.AxisError, IndexError, ["2 axes"]),
    (lambda: lazy(B).sum(axis=(0, -2)), itf.ShapeError, ValueError, ["sum(a)", "twice"]),
    (lambda: lazy(B).min(where=B > 0), itf.ShapeError, ValueError, ["min(a)", "initial="]),
    (lambda: lazy(np.empty((0, 3))).argmax(0), itf.ShapeError, ValueError, ["argmax(a)", "(0, 3)"]),
    (lambda: (lazy(A) - lazy(A).mean()).compute(max_passes=1), itf.NeedsBuffer, RuntimeError,
     ["2 passes", "sum(a)"]),
    (lambda: itf.spec((3,), "f4").compute(), itf.DeviceError, RuntimeError, ["placeholders"]),
    (lambda: lazy(A).compute(engine="cuda"), itf.DeviceError, RuntimeError, ["on cpu", "cuda"]),
    (lambda: (lazy(A) + itf.spec((4,), "f4")), itf.DeviceError, RuntimeError, ["a + b", "none"]),
    (lambda: itf.config(engine="tpu").__enter__(), itf.ConfigError, ValueError, ["tpu", "cuda"]),
    (lambda: itf.config(colour=1).__enter__(), itf.ConfigError, ValueError, ["colour"]),
    (lambda: lazy(np.ma.masked_array(A)), itf.Unsupported, NotImplementedError, ["masked"]),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(CASES)))
def test_error_names_the_expression_and_all_still_works(case: int) -> None:
    call, kind, python_kind, words = CASES[case]
    before = BUFFER.copy()
    with pytest.raises(kind) as caught:
        call()
    assert isinstance(caught.value, itf.ItfuseError)
    assert isinstance(caught.value, python_kind)
    for word in words:
        assert word in str(caught.value), str(caught.value)
    np.testing.assert_array_equal(BUFFER, before)
    np.testing.assert_array_equal((lazy(A) + 1).compute(), A + 1)


def test_operands_of_no_array_kind_are_pythons_own_error() -> None:
    for other in ("a", None, {}):
        with pytest.raises(TypeError, match="unsupported operand"):
            lazy(A) + other  # type: ignore[operator]


def test_environment_variables_are_checked() -> None:
    code = "import itfuse as itf; itf.plan(itf.spec((3,), 'f4'))"
    for name, value in (("ITFUSE_STRATEGY", "warp"), ("ITFUSE_MAX_PASSES", "0")):
        done = subprocess.run([sys.executable, "-c", code], env={name: value, "PATH": ""},
                              capture_output=True, text=True, check=False)  # fmt: skip
        assert done.returncode == 1
        assert name in done.stderr and value in done.stderr


def test_a_failure_inside_a_block_is_raised_and_nothing_hangs() -> None:
    base, exponent = np.full(200_000, 2), np.full(200_000, 3)
    exponent[150_000] = -1
    with itf.config(threads=2), pytest.raises(ValueError, match="negative integer powers"):
        (lazy(base) ** exponent).compute()
    exponent[:] = 3
    assert (lazy(base) ** exponent).compute()[0] == 8


def test_numpy_scalars_and_0d_arrays() -> None:
    assert float(lazy(np.float32(2)) * 3) == 6.0
    assert int(lazy(np.arange(5)).sum()) == 10
    assert lazy([1, 2, 3]).tolist() == [1, 2, 3]
    assert len(lazy(A)) == 4 and list(lazy(A)) == list(A)
    with pytest.raises(TypeError):
        len(lazy(A).sum())
    np.testing.assert_array_equal(np.asarray(lazy(A) + 1), A + 1)


def test_errors_name_the_expression_of_this_call() -> None:
    a = np.ones(4)
    (itf.asarray(a) + 0).compute()  # the same structure, planned for another number
    with pytest.raises(itf.ShapeError, match=r"out= for a \+ 7"):
        (itf.asarray(a) + 7).compute(out=np.zeros(5))


PLACES = {
    "getitem": (lambda x, i: x[i], r"a\[{0}\]"),
    "two": (lambda x, i: (x + 1)[i] * 2, r"\(a \+ 1\.?0?\)\[{0}\] \* 2"),
    "axis": (lambda x, i: x.reshape(1, 4)[0, i], r"\[0, {0}\]"),
    "take": (itf.take, r"take\(a, b, axis=0\)"),
    "along": (lambda x, i: itf.take_along_axis(x, i, 0), r"take_along_axis\(a, b, 0\)"),
}


@pytest.mark.parametrize("name", PLACES)
def test_an_index_out_of_bounds_names_the_expression_of_this_call(name: str) -> None:
    call, shown = PLACES[name]
    y = np.ones(4, "f4")
    (call(itf.asarray(y), [0])).compute()  # one plan for all of this form
    for wrong in (7, -6, 5):
        words = shown.format(rf"\[{wrong}\]") + rf".*index {wrong} is out of bounds"
        with pytest.raises(itf.BoundsError, match=words):
            call(itf.asarray(y), [wrong]).compute()


def test_other_errors_of_elements_name_the_expression_of_this_call() -> None:
    base = itf.asarray(np.full(3, 2))
    for by in (7, 9):
        exponent = itf.asarray(np.full(3, 3)) - by
        with pytest.raises(itf.RangeError, match=rf"a \*\* \(b - {by}\): .*negative integer"):
            (base**exponent).compute()
        with pytest.raises(itf.BoundsError, match=rf"put\(.*\): place {by} is out of bounds"):
            itf.put(base, [by], 1).compute()

    @itf.fuse
    def raised(x: itf.Array, y: itf.Array) -> itf.Array:
        return x**y

    with pytest.raises(itf.RangeError, match=r"raised: .*negative integer powers"):
        raised(np.full(3, 2), np.full(3, -1))
    with pytest.raises(itf.RangeError, match=r"a \+ 300: .*300.*uint8"):
        itf.asarray(np.arange(3, dtype="u1")) + 300


def test_a_view_written_in_two_ways_is_read_once() -> None:
    x = itf.asarray(np.arange(6.0))
    both = itf.plan(itf.sin(x[0:2]) + itf.sin(x[:2]))
    assert both.bytes_read == itf.plan(itf.sin(x[:2])).bytes_read == 16
