"""Conversion: arrays, numbers and lists as expressions, and expressions in another dtype.

`itfuse.array.asarray` is what the library itself calls; here are the functions with all that NumPy
and the array API standard let users say.
"""

from __future__ import annotations

import copy as copies
from typing import Any

import numpy as np

from itfuse import dtypes, engines, wording
from itfuse.array import ANY, Array, place_of
from itfuse.array import asarray as lazy_of
from itfuse.containers import no_expressions
from itfuse.creation import _place, check_order
from itfuse.errors import DTypeError, RangeError, Unsupported
from itfuse.functions import FUNCTIONS
from itfuse.manipulation import expand_dims
from itfuse.ops import INPUT


def asarray(
    obj: Any, /, dtype: Any = None, order: Any = None, *, device: Any = None,
    copy: bool | None = None,
) -> Array:  # fmt: skip
    """Wrap an array without copying it.

    Parameters
    ----------
    obj : object
        A CuPy or NumPy array, anything with `__cuda_array_interface__` or DLPack, a NumPy or
        Python scalar, or nested lists (which NumPy converts). An `Array` comes back as it is.
    dtype : dtype-like, optional
        Convert to this dtype (lazily). Python integers must fit.
    order : str, optional
        Accepted for NumPy's sake; elements are read where they lie.
    device : str, optional
        `cpu`, `cuda:0`, ...: where it is, or where numbers, lists and NumPy arrays are copied to.
    copy : bool, optional
        True copies the elements now, so that later changes are not seen. False raises where the
        elements would have to be copied.

    Returns
    -------
    Array
        A lazy array. The elements are read when it is computed: changes until then are seen.

    Raises
    ------
    DTypeError
        For object, string, datetime and other dtypes that itfuse does not support.
    RangeError
        For a Python integer that `dtype` cannot hold.
    DeviceError
        If it is a device array and there is no usable GPU.
    Unsupported
        For an array of a GPU that is to be on another device.

    Examples
    --------
    >>> import itfuse as itf, numpy as np
    >>> itf.asarray(np.arange(3)) * 2
    itf.Array(a * 2, shape=(3,), dtype=int64, device='cpu')
    """
    if dtype is None and order is None and device is None and copy is None:
        return lazy_of(obj)
    check_order(order, "asarray")
    wanted = None if dtype is None else dtypes.as_dtype(dtype, "asarray(...)")
    if isinstance(obj, (bool, int, float, complex, list, tuple)):
        if copy is False:
            raise ValueError("asarray(copy=False): numbers and lists have no array to wrap")
        copy = None  # nobody else has the new array
        if wanted is not None:
            obj = _of_numbers(obj, wanted)
    lazy = lazy_of(obj)
    if copy:
        lazy = _copied(lazy)
    if device is not None:
        lazy = _moved(lazy, _place(device, None), copy)
    return lazy if wanted is None else lazy.astype(wanted)


def _of_numbers(obj: Any, dtype: np.dtype[Any]) -> Any:
    """Return numbers as NumPy stores them in `dtype`; those of expressions stay as they are."""
    no_expressions(obj, "asarray")
    try:
        return np.asarray(obj, dtype)
    except OverflowError as why:
        raise RangeError(f"asarray(..., dtype={dtype.name}): {why}; use another dtype") from None
    except TypeError as why:
        raise DTypeError(f"asarray(..., dtype={dtype.name}): {why}") from None


def _copied(x: Array) -> Array:
    """Return the expression over copies of its arrays; those that are not known stay."""
    leaves = [node for node in wording.toposort((x._node,)) if node.op is INPUT]
    if any(x._data.get(leaf) is None for leaf in leaves):
        return x
    return copies.deepcopy(x)


def _moved(x: Array, place: str, copy: bool | None) -> Array:
    """Return the expression on a device: itself, or what NumPy arrays hold on a GPU."""
    if place in (ANY, x._device):
        return x
    if x._device == ANY:
        return Array(x._node, x._data, place)
    if place_of(x._device) == "cpu" and x._node.op is INPUT and copy is not False:
        return lazy_of(engines.upload(x._data[x._node], place))
    raise Unsupported(
        f"asarray({wording.text(x._node)}, device={place!r}): the expression is on {x._device}; "
        "compute() it and copy the result (cupy.asarray(...) to the GPU, .get() to the host)"
    )


def array(
    obj: Any, dtype: Any = None, *, copy: bool | None = True, order: str = "K",
    subok: bool = False, ndmin: int = 0, device: Any = None,
) -> Array:  # fmt: skip
    """Return what `obj` holds now: `asarray` of a copy, as NumPy's `array`.

    Parameters
    ----------
    obj : object
        See `asarray`.
    dtype, copy, order, device : optional
        See `asarray`; here `copy` is True by default.
    subok : bool
        Accepted for NumPy's sake.
    ndmin : int
        The least number of axes; those that are missing are put in front.

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.array([1, 2], ndmin=2).shape
    (1, 2)
    """
    made = asarray(obj, dtype, order, device=device, copy=copy)
    return expand_dims(made, tuple(range(ndmin - made.ndim))) if made.ndim < ndmin else made


def astype(x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Array:
    """Return `x` converted to `dtype`; see `Array.astype`.

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.astype(itf.asarray([1.5]), itf.int32).compute()
    array([1], dtype=int32)
    """
    made = lazy_of(x).astype(dtype)
    return made if device is None else _moved(made, _place(device, None), copy)


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Array:
    """Wrap an array with `__dlpack__`; nothing is copied but with `copy=True`.

    Raises
    ------
    Unsupported
        If another device is asked for.
    """
    lazy = lazy_of(x)
    if device is not None:
        lazy = _moved(lazy, _place(device, None), False)
    return _copied(lazy) if copy else lazy


_PUBLIC = (asarray, array, astype, from_dlpack)
FUNCTIONS.update({one.__name__: one for one in _PUBLIC})
FUNCTIONS["asanyarray"] = FUNCTIONS["ascontiguousarray"] = asarray
