"""The benchmark's hand-written CUDA C++, run on the host block by block, against NumPy."""

from __future__ import annotations

import ctypes
import re
from typing import Any

import numpy as np
import pytest
from support import host_cpp

from itfuse.bench import runner, timing
from itfuse.bench.cases import CASES
from itfuse.bench.peers import cuda_columns, cuda_cpp, cuda_reduce, cuda_rows, cuda_scan
from itfuse.bench.result import Settings

pytestmark = pytest.mark.skipif(bool(host_cpp.why_not()), reason=host_cpp.why_not())

# What these kernels use beside the words that generated code has. Macros, so that the shim may
# come to have functions of these names.
_MORE = r"""
struct alignas(16) bench_float4 { float x, y, z, w; };
#define float4 bench_float4
#define make_float4(a, b, c, d) (bench_float4{(float)(a), (float)(b), (float)(c), (float)(d)})
#define __shfl_xor_sync(mask, value, distance) bench_xor(value, distance)
#define atomicInc(p, most) bench_increment(p, most)
#define __shared__ static
template <typename T> static T bench_xor(T value, int distance) {
  return __shfl_sync(~0u, value, (int)(threadIdx.x % 32) ^ distance);
}
static unsigned bench_increment(unsigned* p, unsigned most) {
  const unsigned before = *p;
  *p = before >= most ? 0 : before + 1;
  return before;
}
"""


class Kernel:
    """One kernel, called with NumPy arrays for pointers and NumPy scalars for numbers."""

    def __init__(self, text: str, name: str) -> None:
        found = re.search(rf"{name}\(\s*(.*?)\)\s*{{", text, re.DOTALL)
        assert found
        kinds = [one.strip().rsplit(" ", 1)[0].rstrip() for one in found[1].split(",")]
        fields = " ".join(f"{kind} a{k};" for k, kind in enumerate(kinds))
        given = ", ".join(f"s->a{k}" for k in range(len(kinds)))
        driver = f"""
        struct bench_{name}_state {{ {fields} }};
        static void bench_{name}_body(void* state) {{
          auto* s = (bench_{name}_state*)state;
          {name}({given});
        }}
        extern "C" int run_{name}(void* state, int wide, int tall, int threads) {{
          itf_host_block.body = bench_{name}_body;
          itf_host_block.state = state;
          gridDim.x = wide; gridDim.y = tall; blockDim.x = threads;
          for (blockIdx.y = 0; (int)blockIdx.y < tall; ++blockIdx.y)
            for (blockIdx.x = 0; (int)blockIdx.x < wide; ++blockIdx.x)
              if (itf_host_run_block(threads)) return 1;
          return 0;
        }}
        """
        self._library = ctypes.CDLL(str(host_cpp._build(_MORE + text + driver)))
        self._run = getattr(self._library, f"run_{name}")

    def __call__(self, grid: tuple[int, ...], block: tuple[int, ...], arguments: Any) -> None:
        # As a C struct has them: each at a multiple of its own size.
        state, kept = bytearray(), []
        for one in arguments:
            array = isinstance(one, np.ndarray)
            value = np.uint64(one.ctypes.data) if array else one
            kept.append(one)
            state += b"\0" * (-len(state) % value.dtype.itemsize) + value.tobytes()
        room = ctypes.create_string_buffer(bytes(state) + b"\0" * 16)
        tall = grid[1] if len(grid) > 1 else 1
        assert self._run(room, grid[0], tall, block[0]) == 0, "threads wait for each other"


class Memory:
    """What `array.data` of CuPy can do."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def memset_async(self, value: int, nbytes: int) -> None:
        assert nbytes == self._array.nbytes
        self._array.fill(value)


class Device(np.ndarray[Any, Any]):
    """An array whose memory can be cleared as CuPy's can."""

    @property
    def data(self) -> Any:  # type: ignore[override]
        return Memory(self)


class Cupy:
    """NumPy under CuPy's names, with memory whose bytes say that nothing was written."""

    @staticmethod
    def empty(shape: Any, dtype: Any) -> Any:
        made = np.empty(shape, dtype)
        made.reshape(-1).view("uint8").fill(0xA5)
        return made.view(Device)

    @classmethod
    def empty_like(cls, x: Any) -> Any:
        return cls.empty(x.shape, x.dtype)

    @staticmethod
    def zeros(shape: Any, dtype: Any) -> Any:
        return np.zeros(shape, dtype).view(Device)

    @staticmethod
    def RawKernel(text: str, name: str, options: Any = ()) -> Kernel:  # noqa: N802
        return Kernel(text, name)

    @staticmethod
    def RawModule(code: str, options: Any = ()) -> Any:  # noqa: N802
        return type("Module", (), {"get_function": staticmethod(lambda name: Kernel(code, name))})


class Host(timing.CpuDevice):
    """The CPU as if it were a GPU to the peer of hand-written kernels."""

    cupy = Cupy


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setitem(__import__("sys").modules, "cupy", Cupy)
    caches = (cuda_cpp._build, cuda_reduce._build, cuda_scan._build, cuda_rows._row_kernel,
              cuda_columns._module)  # fmt: skip
    for cache in caches:
        cache.cache_clear()
    yield Host()
    for cache in caches:
        cache.cache_clear()


PEER = cuda_cpp.ByHand()
SMALL = Settings(3000, 3000, "float32", 2, 5)
WRITTEN = [
    case
    for case in CASES.values()
    if PEER.may_have(case)
    and not set(case.suites) & {"sizes", "dtypes", "rows", "columns", "latency", "depth"}
]


def checked(device: Any, case: Any, size: int) -> str:
    arrays = runner.arrays_of(device, case, size, SMALL, 0)
    return runner.check(device, case, arrays, PEER)


@pytest.mark.parametrize("case", WRITTEN, ids=lambda case: case.name)
def test_a_hand_written_kernel_is_right(case: Any, host: Any) -> None:
    assert checked(host, case, case.small) == ""
    assert checked(host, case, 8 * case.small if case.hand == "layernorm" else 140_001) == ""


@pytest.mark.parametrize("length", [3, 8, 37, 100, 257, 512, 1000, 1001, 2001, 4096, 5001, 33_333,
                                    49_152])  # fmt: skip
@pytest.mark.parametrize("name", ["sum(x*x)", "softmax", "layernorm"])
def test_rows_of_any_length(name: str, length: int, host: Any) -> None:
    case = CASES[f"{name}, rows of {length}"]
    assert checked(host, case, 5 * length) == ""


@pytest.mark.parametrize("name", ["max", "var", "argmax"])
def test_other_rows(name: str, host: Any) -> None:
    assert checked(host, CASES[f"{name}, rows of 1024"], 3 * 1024) == ""


@pytest.mark.parametrize("count", [64, 1024])
@pytest.mark.parametrize("name", ["sum(x*x)", "var"])
def test_columns(name: str, count: int, host: Any) -> None:
    for rows in (3, 700):
        assert checked(host, CASES[f"{name}, {count} columns"], rows * count) == "", rows
    if count == 64:
        assert checked(host, CASES[f"{name}, {count} columns"], 9001 * count) == ""


def test_the_first_of_equals_is_the_greatest(host: Any) -> None:
    for value in (1.0, -1.0, -0.0):
        x = np.full(70_000, -5, "f4")
        x[[40_000, 7, 69_999, 8]] = value
        out = np.empty((), "i8")
        cuda_reduce.bind("argmax", (x,), out, host)()
        assert out == 7


def test_look_back_over_tiles_that_have_their_own_total_only(host: Any) -> None:
    """Blocks run one after another here, so the words of those still running are made by hand."""
    kernel = CASES["cumsum(x)"].kernel
    assert kernel is not None
    run = Kernel(cuda_scan.source(kernel), "bench_scan")
    tiles = 70
    x = np.ones(tiles * cuda_scan.TILE, "f4")
    out = np.zeros_like(x)
    words = np.zeros(tiles + 1, "u8")
    own, whole = np.uint64(1 << 62), np.uint64(2 << 62)

    def bits(value: float) -> np.uint64:
        return np.uint64(np.float32(value).view("u4"))

    words[:3] = [whole | bits(4096 * (k + 1)) for k in range(3)]
    words[3 : tiles - 1] = own | bits(4096)  # more than a warp can see at once
    words[tiles] = tiles - 1  # the next ticket
    run((1,), (cuda_scan.THREADS,), (x, out, np.uint64(x.size), words, words[tiles:]))
    last = slice((tiles - 1) * cuda_scan.TILE, None)
    np.testing.assert_array_equal(out[last], np.arange(x.size, dtype="f4")[last] + 1)
    assert words[tiles - 1] == whole | bits(4096 * tiles)
    assert not out[: last.start].any()


def test_a_call_can_be_repeated(host: Any) -> None:
    """Counters and words are as they were at the beginning: a benchmark calls many times."""
    x = np.linspace(-1, 2, 140_001, dtype="f4")
    for name in ("sum(abs(x))", "x[x>0]", "cumsum(x)", "mean, var", "argmax"):
        case = CASES[name]
        arrays = runner.arrays_of(host, case, x.size, SMALL, 0)
        call = PEER.bind(case, arrays.inputs, arrays.out, host)
        first = [np.array(one) for one in PEER.answer(call(), host)]
        for _ in range(2):
            for one, other in zip(first, PEER.answer(call(), host), strict=True):
                np.testing.assert_array_equal(one, other)
