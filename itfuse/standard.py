"""The Array API standard 2024.12: what its namespace holds beside operations on arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from itfuse import dtypes, engines
from itfuse.array import Array
from itfuse.functions import FUNCTIONS

VERSION = "2024.12"
CONSTANTS: dict[str, Any] = {
    "e": np.e, "inf": np.inf, "nan": np.nan, "newaxis": None, "pi": np.pi,
    **{("bool" if name == "bool" else name): row.numpy for name, row in dtypes.DTYPES.items()
       if name != "bfloat16"},  # whose library takes a second to import
}  # fmt: skip


def _kind(x: Any) -> Any:
    return x.dtype if isinstance(x, Array) else x


def can_cast(from_: Any, to: Any, /) -> bool:
    """Return whether promotion rules allow a cast; an array stands for its dtype.

    Examples
    --------
    >>> can_cast("int32", "float64")
    True
    """
    return bool(np.can_cast(_kind(from_), to))


def result_type(*arrays_and_dtypes: Any) -> np.dtype[Any]:
    """Return the dtype of an operation on these arrays, dtypes and Python scalars: NumPy's.

    Examples
    --------
    >>> result_type("int8", 2.5)
    dtype('float64')
    """
    return np.result_type(*(_kind(x) for x in arrays_and_dtypes))


def finfo(type: Any, /) -> Any:
    """Return the limits of a floating-point dtype."""
    return dtypes.finfo(_kind(type))


def iinfo(type: Any, /) -> Any:
    """Return the limits of an integer dtype."""
    return np.iinfo(_kind(type))


def isdtype(dtype: Any, kind: Any) -> bool:
    """Return whether a dtype is of a kind: a dtype, `bool`, `signed integer`, ..., or a tuple.

    Examples
    --------
    >>> isdtype(np.dtype("int8"), "integral")
    True
    """
    return bool(np.isdtype(dtypes.numpy_dtype(dtype), kind))


class Info:
    """What `__array_namespace_info__` returns."""

    def capabilities(self) -> dict[str, Any]:
        """Return what the standard leaves open: sizes never depend on data."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": None}

    def default_device(self) -> str:
        """Return where arrays without a device are computed."""
        return engines.default_device()

    def devices(self) -> list[str]:
        """Return the devices that can compute."""
        cuda = next(one for one in engines.available() if one.name == "cuda")
        gpus = sum(name.startswith("gpu ") for name in cuda.details) if cuda.available else 0
        return ["cpu", *(f"cuda:{number}" for number in range(gpus))]

    def default_dtypes(self, *, device: Any = None) -> dict[str, np.dtype[Any]]:
        """Return the dtypes of creation functions that are given none."""
        integer = np.dtype(int)
        found: dict[str, np.dtype[Any]] = {
            "real floating": np.dtype(float),
            "integral": integer,
            "indexing": integer,
        }
        if "complex128" in dtypes.DTYPES:
            found["complex floating"] = np.dtype(complex)
        return found

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, np.dtype[Any]]:
        """Return the standard's dtypes that are there, of a kind if one is given."""
        names = [name for name in dtypes.DTYPES if name not in ("float16", "bfloat16")]
        found = {name: np.dtype(name) for name in names}
        if kind is not None:
            found = {name: one for name, one in found.items() if isdtype(one, kind)}
        return found


def namespace_info() -> Info:
    """Return the standard's inspection object."""
    return Info()


def _namespace(x: Array, /, *, api_version: str | None = None) -> Any:
    if api_version not in (None, "2021.12", "2022.12", "2023.12", VERSION):
        raise ValueError(f"Array API {api_version} is not there; the newest is {VERSION}")
    import itfuse  # noqa: PLC0415 - the package itself is the namespace

    return itfuse


FUNCTIONS.update({
    "can_cast": can_cast, "result_type": result_type, "finfo": finfo, "iinfo": iinfo,
    "isdtype": isdtype,
})  # fmt: skip
Array.__array_namespace__ = _namespace  # type: ignore[attr-defined]
