"""`@itf.fuse`: a function traced once for each signature, then called in a few microseconds."""

from __future__ import annotations

import functools
import itertools
import os
import random
import sys
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, overload

import numpy as np

from itfuse import engines, pytree
from itfuse.array import Array, asarray, compute, spec
from itfuse.array import plan as plan_arrays
from itfuse.bound import BoundFused
from itfuse.cache import BUILT
from itfuse.config import config, overrides, setting, settings_key
from itfuse.engines import MISS
from itfuse.errors import BoundsError, RangeError, ShapeError
from itfuse.evaluate import check_bounds
from itfuse.explain import explain_text
from itfuse.expr import Node
from itfuse.number import TracedNumber
from itfuse.plan.stages import Plan
from itfuse.short import shortest
from itfuse.signature import Signature, Trees
from itfuse.trace import NUMBERS, Layout, Record, Same, Trace, describe, is_leaf

_KEPT = 512
"""Signatures, with sizes, that a fused function remembers."""
_TRIED = 4
"""Signatures that a call tries before it looks itself up."""


class Fused:
    """A function of arrays whose calls run as fused passes; made by `itf.fuse`.

    Called like the function it was made of, it returns computed arrays. Two more keyword arguments
    are understood: `out=`, arrays for the results in the structure of the results, and `stream=`,
    anything with `__cuda_stream__`. Called with lazy `itf.Array` arguments it returns lazy
    expressions, so that fused functions inline into each other.
    """

    __name__: str
    __qualname__: str
    _leads_to = ("_function",)
    """Where arrays that it closes over are looked for."""

    def __init__(
        self,
        function: Callable[..., Any],
        static: Sequence[str] = (),
        method: bool = False,
        bound: str = "object",
    ) -> None:
        functools.update_wrapper(self, function)
        self._bound = bound
        self._owner: type | None = None
        self._function = function
        self._static = tuple(static)
        self._signature = Signature(function, self._static, self._watch if method else None)
        self._label = self._signature.label
        self._count = self._signature.count
        self._method: Fused | None = None
        self._traces = 0
        self._warned: set[type] = set()
        self._start()
        _all.add(self)

    def _start(self) -> None:
        self._lock = threading.RLock()
        self._records: dict[Any, Record] = {}
        self._tracing: dict[Any, threading.RLock] = {}
        self._objects: dict[int, weakref.ref[Any]] = {}
        self._gone: deque[int] = deque()
        self._short: tuple[Any, tuple[Any, ...], dict[Any, Any]] = (None, (), {})

    def __repr__(self) -> str:
        return f"<itf.fuse of {self._label}>"

    def __reduce__(self) -> Any:
        found: Any = sys.modules.get(self.__module__)
        for name in self.__qualname__.split("."):
            found = getattr(found, name, None)
        if found is self:  # a decorated function: by its name, as functions are
            return self.__qualname__
        return Fused, (self._function, self._static, False, self._bound)

    def __set_name__(self, owner: type, name: str) -> None:
        if self._bound == "object":
            self._owner = owner

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if self._bound == "class":
            return BoundFused(self._as_method(), owner or type(instance))
        if instance is None or self._bound == "nothing":
            return self
        self._owner = self._owner or owner or type(instance)  # one assigned to a class later
        return BoundFused(self._as_method(), instance)

    def _as_method(self) -> Fused:
        if self._method is None:
            with self._lock:
                self._method = self._method or Fused(self._function, self._static, True)
        return self._method

    # ---- calls ----
    def __call__(self, *args: Any, out: Any = None, stream: Any = None, **kwargs: Any) -> Any:
        """Run the function on these arguments."""
        if kwargs or len(args) != self._count:
            args = self._signature.complete(args, kwargs)
        settings, short, known = self._short
        try:
            if stream is None and overrides.get() is settings:
                for call in short:
                    result = call(args, out)
                    if result is not MISS:
                        return result
                call = known.get(_look(args)) if len(known) > _TRIED else None
                if call is not None:
                    result = call(args, out)
                    if result is not MISS:
                        return result
            return self._call(args, out, stream)
        except (BoundsError, RangeError) as why:
            raise type(why)(f"{self._label}: {why}") from None

    def _call(self, full: tuple[Any, ...], out: Any, stream: Any) -> Any:
        if self._owner is not None and full and isinstance(full[0], self._owner):
            return self._as_method()._call(full, out, stream)  # Class.method(object, ...)
        leaves, trees = self._signature.flatten(full)
        if any(isinstance(x, (Array, TracedNumber)) for x in leaves):
            if out is not None or stream is not None:
                raise TypeError(
                    f"{self._label}: this call was given lazy arrays and returns lazy ones; out= "
                    "and stream= belong to their compute()"
                )
            return self._signature.apply(full)
        arguments, layouts = describe(leaves)
        if not any(type(one) is Layout for one in layouts):
            return self._literally(full, out, stream)
        record = self._record(trees, arguments, layouts)
        values = record.values(arguments)
        if values is None or record.ready is None:
            return self._literally(full, out, stream)
        outs = None if out is None else self._outs(out, record.tree, record.results)
        ready = record.ready
        data = dict(zip(ready.leaves, values, strict=True))
        check_bounds(ready.plan.asked, data, ready.plan.device, stream)
        arrays = ready(values, outs, stream)
        if type(arrays[0]) is tuple:  # of the null engine
            arrays = tuple([spec(shape, dtype) for shape, dtype in arrays])
        self._remember(record, full, trees, layouts)
        return record.rebuild(arrays, arguments)

    def _literally(self, full: tuple[Any, ...], out: Any, stream: Any) -> Any:
        """Run without a trace: where no array is given, or a number does not fit the trace."""
        lifted = []
        for fixed, x in zip(self._signature.fixed, full, strict=True):
            leaves: list[Any] = []
            tree = None if fixed else pytree.flatten(x, is_leaf, leaves)
            numbers = (*NUMBERS, np.generic)
            found = iter([x if isinstance(x, numbers) else asarray(x) for x in leaves])
            lifted.append(x if tree is None else pytree.unflatten(tree, found))
        results: list[Any] = []
        tree = pytree.flatten(self._signature.apply(lifted), is_leaf, results)
        lazy = [x for x in results if isinstance(x, Array)]
        if lazy:
            outs = None if out is None else self._outs(out, tree, results)
            done = compute(*lazy, out=outs, stream=stream)
            arrays = iter(done if len(lazy) > 1 else (done,))
            results = [next(arrays) if isinstance(x, Array) else x for x in results]
        return pytree.unflatten(tree, iter(results))

    def _outs(self, out: Any, tree: pytree.Tree, results: Sequence[Any]) -> tuple[Any, ...]:
        """Return an `out` for each array among the leaves of the results."""
        outs = []
        for given, x in zip(pytree.match(tree, out, f"{self._label}: out"), results, strict=True):
            if type(x) is int or isinstance(x, Array):
                outs.append(given)
            elif given is not None:
                raise ShapeError(f"{self._label}: out= has an array for a result that is a number")
        return tuple(outs)

    # ---- signatures ----
    def _record(self, trees: Trees, arguments: list[Any], layouts: list[Any]) -> Record:
        key = (trees, tuple(layouts), settings_key())
        record = self._found(key)
        if record is not None:
            return record
        with self._lock:
            lock = self._tracing.setdefault(key, threading.RLock())
        with lock:  # one traces and compiles, the others wait for it
            record = self._found(key)
            if record is None:
                try:
                    record = self._trace(trees, arguments, layouts).record(self._function)
                    if record.kept and all(map(_lasts, trees)):
                        self._keep(key, record)
                finally:
                    with self._lock:
                        if self._tracing.get(key) is lock:
                            del self._tracing[key]
        return record

    def _keep(self, key: Any, record: Record) -> None:
        with self._lock:
            _make_room(self._records)
            self._records[key] = record

    def _trace(self, trees: Trees, arguments: Sequence[Any], layouts: Sequence[Any]) -> Trace:
        self._traces += 1
        return Trace(
            self._label, self._signature.apply, self._signature.names, trees, arguments, layouts
        )

    def _watch(self, same: Same, obj: Any) -> None:
        """Forget what was traced for a method's object when it is gone."""
        if not same.weak and type(obj) not in self._warned:
            self._warned.add(type(obj))
            warnings.warn(
                f"{self._label}: a {type(obj).__name__} cannot be referred to weakly, and so each "
                "call traces again; give the class a __weakref__ (of a dataclass: "
                "weakref_slot=True)",
                RuntimeWarning,
                stacklevel=2,
            )
        if same.weak and same.number not in self._objects:
            gone = functools.partial(_forget, weakref.ref(self), same.number)
            self._objects[same.number] = weakref.ref(obj, gone)

    def _found(self, key: Any) -> Record | None:
        with self._lock:
            while self._gone:
                self._drop(self._gone.popleft())
            record = self._records.get(key)
            if record is None:
                return None
            if not record.current():
                del self._records[key]
                self._short = (None, (), {})
                return None
            return record

    def _drop(self, number: int) -> None:
        """Forget what was traced for an object that is gone."""
        self._objects.pop(number, None)
        self._short = (None, (), {})
        for key in list(self._records):
            first = key[0][0]
            if first[0] == "constant" and first[1] is Same and first[2].number == number:
                del self._records[key]

    def _remember(
        self, record: Record, full: tuple[Any, ...], trees: Trees, layouts: Sequence[Any]
    ) -> None:
        """Put the shortest way to make such a call in front of the others."""
        if setting("debug") or setting("bounds_check"):  # both want to see every call
            return
        if not record.kept or not all(map(_lasts, trees)):
            return
        if record.short is None:
            record.short = shortest(record, trees, layouts, self._signature.flatten) or False
        with self._lock:
            now = overrides.get()
            settings, short, known = self._short
            if settings is not now:
                short, known = (), {}
            if record.short and record.short not in short:
                _make_room(known)
                known[_look(full)] = record.short
                self._short = (now, (record.short, *short[: _TRIED - 1]), known)

    # ---- looking at it ----
    def _expressions(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Array]:
        leaves, trees = self._signature.flatten(self._signature.complete(args, kwargs))
        arguments, layouts = describe(leaves)
        if not any(type(one) is Layout for one in layouts):
            raise TypeError(f"{self._label}: give at least one array, or itf.spec(shape, dtype)")
        arrays = self._trace(trees, arguments, layouts).arrays
        if not arrays:
            raise TypeError(f"{self._label} returns no array")
        return arrays

    def plan(self, *args: Any, **kwargs: Any) -> Plan:
        """Return the plan of a call with these arguments; `itf.spec` stands for arrays too.

        Examples
        --------
        >>> import itfuse as itf
        >>> double = itf.fuse(lambda x: x * 2)
        >>> double.plan(itf.spec((1000,), "float32")).bytes_moved
        8000
        """
        return plan_arrays(*self._expressions(args, kwargs))

    def explain(self, *args: Any, **kwargs: Any) -> str:
        """Return a text of what a call with these arguments would do; see `itf.explain`."""
        return explain_text(self.plan(*args, **kwargs))

    def build(self, *args: Any, arch: str | Sequence[str] | None = None, **kwargs: Any) -> Any:
        """Compile what a call with these arguments runs, and run nothing.

        Parameters
        ----------
        *args, **kwargs
            As in a call; `itf.spec(shape, dtype)` stands for an array.
        arch : str or sequence of str, optional
            Compile for this architecture, or these, such as `sm_90`; no GPU is needed then. By
            default for where the arrays are.

        Returns
        -------
        tuple, or dict of str to tuple
            What each pass was compiled to; by architecture if several were given.
        """
        if arch is not None and not isinstance(arch, str):
            return {one: self.build(*args, arch=one, **kwargs) for one in arch}
        leaves, trees = self._signature.flatten(self._signature.complete(args, kwargs))
        if arch is None and not any(isinstance(x, Array) for x in leaves):
            record = self._record(trees, *describe(leaves))
            return tuple(record.ready.built) if record.ready else ()
        made = plan_arrays(*self._expressions(args, kwargs))
        sources = [i.source for stage in made.stages for i in stage.inputs]
        nodes = list(dict.fromkeys(x for x in sources if isinstance(x, Node)))
        with config(**({} if arch is None else {"arch": arch})):
            return tuple(engines.ready(made, nodes, engines.engine_for("none")).built)

    def clear(self) -> None:
        """Forget every trace, and with it the arrays that the function closes over."""
        self._start()
        if self._method is not None:
            self._method.clear()

    @property
    def traces(self) -> int:
        """How often the Python function has run to be traced."""
        return self._traces + (self._method.traces if self._method else 0)

    @property
    def signatures(self) -> int:
        """How many signatures, with their sizes, are remembered."""
        return len(self._records) + (self._method.signatures if self._method else 0)


def _look(args: tuple[Any, ...]) -> Any:
    """Return what arguments look like at a glance; equal looks may still be other signatures."""
    return tuple([
        (x.shape, x.strides, x.dtype) if hasattr(type(x), "strides") else type(x) for x in args
    ])  # fmt: skip


def _make_room(kept: dict[Any, Any]) -> None:
    """Remove any one where there are many: the oldest would always be the one needed next."""
    if len(kept) >= _KEPT:
        del kept[next(itertools.islice(kept, random.randrange(len(kept)), None))]


def _lasts(tree: pytree.Tree) -> bool:
    """Whether a later call may have this argument: no object that nothing may be kept for."""
    return not (tree[0] == "constant" and isinstance(tree[2], Same)) or tree[2].weak


def _forget(fused: weakref.ref[Fused], number: int, _: Any) -> None:
    """Forget an object; runs wherever its last reference goes, so it must not wait for a lock."""
    one = fused()
    if one is None:
        return
    one._gone.append(number)
    if one._lock.acquire(blocking=False):
        try:
            while one._gone:
                one._drop(one._gone.popleft())
        finally:
            one._lock.release()


_all: weakref.WeakSet[Fused] = weakref.WeakSet()


def _start_all() -> None:
    for one in list(_all):  # after a fork their locks may have been held, and CUDA is gone
        one._start()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_all)
BUILT.on_clear.append(_start_all)


@overload
def fuse(function: Callable[..., Any], /, *, static: str | Sequence[str] = ...) -> Fused: ...


@overload
def fuse(*, static: str | Sequence[str] = ...) -> Callable[[Callable[..., Any]], Fused]: ...


def fuse(
    function: Callable[..., Any] | None = None, /, *, static: str | Sequence[str] = ()
) -> Fused | Callable[[Callable[..., Any]], Fused]:
    """Make a function of arrays run as fused passes.

    The function is traced: run once with lazy arrays for each signature, which is the dtypes,
    shapes, strides and device of its arrays, the types of its numbers, its bools and its static
    arguments.
    Later calls go straight to what was compiled. New sizes are traced again (some 100 us) but
    compile nothing; new numbers are not even traced again.

    Parameters
    ----------
    function : callable
        Takes arrays, Python or NumPy numbers, and tuples, lists, dicts and dataclasses of them;
        returns such of lazy arrays. Bools, None, strings, dtypes and classes among its arguments
        are part of the signature. Numbers that it closes over are literals; arrays are looked for
        again at each call. A method, and what `classmethod` and `staticmethod` make, too.
    static : str or sequence of str
        Parameters whose values are part of the signature; they need a hash.

    Returns
    -------
    Fused
        Called like `function`, with `out=` and `stream=` beside. It has `plan`, `explain`, `build`
        and `clear`.

    Raises
    ------
    TraceError
        In a call, if the function asks for the value of an array or number: a Python branch on
        data, `float(x)`, `x.compute()`.

    Examples
    --------
    >>> import itfuse as itf, numpy as np
    >>> @itf.fuse
    ... def scaled(x, y, a=2.0):
    ...     return itf.maximum(a * x + y, 0)
    >>> scaled(np.array([1.0, -3.0]), np.array([0.5, 0.5]))
    array([2.5, 0. ])
    >>> scaled.plan(itf.spec((4,), "float32"), itf.spec((4,), "float32")).passes
    1
    """
    names = (static,) if isinstance(static, str) else tuple(static)
    if function is None:
        return lambda function: _fuse(function, names)
    return _fuse(function, names)


def _fuse(function: Any, static: tuple[str, ...]) -> Fused:
    if isinstance(function, (classmethod, staticmethod)):
        bound = "class" if isinstance(function, classmethod) else "nothing"
        return Fused(function.__func__, static, False, bound)
    if not callable(function):
        raise TypeError(
            f"itf.fuse takes a function, not {function!r}; write @itf.fuse above one, or "
            "itf.fuse(function, static=...)"
        )
    return Fused(function, static)
