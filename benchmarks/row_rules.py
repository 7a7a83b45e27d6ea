"""Time variants of the row kernels on a GPU, and write the rules that follow.

    python benchmarks/row_rules.py             print every variant's share of a copy, then the rules
    python benchmarks/row_rules.py --seconds S stop measuring after S seconds
    python benchmarks/row_rules.py --lengths 5001,20001   only these

The rules are those of itfuse/lower/row_rules.py: for each class of rows the variant whose worse one
of softmax and layernorm is best, or whose sum of squares is. Answers are compared with float64.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest import mock

import cupy
import numpy as np

import itfuse as itf
from itfuse import engines
from itfuse.cache import digest
from itfuse.engines.cuda import compile as nvrtc
from itfuse.engines.cuda.launch import CudaEngine
from itfuse.lower import lower_tile, tile_rows
from itfuse.lower.row_rules import Rule
from itfuse.lower.row_shapes import CLUSTER
from itfuse.plan.order import row_class

SIZE = 1 << 28
LENGTHS = (3, 8, 10, 32, 37, 100, 128, 257, 320, 512, 1000, 1001, 2001, 4096, 5000, 5001, 10_000,
           12_288, 16_384, 20_000, 20_001, 32_768, 33_333, 49_152, 65_536, 65_537, 131_072,
           131_073, 262_144)  # fmt: skip
_ANY = 1 << 30
_USUAL = Rule(_ANY)


def variants(length: int, writes: bool) -> Iterator[Rule]:
    """Yield what to try for rows of this length."""
    kind, count = row_class(length, writes)
    aligned = length % 4 == 0
    if kind == "lanes":
        tiles = ((10, 16, 128), (10, 8, 128), (5, 16, 128), (3, 16, 128), (10, 32, 128),
                 (10, 32, 256), (5, 48, 256), (5, 8, 64))  # fmt: skip
        for vectors, tile, block in tiles:
            yield Rule(_ANY, staged=True, vectors=vectors, tile=tile, block=block)
        for vectors, block in ((1, 128), (2, 128), (4, 128), (4, 64), (2, 256)) if aligned else ():
            yield Rule(_ANY, vectors=vectors, block=block)
    elif kind == "warp":
        for blocks, block in ((0, 128), (8, 128), (10, 128), (0, 64), (4, 256)):
            yield Rule(_ANY, staged=True, blocks=blocks, block=block)
        for blocks, block in ((0, 128), (8, 128), (10, 128), (16, 64)) if aligned else ():
            yield Rule(_ANY, blocks=blocks, block=block)
    elif kind == "block":
        for rounds, blocks in ((1, 0), (2, 0), (3, 0), (1, 4), (1, 5)):
            yield Rule(_ANY, staged=True, rounds=rounds, blocks=blocks)
        for blocks in (0, 4, 5) if aligned else ():
            yield Rule(_ANY, blocks=blocks)
    else:
        yield from _long(kind, count, aligned)


def _long(kind: str, count: int, aligned: bool) -> Iterator[Rule]:
    for abreast, blocks in ((1, 2), (1, 3), (1, 4), (2, 1), (2, 2), (3, 1), (4, 1)):
        if abreast < count <= abreast * CLUSTER:
            for staged in (True, False) if aligned else (True,):
                yield Rule(_ANY, staged=staged, cluster=True, abreast=abreast, blocks=blocks)
    if kind == "leaves":
        yield Rule(_ANY)
        if count <= 2:
            yield Rule(_ANY, blocks=2)


def softmax(F: Any, x: Any) -> Any:
    """Return exp(x) over its sum along rows."""
    e = F.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def layernorm(F: Any, x: Any, w: Any, b: Any) -> Any:
    """Return rows of mean 0 and variance 1, times w, plus b."""
    apart = x - x.mean(-1, keepdims=True)
    return apart / F.sqrt((apart * apart).mean(-1, keepdims=True) + 1e-5) * w + b


WORK: dict[str, Callable[..., Any]] = {
    "softmax": lambda F, x, w, b: softmax(F, x),
    "layernorm": layernorm,
    "sum": lambda F, x, w, b: (x * x).sum(-1),
}


class Variant(CudaEngine):
    """The engine with one rule for all rows."""

    def __init__(self, rule: Rule) -> None:
        super().__init__(0)
        self.rule = rule

    def build_key(self) -> tuple[Any, ...]:
        """Return what decides a build beside the stage."""
        return (*super().build_key(), self.rule)

    def build(self, stage: Any) -> Any:
        """Compile a stage by the rule."""
        with ruled(self.rule):
            return super().build(stage)


def ruled(rule: Rule) -> Any:
    """Return a context in which one rule holds for all rows."""
    return mock.patch.object(tile_rows, "rule", return_value=rule)


def milliseconds(run: Callable[[], Any], repeats: int = 10) -> float:
    """Return the median time of a launch."""
    run()
    events = [cupy.cuda.Event() for _ in range(repeats + 1)]
    events[0].record()
    for event in events[1:]:
        run()
        event.record()
    events[-1].synchronize()
    times = [cupy.cuda.get_elapsed_time(a, b) for a, b in itertools.pairwise(events)]
    return float(np.median(times))


class Arrays:
    """Inputs and outputs, and how long a copy takes."""

    def __init__(self) -> None:
        rng = cupy.random.default_rng(0)
        self.x = rng.standard_normal(SIZE, dtype="f4")
        self.w, self.b = (rng.standard_normal(1 << 18, dtype="f4") for _ in range(2))
        self.out = cupy.empty_like(self.x)
        copy = milliseconds(lambda: cupy.copyto(self.out, self.x), 20)
        self.ceiling = 2 * self.x.nbytes / copy

    def case(self, name: str, length: int) -> tuple[itf.Array, Any, Any, int]:
        """Return the expression, its input, where it goes, and the bytes it moves."""
        rows = SIZE // length
        x = self.x[: rows * length].reshape(rows, length)
        lazy = WORK[name](itf, *map(itf.asarray, (x, self.w[:length], self.b[:length])))
        out = self.out[: lazy.size].reshape(lazy.shape)
        return lazy, x, out, x.nbytes + out.nbytes

    def right(self, name: str, x: Any, out: Any) -> bool:
        """Compare some rows with float64."""
        length = x.shape[1]
        w, b = (one[:length].get().astype("f8") for one in (self.w, self.b))
        spots = [slice(at, at + 3) for at in (0, len(x) // 2, len(x) - 3)]
        wanted = [WORK[name](np, x[spot].get().astype("f8"), w, b) for spot in spots]
        near = all(
            np.allclose(out[spot].get(), one, 2e-5, 1e-5)
            for spot, one in zip(spots, wanted, strict=True)
        )
        return near and not bool(cupy.isnan(out).any())


def measured(
    seconds: float, lengths: Sequence[int]
) -> dict[tuple[Any, ...], dict[Rule, dict[str, float]]]:
    """Return the share of every right variant, by class, alignment and whether rows are written."""
    arrays, start = Arrays(), time.monotonic()
    tried = [(name, length, rule) for length in lengths for name in WORK
             if name != "sum" or length <= 8192
             for rule in variants(length, name != "sum")]  # fmt: skip
    with ThreadPoolExecutor() as pool:  # compiled ahead of the measurements, for the disk cache
        for name, length, rule in tried:
            (stage,) = arrays.case(name, length)[0].plan().stages
            with ruled(rule):
                for aligned in {True, length % 4 == 0}:
                    source = lower_tile(stage, f"itf_{digest(stage)}", aligned).source
                    pool.submit(nvrtc.cubin, source, Variant(rule).arch)
    found: dict[tuple[Any, ...], dict[Rule, dict[str, float]]] = {}
    for name, length, rule in tried:
        if time.monotonic() - start > seconds:
            print(f"stopped before {name} of {length}")
            break
        lazy, x, out, moved = arrays.case(name, length)
        plan, data, engine = lazy.plan(), dict(lazy._data), Variant(rule)
        arrays.out.fill(float("nan"))
        run = functools.partial(engines.run, plan, data, (out,), engine=engine)
        run()
        if not arrays.right(name, x, out):
            print(f"{name} of {length} is WRONG by {shown(rule)}")
            continue
        share = moved / milliseconds(run) / arrays.ceiling
        print(f"{name:10}{length:7} {share:.3f}  {shown(rule)}")
        key = (*row_class(length, name != "sum"), length % 4 == 0, name != "sum")
        found.setdefault(key, {}).setdefault(rule, {})[name] = share
    return found


def shown(rule: Rule) -> str:
    """Return what of a rule is not usual."""
    fields = vars(_USUAL)
    return ", ".join(f"{k}={v}" for k, v in vars(rule).items() if k != "upto" and v != fields[k])


def main() -> None:
    """Measure, and print the rules."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--lengths", type=lambda text: [int(one) for one in text.split(",")],
                        default=LENGTHS)  # fmt: skip
    given = parser.parse_args()
    found = measured(given.seconds, given.lengths)
    best: dict[tuple[Any, ...], dict[int, Rule]] = {}
    for (kind, count, aligned, writes), shares in found.items():
        wanted = {"softmax", "layernorm"} if writes else {"sum"}
        worst = {rule: min(by.values()) for rule, by in shares.items() if by.keys() == wanted}
        if worst:
            best.setdefault((kind, aligned, writes), {})[count] = max(worst, key=worst.__getitem__)
    for key, rules in sorted(best.items()):
        print(f"{key}:")
        for count, rule in sorted(rules.items()):
            print(f"    Rule({count}, {shown(rule)})")


if __name__ == "__main__":
    main()
