"""NVRTC compiles for every supported architecture with no driver, and its report is read."""

from __future__ import annotations

import contextlib
import re

import numpy as np
import pytest
from support import generated, nvrtc

import itfuse as itf
from itfuse.dtypes import DTYPES
from itfuse.engines.null import probe_source
from itfuse.lower import lower_tile
from itfuse.lower.cpp import lower
from itfuse.ops import INPUT, OPS
from itfuse.plan.stages import Stage
from itfuse.rows.op import ELEMENTWISE, REDUCTION

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


ARCHS = ("sm_80", "sm_90", "sm_120")
ROWS = [op for op in OPS.values() if op.kind == ELEMENTWISE and op.name != "astype"]
REDUCTIONS = [op for op in OPS.values() if op.kind == REDUCTION]

# CUDA's own sine of a large float64 keeps its argument's bits on the stack.
BARE = """
extern "C" __global__ void bare(double* x) {
  x[threadIdx.x] = sin(x[threadIdx.x]) + cos(x[threadIdx.x]) + tan(x[threadIdx.x]);
}
"""

FAR_SINES = (
    r"(sin|cos|tan|sinh|cosh|tanh|exp|exp2|expm1|power|float_power|sinc|j0|j1|gamma|lgamma)_\d"
)
"""Rows that call it, or a complex function that does; and the large ones."""

MAPPED = """
extern "C" __global__ void NAME_mapped(MapState state, Item* out, ARGUMENTS) {
  NAME_map(&state, LOADS, out + threadIdx.x);
}
"""


def tiles(stages: dict[str, Stage], arch: str) -> tuple[str, str, int]:
    """Write the tile kernels of each stage, its name in the symbol; for sm_90 both variants."""
    kernels = [
        lower_tile(stage, f"{name}_{'na'[aligned]}", bool(aligned)).source
        for name, stage in stages.items()
        for aligned in ((1, 0) if arch == "sm_90" else (1,))
    ]
    return generated.unit(kernels), arch, len(kernels)


def check_resources(source: str, arch: str, kernels: int, tolerated: str = "$") -> None:
    """Assert that no kernel spills or has local memory, `tolerated` names not more than a bit."""
    _, report = nvrtc.compile_cubin(BARE + source, arch)
    stack = max(8, report.functions.pop("bare").stack)
    entries = {name: one for name, one in report.functions.items() if one.registers is not None}
    assert len(entries) == kernels
    for name, one in report.functions.items():
        some = re.match(tolerated, name) is not None
        assert one.stack <= (stack if some else 0), (name, one)
        assert one.spill_stores + one.spill_loads <= (24 if some else 0), (name, one)


def of_every_row(name: str) -> dict[str, list[itf.Array]]:
    """Return what the table can do with operands of one dtype, by row, casts included."""
    x, y = itf.spec((1000,), name), itf.spec((1000,), name)
    condition = itf.spec((1000,), "bool")
    made: dict[str, list[itf.Array]] = {"astype": [x.astype(to) for to in DTYPES if to != name]}
    for op in ROWS:
        with contextlib.suppress(itf.DTypeError):
            operands = (condition, x, y) if op.arity == 3 else (x, y)[: op.arity]
            lazy = getattr(itf, op.name)(*operands)
            # An operand that is cast first makes another dtype's row.
            if all(src.op is INPUT for src in lazy._node.srcs):
                made[op.name] = [lazy]
    return made


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", DTYPES)
def test_every_row_compiles_and_keeps_to_registers(name: str, arch: str) -> None:
    nvrtc.require()
    rows = of_every_row(name)
    stages = {
        f"{row}_{at}": generated.plan_for("tile", one).stages[0]
        for row, made in rows.items()
        for at, one in enumerate(made)
    }
    check_resources(*tiles(stages, arch), FAR_SINES)


@pytest.mark.parametrize("arch", ARCHS)
def test_every_row_compiles_as_functions_of_an_index(arch: str) -> None:
    nvrtc.require()
    sources = []
    for name in DTYPES:
        every = [one for made in of_every_row(name).values() for one in made]
        plan = generated.plan_for("cub.iterator", *every)
        assert plan.passes == 1
        reductions = [getattr(itf, op.name)(itf.spec((9,), name)) for op in REDUCTIONS]
        # All rows together, and the reductions together and alone.
        for stage in (plan.stages[0],
                      generated.plan_for("cub.iterator", *reductions).stages[0],
                      *(generated.plan_for("cub.iterator", one).stages[0] for one in reductions),
                      ):  # fmt: skip
            sources.append(probe_source(stage, lower(stage, f"p{len(sources)}")))
    cubin, _ = nvrtc.compile_cubin(generated.unit(sources), arch)
    assert cubin.startswith(b"\x7fELF")


def layouts(name: str) -> list[itf.Array]:
    """Return arrays of one shape and dtype: linear, reversed, a row, a column, one element."""
    x = np.ones((6, 40), name)
    arrays = (x, x.copy(), x[::-1, ::-1], x[0], x[:, :1], np.broadcast_to(x[:1, :1], x.shape),
              np.ones((6, 80), name)[:, ::2])  # fmt: skip
    return [itf.asarray(one) for one in arrays]


def stages_of_every_kind(name: str) -> dict[str, Stage]:
    """Return transforms and reductions: 1 to 4 inputs of every layout, 1 to 4 outputs."""
    linear, second, backwards, row, column, fixed, spread = layouts(name)
    scalar = np.dtype(name).type(1)
    third, fourth = (itf.asarray(np.ones((6, 40), to)) for to in (name, "float64"))
    low = linear.min()
    maps = {
        "one": [linear * scalar], "two": [linear + second], "three": [linear * second + third],
        "four": [(linear + second) * third + fourth], "wide": [linear + fourth],
        "mixed": [backwards + row * column + fixed], "strided": [spread + backwards],
        "rows": [linear * row + column], "fixed": [linear + fixed], "only_fixed": [fixed + scalar],
        "outputs": [linear + second, linear > second, linear * fourth],
        "four_outputs": [linear + spread, linear > spread, (linear * spread).astype("int8"), -fourth
                         + linear],
    }  # fmt: skip
    found = {k: generated.plan_for("tile", *v).stages for k, v in maps.items()}
    found["carried"] = generated.plan_for("tile", linear + low).stages[1:]
    found["carried_and_strided"] = generated.plan_for("tile", spread + low).stages[1:]
    found |= {
        f"reduce_{key}": generated.plan_for("tile", one[0].sum()).stages[:1]
        for key, one in maps.items()
    }
    found["reduce_carried"] = generated.plan_for("tile", (linear + low).sum() * low).stages[1:]
    for op in REDUCTIONS:
        one = getattr(itf, op.name)(linear)
        found[f"reduce_{op.name}"] = generated.plan_for("tile", one).stages
        found[f"finish_{op.name}"] = generated.plan_for("tile", (one + 1) / 2, one).stages
    found["mean_and_top"] = generated.plan_for(
        "tile", linear.mean(), (linear * second).sum(), linear.max()
    ).stages
    assert all(len(stages) == 1 for stages in found.values())
    return {key: stages[0] for key, stages in found.items()}


# Every dtype, and on the other architectures one of each width: registers depend on nothing else.
KINDS = [(name, "sm_90") for name in DTYPES]
KINDS += [(name, arch) for name in ("int8", "float32", "int64", "float64")
          for arch in ARCHS if arch != "sm_90"]  # fmt: skip


@pytest.mark.parametrize(("name", "arch"), KINDS)
def test_tile_kernels_of_every_kind_keep_to_registers(name: str, arch: str) -> None:
    nvrtc.require()
    stages = stages_of_every_kind(name)
    kinds = {(i.kind, i.layout) for stage in stages.values() for i in stage.inputs}
    assert kinds == {("array", "linear"), ("array", "strided"), ("array", "fixed"),
                     ("scalar", "fixed"), ("carried", "fixed")}  # fmt: skip
    check_resources(*tiles(stages, arch))


@pytest.mark.parametrize("arch", ARCHS)
def test_maps_of_loaded_elements_compile(arch: str) -> None:
    nvrtc.require()
    sources = []
    for name in DTYPES:
        linear, second, _, _, _, fixed, _ = layouts(name)
        for lazy in (linear * np.dtype(name).type(1), linear + second, (linear + second) * fixed):
            stage = generated.plan_for("cub.pointers", lazy).stages[0]
            lowered = lower(stage, f"m{len(sources)}")
            loads = [f"x{k}" for k, _ in enumerate(lowered.pointers)]
            text = MAPPED if lowered.map_state.fields else MAPPED.replace("MapState", "int")
            if not lowered.map_state.fields:
                text = text.replace("&state, ", "")
            text = text.replace("NAME", lowered.name).replace("LOADS", ", ".join(loads))
            arguments = ", ".join(f"void* {one}" for one in loads)
            sources.append(lowered.source + text.replace("ARGUMENTS", arguments))
    check_resources(generated.unit(sources), arch, len(sources))


def test_a_kernel_that_spills_is_seen() -> None:
    nvrtc.require()
    stage = generated.plan_for("tile", itf.spec((9,), "float64").sum()).stages[0]
    source = lower_tile(stage, "k").source
    check_resources(source, "sm_90", 1)
    for tolerated in ("$", "heavy"):
        with pytest.raises(AssertionError, match=r"heavy|calls"):
            check_resources(source + SOURCE, "sm_90", 4, tolerated)
