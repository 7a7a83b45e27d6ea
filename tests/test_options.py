"""Options of one call, settings, and arguments at the edge of what NumPy takes."""

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import itfuse as itf

X = np.ones(5, "f4")
INTS = np.array([-128, 127, 5, 15, -25], "i1")
BOOLS = np.array([True, False])


@itf.fuse
def doubled(x: Any) -> Any:
    return x * 2


class Scale:
    by = 3

    @itf.fuse
    def scaled(self, x: Any) -> Any:
        return x * self.by


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"until": "nonsense"}, "simplify, views, fuse, choose"),
        ({"strategy": "nonsense"}, "one of auto, cub"),
        ({"max_passes": "a"}, "an integer of at least 1"),
        ({"max_passes": 0}, "an integer of at least 1"),
        ({"max_passes": 1.5}, "an integer of at least 1"),
    ],
)
def test_plan_options_are_checked(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        itf.plan(itf.asarray(X) + 1, **options)


@pytest.mark.parametrize(
    ("options", "kind", "says"),
    [
        ({"engine": "nonsense"}, itf.ConfigError, "one of auto, cuda, cpu, null"),
        ({"max_passes": True}, itf.ConfigError, "an integer of at least 1"),
        ({"stream": 3}, itf.DeviceError, "on cpu, which has no streams"),
    ],
)
def test_compute_options_are_checked(options: dict[str, Any], kind: type, says: str) -> None:
    y = itf.asarray(X) + 1
    for _ in range(2):  # before the expression's form is known, and after
        with pytest.raises(kind, match=says):
            y.compute(**options)
        assert y.compute()[0] == 2


@pytest.mark.parametrize("bandwidth", [0, -1, "fast", float("nan"), float("inf")])
def test_bandwidth_is_positive(bandwidth: Any) -> None:
    with pytest.raises(itf.ConfigError, match="a positive number"), itf.config(bandwidth=bandwidth):
        pass


def test_doctor_reports_a_bad_variable() -> None:
    root = str(Path(__file__).parents[1])
    env = {**os.environ, "ITFUSE_CACHE_SIZE": "x", "PYTHONPATH": root}
    run = subprocess.run([sys.executable, "-m", "itfuse", "doctor"], env=env, check=False,
                         capture_output=True, text=True, timeout=120)  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert "cache_size='x' is not valid" in " ".join(run.stdout.split())
    assert "copy bandwidth" in run.stdout


# ---- NumPy's arguments ----
@pytest.mark.parametrize("decimals", [0, 1, -1, -3])
@pytest.mark.parametrize("x", [INTS, BOOLS, INTS * 1.5, np.array([15, 25, -35, 126])])
def test_round(x: Any, decimals: int) -> None:
    if x.dtype == bool and decimals:
        for library in (np, itf):
            with pytest.raises(TypeError):
                library.round(x, decimals)
        return
    want = np.round(x, decimals)
    got = itf.round(x, decimals).compute()
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    "bounds",
    [(-1000, 1000), (None, 1000), (-1000, None), (-128, 5), (0, 2**40), (-1.5, 2.5), (None, None)],
)
@pytest.mark.parametrize("x", [INTS, INTS.astype("i8"), INTS.astype("f4")])
def test_clip(x: Any, bounds: Any) -> None:
    want = np.clip(x, *bounds)
    got = itf.clip(x, *bounds).compute()
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


def test_clip_beyond_every_value() -> None:
    for bounds in ((1000, None), (None, -1000)):
        with pytest.raises(OverflowError):
            np.clip(INTS, *bounds)
        with pytest.raises(OverflowError):
            itf.clip(INTS, *bounds)


@pytest.mark.parametrize("x", [BOOLS, INTS, INTS * 0.5])
def test_square_by_power(x: Any) -> None:
    want, got = x**2, (itf.asarray(x) ** 2).compute()
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


def test_negative_integer_powers() -> None:
    out = np.zeros_like(INTS)
    for power in (-1, np.int8(-2)):
        with pytest.raises(ValueError, match=r"a \*\* -\d: integers to negative integer powers"):
            itf.asarray(INTS) ** power
    with pytest.raises(ValueError, match="negative integer powers"):
        (itf.asarray(INTS) ** np.full_like(INTS, -1)).compute(out=out)
    assert ((itf.asarray(INTS) ** -1.0).compute() == INTS**-1.0).all()


@pytest.mark.parametrize("initial", [np.nan, np.inf, 1j, 1.5, -2, True])
@pytest.mark.parametrize("x", [INTS, INTS * 1.0, INTS.astype("c8")])
def test_initial(x: Any, initial: Any) -> None:
    try:
        want = x.sum(initial=initial)
    except Exception as why:
        with pytest.raises(type(why)):
            itf.asarray(x).sum(initial=initial).compute()
        return
    np.testing.assert_array_equal(itf.asarray(x).sum(initial=initial).compute(), want)


def test_a_size_is_no_bool() -> None:
    with pytest.raises(TypeError, match="a size is a bool"):
        itf.ones(True)


def test_no_copy_cannot_be_kept() -> None:
    with pytest.raises(ValueError, match="copy=False"):
        np.asarray(itf.asarray(X) + 1, copy=False)


# ---- pickling ----
def test_fused_functions_pickle() -> None:
    assert pickle.loads(pickle.dumps(doubled)) is doubled
    assert pickle.loads(pickle.dumps(itf.fuse(plain)))(X)[0] == 3
    bound = pickle.loads(pickle.dumps(Scale().scaled))
    assert bound(X)[0] == 3


def plain(x: Any) -> Any:
    return x + 2


def test_settings_are_checked_at_the_call() -> None:
    with pytest.raises(itf.ConfigError, match="max_pases"):
        itf.config(max_pases=1)


def test_messages_of_a_newcomers_mistakes() -> None:
    x = itf.asarray(X)
    for call, words in (
        (itf.sqrt, "sqrt takes 1 operand, not 0"),
        (lambda: itf.add(x), "add takes 2 operands, not 1"),
        (lambda: itf.fuse(lambda x, axis: x.sum(axis))(X, 0), "static"),
    ):  # fmt: skip
        with pytest.raises(TypeError, match=words):
            call()
    times = itf.fuse(lambda x, a: x * a)
    with pytest.raises(TypeError, match=r"complex number 1j.*0-d array"):
        times(X, 1j)
    assert times(X, np.array(1j))[0] == 1j
    with pytest.raises(itf.ShapeError, match="one array, and there are 2 expressions"):
        itf.compute(x + 1, x + 2, out=np.empty(5, "f4"))
    assert repr(itf.plan(x + 1)) == "<Plan of 1 on cpu, moves 40 bytes>"
