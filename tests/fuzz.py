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
from support.expressions import Case, random_case

import itfuse as itf
from itfuse.testing import assert_same

BATCH = 40
"""Expressions of a task; of generated C++, those that are compiled together."""
NODES = 60


REFUSED = 0.03
"""Of all expressions, those that may be refused as `Unsupported` or `NeedsBuffer`."""
Outcome = tuple[list[str], dict[str, int]]
"""What failed, and how many were refused, by the kind of error."""


def drawn(seed: int) -> Case:
    """Return the expression of a seed."""
    return random_case(seed, 1 + seed % NODES)


def on_cpu(seeds: range) -> Outcome:
    """Run expressions on the CPU engine."""
    return _all(seeds, lambda case: case.lazy.compute(out=_out(case)))


def on_gpu(seeds: range) -> Outcome:
    """Run expressions on a GPU."""
    import cupy
    from test_gpu import on_gpu as moved

    return _all(seeds, lambda case: moved(case.lazy, cupy).compute().get())


def _out(case: Case) -> Any:
    """Return an array with strides for some results, or None."""
    if not case.strided or not case.value.ndim or case.value.dtype.name == "bfloat16":
        return None
    shape = (*case.value.shape[:-1], 2 * case.value.shape[-1])
    return np.zeros(shape, case.value.dtype)[..., ::-2]


def _all(seeds: range, run: Any) -> Outcome:
    failed: list[str] = []
    refused: dict[str, int] = {}
    for seed in seeds:
        _compared(seed, run, failed, refused)
    return failed, refused


def in_cpp(seeds: range) -> Outcome:
    """Run expressions in generated C++ on the host; what only data size is left out."""
    from support.generated import HostEngine

    plans: dict[int, Any] = {}
    cases: dict[int, Case] = {}
    failed: list[str] = []
    refused: dict[str, int] = {}
    for seed in seeds:
        try:
            case = drawn(seed)
            if isinstance(case.lazy, itf.Selected):
                continue
            plans[seed] = _planned(case.lazy, "tile" if seed % 3 else "cub")
            cases[seed] = case
        except (itf.NeedsBuffer, itf.Unsupported) as why:
            _refused(refused, why)
        except Exception:
            failed.append(f"seed {seed}: {traceback.format_exc()}")
    engine = HostEngine(plans.values())
    for seed, plan in plans.items():
        _compared(seed, lambda case, p=plan: engine.run(p, case.lazy)[0], failed, refused,
                  cases[seed])  # fmt: skip
    return failed, refused


def _planned(lazy: Any, strategy: str) -> Any:
    """Return the plan by a strategy, or by the planner's own where a pass has not that one."""
    from support.generated import plan_for

    try:
        return plan_for(strategy, lazy)
    except itf.Unsupported:
        return plan_for("auto", lazy)


def _refused(refused: dict[str, int], why: Exception) -> None:
    name = f"{type(why).__name__}: {str(why).rpartition(': ')[2][:60]}"
    refused[name] = refused.get(name, 0) + 1


def _compared(
    seed: int, run: Any, failed: list[str], refused: dict[str, int], case: Case | None = None
) -> None:
    """Compare a result with NumPy's; take note of what is wrong, or of a refusal."""
    try:
        case = case or drawn(seed)
        with np.errstate(all="ignore"):
            assert_same(run(case), case.value, case.ulp, case.what)
    except (itf.NeedsBuffer, itf.Unsupported) as why:
        _refused(refused, why)
    except Exception as why:
        if "pass a contiguous array" in str(why):  # an out= with strides
            _refused(refused, why)
        else:
            failed.append(f"seed {seed}: {traceback.format_exc()}")


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
        refused: dict[str, int] = {}
        jobs = 1 if name == "gpu" else options.jobs
        with ProcessPoolExecutor(jobs) as pool:
            for task, (failed, others) in zip(tasks, pool.map(run[name], tasks), strict=True):
                done += len(task)
                for why, count in others.items():
                    refused[why] = refused.get(why, 0) + count
                bad += len(failed)
                print(*failed, sep="\n", end="\n" if failed else "", flush=True)
                if done % (100 * BATCH) == 0 or done == len(seeds):
                    rate = done / (time.monotonic() - began)
                    print(f"{name}: {done:,} of {len(seeds):,}, {bad} failed, {rate:,.0f}/s",
                          flush=True)  # fmt: skip
        total = sum(refused.values())
        print(f"{name}: {total:,} of {done:,} refused ({total / done:.2%})")
        for why, count in sorted(refused.items(), key=lambda one: -one[1])[:10]:
            print(f"  {count:,} {why}")
        if total > REFUSED * done:
            print(f"{name}: more than {REFUSED:.0%} were refused: they prove nothing")
            bad += 1
    return min(bad, 100)


if __name__ == "__main__":
    sys.exit(main())
