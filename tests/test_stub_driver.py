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
