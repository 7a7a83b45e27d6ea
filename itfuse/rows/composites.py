"""Composite rows: NumPy's (or the field's) own definitions, written with the rows of the table.

Every function takes `F`, the namespace of all operations, and then what the user gave.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from itfuse import dtypes
from itfuse.errors import DTypeError


def _no_complex(F: Any, x: Any, name: str) -> Any:
    x = F.asarray(x)
    if dtypes.kind(x.dtype) == "c":
        raise DTypeError(f"{name}: the function is of real numbers only, not {x.dtype}")
    return x


def _floating(F: Any, x: Any, ufunc: np.ufunc) -> Any:
    """Return `x` in the dtype in which `ufunc` computes."""
    x = F.asarray(x)
    wanted = ufunc.resolve_dtypes((x.dtype, *[None] * (ufunc.nargs - 1)))[0]
    return F.astype(x, wanted)


def isposinf(F: Any, x: Any) -> Any:
    """NumPy's `isposinf`."""
    x = _no_complex(F, x, "isposinf")
    return F.greater(x, 0) if x.dtype.kind == "b" else F.equal(x, float("inf"))


def isneginf(F: Any, x: Any) -> Any:
    """NumPy's `isneginf`."""
    x = _no_complex(F, x, "isneginf")
    return F.less(x, 0) if x.dtype.kind == "b" else F.equal(x, -float("inf"))


def sinc(F: Any, x: Any) -> Any:
    """NumPy's `sinc`."""
    x = F.multiply(float(np.pi), x)
    eps = float(np.finfo(x.dtype).eps) if x.dtype.kind == "f" else 1e-20
    y = F.where(F.not_equal(x, 0), x, x.dtype.type(eps))
    return F.divide(F.sin(y), y)


def angle(F: Any, x: Any, deg: bool = False) -> Any:
    """NumPy's `angle`."""
    x = F.asarray(x)
    whole = dtypes.kind(x.dtype) != "c"
    a = F.arctan2(0, x) if whole else F.arctan2(F.imag(x), F.real(x))
    return F.multiply(a, 180 / np.pi) if deg else a


def modf(F: Any, x: Any) -> Any:
    """NumPy's `modf`."""
    x = _floating(F, x, np.modf)
    whole = F.trunc(x)
    rest = F.where(F.isinf(x), F.multiply(0, F.copysign(1, x)), F.subtract(x, whole))
    return F.copysign(rest, x), whole


def frexp(F: Any, x: Any) -> Any:
    """NumPy's `frexp`."""
    return F.frexp_fraction(x), F.frexp_exponent(x)


def divmod_(F: Any, x: Any, y: Any) -> Any:
    """NumPy's `divmod`."""
    return F.floor_divide(x, y), F.remainder(x, y)


def logit(F: Any, x: Any) -> Any:
    """log(x / (1 - x)), by way of log1p where the quotient is near 1."""
    x = _no_complex(F, x, "logit")
    rest = F.subtract(1, x)
    near = F.less(F.absolute(F.subtract(x, 0.5)), 0.25)
    middle = F.log1p(F.divide(F.subtract(F.multiply(2, x), 1), rest))
    return F.where(near, middle, F.log(F.divide(x, rest)))


def gelu(F: Any, x: Any, approximate: str = "none") -> Any:
    """Gaussian error linear unit (Hendrycks and Gimpel, 2016)."""
    half = F.multiply(0.5, x)
    if approximate == "none":
        return F.multiply(half, F.add(1, F.erf(F.multiply(x, 0.7071067811865476))))
    if approximate != "tanh":
        raise ValueError(f"gelu: approximate is 'none' or 'tanh', not {approximate!r}")
    cube = F.multiply(F.multiply(x, x), x)
    inner = F.multiply(0.7978845608028654, F.add(x, F.multiply(0.044715, cube)))
    return F.multiply(half, F.add(1, F.tanh(inner)))


def silu(F: Any, x: Any) -> Any:
    """Return x times its sigmoid."""
    return F.multiply(x, F.sigmoid(x))


def softplus(F: Any, x: Any, beta: float = 1.0) -> Any:
    """log(1 + exp(beta x)) / beta."""
    if beta == 1:
        return F.logaddexp(x, 0)
    return F.divide(F.logaddexp(F.multiply(x, beta), 0), beta)


def leaky_relu(F: Any, x: Any, negative_slope: float = 0.01) -> Any:
    """Return x, or below zero x times the slope."""
    return F.where(F.greater(x, 0), x, F.multiply(x, negative_slope))


def elu(F: Any, x: Any, alpha: float = 1.0) -> Any:
    """Return x, or below zero alpha times exp(x) - 1."""
    return F.where(F.greater(x, 0), x, F.multiply(alpha, F.expm1(x)))


def mish(F: Any, x: Any) -> Any:
    """Return x tanh(softplus(x))."""
    return F.multiply(x, F.tanh(F.softplus(x)))


def nan_to_num(  # noqa: PLR0917 - NumPy's signature
    F: Any, x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None
) -> Any:
    """NumPy's `nan_to_num`; `copy` is accepted for NumPy's sake."""
    x = F.asarray(x)
    if dtypes.kind(x.dtype) not in "fc":
        return F.positive(x) if x.dtype.kind != "b" else x
    if dtypes.kind(x.dtype) == "c":
        re, im = (nan_to_num(F, part(x), copy, nan, posinf, neginf) for part in (F.real, F.imag))
        return F.complex(re, im)
    info = dtypes.finfo(x.dtype)
    high = float(info.max) if posinf is None else posinf
    low = float(info.min) if neginf is None else neginf
    y = F.where(F.isnan(x), x.dtype.type(nan), x)
    y = F.where(F.equal(x, float("inf")), x.dtype.type(high), y)
    return F.where(F.equal(x, -float("inf")), x.dtype.type(low), y)


def isclose(  # noqa: PLR0917 - NumPy's signature
    F: Any, a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Any:
    """NumPy's `isclose`."""
    b = F.asarray(b)
    b = F.astype(b, np.result_type(b.dtype, 1.0))
    limit = F.add(atol, F.multiply(rtol, F.absolute(b)))
    near = F.less_equal(F.absolute(F.subtract(a, b)), limit)
    result = F.bitwise_or(F.bitwise_and(near, F.isfinite(b)), F.equal(a, b))
    if equal_nan:
        result = F.bitwise_or(result, F.bitwise_and(F.isnan(a), F.isnan(b)))
    return result


COMPOSITES: tuple[dict[str, Any], ...] = (
    dict(name="isposinf", arity=1, doc="Whether it is positive infinity.", expand=isposinf),
    dict(name="isneginf", arity=1, doc="Whether it is negative infinity.", expand=isneginf),
    dict(name="sinc", arity=1, doc="sin(pi x) / (pi x), and 1 at zero.", expand=sinc),
    dict(name="angle", arity=1, doc="Angle of a complex number; in degrees with `deg=True`.",
         expand=angle),
    dict(name="modf", arity=1, doc="(fraction, whole part), both with the sign of x.",
         expand=modf, ufunc=np.modf),
    dict(name="frexp", arity=1, doc="(fraction in [0.5, 1), power of 2).", expand=frexp,
         ufunc=np.frexp),
    dict(name="divmod", arity=2, doc="(x1 // x2, x1 % x2).", expand=divmod_, ufunc=np.divmod),
    dict(name="logit", arity=1, doc="log(x / (1 - x)).", expand=logit),
    dict(name="gelu", arity=1, doc="x (1 + erf(x / sqrt(2))) / 2; `approximate='tanh'` is faster.",
         expand=gelu),
    dict(name="silu", arity=1, doc="x sigmoid(x).", expand=silu, aliases=("swish",)),
    dict(name="softplus", arity=1, doc="log(1 + exp(beta x)) / beta.", expand=softplus),
    dict(name="leaky_relu", arity=1, doc="x, or below zero `negative_slope` times x.",
         expand=leaky_relu),
    dict(name="elu", arity=1, doc="x, or below zero `alpha` (exp(x) - 1).", expand=elu),
    dict(name="mish", arity=1, doc="x tanh(softplus(x)).", expand=mish),
    dict(name="nan_to_num", arity=1, doc="NaN and infinities replaced by finite numbers.",
         expand=nan_to_num),
    dict(name="isclose", arity=2, doc="Whether |a - b| <= atol + rtol |b|.", expand=isclose),
)  # fmt: skip
