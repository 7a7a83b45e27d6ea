"""What a fused function makes of its arguments and results: kinds, structures, methods, errors."""

from __future__ import annotations

import collections
import dataclasses
import functools
import math
import pickle
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import itfuse as itf
from itfuse.testing import assert_same

X = np.linspace(-2, 2, 12, dtype="f4")


# ---- numbers: every kind of question that Python asks of one ----
QUESTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "isinstance int": lambda x, n: x * 2 if isinstance(n, int) else x,
    "isinstance float": lambda x, n: x * 2 if isinstance(n, float) else x,
    "isinstance of several": lambda x, n: x * 2 if isinstance(n, (int, float)) else x,
    "isinstance str": lambda x, n: x * 2 if isinstance(n, str) else x,
    "class": lambda x, n: x * 2 if n.__class__ is int else x,
    "isscalar": lambda x, n: x * 2 if np.isscalar(n) else x,
    "callable": lambda x, n: x * 2 if callable(n) else x,
    "real": lambda x, n: x * n.real + n.imag,
    "conjugate": lambda x, n: x * n.conjugate(),
    "numpy function": lambda x, n: (x * np.sqrt(n), x * np.maximum(n, 2), np.hypot(x, n)),
    "numpy scalar first": lambda x, n: np.float64(2) * n + x,
    "numpy array first": lambda x, n: X * n - np.greater(X, n) + x,
    "round": lambda x, n: x * round(n) + round(n, 1),
    "floor and the like": lambda x, n: x * math.floor(n) + math.ceil(n) - math.trunc(n),
    "divmod": lambda x, n: x * divmod(n, 2)[0] + divmod(7, n)[1],
    "pow": lambda x, n: x * pow(n, 2) + 2**n,
    "full": lambda x, n: itf.full((12,), n) + x,
    "initial": lambda x, n: (x.sum(initial=n), x.max(initial=n), (x > 0).sum(initial=n)),
    "comparison": lambda x, n: itf.where(n > 1, x, -x),
}  # fmt: skip


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_number_answers_as_it_does_without_a_trace(question: str) -> None:
    function = QUESTIONS[question]
    f = itf.fuse(function)
    for n in (3, 2.5, 1, 1.5):
        if question == "initial" and isinstance(n, float):
            continue  # of an integer sum: refused
        want = function(itf.asarray(X), n)
        for _ in range(2):
            got = f(X, n)
            pairs = zip(got, want, strict=True) if isinstance(want, tuple) else ((got, want),)
            for one, other in pairs:
                assert_same(one, other.compute(), what=f"{question} {n!r}")
    assert f.traces <= 2


def test_cupy_hands_its_functions_over() -> None:
    """CuPy asks an operand that is not its own, `cupy.multiply(x, n)`, by this method."""

    def function(x: Any, n: Any) -> Any:
        kernel = types.SimpleNamespace(name="cupy_multiply")
        return n.__cupy_override_elementwise_kernel__(kernel, n, x)

    f = itf.fuse(function)
    for n in (2.0, 3.0):
        assert_same(f(X, n), n * X)
    assert f.traces == 1


def test_three_argument_pow() -> None:
    f = itf.fuse(lambda x, n: x * pow(n, 2, 5))
    for n in (3, 4, 3):
        assert_same(f(X, n), X * pow(n, 2, 5))


def test_a_bool_is_a_flag() -> None:
    def function(x: Any, flag: Any = True, other: Any = False) -> Any:
        x = x * 2 if flag is True else x
        return x + 1 if other else x - 1 if isinstance(other, bool) else x

    f = itf.fuse(function)
    for args in ((), (False,), (True, True), (False, True), (1,), (True,)):
        for _ in range(2):
            assert_same(f(X, *args), function(X, *args))
    assert f.traces == 5
    assert_same(itf.fuse(lambda x, d: x if d["on"] else -x)(X, {"on": False}), -X)
    assert_same(itf.fuse(lambda x, flag: x * flag)(X, True), X * True)


def test_what_a_number_does_not_know_is_refused_by_its_name() -> None:
    for name, function in {
        r"int\.bit_length\(n\)": lambda x, n: x * n.bit_length(),
        r"format\(n\)": lambda x, n: f"{n}",
        r"str\(n\)": lambda x, n: "w" + str(n),
        r"hash\(n\)": lambda x, n: {n: x},
        r"bool\(\(n == 1\)\)": lambda x, n: x if n in (1, 2) else -x,
        r"float\(n\)": lambda x, n: x * math.sqrt(n),
        r"array\(n\)": lambda x, n: x * np.full(12, n),
    }.items():
        with pytest.raises(itf.TraceError, match=f"^{name}: .* not known while it is traced"):
            itf.fuse(function)(X, 3)
    with pytest.raises(AttributeError, match="'int' object has no attribute 'shape'"):
        itf.fuse(lambda x, n: n.shape)(X, 3)


# ---- structures ----
def test_every_kind_of_dict() -> None:
    f = itf.fuse(lambda d: type(d)(d.items()) if type(d) is not collections.defaultdict else d)
    for given in (
        {"a": X}, collections.OrderedDict(a=X), collections.defaultdict(list, a=X)
    ):  # fmt: skip
        for _ in range(2):
            got = f(given)
            assert type(got) is type(given) and list(got) == ["a"]
            assert_same(got["a"], X)
    assert f.traces == 3
    assert itf.fuse(lambda d: d["b"] + [d["a"]])(collections.defaultdict(list, a=X))[0] is not None


def test_keys_that_are_equal_are_not_always_the_same() -> None:
    f = itf.fuse(lambda d: {key: x * 2 for key, x in d.items()})
    for key in (1, True, 1.0, (1, 2), (True, 2), "1", 1):
        (got,) = f({key: X})
        assert repr(got) == repr(key)
    assert f.traces == 6


def test_nan_is_one_static_argument() -> None:
    f = itf.fuse(lambda x, a: x + a[0], static=("a",))
    for _ in range(3):
        assert np.isnan(f(X, (float("nan"), np.float32("nan")))).all()
    assert f.traces == 1
    f(X, (-0.0, np.float64("nan")))
    assert f.traces == 2


def test_what_holds_itself_is_told() -> None:
    around: list[Any] = [X]
    around.append(around)
    deep: Any = X
    for _ in range(5000):
        deep = (deep,)
    f = itf.fuse(lambda x: x)
    for given in (around, deep, {"k": around}):
        with pytest.raises(TypeError, match=r"x holds itself, or is nested too deeply"):
            f(given)
    with pytest.raises(TypeError, match="returns a list"):
        itf.fuse(lambda x: around)(X)

    @itf.fuse
    def calls_itself(x: Any) -> Any:
        return calls_itself(x)

    with pytest.raises(RecursionError):
        calls_itself(X)


class Result:
    def __init__(self, y: Any) -> None:
        self.y = y


class Slotted:
    __slots__ = ("y",)

    def __init__(self, y: Any) -> None:
        self.y = y


@pytest.mark.parametrize("make", [
    Result, Slotted, lambda y: Result([{"deep": (y,)}]), lambda y: functools.partial(max, y),
    lambda y: (one for one in [y]), iter, lambda y: map(abs, [y]),
])  # fmt: skip
def test_objects_that_hold_what_was_traced_are_no_results(make: Any) -> None:
    for function in (lambda x, a: make(x + 1), lambda x, a: (x, {"k": make(x * a)})):
        for _ in range(2):
            with pytest.raises(TypeError, match=r"returns a \w+; return arrays and numbers"):
                itf.fuse(function)(X, 2)
    plain = Result(5)
    assert itf.fuse(lambda x: (x + 1, plain))(X)[1] is plain  # it holds nothing of the trace


def test_what_is_no_function_of_python_is_told() -> None:
    for given, message in (
        (3, "takes a function, not 3"), (np.sin, r"itf\.fuse\(sin\)"), (max, r"itf\.fuse\(max\)"),
    ):  # fmt: skip
        with pytest.raises(TypeError, match=message):
            itf.fuse(given)  # type: ignore[call-overload]
    assert_same(itf.fuse(itf.sin)(X), np.sin(X), ulp=2)


# ---- methods ----
class Base:
    scale = 2.0

    def __init__(self, w: float) -> None:
        self.w = w

    @itf.fuse
    def go(self, x: Any, *, a: Any = 1.0) -> Any:
        return x * self.w + a

    @itf.fuse
    @classmethod
    def above(cls, x: Any) -> Any:
        return x * cls.scale

    @classmethod
    @itf.fuse
    def below(cls, x: Any) -> Any:
        return x * cls.scale

    @itf.fuse
    @staticmethod
    def outer(x: Any) -> Any:
        return x * 3

    @staticmethod
    @itf.fuse
    def inner(x: Any) -> Any:
        return x * 3


class Derived(Base):
    scale = 5.0

    @itf.fuse
    def go(self, x: Any, *, a: Any = 1.0) -> Any:
        return Base.go(self, x, a=a) + super().go(x, a=a)


@dataclasses.dataclass
class Data:
    w: Any

    @itf.fuse
    def go(self, x: Any) -> Any:
        return x * self.w


def test_methods_called_through_their_class() -> None:
    one = Base(3.0)
    out = np.empty_like(X)
    for _ in range(3):
        assert_same(Base.go(one, X, a=0.5), X * 3 + np.float32(0.5))
        assert Base.go(one, X, out=out) is out
        assert_same(Derived(3.0).go(X), 2 * (X * 3 + 1))
        assert_same(Base.go(Derived(2.0), X), X * 2 + 1)
        assert_same(Data.go(Data(X), X), X * X)
    assert_same(Base.go(one, itf.asarray(X)).compute(), X * 3 + 1)
    later = type("Later", (), {"w": 4.0})
    later.go = itf.fuse(lambda self, x: x * self.w)  # type: ignore[attr-defined]
    assert_same(later().go(X), X * 4)  # type: ignore[attr-defined]
    assert_same(later.go(later(), X), X * 4)  # type: ignore[attr-defined]


def test_class_and_static_methods_in_either_order() -> None:
    for _ in range(2):
        for holder in (Base, Base(1.0)):
            assert_same(holder.above(X), X * 2)
            assert_same(holder.below(X), X * 2)
            assert_same(holder.outer(X), X * 3)
            assert_same(holder.inner(X), X * 3)
        assert_same(Derived.above(X), X * 5)
        assert_same(Derived(1.0).below(X), X * 5)
    assert Base.above.plan(X).passes == 1 and "x" in Base.outer.explain(X)


def test_a_bound_method_has_what_the_function_has() -> None:
    one = Base(3.0)
    assert one.go.__name__ == "go" and one.go.__qualname__ == "Base.go"
    before = one.go.traces
    one.go(X, a=7.0)
    assert one.go.traces >= before and one.go.signatures >= 1
    with pytest.raises(AttributeError):
        one.go._signature  # noqa: B018
    assert_same(pickle.loads(pickle.dumps(one.go))(X), X * 3 + 1)


# ---- many sizes ----
def test_more_sizes_than_are_remembered_are_no_cliff(monkeypatch: pytest.MonkeyPatch) -> None:
    from itfuse import fused

    monkeypatch.setattr(fused, "_KEPT", 64)
    f = itf.fuse(lambda x: x + 1)
    arrays = [np.ones(n, "f4") for n in range(1, 81)]
    for x in arrays:
        f(x)
    before = f.traces
    for _ in range(5):
        for x in arrays:
            f(x)
    assert f.signatures <= 64
    assert f.traces - before < 0.7 * 5 * len(arrays)  # the oldest to go would be each one of them
