"""cuda.compute builds for a named architecture on a machine without driver and GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import nvrtc, stub_driver

pytestmark = pytest.mark.skipif(bool(stub_driver.why_not()), reason=stub_driver.why_not())

BUILD = """
import cuda.compute as cc
from cuda.compute.op import RawOp
from cuda.core import Program, ProgramOptions

SOURCE = '''
extern "C" __device__ void scale(void* state, void* x, void* out) {
  *(float*)out = __fmul_rn(*(const float*)x, *(const float*)state);
}
'''
options = ProgramOptions(
    arch="sm_80", std="c++17", relocatable_device_code=True, link_time_optimization=True
)
code = Program(SOURCE, "c++", options=options).compile("ltoir").code
op = RawOp(ltoir=code, name="scale", state=bytes(4), state_alignment=4)
array = cc.ProxyArray("float32")
built = cc.make_unary_transform(d_in=array, d_out=array, op=op, compute_capability=[80, 90, 120])
print("bytes", len(cc.serialize(built)))
try:
    cc.make_unary_transform(d_in=array, d_out=array, op=op)
except RuntimeError:
    print("no device")
"""


def test_the_stub_exports_what_the_libraries_import(tmp_path: Path) -> None:
    assert {"cuInit", "cuLaunchKernel"} <= set(stub_driver.symbols())
    assert stub_driver.build(tmp_path / "lib") == tmp_path / "lib" / "libcuda.so.1"


def test_cuda_compute_builds_for_named_architectures(tmp_path: Path) -> None:
    nvrtc.require()
    done = stub_driver.run_with_stub(BUILD, tmp_path)
    assert done.returncode == 0, done.stderr
    first, last = done.stdout.splitlines()
    assert int(first.removeprefix("bytes ")) > 10_000
    assert last == "no device"


def test_a_program_that_fails_says_so(tmp_path: Path) -> None:
    done = stub_driver.run_with_stub("raise SystemExit('not today')", tmp_path)
    assert (done.returncode, done.stderr.strip()) == (1, "not today")


# Real stages, by strategy: what the planner gives for an expression over X, Y, Z (float32), I
# (int16), B (bool), a strided S and one element E.
STAGES = {
    "transforms of pointers": (
        ("cub.pointers", "X * 2 + 1"),
        ("cub.pointers", "X * Y + E"),
        ("cub.pointers", "B"),
    ),
    "transforms of an iterator": (
        ("cub.iterator", "itf.where(B, X, S) + I"),
        ("cub.iterator", "X + Y, X > Z"),
    ),
    "reductions of pointers": (
        ("cub.pointers", "X.sum()"),
        ("cub.pointers", "itf.sqrt(X.sum() * 2)"),
        ("cub.pointers", "B.any()"),
    ),
    "reductions of an iterator": (
        ("cub.iterator", "itf.sqrt((S * S).sum())"),
        ("cub.iterator", "(X * I).mean(), abs(X).max(), (I > 0).all()"),
    ),
    "selections": (
        ("cub.pointers", "X[X > 0]"),
        ("cub.pointers", "I[I % 3 == 1]"),
    ),
    "float16 and bfloat16": (
        ("cub.pointers", "H * 2 + 1"),
        ("cub.iterator", "H.sum(), (H * K).max()"),
        ("cub.iterator", "H + K, H > K, K"),
    ),
    "complex": (
        ("cub.pointers", "C * C + 1j"),
        ("cub.pointers", "C.sum()"),
        ("cub.iterator", "(C * X).prod(), abs(C).sum(), C.max()"),
        ("cub.iterator", "C / 2, C.imag"),
    ),
}

BUILD_STAGES = """
import itfuse as itf
from support.generated import plan_for
import numpy as np
from itfuse.engines.cuda.cub import CubBuilt
from itfuse.lower.cpp import lower

X, Y, Z, I, B = (itf.asarray(np.ones((6, 40), name)) for name in ("f4", "f4", "f4", "i2", "?"))
H, K, C = (itf.asarray(np.ones((6, 40), name)) for name in ("f2", "bfloat16", "c8"))
S = itf.asarray(np.ones((6, 80), "f4")[::-1, ::2])
E = itf.asarray(np.ones((1, 1), "f4"))

def build(strategy, expressions, capability):
    asked = eval(expressions)
    plan = plan_for(strategy, *(asked if isinstance(asked, tuple) else (asked,)))
    (stage,) = plan.stages
    assert stage.strategy == strategy
    lowered = lower(stage, "itf_test")
    return CubBuilt(stage, lowered, f"sm_{capability[0]}", capability)

"""


def lines_of(code: str, directory: Path) -> list[str]:
    done = stub_driver.run_with_stub(BUILD_STAGES + code, directory)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("what", STAGES)
def test_stages_build_for_named_architectures(what: str, tmp_path: Path) -> None:
    nvrtc.require()
    code = f"for one in {STAGES[what]!r}: print(len(build(*one, [80, 90, 120]).serialize()))"
    sizes = [int(line) for line in lines_of(code, tmp_path)]
    assert len(sizes) == len(STAGES[what])
    # Machine code of three architectures.
    assert all(size > 30_000 for size in sizes), sizes


def test_a_stage_that_does_not_build_shows_its_source(tmp_path: Path) -> None:
    nvrtc.require()
    code = """
from itfuse.ops import OPS
OPS["cbrt"].cpp["f"] = "no_such_function({0})"
try:
    build("cub.iterator", "itf.cbrt(X)", [90])
except itf.CompileError as why:
    print("no_such_function" in why.source and "no_such_function" in why.log)
"""
    assert lines_of(code, tmp_path) == ["True"]


def test_cubs_own_addition_is_not_used_for_floats(tmp_path: Path) -> None:
    """The linker contracts it with the multiplication that ends exp: one rounding, not two."""
    nvrtc.require()
    cases = {
        ("cub.iterator", "itf.exp(X).sum()"): False,
        ("cub.iterator", "itf.exp(X.astype('float64')).sum()"): False,
        ("cub.pointers", "X.sum()"): False,
        ("cub.pointers", "X.astype('float32').sum() + 1"): False,
        ("cub.iterator", "(I * 2).sum()"): True,  # integers have no rounding to lose
    }
    code = f"""
import cuda.compute as cc
for one in {list(cases)!r}:
    print(isinstance(build(*one, [90])._local.call.op, cc.OpKind))
"""
    assert lines_of(code, tmp_path) == [str(own) for own in cases.values()]
