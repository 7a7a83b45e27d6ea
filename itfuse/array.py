"""Array: a lazy expression over real arrays. Its operators are installed by functions.py.

An `Array` is a `Node` (structure) and the arrays that its leaves stand for. Making one computes
nothing; `compute` plans and runs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from itfuse import dtypes, engines, expr, wording
from itfuse.config import setting
from itfuse.containers import Given, no_expressions
from itfuse.errors import DeviceError, DTypeError, Unsupported
from itfuse.evaluate import Asked, evaluate, outs_of
from itfuse.explain import explain_text
from itfuse.expr import Memory, Node
from itfuse.form import Number
from itfuse.ops import BY_NAME, INPUT
from itfuse.picture import Picture
from itfuse.plan import make_plan
from itfuse.plan.index import contiguous_strides
from itfuse.plan.stages import Plan
from itfuse.rows.op import ELEMENTWISE, Op


class Array:
    """A lazy array expression.

    Made by `itf.asarray` and by operations; never called directly.

    Attributes
    ----------
    shape : tuple of int
        Shape of the result.
    dtype : numpy.dtype
        NumPy's dtype of the result.
    device : str
        Where the arrays are and the result will be: `cpu`, `cuda:0`, ... or `none`.
    """

    __slots__ = ("__weakref__", "_data", "_device", "_node")
    __hash__ = None  # type: ignore[assignment]  # like NumPy's: equality is elementwise
    __array_priority__ = 2000.0

    def __init__(self, node: Node, data: dict[Node, Any], device: str) -> None:
        self._node = node
        self._data = data
        self._device = device

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the result."""
        return self._node.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's dtype of the result."""
        return self._node.dtype

    @property
    def device(self) -> str:
        """Where the result will be."""
        return self._device

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self._node.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return self._node.size

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return int(self._node.dtype.itemsize)

    @property
    def nbytes(self) -> int:
        """Bytes of the result."""
        return self.size * self.itemsize

    def __repr__(self) -> str:
        return (
            f"itf.Array({wording.text(self._node)}, shape={self.shape}, dtype={self.dtype}, "
            f"device={self._device!r})"
        )

    # ---- conversion ----
    def astype(
        self, dtype: Any, order: str = "K", casting: Any = "unsafe", subok: bool = True,
        copy: bool = True,
    ) -> Array:  # fmt: skip
        """Return this expression converted to `dtype`.

        Parameters
        ----------
        dtype : dtype-like
            A supported dtype.
        casting : str
            Which conversions are allowed, as in NumPy.
        order, subok, copy
            Accepted for NumPy's sake; an expression is never a copy.

        Raises
        ------
        DTypeError
            If itfuse does not support `dtype`, or `casting` does not allow it.

        Examples
        --------
        >>> import itfuse as itf
        >>> itf.asarray([1.7, -1.7]).astype("int32").compute()
        array([ 1, -1], dtype=int32)
        """
        wanted = dtypes.as_dtype(dtype, f"astype({wording.text(self._node)}, ...)")
        if casting != "unsafe" and not np.can_cast(self.dtype, wanted, casting):
            what = f"astype({wording.text(self._node)}, {wanted.name})"
            raise DTypeError(f"{what}: no cast from {self.dtype.name} by the rule {casting!r}")
        return self._of(expr.convert(self._node, wanted))

    def _of(self, node: Node) -> Array:
        """Return another expression over the same arrays."""
        return Array(node, self._data, self._device)

    # ---- asking for results ----
    def compute(
        self,
        out: Any = None,
        *,
        stream: Any = None,
        engine: str | None = None,
        max_passes: int | None = None,
    ) -> Any:
        """Compute this expression; see `itfuse.compute`."""
        return compute(self, out=out, stream=stream, engine=engine, max_passes=max_passes)

    def plan(self, **options: Any) -> Plan:
        """Return the plan that `compute` would run; see `itfuse.plan`."""
        return plan(self, **options)

    def explain(self, **options: Any) -> str:
        """Return what `compute` would do; see `itfuse.explain`."""
        return explain(self, **options)

    def visualize(self, path: str | None = None, **options: Any) -> Picture:
        """Return a picture of the passes that `compute` would run; see `itfuse.visualize`."""
        return Picture(self.plan(**options), path)

    # A selection asks for more than one node, and cuts its result to size.
    def _asked(self) -> tuple[tuple[Node, ...], dict[Node, Any]]:
        """Return what `compute` is to compute for this expression, the result first."""
        return (self._node,), self._data

    def _answer(self, results: Sequence[Any], stream: Any, given: bool) -> Any:
        """Return the result; `given` is whether it lies in the caller's `out`."""
        return results[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        if place_of(self._device) != "cpu":
            raise TypeError(
                f"{self!r} is on {self._device}: there is no implicit copy to the "
                "host; use .compute().get()"
            )
        if copy is False:
            raise ValueError(
                f"{self!r} has no memory of its own before it is computed, so that copy=False "
                "cannot be kept; use .compute()"
            )
        result = elements(self, "asarray")
        return result if dtype is None else result.astype(dtype, copy=False)

    # ---- CuPy's functions on this expression; NumPy's are in functions.py ----
    def __cupy_override_elementwise_kernel__(self, kernel: Any, *args: Any, **kwargs: Any) -> Any:
        op = BY_NAME.get(kernel.name.removeprefix("cupy_"))
        if op is None or op.kind != ELEMENTWISE or kwargs:
            raise Unsupported(f"itfuse has no operation for CuPy's {kernel.name}; compute() first")
        return apply(op, args)


def _lift(x: Any) -> Any:
    """Return `x` as an operand: an Array, a NumPy scalar, or a Python scalar."""
    if type(x) in engines.OWN:
        return asarray(x)
    if isinstance(x, (Array, bool, int, float, complex, np.generic, Number)):
        return x
    return asarray(x)


def apply(op: Op, operands: tuple[Any, ...]) -> Array:
    """Apply an elementwise row."""
    if len(operands) != op.arity:
        many = "operand" if op.arity == 1 else "operands"
        raise TypeError(f"{op.shown} takes {op.arity} {many}, not {len(operands)}")
    data: dict[Node, Any] | None = None
    device = ""
    nodes: list[Any] = []
    for operand in operands:
        x = operand
        if type(x) is not Array and not isinstance(x := _lift(x), Array):
            nodes.append(x)
            continue
        nodes.append(x._node)
        if data is None:
            data, device = x._data, x._device
        elif device == ANY:
            device = x._device
        elif x._device not in (device, ANY):
            what = wording.call_text(op, tuple(map(_node_of, operands)))
            raise DeviceError(
                f"{what}: the arrays are on {device} and {x._device}; move one of "
                "them first (cupy.asarray(...) to the GPU, .get() to the host)"
            )
        if x._data is not data and not x._data.keys() <= data.keys():
            data = {**data, **x._data}
    if data is None:  # numbers only
        return apply(op, tuple(map(asarray, operands)))
    return Array(expr.elementwise(op, tuple(nodes)), data, device)


def _node_of(operand: Any) -> Any:
    lifted = _lift(operand)
    return lifted._node if isinstance(lifted, Array) else lifted


ANY = "any"
"""Device of an expression without arrays: it adopts that of what it is combined with."""


def combine(arrays: Sequence[Array], describe: Callable[[], str]) -> tuple[dict[Node, Any], str]:
    """Return the arrays and the device of an expression of `arrays`, which `describe()` names."""
    data, device = arrays[0]._data, arrays[0]._device
    for x in arrays[1:]:
        if device == ANY:
            device = x._device
        elif x._device not in (device, ANY):
            raise DeviceError(
                f"{describe()}: the arrays are on {device} and {x._device}; move one of "
                "them first (cupy.asarray(...) to the GPU, .get() to the host)"
            )
        if x._data is not data and not x._data.keys() <= data.keys():
            data = {**data, **x._data}
    return data, device


def asarray(obj: Any, dtype: Any = None) -> Array:
    """Wrap an array without copying it: `itf.asarray` (conversion.py) for what stands below it."""
    if isinstance(obj, Array):
        return obj if dtype is None else obj.astype(dtype)
    if type(obj) not in engines.OWN:
        if isinstance(obj, Number):  # what NumPy makes of a number alone: a strong 0-d value
            strong = np.dtype(obj.kind)
            lazy = Array(expr.scalar(obj, strong), {}, obj.device)
            return lazy if dtype is None else lazy.astype(dtype)
        no_expressions(obj, "asarray")
    array, memory = engines.wrap(obj)
    node = expr.make(INPUT, (), array.dtype, array.shape, memory)
    lazy = Array(node, {node: array}, memory.device)
    return lazy if dtype is None else lazy.astype(dtype)


def elements(x: Array, what: str) -> Any:
    """Compute `x` and return the array; `what` asks for its elements, which have to be there."""
    result = x.compute()
    if isinstance(result, Array):
        raise DeviceError(
            f"{what}({wording.text(x._node)}): the null engine runs nothing, so that there are no "
            "elements to look at; compute it with engine='cpu' or on a GPU"
        )
    return result


_placeholders = itertools.count(1)


def spec(shape: int | Sequence[int], dtype: Any) -> Array:
    """Return a placeholder of `shape` and `dtype` without memory, for planning and building.

    Parameters
    ----------
    shape : int or tuple of int
        Its shape.
    dtype : dtype-like
        Its dtype.

    Returns
    -------
    Array
        Usable like any other in expressions, `plan`, `explain` and, with the null engine,
        `compute`. It has no elements: running it raises `DeviceError`.

    Examples
    --------
    >>> import itfuse as itf
    >>> x = itf.spec((1 << 28,), "float32")
    >>> itf.plan(abs(x).sum()).bytes_read == 1 << 30
    True
    """
    wanted = dtypes.as_dtype(dtype, "spec(...)")
    shape = expr.shape_of(shape, "spec")
    memory = Memory("none", next(_placeholders), contiguous_strides(shape, wanted.itemsize))
    node = expr.make(INPUT, (), wanted, shape, memory)
    return Array(node, {node: None}, "none")


def _gather(arrays: Sequence[Any]) -> Asked:
    if not arrays:
        raise TypeError("give at least one expression")
    lifted = tuple(asarray(x) for x in arrays)
    devices = [name for name in dict.fromkeys(x._device for x in lifted) if name != ANY]
    if len(devices) > 1:
        raise DeviceError(
            f"the expressions are on {' and '.join(devices)}; compute those of one device at a time"
        )
    return Asked(lifted, place_of(devices[0] if devices else ANY))


def place_of(device: str) -> str:
    """Return where an expression of `device` runs: the default device if it says `any`."""
    if device != ANY:
        return device
    wished = setting("engine")
    return {"cpu": "cpu", "null": "none"}.get(wished) or engines.default_device()


def plan(
    *arrays: Any,
    max_passes: int | None = None,
    strategy: str | None = None,
    until: str | None = None,
) -> Plan:
    """Return the plan that `compute(*arrays)` would run.

    Parameters
    ----------
    *arrays : Array, or containers of them
        Expressions, as for `compute`.
    max_passes, strategy : optional
        Settings for this plan; see `itf.config`.
    until : str, optional
        Stop after `simplify`, `fuse` or `choose`.

    Returns
    -------
    Plan
        With `passes`, `bytes_read`, `bytes_written`, `bytes_temporary`, `stages`, `notes`.

    Raises
    ------
    NeedsBuffer
        If it takes more passes than allowed.

    Examples
    --------
    >>> import itfuse as itf, numpy as np
    >>> x = itf.asarray(np.ones(1000, np.float32))
    >>> p = itf.plan(itf.sqrt((x * x).sum()))
    >>> p.passes, p.bytes_read, p.bytes_written
    (1, 4000, 4)
    """
    asked = _gather(Given(arrays, "plan").leaves)
    return make_plan(
        asked.nodes, device=asked.device, strategy=strategy, max_passes=max_passes, until=until
    )


def explain(*arrays: Any, **options: Any) -> str:
    """Return a text of what `compute(*arrays)` would do: passes, bytes, floor time and notes.

    Parameters
    ----------
    *arrays : Array, or containers of them
        Expressions, as for `compute`.
    **options
        As for `plan`.

    Returns
    -------
    str
        For people; the numbers are on `plan(...)`.

    Examples
    --------
    >>> import itfuse as itf
    >>> print(itf.explain(abs(itf.spec((1024,), "float32")).sum()))
    1 pass on none: reads 4.00 KiB, writes 4 B
    1. reduce over [1024] by tile
         in   a: float32[1024]
         out  float32[] = sum(absolute(a))
         reads 4.00 KiB, writes 4 B
    """
    return explain_text(plan(*arrays, **options))


def compute(
    *arrays: Any,
    out: Any = None,
    stream: Any = None,
    engine: str | None = None,
    max_passes: int | None = None,
) -> Any:
    """Compute expressions together, sharing passes.

    Parameters
    ----------
    *arrays : Array, or containers of them
        Expressions on one device; in tuples, named tuples, lists, dicts and dataclasses, nested as
        you like. What else these hold comes back as it is.
    out : array, or tuple or container of arrays and None, optional
        Where the results go: same shape and dtype, in any layout whose elements are apart (that of
        a reduction must be contiguous). It may be an input if every element reads only its own
        place. For a container, one of the same structure.
    stream : object, optional
        Anything with `__cuda_stream__`; CuPy's current stream by default.
    engine : str, optional
        `auto`, `cuda`, `cpu`, or `null` (plan, lower and compile, but run nothing).
    max_passes : int, optional
        More passes than this are an error.

    Returns
    -------
    cupy.ndarray or numpy.ndarray, or a tuple or container of them
        One for each expression; a 0-d result is a 0-d array. A container keeps its structure. On
        the GPU the work is queued, not waited for. The null engine returns placeholders.

    Raises
    ------
    ShapeError, DTypeError, AliasError, DeviceError, NeedsBuffer, CompileError
        Before anything has run.

    Examples
    --------
    >>> import itfuse as itf, numpy as np
    >>> x = itf.asarray(np.array([1.0, 2.0, 3.0]))
    >>> total, top = itf.compute(x.sum(), x.max())
    >>> float(total), float(top)
    (6.0, 3.0)
    >>> itf.compute({"twice": x * 2, "note": "one pass"})
    {'twice': array([2., 4., 6.]), 'note': 'one pass'}
    """
    if len(arrays) == 1 and type(x := arrays[0]) is Array:
        device = place_of(x._device) if x._device == ANY else x._device
        outs = None if out is None else outs_of(out, 1)
        results = evaluate((x._node,), x._data, device, outs, stream, engine, max_passes)
        if type(results[0]) is tuple:  # of the null engine
            return spec(*results[0])
        return results[0]
    given = Given(arrays, "compute")
    if arrays and not given.leaves:
        return given.rebuild(())
    asked = _gather(given.leaves)
    outs = asked.outs(given.outs(out))
    results = evaluate(asked.nodes, asked.data, asked.device, outs, stream, engine, max_passes)
    if type(results[0]) is tuple:
        results = tuple(spec(shape, dtype) for shape, dtype in results)
    return given.rebuild(asked.answers(results, outs, stream))
