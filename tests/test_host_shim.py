"""Generated device code, run on the host: the tool finds right and wrong sources."""

from __future__ import annotations

import subprocess
from typing import Any

import numpy as np
import pytest
from support import host_cpp
from support.host_cpp import HostError, HostLibrary

pytestmark = pytest.mark.skipif(bool(host_cpp.why_not()), reason=host_cpp.why_not())

TRANSFORM = """
struct Item {
  float r0;
  bool r1;
  double r2;
  signed char r3;
};
struct ElementState {
  const float* x0;
  const float* x1;
  double k2;
  const signed char* x3;
};
extern "C" __device__ void mix_element(void* state, void* index, void* out) {
  const ElementState& s = *static_cast<const ElementState*>(state);
  const long long i = *static_cast<const long long*>(index);
  Item* const result = static_cast<Item*>(out);
  const float x0 = s.x0[i];
  const float x1 = s.x1[i];
  const signed char x3 = s.x3[i];
  const float v0 = __fmul_rn(x0, x1);
  const float v1 = __fadd_rn(v0, x0);
  const bool v2 = x0 > x1;
  const double v3 = __dmul_rn(s.k2, (double)x1);
  const signed char v4 = (signed char)((unsigned int)x3 + (unsigned int)x3);
  result->r0 = v1;
  result->r1 = v2;
  result->r2 = v3;
  result->r3 = v4;
}
"""
ITEM = np.dtype([("r0", "f4"), ("r1", "?"), ("r2", "f8"), ("r3", "i1")], align=True)

# Mean, variance and maximum: counts, means and squared deviations merge as Chan et al. (1979) do.
REDUCE = """
struct Item {
  long long r0;
  double r1;
  double r2;
  float r3;
};
struct Out {
  double r0;
  double r1;
  float r2;
};
struct ElementState {
  const float* x0;
};
struct FinishState {
  double k0;
};
extern "C" __device__ void stats_element(void* state, void* index, void* out) {
  const ElementState& s = *static_cast<const ElementState*>(state);
  const long long i = *static_cast<const long long*>(index);
  Item* const result = static_cast<Item*>(out);
  result->r0 = 1;
  result->r1 = s.x0[i];
  result->r2 = 0;
  result->r3 = s.x0[i];
}
extern "C" __device__ void stats_combine(void* x, void* y, void* out) {
  const Item a = *static_cast<const Item*>(x);
  const Item b = *static_cast<const Item*>(y);
  Item* const result = static_cast<Item*>(out);
  const long long n = a.r0 + b.r0;
  const double gap = b.r1 - a.r1;
  result->r0 = n;
  result->r1 = n == 0 ? 0 : a.r1 + gap * b.r0 / n;
  result->r2 = n == 0 ? 0 : a.r2 + b.r2 + gap * gap * a.r0 * b.r0 / n;
  result->r3 = fmaxf(a.r3, b.r3);
}
extern "C" __device__ void stats_finish(void* state, void* accumulator, void* out) {
  const FinishState& s = *static_cast<const FinishState*>(state);
  const Item a = *static_cast<const Item*>(accumulator);
  Out* const result = static_cast<Out*>(out);
  result->r0 = a.r1 * s.k0;
  result->r1 = a.r0 == 0 ? 0 : a.r2 / a.r0;
  result->r2 = a.r3;
}
"""
ACCUMULATOR = np.dtype([("r0", "i8"), ("r1", "f8"), ("r2", "f8"), ("r3", "f4")], align=True)
OUT = np.dtype([("r0", "f8"), ("r1", "f8"), ("r2", "f4")], align=True)

N = 1_001


def operands() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    x, y = random.normal(size=(2, N)).astype("f4")
    return x, y, random.integers(-128, 128, N).astype("i1")


def check_transform(source: str) -> None:
    """Compare `mix` of a source with NumPy."""
    x, y, z = operands()
    layout = np.dtype([("x0", "u8"), ("x1", "u8"), ("k2", "f8"), ("x3", "u8")])
    state = np.array((x.ctypes.data, y.ctypes.data, 0.1, z.ctypes.data), layout).tobytes()
    got = HostLibrary(source).transform("mix", state, N, ITEM)
    assert got.shape == (N,)
    assert got.dtype == ITEM
    wanted = {"r0": x * y + x, "r1": x > y, "r2": 0.1 * y.astype("f8"), "r3": z + z}
    for field, want in wanted.items():
        np.testing.assert_array_equal(got[field], want, strict=True)


def check_reduce(source: str, n: int = N) -> None:
    """Compare `stats` of a source with NumPy."""
    x = operands()[0][:n].astype("f4") + 1000
    state, finish = np.uint64(x.ctypes.data).tobytes(), np.float64(2).tobytes()
    init = (0, 0, 0, -np.inf)
    got = HostLibrary(source).reduce("stats", state, n, ACCUMULATOR, init, finish, OUT)
    assert got.shape == ()
    assert got.dtype == OUT
    wide = x.astype("f8")
    np.testing.assert_allclose(got["r0"], 2 * wide.mean(), rtol=1e-13)
    np.testing.assert_allclose(got["r1"], wide.var(), rtol=1e-9, atol=1e-12)
    assert got["r2"] == x.max()


def test_a_transform_matches_numpy() -> None:
    check_transform(TRANSFORM)


@pytest.mark.parametrize("n", [1, 2, 3, 64, N])
def test_a_reduction_matches_numpy(n: int) -> None:
    check_reduce(REDUCE, n)


def test_nothing_gives_no_elements_and_the_first_accumulator() -> None:
    assert HostLibrary(TRANSFORM).transform("mix", bytes(32), 0, ITEM).shape == (0,)
    init = (0, 7, 0, -np.inf)
    got = HostLibrary(REDUCE).reduce(
        "stats", bytes(8), 0, ACCUMULATOR, init, np.float64(3).tobytes(), OUT
    )
    assert got.item() == (21.0, 0.0, -np.inf)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("__fadd_rn(v0, x0)", "__fmaf_rn(x0, x1, x0)"),  # one rounding instead of two
        ("x0 > x1", "x0 < x1"),
        ("(double)x1", "x0"),
        ("(unsigned int)x3 + (unsigned int)x3", "x3 > 63 ? 127 : 2 * x3"),  # saturates
    ],
)
def test_a_wrong_transform_is_found(right: str, wrong: str) -> None:
    assert right in TRANSFORM
    with pytest.raises(AssertionError):
        check_transform(TRANSFORM.replace(right, wrong))


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        # Right while `b` is a single element, wrong for two totals.
        ("a.r1 + gap * b.r0 / n", "a.r1 + gap / n"),
        ("a.r2 + b.r2 + gap", "a.r2 + gap"),
        ("fmaxf(a.r3, b.r3)", "a.r3"),
        ("a.r1 * s.k0", "a.r1"),
    ],
)
def test_a_wrong_reduction_is_found(right: str, wrong: str) -> None:
    assert right in REDUCE
    with pytest.raises(AssertionError):
        check_reduce(REDUCE.replace(right, wrong))


@pytest.mark.parametrize(
    ("check", "right", "wrong", "message"),
    [
        (check_transform, "result->r1 = v2;", "", "does not write all of field 'r1'"),
        (check_transform, "result->r3 = v4;", "result[1].r0 = v1;", "writes behind"),
        (check_transform, "result->r3", "((double*)state)[2] = 5; result->r3", "changed its state"),
        (check_reduce, "result->r3 = fmaxf(a.r3, b.r3);", "", "does not write all"),
        (check_reduce, "result->r2 = a.r3;", "result[1].r2 = a.r3;", "writes behind"),
        (check_transform, "mix_element", "max_element", "does not define mix_element"),
    ],
)
def test_a_broken_abi_is_found(check: Any, right: str, wrong: str, message: str) -> None:
    source = TRANSFORM if check is check_transform else REDUCE
    assert right in source
    with pytest.raises(HostError, match=message):
        check(source.replace(right, wrong))


def test_a_compile_error_shows_the_source_and_the_log() -> None:
    with pytest.raises(HostError) as caught:
        HostLibrary(TRANSFORM.replace("v1 = __fadd_rn", "v1 = __fad_rn"))
    message = str(caught.value)
    assert "generated:22:" in message  # the line of the source
    assert "__fad_rn" in message
    assert "22   const float v1 = __fad_rn(v0, x0);" in message


def test_a_packed_struct_is_refused() -> None:
    with pytest.raises(ValueError, match="align=True"):
        HostLibrary(TRANSFORM).transform("mix", bytes(32), 0, np.dtype([("a", "i1"), ("b", "f4")]))


def test_a_source_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first = HostLibrary(TRANSFORM)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr(subprocess, "run", refuse)
    assert HostLibrary(TRANSFORM).path == first.path


# What the shim defines or takes from the host: C++ in `x` and `y`, and NumPy's answer.
FLOAT = {
    "__fadd_rn(x, y)": np.add, "__fsub_rn(x, y)": np.subtract, "__fmul_rn(x, y)": np.multiply,
    "__fdiv_rn(x, y)": np.divide, "__fsqrt_rn(x * x)": lambda x, y: np.sqrt(x * x),
    "fminf(x, y)": np.fmin, "fmaxf(x, y)": np.fmax, "min(x, y)": np.fmin, "max(x, y)": np.fmax,
    "rsqrtf(x * x)": lambda x, y: 1 / np.sqrt(x * x), "fmodf(x, y)": np.fmod,
    "floorf(x)": lambda x, y: np.floor(x), "ceilf(x)": lambda x, y: np.ceil(x),
    "rintf(x)": lambda x, y: np.rint(x), "fabsf(x)": lambda x, y: np.abs(x),
    "expf(x)": lambda x, y: np.exp(x), "__expf(x)": lambda x, y: np.exp(x),
    "logf(fabsf(x))": lambda x, y: np.log(np.abs(x)), "sinf(x)": lambda x, y: np.sin(x),
    "cosf(x)": lambda x, y: np.cos(x), "tanhf(x)": lambda x, y: np.tanh(x),
    "powf(fabsf(x), y)": lambda x, y: np.abs(x) ** y, "copysignf(x, y)": np.copysign,
    "__frcp_rn(x)": lambda x, y: 1 / x, "__fdividef(x, y)": np.divide,
    "isnan(x / 0.0f - y / 0.0f)": lambda x, y: np.sign(x) == np.sign(y),
    "isinf(x / 0.0f)": lambda x, y: np.isinf(x / np.float32(0)),
    "signbit(x)": lambda x, y: np.signbit(x),
    "__int_as_float(__float_as_int(x) ^ INT_MIN)": lambda x, y: -x,
}  # fmt: skip
DOUBLE = {
    "__dadd_rn(x, y)": np.add, "__dsub_rn(x, y)": np.subtract, "__dmul_rn(x, y)": np.multiply,
    "__ddiv_rn(x, y)": np.divide, "__dsqrt_rn(x * x)": lambda x, y: np.sqrt(x * x),
    "rsqrt(x * x)": lambda x, y: 1 / np.sqrt(x * x), "fmod(x, y)": np.fmod,
    "min(x, y)": np.fmin, "max(x, y)": np.fmax,
    "__longlong_as_double(__double_as_longlong(x) ^ LLONG_MIN)": lambda x, y: -x,
}  # fmt: skip
INT32 = {
    "__mulhi(x, y)": lambda x, y: (x.astype("i8") * y >> 32).astype("i4"),
    "(int)__umulhi(x, y)": lambda x, y: (
        (x.astype("u4").astype("u8") * y.astype("u4") >> np.uint64(32)).astype("u4").view("i4")
    ),
    "__popc(x)": lambda x, y: np.bitwise_count(x.view("u4")).astype("i4"),
    "__clz(x)": lambda x, y: np.array([32 - int(v).bit_length() for v in x.view("u4")], "i4"),
    "min(x, y)": np.minimum, "max(x, y)": np.maximum, "abs(x)": lambda x, y: np.abs(x),
}  # fmt: skip
INT64 = {
    "__mul64hi(x, y)": lambda x, y: np.array(
        [int(a) * int(b) >> 64 for a, b in zip(x, y, strict=True)], "i8"
    ),
    "__clzll(x)": lambda x, y: np.array([64 - int(v).bit_length() for v in x.view("u8")], "i8"),
    "__popcll(x)": lambda x, y: np.bitwise_count(x.view("u8")).astype("i8"),
}


@pytest.mark.parametrize(
    ("cpp", "dtype", "table"),
    [("float", "f4", FLOAT), ("double", "f8", DOUBLE), ("int", "i4", INT32),
     ("long long", "i8", INT64)],
)  # fmt: skip
def test_cuda_functions_mean_what_numpy_means(cpp: str, dtype: str, table: dict[str, Any]) -> None:
    random = np.random.default_rng(1)
    x, y = random.normal(scale=3, size=(2, N)).astype(dtype)
    if dtype.startswith("i"):
        x, y = random.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, (2, N), dtype)
    head = f"struct State {{ const {cpp}* x; const {cpp}* y; }};\n"
    source = head + "".join(
        f'extern "C" __device__ void f{at}_element(void* state, void* index, void* out) {{\n'
        "  const State& s = *static_cast<const State*>(state);\n"
        f"  const {cpp} x = s.x[*static_cast<const long long*>(index)];\n"
        f"  const {cpp} y = s.y[*static_cast<const long long*>(index)];\n"
        f"  *static_cast<{cpp}*>(out) = {code};\n}}\n"
        for at, code in enumerate(table)
    )
    library = HostLibrary(source)
    state = np.array([x.ctypes.data, y.ctypes.data], "u8").tobytes()
    for at, (code, numpy) in enumerate(table.items()):
        got = library.transform(f"f{at}", state, N, dtype)
        with np.errstate(divide="ignore"):
            want = numpy(x, y).astype(dtype)
        exact = code.startswith("__") and "expf" not in code
        if dtype.startswith("i") or exact:
            np.testing.assert_array_equal(got, want, err_msg=code)
        else:
            np.testing.assert_allclose(got, want, rtol=4e-7 if cpp == "float" else 1e-15,
                                       err_msg=code)  # fmt: skip
