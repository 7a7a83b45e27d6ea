"""The error bounds in the op table, measured: the CPU engine and the generated C++ on the host.

The truth is computed in a wider dtype: float64 for float32, long double for float64. A bound must
hold, and a row without one must be exact or correctly rounded.
"""

from __future__ import annotations

import numpy as np
import pytest
from support import host_cpp
from support.generated import HostEngine, plan_for

import itfuse as itf
from itfuse.dtypes import DTYPES, kind
from itfuse.ops import OPS
from itfuse.rows.op import ELEMENTWISE, Op
from itfuse.testing import WIDER, edge_values, measured_error

SIZE = 20_000
ROWS = [
    op for op in OPS.values()
    if op.kind == ELEMENTWISE and (op.ulp or op.ulp_c) and op.name != "float_power"
]  # fmt: skip
GROWING = ("power", "exp2")
"""Rows whose error of complex numbers grows with the operand; see docs/ops.md."""
FLOATS = [name for name in WIDER if name in DTYPES]


def samples(op: Op, name: str) -> list[np.ndarray]:
    """Return operands over the whole range of magnitudes and densely where functions bend."""
    made = []
    for at in range(op.arity):
        random = np.random.default_rng(at)
        spread = random.normal(size=SIZE // 4) * 10.0 ** random.integers(-6, 3, SIZE // 4)
        dense = [random.uniform(-3, 3, SIZE // 2), random.uniform(-1, 1, SIZE // 4)]
        x = np.concatenate([*dense, spread])
        if kind(np.dtype(name)) == "c":
            x = x + 1j * np.random.default_rng(at + 9).permutation(x)
        edges = edge_values(name, 500, at)
        if kind(np.dtype(name)) == "c" and op.name in GROWING:
            x, edges = np.where(np.abs(x) > 8, x / np.abs(x), x), edges[:0]
        made.append(np.concatenate([x.astype(name), edges]))
    return made


def applied(op: Op, name: str) -> tuple[list[np.ndarray], itf.Array] | None:
    operands = samples(op, name)
    try:
        lazy = getattr(itf, op.name)(*operands)
    except itf.DTypeError:
        return None
    return (operands, lazy) if kind(lazy.dtype) in "fc" else None


def too_far(op: Op, operands: list[np.ndarray], got: np.ndarray, where: str) -> str:
    """Return what is wrong, or an empty string."""
    error = measured_error(op, operands, got)
    if error is None:
        return ""
    name = operands[0].dtype.name
    bound = op.error(kind(operands[0].dtype))
    if DTYPES[name].narrow:
        bound = 1.0  # computed in float32, rounded once
    print(f"{where:4} {op.name:12} {name:10} {error:9.2f} of {bound:g}")
    wrong = error > max(bound, 0.5001)
    return f"{op.name}({name}) on {where}: {error:.2f} ulp, not {bound:g}" if wrong else ""


@pytest.mark.parametrize("name", FLOATS)
def test_bounds_hold_on_the_cpu_engine(name: str) -> None:
    cases = [(op, *made) for op in ROWS if (made := applied(op, name))]
    wrong = [too_far(op, operands, lazy.compute(), "cpu") for op, operands, lazy in cases]
    assert not any(wrong), [one for one in wrong if one]


@pytest.mark.skipif(bool(host_cpp.why_not()), reason=host_cpp.why_not())
@pytest.mark.parametrize("name", FLOATS)
def test_bounds_hold_for_the_generated_cpp(name: str) -> None:
    cases = [(op, *made) for op in ROWS if (made := applied(op, name))]
    plans = [plan_for("cub.iterator", lazy) for _, _, lazy in cases]
    engine = HostEngine(plans)
    wrong = [
        too_far(op, operands, engine.run(plan, lazy)[0], "c++")
        for (op, operands, lazy), plan in zip(cases, plans, strict=True)
    ]
    assert not any(wrong), [one for one in wrong if one]


def test_an_error_beyond_the_bound_is_seen() -> None:
    x = np.linspace(0.1, 2, 100).astype("f4")
    wrong = np.exp(x) * np.float32(1 + 1e-6)
    assert "exp(float32) on cpu" in too_far(OPS["exp"], [x], wrong, "cpu")
    assert not too_far(OPS["exp"], [x], np.exp(x), "cpu")
