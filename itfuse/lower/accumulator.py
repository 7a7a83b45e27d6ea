"""C++ of what a reduction combines: a struct of all fields, its identity, its operator."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from itfuse.dtypes import DTYPES
from itfuse.lower.cpp import combine_lines, struct_text
from itfuse.ops import FOLDS
from itfuse.plan.stages import Combine, fields


def shuffle(name: str, intrinsic: str, argument: str, used: Iterable[str]) -> str:
    """Write a function that takes a value of a `used` dtype from another thread of the warp."""
    whole = f"{intrinsic}(0xffffffffu, v, {argument})"
    text = (
        f"template <typename T> __device__ __forceinline__ T {name}(T v, int {argument}) {{\n"
        f"  return (T){intrinsic}(0xffffffffu, (int)v, {argument});\n}}\n"
    )
    for cpp in ("float", "double", "unsigned", "long long", "unsigned long long"):
        text += (
            f"template <> __device__ __forceinline__ {cpp} {name}({cpp} v, int {argument}) {{\n"
            f"  return {whole};\n}}\n"
        )
    rows = [DTYPES[kind] for kind in used]
    for cpp in dict.fromkeys(row.cpp for row in rows if row.narrow):
        bits = f"(unsigned short){intrinsic}(0xffffffffu, (int)v.bits, {argument})"
        text += (
            f"__device__ __forceinline__ {cpp} {name}({cpp} v, int {argument}) {{\n"
            f"  return itf_from_bits(v, {bits});\n}}\n"
        )
    if any(row.part for row in rows):
        text += (
            f"template <typename F> __device__ __forceinline__ itf_complex<F> {name}(\n"
            f"    itf_complex<F> v, int {argument}) {{\n"
            f"  return {{{name}(v.re, {argument}), {name}(v.im, {argument})}};\n}}\n"
        )
    return text


def from_lane(used: Iterable[str]) -> str:
    """Write `from_lane`: the value of the thread that is `distance` further in the warp."""
    return shuffle("from_lane", "__shfl_down_sync", "distance", used)


def fresh(used: Iterable[str]) -> str:
    """Write `fresh` for values of the `used` dtypes."""
    return _FRESH + (_FRESH_PARTS if any(DTYPES[name].part for name in used) else "")


_FRESH = """\
// What other blocks of this launch wrote: from the second-level cache, which all of them share.
template <typename T> __device__ __forceinline__ T fresh(const T* p) {
  typedef typename Raw<sizeof(T)>::type raw;
  const raw bits = __ldcg(reinterpret_cast<const raw*>(p));
  return *reinterpret_cast<const T*>(&bits);
}
"""

_FRESH_PARTS = """\
// A complex number is aligned to its parts only.
template <typename F> __device__ __forceinline__ itf_complex<F> fresh(const itf_complex<F>* p) {
  return {fresh(&p->re), fresh(&p->im)};
}
"""


def literal(value: Any, dtype: str) -> str:
    """Return a NumPy scalar as C++ that needs no header."""
    cpp = DTYPES[dtype].cpp
    if DTYPES[dtype].part:
        parts = [literal(part, DTYPES[dtype].part) for part in (value.real, value.imag)]
        return f"{cpp}{{{', '.join(parts)}}}"
    if DTYPES[dtype].narrow:
        return f"itf_from_bits({cpp}(), {int(value.view(np.uint16))})"
    if dtype == "float32":
        return f"__int_as_float({int(value.view(np.int32))})"
    if dtype == "float64":
        return f"__longlong_as_double({int(value.view(np.int64))}ll)"
    if dtype == "int64":  # its least value has no literal
        return f"(long long){int(value) % 2**64}ull"
    suffix = "ull" if dtype == "uint64" else ""
    return f"({cpp}){int(value)}{suffix}"


def item_dtype(combine: Sequence[Combine]) -> np.dtype[Any]:
    """Return the NumPy dtype of the struct."""
    named = [(f"r{k}", name) for k, (name, _) in enumerate(fields(tuple(combine)))]
    return np.dtype(named, align=True)


def item_struct(combine: tuple[Combine, ...], name: str = "Item") -> str:
    """Write the struct."""
    members = [DTYPES[kind].cpp for kind, _ in fields(combine)]
    return struct_text(name, [f"{cpp} r{at};" for at, cpp in enumerate(members)])


def item_functions(
    combine: tuple[Combine, ...], name: str = "Item", suffix: str = "", *, fresh: bool = True
) -> str:
    """Write `identity`, `combine`, `from_lane` and, if asked for, `fresh` of the struct."""
    members = fields(combine)
    identity = "".join(
        f"  a.r{at} = {literal(value, kind)};\n" for at, (kind, value) in enumerate(members)
    )
    merged = "".join(combine_lines(combine, "a.", "b.", "r."))
    each = range(len(members))
    shuffle = "".join(f"  a.r{at} = from_lane(a.r{at}, distance);\n" for at in each)
    reads = "".join(f"  a.r{at} = fresh(&p->r{at});\n" for at in each)
    head = f"__device__ __forceinline__ {name}"
    start = f"{name} r = a;" if any(one.op in FOLDS for one in combine) else f"{name} r;"
    return (
        f"{head} identity{suffix}() {{\n  {name} a;\n{identity}  return a;\n}}\n"
        f"{head} combine(const {name}& a, const {name}& b) {{\n  {start}\n{merged}  return r;\n}}\n"
        f"{head} from_lane({name} a, int distance) {{\n{shuffle}  return a;\n}}\n"
    ) + (
        f"{head} fresh(const {name}* p) {{\n  {name} a;\n{reads}  return a;\n}}\n" if fresh else ""
    )
