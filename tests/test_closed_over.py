"""Arrays that a fused function closes over: every place that holds one is seen when it changes."""

from __future__ import annotations

import collections
import contextvars
import dataclasses
import functools
import gc
import itertools
import threading
import types
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import itfuse as itf

X = np.arange(3.0)


def full(value: float) -> Any:
    return np.full(3, float(value))


class Holder:
    kept: Any = None

    def __init__(self, w: Any = None) -> None:
        self.w = w


class Slots:
    __slots__ = ("__weakref__", "w")


@dataclasses.dataclass(slots=True)
class SlotData:
    w: Any


Pair = collections.namedtuple("Pair", "w")
GLOBAL: dict[str, Any] = {}
VARIABLE: contextvars.ContextVar[Any] = contextvars.ContextVar("VARIABLE")


def attribute_of_itself(x: Any) -> Any:
    return x * attribute_of_itself.w  # type: ignore[attr-defined]


def helper(x: Any, w: Any = None) -> Any:
    return x * GLOBAL["w"]


Place = tuple[Callable[[Any], Any], Callable[[Any], None]]
"""A function that reads an array, and what puts another one there."""


def _namespace() -> Place:
    space = types.SimpleNamespace()
    return lambda x: x * space.w, lambda w: setattr(space, "w", w)


def _local() -> Place:
    local = threading.local()
    return lambda x: x * local.w, lambda w: setattr(local, "w", w)


def _variable() -> Place:
    return lambda x: x * VARIABLE.get(), VARIABLE.set


def _slots() -> Place:
    held = Slots()
    return lambda x: x * held.w, lambda w: setattr(held, "w", w)


def _slot_data() -> Place:
    held = SlotData(None)
    return lambda x: x * held.w, lambda w: setattr(held, "w", w)


def _class() -> Place:
    one = Holder()
    return lambda x: x * one.kept, lambda w: setattr(Holder, "kept", w)


def _class_itself() -> Place:
    return lambda x: x * Holder.kept, lambda w: setattr(Holder, "kept", w)


def _hidden() -> Place:
    """The class has one until the object has its own."""
    one = Holder()
    Holder.kept = full(1)
    return lambda x: x * one.kept, lambda w: setattr(one, "kept", w)


def _function() -> Place:
    return attribute_of_itself, lambda w: setattr(attribute_of_itself, "w", w)


def _deque() -> Place:
    held: Any = collections.deque([None])
    return lambda x: x * held[0], lambda w: held.__setitem__(0, w)


def _default() -> Place:
    held: Any = collections.defaultdict(list)
    return lambda x: x * held["w"], lambda w: held.__setitem__("w", w)


def _tuple() -> Place:
    held = Holder()
    return lambda x: x * held.w[0].w, lambda w: setattr(held, "w", (Pair(w),))


def _helper() -> Place:
    return lambda x: helper(x) + 0, lambda w: GLOBAL.__setitem__("w", w)


def _partial() -> Place:
    held = Holder()
    bound = functools.partial(lambda x, held: x * held.w, held=held)
    return lambda x: bound(x) + 0, lambda w: setattr(held, "w", w)


def _wrapped() -> Place:
    held = Holder()

    def inner(x: Any) -> Any:
        return x * held.w

    @functools.wraps(inner)
    def outer(x: Any) -> Any:
        return inner(x) + 0

    return outer, lambda w: setattr(held, "w", w)


def _callable() -> Place:
    class Model:
        def __init__(self) -> None:
            self.layer = Holder()

        @property
        def w(self) -> Any:
            return self.layer.w

        def __call__(self, x: Any) -> Any:
            return x * self.w

    model = Model()
    return model, lambda w: setattr(model.layer, "w", w)


def _method_of_class() -> Place:
    """Only a method of the object's class names it."""

    class Model:
        def scaled(self, x: Any) -> Any:
            return x * GLOBAL["method"]

    model = Model()
    return lambda x: model.scaled(x) + 0, lambda w: GLOBAL.__setitem__("method", w)


def _nested() -> Place:
    held = Holder()
    inner = itf.fuse(lambda x: x * held.w)
    return lambda x: inner(x) + 0, lambda w: setattr(held, "w", w)


def _nested_method() -> Place:
    class Linear:
        def __init__(self) -> None:
            self.w: Any = None

        @itf.fuse
        def __call__(self, x: Any) -> Any:
            return x * self.w

    layer = Linear()
    return lambda x: layer(x) + 0, lambda w: setattr(layer, "w", w)


def _view() -> Place:
    held = Holder()
    return lambda x: x * held.w[::-1], lambda w: setattr(held, "w", w)


def _part() -> Place:
    """A part of an array, of which the function reads a part again."""
    held = Holder()
    return lambda x: x * held.w[1:], lambda w: setattr(held, "w", np.append([0.0, 0.0], w)[1:])


def _lazy() -> Place:
    held = Holder()
    return lambda x: x * held.w, lambda w: setattr(held, "w", itf.asarray(w) + 0)


def _other_library() -> Place:
    class Tensor:
        def __init__(self, w: Any) -> None:
            self.__array_interface__ = w.__array_interface__
            self.own = w

    held = Holder()
    return lambda x: x * itf.asarray(held.w), lambda w: setattr(held, "w", Tensor(w))


def _none_at_first() -> Place:
    held = Holder()
    return lambda x: x if held.w is None else x * held.w, lambda w: setattr(held, "w", w)


PLACES = [
    _namespace, _local, _variable, _slots, _slot_data, _class, _class_itself, _hidden, _function,
    _deque, _default, _tuple, _helper, _partial, _wrapped, _callable, _method_of_class, _nested,
    _nested_method, _view, _part, _lazy, _other_library, _none_at_first,
]  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_another_array_in_any_place_is_seen(place: Callable[[], Place]) -> None:
    function, put = place()
    f = itf.fuse(function)
    if place is _none_at_first:
        assert f(X)[2] == 2
    for value in (2, 2, 5, 5, 7):
        put(full(value))
        for _ in range(2):
            assert f(X).tolist() == (X * value).tolist()
    before = f.traces
    for _ in range(5):
        f(X)
    assert f.traces == before


@pytest.mark.parametrize("kept", ["first", "second"])
def test_every_place_of_one_array_is_guarded(kept: str) -> None:
    class Model:
        def __init__(self) -> None:
            self.first = self.second = full(2)
            self.inner = {"a": self.first, "b": [self.first]}

        @itf.fuse
        def go(self, x: Any) -> Any:
            return x * getattr(self, kept) + self.inner["b"][0] - self.inner["a"]

    one = Model()
    assert one.go(X)[2] == 4
    setattr(one, kept, full(5))
    assert one.go(X)[2] == 10
    one.inner["b"][0] = full(1)
    assert one.go(X)[2] == 9
    one.inner["a"] = full(0)
    assert one.go(X)[2] == 11


def test_every_place_of_one_object_that_holds_an_array_is_guarded() -> None:
    layer = Holder(full(2))
    model = types.SimpleNamespace(encoder=layer, decoder=layer, stack=[layer, layer])
    f = itf.fuse(lambda x: x * model.decoder.w + model.stack[1].w)
    assert f(X)[2] == 6
    model.decoder = Holder(full(5))
    assert f(X)[2] == 12
    model.stack[1] = Holder(full(0))
    assert f(X)[2] == 10


@pytest.mark.parametrize("holds", ["one", "none"])
def test_a_container_that_grows_is_seen(holds: str) -> None:
    some = [full(2)] if holds == "one" else []
    model = types.SimpleNamespace(layers=list(map(Holder, some)))
    named = dict(enumerate(some))

    def f(x: Any) -> Any:
        for w in (*some, *named.values(), *[layer.w for layer in model.layers]):
            x = x * w
        return x + 0

    fused = itf.fuse(f)
    for grow in (
        lambda: some.append(full(3)), lambda: named.__setitem__("new", full(5)),
        lambda: model.layers.append(Holder(full(7))), some.clear, lambda: None,
    ):  # fmt: skip
        for _ in range(2):
            assert fused(X).tolist() == f(X).tolist()
        grow()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of NumPy, about doing so
def test_shape_and_dtype_that_change_in_place_are_seen() -> None:
    w = np.arange(4.0)
    f = itf.fuse(lambda x: x + w)
    x = np.arange(2.0)[:, None]
    for shape in ((4,), (1, 4), (2, 2), (4,)):
        w.shape = shape
        for _ in range(2):
            assert np.array_equal(f(x), x + w)
    w.dtype = "i8"
    assert np.array_equal(f(x), x + w)
    w.strides = (0,)
    assert np.array_equal(f(x), x + w)


def test_an_array_that_is_found_nowhere_is_traced_each_time_and_told_of() -> None:
    def hide(w: Any) -> Callable[[], Any]:
        return itertools.repeat(w).__next__  # no way leads from an iterator to what it gives

    hidden = Holder()
    hidden.w = hide(full(2))
    f = itf.fuse(lambda x: x * hidden.w())
    for value in (2, 3):
        hidden.w = hide(full(value))
        for _ in range(2):
            with pytest.warns(RuntimeWarning, match=r"shape \(3,\).*each call.*as an argument"):
                assert f(X)[2] == 2 * value
    assert f.signatures == 0


def test_arrays_that_the_function_makes_are_no_reason_to_trace_again() -> None:
    def several(x: Any) -> Any:
        made = np.arange(3.0)
        made += 1
        view = made[::-1]
        return x * view + made, itf.asarray(made) * view[1:2] + np.float32(3)

    f = itf.fuse(several)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            assert f(X)[0].tolist() == (X * [3.0, 2, 1] + [1.0, 2, 3]).tolist()
    assert f.traces == 1


def test_objects_that_answer_anything_do_no_harm() -> None:
    class Careless:
        def __init__(self) -> None:
            self.__dict__["w"] = full(2)

        def __getattr__(self, name: str) -> Any:
            if name.startswith("s"):
                raise RuntimeError(name)
            return self

    one = Careless()
    f = itf.fuse(lambda x, _: x * one.w, static=("_",))
    for value in (2, 5):
        one.__dict__["w"] = full(value)
        for _ in range(2):
            assert f(X, one)[1] == value

    class Method(Careless):
        @itf.fuse
        def go(self, x: Any) -> Any:
            return x * self.w

    other = Method()
    assert other.go(X)[1] == other.go(X)[1] == 2


# ---- lifetime ----
def test_a_method_keeps_nothing_alive() -> None:
    class Parent:
        def __init__(self) -> None:
            self.w = full(2)
            self.children = [Holder(full(1)), self]
            self.children[0].parent = self  # type: ignore[attr-defined]
            self.children[0].all = self.children  # type: ignore[attr-defined]

        @itf.fuse
        def go(self, x: Any) -> Any:
            return x * self.w + self.children[0].w

    one = Parent()
    for _ in range(3):
        one.go(X)
    gone = [weakref.ref(one), weakref.ref(one.w)]
    del one
    gc.collect()  # once: what itfuse had for them goes with them
    assert [ref() is None for ref in gone] == [True, True]
    assert Parent.go.signatures == 0


def test_a_method_of_what_cannot_be_referred_to_weakly_keeps_nothing_alive() -> None:
    @dataclasses.dataclass(slots=True)
    class Layer:
        w: Any

        @itf.fuse
        def go(self, x: Any) -> Any:
            return x * self.w

    gone = []
    with pytest.warns(RuntimeWarning, match=r"a Layer cannot .*weakref_slot=True"):
        Layer(full(1)).go(X)
    for value in range(20):
        one = Layer(full(value))
        for _ in range(2):
            assert one.go(X)[1] == value
        one.w = full(7)
        assert one.go(X)[1] == 7
        gone.append(weakref.ref(one.w))
    del one
    gc.collect()
    assert not any(ref() is not None for ref in gone)
    assert Layer.go.signatures == 0 and not Layer.go._as_method()._objects


def test_failing_traces_and_builds_leave_no_locks() -> None:
    from itfuse.cache import BuildCache

    def fails(x: Any) -> Any:
        raise ValueError("mine")

    f = itf.fuse(fails)
    built = BuildCache()
    for n in range(1, 20):
        with pytest.raises(ValueError, match="mine"):
            f(np.ones(n))
        with pytest.raises(ValueError, match="mine"):
            built.get(n, lambda: fails(0))
    assert not f._tracing and not built._building
