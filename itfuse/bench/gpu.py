"""The GPU as the benchmark sees it. Only this module and the peers import CuPy."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from itfuse.bench import machine
from itfuse.bench.case import FULL_SIZE
from itfuse.bench.spaces import Library
from itfuse.bench.timing import (
    WARM_UP,
    Call,
    CallFailed,
    Timing,
    speeds,
    timing_of,
    uniform,
)

# splitmix64 (Steele, Lea, Flood 2014) of the index: needs no cuRAND. 24 bits fit a float exactly.
_RANDOM = """
unsigned long long bits = (seed + i + 1) * 0x9E3779B97F4A7C15ULL;
bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9ULL;
bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EBULL;
bits ^= bits >> 31;
x = T(bits >> 40) * T(3.0 / 16777216.0) - T(1);
"""

# `hold` keeps the stream busy while the host queues a round, so that no call waits for its own
# launch. `read` sums float4s and stores nothing that depends on data; `write` stores float4s past
# the caches. Both are the fastest of a few shapes on an H200 (docs/benchmarking.md).
_KERNELS = r"""
extern "C" __global__ void itfuse_bench_hold(unsigned long long nanoseconds) {
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - start < nanoseconds);
}
extern "C" __global__ void itfuse_bench_read(const float4* x, unsigned long long n, float* out) {
    unsigned long long at = blockIdx.x * 2048ull + threadIdx.x;
    float total = 0.0f;
    #pragma unroll
    for (int k = 0; k < 4; ++k, at += 512) {
        if (at < n) {
            float4 v = x[at];
            total += v.x + v.y + v.z + v.w;
        }
    }
    if (total == 1.2345e38f) *out = total;
}
extern "C" __global__ void itfuse_bench_write(float4* x, unsigned long long n) {
    unsigned long long at = blockIdx.x * 256ull + threadIdx.x;
    if (at < n) __stcs(x + at, make_float4(0.0f, 0.0f, 0.0f, 0.0f));
}
"""
# Float32 additions or products of a multiprocessor in a clock: "Arithmetic Instructions" in the
# CUDA programming guide.
_LANES = {"70": 64, "75": 64, "80": 64, "86": 128, "89": 128, "90": 128, "100": 128, "103": 128,
          "120": 128}  # fmt: skip
_LONGEST_HOLD = 0.02  # seconds; a call that itself waits for the device cannot be held longer
_GRAPH_CALLS = 32
_BATCH = 8  # calls of a peer that only the host's clock can time


class CudaDevice:
    """The current GPU, with CuPy. Its settings are read and never changed."""

    engine = "cuda"
    library = "cupy"
    copy_name = "device-to-device copy"
    default_size = FULL_SIZE
    default_repeat = 30
    most_size = 1 << 30
    ceiling_bytes = 1 << 30
    typical_speed = 1.5e12  # of fast and slow peers together

    def __init__(self) -> None:
        import cupy
        from cupyx.scipy.special import erf

        self.cupy = cupy
        self.xp: Any = Library(cupy, erf)
        self.device = cupy.cuda.Device()
        self.cache = int(self.device.attributes["L2CacheSize"])
        self._random = cupy.ElementwiseKernel("uint64 seed", "T x", _RANDOM, "itfuse_bench_random")
        module = cupy.RawModule(code=_KERNELS)
        self._hold = module.get_function("itfuse_bench_hold")
        self._read = module.get_function("itfuse_bench_read")
        self._write = module.get_function("itfuse_bench_write")

    def describe(self) -> dict[str, str]:
        """Return the GPU's name, architecture, memory, cache, driver and CUDA versions."""
        runtime = self.cupy.cuda.runtime
        found = runtime.getDeviceProperties(self.device.id)
        return {
            "name": found["name"].decode(),
            "architecture": f"sm_{found['major']}{found['minor']}",
            "memory": f"{found['totalGlobalMem'] / 2**30:.0f} GiB",
            "cache": f"{self.cache / 2**20:.0f} MiB",
            "driver": machine.driver(),
            "driver supports CUDA": _cuda_version(runtime.driverGetVersion()),
            "CUDA runtime": _cuda_version(runtime.runtimeGetVersion()),
        }

    def clocks(self) -> str:
        """Return the clocks and temperature that nvidia-smi reports; it only reads."""
        return machine.gpu_clocks(self.device.id)

    def free_memory(self) -> int:
        """Return the bytes that can still be allocated, CuPy's pool included."""
        pool = self.cupy.get_default_memory_pool()
        return int(self.device.mem_info[0]) + int(pool.free_bytes())

    def random(self, shape: tuple[int, ...], dtype: str, seed: int) -> Any:
        """Return random numbers: uniform in [-1, 2), integers to 50, either truth value."""
        if dtype in ("float32", "float64"):
            values = self.cupy.empty(shape, dtype)
            self._random(np.uint64(seed << 32), values)
            return values
        # Other dtypes are made on the host, a block that is repeated: speed does not see values.
        count = int(np.prod(shape))
        block = uniform(np.random.default_rng(seed), (min(count, 1 << 22),), dtype)
        values = self.cupy.empty((count,), block.dtype)
        for at in range(0, count, block.size):
            values[at : at + block.size].set(block[: count - at])
        return values.reshape(shape)

    def copy(self, target: Any, source: Any) -> None:
        """Copy memory by cudaMemcpyAsync."""
        stream = self.cupy.cuda.get_current_stream()
        target.data.copy_from_device_async(source.data, source.nbytes, stream)

    def ceilings(self, nbytes: int, repeat: int) -> dict[str, float]:
        """Return bytes per second of a copy, a read-only and a write-only kernel."""
        vectors = max(nbytes // 16, 1)
        source = self.cupy.zeros(vectors * 4, "float32")
        target = self.cupy.zeros(vectors * 4, "float32")
        sink = self.cupy.zeros(1, "float32")
        count = np.uint64(vectors)
        calls: dict[str, Call] = {
            "copy": lambda _: self.copy(target, source),
            "read": lambda _: self._read((-(-vectors // 2048),), (512,), (source, count, sink)),
            "write": lambda _: self._write((-(-vectors // 256),), (256,), (target, count)),
        }
        return speeds(self.measure(calls, repeat), source.nbytes)

    def measure(self, calls: Mapping[str, Call], repeat: int, **how: Any) -> dict[str, Timing]:
        """Time `calls` in turn by events on the device's own clock.

        Those of `waits` are timed by the clock on the wall, several calls at once: they run on
        streams of their own. Those of `replay` become graphs if they can be captured.
        """
        waits: Mapping[str, Callable[[Any], None]] = how.get("waits", {})
        for count, (name, call) in enumerate(calls.items()):
            with _named(name):
                call(count)  # builds, so that a round's time to queue says something
        self.device.synchronize()
        graphs: dict[str, Any] = {}
        for name in how.get("replay", ()):
            graph = self._graph(calls[name], how.get("sets", 1))
            if graph is not None:
                graphs[name] = graph
        queued = {name: call for name, call in calls.items() if name not in waits}
        seconds: dict[str, list[float]] = {name: [] for name in calls}
        count, turn, hold = len(calls), 0, 1e-4
        while turn < WARM_UP + repeat:
            marks, took = self._round(queued, graphs, count, hold)
            count += len(queued)
            if took > hold and hold < _LONGEST_HOLD:  # some call waited for the host: once more
                hold = min(2 * took, _LONGEST_HOLD)
                continue
            walls = {}
            for name, wait in waits.items():
                with _named(name):
                    walls[name] = self._wall(calls[name], wait, count)
            count += _BATCH * len(waits)
            if turn >= WARM_UP:
                for name, (start, end) in marks.items():
                    milliseconds = self.cupy.cuda.get_elapsed_time(start, end)
                    each = graphs[name][1] if name in graphs else 1
                    seconds[name].append(milliseconds / 1e3 / each)
                for name, wall in walls.items():
                    seconds[name].append(wall)
            turn += 1
        methods = {name: f"graph of {number}" for name, (_, number, _) in graphs.items()}
        methods.update(dict.fromkeys(waits, f"wall, {_BATCH} calls"))
        return {n: timing_of(times, methods.get(n, "events")) for n, times in seconds.items()}

    def _round(
        self, calls: Mapping[str, Call], graphs: Mapping[str, Any], count: int, hold: float
    ) -> tuple[dict[str, tuple[Any, Any]], float]:
        event = self.cupy.cuda.Event
        marks = {name: (event(), event()) for name in calls}
        named = {name: _named(name) for name in calls}
        began = time.perf_counter()
        self._hold((1,), (1,), (np.uint64(hold * 1e9),))
        for name, call in calls.items():
            start, end = marks[name]
            start.record()
            if name in graphs:
                graphs[name][0].launch()
            else:
                with named[name]:
                    call(count)
            end.record()
            count += 1
        took = time.perf_counter() - began
        self.cupy.cuda.get_current_stream().synchronize()
        return marks, took

    def _wall(self, call: Call, wait: Callable[[Any], None], count: int) -> float:
        self.device.synchronize()
        start = time.perf_counter()
        for at in range(_BATCH):
            result = call(count + at)
        wait(result)
        return (time.perf_counter() - start) / _BATCH

    def _graph(self, call: Call, sets: int) -> tuple[Any, int, Any] | None:
        """Return (graph, calls in it, what it needs alive), or None if it cannot be captured."""
        number = max(sets, _GRAPH_CALLS // max(sets, 1) * sets)
        self.device.synchronize()  # counters and partial results of a peer are one stream's
        stream = self.cupy.cuda.Stream(non_blocking=True)
        try:
            with stream:
                kept = [call(at) for at in range(number)]  # fills the pool of this stream
                stream.synchronize()
                kept.clear()
                stream.begin_capture()
                try:
                    kept = [call(at) for at in range(number)]
                finally:
                    graph = stream.end_capture()
            graph.launch()
            self.device.synchronize()
        except Exception:  # whatever a library raises: this peer is timed call by call instead
            self.device.synchronize()
            return None
        return graph, number, (kept, stream)

    def launches(self, call: Callable[[], Any]) -> int | None:
        """Return the kernels of a captured call; None for one that waits for the device."""
        from itfuse.bench.peers.launches import kernels_of

        self.device.synchronize()  # counters and partial results of a peer are one stream's
        stream = self.cupy.cuda.Stream(non_blocking=True)
        try:
            with stream:
                call()  # fills the pool of this stream; what it made is free again
                stream.synchronize()
                stream.begin_capture()
                try:
                    kept = call()
                finally:
                    graph = stream.end_capture()
            found = kernels_of(graph.graph)
        except Exception:  # whatever a library raises: nothing is claimed of this peer
            self.device.synchronize()
            return None
        del kept
        return found

    def arithmetic(self) -> float:
        """Return lanes for float32 times the greatest clock; 0 for architectures not known here."""
        lanes = _LANES.get(self.device.compute_capability, 0)
        found = self.device.attributes
        return float(lanes * found["MultiProcessorCount"] * found["ClockRate"] * 1e3)

    def wait(self) -> None:
        """Wait until the device has done all that was queued."""
        self.device.synchronize()

    def trim(self) -> None:
        """Give CuPy's unused memory back, for the peers that have their own pools."""
        self.cupy.get_default_memory_pool().free_all_blocks()

    def lost(self) -> str:
        """Say why the device no longer answers; `""` if it does."""
        try:
            self.device.synchronize()
            self.cupy.zeros(1).sum().get()
        except Exception as why:  # a lost GPU raises errors of several kinds
            return f"{type(why).__name__}: {(str(why).splitlines() or [''])[0]}"
        return ""


class _named:  # noqa: N801 - reads as what it does
    """Says whose call raised. A class, since it runs between the marks of a timing."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        """Return: nothing is measured."""

    def __exit__(self, kind: object, why: BaseException | None, trace: object) -> None:
        if isinstance(why, Exception):
            raise CallFailed(self.name) from why


def _cuda_version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"
