"""Containers of expressions: results keep their structure, and one plan makes them all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

import itfuse as itf
from itfuse.testing import assert_same

X = np.arange(6.0).reshape(2, 3)


class Pair(NamedTuple):
    low: Any
    high: Any


@dataclass
class Summary:
    mean: Any
    parts: Any
    label: str = "none"


def lazy() -> Any:
    return itf.asarray(X)


def nested(x: Any) -> dict[str, Any]:
    return {
        "total": x.sum(), "pair": Pair(x.min(), x.max()), "list": [x * 2, (x.mean(), None)],
        "summary": Summary(x.mean(0), {"a": x.sum(1)}, "rows"), "n": 3,
    }  # fmt: skip


def test_results_keep_the_structure() -> None:
    got = itf.compute(nested(lazy()))
    assert list(got) == ["total", "pair", "list", "summary", "n"] and got["n"] == 3
    assert type(got["pair"]) is Pair and type(got["list"]) is list
    assert got["list"][1][1] is None and type(got["list"][1]) is tuple
    assert type(got["summary"]) is Summary and got["summary"].label == "rows"
    assert_same(got["list"][0], X * 2)
    assert_same(got["pair"].high, np.asarray(5.0))
    assert_same(got["summary"].parts["a"], X.sum(1))
    first, second = itf.compute(lazy() * 2, {"a": lazy().sum()})
    assert_same(first, X * 2)
    assert_same(second["a"], np.asarray(15.0))


def test_one_argument_comes_back_as_it_was_given() -> None:
    x = lazy()
    assert type(itf.compute([x])) is list and type(itf.compute((x,))) is tuple
    assert_same(itf.compute(x), X)
    assert itf.compute({}) == {} and itf.compute([]) == []
    assert_same(itf.compute([[1, 2], [3, 4]]), np.array([[1, 2], [3, 4]]))  # numbers: an array
    assert_same(itf.compute([X, x])[0], X)
    with pytest.raises(TypeError, match="at least one"):
        itf.compute()


def test_a_container_is_one_plan() -> None:
    x = itf.spec((1000,), "float32")
    asked = {"mean": x.mean(), "top": [x.max(), (x * x).sum()]}
    plan = itf.plan(asked)
    assert (plan.passes, plan.bytes_read) == (1, 4000)
    flat = (x.mean(), x.max(), (x * x).sum())
    assert itf.explain(asked) == itf.explain(*flat)
    assert itf.visualize(asked).dot == itf.visualize(*flat).dot


def test_profile_takes_containers() -> None:
    x = itf.asarray(np.ones(10_000, np.float32))
    assert itf.profile({"mean": x.mean(), "top": [x.max()]}, repeat=2).passes == 1


def test_selections_in_containers() -> None:
    x = lazy()
    got = itf.compute({"some": x[x > 2], "all": x.sum()})
    assert got["some"].tolist() == [3, 4, 5]


def test_out_has_the_structure() -> None:
    x = lazy()
    room, row = np.empty((2, 3)), np.empty(3)
    got = itf.compute({"a": x * 2, "b": [x.sum(), x[0] + 1]}, out={"a": room, "b": [None, row]})
    assert got["a"] is room and got["b"][1] is row
    assert_same(room, X * 2)
    got = itf.compute({"a": x * 2, "b": x.sum()}, out={"a": room})
    assert got["a"] is room
    made = itf.compute(Summary(x + 1, None), out=Summary(room, None, None))
    assert made.mean is room
    one, two = itf.compute(x + 2, {"a": x}, out=(room, None))
    assert one is room and two["a"] is not X
    for wrong in ([room], {"c": room}, room):
        with pytest.raises(itf.ShapeError, match="out"):
            itf.compute({"a": x * 2, "b": x.sum()}, out=wrong)
    with pytest.raises(itf.ShapeError, match=r"out\['b'\]"):
        itf.compute({"a": x * 2, "b": [x.sum()]}, out={"a": room, "b": room})
    with pytest.raises(itf.ShapeError, match="out="):
        itf.compute(x, {"a": x}, out=room)


def test_what_no_container_is_says_so() -> None:
    with pytest.raises(TypeError, match="compute"):
        itf.compute({"a": lazy(), "b": {1, 2}})


@pytest.mark.parametrize(
    "call",
    [
        lambda x: itf.asarray([x, x]),
        lambda x: itf.asarray([[1.0, (2.0, x.sum())]]),
        lambda x: np.add(x, [x[0], x[1]]),
        lambda x: itf.bincount([x.sum()]),
        lambda x: itf.compress([x.sum() > 0], x),
        lambda x: x[[x.sum().astype(int)]],
        lambda x: itf.take(x, [x.sum().astype(int)]),
    ],
)
def test_lists_of_expressions_do_not_compute_in_secret(call: Any) -> None:
    with pytest.raises(itf.Unsupported, match=r"itf\.stack"):
        call(lazy())


def test_lists_of_arrays_and_numbers_are_arrays() -> None:
    assert_same(itf.asarray([X[0], X[1]]).compute(), X)
    assert_same(np.add(lazy(), [1, 2, 3]).compute(), np.add(X, [1, 2, 3]))
