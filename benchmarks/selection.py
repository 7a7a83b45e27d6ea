"""Selecting half of an array, x[x > 0], against CuPy and cuda.compute's select, on one GPU.

    python benchmarks/selection.py --elements 20 24 28 --json

Results are checked first. `itfuse` and `cupy` are whole calls with their wait for the size, in
batches between two events. `kernel` is the launch of itfuse alone, into memory that is there and
without reading the size back; so is `cub`, built and with its scratch memory beforehand. These and
a copy are queued behind a kernel that holds the stream, so that events measure the device. All are
called in turn. GiB/s counts each input once and each element chosen once; the share is of the copy.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import itfuse as itf
from itfuse import engines
from itfuse.bench.gpu import CudaDevice


def seconds(cp: Any, calls: dict[str, Callable[[], Any]], batch: int, repeats: int) -> Any:
    """Return the median time of one call of each, in batches between two events, all in turn."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(repeats):
        for name, call in calls.items():
            start, end = cp.cuda.Event(), cp.cuda.Event()
            start.record()
            for _ in range(batch):
                call()
            end.record()
            end.synchronize()
            times[name].append(cp.cuda.get_elapsed_time(start, end) / 1e3 / batch)
    return {name: float(np.median(one)) for name, one in times.items()}


def cub_select(cp: Any, x: Any, out: Any) -> tuple[Callable[[], Any], Any]:
    """Return a call of `cuda.compute`'s select, built, and the count that it writes."""
    compute = importlib.import_module("cuda.compute")
    adapt = importlib.import_module("cuda.compute.op").make_op_adapter
    count = cp.zeros(2, "i8")

    def above_zero(a: Any) -> Any:
        return a > 0

    positive = adapt(above_zero)  # once, not in every call
    made = compute.make_select(d_in=x, d_out=out, d_num_selected_out=count, cond=positive)
    options = {"d_in": x, "d_out": out, "d_num_selected_out": count, "cond": positive,
               "num_items": x.size}  # fmt: skip
    scratch = cp.empty(max(1, made(temp_storage=None, **options)), "u1")
    return functools.partial(made, temp_storage=scratch, **options), count


def kernel(cp: Any, lazy: Any, out: Any) -> Callable[[], Any]:
    """Return the launch of the selection into `out`, without reading the size back."""
    _, data = lazy._asked()
    engine = engines.engine_for(lazy.device)
    plan = lazy.plan()
    leaves: list[Any] = [i.source for i in plan.stages[0].inputs]
    ready = engines.ready(plan, leaves, engine)
    values = [data.get(leaf, leaf.arg) for leaf in leaves]
    given = {plan.results[0]: out, plan.results[1]: cp.empty(1, "i8")}
    return lambda: ready.run(values, given)


def _counted(call: Callable[[], Any], count: int) -> None:
    call()


def measure(cp: Any, device: CudaDevice, size: int, batch: int, repeats: int) -> dict[str, Any]:
    """Return the figures of `size` elements."""
    x = cp.random.default_rng(0).standard_normal(size, dtype="f4")
    lazy: Any = itf.asarray(x)
    want = x[x > 0]
    out = cp.empty_like(x)

    def whole() -> Any:
        return lazy[lazy > 0].compute()

    calls: dict[str, Callable[[], Any]] = {
        "itfuse": whole,
        "kernel": kernel(cp, lazy[lazy > 0], out),
        "cupy": lambda: x[x > 0],
    }
    if not bool((calls["itfuse"]() == want).all()):
        raise SystemExit("itfuse: wrong result")
    calls["kernel"]()
    if not bool((out[: want.size] == want).all()):
        raise SystemExit("kernel: wrong result")
    try:
        calls["cub"], count = cub_select(cp, x, out)
    except ImportError as why:
        print(f"no cuda.compute: {why}")
    else:
        out.fill(0)
        calls["cub"]()
        if int(count[0]) != want.size or not bool((out[: want.size] == want).all()):
            raise SystemExit("cub: wrong result")
    waiting = {name: calls.pop(name) for name in ("itfuse", "cupy")}
    times = seconds(cp, waiting, batch, repeats)
    target = cp.empty_like(x)
    queued: dict[str, Any] = {
        name: functools.partial(_counted, call) for name, call in calls.items()
    }
    queued["copy"] = lambda count: device.copy(target, x)
    times.update({name: one.median for name, one in device.measure(queued, repeats).items()})
    moved = x.nbytes + want.nbytes
    ceiling = 2 * x.nbytes / times.pop("copy")
    row: dict[str, Any] = {"elements": size, "chosen": int(want.size),
                           "copy GiB/s": round(ceiling / 2**30)}  # fmt: skip
    for name, one in times.items():
        row[name] = {"us": round(one * 1e6, 1), "GiB/s": round(moved / one / 2**30),
                     "share": round(moved / one / ceiling, 3)}  # fmt: skip
    row["times CuPy"] = round(times["cupy"] / times["itfuse"], 2)
    if "cub" in times:
        row["times CUB"] = round(times["cub"] / times["kernel"], 2)
    return row


def main() -> None:
    """Measure and print a table, or a line of JSON for each size."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--elements", nargs="+", type=int, default=[20, 24, 28], help="powers of 2")
    parser.add_argument("--batch", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    import cupy as cp  # noqa: PLC0415

    device = CudaDevice()
    for power in options.elements:
        start = time.perf_counter()
        row = measure(cp, device, 1 << power, options.batch, options.repeats)
        row["seconds"] = round(time.perf_counter() - start, 1)
        if options.json:
            print(json.dumps(row), flush=True)
            continue
        print(f"2**{power}: copy {row['copy GiB/s']} GiB/s, {row['times CuPy']} times CuPy, "
              f"{row.get('times CUB', '-')} times CUB")  # fmt: skip
        for name in ("itfuse", "kernel", "cub", "cupy"):
            if name in row:
                one = row[name]
                print(f"  {name:8} {one['us']:10} us {one['GiB/s']:6} GiB/s  {one['share']:.3f}")


if __name__ == "__main__":
    main()
