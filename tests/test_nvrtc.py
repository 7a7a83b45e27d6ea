"""NVRTC compiles for every supported architecture with no driver, and its report is read."""

from __future__ import annotations

import pytest
from support import nvrtc

# `plain` needs few registers; `heavy` keeps more alive than a block of 1,024 threads may have;
# `calls` has an array on the stack in a function that is not inlined, and shared memory.
SOURCE = """
extern "C" __global__ void plain(const float* x, float* y, long long n) {
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = __fadd_rn(__fmul_rn(x[i], 2.0f), 1.0f);
}
extern "C" __global__ void __launch_bounds__(1024) heavy(const double* x, double* y, int n) {
  double v[40];
#pragma unroll
  for (int i = 0; i < 40; ++i) v[i] = x[i * n + threadIdx.x];
  for (int r = 0; r < n; ++r) {
#pragma unroll
    for (int i = 0; i < 40; ++i) v[i] = v[(i + 1) % 40] * v[i] + v[(i + 7) % 40];
  }
#pragma unroll
  for (int i = 0; i < 40; ++i) y[i * n + threadIdx.x] = v[i];
}
__device__ __noinline__ float far(float x, int n) {
  float a[40];
  for (int i = 0; i < n; ++i) a[(i * 7) % 40] = x * i;
  return a[n % 40];
}
extern "C" __global__ void calls(const float* x, float* y, int n) {
  __shared__ float part[64];
  part[threadIdx.x] = far(x[threadIdx.x], n);
  __syncthreads();
  y[threadIdx.x] = part[63 - threadIdx.x];
}
"""


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_120"])
def test_kernels_compile_and_report_their_resources(arch: str) -> None:
    nvrtc.require()
    cubin, report = nvrtc.compile_cubin(SOURCE, arch)
    assert cubin.startswith(b"\x7fELF")
    plain, heavy, calls = (report.functions[name] for name in ("plain", "heavy", "calls"))
    assert plain.registers is not None
    assert 0 < plain.registers <= 32
    assert plain == nvrtc.Resources(registers=plain.registers)
    assert heavy.registers == 64
    assert heavy.spill_stores > 0
    assert heavy.spill_loads > 0
    assert calls.shared >= 256
    assert sum(one.stack for name, one in report.functions.items() if name != "heavy") >= 160
    assert report.spilled == heavy.spill_stores + heavy.spill_loads


def test_a_compile_error_holds_the_log() -> None:
    nvrtc.require()
    with pytest.raises(Exception, match="no_such_function"):
        nvrtc.compile_cubin('extern "C" __global__ void k() { no_such_function(); }', "sm_90")


def test_a_report_is_read_by_function() -> None:
    log = """\
ptxas info    : Compiling entry function 'k' for 'sm_90'
ptxas info    : Function properties for k
ptxas         .     160 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Function properties for _Z3farfi
ptxas         .     16 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 23 registers, used 1 barriers, 160 bytes cumulative stack size, 256 bytes smem
"""
    assert nvrtc.read_resources(log) == {
        "k": nvrtc.Resources(23, stack=160, spill_stores=8, spill_loads=12, shared=256),
        "_Z3farfi": nvrtc.Resources(stack=16),
    }
