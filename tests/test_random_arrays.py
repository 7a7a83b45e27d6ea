"""itf.random: Philox's numbers, the same on every engine, made in the pass that uses them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support import host_cpp, nvrtc
from support.generated import HostEngine, plan_for, unit

import itfuse as itf
from itfuse import cache
from itfuse.lower import lower_tile
from itfuse.rows import philox
from itfuse.testing import evaluate

# Known answers of Random123 (kat_vectors, philox4x32 10): counter, key, result.
KNOWN = (
    ("00000000 00000000 00000000 00000000", "00000000 00000000",
     "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff",
     "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0",
     "d16cfe09 94fdcceb 5001e420 24126ea1"),
)  # fmt: skip


def words(text: str) -> list[int]:
    return [int(one, 16) for one in text.split()]


@pytest.mark.parametrize(("counter", "key", "result"), KNOWN)
def test_random123_s_known_answers(counter: str, key: str, result: str) -> None:
    c, k = words(counter), words(key)
    block, stream, seed = (np.uint64(x[0] + (x[1] << 32)) for x in (c[:2], c[2:], k))
    assert [int(one) for one in philox.philox(block, stream, seed)] == words(result)


def test_a_block_is_multiplied_exactly() -> None:
    rng = np.random.default_rng(1)
    index = rng.integers(0, 2**62, 500)
    last = np.r_[rng.integers(0, 2**64, 480, np.uint64), np.arange(10, dtype=np.uint64),
                 np.uint64(2**64 - 1) - np.arange(10, dtype=np.uint64)]  # fmt: skip
    got = philox.below(index, 5, 6, last, np.empty(500, np.uint64))
    for at, (i, most) in enumerate(zip(index, last, strict=True)):
        w = [int(one) for one in philox.philox(np.uint64(i), np.uint64(6), np.uint64(5))]
        whole = sum(one << 32 * k for k, one in enumerate(w))
        assert int(got[at]) == whole * (int(most) + 1) >> 128 if most < 2**64 - 1 else True
        assert got[at] <= most


def lazies() -> list[tuple[itf.Array, float]]:
    """Return expressions, and by how many ulp engines may differ."""
    r, x = itf.random, itf.asarray(np.arange(7.0, dtype="f4"))
    bounds = itf.asarray(np.array([[1], [100]], "i4"))
    exact = [
        r.uniform(shape=(5, 7), dtype="f4", seed=3), r.uniform(shape=300, seed=2**64 - 1),
        r.uniform(-2, 3, (2, 3, 4), "f4", seed=1), r.uniform(x, x + 1, dtype="f4", seed=9),
        r.integers(10, shape=100, seed=4), r.integers(-100, 100, (9, 9), "i1", seed=4, offset=7),
        r.integers(-2**63, 2**63, 65, seed=5), r.integers(0, 2**64, 65, "u8", seed=6),
        r.integers(-bounds, bounds, (2, 8), endpoint=True, seed=6), r.bernoulli(0.3, 99, seed=8),
        r.uniform(shape=(40, 30), dtype="f4", seed=3)[::-2, 3:].T + 0,
        x * r.bernoulli(0.5, x.shape, seed=7), r.uniform(shape=(5, 40), seed=3).sum(axis=-1),
        r.integers(3, shape=1000, seed=1).sum(),
    ]  # fmt: skip
    near = [r.normal(shape=999, dtype="f4", seed=1), r.normal(shape=(9, 9), seed=2)]
    return [(one, 0) for one in exact] + [(one, 16) for one in near]


@pytest.mark.skipif(bool(host_cpp.why_not()), reason=host_cpp.why_not())
@pytest.mark.parametrize("strategy", ["tile", "cub.iterator"])
def test_generated_code_makes_the_same_numbers(strategy: str) -> None:
    cases = lazies()  # of rows there is a kernel only
    plans = [plan_for("tile" if one.shape == (5,) else strategy, one) for one, _ in cases]
    engine = HostEngine(plans)
    for plan, (one, ulp) in zip(plans, cases, strict=True):
        (got,), want = engine.run(plan, one), one.compute(engine="cpu")
        if ulp:
            np.testing.assert_array_max_ulp(got, want, ulp)
        else:
            assert got.tobytes() == want.tobytes(), one


def test_every_case_is_what_numpy_computes_node_by_node() -> None:
    for one, _ in lazies():
        np.testing.assert_allclose(one.compute(engine="cpu"), evaluate(one), rtol=1e-12)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_normals_are_near_the_exact_ones(dtype: str) -> None:
    """Box and Muller's formula in long double, of the same uniform numbers."""
    count, key = 20_000, np.uint64(11)
    index = np.arange(count)
    if dtype == "f8":
        a = philox.pair(2 * index + 1, key, 0, np.empty(count, "u8"))
        b = philox.pair(2 * index, key, 0, np.empty(count, "u8"))
        u, v = (a >> 11) * 2.0**-53 + 2.0**-54, (b >> 11) * 2.0**-53
    else:
        a = philox.pair(index, key, 0, np.empty(count, "u8"))
        u = (a >> 32).astype("f4") * np.float32(2**-32) + np.float32(2**-33)
        v = ((a & 0xFFFFFFFF) >> 8).astype("f4") * np.float32(2**-24)
    angle = (v * np.dtype(dtype).type(2 * np.pi)).astype(np.longdouble)
    want = (np.sqrt(-2 * np.log(u.astype(np.longdouble))) * np.cos(angle)).astype(dtype)
    got = itf.random.normal(shape=count, dtype=dtype, seed=11, device="cpu").compute()
    np.testing.assert_array_max_ulp(got, want, 8)


def test_the_numbers_are_distributed_as_they_should() -> None:
    r, n = itf.random, 1 << 18
    u, z, k, b = (one.compute() for one in (
        r.uniform(shape=n, dtype="f4", seed=1, device="cpu"),
        r.normal(shape=n, seed=2, device="cpu"),
        r.integers(10, shape=n, seed=3, device="cpu"),
        r.bernoulli(0.2, n, seed=4, device="cpu")))  # fmt: skip
    assert u.min() >= 0 and u.max() < 1
    # Kolmogorov and Smirnov: beyond 1.95 / sqrt(n) once in a thousand seeds; these are fixed.
    for sample, below in ((u, lambda x: x), (z, _normal_cdf)):
        at = below(np.sort(sample).astype("f8"))
        steps = np.arange(n + 1) / n
        assert max(abs(at - steps[1:]).max(), abs(at - steps[:-1]).max()) < 1.95 / n**0.5
    expected = n / 10
    chi_square = ((np.bincount(k, minlength=10) - expected) ** 2 / expected).sum()
    assert chi_square < 27.9  # of 9 degrees of freedom once in a thousand
    assert abs(b.mean() - 0.2) < 3.3 * (0.16 / n) ** 0.5
    for sample in (u, z):  # neighbours, and streams, are independent
        assert abs(np.corrcoef(sample[1:], sample[:-1])[0, 1]) < 3.3 / n**0.5
    other = r.uniform(shape=n, dtype="f4", seed=1, offset=1, device="cpu").compute()
    assert abs(np.corrcoef(u, other)[0, 1]) < 3.3 / n**0.5


def _normal_cdf(x: Any) -> Any:
    return itf.asarray(x * 0.5**0.5).compute() * 0 + 0.5 * (1 + itf.erf(x * 0.5**0.5).compute())


def test_they_are_made_in_the_pass_that_uses_them() -> None:
    x = itf.asarray(np.ones((64, 64), "f4"))
    plan = itf.plan(x * itf.random.bernoulli(0.9, x.shape, seed=7))
    assert (plan.passes, plan.bytes_read, plan.bytes_written) == (1, x.nbytes, x.nbytes)
    assert itf.plan(itf.random.normal(shape=1 << 20, seed=1).sum()).bytes_read == 0


def test_another_seed_builds_nothing() -> None:
    itf.random.uniform(shape=10, dtype="f4", seed=1, device="cpu").compute()
    before = len(cache.BUILT)
    one = itf.random.uniform(shape=10, dtype="f4", seed=2, offset=3, device="cpu").compute()
    assert len(cache.BUILT) == before
    assert not (one == itf.random.uniform(shape=10, dtype="f4", seed=1).compute()).any()


def test_a_part_far_away_is_the_same_numbers() -> None:
    whole = itf.random.uniform(shape=1 << 40, dtype="f4", seed=5, device="cpu")
    got = whole[(1 << 33) + 5 : (1 << 33) + 9].compute()
    want = philox.word(np.arange(5, 9) + (1 << 33), 5, 0, np.empty(4, "u4"))
    assert (got == (want >> 8) * np.float32(2**-24)).all()
    first = itf.random.uniform(shape=4, dtype="f4", seed=5, device="cpu").compute()
    assert (whole[:4].compute() == first).all()


def test_a_seed_is_an_argument_of_a_fused_function() -> None:
    @itf.fuse
    def dropout(x: Any, p: float, seed: int) -> Any:
        return x * itf.random.bernoulli(p, x.shape, seed=seed) + itf.random.integers(
            1, seed + 100, x.shape, seed=seed
        )

    x = np.arange(50.0, dtype="f4")
    for p, seed in ((0.5, 3), (0.2, 2**40), (0.9, 0)):
        want = x * itf.random.bernoulli(p, 50, seed=seed).compute()
        want = want + itf.random.integers(1, seed + 100, 50, seed=seed).compute()
        assert (dropout(x, p, seed) == want).all()


def test_a_generator_takes_the_next_stream() -> None:
    rng = itf.random.Generator(9, offset=2)
    draws = [rng.uniform(shape=3), rng.normal(shape=3), rng.integers(9, shape=3), rng.bernoulli(
        shape=3)]  # fmt: skip
    r = itf.random
    want = [
        r.uniform(shape=3, seed=9, offset=2),
        r.normal(shape=3, seed=9, offset=3),
        r.integers(9, shape=3, seed=9, offset=4),
        r.bernoulli(shape=3, seed=9, offset=5),
    ]
    for got, one in zip(draws, want, strict=True):  # fmt: skip
        assert (got.compute() == one.compute()).all()
    assert repr(rng) == "itf.random.Generator(9, offset=6)"
    with pytest.raises(itf.TraceError, match="seed="):
        itf.fuse(lambda x: x + rng.uniform(shape=3))(np.ones(3))
    assert rng.offset == 6


def test_bounds_mean_what_numpy_s_mean() -> None:
    def got(*args: Any, **kwargs: Any) -> set[int]:
        return set(itf.random.integers(*args, shape=2000, seed=1, device="cpu", **kwargs).compute())

    assert got(3) == {0, 1, 2} and got(-1, 2) == {-1, 0, 1}
    assert got(-1, 1, endpoint=True) == {-1, 0, 1} and got(5, 6) == {5}
    whole = got(-128, 127, dtype="i1", endpoint=True)
    assert min(whole) == -128 and max(whole) == 127
    assert not itf.random.bernoulli(0, 9999, seed=1, device="cpu").compute().any()
    assert itf.random.bernoulli(1, 9999, seed=1, device="cpu").compute().all()
    assert itf.random.integers(5, seed=1, device="cpu").compute().shape == ()


@pytest.mark.parametrize(
    ("call", "kind", "says"),
    [
        (lambda r: r.integers(3, 3, 2, seed=1), itf.RangeError, r"no integer in \[3, 3\)"),
        (lambda r: r.integers(0, 129, 2, "i1", seed=1), itf.RangeError, "beyond int8"),
        (lambda r: r.integers(0.5, 3, seed=1), itf.DTypeError, "0.5"),
        (lambda r: r.integers(9, dtype="f4", seed=1), itf.DTypeError, "float32"),
        (lambda r: r.uniform(shape=2, dtype="f2", seed=1), itf.DTypeError, "float16"),
        (lambda r: r.uniform(shape=2, seed=-1), itf.RangeError, "seed=-1"),
        (lambda r: r.uniform(shape=2, seed=2**64), itf.RangeError, "2\\*\\*64 - 1"),
        (lambda r: r.uniform(shape=2, seed=1.5), itf.DTypeError, "seed=1.5"),
        (lambda r: r.uniform(shape=2, seed=True), itf.DTypeError, "seed=True"),
        (lambda r: r.uniform(np.ones(3), shape=2, seed=1), itf.ShapeError, "uniform"),
        (lambda r: r.uniform(np.ones(3), shape=(), seed=1), itf.ShapeError, "uniform"),
        (lambda r: r.normal(scale=-1, seed=1), itf.RangeError, "scale=-1"),
        (lambda r: r.normal(1j, seed=1), itf.DTypeError, "real"),
        (lambda r: r.bernoulli(1.5, 2, seed=1), itf.RangeError, "1.5"),
        (lambda r: r.bernoulli(float("nan"), 2, seed=1), itf.RangeError, "nan"),
        (lambda r: r.uniform(shape=2), TypeError, "seed"),
    ],
)
def test_what_cannot_be_is_refused(call: Any, kind: Any, says: str) -> None:
    with pytest.raises(kind, match=says):
        call(itf.random)


def test_nvrtc_compiles_them() -> None:
    nvrtc.require()
    r = itf.random
    cases = (r.uniform(shape=1 << 12, dtype="f4", seed=1), r.normal(shape=(64, 64), seed=1),
             r.integers(9, shape=(3, 1 << 33), dtype="i1", seed=1).sum())  # fmt: skip
    plans = [plan_for("tile", one) for one in cases]
    sources = [lower_tile(plan.stages[0], f"k{at}", True).source for at, plan in enumerate(plans)]
    for arch in ("sm_80", "sm_90", "sm_120"):
        _, report = nvrtc.compile_cubin(unit(sources), arch)
        assert report.spilled == 0


def test_size_is_numpys_name_of_the_shape() -> None:
    rng = itf.random.Generator(7)
    for name in ("uniform", "normal", "bernoulli", "integers"):
        first = (10,) if name == "integers" else ()
        made = getattr(itf.random, name)(*first, size=(2, 3), seed=7, device="cpu")
        again = getattr(itf.random, name)(*first, shape=(2, 3), seed=7, device="cpu")
        assert made.compute().tobytes() == again.compute().tobytes()
        assert getattr(rng, name)(*first, size=4).shape == (4,)
        with pytest.raises(TypeError, match=rf"{name}: shape= and size="):
            getattr(itf.random, name)(*first, size=2, shape=2, seed=7)
