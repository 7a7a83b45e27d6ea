"""The Array API standard 2024.12: what its namespace holds beside operations on arrays."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from itfuse import dtypes, engines, wording
from itfuse.array import Array
from itfuse.errors import Unsupported
from itfuse.functions import FUNCTIONS

VERSION = "2024.12"
CONSTANTS: dict[str, Any] = {
    "e": np.e, "inf": np.inf, "nan": np.nan, "newaxis": None, "pi": np.pi,
    **{("bool" if name == "bool" else name): row.numpy for name, row in dtypes.DTYPES.items()
       if name != "bfloat16"},  # whose library takes a second to import
}  # fmt: skip


def _kind(x: Any) -> Any:
    return x.dtype if isinstance(x, Array) else x


def can_cast(from_: Any, to: Any, /, casting: Any = "safe") -> bool:
    """Return whether a rule (NumPy's `casting`) allows a cast; an array stands for its dtype.

    Examples
    --------
    >>> can_cast("int32", "float64")
    True
    """
    return bool(
        np.can_cast(dtypes.numpy_dtype(_kind(from_)), dtypes.numpy_dtype(_kind(to)), casting)
    )


def promote_types(type1: Any, type2: Any, /) -> np.dtype[Any]:
    """Return the smallest dtype that both convert to safely: NumPy's.

    Examples
    --------
    >>> promote_types("int8", "uint8")
    dtype('int16')
    """
    return np.promote_types(dtypes.numpy_dtype(type1), dtypes.numpy_dtype(type2))


def _no_product(name: str, takes: inspect.Signature) -> Any:
    """Return the function of a matrix product's name, which says what to do instead."""

    def product(*operands: Any, **options: Any) -> Any:
        shown = ", ".join(
            wording.text(x._node) if isinstance(x, Array) else "..." for x in operands
        )
        raise Unsupported(
            f"{name}({shown}): itfuse has no matrix product, which is no fused pass; compute() "
            f"both sides and use cupy.{name} or numpy.{name}, or itf.vecdot for products of rows"
        )

    product.__name__ = product.__qualname__ = name
    product.__doc__ = f"Raise `Unsupported`: `{name}` is no fused pass."
    product.__signature__ = takes  # type: ignore[attr-defined]
    return product


def _matmul(x1: Any, x2: Any, /) -> Any: ...


def _tensordot(x1: Any, x2: Any, /, axes: Any = 2) -> Any: ...


PRODUCTS = {
    "matmul": _matmul, "dot": _matmul, "inner": _matmul, "tensordot": _tensordot,
    "einsum": lambda subscripts, /, *operands, **options: None,
}  # fmt: skip


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
    found = dtypes.numpy_dtype(dtype)
    kinds = kind if isinstance(kind, tuple) else (kind,)
    # NumPy does not know bfloat16: it is a real floating dtype, as float64 is.
    shown = np.dtype(float) if dtypes.supported(found) and found.kind == "V" else found
    named = tuple(one for one in kinds if isinstance(one, str))
    return bool(np.isdtype(shown, named)) or any(
        dtypes.numpy_dtype(one) == found for one in kinds if not isinstance(one, str)
    )


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
    "isdtype": isdtype, "promote_types": promote_types,
    **{name: _no_product(name, inspect.signature(of)) for name, of in PRODUCTS.items()},
})  # fmt: skip
Array.__array_namespace__ = _namespace  # type: ignore[attr-defined]
