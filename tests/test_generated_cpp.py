"""The C++ of real stages, compiled and run by the host, gives what the CPU engine gives."""

from __future__ import annotations

import dataclasses
import os
import random
from typing import Any

import numpy as np
import pytest
from support import generated, host_cpp
from support.generated import HostEngine, plan_for

import itfuse as itf
from itfuse.dtypes import DTYPES, kind
from itfuse.ops import OPS
from itfuse.plan.stages import Plan
from itfuse.rows.op import COMPOSITE, ELEMENTWISE, REDUCTION, Op
from itfuse.testing import assert_same, edge_values, exponents, random_expression
from itfuse.wording import toposort

pytestmark = pytest.mark.skipif(bool(host_cpp.why_not()), reason=host_cpp.why_not())

NAMES = list(DTYPES)
FLOATS = ("float32", "float64")
ROWS = [op for op in OPS.values() if op.kind == ELEMENTWISE and op.name != "astype"]
REDUCTIONS = [op for op in OPS.values() if op.kind == REDUCTION]
STRATEGIES = ("tile", "cub.pointers", "cub.iterator")
SIZE = 603

Case = tuple[str, itf.Array, float]  # what it is, the expression, allowed distance in ulp


def check(groups: list[list[Case]], strategies: tuple[str, ...] = STRATEGIES) -> None:
    """Run each group as one plan by each strategy that takes it, all from one compilation."""
    runs: list[tuple[list[Case], Plan]] = []
    for cases in groups:
        for strategy in strategies:
            # What the strategy refuses is left out; `cub.iterator` takes everything.
            try:
                runs.append((cases, plan_for(strategy, *(lazy for _, lazy, _ in cases))))
            except itf.Unsupported:
                assert strategy == "cub.pointers"
    engine = HostEngine(plan for _, plan in runs)
    for cases, plan in runs:
        lazies = [lazy for _, lazy, _ in cases]
        wants = itf.compute(*lazies) if len(cases) > 1 else (lazies[0].compute(),)
        for (what, lazy, ulp), want, got in zip(
            cases, wants, engine.run(plan, *lazies), strict=True
        ):
            label = f"{what} by {plan.stages[0].strategy}"
            assert_same(got, want, ulp, label, lazy._node.op.scale)


def cases_of(op: Op, *operands: Any) -> list[Case]:
    """Return the row applied to these operands, or nothing where it does not take them."""
    try:
        lazy = getattr(itf, op.name)(*operands)
    except itf.DTypeError:
        return []
    # Both NumPy and the host's library may be off by the row's ulp.
    error = 2 * op.error(DTYPES[lazy._node.srcs[-1].dtype.name].kind)
    return [(f"{op.name}({', '.join(str(x.dtype) for x in operands)})", lazy, error)]


@pytest.mark.parametrize("left", NAMES)
def test_every_row_and_pair_of_dtypes(left: str) -> None:
    x = edge_values(left, SIZE, 1)
    condition = edge_values("bool", SIZE, 3)
    groups = [[case for op in ROWS if op.arity == 1 for case in cases_of(op, x)]]
    for right in NAMES:
        y = edge_values(right, SIZE, 2)
        group = [case for op in ROWS if op.arity == 3 for case in cases_of(op, condition, x, y)]
        for op in (op for op in ROWS if op.arity == 2):
            group += cases_of(op, x, exponents(x, y) if "power" in op.name else y)
        groups.append(group)
    check(groups, ("tile", "cub.iterator"))


def test_no_row_is_left_out() -> None:
    for op in ROWS:
        one = [[np.ones(1, name)] * op.arity for name in NAMES]
        assert any(cases_of(op, *operands) for operands in one), op.name


@pytest.mark.parametrize("name", NAMES)
def test_every_row_alone_on_pointers(name: str) -> None:
    x, y = edge_values(name, SIZE, 1), edge_values(name, SIZE, 2)
    cases = [case for op in ROWS if op.arity == 1 for case in cases_of(op, x)]
    for op in (op for op in ROWS if op.arity == 2):
        cases += cases_of(op, x, exponents(x, y) if "power" in op.name else y)
        cases += cases_of(op, x, x.dtype.type(2))  # a runtime scalar
    check([[case] for case in cases], ("cub.pointers",))


def fitting(x: np.ndarray) -> np.ndarray:
    """Return floats between 0 and 100."""
    if kind(x.dtype) == "c":
        return fitting(x.real) + x.dtype.type(1j) * fitting(x.imag)
    return np.clip(np.nan_to_num(x.astype("f8"), posinf=100, neginf=0), 0, 100).astype(x.dtype)


@pytest.mark.parametrize("source", NAMES)
def test_every_cast(source: str) -> None:
    x = edge_values(source, SIZE, 3)
    groups = [[(f"to {name}", itf.asarray(x).astype(name), 0.0) for name in NAMES]]
    if kind(x.dtype) in "fc":  # what does not fit an integer is the machine's own
        groups[0] = [case for case in groups[0] if kind(case[1].dtype) in "fbc"]
        fits = fitting(x)
        groups.append([(f"to {n}", itf.asarray(fits).astype(n), 0.0) for n in NAMES])
    alone = [[case] for cases in groups for case in cases]
    check(groups, ("tile", "cub.iterator"))
    check(alone, ("cub.pointers",))


@pytest.mark.parametrize("name", FLOATS)
def test_composites(name: str) -> None:
    x = edge_values(name, SIZE, 9)
    rows = [op for op in OPS.values() if op.kind == COMPOSITE and op.name != "mean"]
    more = {"clip": (-1, 2), "divmod": (x[::-1].copy(),), "isclose": (x[::-1].copy(),)}
    cases = []
    for op in rows:
        made = getattr(itf, op.name)(x, *more.get(op.name, ()))
        cases += [(op.name, one, 8.0) for one in (made if isinstance(made, tuple) else (made,))]
    check([cases])


def exact(name: str, size: int) -> np.ndarray:
    """Return values whose every partial sum and product is exact, whatever the order."""
    if DTYPES[name].kind not in "fc":
        return edge_values(name, size, size)
    x = np.random.default_rng(size).choice([0.5, -0.5, 1, -1, 2, -2], size).astype(name)
    if DTYPES[name].part:
        x *= np.random.default_rng(size).choice([1, 1j, -1j], size)
    x[1::2] = 1 / x[: size // 2 * 2 : 2]
    return x


@pytest.mark.parametrize("name", NAMES)
def test_reductions_with_prologue_and_epilogue(name: str) -> None:
    scalar = np.dtype(name).type(1)
    groups: list[list[Case]] = []
    for size in (0, 1, 2, SIZE):
        values = {"exact": exact(name, size)}
        if name in FLOATS and size:
            values["nan"] = edge_values(name, size, size) + 0.0  # a tie of zeros has no sign
            values["inf"] = np.where(np.isnan(values["nan"]), 1, values["nan"])
        for values_are, x in values.items():
            lazy = itf.asarray(x)
            rows = [op for op in REDUCTIONS if (size or op.of_nothing)]
            if values_are != "exact":
                rows = [op for op in rows if op.name not in ("sum", "prod")]
            plain = [(op, getattr(itf, op.name)(lazy)) for op in rows]
            mapped = [(op, getattr(itf, op.name)(lazy * scalar)) for op in rows]
            after = [(op, (one + 1) * scalar - one) for op, one in mapped]
            for pairs in (plain, mapped, after):
                # The sign of a complex product's zero depends on the side of the first accumulator.
                ulp = 1.0 if DTYPES[name].part else 0.0
                cases = [(f"{op.name}({values_are} {name}[{size}])", one, ulp) for op, one in pairs]
                groups += [cases, *([case] for case in cases)] if size == SIZE else [cases]
            if size:
                few = edge_values("int8", size, size).astype(name)
                groups.append([(f"mean({name}[{size}])", itf.mean(few), 0.0)])
    check(groups, ("cub.iterator",))


@pytest.mark.parametrize("name", NAMES)
def test_tile_reductions_are_the_cpu_engines_bit_for_bit(name: str) -> None:
    groups: list[list[Case]] = []
    for size in (0, 1, 33, 1027, 30_011):
        x = edge_values(name, size, size)
        if name in FLOATS:  # rounding everywhere: another order would be seen
            x = np.random.default_rng(size).normal(size=size).astype(name)
            x[::5] += 1
        spread, shifted = np.repeat(x, 2)[::2], np.append(x[:1], x)[x[:1].size :]
        for lazy in (itf.asarray(x), itf.asarray(spread), itf.asarray(shifted) * x):
            rows = [op for op in REDUCTIONS if size or op.of_nothing]
            pairs = [(op, getattr(itf, op.name)(lazy)) for op in rows]
            cases = [(f"{op.name} {name}[{size}]", one, 0.0) for op, one in pairs]
            after = [(f"{op.name} {name}[{size}] + 1", one + 1, 0.0) for op, one in pairs]
            groups += [cases, after] if size < 30_011 else [cases, *([case] for case in after)]
    check(groups, ("tile",))


@pytest.mark.parametrize("name", ["int8", "int16", "float32", "float64"])
def test_layouts(name: str) -> None:
    """Every way in which a row can be loaded: forwards, backwards, with gaps, across, repeated."""
    groups: list[list[Case]] = []
    for shape in ((4099,), (5, 1000), (3, 64, 70), (67, 5, 33), (33, 32), (2, 3, 5, 7)):
        whole = edge_values("int8", int(np.prod(shape)) * 6, 1).astype(name)
        x = whole[: np.prod(shape)].reshape(shape)
        y = whole[-x.size :].reshape(shape)
        views = {
            f"step {step}": np.repeat(x, abs(step), axis=-1)[..., ::step]
            for step in (-3, -1, 2, 3, 4, 5)
        }
        views |= {"one": x[..., :1], "row": x[..., :1, :] if x.ndim > 1 else x[:1], "odd": y}
        views["odd"] = np.append(x.ravel()[:1], x)[1:].reshape(shape)
        for first, second in ((-1, 0), (-1, -2), (0, -2)) if x.ndim > 1 else ():
            moved = np.ascontiguousarray(np.swapaxes(x, first, second))
            views[f"across {first} {second}"] = np.swapaxes(moved, first, second)
        for what, laid in views.items():
            lazy = itf.asarray(laid)
            groups.append([(f"{what} {shape}", lazy * 2, 0.0)])
            groups.append([(f"{what} {shape} + y", lazy + y, 0.0)])
            groups.append([(f"sum {what} {shape}", (lazy * y).sum(), 0.0)])
        turned = [itf.asarray(v) for k, v in views.items() if k.startswith("across")]
        if turned:
            groups.append([(f"mixed {shape}", sum(turned, itf.asarray(views["step 2"]) - y), 0.0)])
    check(groups, ("tile",))


def test_values_carried_from_pass_to_pass() -> None:
    x = np.random.default_rng(0).integers(-50, 50, SIZE)
    lazy = itf.asarray(x)
    centred = lazy - lazy.min()
    spread = centred / ((centred * centred).max() + 1)
    assert plan_for("tile", spread).passes == 3
    check([[("spread", spread, 0.0)], [("total", centred.sum() * 2 + lazy.max(), 0.0)]])


# They show the sign of a NaN, which for a computed one (0 / 0) is the machine's choice.
SHOW_SIGNS = ("signbit", "copysign")
SHAPES = [(257,), (1,), (3, 5, 7), (13, 1, 29), (0,), ()]


def view(array: np.ndarray, how: int) -> np.ndarray:
    """Return another array of the same shape and values, laid out differently."""
    if array.ndim == 0 or how == 0:
        return array
    if how == 1:
        return np.asfortranarray(array)
    if how == 2:
        return np.ascontiguousarray(np.flip(array))[(slice(None, None, -1),) * array.ndim]
    if how == 3:
        return np.broadcast_to(array[..., :1], array.shape)
    if how == 4:  # a start that no vector is aligned to
        return np.append(array.ravel()[:1], array)[1:].reshape(array.shape)
    return np.repeat(array, 3, axis=-1)[..., ::3]


def drawn(seed: int) -> Case:
    """Return a random expression over arrays of random dtypes and layouts."""
    draw = random.Random(seed)
    shape = draw.choice(SHAPES)
    arrays = [
        view(edge_values(draw.choice(NAMES), int(np.prod(shape)), seed + k).reshape(shape),
             draw.randrange(6))
        for k in range(draw.randint(1, 4))
    ]  # fmt: skip
    if len(shape) > 1:  # one row and one column, which broadcast
        arrays += [edge_values("int16", shape[-1], seed), edge_values("float32", shape[0], seed)
                   .reshape(-1, *(1,) * (len(shape) - 1))]  # fmt: skip
    lazy = random_expression(draw.randrange(2**32), arrays, draw.randint(1, 30))
    while any(node.op.name in SHOW_SIGNS for node in toposort((lazy._node,))):
        lazy = random_expression(draw.randrange(2**32), arrays, draw.randint(1, 30))
    return f"ITFUSE_SEED={seed}", lazy, 0.0


@pytest.mark.parametrize("part", range(4))
def test_random_expressions(part: int) -> None:
    # `make fuzz` draws new ones; ITFUSE_SEED=<the seed shown> draws one of these again.
    chosen = os.environ.get("ITFUSE_SEED")
    first = int(chosen) if chosen else (1_522_373_536, 1000, 2000, 3000)[part]
    check([[drawn(first + k)] for k in range(1 if chosen else 30)])


def test_the_sweep_sees_a_wrong_template(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.float32([1, 2, 3])
    cases = [("multiply", itf.multiply(x, np.float32(3)) + x, 0.0)]
    check([cases])
    monkeypatch.setitem(OPS["multiply"].cpp, "f", "{0}")
    for strategy in STRATEGIES:
        with pytest.raises(AssertionError, match="multiply by " + strategy):
            check([cases], (strategy,))
    monkeypatch.undo()
    monkeypatch.setitem(OPS["maximum"].cpp, "f", "{0}")
    with pytest.raises(AssertionError, match="max by cub"):
        check([[("max", (itf.asarray(x) * 2).max(), 0.0)]], ("cub.iterator",))


@pytest.mark.parametrize(
    ("reduces", "right", "wrong", "message"),
    [
        (False, "last < s.n", "last <= s.n", "writes outside"),
        (False, "if (at >= vectors) return;", "if (at > 0) return;", "alignment or filling"),
        (True, "int distance = 16; distance > 0; distance /= 2",  # another tree
         "int distance = 1; distance < 32; distance *= 2", "elements differ"),
        (True, "*s.finished = 0;", ";", "leaves its count"),
        (True, "  if (threadIdx.x % 32 == 0)", "  if (threadIdx.x == 7) __syncthreads();\n"
         "  if (threadIdx.x % 32 == 0)", "wait for each other forever"),
    ],
)  # fmt: skip
def test_a_wrong_kernel_is_seen(
    reduces: bool, right: str, wrong: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = itf.asarray(np.random.default_rng(0).normal(size=20_000).astype("f4"))
    lower_tile = generated.lower_tile

    def broken(stage: Any, name: str, aligned: bool, arch: str) -> Any:
        kernel = lower_tile(stage, name, aligned, arch)
        assert right in kernel.source or aligned
        return dataclasses.replace(kernel, source=kernel.source.replace(right, wrong))

    monkeypatch.setattr(generated, "lower_tile", broken)
    with pytest.raises((AssertionError, host_cpp.HostError), match=message):
        check([[("x", x.sum() if reduces else x * 2, 0.0)]], ("tile",))
