"""Row programs and reductions along axes against a copy of the same bytes, on one GPU.

    python benchmarks/rows.py --work softmax layernorm rows columns --lengths 8 32 1000 1024 4096

Each figure is a batch of launches between two events, results checked first. GiB/s counts each
input once and each output once; the share is of a device-to-device copy in the same run.
"""

from __future__ import annotations

import argparse
import functools
import json
from collections.abc import Callable
from typing import Any

import numpy as np

import itfuse as itf

LENGTHS = (3, 8, 10, 32, 37, 100, 128, 257, 512, 1000, 1001, 1024, 2001, 4096, 5000, 8192, 10_000,
           16_384, 20_000, 32_768, 65_536, 262_144, 1 << 20)  # fmt: skip


def cases(x: Any, w: Any) -> dict[str, itf.Array]:
    """Return what is measured along the last axis of `x`, by name."""
    return {
        "softmax": itf.softmax(x),
        "layernorm": itf.layernorm(x, w, w),
        "rows": (x * x).sum(-1),
        "max": x.max(-1),
        "var": x.var(-1),
        "argmax": x.argmax(-1),
    }


def column_cases(x: Any) -> dict[str, itf.Array]:
    """Return what is measured along the first axis of `x`, by name."""
    return {"columns": (x * x).sum(0), "column_var": x.var(0), "column_max": x.max(0)}


def truth(name: str, x: Any, w: Any) -> Any:
    """Return a few results by NumPy in float64, from the host copies of the first rows."""
    x = x.astype(float)
    mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    if name == "softmax":
        e = np.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)
    found: dict[str, Callable[[], Any]] = {
        "layernorm": lambda: (x - mean) / np.sqrt(var + 1e-5) * w + w,
        "rows": lambda: (x * x).sum(-1),
        "max": lambda: x.max(-1),
        "var": lambda: var[..., 0],
        "argmax": lambda: x.argmax(-1),
    }
    return found[name.replace("column_", "").replace("columns", "rows")]()


def seconds(cp: Any, call: Callable[[], None], batch: int, repeats: int) -> float:
    """Return the median time of one call, in batches between two events."""
    call()
    times = []
    for _ in range(repeats):
        start, end = cp.cuda.Event(), cp.cuda.Event()
        start.record()
        for _ in range(batch):
            call()
        end.record()
        end.synchronize()
        times.append(cp.cuda.get_elapsed_time(start, end) / 1e3 / batch)
    return float(np.median(times))


def main() -> None:
    """Measure and print a table, and a line of JSON for each figure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--work", nargs="+", default=["softmax", "layernorm", "rows", "columns"])
    parser.add_argument("--lengths", nargs="+", type=int, default=list(LENGTHS))
    parser.add_argument("--elements", type=int, default=1 << 28)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    import cupy as cp  # noqa: PLC0415

    flat = cp.random.default_rng(0).standard_normal(options.elements, dtype="f4")
    target = cp.empty_like(flat)
    copy = seconds(cp, functools.partial(cp.copyto, target, flat), options.batch, options.repeats)
    ceiling = 2 * flat.nbytes / copy
    del target
    print(f"copy {ceiling / 2**30:.0f} GiB/s")
    for name in options.work:
        across = name.startswith("column")
        for length in options.lengths:
            count = options.elements // length
            some = flat[: count * length]
            if across:
                x = some.reshape(length, count)
                lazy = column_cases(itf.asarray(x))[name]
                few, w = x[:, :64].get().T, None
            else:
                x = some.reshape(count, length)
                weights = flat[-length:].copy()
                lazy = cases(itf.asarray(x), itf.asarray(weights))[name]
                few, w = x[:64].get(), weights.get().astype(float)
            plan = lazy.plan()
            out = lazy.compute()
            got = out[:64].get()
            np.testing.assert_allclose(got, truth(name, few, w), rtol=2e-4, atol=2e-4)
            call = functools.partial(lazy.compute, out=out)
            time = seconds(cp, call, options.batch, options.repeats)
            speed = plan.bytes_moved / time
            once = (some.nbytes + out.nbytes) / time  # input and output counted once
            row = {"work": name, "length": length, "passes": plan.passes,
                   "GiB/s": round(once / 2**30), "share": round(once / ceiling, 3),
                   "moved": round(speed / 2**30)}  # fmt: skip
            print(json.dumps(row) if options.json else
                  f"{name:12} {length:8} {row['GiB/s']:6} GiB/s  {row['share']:.3f}  "
                  f"{plan.passes} pass{'es' if plan.passes > 1 else ''}", flush=True)  # fmt: skip
            del out


if __name__ == "__main__":
    main()
