"""Triton: block programs in its own language. Its compiler reads source files, so one is made."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from itfuse.bench.case import Case
from itfuse.bench.peers.base import NotForThis, Peer
from itfuse.bench.peers.torch_peers import captured

_ELEMENTWISE = """
import triton
import triton.language as tl

@triton.jit
def kernel({takes}, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
{loads}
    tl.store(out + at, {map}, mask=mask)
"""

_REDUCTION = """
import triton
import triton.language as tl

@triton.jit
def kernel({takes}, out, n, LEAF: tl.constexpr, BLOCK: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * LEAF
    total = tl.zeros((BLOCK,), tl.float32)
    for step in range(0, LEAF, BLOCK):
        at = first + step + tl.arange(0, BLOCK)
        mask = at < n
{loads}
        total += tl.where(mask, {map}, 0.0)
    tl.store(out + tl.program_id(0), tl.sum(total))
"""

_SOFTMAX = """
import triton
import triton.language as tl

@triton.jit
def kernel(x, out, length, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * length
    at = tl.arange(0, BLOCK)
    mask = at < length
    v = tl.load(x + row + at, mask=mask, other=float("-inf"))
    e = tl.exp(v - tl.max(v, axis=0))
    tl.store(out + row + at, e / tl.sum(e, axis=0), mask=mask)
"""

_LAYERNORM = """
import triton
import triton.language as tl

@triton.jit
def kernel(x, w, b, out, length, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * length
    at = tl.arange(0, BLOCK)
    mask = at < length
    v = tl.load(x + row + at, mask=mask, other=0.0)
    d = tl.where(mask, v - tl.sum(v, axis=0) / length, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(d * d, axis=0) / length + 1e-5)
    f = tl.load(w + at, mask=mask, other=0.0)
    g = tl.load(b + at, mask=mask, other=0.0)
    tl.store(out + row + at, d * scale * f + g, mask=mask)
"""

_SQUARES = """
import triton
import triton.language as tl

@triton.jit
def kernel(x, out, length, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    v = tl.load(x + tl.program_id(0).to(tl.int64) * length + at, mask=at < length, other=0.0)
    tl.store(out + tl.program_id(0), tl.sum(v * v, axis=0))
"""
_ROWS = {"softmax": _SOFTMAX, "layernorm": _LAYERNORM, "squares": _SQUARES}
_LEAF = 1 << 16
_LONGEST = 1 << 16  # elements of a row: longer ones spill, and compile for minutes


def source(case: Case, inputs: int) -> str:
    """Return the module of a case.

    Raises
    ------
    NotForThis
        If the case has no Triton form.
    """
    if case.hand in _ROWS:
        return _ROWS[case.hand]
    if not case.triton or case.kernel is None:
        raise NotForThis("no Triton kernel of this case has been written")
    pad = "        " if case.kernel.combine else "    "
    loads = "\n".join(f"{pad}x{k} = tl.load(p{k} + at, mask=mask, other=0)" for k in range(inputs))
    takes = ", ".join(f"p{k}" for k in range(inputs))
    body = _REDUCTION if case.kernel.combine else _ELEMENTWISE
    return body.format(takes=takes, loads=loads, map=case.triton)


class Triton(Peer):
    """Hand-written Triton, launched on torch tensors of the same memory."""

    name = "triton"
    title = "a Triton kernel written by hand"
    library = "triton"
    replays = False
    builds = 0.6

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def missing(self, device: Any) -> str:
        """Say whether Triton and torch, which it launches through, are here."""
        reason = super().missing(device)
        if not reason and importlib.util.find_spec("torch") is None:
            return "triton takes torch tensors, and torch is not installed"
        return reason

    def _kernel(self, text: str) -> Any:
        if text not in self._made:
            if self._folder is None:
                self._folder = tempfile.TemporaryDirectory(prefix="itfuse-triton-")
            name = f"bench_triton_{len(self._made)}"
            path = Path(self._folder.name) / f"{name}.py"
            path.write_text(text)
            spec = importlib.util.spec_from_file_location(name, path)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            self._made[text] = module.kernel
        return self._made[text]

    def may_have(self, case: Case) -> bool:
        """Return whether a kernel of the case has been written."""
        return bool(case.triton) or case.hand in _ROWS

    def bind(self, case: Case, inputs: tuple[Any, ...], out: Any, device: Any) -> Callable[[], Any]:
        """Return a launch of the kernel."""
        import torch

        text = source(case, len(inputs))
        dtype = str(inputs[0].dtype)
        if dtype not in ("float32", "float16", "bfloat16") or (case.hand and dtype != "float32"):
            raise NotForThis(f"not written for {dtype}")
        kernel = self._kernel(text)
        tensors = tuple(torch.from_dlpack(x) for x in inputs)
        if case.hand in _ROWS:
            rows, length = inputs[0].shape
            block = 1 << (length - 1).bit_length()
            if block > _LONGEST:
                raise NotForThis(f"a row of {length} is too long for one block program")
            warps = min(16, max(1, block // 512))
            target = torch.from_dlpack(out)
            return lambda: (
                kernel[(rows,)](*tensors, target, length, BLOCK=block, num_warps=warps), target
            )[1]  # fmt: skip
        size = inputs[0].size
        if case.elementwise:
            target = torch.from_dlpack(out)
            grid = (-(-size // 1024),)
            return lambda: (kernel[grid](*tensors, target, size, BLOCK=1024), target)[1]
        blocks = -(-size // _LEAF)
        partial = torch.empty(blocks, dtype=torch.float32, device="cuda")

        def reduce() -> Any:
            kernel[(blocks,)](*tensors, partial, size, LEAF=_LEAF, BLOCK=4096, num_warps=8)
            return torch.sum(partial)

        return reduce

    def launches(
        self, case: Case, inputs: tuple[Any, ...], call: Callable[[], Any], device: Any
    ) -> int | None:
        """Return the kernels of a graph that torch captures, whose allocator has a part in it."""
        return captured(call)

    def moves(self, case: Case, inputs: tuple[Any, ...], least: int) -> int | None:
        """Return every input and result once; what programs leave for each other is little."""
        return least

    def answer(self, value: Any, device: Any) -> tuple[Any, ...]:
        """Return the result as a CuPy array."""
        return (device.cupy.from_dlpack(value),)


PEERS = (Triton(),)
