"""The plan is a value with numbers; the numbers are asserted before any answer."""

from __future__ import annotations

import numpy as np
import pytest

import itfuse as itf
from itfuse.plan import make_plan
from itfuse.testing import assert_same
from itfuse.wording import toposort

X, Y = itf.spec((1000,), "float32"), itf.spec((1000,), "float32")
Z = itf.spec((1000,), "float64")


def reasons(plan: itf.Plan) -> set[str]:
    return {note.reason for note in plan.notes} - {"strategy"}


@pytest.mark.parametrize(
    ("expressions", "passes", "read", "written"),
    [
        ((X * 2 + 1,), 1, 4000, 4000),
        ((X + Y + X,), 1, 8000, 4000),
        ((X * Y + Z,), 1, 16000, 8000),
        ((abs(X).sum(),), 1, 4000, 4),
        ((itf.sqrt((X * X).sum()),), 1, 4000, 4),
        ((X - X.mean(),), 2, 8004, 4004),
        ((X.sum(), X.max(), (X * Y).mean()), 1, 8000, 12),
        ((X + Y, X - Y, X > Y), 1, 8000, 9000),
        ((((X - X.mean()) ** 2).mean(),), 2, 8004, 8),
        ((X.sum() + Y.sum(),), 2, 8004, 8),
        ((X.sum() + X.max(),), 1, 4000, 4),
        ((X.sum(), X.sum()), 1, 4000, 8),
        ((X, X), 1, 4000, 8000),
        ((X > 0, (X > 0).sum()), 2, 8000, 1008),
        ((itf.spec((1000, 1), "float32") * itf.spec((500,), "float32"),), 1, 6000, 2_000_000),
        ((itf.spec((0,), "float32") + 1,), 1, 0, 0),
        ((itf.spec((), "float32") + 1,), 1, 4, 4),
    ],
)
def test_passes_and_bytes(
    expressions: tuple[itf.Array, ...], passes: int, read: int, written: int
) -> None:
    plan = itf.plan(*expressions)
    assert (plan.passes, plan.bytes_read, plan.bytes_written) == (passes, read, written)
    assert plan.bytes_moved == read + written
    assert plan.floor_time(1000.0) == (read + written) / 1000
    assert [plan.stages[s].outputs[o].shape for s, o in plan.results] == [
        e.shape for e in expressions
    ]


def test_only_small_values_go_between_passes() -> None:
    plan = itf.plan((X - X.mean()) / itf.sqrt(((X - X.mean()) ** 2).mean()))
    assert plan.passes == 3
    assert plan.bytes_temporary == 8


def test_notes_say_why_not() -> None:
    assert reasons(itf.plan(X - X.mean())) == {"needs-result"}
    assert reasons(itf.plan(X + 1, Y + 1)) == {"no-common-input"}
    assert reasons(itf.plan(X + 1, X.sum())) == {"different-primitive"}
    wide = itf.spec((10, 1000), "float32")
    assert reasons(itf.plan(X + 1, wide + X)) == {"different-domain"}
    assert reasons(itf.plan(X + Y, X - Y)) == set()


def test_members_that_meet_late_share_a_pass() -> None:
    # x and y have nothing in common until the third reduction reads both.
    assert itf.plan(X.sum(), Y.sum(), (X * Y).sum()).passes == 1


def test_shared_subexpressions_are_computed_once() -> None:
    t = itf.exp(X)
    instrs = itf.plan(t * t + t, t - 1).stages[0].element.instrs
    assert sum(i.op == "exp" for i in instrs) == 1
    assert (X + Y)._node is (X + Y)._node


def test_the_same_memory_is_one_input() -> None:
    x = np.ones(100, "f4")
    assert itf.plan(itf.asarray(x) + itf.asarray(x)).bytes_read == 400


def test_scalars_and_sizes_are_not_in_the_key() -> None:
    keys = {
        itf.plan(itf.spec((n,), "float32") * a + b).stages[0].key
        for n, a, b in ((10, 1.0, 2.0), (1000, -0.0, 3.0), (7, 5.0, 5.0), (9, float("nan"), 1.0))
    }
    assert len(keys) == 1
    assert itf.plan(X * 2).stages[0].key != itf.plan(Z * 2).stages[0].key
    assert itf.plan(X * 2).stages[0].key != itf.plan(X + 2).stages[0].key


def test_negative_zero_stays_itself() -> None:
    x = np.zeros(3, "f4")
    lazy = itf.asarray(x)
    assert_same((lazy * -0.0).compute(), x * np.float32(-0.0))
    assert_same((lazy * 0.0).compute(), x * np.float32(0.0))


def test_until_shows_the_pipeline_step_by_step() -> None:
    double = ~~(itf.spec((4,), "int32"))
    assert make_plan((double._node,), until="simplify").roots[0].op.name == "input"
    assert make_plan((X.sum()._node,), until="fuse").stages[0].strategy == ""


def test_deep_and_wide_graphs() -> None:
    lazy = X
    for _ in range(5000):
        lazy = lazy + Y
    assert len(toposort((lazy._node,))) == 5002
    assert itf.plan(lazy).bytes_read == 8000
    assert "..." in repr(lazy)
    many = [itf.spec((10,), "float32") for _ in range(200)]
    total = many[0]
    for one in many[1:]:
        total = total + one
    assert itf.plan(total).bytes_read == 200 * 40


def test_a_plan_can_be_pickled_nodes_included() -> None:
    import pickle

    lazy = itf.asarray(np.arange(4.0))
    copy = pickle.loads(pickle.dumps((lazy * 2)._node))
    assert copy is (lazy * 2)._node


def test_rows_are_classified_for_vector_loads() -> None:
    x = np.zeros((64, 96), "f4")

    def inputs(*views: np.ndarray) -> list[tuple[str, int | None, int | None]]:
        lazy = sum((itf.asarray(view) for view in views[1:]), itf.asarray(views[0]))
        return [(i.layout, i.inner, i.turned) for i in itf.plan(lazy).stages[0].inputs]

    assert inputs(x) == [("linear", None, None)]
    assert inputs(x[:, ::-1]) == [("strided", -1, None)]
    assert inputs(x[:, ::2]) == [("strided", 2, None)]
    assert inputs(x, x[0]) == [("linear", None, None), ("strided", 1, None)]
    assert inputs(x, x[:, :1]) == [("linear", None, None), ("strided", 0, None)]
    assert inputs(np.zeros((96, 64), "f4").T, x) == [("strided", None, 0), ("linear", None, None)]
    assert inputs(np.zeros((3, 64), "f4").T) == [("strided", None, None)]  # too short to turn
