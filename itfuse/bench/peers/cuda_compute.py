"""`cuda.compute` by hand: operators in C++, given pointers, or a TransformIterator.

Operators are RawOps of C++ compiled with NVRTC, which the minimal extras allow and which keep
float32 in float32; a Python callable would compute `2 * x + 1` in float64. Objects are built once
for each set of arrays and called with their own temporary storage, which skips the function API's
look-ups and its allocation at each call.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np

from itfuse.bench.case import Case
from itfuse.bench.peers.base import NotForThis, Peer, kernel_of

_C = {"float32": "float", "float64": "double", "int32": "int", "int64": "long long"}


def source(name: str, expression: str, inputs: int, dtype: str, zipped: bool = False) -> str:
    """Return the C++ of an operator: inputs by pointer, or one pointer to a struct of them."""
    lines = [f"typedef {_C[dtype]} T;"]
    if zipped:
        fields = " ".join(f"T x{k};" for k in range(inputs))
        lines += [f"struct Item {{ {fields} }};"]
        loads = [f"T x{k} = ((Item*)item)->x{k};" for k in range(inputs)]
        takes = "void* item"
    else:
        loads = [f"T x{k} = *(T*)p{k};" for k in range(inputs)]
        takes = ", ".join(f"void* p{k}" for k in range(inputs))
    body = " ".join(loads)
    lines.append(f'extern "C" __device__ void {name}({takes}, void* out) {{')
    lines.append(f"    {body} *(T*)out = {expression};\n}}")
    return "\n".join(lines)


@functools.cache
def compile_op(name: str, text: str, arch: str) -> Any:
    """Return a RawOp of C++."""
    from cuda.compute.op import RawOp
    from cuda.core import Program, ProgramOptions

    options = ProgramOptions(
        arch=arch, std="c++17", relocatable_device_code=True, link_time_optimization=True
    )
    code = bytes(Program(text, "c++", options=options).compile("ltoir").code)
    return RawOp(ltoir=code, name=name)


class _Stream:
    """CuPy's current stream; None would be the NULL stream to cuda.compute."""

    def __init__(self, cupy: Any) -> None:
        self._now = cupy.cuda.get_current_stream

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._now().ptr


class ByHand(Peer):
    """What both ways share."""

    library = "cuda.compute"
    iterators = False

    def missing(self, device: Any) -> str:
        """Say whether cuda.compute is here."""
        if device.engine != "cuda":
            return "runs beside the cuda engine only"
        try:
            found = importlib.util.find_spec(self.library)
        except ModuleNotFoundError:
            found = None
        return "" if found else "cuda-cccl is not installed"

    def bind(self, case: Case, inputs: tuple[Any, ...], out: Any, device: Any) -> Callable[[], Any]:
        """Return a call of a built algorithm."""
        kernel = kernel_of(case, inputs, tuple(_C))
        arch = "sm_" + device.device.compute_capability
        maker = self._reduce if kernel.combine else self._transform
        return maker(kernel, inputs, out, arch, device.cupy)  # type: ignore[no-any-return]

    def _op(self, text: str, inputs: int, dtype: str, arch: str, zipped: bool = False) -> Any:
        # Operators are linked into one kernel, so each needs a symbol of its own.
        kind = f"{text} {inputs} {dtype} {zipped}"
        name = f"bench_{hashlib.sha256(kind.encode()).hexdigest()[:12]}"
        return compile_op(name, source(name, text, inputs, dtype, zipped), arch)

    def _iterator(self, kernel: Any, inputs: tuple[Any, ...], arch: str) -> Any:
        import cuda.compute as cc
        from cuda.compute import types

        dtype = str(inputs[0].dtype)
        zipped = len(inputs) > 1
        base = cc.ZipIterator(*inputs) if zipped else inputs[0]
        op = self._op(kernel.map, len(inputs), dtype, arch, zipped)
        return cc.TransformIterator(base, op, types.from_numpy_dtype(np.dtype(dtype)))

    def _transform(
        self, kernel: Any, inputs: tuple[Any, ...], out: Any, arch: str, cupy: Any
    ) -> Callable[[], Any]:
        import cuda.compute as cc

        dtype, count, stream = str(inputs[0].dtype), out.size, _Stream(cupy)
        if self.iterators:
            given = {"d_in": self._iterator(kernel, inputs, arch)}
            op = self._op("x0", 1, dtype, arch)
            algorithm = cc.make_unary_transform(**given, d_out=out, op=op)
        elif len(inputs) == 1:
            given, op = {"d_in": inputs[0]}, self._op(kernel.map, 1, dtype, arch)
            algorithm = cc.make_unary_transform(**given, d_out=out, op=op)
        elif len(inputs) == 2:
            given = {"d_in1": inputs[0], "d_in2": inputs[1]}
            op = self._op(kernel.map, 2, dtype, arch)
            algorithm = cc.make_binary_transform(**given, d_out=out, op=op)
        else:
            raise NotForThis("cuda.compute transforms one or two pointers")

        def call() -> Any:
            algorithm(**given, d_out=out, op=op, num_items=count, stream=stream)
            return out

        return call

    def _reduce(
        self, kernel: Any, inputs: tuple[Any, ...], out: Any, arch: str, cupy: Any
    ) -> Callable[[], Any]:
        import cuda.compute as cc

        dtype, count, stream = str(inputs[0].dtype), inputs[0].size, _Stream(cupy)
        if self.iterators:
            given = self._iterator(kernel, inputs, arch)
        elif kernel.map == "x0":
            given = inputs[0]
        else:
            raise NotForThis("cuda.compute reduces a pointer without a map before it")
        combine = kernel.combine.replace("a", "x0").replace("b", "x1")
        op = self._op(combine, 2, dtype, arch)
        init = np.zeros(1, dtype)
        algorithm = cc.make_reduce_into(d_in=given, d_out=out, op=op, h_init=init)
        fixed = {"d_in": given, "d_out": out, "num_items": count, "op": op, "h_init": init,
                 "stream": stream}  # fmt: skip
        storage = cupy.empty(algorithm(temp_storage=None, **fixed), "uint8")
        finish = None
        if kernel.finish != "a":
            text = kernel.finish.replace("T(n)", f"T({count})")
            finish = cupy.ElementwiseKernel("T a", "T y", f"y = {text}", "bench_finish")

        def call() -> Any:
            algorithm(temp_storage=storage, **fixed)
            if finish is not None:
                finish(out, out)
            return out

        return call


class Pointers(ByHand):
    """One or two contiguous arrays as pointers."""

    name = "cuda.compute"
    title = "cuda.compute by hand, on pointers"


class Iterators(ByHand):
    """A TransformIterator over an array, or over several zipped."""

    name = "cuda.compute iterator"
    title = "cuda.compute by hand, through a TransformIterator"
    iterators = True


PEERS = (Pointers(), Iterators())
