"""THE TABLE: one row per operation.

From a row come the function, the method or operator, the dtype rule, the CPU meaning, the C++
text, the docs page and the tests on every engine and dtype. A new op is one new row.

C++ templates
-------------
`cpp` maps a *signature* to an expression. Signatures are tried from the most special to the most
general: `"float64->float16"` (dtypes of the last operand and of the result), `"float16"` (dtype of
the last operand), `"iu->b"` (kinds of all operands and of the result), `"->b"` (kind of the
result), `"iu"` (kinds of the operands), `"f"` (kind of the last operand), `"*"` (no complex).
Placeholders: `{0} {1} {2}` operands; `{T}` result type; `{A}` type of the last operand; `{W}` the
unsigned type in which its arithmetic wraps; `{bits}` its width; `{s}` the suffix of a C math
function (`f` for float); `{p}` the prefix of a rounding intrinsic (`__fadd_rn`, `__dadd_rn`); `{F}`
the type of a complex result's parts. Values of float16 and bfloat16 come as float, and the result
is rounded to them.

Sums and products use the rounding intrinsics, because a compiler may contract `a * b + c` into one
rounding, and NumPy rounds each node.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from itfuse import dtypes, reference
from itfuse.errors import DTypeError
from itfuse.rows import (
    arithmetic_cpp,
    complex_cpp,
    composites,
    elementwise,
    folds,
    nans,
    order,
    philox,
    statistics,
)
from itfuse.rows.op import (
    COMBINE,
    COMPOSITE,
    ELEMENTWISE,
    INDEX,
    LEAF,
    PLACE,
    RANDOM,
    REDUCTION,
    SELECTION,
    STATISTIC,
    TERMINAL,
    Op,
)

OPS: dict[str, Op] = {}
CUSTOM: dict[str, Op] = {}
"""Rows that users make (custom.py), under names that hold a hash of their text."""
ROWS: Mapping[str, Op] = ChainMap(CUSTOM, OPS)
"""Every row that a stage may name."""


def _row(op: Op) -> None:
    assert op.name not in OPS, op.name
    OPS[op.name] = op


def _elementwise(  # noqa: PLR0917 - the rows below read best in this order
    name: str, arity: int, doc: str, numpy: Callable[..., Any], cpp: dict[str, str],
    helper: str | dict[str, tuple[str, ...]] = "", **rest: Any,
) -> None:  # fmt: skip
    helpers: dict[str, tuple[str, ...]] = {}
    if isinstance(helper, dict):
        helpers = helper
    elif helper:
        helpers = {"*": (helper,)}
    _row(Op(name, arity, ELEMENTWISE, doc, numpy=numpy, cpp=cpp, helper=helpers, **rest))


def _negative_power(x: Any, y: Any) -> str:
    if isinstance(y, np.integer) and y < 0:
        return "integers to negative integer powers are not allowed; cast to a float first"
    return ""


def _power(F: Any, x: Any, y: Any) -> Any:
    # NumPy's `**` (not np.power) takes cheap exponents by cheaper means, with other roundings.
    if type(y) in (int, float) and hasattr(x, "dtype"):
        inexact = dtypes.kind(x.dtype) in "fc"
        if y == 2 and (inexact or type(y) is int):
            return F.square(x)
        cheap = {0.5: F.sqrt, -1: F.reciprocal, 1: F.positive}.get(y)
        if cheap and inexact:
            return cheap(x)
    return F.power(x, y)


# Leaves. `input` is an array; `scalar` a runtime value in the state block.
INPUT = Op("input", 0, LEAF, "An array.")
SCALAR = Op("scalar", 0, LEAF, "A runtime scalar.")
CONSTANT = Op("constant", 0, LEAF, "A small integer that is part of the code.")
POSITION = Op("position", 0, LEAF, "Number of an element among those that are reduced together.")
# The index itself as a value: an offset plus a step along each axis (`arg`, a plan.index.Form).
IOTA = Op("iota", 0, LEAF, "Numbers made from the index.")
# `view` reads its operand where `arg` (a plan.index.Map) says; `reshape` in row-major order.
VIEW = Op("view", 1, PLACE, "Elements of the operand at other places.")
RESHAPE = Op("reshape", 1, PLACE, "The operand's elements in row-major order in another shape.")
# What planning makes of them. `strided`: an array at byte steps (`arg`, a Form). `gather`: an
# array at the byte offset that the second operand computes.
STRIDED = Op("strided", 1, PLACE, "An array along other strides.")
GATHER = Op("gather", 2, PLACE, "An array at computed places.")
# What ends a pipeline in a pass of its own; `arg` is a plan.terminals.How. Operands that the pass
# computes itself come first, then those that it reads as arrays.
HISTOGRAM = Op("histogram", 2, TERMINAL, "Number, or sum of weights, of the elements at a place.")
SORT = Op("sort", 1, TERMINAL, "Rows in order, or the order.")
SEGMENTS = Op("segments", 2, TERMINAL, "A reduction of each segment of one axis.")
SCATTER = Op("scatter", 3, TERMINAL, "An array with elements written at computed places.")
SCAN = Op("scan", 1, TERMINAL, "Each element combined with all before it along an axis.")
BUFFER = Op("buffer", 1, TERMINAL, "The operand in memory, where somebody asked for it.")
TERMINALS = (HISTOGRAM, SORT, SEGMENTS, SCATTER, SCAN, BUFFER)
# Roots only, because their sizes are decided by data; `arg` is a plan.index.Choice.
SELECT = Op("select", 2, SELECTION, "Elements of the last operand that a flag chooses.")
COUNT = Op("count", 1, SELECTION, "How many elements each flag chooses.")

# ---- arithmetic ------------------------------------------------------------------------------
_elementwise("add", 2, "Sum.", np.add, {
    "f": "__{p}add_rn({0}, {1})", "c": "itf_plus({0}, {1})", "b": "{0} || {1}",
    "*": "({T})(({W}){0} + ({W}){1})",
}, symbol="+", dunder="add", well_known="PLUS")  # fmt: skip
_elementwise("subtract", 2, "Difference.", np.subtract, {
    "f": "__{p}sub_rn({0}, {1})", "c": "itf_minus({0}, {1})", "*": "({T})(({W}){0} - ({W}){1})",
}, symbol="-", dunder="sub")  # fmt: skip
_elementwise("multiply", 2, "Product; of complex numbers as NumPy's scalars.", np.multiply, {
    "f": "__{p}mul_rn({0}, {1})", "c": "itf_times({0}, {1})", "b": "{0} && {1}",
    "*": "({T})(({W}){0} * ({W}){1})",
}, numpy_c=reference.COMPLEX_MULTIPLY, symbol="*", dunder="mul")  # fmt: skip
_elementwise("divide", 2, "True quotient; integers divide as floating point.", np.divide, {
    "f": "__{p}div_rn({0}, {1})", "c": "itf_over({0}, {1})",
}, symbol="/", dunder="truediv", aliases=("true_divide",))  # fmt: skip
_elementwise("floor_divide", 2, "Quotient rounded down; an integer over zero is zero.",
             np.floor_divide, {"f": "itf_floor_divide({0}, {1})", "i": "itf_floor_divide({0}, {1})",
                               "*": "{1} == 0 ? ({T})0 : ({T})({0} / {1})"},
             symbol="//", dunder="floordiv", helper=arithmetic_cpp.FLOOR_DIVIDE)  # fmt: skip
_elementwise("remainder", 2, "Remainder with the divisor's sign; an integer modulo zero is zero.",
             np.remainder, {"f": "itf_remainder_float({0}, {1})", "i": "itf_remainder({0}, {1})",
                            "*": "{1} == 0 ? ({T})0 : ({T})({0} % {1})"},
             symbol="%", dunder="mod", aliases=("mod",),
             helper=arithmetic_cpp.REMAINDER)  # fmt: skip
_elementwise("fmod", 2, "Remainder with the sign of the dividend.", np.fmod, {
    "f": "fmod{s}({0}, {1})", "i": "itf_fmod({0}, {1})",
    "*": "{1} == 0 ? ({T})0 : ({T})({0} % {1})",
}, helper=arithmetic_cpp.FMOD)  # fmt: skip
_elementwise("power", 2, "First operand to the power of the second. An integer to a negative "
             "integer is an error; on a GPU, for arrays, it is the power rounded towards zero.",
             reference.power, {
    "f": "pow{s}({0}, {1})", "c": "itf_power({0}, {1})", "*": "itf_power({0}, {1})",
}, symbol="**", dunder="pow", aliases=("pow",), ulp=9, ulp_c=1000, refuses=_negative_power,
operator=_power, ufunc=np.power,
helper={"f": (), "c": (complex_cpp.EXP, complex_cpp.LOG, complex_cpp.POWER),
        "*": (arithmetic_cpp.POWER,)})  # fmt: skip
_elementwise("negative", 1, "Minus the operand.", np.negative, {
    "f": "-{0}", "c": "-{0}", "*": "({T})(({W})0 - ({W}){0})",
}, symbol="-", dunder="neg")  # fmt: skip
_elementwise("positive", 1, "The operand itself.", np.positive, {"c": "{0}", "*": "{0}"},
             symbol="+", dunder="pos", idle=True)  # fmt: skip
_elementwise("absolute", 1, "Absolute value; the least integer wraps to itself.", np.absolute, {
    "f": "fabs{s}({0})", "c": "hypot{s}({0}.re, {0}.im)",
    "i": "{0} < 0 ? ({T})(({W})0 - ({W}){0}) : {0}", "*": "{0}",
}, dunder="abs", aliases=("abs",), ulp_c=3)  # fmt: skip
_elementwise("square", 1, "The operand times itself; complex as NumPy's scalars.", np.square, {
    "f": "__{p}mul_rn({0}, {0})", "c": "itf_times({0}, {0})", "b": "{0}",
    "*": "({T})(({W}){0} * ({W}){0})",
}, numpy_c=reference.complex_square)  # fmt: skip
_elementwise("sign", 1, "-1, 0 or 1; NaN stays NaN.", np.sign, {
    "f": "{0} > 0 ? ({T})1 : {0} < 0 ? ({T})-1 : {0} == 0 ? ({T})0 : {0}",
    "i": "({T})(({0} > 0) - ({0} < 0))", "*": "({T})({0} > 0)", "c": "itf_sign({0})",
    "bfloat16": "{0} > 0 ? ({T})1 : {0} < 0 ? ({T})-1 : {0}",  # of a zero the zero itself
}, helper={"c": (complex_cpp.SIGN,)}, ulp_c=3)  # fmt: skip
_elementwise("minimum", 2, "The lesser; NaN if either is.", np.minimum, {
    "f": "({0} < {1} || {0} != {0}) ? {0} : {1}",
    "float16": "({0} <= {1} || {0} != {0}) ? {0} : {1}",  # of equal zeros the first
    "c": "(itf_nan({0}) || {0} <= {1}) ? {0} : {1}", "*": "{0} < {1} ? {0} : {1}",
})  # fmt: skip
_elementwise("maximum", 2, "The greater; NaN if either is.", np.maximum, {
    "f": "({0} > {1} || {0} != {0}) ? {0} : {1}",
    "float16": "({0} >= {1} || {0} != {0}) ? {0} : {1}",
    "c": "(itf_nan({0}) || {0} >= {1}) ? {0} : {1}", "*": "{0} > {1} ? {0} : {1}",
})  # fmt: skip
_elementwise("copysign", 2, "First operand with the sign of the second.", np.copysign, {
    "f": "copysign{s}({0}, {1})",
})  # fmt: skip

# ---- comparison and logic --------------------------------------------------------------------
# NumPy compares int64 with uint64 exactly; C++ would convert the signed side.
for _name, _symbol, _dunder, _iu, _ui in (
    ("less", "<", "lt", "{0} < 0 || ({W}){0} < {1}", "{1} >= 0 && {0} < ({W}){1}"),
    ("less_equal", "<=", "le", "{0} < 0 || ({W}){0} <= {1}", "{1} >= 0 && {0} <= ({W}){1}"),
    ("greater", ">", "gt", "{0} >= 0 && ({W}){0} > {1}", "{1} < 0 || {0} > ({W}){1}"),
    ("greater_equal", ">=", "ge", "{0} >= 0 && ({W}){0} >= {1}", "{1} < 0 || {0} >= ({W}){1}"),
    ("equal", "==", "eq", "{0} >= 0 && ({W}){0} == {1}", "{1} >= 0 && {0} == ({W}){1}"),
    ("not_equal", "!=", "ne", "{0} < 0 || ({W}){0} != {1}", "{1} < 0 || {0} != ({W}){1}"),
):
    _elementwise(_name, 2, f"Whether `x1 {_symbol} x2`.", getattr(np, _name),
                 {"iu": _iu, "ui": _ui, "*": f"{{0}} {_symbol} {{1}}",
                  "c": f"{{0}} {_symbol} {{1}}"},
                 symbol=_symbol, dunder=_dunder, compares=True)  # fmt: skip
_elementwise("logical_and", 2, "Whether both are true.", np.logical_and,
             {"*": "{0} != 0 && {1} != 0", "c": "itf_true({0}) && itf_true({1})"})  # fmt: skip
_elementwise("logical_or", 2, "Whether either is true.", np.logical_or,
             {"*": "{0} != 0 || {1} != 0", "c": "itf_true({0}) || itf_true({1})"})  # fmt: skip
_elementwise("logical_xor", 2, "Whether exactly one is true.", np.logical_xor,
             {"*": "({0} != 0) != ({1} != 0)", "c": "itf_true({0}) != itf_true({1})"})  # fmt: skip
_elementwise("logical_not", 1, "Whether it is false.", np.logical_not,
             {"*": "{0} == 0", "c": "!itf_true({0})"})  # fmt: skip
_elementwise("isnan", 1, "Whether it is NaN.", np.isnan,
             {"f": "{0} != {0}", "c": "itf_nan({0})", "*": "false"})  # fmt: skip
_elementwise("isinf", 1, "Whether it is infinite.", np.isinf, {
    "f": "{0} == {0} && {0} - {0} != 0", "*": "false",
    "c": "({0}.re == {0}.re && {0}.re - {0}.re != 0) || ({0}.im == {0}.im && {0}.im - {0}.im != 0)",
})  # fmt: skip
_elementwise("isfinite", 1, "Whether it is neither infinite nor NaN.", np.isfinite, {
    "f": "{0} - {0} == 0", "c": "{0}.re - {0}.re == 0 && {0}.im - {0}.im == 0", "*": "true",
})  # fmt: skip
_elementwise("signbit", 1, "Whether the sign bit is set.", np.signbit, {"f": "signbit({0}) != 0"})

# ---- bits ------------------------------------------------------------------------------------
_elementwise("bitwise_and", 2, "Bits set in both.", np.bitwise_and,
             {"b": "{0} && {1}", "*": "({T})({0} & {1})"}, symbol="&", dunder="and")  # fmt: skip
_elementwise("bitwise_or", 2, "Bits set in either.", np.bitwise_or,
             {"b": "{0} || {1}", "*": "({T})({0} | {1})"}, symbol="|", dunder="or")  # fmt: skip
_elementwise("bitwise_xor", 2, "Bits set in exactly one.", np.bitwise_xor,
             {"b": "{0} != {1}", "*": "({T})({0} ^ {1})"}, symbol="^", dunder="xor")  # fmt: skip
_elementwise("invert", 1, "All bits flipped.", np.invert, {"b": "!{0}", "*": "({T})~{0}"},
             symbol="~", dunder="invert", aliases=("bitwise_invert", "bitwise_not"),
             undoes=True)  # fmt: skip
# A shift by the width or more, or by a negative count, shifts everything out, as in NumPy.
_elementwise("left_shift", 2, "Bits moved left; zero once all are shifted out.", np.left_shift, {
    "*": "(unsigned long long){1} < {bits} ? ({T})(({W}){0} << ({W}){1}) : ({T})0",
}, symbol="<<", dunder="lshift", aliases=("bitwise_left_shift",))  # fmt: skip
_elementwise("right_shift", 2, "Bits moved right; a negative number fills with ones.",
             np.right_shift, {
    "i": "(unsigned long long){1} < {bits} ? ({T})({0} >> {1}) : ({T})({0} < 0 ? -1 : 0)",
    "*": "(unsigned long long){1} < {bits} ? ({T})({0} >> {1}) : ({T})0",
}, symbol=">>", dunder="rshift", aliases=("bitwise_right_shift",))  # fmt: skip

# ---- rounding --------------------------------------------------------------------------------
for _name, _doc in (
    ("floor", "Rounded down."), ("ceil", "Rounded up."), ("trunc", "Rounded towards zero."),
    ("rint", "Rounded to the nearest integer, ties to even."),
):  # fmt: skip
    _elementwise(
        _name,
        1,
        _doc,
        getattr(np, _name),
        {"f": f"{_name}{{s}}({{0}})", "*": "{0}"}
        | ({"c": "{T}{{rint({0}.re), rint({0}.im)}}"} if _name == "rint" else {}),
    )


# ---- functions -------------------------------------------------------------------------------
_elementwise("sqrt", 1, "Square root.", np.sqrt,
             {"f": "__{p}sqrt_rn({0})", "c": "itf_sqrt({0})"}, ulp_c=4,
             helper={"c": (complex_cpp.SQRT,)})  # fmt: skip
for _name, _c, _ulp, _doc, _aliases in (
    ("exp", "exp", 3, "e to the power of the operand.", ()),
    ("exp2", "exp2", 3, "2 to the power of the operand.", ()),
    ("expm1", "expm1", 3, "exp(x) - 1, accurate near zero.", ()),
    ("log", "log", 3, "Natural logarithm.", ()),
    ("log2", "log2", 3, "Base-2 logarithm.", ()),
    ("log10", "log10", 3, "Base-10 logarithm.", ()),
    ("log1p", "log1p", 3, "log(1 + x), accurate near zero.", ()),
    ("sin", "sin", 4, "Sine of radians.", ()),
    ("cos", "cos", 4, "Cosine of radians.", ()),
    ("tan", "tan", 5, "Tangent of radians.", ()),
    ("arcsin", "asin", 5, "Inverse sine, in radians.", ("asin",)),
    ("arccos", "acos", 5, "Inverse cosine, in radians.", ("acos",)),
    ("arctan", "atan", 4, "Inverse tangent, in radians.", ("atan",)),
    ("sinh", "sinh", 5, "Hyperbolic sine.", ()),
    ("cosh", "cosh", 4, "Hyperbolic cosine.", ()),
    ("tanh", "tanh", 4, "Hyperbolic tangent.", ()),
    ("arcsinh", "asinh", 5, "Inverse hyperbolic sine.", ("asinh",)),
    ("arccosh", "acosh", 5, "Inverse hyperbolic cosine.", ("acosh",)),
    ("arctanh", "atanh", 5, "Inverse hyperbolic tangent.", ("atanh",)),
    ("cbrt", "cbrt", 3, "Cube root.", ()),
):
    _template, _helpers, _ulp_c = complex_cpp.FUNCTIONS.get(_name, ("", (), None))
    _elementwise(_name, 1, _doc, getattr(np, _name),
                 {"f": f"{_c}{{s}}({{0}})"} | ({"c": _template} if _template else {}),
                 ulp=_ulp, ulp_c=_ulp_c, aliases=_aliases,
                 numpy_c=reference.complex_log1p if _name == "log1p" else None,
                 helper={"c": _helpers} if _template else {})  # fmt: skip
_elementwise("arctan2", 2, "Angle of the point (x2, x1), in radians.", np.arctan2,
             {"f": "atan2{s}({0}, {1})"}, ulp=5, aliases=("atan2",))  # fmt: skip
_elementwise("hypot", 2, "Length of the vector (x1, x2).", np.hypot,
             {"f": "hypot{s}({0}, {1})"}, ulp=4)  # fmt: skip
for _fields in elementwise.UFUNCS + elementwise.SPECIAL:
    _elementwise(**_fields)


# ---- choice and conversion -------------------------------------------------------------------
def _where_result(condition: Any, x: Any, y: Any) -> tuple[tuple[Any, ...], Any]:
    # NumPy takes Python scalars as weak, by value: any value of the type stands for all.
    dtype = np.result_type(*(kind(0) if isinstance(kind, type) else kind for kind in (x, y)))
    return (np.dtype(bool), dtype, dtype), dtype


_elementwise("where", 3, "Second operand where the first is true, else the third.",
             reference.where, {"c": "{0} ? {1} : {2}", "*": "{0} ? {1} : {2}"},
             result=_where_result, wraps=True)  # fmt: skip
# The target dtype is the node's own; `Array.astype` makes the node.
_elementwise("astype", 1, "Conversion to another dtype.", reference.astype,
             {"->b": "{0} != 0", "*": "({T}){0}", "c->b": "itf_true({0})",
              "c->c": "{T}{{({F}){0}.re, ({F}){0}.im}}", "->c": "{T}{{({F}){0}, 0}}",
              "c": "({T}){0}.re",
              # A float cannot hold every double and integer, and rounding twice is another result.
              "float64->float16": "itf_half_of({0})", "float64->bfloat16": "itf_bfloat_of({0})",
              "complex128->float16": "itf_half_of({0}.re)",
              "complex128->bfloat16": "itf_bfloat_of({0}.re)",
              **dict.fromkeys((f"{name}->bfloat16" for name in ("int32", "uint32", "int64",
                               "uint64")), "itf_bfloat_of((double){0})")},
             result=lambda x: ((x,), x))  # fmt: skip


def _complex_result(re: Any, im: Any) -> tuple[tuple[Any, ...], Any]:
    part = np.result_type(*(kind(0) if isinstance(kind, type) else kind for kind in (re, im)), "f4")
    if part.kind == "c":
        raise TypeError("its parts are real numbers")
    return (part, part), np.result_type(part, "c8")


_elementwise("complex", 2, "Complex number of a real and an imaginary part.",
             reference.complex_of, {"ff->c": "{T}{{{0}, {1}}}"},
             result=_complex_result)  # fmt: skip

# ---- places ----------------------------------------------------------------------------------
_INT64 = np.dtype(np.int64)
# On the CPU an index out of bounds is an error. A device cannot raise: it stays inside the array.
_row(Op("wrap_index", 2, INDEX, "The place that an index means: negative ones count from the end.",
        numpy=reference.wrap_index, result=lambda i, n: ((_INT64, _INT64), _INT64),
        cpp={"*": "itf_wrap_index({0}, {1})"}, helper={"*": ("""
__device__ __forceinline__ long long itf_wrap_index(long long i, long long n) {
  const long long place = i < 0 ? i + n : i;
  return place < 0 ? 0 : place < n ? place : n - 1;
}
""",)}))  # fmt: skip

for _fields in philox.ROWS:
    _row(Op(kind=RANDOM, **_fields))
for _op in order.ROWS:
    _row(_op)

# ---- reductions ------------------------------------------------------------------------------


def _reduction(name: str, doc: str, numpy: np.ufunc, combine: str, **rest: Any) -> None:
    _row(Op(name, 1, REDUCTION, doc, numpy=numpy, combine=combine, method=True, **rest))


_reduction("sum", "Sum of all elements; small integers add up as 64-bit.", np.add, "add",
           identity=lambda dtype: 0, takes_dtype=True)  # fmt: skip
# What `prod` combines with: a product to which its identity is neutral, also beside infinities.
_row(Op("product", 2, COMBINE, "Product of two parts.", numpy=np.multiply,
        numpy_c=reference.COMPLEX_PRODUCT, symbol="*", cpp={
            **OPS["multiply"].cpp, "c": "itf_product({0}, {1})"}, helper={"c": ("""
template <typename F>
__device__ __forceinline__ itf_complex<F> itf_product(itf_complex<F> a, itf_complex<F> b) {
  const itf_complex<F> one = {F(1), F(0)};
  return a == one ? b : b == one ? a : itf_times(a, b);
}
""",)}))  # fmt: skip
_reduction("prod", "Product of all elements; small integers multiply as 64-bit.", np.multiply,
           "product", identity=lambda dtype: 1, takes_dtype=True)  # fmt: skip
_reduction("min", "Least element; NaN if any is.", np.minimum, "minimum",
           identity=folds.greatest, of_nothing=False, aliases=("amin",))  # fmt: skip
_reduction("max", "Greatest element; NaN if any is.", np.maximum, "maximum",
           identity=folds.least, of_nothing=False, aliases=("amax",))  # fmt: skip
_reduction("any", "Whether any element is true.", np.logical_or, "logical_or",
           identity=lambda dtype: False)  # fmt: skip
_reduction("all", "Whether all elements are true.", np.logical_and, "logical_and",
           identity=lambda dtype: True)  # fmt: skip


def identity(combine: str, dtype: np.dtype[Any]) -> Any:
    """Return the neutral element of the operator `combine` as a NumPy scalar of `dtype`."""
    row = next(op for op in ROWS.values() if op.combine == combine and op.identity)
    assert row.identity is not None
    return dtype.type(row.identity(dtype))


FOLDS: dict[str, Op] = folds.FOLDS
"""Reductions whose accumulator has several fields."""


def fields(combine: str, dtype: str) -> tuple[tuple[str, Any], ...]:
    """Return dtype name and identity of every field of an operator's accumulator."""
    kind = np.dtype(dtype)
    if combine in FOLDS:
        made = FOLDS[combine].fields
        assert made is not None
        return tuple((one.name, neutral) for one, neutral in made(kind))
    return ((dtype, identity(combine, kind)),)


# ---- composites: NumPy's own definitions, written with the rows above ----------------------------


def _composite(name: str, arity: int, doc: str, expand: Callable[..., Any], **rest: Any) -> None:
    _row(Op(name, arity, COMPOSITE, doc, expand=expand, **rest))


def _clip(F: Any, x: Any, min: Any = None, max: Any = None) -> Any:
    x = F.asarray(x)
    if x.dtype.kind in "iu":  # NumPy drops a Python integer that bounds nothing
        info = np.iinfo(x.dtype)
        min = None if type(min) is int and min <= info.min else min
        max = None if type(max) is int and max >= info.max else max
    if min is None and max is None:
        return F.positive(x)
    x = x if min is None else F.maximum(x, min)
    return x if max is None else F.minimum(x, max)


def _round(F: Any, x: Any, decimals: int = 0) -> Any:
    x = F.asarray(x)
    whole = x.dtype.kind in "iu"
    if whole and decimals >= 0:
        return F.positive(x)
    if decimals == 0:
        return F.rint(x)
    if x.dtype.kind == "b":
        raise DTypeError(f"round: bool has no decimals={decimals}; .astype(...) it first")
    scale = 10.0 ** abs(decimals)
    if decimals > 0:
        return F.divide(F.rint(F.multiply(x, scale)), scale)
    rounded = F.multiply(F.rint(F.divide(x, scale)), scale)
    return F.astype(rounded, x.dtype) if whole else rounded


_composite("rsqrt", 1, "1 / sqrt(x).", lambda F, x: F.divide(1, F.sqrt(x)))
_composite("relu", 1, "maximum(x, 0).", lambda F, x: F.maximum(x, 0))
_composite("sigmoid", 1, "1 / (1 + exp(-x)).",
           lambda F, x: F.divide(1, F.add(1, F.exp(F.negative(x)))),
           aliases=("expit",))  # fmt: skip
_composite(
    "clip", 3, "minimum(maximum(x, min), max); either bound may be None.", _clip, method=True
)
_composite(
    "round",
    1,
    "Rounded to `decimals` places, ties to even.",
    _round,
    aliases=("around",),
    method=True,
)
_composite("mean", 1, "sum(x) over count; integers as float64.", statistics.mean, method=True)
for _s in statistics.STATISTICS:
    _row(Op(_s.name, _s.arity, STATISTIC, _s.doc, expand=_s.expand, method=_s.method))
for _name, _doc, _expand in nans.ROWS:
    _row(Op(_name, 1, STATISTIC, _doc, expand=_expand))
for _fields in composites.COMPOSITES:
    _composite(**_fields)

BY_UFUNC: dict[Any, Op] = {
    op.asks: op
    for op in OPS.values()
    if op.kind in (ELEMENTWISE, COMPOSITE)
    and op.asks
    and (op.numpy in (None, op.asks) or op.name == op.asks.__name__)
}
"""The row that means a ufunc; NumPy has some twice (radians is deg2rad)."""
for _op in list(BY_UFUNC.values()):
    for _name in _op.aliases:
        if isinstance(getattr(np, _name, None), np.ufunc):
            BY_UFUNC.setdefault(getattr(np, _name), _op)
BY_NAME = {name: op for op in OPS.values() for name in (op.name, *op.aliases)}
"""The row of a public name."""
