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
from itfuse.bench.peers.base import NotForThis, Peer, Waiting, kernel_of

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
    builds = 2.0

    def missing(self, device: Any) -> str:
        """Say whether cuda.compute is here."""
        if device.engine != "cuda":
            return "runs beside the cuda engine only"
        try:
            found = importlib.util.find_spec(self.library)
        except ModuleNotFoundError:
            found = None
        return "" if found else "cuda-cccl is not installed"

    def may_have(self, case: Case) -> bool:
        """Return whether a kernel of the case has been written."""
        return case.kernel is not None

    def bind(self, case: Case, inputs: tuple[Any, ...], out: Any, device: Any) -> Callable[[], Any]:
        """Return a call of a built algorithm."""
        kernel = kernel_of(case, inputs, tuple(_C), whole=True)
        arch = "sm_" + device.device.compute_capability
        maker = self._reduce if kernel.combine else self._transform
        if kernel.keep:
            maker = self._select
        elif kernel.scan:
            maker = self._scan
        return maker(kernel, inputs, out, arch, device.cupy)  # type: ignore[no-any-return]

    def moves(self, case: Case, inputs: tuple[Any, ...], least: int) -> int | None:
        """Return every input and result once; what blocks leave for each other is little."""
        return least

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
        given = self._given(kernel, inputs, arch)
        op = self._combine(kernel, dtype, arch)
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

    def _given(self, kernel: Any, inputs: tuple[Any, ...], arch: str) -> Any:
        if self.iterators:
            return self._iterator(kernel, inputs, arch)
        if kernel.map != "x0":
            raise NotForThis("a pointer has no map before it")
        return inputs[0]

    def _combine(self, kernel: Any, dtype: str, arch: str) -> Any:
        return self._op(kernel.combine.replace("a", "x0").replace("b", "x1"), 2, dtype, arch)

    def _scan(
        self, kernel: Any, inputs: tuple[Any, ...], out: Any, arch: str, cupy: Any
    ) -> Callable[[], Any]:
        import cuda.compute as cc

        dtype, count = str(inputs[0].dtype), inputs[0].size
        given = self._given(kernel, inputs, arch)
        op = self._combine(kernel, dtype, arch)
        algorithm = cc.make_inclusive_scan(d_in=given, d_out=out, op=op, init_value=None)
        fixed = {"d_in": given, "d_out": out, "num_items": count, "op": op, "init_value": None,
                 "stream": _Stream(cupy)}  # fmt: skip
        storage = cupy.empty(algorithm(temp_storage=None, **fixed), "uint8")

        def call() -> Any:
            algorithm(temp_storage=storage, **fixed)
            return out

        return call

    def _select(
        self, kernel: Any, inputs: tuple[Any, ...], out: Any, arch: str, cupy: Any
    ) -> Callable[[], Any]:
        import cuda.compute as cc

        if self.iterators:
            raise NotForThis("what is kept is read from a pointer")
        (x,), dtype = inputs, str(inputs[0].dtype)
        name = f"bench_keep_{hashlib.sha256(kernel.keep.encode()).hexdigest()[:12]}"
        text = (f"typedef {_C[dtype]} T;\nextern \"C\" __device__ void {name}(void* p0, void* out) "
                f"{{ T x0 = *(T*)p0; *(unsigned char*)out = {kernel.keep}; }}")  # fmt: skip
        cond = compile_op(name, text, arch)
        kept, found = cupy.empty_like(x), cupy.zeros(1, "int64")
        names = {"d_in": x, "d_out": kept, "d_num_selected_out": found, "cond": cond}
        algorithm = cc.make_select(**names)
        fixed = {**names, "num_items": x.size, "stream": _Stream(cupy)}
        storage = cupy.empty(algorithm(temp_storage=None, **fixed), "uint8")

        # int() waits, as everybody must who returns the array.
        return Waiting(lambda: algorithm(temp_storage=storage, **fixed),
                       lambda: kept[: int(found[0])])  # fmt: skip


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
