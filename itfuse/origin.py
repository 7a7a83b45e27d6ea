"""Where the arrays that a function closes over lie, so that others in their place are seen.

A trace reads them where the function found them. Every place that holds one is guarded: a guard is
a line of a Python function, written once for each trace, that looks there again.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
import threading
import types
import weakref
from collections import ChainMap, UserDict, UserList, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np

from itfuse.array import Array

MOST = 4000
"""Objects that a search looks at."""
_LIBRARIES = {"numpy", "cupy", "scipy", "itfuse", *sys.stdlib_module_names}
"""Packages whose modules, functions and objects hold no arrays of users."""
_PLAIN = (str, bytes, bool, int, float, complex, np.generic, np.dtype, range)
_CODE = (types.FunctionType, type, types.ModuleType)
_GROWING = (list, deque, dict, set)
_NAMESPACES = (types.SimpleNamespace, UserDict, UserList, ChainMap, threading.local)
_PARTS: dict[type, tuple[str, ...]] = {
    types.MethodType: ("__func__", "__self__"),
    functools.partial: ("func", "args", "keywords"),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    property: ("fget",),
    functools.cached_property: ("func",),
}
"""Attributes through which objects of the interpreter lead on."""
_ASKED = {weakref.ref: "{0}()", ContextVar: "{0}.get(None)"}
"""How those are asked that hold one object."""
_NEAR = 2
"""Steps within which what may become an array is looked at too."""


@dataclasses.dataclass(frozen=True, eq=False)
class Step:
    """How an object is reached.

    Attributes
    ----------
    before : Step or None
        How that is reached which holds it; None at a beginning.
    text : str
        Python text, in which `{0}` stands for what holds it and `{1}` for `value`.
    value : object
        A name, a key, a number; what a path begins with.
    x : object
        What is there.
    depth : int
        Number of steps.
    """

    before: Step | None
    text: str
    value: Any
    x: Any
    depth: int = 0

    def to(self, text: str, value: Any, x: Any) -> Step:
        """Return one step more, to `x`."""
        return Step(self, text, value, x, self.depth + 1)


class Search:
    """What a search has found.

    Attributes
    ----------
    places : list of Step
        Where there are arrays that were looked for.
    growing : list of Step
        Containers to which an array may be added: those on a way to an array, and those that
        the function or its object names.
    absent : list of Step
        What the function or its object names and is None.
    doubles : list of (Step, Step)
        Two ways to one object that leads to an array.
    missing : set of int
        The arrays that were found nowhere: the ids of what owns their memory.
    """

    def __init__(
        self, arrays: Sequence[Any], function: Any, owners: Iterable[Callable[[], Any]]
    ) -> None:
        """Look for arrays.

        Parameters
        ----------
        arrays : sequence
            Arrays that a trace has read. A view is looked for as the array that it views.
        function : callable
            Its variables and those of the functions that it names are searched, breadth first,
            through modules, attributes, classes and containers.
        owners : iterable of callable
            Each gives an object whose attributes the function may read, such as `self`.
        """
        self.places: list[Step] = []
        self.growing: list[Step] = []
        self._wanted = {id(owner(x)) for x in arrays}
        self.missing = set(self._wanted)
        self._home = str(getattr(function, "__module__", "")).partition(".")[0]
        self._seen: dict[int, Step] = {}
        self._again: list[Step] = []
        self._absent: list[Step] = []
        self._named: set[str] = set()
        self._modules: list[tuple[Step, set[str]]] = []
        self._waiting = deque([Step(None, "{1}()", get, get()) for get in owners])
        self._waiting.append(Step(None, "{1}", function, function))
        while self._waiting or self._more():
            self._look(self._waiting.popleft())
        self.absent = [step for step in self._absent if step.value in self._named]
        leading = self._leading()
        self.doubles = [(step, self._seen[id(step.x)]) for step in self._again
                        if id(step.x) in leading]  # fmt: skip

    def _look(self, step: Step) -> None:
        x, near = step.x, 0 < step.depth <= _NEAR
        if x is None:
            if near:
                self._absent.append(step)
        elif self._is_wanted(x):
            self.places.append(step)
        elif isinstance(x, (*_PLAIN, np.ndarray, Array)):
            return
        elif id(x) in self._seen:
            self._again.append(step)
        elif (near or self._wanted or not step.depth) and self._leads_on(x):
            self._seen[id(x)] = step
            if near and isinstance(x, _GROWING) and not _plain(x):
                self.growing.append(step)
            self._waiting.extend(self._inside(step))

    def _leads_on(self, x: Any) -> bool:
        return len(self._seen) < MOST and not self._of_library(x)

    def _is_wanted(self, x: Any) -> bool:
        held = x._data.values() if isinstance(x, Array) else (x,)
        found = [id(one) for one in map(owner, held) if id(one) in self._wanted]
        for one in found:
            self.missing.discard(one)
        return bool(found)

    def _leading(self) -> set[int]:
        """Return what leads to an array, and note the containers among it."""
        leading: set[int] = set()
        noted = {id(step.x) for step in self.growing}
        for place in self.places:
            step = place.before
            while step is not None and id(step.x) not in leading:
                leading.add(id(step.x))
                if isinstance(step.x, _GROWING) and id(step.x) not in noted:
                    self.growing.append(step)
                step = step.before
        return leading

    def _more(self) -> bool:
        """Look again at modules, by the names that were seen since."""
        for step, looked in self._modules:
            held = vars(step.x)
            names = (self._named & held.keys()) - looked
            looked.update(names)
            self._waiting.extend(step.to("{0}.__dict__[{1}]", name, held[name]) for name in names)
        return bool(self._waiting)

    def _of_library(self, x: Any) -> bool:
        """Whether an object is of a library, which leads to no arrays of the user."""
        kind = type(x)
        if (
            kind in _PARTS
            or kind in _ASKED
            or isinstance(x, (*_NAMESPACES, tuple, frozenset, *_GROWING))
        ):
            return False
        if isinstance(x, _CODE):
            home = x.__name__ if isinstance(x, types.ModuleType) else x.__module__
            root = (home or "").partition(".")[0]
            return root != self._home and (root in _LIBRARIES or _installed(root))
        root = str(kind.__module__).partition(".")[0]
        return root in _LIBRARIES and not hasattr(kind, "_leads_to")

    def _inside(self, step: Step) -> Iterator[Step]:  # noqa: PLR0912  # one branch a kind
        """Find what an object holds; of a module what the functions seen so far name."""
        x = step.x
        parts = _PARTS.get(type(x)) or getattr(type(x), "_leads_to", None)
        if parts:
            for name in parts:
                yield step.to("{0}." + name, name, getattr(x, name, None))
        elif type(x) in _ASKED:
            yield step.to(_ASKED[type(x)], None, _asked(x))
        elif isinstance(x, dict):
            for key, value in list(x.items()):
                yield step.to("item({0}, {1})", key, value)
        elif isinstance(x, (list, tuple, deque)):
            for at, value in enumerate(list(x)):
                yield step.to("{0}[{1}]", at, value)
        elif isinstance(x, (set, frozenset)):
            for at, value in enumerate(list(x)):
                yield step.to("tuple({0})[{1}]", at, value)
        elif isinstance(x, types.ModuleType):
            self._modules.append((step, set()))
        elif isinstance(x, type):
            for name, value in list(vars(x).items()):
                if _may_hold(name, value):
                    yield step.to("in_class({0}, {1})", name, value)
        else:
            if isinstance(x, types.FunctionType):
                yield from self._variables(step)
            yield from self._attributes(step)

    def _variables(self, step: Step) -> Iterator[Step]:
        function = step.x
        names = _names(function.__code__)
        self._named |= names | set(function.__code__.co_freevars)
        for at, cell in enumerate(function.__closure__ or ()):
            name = function.__code__.co_freevars[at]
            yield step.to(f"{{0}}.__closure__[{at}].cell_contents", name, _cell(cell))
        variables = function.__globals__
        for name in names & variables.keys():
            yield step.to("{0}.__globals__[{1}]", name, variables[name])
        if step.before:  # those of the fused function itself are arguments
            for name in ("__defaults__", "__kwdefaults__"):
                yield step.to("{0}." + name, name, getattr(function, name))

    def _attributes(self, step: Step) -> Iterator[Step]:
        x = step.x
        for name, value in list(_dict(x).items()):
            yield step.to("{0}.__dict__[{1}]", name, value)
        for cls in type(x).__mro__:
            for name, value in list(vars(cls).items()) if not self._of_library(cls) else ():
                if isinstance(value, types.MemberDescriptorType):
                    try:
                        held = value.__get__(x)
                    except AttributeError:  # nothing there yet
                        continue
                    yield step.to("slot({0}, {1})", name, held)
                elif _may_hold(name, value):
                    yield step.to("inherited({0}, {1})", name, value)


def guard(search: Search) -> Callable[[], bool] | None:
    """Return what tells whether all places hold what they did; None if there is none to look at."""
    text = _Text()
    for step in search.places:
        x = step.x
        test = f"(x := {text.path(step)}) is not {text.constant(x)}"
        if not isinstance(x, Array):  # whose shape and the like may be changed in place
            for name in ("shape", "strides", "dtype"):
                if hasattr(type(x), name):
                    test += f" or x.{name} != {text.constant(getattr(x, name))}"
        text.lines.append(f"if {test}: return False")
    for step in search.growing:
        text.lines.append(f"if len({text.path(step)}) != {len(step.x)}: return False")
    for step in search.absent:
        text.lines.append(f"if {text.path(step)} is not None: return False")
    for step, first in search.doubles:
        text.lines.append(f"if {text.path(step)} is not {text.path(first)}: return False")
    return text.function() if text.lines else None


class _Text:
    """The text of a guard and what it names."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[str, Any] = {
            "item": _item, "inherited": _inherited, "in_class": _in_class, "slot": _slot,
        }  # fmt: skip

    def constant(self, value: Any) -> str:
        if type(value) in (int, str):
            return repr(value)
        name = f"c{len(self.names)}"
        self.names[name] = value
        return name

    def path(self, step: Step) -> str:
        before = self.path(step.before) if step.before else ""
        value = self.constant(step.value) if "{1}" in step.text else ""
        return step.text.format(before, value)

    def function(self) -> Callable[[], bool]:
        body = "".join(f"        {line}\n" for line in self.lines)
        text = (
            f"def current():\n    try:\n{body}    except Exception:\n"
            "        return False\n    return True\n"
        )
        exec(compile(text, "<itfuse guard>", "exec"), self.names)
        # Out of its own globals, so that it goes, and its arrays with it, without the collector.
        return self.names.pop("current")  # type: ignore[no-any-return]


def held_elsewhere(x: Any, known: int) -> bool:
    """Return whether more than `known` references to an object are left: it is somebody else's."""
    return sys.getrefcount(x) - _own_references > known


_own_references = 0


def _calibrate() -> int:
    held = [object()]
    known = 0
    while held_elsewhere(held[0], known):
        known += 1
    return known - 1


_own_references = _calibrate()


def holds(obj: Any, wanted: Callable[[Any], bool]) -> bool:
    """Return whether an object leads to one that is `wanted`, in its attributes and containers."""
    waiting: deque[Any] = deque([obj])
    seen: set[int] = set()
    walk = Search((), None, ())  # of which only the way of walking is used
    while waiting and len(seen) < MOST:
        x = waiting.popleft()
        if wanted(x):
            return True
        if isinstance(x, (*_PLAIN, np.ndarray, *_CODE)) or x is None or id(x) in seen:
            continue
        seen.add(id(x))
        if not walk._of_library(x):
            waiting.extend(step.x for step in walk._inside(Step(None, "", None, x)))
    return False


def owner(x: Any) -> Any:
    """Return the array whose memory an array views, itself if it has its own."""
    kind = type(x)
    while True:
        base = getattr(x, "base", None) if hasattr(kind, "base") else None
        if base is None or not hasattr(type(base), "base") or not hasattr(type(base), "strides"):
            return x
        x = base


def _plain(container: Any) -> bool:
    """Whether a container holds something, and nothing that could be or hold an array."""
    values = container.values() if isinstance(container, dict) else container
    return bool(container) and all(x is None or isinstance(x, _PLAIN) for x in list(values))


@functools.cache
def _installed(root: str) -> bool:
    """Whether a package was installed from elsewhere."""
    place = getattr(sys.modules.get(root), "__file__", None) or ""
    return "site-packages" in place or "dist-packages" in place


def _names(code: types.CodeType) -> set[str]:
    """Return the globals and attributes that a function names, those inside it included."""
    names = set(code.co_names)
    for one in code.co_consts:
        if isinstance(one, types.CodeType):
            names |= _names(one)
    return names


def _dict(x: Any) -> Any:
    """Return an object's attributes, past what its class makes of the question."""
    if isinstance(x, threading.local):  # this thread's
        return vars(x)
    try:
        return object.__getattribute__(x, "__dict__")
    except AttributeError:
        return {}


def _cell(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not bound yet
        return ()


def _may_hold(name: str, value: Any) -> bool:
    """Whether a class attribute may lead to an array; what the interpreter notes does not."""
    return (
        not (name.startswith("__") and name.endswith("__"))
        or isinstance(value, (*_PARTS, types.FunctionType))
        or hasattr(type(value), "_leads_to")
    )


def _asked(x: Any) -> Any:
    return x() if isinstance(x, weakref.ref) else x.get(None)


def _item(held: Any, key: Any) -> Any:
    return dict.get(held, key)  # a defaultdict makes nothing then


def _slot(x: Any, name: str) -> Any:
    return _in_class(type(x), name).__get__(x)


def _in_class(cls: Any, name: str) -> Any:
    return next(vars(one)[name] for one in cls.__mro__ if name in vars(one))


def _inherited(x: Any, name: str) -> Any:
    """Return an attribute of an object's class, which none of its own hides."""
    if name in _dict(x):
        raise LookupError(name)
    return _in_class(type(x), name)
