"""One row per dtype. Promotion is asked of NumPy itself; there is no second table."""

from __future__ import annotations

import importlib
import importlib.util
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from itfuse.errors import DTypeError


def numpy_dtype(spec: Any) -> np.dtype[Any]:
    """Return `numpy.dtype(spec)`, also of the name bfloat16.

    NumPy learns that name from ml_dtypes, which takes a second to import: only when it is used.
    """
    if isinstance(spec, str) and spec == "bfloat16" in DTYPES:
        importlib.import_module("ml_dtypes")
    dtype: np.dtype[Any] = np.dtype(spec)
    return dtype


@dataclass(frozen=True)
class DType:
    """What itfuse knows of one dtype.

    Attributes
    ----------
    name : str
        NumPy's name.
    kind : str
        `b` bool, `i` signed, `u` unsigned, `f` floating point, `c` complex: the key of an op's C++
        templates. (NumPy's own `dtype.kind` of bfloat16 is `V`.)
    cpp : str
        The C++ type of a value of this dtype, in memory and in registers; that of float16,
        bfloat16 and complex numbers is defined in lower/numbers.py.
    wide : str
        The unsigned C++ type in which integer arithmetic wraps without undefined behaviour:
        at least 32 bits, because C++ promotes narrower operands to (signed) int.
    pack : str
        The `struct` format of one value.
    computes : str
        The C++ type in which an operation computes before its result is rounded to this dtype, as
        NumPy computes float16 in float32; by default `cpp`.
    accumulator : str
        The dtype in which reductions accumulate; by default this dtype.
    part : str
        For a complex dtype: the dtype of its real and imaginary parts.
    """

    name: str
    kind: str
    cpp: str
    wide: str
    pack: str
    computes: str = ""
    accumulator: str = ""
    part: str = ""

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype."""
        return numpy_dtype(self.name)

    @property
    def bits(self) -> int:
        """Width in bits."""
        return self.numpy.itemsize * 8

    @property
    def narrow(self) -> bool:
        """Whether its arithmetic happens in a wider type."""
        return bool(self.computes)

    def packed(self, value: Any) -> tuple[Any, ...]:
        """Return a Python scalar as what `pack` takes."""
        if self.part:
            return value.real, value.imag
        if self.name == "bfloat16":  # the value is exact, so the lower half of the bits is zero
            return (struct.unpack("I", struct.pack("f", value))[0] >> 16,)
        return (value,)


_U32, _U64 = "unsigned int", "unsigned long long"

DTYPES: dict[str, DType] = {
    row.name: row
    for row in (
        DType("bool", "b", "bool", _U32, "?"),
        DType("int8", "i", "signed char", _U32, "b"),
        DType("int16", "i", "short", _U32, "h"),
        DType("int32", "i", "int", _U32, "i"),
        DType("int64", "i", "long long", _U64, "q"),
        DType("uint8", "u", "unsigned char", _U32, "B"),
        DType("uint16", "u", "unsigned short", _U32, "H"),
        DType("uint32", "u", "unsigned int", _U32, "I"),
        DType("uint64", "u", "unsigned long long", _U64, "Q"),
        DType("float16", "f", "itf_half", "", "e", "float", "float32"),
        DType("bfloat16", "f", "itf_bfloat", "", "H", "float", "float32"),
        DType("float32", "f", "float", "", "f"),
        DType("float64", "f", "double", "", "d"),
        DType("complex64", "c", "itf_complex<float>", "", "2f", part="float32"),
        DType("complex128", "c", "itf_complex<double>", "", "2d", part="float64"),
    )
    if row.name != "bfloat16" or importlib.util.find_spec("ml_dtypes")  # optional
}


NAMES: dict[np.dtype[Any], str] = {
    row.numpy: row.name for row in DTYPES.values() if row.name != "bfloat16"
}
"""Name of each supported dtype (`dtype.name` is computed anew on every access)."""


def _name(dtype: np.dtype[Any]) -> str | None:
    found = NAMES.get(dtype)
    if found is None and dtype.kind == "V" and dtype.name == "bfloat16" in DTYPES:
        NAMES[dtype] = found = dtype.name
    return found


def kind(dtype: np.dtype[Any]) -> str:
    """Return the kind of a supported dtype: `b`, `i`, `u`, `f` or `c`, bfloat16 being `f`."""
    return DTYPES[_name(dtype) or dtype.name].kind


def accumulator(name: str) -> str:
    """Return the dtype in which reductions of dtype `name` accumulate."""
    return DTYPES[name].accumulator or name


def finfo(dtype: Any) -> Any:
    """Return `numpy.finfo`, or ml_dtypes' own of bfloat16."""
    dtype = numpy_dtype(dtype)
    if dtype.kind == "V":
        return importlib.import_module("ml_dtypes").finfo(dtype)
    return np.finfo(dtype)


def supported(dtype: np.dtype[Any]) -> bool:
    """Whether itfuse computes in `dtype` (native byte order only)."""
    return _name(dtype) is not None


def check(dtype: np.dtype[Any], what: str) -> np.dtype[Any]:
    """Return `dtype`, or raise `DTypeError` saying that `what` has a dtype itfuse does not take."""
    if supported(dtype):
        return dtype
    if dtype.name in DTYPES:
        raise DTypeError(f"{what} has the foreign byte order of {dtype.str!r}; "
                         f"convert it first with .astype({dtype.name!r})")  # fmt: skip
    hints = {
        "c": "convert it first with .astype('complex128')",
        "O": "object arrays hold Python objects, which no device can compute with",
        "U": "strings have no arithmetic", "S": "strings have no arithmetic",
        "M": "view it as int64 first", "m": "view it as int64 first",
        "V": "use one field of it", "f": "convert it first with .astype('float64')",
    }  # fmt: skip
    hint = hints.get(dtype.kind, "convert it to a supported dtype first")
    raise DTypeError(f"{what} has dtype {dtype}, which itfuse does not support: {hint}. "
                     f"Supported: {', '.join(DTYPES)}")  # fmt: skip


def as_dtype(spec: Any, what: str) -> np.dtype[Any]:
    """Return the NumPy dtype that `spec` names, checked to be supported."""
    try:
        dtype = numpy_dtype(spec)
    except TypeError as why:
        raise DTypeError(f"{what}: {spec!r} is not a dtype ({why})") from None
    return check(dtype, what)
