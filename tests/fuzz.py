"""A long run over random expressions: `make fuzz`, or `python tests/fuzz.py --help`.

Each engine's result must equal NumPy's of every node in turn: the CPU engine's; that of the
generated C++ on the host (tile kernels, and the element functions of `cub`); with `--gpu` that of
a GPU. What is shown of a failure draws it again: `--seed S --count 1`.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
from support.expressions import Pair, random_pair

import itfuse as itf
from itfuse.testing import assert_same

BATCH = 40
"""Expressions of a task; of generated C++, those that are compiled together."""
NODES = 60


def drawn(seed: int) -> Pair:
    """Return the expression of a seed."""
    return random_pair(seed, 1 + seed % NODES)


def on_cpu(seeds: range) -> list[str]:
    """Run expressions on the CPU engine."""
    return [bad for seed in seeds
            if (bad := _compared(seed, lambda x: x.compute(), drawn(seed)))]  # fmt: skip


def on_gpu(seeds: range) -> list[str]:
    """Run expressions on a GPU."""
    import cupy
    from test_gpu import on_gpu as moved

    def run(lazy: Any) -> Any:
        return moved(lazy, cupy).compute().get()

    return [bad for seed in seeds if (bad := _compared(seed, run, drawn(seed)))]


def in_cpp(seeds: range) -> list[str]:
    """Run expressions in generated C++ on the host."""
    from support.generated import HostEngine, plan_for

    plans: dict[int, Any] = {}
    pairs: dict[int, Pair] = {}
    failed = []
    for seed in seeds:
        pairs[seed] = drawn(seed)
        try:
            plans[seed] = plan_for("tile" if seed % 3 else "cub", pairs[seed][0])
        except (itf.NeedsBuffer, itf.Unsupported):
            continue
        except Exception:
            failed.append(f"seed {seed}: {traceback.format_exc()}")
    engine = HostEngine(plans.values())
    for seed, plan in plans.items():
        bad = _compared(seed, lambda x, p=plan: engine.run(p, x)[0], pairs[seed])  # type: ignore[misc]
        failed += [bad] if bad else []
    return failed


def _compared(seed: int, run: Any, pair: Pair) -> str:
    """Return what is wrong with a result, or an empty string."""
    try:
        with np.errstate(all="ignore"):
            assert_same(run(pair[0]), pair[1])
    except (itf.NeedsBuffer, itf.Unsupported):
        return ""
    except Exception:
        return f"seed {seed}: {traceback.format_exc()}"
    return ""


def main() -> int:
    """Run; return how many failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000, help="expressions of each engine")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 10**6 * 10**6)
    parser.add_argument("--engine", choices=("cpu", "cpp", "gpu"), action="append")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    run = {"cpu": on_cpu, "cpp": in_cpp, "gpu": on_gpu}
    bad = 0
    for name in options.engine or ("cpu", "cpp"):
        seeds = range(options.seed, options.seed + options.count)
        tasks = [seeds[at : at + BATCH] for at in range(0, len(seeds), BATCH)]
        began, done = time.monotonic(), 0
        jobs = 1 if name == "gpu" else options.jobs
        with ProcessPoolExecutor(jobs) as pool:
            for task, failed in zip(tasks, pool.map(run[name], tasks), strict=True):
                done += len(task)
                bad += len(failed)
                print(*failed, sep="\n", end="\n" if failed else "", flush=True)
                if done % (100 * BATCH) == 0 or done == len(seeds):
                    rate = done / (time.monotonic() - began)
                    print(f"{name}: {done:,} of {len(seeds):,}, {bad} failed, {rate:,.0f}/s",
                          flush=True)  # fmt: skip
    return min(bad, 100)


if __name__ == "__main__":
    sys.exit(main())
