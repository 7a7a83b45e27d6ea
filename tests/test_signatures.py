"""Every function of the array API standard 2024.12 takes what the standard says it takes."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import itfuse as itf

ONE = (
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "bitwise_invert", "ceil", "conj",
    "cos", "cosh", "exp", "expm1", "floor", "imag", "isfinite", "isinf", "isnan", "log", "log1p",
    "log2", "log10", "logical_not", "negative", "positive", "real", "reciprocal", "round", "sign",
    "signbit", "sin", "sinh", "square", "sqrt", "tan", "tanh", "trunc",
)  # fmt: skip
TWO = (
    "add", "atan2", "bitwise_and", "bitwise_left_shift", "bitwise_or", "bitwise_right_shift",
    "bitwise_xor", "copysign", "divide", "equal", "floor_divide", "greater", "greater_equal",
    "hypot", "less", "less_equal", "logaddexp", "logical_and", "logical_or", "logical_xor",
    "maximum", "minimum", "multiply", "nextafter", "not_equal", "pow", "remainder", "subtract",
)  # fmt: skip
_LIKE = "x, /, *, dtype=None, device=None"
_MADE = "shape, *, dtype=None, device=None"
_FOLD = "x, /, *, axis=None, keepdims=False"
_ADDS = "x, /, *, axis=None, dtype=None, keepdims=False"
_RUNS = "x, /, *, axis=None, dtype=None, include_initial=False"
_VARS = "x, /, *, axis=None, correction=0.0, keepdims=False"
_SORT = "x, /, *, axis=-1, descending=False, stable=True"
STANDARD: dict[str, str] = {
    "arange": "start, /, stop=None, step=1, *, dtype=None, device=None",
    "asarray": "obj, /, *, dtype=None, device=None, copy=None", "empty": _MADE,
    "empty_like": _LIKE, "eye": "n_rows, n_cols=None, /, *, k=0, dtype=None, device=None",
    "from_dlpack": "x, /, *, device=None, copy=None",
    "full": "shape, fill_value, *, dtype=None, device=None",
    "full_like": "x, /, fill_value, *, dtype=None, device=None",
    "linspace": "start, stop, /, num, *, dtype=None, device=None, endpoint=True",
    "meshgrid": "*arrays, indexing='xy'", "ones": _MADE, "ones_like": _LIKE,
    "tril": "x, /, *, k=0", "triu": "x, /, *, k=0", "zeros": _MADE, "zeros_like": _LIKE,
    "astype": "x, dtype, /, *, copy=True, device=None", "can_cast": "from_, to, /",
    "finfo": "type, /", "iinfo": "type, /", "isdtype": "dtype, kind",
    "result_type": "*arrays_and_dtypes",
    **dict.fromkeys(ONE, "x, /"), **dict.fromkeys(TWO, "x1, x2, /"),
    "clip": "x, /, min=None, max=None", "where": "condition, x1, x2, /",
    "take": "x, indices, /, *, axis=None", "take_along_axis": "x, indices, /, *, axis=-1",
    "matmul": "x1, x2, /", "matrix_transpose": "x, /", "tensordot": "x1, x2, /, *, axes=2",
    "vecdot": "x1, x2, /, *, axis=-1", "broadcast_arrays": "*arrays",
    "broadcast_to": "x, /, shape", "concat": "arrays, /, *, axis=0",
    "expand_dims": "x, /, *, axis=0", "flip": "x, /, *, axis=None",
    "moveaxis": "x, source, destination, /", "permute_dims": "x, /, axes",
    "repeat": "x, repeats, /, *, axis=None", "reshape": "x, /, shape, *, copy=None",
    "roll": "x, /, shift, *, axis=None", "squeeze": "x, /, axis", "stack": "arrays, /, *, axis=0",
    "tile": "x, repetitions, /", "unstack": "x, /, *, axis=0", "argmax": _FOLD, "argmin": _FOLD,
    "count_nonzero": _FOLD, "nonzero": "x, /",
    "searchsorted": "x1, x2, /, *, side='left', sorter=None", "argsort": _SORT, "sort": _SORT,
    "unique_all": "x, /", "unique_counts": "x, /", "unique_inverse": "x, /",
    "unique_values": "x, /", "cumulative_prod": _RUNS, "cumulative_sum": _RUNS, "max": _FOLD,
    "mean": _FOLD, "min": _FOLD, "prod": _ADDS, "std": _VARS, "sum": _ADDS, "var": _VARS,
    "all": _FOLD, "any": _FOLD, "diff": "x, /, *, axis=-1, n=1, prepend=None, append=None",
    "__array_namespace_info__": "",
}  # fmt: skip
"""Names and parameters as in https://data-apis.org/array-api/2024.12/API_specification."""
METHODS = {
    "__array_namespace__": "self, /, *, api_version=None", "__dlpack_device__": "self, /",
    "__dlpack__": "self, /, *, stream=None, max_version=None, dl_device=None, copy=None",
    "to_device": "self, device, /, *, stream=None",
}  # fmt: skip
_BY_PLACE = inspect.Parameter.POSITIONAL_ONLY
_BY_NAME = inspect.Parameter.KEYWORD_ONLY
_ANY_NUMBER = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def signature(parameters: str) -> inspect.Signature:
    return inspect.signature(eval(f"lambda {parameters}: None"))


def check(ours: inspect.Signature, standard: inspect.Signature) -> None:
    """Raise unless every call that the standard allows binds, each name to its parameter."""
    wanted = list(standard.parameters.values())
    required = [one for one in wanted if one.default is one.empty and one.kind not in _ANY_NUMBER]
    for chosen in (required, wanted):
        for named in (False, True):
            args: list[Any] = []
            kwargs: dict[str, Any] = {}
            for one in chosen:
                if one.kind is one.VAR_POSITIONAL:
                    args += [one.name, one.name]
                elif one.kind is _BY_NAME or (named and one.kind is not _BY_PLACE):
                    kwargs[one.name] = one.name
                else:
                    args.append(one.name)
            bound = ours.bind(*args, **kwargs)
            for name in kwargs:
                options = bound.arguments.get("options", {})
                assert name in bound.arguments or name in options, name
    for one in wanted:
        mine = ours.parameters.get(one.name)
        plain = one.default is not one.empty and mine is not None and mine.default is not one.empty
        if plain and mine.default is not None and one.name not in ("correction", "stable", "n"):
            assert mine.default == one.default, f"{one.name}={mine.default!r}"


@pytest.mark.parametrize("name", STANDARD)
def test_functions_take_what_the_standard_says(name: str) -> None:
    check(inspect.signature(getattr(itf, name)), signature(STANDARD[name]))


@pytest.mark.parametrize("name", METHODS)
def test_methods_take_what_the_standard_says(name: str) -> None:
    check(inspect.signature(getattr(itf.Array, name)), signature(METHODS[name]))


def test_the_check_fails_where_something_is_missing() -> None:
    for mine in ("x, /, *, axis=0", "x, /", "x, shape, /", "x, /, shape, *, copy=0, more"):
        with pytest.raises((TypeError, AssertionError)):
            check(signature(mine), signature(STANDARD["reshape"]))


def test_matrix_products_say_that_they_are_not_there() -> None:
    x = itf.asarray(np.ones((2, 2)))
    for name in ("matmul", "tensordot", "dot", "inner"):
        with pytest.raises(itf.Unsupported, match=rf"{name}\(a \+ 1.*, a\): .*no matrix product"):
            getattr(itf, name)(x + 1, x)
    with pytest.raises(itf.Unsupported, match="tensordot"):
        np.tensordot(x, x)
    with pytest.raises(itf.Unsupported, match="einsum"):
        np.einsum("ij->i", x)


def test_copies_and_devices() -> None:
    held = np.arange(3.0)
    lazy = itf.asarray(held)
    once, sums, made = (
        itf.asarray(held, copy=True),
        itf.asarray(lazy + 1, copy=True),
        itf.array(held),
    )
    also = itf.from_dlpack(held, copy=True)
    held[:] = 9
    assert lazy.tolist() == [9, 9, 9] and sums.tolist() == [1, 2, 3]
    assert once.tolist() == made.tolist() == also.tolist() == [0, 1, 2]
    assert itf.asarray(held, copy=False).tolist() == [9, 9, 9]
    assert itf.array([1, 2], "i2", ndmin=3).shape == (1, 1, 2)
    assert (
        itf.asarray([1, 2], device="cpu").device == itf.asarray(itf.arange(3), device="cpu").device
    )
    assert itf.astype(lazy, "i4", copy=False, device="cpu").dtype == "i4"
    with pytest.raises(ValueError, match="copy=False"):
        itf.asarray([1, 2], copy=False)
    with pytest.raises(itf.Unsupported, match="device"):
        itf.asarray(lazy + 1, device="cuda:0")
    with pytest.raises(itf.Unsupported, match="device"):
        itf.from_dlpack(held, device="cuda:0")
    with pytest.raises(TypeError, match="safe"):
        lazy.astype("i4", casting="safe")
