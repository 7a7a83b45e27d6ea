"""`itf.map`: Python functions as operations, by their content."""

from __future__ import annotations

import math
import pickle
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import nvrtc, stub_driver
from support.generated import plan_for

import itfuse as itf
from itfuse import cache, engines
from itfuse.errors import CompileError, DeviceError, DTypeError, Unsupported
from itfuse.frozen import freeze
from itfuse.testing import assert_same

X = np.linspace(-2, 2, 24, dtype="f4").reshape(4, 6)
K = np.arange(-12, 12, dtype="i4").reshape(4, 6)
B = K % 3 == 0
SCALE = 3.0
consts = types.ModuleType("consts")
consts.FACTOR = 1.5  # type: ignore[attr-defined]


def relu(x: Any) -> Any:
    return x if x > 0 else x * np.float32(0)


def helped(x: Any, times: Any = 3) -> Any:
    return relu(x) * times


def collatz(n: Any) -> Any:
    steps = 0
    while n > 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps


def even(n: Any) -> Any:
    return True if n == 0 else odd(n - 1)


def odd(n: Any) -> Any:
    return False if n == 0 else even(n - 1)


# Functions whose types and rounding are the same in NumPy and Numba, so that answers are equal.
CASES: list[tuple[str, Callable[[Any, Any, Any], itf.Array]]] = [
    ("one", lambda x, k, b: itf.map(relu, x) + 1),
    ("two, broadcast", lambda x, k, b: itf.map(lambda v, w: v if v > w else -w, x, x[0])),
    ("weak number", lambda x, k, b: itf.map(lambda v, low: v - low, x, 0.5)),
    ("helper, default", lambda x, k, b: itf.map(helped, x, dtype="f4")),
    ("loop of integers", lambda x, k, b: itf.map(collatz, k, dtype="i4")),
    ("bool operand", lambda x, k, b: itf.map(lambda v, f: v if f else -v, x, b)),
    ("bool result", lambda x, k, b: itf.map(lambda v, f: f and v > 0, x, b, dtype="?")),
    ("wraps", lambda x, k, b: itf.map(lambda v: v * 100, k.astype("i1"))),
    ("unsigned", lambda x, k, b: itf.map(lambda v: v - 1, k.astype("u2"))),
    ("to another", lambda x, k, b: itf.map(lambda v: v, x, dtype="f8")),
    ("module constant", lambda x, k, b: itf.map(lambda v: v * consts.FACTOR, x.astype("f8"))),
    ("math", lambda x, k, b: itf.map(lambda v: math.floor(v) + 1, x.astype("f8"), dtype="i8")),
    ("numpy", lambda x, k, b: itf.map(lambda v: np.maximum(np.sqrt(np.abs(v)), v), x)),
    ("float16", lambda x, k, b: itf.map(lambda v: -v, x.astype("f2"))),
    ("from float16", lambda x, k, b: itf.map(lambda v: v, x.astype("f2"), dtype="f4")),
    ("float64 to float16", lambda x, k, b: itf.map(lambda v: v, x.astype("f8"), dtype="f2")),
    ("reduced", lambda x, k, b: itf.map(collatz, k).sum(axis=1)),
    ("all reduced", lambda x, k, b: itf.sqrt(itf.map(lambda v: v * v, x.astype("f8")).sum())),
    ("after a reduction", lambda x, k, b: itf.map(relu, x - x.max(axis=1, keepdims=True))),
    ("scan", lambda x, k, b: itf.map(lambda v: v + 1, k).cumsum(axis=1)),
    ("selection", lambda x, k, b: x[itf.map(lambda v: v > 0, x)]),
    ("one of another", lambda x, k, b: itf.map(relu, itf.map(lambda v: -v, x))),
]
NAMES = [name for name, _ in CASES]


def each(function: Any, *operands: Any, dtype: Any = None) -> Any:
    with np.errstate(all="ignore"):
        found = [function(*one) for one in zip(*(x.ravel() for x in operands), strict=True)]
    return np.array(found, dtype).reshape(operands[0].shape)


def value(function: Callable[..., Any], *operands: Any) -> float:
    return float(itf.map(function, *operands).compute())


# ---- on the CPU ----------------------------------------------------------------------------------
def test_the_cpu_engine_calls_it_with_numpy_scalars() -> None:
    def look(x: Any, k: Any) -> Any:
        if type(x) is not np.float32 or type(k) is not np.int32:  # `assert` reads pytest's modules
            raise TypeError
        return x * 2 + k

    assert_same(itf.map(look, X, K).compute(), each(lambda x, k: x * 2 + k, X, K))
    assert itf.map(look, X, K).dtype == np.float64  # float32 and int32


@pytest.mark.parametrize("name", NAMES)
def test_every_case_is_one_pass(name: str) -> None:
    lazy = dict(CASES)[name](itf.asarray(X), itf.asarray(K), itf.asarray(B))
    assert itf.plan(lazy).passes == 1
    lazy.compute()


def test_answers_are_those_of_a_loop() -> None:
    x, k, b = (itf.asarray(one) for one in (X, K, B))
    make = dict(CASES)
    assert_same(make["one"](x, k, b).compute(), each(relu, X) + 1)
    assert_same(make["bool operand"](x, k, b).compute(), np.where(B, X, -X))
    assert_same(make["wraps"](x, k, b).compute(), K.astype("i1") * np.int8(100))
    assert_same(make["loop of integers"](x, k, b).compute(), each(collatz, K, dtype="i4"))
    assert_same(make["reduced"](x, k, b).compute(), each(collatz, K).sum(axis=1))
    assert_same(make["weak number"](x, k, b).compute(), X - np.float32(0.5))


def test_the_result_s_dtype_is_that_of_ones() -> None:
    assert itf.map(lambda v: v * 2, X).dtype == np.float32
    assert itf.map(lambda v: v / 2, K).dtype == np.float64
    assert itf.map(lambda v: v > 2, K).dtype == np.bool
    assert itf.map(lambda v: 1, X).dtype == np.int64
    assert itf.map(lambda v, w: v + w, X, K).dtype == np.float64
    assert itf.map(lambda v, w: w, X, 2).dtype == np.float32
    assert itf.map(lambda v: v, 2).dtype == np.int64
    mixed = itf.map(lambda v: 0.5 if v > 1 else v, K, dtype="f4")
    assert_same(mixed.compute(), np.where(K > 1, 0.5, K).astype("f4"))
    wraps = itf.map(lambda v: v if v > 0 else np.int64(300), K.astype("i8"), dtype="i1")
    assert_same(wraps.compute(), np.where(K > 0, K, 300).astype("i1"))


def test_a_twin_is_called_with_blocks() -> None:
    shapes = []

    def twin(x: Any) -> Any:
        shapes.append(x.shape)
        return x * 2

    def double(x: Any) -> Any:
        raise AssertionError

    assert_same(itf.map(double, X, dtype="f4", numpy=twin).compute(), X * 2)
    assert shapes in ([(24,)], [(4, 6)])


def test_shapes_without_elements_and_axes() -> None:
    assert itf.map(relu, X[:0]).compute().shape == (0, 6)
    assert value(relu, np.float32(2)) == 2
    assert value(lambda a, b: a - b, 5, 2) == 3


# ---- content -------------------------------------------------------------------------------------
COLLISIONS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "2 and 2.0": (lambda x: x * 2, lambda x: x * 2.0),
    "0.0 and -0.0": (lambda x: x * 0.0, lambda x: x * -0.0),
    "1 and True": (lambda x: 1, lambda x: True),
    "in a tuple": (lambda x: (1, 2)[0] * x, lambda x: (1.0, 2)[0] * x),
    "defaults": (lambda x, k=1: x * k, lambda x, k=2: x * k),
    "defaults' types": (lambda x, k=1: x * k, lambda x, k=1.0: x * k),
    "names of operations": (lambda x: np.sqrt(x) + 1, lambda x: np.cbrt(x) + 1),
}


@pytest.mark.parametrize("name", COLLISIONS)
def test_functions_that_differ_a_little_are_two(name: str) -> None:
    one, two = COLLISIONS[name]
    assert freeze(one, "").digest != freeze(two, "").digest
    for k in (np.ones(3, "i4"), X):
        lazies = [itf.map(function, k) for function in (one, two)]
        assert len({itf.plan(lazy).stages[0].key for lazy in lazies}) == 2
        assert len({cache.digest(plan_for("tile", lazy).stages[0]) for lazy in lazies}) == 2
        for lazy, function in zip(lazies, (one, two), strict=True):
            assert_same(lazy.compute(), each(function, k))


def test_captures_are_part_of_it_with_type_and_bits() -> None:
    def make(factor: Any) -> Callable[[Any], Any]:
        return lambda x: x * factor

    different = [2, 2.0, True, np.float32(2), np.int32(2), 0.0, -0.0, 2 + 0j, float("nan")]
    assert len({freeze(make(one), "").digest for one in different}) == len(different)
    assert freeze(make(2.5), "").digest == freeze(make(2.5), "").digest
    x = itf.asarray(X.astype("f8"))
    keys = {itf.plan(itf.map(make(k), x)).stages[0].key for k in (1.5, 2.5, 1.5)}
    assert len(keys) == 2


def test_values_are_those_of_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    factor = 2.0

    def scaled(x: Any) -> Any:
        return helped(x) * factor * SCALE + consts.FACTOR

    before = itf.map(scaled, np.float64(1))
    factor = 5.0
    monkeypatch.setitem(globals(), "SCALE", 7.0)
    monkeypatch.setattr(consts, "FACTOR", 0.5)
    after = itf.map(scaled, np.float64(1))
    monkeypatch.setattr(helped, "__defaults__", (100,))
    assert float(before.compute()) == 3 * 2 * 3 + 1.5
    assert float(after.compute()) == 3 * 5 * 7 + 0.5


def test_equal_functions_are_one() -> None:
    def made() -> Callable[[Any], Any]:
        return lambda x: relu(x) + np.float32(0.25)

    x = itf.asarray(X)
    assert made() is not made()
    keys = {itf.plan(itf.map(made(), x)).stages[0].key for _ in range(3)}
    assert len(keys) == 1
    built = cache.BUILT.builds
    first = itf.map(made(), x).compute()
    once = cache.BUILT.builds
    for _ in range(3):
        assert_same(itf.map(made(), x).compute(), first)
    assert cache.BUILT.builds == once <= built + 1


def test_functions_that_call_each_other_are_frozen() -> None:
    assert_same(itf.map(even, np.arange(5)).compute(), np.arange(5) % 2 == 0)
    assert freeze(even, "").digest != freeze(odd, "").digest


CONTENT = """
import sys
from itfuse.frozen import freeze
import math, numpy as np
scale = 2.5
def helper(x): return math.sqrt(x) * scale
def f(x, k=3, t=(1, 2.0)): return helper(x) * np.float32(k) if x in {1, 2, 3} else t[0]
print(freeze(f, "").digest)
"""


def test_the_name_is_the_same_in_every_process() -> None:
    found = {subprocess.run([sys.executable, "-c", text], capture_output=True, text=True,
                            check=True, env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(
                                sys.path)}).stdout
             for seed, text in (("1", CONTENT), ("2", "#\n\n" + CONTENT))}  # fmt: skip
    assert len(found) == 1 and len(found.pop()) == 65


ARRAY, LIST, OBJECT = np.ones(3), [1, 2], types.SimpleNamespace(k=1)


def _writes(x: Any) -> Any:
    global SCALE  # noqa: PLW0603
    SCALE = x
    return x


def _yields(x: Any) -> Iterator[Any]:
    yield x


@pytest.mark.parametrize(
    ("call", "kind", "says"),
    [
        (lambda: itf.map(lambda v: v + ARRAY[0], X), Unsupported, "ARRAY.*array.*operand"),
        (lambda: itf.map(lambda v: v + LIST[0], X), Unsupported, "LIST.*list.*tuple"),
        (lambda: itf.map(lambda v: v + OBJECT.k, X), Unsupported, "OBJECT.*SimpleNamespace"),
        (lambda: itf.map(lambda v: np, X), Unsupported, "module.name"),
        (lambda: itf.map(_writes, X), Unsupported, "SCALE"),
        (lambda: itf.map(_yields, X), TypeError, "generator"),
        (lambda: itf.map(np.sqrt, X), TypeError, "ufunc.*lambda"),
        (lambda: itf.map(math.sqrt, X), TypeError, "lambda"),
        (lambda: itf.map(3, X), TypeError, "int"),
        (lambda: itf.map(relu), TypeError, "no operand"),
        (lambda: itf.map(relu, X, X), TypeError, "2 operands"),
        (lambda: itf.map(lambda v, *, k: v, X), TypeError, "keyword-only"),
        (lambda: itf.map(relu, X, numpy=3), TypeError, "callable"),
        (lambda: itf.map(relu, X.astype("c8")), Unsupported, "itf.real"),
        (lambda: itf.map(lambda v: v * 1j, X), Unsupported, "complex"),
        (lambda: itf.map(lambda v: (v, v), X), DTypeError, "tuple"),
        (lambda: itf.map(lambda v: None, X), DTypeError, "NoneType"),
        (lambda: itf.map(lambda v: v.nothing, X), DTypeError, "AttributeError.*dtype="),
        (lambda: itf.map(relu, X, dtype="O"), DTypeError, "object"),
        (lambda: itf.map(lambda v, w: v, K, 2**40), itf.RangeError, "int32"),
        (lambda: itf.map(relu, X[:3], X), TypeError, "operands"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(call: Any, kind: Any, says: str) -> None:
    with pytest.raises(kind, match=says):
        call()


def test_an_error_inside_says_where() -> None:
    def fails(x: Any) -> Any:
        return 1 // int(x > 2)

    with pytest.raises(ZeroDivisionError) as raised:
        itf.map(fails, X, dtype="f4").compute()
    assert "fails" in raised.value.__notes__[0] and __file__ in raised.value.__notes__[0]
    with pytest.raises(DTypeError, match="returned 'a', a str"):
        itf.map(lambda v: "a", X, dtype="f4").compute()


def test_texts_and_pickles_have_its_name() -> None:
    lazy = itf.map(relu, itf.asarray(X) * 2)
    assert "relu(a * 2.0)" in repr(lazy) and "@" not in itf.explain(lazy)
    assert_same(pickle.loads(pickle.dumps(lazy)).compute(), lazy.compute())


def test_inside_of_fuse() -> None:
    @itf.fuse
    def step(x: Any, k: Any) -> Any:
        return itf.map(lambda v, w: v * w if v > 0 else v, x, k).sum(axis=1)

    for k in (2.0, 3.0):
        want = np.where(X > 0, X * np.float32(k), X).sum(axis=1)
        np.testing.assert_allclose(step(X, k), want, rtol=1e-6)
    assert (step.traces, step.plan(X, 2.0).passes) == (1, 1)

    captures = itf.fuse(lambda x, k: itf.map(lambda v: v * k, x))
    with pytest.raises(Unsupported, match=r"operand of itf\.map"):
        captures(X, 2.0)


# ---- compiled, without a GPU ---------------------------------------------------------------------
def compiled(lazy: Any) -> Any:
    null = engines.engine_for("none")
    with itf.config(engine="null", arch="sm_90"):
        (stage,) = plan_for("tile", lazy).stages
        return null.build(stage)


@pytest.fixture
def numba() -> None:
    nvrtc.require()
    pytest.importorskip("numba_cuda_mlir")


@pytest.mark.usefixtures("numba")
@pytest.mark.parametrize("name", NAMES)
def test_tile_kernels_link(name: str) -> None:
    # What is not linked is an error of nvJitLink: "Unresolved extern function".
    built = compiled(dict(CASES)[name](*(itf.spec(x.shape, x.dtype) for x in (X, K, B))))
    assert built.cubin.startswith(b"\x7fELF")
    assert b"itf_python_" not in built.cubin  # it was inlined


@pytest.mark.usefixtures("numba")
def test_numpy_s_functions_compile() -> None:
    python = pytest.importorskip("itfuse.engines.cuda.python")
    x = itf.spec((100,), "f8")
    for ufunc in python._INSTEAD:

        def unary(v: Any) -> Any:
            return ufunc(v)  # noqa: B023

        def binary(v: Any, w: Any) -> Any:
            return ufunc(v, w)  # noqa: B023

        lazy = itf.map(unary, x) if ufunc.nin == 1 else itf.map(binary, x, x)
        assert compiled(lazy).cubin.startswith(b"\x7fELF"), ufunc


@pytest.mark.usefixtures("numba")
def test_what_the_compiler_says_is_shown() -> None:
    def wrong(x: Any) -> Any:
        return x.nothing

    with pytest.raises(CompileError, match="nothing") as raised:
        compiled(itf.map(wrong, itf.spec((10,), "f4"), dtype="f4"))
    assert "wrong" in str(raised.value) and "return x.nothing" in raised.value.source
    with pytest.raises(CompileError, match="complex128"):
        compiled(itf.map(lambda v: v * 1j, itf.spec((10,), "f4"), dtype="f4"))
    with pytest.raises(CompileError, match="cbrt"):
        compiled(itf.map(lambda v: np.cbrt(v) + v, itf.spec((10,), "f4")))


@pytest.mark.usefixtures("numba")
def test_code_on_disk_is_found_by_content(tmp_path: Path) -> None:
    compile_module = pytest.importorskip("itfuse.engines.cuda.compile")

    def made(factor: float) -> Callable[[Any], Any]:
        return lambda x: x * factor

    def count(factor: float) -> int:
        before = compile_module.Count.compilations
        compile_module.ltoir.cache_clear()
        sys.modules["itfuse.engines.cuda.python"]._compiled.cache_clear()
        compiled(itf.map(made(factor), itf.spec((100,), "f8")))
        return int(compile_module.Count.compilations) - before

    compiled(itf.map(relu, itf.spec((100,), "f8")))
    with itf.config(cache_dir=str(tmp_path)):
        assert [count(one) for one in (0.0, 0.0, -0.0, 0.0, -0.0)] == [2, 0, 2, 0, 0]


@pytest.mark.usefixtures("numba")
def test_built_ahead_of_time(tmp_path: Path) -> None:
    from itfuse.ahead import build

    double = itf.fuse(lambda x: itf.map(lambda v: v * 2, x))
    with itf.config(strategy="tile"):
        assert build(double, ["f4[n]"], ["90"], tmp_path / "double.itf") >= 1


def test_without_the_compiler_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    nvrtc.require()
    from importlib import metadata

    from itfuse.engines.cuda import python

    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    python._versions.cache_clear()
    monkeypatch.setattr(python.metadata, "version", missing)
    with pytest.raises(DeviceError, match=r"relu.*pip install 'itfuse\[jit-cu13\]'"):
        compiled(itf.map(relu, itf.spec((33,), "f4")))
    monkeypatch.undo()
    python._versions.cache_clear()


BUILD_CUB = """
import numpy as np, itfuse as itf
from support.generated import plan_for
from itfuse.engines.cuda.cub import CubBuilt
from itfuse.lower.cpp import lower
import test_python_map as cases

x = np.ones((6, 40), "f4")
f = lambda v: v * 2.5
for strategy, lazy in (
    ("cub.pointers", itf.map(f, x)),
    ("cub.iterator", itf.map(cases.helped, x[::-1, ::2], dtype="f4")),
    ("cub.iterator", itf.map(f, itf.map(f, x[:, ::2]).sum())),
):
    (stage,) = plan_for(strategy, lazy).stages
    assert stage.strategy == strategy
    print(len(CubBuilt(stage, lower(stage, "itf_test"), "sm_90", [90]).serialize()))
"""


@pytest.mark.usefixtures("numba")
@pytest.mark.skipif(bool(stub_driver.why_not()), reason=stub_driver.why_not())
def test_cuda_compute_builds_with_them(tmp_path: Path) -> None:
    done = stub_driver.run_with_stub(BUILD_CUB, tmp_path)
    assert done.returncode == 0, done.stderr
    assert len([int(line) for line in done.stdout.splitlines()]) == 3


# ---- on a GPU ------------------------------------------------------------------------------------
@pytest.mark.gpu
@pytest.mark.usefixtures("numba")
@pytest.mark.parametrize("strategy", ["tile", "cub"])
@pytest.mark.parametrize("name", NAMES)
def test_a_gpu_gives_the_cpu_engine_s_answers(cp: Any, name: str, strategy: str) -> None:
    make = dict(CASES)[name]
    want = make(itf.asarray(X), itf.asarray(K), itf.asarray(B)).compute()
    try:
        with itf.config(strategy=strategy):
            got = make(*(itf.asarray(cp.asarray(x)) for x in (X, K, B))).compute().get()
    except Unsupported as why:  # rows and scans are tile kernels only
        pytest.skip(str(why))
    if name == "all reduced":
        np.testing.assert_allclose(got, want, rtol=1e-14)
    else:
        assert_same(got, want)


@pytest.mark.gpu
@pytest.mark.usefixtures("numba")
@pytest.mark.parametrize("strategy", ["tile", "cub"])
@pytest.mark.parametrize("name", [one for one in COLLISIONS if one != "names of operations"])
def test_functions_that_differ_a_little_are_two_on_a_gpu(cp: Any, name: str, strategy: str) -> None:
    for k in (np.ones(3, "i4"), X):
        with itf.config(strategy=strategy):
            got = [itf.map(f, cp.asarray(k)).compute().get() for f in COLLISIONS[name]]
        for one, function in zip(got, COLLISIONS[name], strict=True):
            want = each(function, k)
            assert_same(one, want)
            if want.dtype.kind == "f":
                assert (np.signbit(one) == np.signbit(want)).all()


@pytest.mark.gpu
@pytest.mark.usefixtures("numba")
def test_equal_functions_are_compiled_once_on_a_gpu(cp: Any) -> None:
    from itfuse.engines.cuda.compile import Count

    x = cp.asarray(X)
    step = itf.fuse(lambda v, k: itf.map(lambda a, b: a * b + np.float32(0.125), v, k).sum())
    counts = []
    for k in (2.0, 3.0, 4.0):
        got = float(step(x, k))
        np.testing.assert_allclose(got, (X * np.float32(k) + np.float32(0.125)).sum(), rtol=1e-5)
        itf.map(lambda a: a + np.float32(0.25), x).compute()
        counts.append(Count.compilations)
    assert counts[0] == counts[1] == counts[2] and step.traces == 1


@pytest.mark.gpu
@pytest.mark.usefixtures("numba")
def test_it_is_an_iterator_of_cuda_compute(cp: Any) -> None:
    cc = pytest.importorskip("cuda.compute")
    lazy = itf.map(lambda v: v * np.float32(2), cp.asarray(X))
    out = cp.empty(1, "f4")
    cc.reduce_into(d_in=lazy.as_iterator(), d_out=out, op=cc.OpKind.MAXIMUM, num_items=X.size,
                   h_init=np.float32([-9]))  # fmt: skip
    assert float(out[0]) == 4
