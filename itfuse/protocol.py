"""What Python and other libraries ask of an array: numbers, pickles, DLPack, NumPy's calls."""

from __future__ import annotations

from typing import Any

import numpy as np

from itfuse import expr, wording
from itfuse.array import Array, asarray, elements, place_of, spec
from itfuse.errors import ShapeError, Unsupported
from itfuse.evaluate import check_values
from itfuse.expr import Node
from itfuse.functions import FUNCTIONS
from itfuse.numpy_calls import call_as_numpy
from itfuse.ops import INPUT

_CPU, _CUDA = 1, 2  # device types of DLPack


def _only(x: Array, what: str) -> Any:
    """Compute and return the one element; `what` asks for it."""
    check_values((x._node,), x._data, what)  # first: in a trace no number of elements would do
    if x.size != 1:
        raise ShapeError(
            f"{what}({wording.text(x._node)}): the expression has shape {x.shape}; only one "
            "element converts. Use .any() or .all() for a truth value, .sum() and the like for a "
            "number"
        )
    return elements(x, what).reshape(()).item()


def _item(x: Any, *index: Any) -> Any:
    """Compute and return one element as a Python scalar.

    Parameters
    ----------
    *index : int or tuple of int, optional
        Its place: along every axis, or in the flattened array.

    Raises
    ------
    ShapeError
        If there are more elements and no index.
    """
    if index:
        key = index[0] if len(index) == 1 and isinstance(index[0], tuple) else index
        x = FUNCTIONS["ravel"](x)[key[0]] if len(key) == 1 else x[key]
    return _only(x, "item")


def _bool(x: Array) -> bool:
    return bool(_only(x, "bool"))


def _int(x: Array) -> int:
    return int(_only(x, "int"))


def _float(x: Array) -> float:
    return float(_only(x, "float"))


def _complex(x: Array) -> complex:
    return complex(_only(x, "complex"))


def _index(x: Array) -> int:
    check_values((x._node,), x._data, "index")
    if x.dtype.kind not in "iu" or x.shape != ():
        raise TypeError(f"only a 0-d integer expression is an index, not {x!r}")
    return int(_only(x, "index"))


def _tolist(x: Array) -> Any:
    """Compute and return nested Python lists."""
    return elements(x, "tolist").tolist()


def _copy(x: Array, order: str = "C") -> Array:
    """Return the expression itself: it cannot change, and its arrays are read when it runs."""
    return x


def _serialised(x: Array) -> tuple[list[Any], list[Any]]:
    """Return the nodes under `x`, operands as numbers, and its arrays in order."""
    number: dict[Node, int] = {}
    rows: list[Any] = []
    arrays = []
    for node in wording.toposort((x._node,)):
        number[node] = len(rows)
        arg = node.arg
        if node.op is INPUT:
            arg = None
            arrays.append(x._data[node])
        srcs = tuple(number[src] for src in node.srcs)
        rows.append((node.op.name, srcs, node.dtype, node.shape, arg))
    return rows, arrays


def _restored(rows: list[Any], arrays: list[Any], device: str) -> Array:
    """Return the expression that `_serialised` took apart, over these arrays."""
    made: list[Node] = []
    data: dict[Node, Any] = {}
    waiting = iter(arrays)
    for name, srcs, dtype, shape, arg in rows:
        if name == INPUT.name:
            array = next(waiting)
            leaf = spec(shape, dtype) if array is None else asarray(array)
            data.update(leaf._data)
            made.append(leaf._node)
            device = leaf._device
        else:
            made.append(expr.make(name, tuple(made[at] for at in srcs), dtype, shape, arg))
    return Array(made[-1], data, device)


def _deepcopy(x: Array, memo: dict[int, Any]) -> Array:
    """Return the same expression over copies of its arrays."""
    rows, arrays = _serialised(x)
    copies = []
    for array in arrays:
        if array is not None and id(array) not in memo:
            memo[id(array)] = array.copy()
        copies.append(None if array is None else memo[id(array)])
    return _restored(rows, copies, x._device)


def _reduce(x: Array) -> tuple[Any, ...]:
    return _restored, (*_serialised(x), x._device)


def _dlpack(x: Array, **options: Any) -> Any:
    """Compute, and export the result through DLPack."""
    return elements(x, "__dlpack__").__dlpack__(**options)


def _dlpack_device(x: Array) -> tuple[int, int]:
    place = place_of(x._device)
    kind, _, number = place.partition(":")
    if kind not in ("cpu", "cuda"):
        raise Unsupported(f"{x!r} is a placeholder without elements; nothing to export")
    return (_CUDA, int(number)) if kind == "cuda" else (_CPU, 0)


def _array_function(x: Array, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """Answer NumPy's functions by those of the same name; the result stays lazy.

    What only looks at an array (`np.allclose`, `np.shape`) gets the computed one.
    """
    twins = _numpy_twins()
    if function in twins:
        return call_as_numpy(function, twins[function], args, kwargs)
    if function in _LOOKS:
        looked = [
            elements(one, function.__name__) if isinstance(one, Array) else one for one in args
        ]
        return function(*looked, **kwargs)
    raise Unsupported(
        f"itfuse has no numpy.{function.__name__}; compute() the expression "
        f"{wording.text(x._node)} first"
    )


def _shape(x: Array) -> tuple[int, ...]:
    return x.shape


def _ndim(x: Array) -> int:
    return x.ndim


def _size(x: Array, axis: int | None = None) -> int:
    return x.size if axis is None else x.shape[axis]


_TWINS: dict[Any, Any] = {}
_LOOKS = (np.allclose, np.array_equal, np.array_equiv, np.array_repr, np.array_str,
          np.array2string)  # fmt: skip


def _numpy_twins() -> dict[Any, Any]:
    if not _TWINS:
        _TWINS.update({np.shape: _shape, np.ndim: _ndim, np.size: _size})
        for name in ("norm", "vector_norm", "matrix_norm", "vecdot"):
            _TWINS[getattr(np.linalg, name)] = FUNCTIONS[name]
        for name, function in FUNCTIONS.items():
            twin = getattr(np, name, None)
            # NumPy's put writes in place, which an expression cannot do.
            if twin is not None and not isinstance(twin, np.ufunc) and name != "put":
                _TWINS[twin] = function
    return _TWINS


def _to_device(x: Array, device: Any, /, *, stream: Any = None) -> Array:
    """Return the expression on another device: itself, where it is there already.

    Raises
    ------
    Unsupported
        For another device: nothing is copied between devices without being asked in its own words.
    """
    if str(device) in (x._device, place_of(x._device)):
        return x
    raise Unsupported(
        f"to_device({wording.text(x._node)}, {device!r}): the expression is on {x._device}; "
        "compute() it and copy the result (cupy.asarray(...) to the GPU, .get() to the host)"
    )


def _no_assignment(x: Array, key: Any, value: Any) -> None:
    raise Unsupported(
        f"{wording.text(x._node)} is an expression and cannot be assigned to; use "
        "itf.where(condition, value, x), or compute(out=array[...])"
    )


def materialize(x: Any) -> Array:
    """Compute an expression and return the result as a new leaf: the buffer that you asked for.

    Parameters
    ----------
    x : Array
        An expression.

    Returns
    -------
    Array
        `asarray(x.compute())`.

    Examples
    --------
    >>> import itfuse as itf
    >>> itf.plan(itf.materialize(itf.asarray([1.0, 2.0]) * 2) + 1).bytes_read
    16
    """
    return asarray(asarray(x).compute())


def _contains(x: Array, value: Any) -> bool:
    return bool((x == value).any())


_INSTALLED: dict[str, Any] = {
    "item": _item,
    "tolist": _tolist,
    "__bool__": _bool,
    "__int__": _int,
    "__float__": _float,
    "__index__": _index,
    "copy": _copy,
    "__complex__": _complex,
    "__copy__": _copy,
    "__deepcopy__": _deepcopy,
    "__reduce__": _reduce,
    "__dlpack__": _dlpack,
    "__dlpack_device__": _dlpack_device,
    "__array_function__": _array_function,
    "__setitem__": _no_assignment,
    "__contains__": _contains,
    "to_device": _to_device,
}
for _name, _value in _INSTALLED.items():
    setattr(Array, _name, _value)
FUNCTIONS["materialize"] = materialize
