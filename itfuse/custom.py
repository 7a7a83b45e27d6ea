"""Functions and associative operators that users write, in C++ and NumPy.

They become rows as those of the table are, under names of their own: what is known of them is in
the row, and their text is part of every key.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from itfuse import dtypes, expr, wording
from itfuse.array import Array, apply, asarray, combine
from itfuse.combining import combined
from itfuse.creation import full
from itfuse.errors import DTypeError, ShapeError, Unsupported
from itfuse.functions import FUNCTIONS
from itfuse.manipulation import broadcast_to
from itfuse.ops import BY_NAME, BY_UFUNC, CUSTOM, FOLDS
from itfuse.rows.op import COMBINE, ELEMENTWISE, FOLD, REDUCTION, Op

_TYPES = {row.cpp: name for name, row in dtypes.DTYPES.items() if not row.narrow and not row.part}
_TYPES |= {
    "unsigned": "uint32", "long long int": "int64", "unsigned long long int": "uint64",
    "short int": "int16", "unsigned short int": "uint16", "signed": "int32", "signed int": "int32",
}  # fmt: skip
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_FUNCTION = re.compile(
    r"(?:template\s*<(?P<types>[^<>]*)>\s*)?"
    r"(?P<marks>(?:(?:static|inline|constexpr|__device__|__host__|__forceinline__)\s+)*)"
    r"(?P<result>[A-Za-z_][\w ]*?)\s+(?P<name>[A-Za-z_]\w*)\s*\((?P<parameters>[^()]*)\)\s*\{"
)
_PARAMETER = re.compile(
    r"(?:const\s+)?(?P<type>[A-Za-z_][\w ]*?)(?:\s+const)?\s*(?P<by>&?)\s*(?P<name>\b[A-Za-z_]\w*)"
)


@dataclasses.dataclass(frozen=True)
class _Signature:
    """What a C++ function takes and gives: dtype names, or names of template types."""

    name: str
    types: tuple[str, ...]
    operands: tuple[str, ...]
    changed: int
    result: str


def _clean(source: str) -> str:
    """Return the text with comments and what is inside of braces blanked, places unchanged."""
    text = _COMMENT.sub(lambda found: " " * len(found.group()), source)
    depth, kept = 0, []
    for character in text:
        depth -= character == "}"
        kept.append(character if not depth else " ")
        depth += character == "{"
    return "".join(kept)


def _type(text: str, types: tuple[str, ...], what: str) -> str:
    words = " ".join(text.split())
    if words in types:
        return words
    if words not in _TYPES:
        known = ", ".join([*types, *_TYPES])
        raise DTypeError(f"cpp_function {what}: the C++ type {words!r} is none of {known}")
    return _TYPES[words]


def _parse(source: str) -> tuple[_Signature, str]:
    """Return the signature of the last function in a text, and the text for a device."""
    if re.search(r"^\s*#", source, re.MULTILINE):
        raise ValueError("cpp_function: the source has a line that begins with '#'; it is part of "
                         "generated code, which has no headers and no macros")  # fmt: skip
    found = list(_FUNCTION.finditer(_clean(source)))
    if not found:
        raise ValueError(
            "cpp_function: no function found; expected one like 'float f(float x) { return x; }' "
            f"or 'template <typename T> T f(T x) {{ return x; }}' in:\n{source}"
        )
    for one in reversed(found):
        if "__device__" not in one["marks"]:
            at = one.start("marks")
            source = f"{source[:at]}__device__ __forceinline__ {source[at:]}"
    last = found[-1]
    types = tuple(part.split()[-1] for part in (last["types"] or "").split(",") if part.strip())
    operands, changed = [], 0
    for at, part in enumerate(last["parameters"].split(",") if last["parameters"].strip() else []):
        parameter = _PARAMETER.fullmatch(part.strip())
        if parameter is None:
            raise ValueError(f"cpp_function {last['name']}: the parameter {part.strip()!r} is no "
                             "'type name'")  # fmt: skip
        operands.append(_type(parameter["type"], types, last["name"]))
        if parameter["by"] and not part.strip().startswith("const"):
            if changed != at:
                raise ValueError(f"cpp_function {last['name']}: references come first")
            changed += 1
    words = " ".join(last["result"].split())
    result = "void" if words == "void" else _type(words, types, last["name"])
    return _Signature(last["name"], types, tuple(operands), changed, result), source


class Twin:
    """A user's NumPy function as the CPU engine calls one."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.name, self.function = name, function

    def __call__(self, *operands: Any, out: Any = None) -> Any:
        """Write the function of blocks into `out`."""
        value = np.asarray(self.function(*operands))
        out = np.empty(value.shape, operands[0].dtype) if out is None else out
        if value.shape not in (out.shape, ()):
            raise ShapeError(
                f"{self.name}: its NumPy twin returned shape {value.shape} for a block of shape "
                f"{out.shape}; it must act on each element by itself"
            )
        np.copyto(out, value, casting="unsafe")
        return out


_names: dict[str, list[tuple[Any, str]]] = {}
_numbers = itertools.count(1)
_lock = threading.Lock()


def row_name(shown: str, content: Any, identity: Any) -> str:
    """Return the name of a row: what is shown, and a hash of all that decides its meaning.

    `identity` is what has no text (a Python function): another one gets another name for good, so
    that nothing that was built for one is ever found for the other.
    """
    text = f"{shown}@{hashlib.sha256(repr(content).encode()).hexdigest()[:16]}"
    with _lock:
        known = _names.setdefault(text, [])
        for other, name in known:
            if other is identity:
                return name
        known.append((identity, f"{text}#{next(_numbers)}" if known else text))
        return known[-1][1]


class CppFunction:
    """A scalar function in C++, used like any operation. Made by `itf.cpp_function`.

    Attributes
    ----------
    name : str
        Its C++ name.
    source : str
        What the user wrote.
    """

    def __init__(self, source: str, numpy: Callable[..., Any] | None) -> None:
        self.source = source
        self.signature, device = _parse(source)
        self.name = self.signature.name
        if not self.signature.operands:
            raise ValueError(f"cpp_function {self.name}: it has no parameters")
        self.numpy_twin = numpy
        self._row = row_name(self.name, source, numpy)
        space = f"itf_user_{hashlib.sha256(source.encode()).hexdigest()[:16]}"
        self.helper = f"\nnamespace {space} {{\n{device.strip()}\n}}\n"
        self.call = f"{space}::{self.name}"
        self.op: Op | None = None
        if self.signature.result != "void" and not self.signature.changed:
            places = ", ".join(f"{{{at}}}" for at in range(len(self.signature.operands)))
            self.op = CUSTOM.setdefault(self._row, Op(
                self._row, len(self.signature.operands), ELEMENTWISE, f"The C++ {self.name}.",
                numpy=None if numpy is None else Twin(self.name, numpy), result=self._dtypes,
                cpp={"*": f"{self.call}({places})"}, helper={"*": (self.helper,)},
            ))  # fmt: skip

    def __repr__(self) -> str:
        return f"<itf.cpp_function {self.name}>"

    def __call__(self, *operands: Any) -> Array:
        """Return the function of arrays and numbers, elementwise."""
        if self.op is None:
            raise TypeError(f"{self.name} combines accumulators: use it with itf.reduce")
        return apply(self.op, operands)

    def _dtypes(self, *kinds: Any) -> tuple[tuple[Any, ...], Any]:
        """Dtype rule: every operand must convert safely; Python scalars are weak."""
        takes = self.signature.operands
        of: dict[str, np.dtype[Any]] = {}
        for name in self.signature.types:
            given = [k for k, one in zip(kinds, takes, strict=True) if one == name]
            if given:
                of[name] = np.result_type(*(k(0) if isinstance(k, type) else k for k in given))
        wanted = tuple(of[one] if one in of else np.dtype(one) for one in takes)
        for at, dtype in enumerate(wanted):
            if dtype.kind == "c":
                raise TypeError(
                    f"operand {at + 1} is {dtype.name}; its C++ knows real numbers only: pass "
                    "itf.real(x) and itf.imag(x), and join two results by itf.complex(re, im)"
                )
        for at, (given_kind, dtype) in enumerate(zip(kinds, wanted, strict=True)):
            if isinstance(given_kind, type):
                fits = np.result_type(dtype, given_kind(0)) == dtype
                said = f"a Python {given_kind.__name__}"
            else:
                fits, said = np.can_cast(given_kind, dtype, "safe"), given_kind.name
            if not fits:
                raise TypeError(
                    f"operand {at + 1} is {said}, which {dtype.name} cannot hold; .astype(...) it, "
                    "or make the function a template"
                )
        result = self.signature.result
        if result in self.signature.types and result not in of:
            raise TypeError(f"no parameter has the type {result} of the result")
        return wanted, of[result] if result in of else np.dtype(result)


def cpp_function(source: str, *, numpy: Callable[..., Any] | None = None) -> CppFunction:
    """Return a scalar function that is written in C++, to be used like any operation.

    Parameters
    ----------
    source : str
        C++17 text whose last function is meant; those before it are its helpers. It is typed
        (``float f(float x, int k) {...}``) or a template of one or more types
        (``template <typename T> T f(T x, T y) {...}``). CUDA's device functions are there; headers
        are not. Types are bool, float, double and the integers of NumPy's dtypes. float16 and
        bfloat16 come to a template as float, and its result is rounded to them. There are no
        complex ones: pass `itf.real(x)` and `itf.imag(x)`.
    numpy : callable, optional
        Its twin for the CPU engine: called with blocks (arrays of any shape, or scalars), it
        returns an array. Without it, the CPU engine raises `Unsupported`.

    Returns
    -------
    CppFunction
        Callable on arrays and numbers. Operands convert where NumPy calls it safe; Python numbers
        are weak; a template's type is NumPy's common dtype of its operands. Make it once, beside
        other functions: each new `numpy` function is another operation, compiled anew.

    Raises
    ------
    ValueError, DTypeError
        If no function is found, or one of its types is none of those.
    CompileError
        When it is built, with the generated source and the compiler's log.

    Notes
    -----
    The compiler may contract ``a * b + c`` inside the function into one rounding; `__fmul_rn` and
    its like are never contracted.

    Examples
    --------
    >>> import itfuse as itf, numpy as np
    >>> smoothstep = itf.cpp_function('''
    ... template <typename T> T smoothstep(T x) {
    ...   const T t = x < T(0) ? T(0) : x > T(1) ? T(1) : x;
    ...   return t * t * (T(3) - T(2) * t);
    ... }''', numpy=lambda x: (t := np.clip(x, 0, 1)) * t * (3 - 2 * t))
    >>> (smoothstep(np.float32([-1, 0.25, 0.5, 2])) + 1).compute()
    array([1.     , 1.15625, 1.5    , 2.     ], dtype=float32)
    """
    if not isinstance(source, str):
        raise TypeError(f"cpp_function: the source is a {type(source).__name__}; expected C++ text")
    if numpy is not None and not callable(numpy):
        raise TypeError(f"cpp_function: numpy={numpy!r} is not callable")
    return CppFunction(source, numpy)


# ---- reductions with an operator of one's own ----------------------------------------------------
def reduce(x: Any, op: Any, identity: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Reduce along axes by an associative operator of one's own.

    Parameters
    ----------
    x : array, or tuple of array
        What is reduced; a tuple gives the fields of a struct, broadcast together.
    op : CppFunction, numpy.ufunc, function of itfuse, or Python function
        ``combine(a, b)``, which must be associative and commutative. A Python function is written
        with itfuse's operations (``lambda a, b: itf.where(a > b, a, b)``) and traced once. For a
        struct of k fields a `cpp_function` with 2 k parameters,
        ``void merge(T1& a1, ..., Tk& ak, T1 b1, ..., Tk bk)``, that changes the first k; its NumPy
        twin takes the same 2 k and returns the k new ones.
    identity : scalar, or tuple of scalar
        ``op(identity, x)`` must be x, because elements are filled up with it. It is the result of
        nothing.
    axis : int or tuple of int, optional
        All axes by default.
    keepdims : bool
        Whether reduced axes stay, with one element.

    Returns
    -------
    Array, or tuple of Array
        In the dtype that `op` returns: its parameters' dtypes, or for templates and ufuncs that of
        `x`. Elements combine in the order of docs/determinism.md on every engine. The fields of a
        struct are found in one walk.

    Raises
    ------
    DTypeError
        If `op` returns another dtype than it takes, or a field is no safe conversion away.
    Unsupported
        If a function of itfuse is no single row of the table.

    Examples
    --------
    >>> import itfuse as itf, numpy as np
    >>> int(itf.reduce(np.array([12, 18, 30]), np.gcd, 0).compute())
    6
    >>> merge = itf.cpp_function(
    ...     "void both(float& low, float& high, float l, float h)"
    ...     "{ low = l < low ? l : low; high = h > high ? h : high; }",
    ...     numpy=lambda low, high, l, h: (np.fmin(low, l), np.fmax(high, h)))
    >>> x = np.float32([3, -1, 2])
    >>> low, high = itf.reduce((x, x), merge, (np.inf, -np.inf))
    >>> [float(one) for one in itf.compute(low, high)]
    [-1.0, 3.0]
    """
    if isinstance(x, tuple):
        return _reduce_struct(x, op, identity, axis, keepdims)
    lazy = asarray(x)
    reduction, dtype = operator(lazy, op, identity, "reduce")
    axes = expr.normalize_axes(axis, lazy.ndim, lambda: f"reduce({wording.text(lazy._node)})")
    return lazy._of(expr.reduction(reduction, lazy._node, dtype, axes, keepdims=keepdims))


def operator(x: Array, op: Any, identity: Any, label: str) -> tuple[Op, np.dtype[Any]]:
    """Return the reduction by an operator of the user's, and the dtype it combines in."""
    row = _traced(op, x.dtype, label) if _is_python(op) else _operator(op, label)
    what = f"{label}({wording.text(x._node)}, {row.shown})"
    dtype = _closed(row, x.dtype, what)
    if identity is None:
        raise TypeError(f"{what}: give identity=, the element for which {row.shown}(identity, x) "
                        "is x")  # fmt: skip
    neutral = _neutral(identity, dtype, what)
    return _reduction(row, neutral.item(), f"{neutral.dtype} {neutral.item()!r}"), dtype


def _is_python(op: Any) -> bool:
    """Whether an operator is a Python function, or something else that is no row by itself."""
    known = isinstance(op, (CppFunction, np.ufunc))
    return callable(op) and not known and FUNCTIONS.get(getattr(op, "__name__", "")) is not op


def _traced(op: Any, dtype: np.dtype[Any], label: str) -> Op:
    """Return the row of an operator that is written with operations of arrays."""
    made = combined(op, dtype, label)
    name = row_name(made.name, (made.source, made.helpers), None)
    return CUSTOM.setdefault(name, Op(
        name, 2, ELEMENTWISE, f"The operator {made.name}.", numpy=made.twin,
        result=lambda *kinds: ((dtype, dtype), dtype),
        helper=dict.fromkeys(("*", "c"), made.helpers),
        cpp=dict.fromkeys(("*", "c"), f"{made.call}({{0}}, {{1}})"),
    ))  # fmt: skip


def _operator(op: Any, label: str) -> Op:
    row = None
    if isinstance(op, CppFunction):
        row = op.op
        if row is None:
            raise TypeError(f"{label}: {op.name} combines structs: give x and identity as tuples")
    elif isinstance(op, np.ufunc):
        row = BY_UFUNC.get(op)
    elif callable(op) and FUNCTIONS.get(name := getattr(op, "__name__", "")) is op:
        row = BY_NAME.get(name)
    else:
        raise TypeError(
            f"{label}: {op!r} is no operator; give a NumPy ufunc, a function of itfuse such as "
            "itf.hypot, or itf.cpp_function(...)"
        )
    if row is None or row.kind != ELEMENTWISE:
        raise Unsupported(
            f"{label}: {getattr(op, '__name__', op)} is no single operation; write it with "
            "itf.cpp_function"
        )
    if row.arity != 2:
        raise TypeError(f"{label}: {row.shown} takes {row.arity} operands; an operator takes two")
    return row


def _closed(row: Op, dtype: np.dtype[Any], what: str) -> np.dtype[Any]:
    """Return the dtype in which an operator combines elements of `dtype`."""
    (left, right), result, _ = expr.resolve(row, (dtype, dtype), lambda: what)
    if not left == right == result:
        raise DTypeError(
            f"{what}: it takes {left} and {right} and returns {result}; an operator that combines "
            "its own results takes and returns one dtype"
        )
    made: np.dtype[Any] = result
    return made


def _neutral(identity: Any, dtype: np.dtype[Any], what: str) -> Any:
    value = np.asarray(identity)
    if value.shape:
        raise TypeError(f"{what}: identity={identity!r} is no scalar")
    try:
        with np.errstate(over="raise"):
            exact = dtype.type(value[()])
        same = bool(exact == value) or bool(np.isnan(value))
    except (OverflowError, FloatingPointError, ValueError):
        same = False
    if not same and not (dtype.kind in "fc" and value.dtype.kind == "f"):
        raise DTypeError(f"{what}: the identity {identity!r} is no {dtype.name}")
    return exact if same else dtype.type(value[()])


@functools.lru_cache(maxsize=256)
def _reduction(row: Op, neutral: Any, written: str) -> Op:
    """Return the reduction by a row: the row as a combining operator, and its identity."""
    name = row_name(row.shown, (row.name, written), None)
    CUSTOM.setdefault(name, dataclasses.replace(row, name=name, kind=COMBINE, well_known=""))
    return CUSTOM.setdefault(f"{name}.reduce", Op(
        f"{name}.reduce", 1, REDUCTION, f"Reduction by {row.shown}.", combine=name,
        identity=lambda dtype: neutral,
    ))  # fmt: skip


def _reduce_struct(x: Any, op: Any, identity: Any, axis: Any, keepdims: bool) -> Any:
    if not isinstance(op, CppFunction):
        raise TypeError("reduce: structs need a cpp_function that changes its first operands")
    count, takes = len(x), op.signature.operands
    fits = len(takes) == 2 * count and op.signature.changed == count
    if not fits or op.signature.result != "void" or takes[:count] != takes[count:]:
        raise TypeError(
            f"reduce: {op.name} does not combine structs of {count} fields: expected void "
            f"{op.name}(T1& a1, ..., T{count}& a{count}, T1 b1, ..., T{count} b{count})"
        )
    if not isinstance(identity, tuple) or len(identity) != count:
        raise TypeError(f"reduce: identity={identity!r}; expected a tuple of {count} scalars")
    given = [one if type(one) in (bool, int, float) else asarray(one) for one in x]
    shown = [wording.text(one._node) if isinstance(one, Array) else repr(one) for one in given]
    what = f"reduce(({', '.join(shown)}), {op.name})"
    weak = [one.dtype if isinstance(one, Array) else one for one in given]
    of: dict[str, np.dtype[Any]] = {}
    for name in op.signature.types:
        if named := [one for one, t in zip(weak, takes, strict=False) if t == name]:
            of[name] = np.result_type(*named)
    kinds = [of.get(name) or np.dtype(name) for name in takes[:count]]
    for at, (one, kind) in enumerate(zip(weak, kinds, strict=True)):
        strong = isinstance(one, np.dtype)
        fits = np.can_cast(one, kind, "safe") if strong else np.result_type(kind, one) == kind
        if dtypes.DTYPES[kind.name].narrow or not fits:
            raise DTypeError(
                f"{what}: field {at + 1} is {one}, and {op.name} combines {kind.name}; .astype(...)"
                f" it first{', to float32 or wider' if fits else ''}"
            )
        if dtypes.DTYPES[kind.name].part:
            raise Unsupported(f"{what}: field {at + 1} is complex; give its parts as two fields")
    arrays = [one.astype(kind) if isinstance(one, Array) else full((), one, kind)
              for one, kind in zip(given, kinds, strict=True)]  # fmt: skip
    data, device = combine(arrays, lambda: what)
    domain = expr.broadcast([one.shape for one in arrays], lambda: what)
    axes = expr.normalize_axes(axis, len(domain), lambda: what)
    nodes = tuple(broadcast_to(one, domain)._node for one in arrays)
    neutral = tuple(_neutral(v, k, what).item() for v, k in zip(identity, kinds, strict=True))
    picks = _fold(op, tuple(k.name for k in kinds), neutral, repr(neutral))
    return tuple(
        Array(expr.reduction(one, nodes, None, axes, keepdims=keepdims), data, device)
        for one in picks
    )


@functools.lru_cache(maxsize=256)
def _fold(op: CppFunction, kinds: tuple[str, ...], neutral: Any, written: str) -> list[Op]:
    """Return the reductions of a struct: one operator, and a row for each field of it."""
    name = row_name(op.name, (op._row, kinds, written), None)
    fields = tuple((np.dtype(kind), np.dtype(kind).type(v))
                   for kind, v in zip(kinds, neutral, strict=True))  # fmt: skip
    twin = op.numpy_twin

    def merge(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
        assert twin is not None
        made = twin(*a, *b)
        if not isinstance(made, tuple) or len(made) != len(kinds):
            raise ShapeError(f"{op.name}: its NumPy twin must return {len(kinds)} arrays")
        return tuple(np.asarray(one, kind) for one, (kind, _) in zip(made, fields, strict=True))

    whole = FOLDS.setdefault(name, Op(
        name, 0, FOLD, f"Reduction by {op.name}.", combine=name, fields=lambda dtype: fields,
        merge=None if twin is None else merge, cpp={"merge": f"{op.call}({{a}}, {{b}})"},
        helper={"*": (op.helper,)},
    ))  # fmt: skip
    return list(_picks(whole, len(kinds)))


def _picks(whole: Op, count: int) -> Iterator[Op]:
    for at in range(count):
        name = f"{whole.name}.{at}"
        yield CUSTOM.setdefault(name, dataclasses.replace(whole, name=name, pick=at))
