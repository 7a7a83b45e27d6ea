"""Files built ahead of time: what is in them, when it serves, and what is refused."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import fake_cupy, host_cpp, nvrtc, stub_driver

import itfuse as itf
from itfuse import ahead, disk
from itfuse.cache import BUILT
from itfuse.engines.cuda import compile as compiler
from itfuse.engines.cuda import nvml
from itfuse.testing import assert_same

ROOT = Path(itf.__file__).parents[1]
SIGNATURE = "f4[rows, n], f4[n], float"


def arguments(signature: str) -> list[Any]:
    """Return what the first call of a signature is given by position."""
    return ahead.calls(signature)[0][0]


@pytest.fixture(autouse=True)
def _anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(disk, "_attached", {})
    monkeypatch.setattr(nvml, "architectures", list)
    BUILT.clear()
    yield
    BUILT.clear()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "kernels.itf"


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return the content of a file for sm_80 and sm_90."""
    nvrtc.require()
    path = tmp_path_factory.mktemp("good") / "kernels.itf"
    assert ahead.build(scaled, [SIGNATURE], ["80", "sm_90"], path) == 8  # 2 passes, 2 variants
    return path.read_bytes()


def scaled(x: Any, bias: Any, a: Any) -> tuple[Any, Any]:
    return itf.relu(x * a + bias), itf.sqrt((x * x).sum())


def compilations(arch: str, signature: str = "f4[9, 40], f4[40], float") -> int:
    """Compile a call of `scaled` with the null engine; return how often the compiler ran."""
    before = compiler.Count.compilations
    BUILT.clear()
    with itf.config(arch=arch):
        itf.compute(*scaled(*arguments(signature)), engine="null")
    return compiler.Count.compilations - before


# ---- building and loading ----
def test_a_loaded_file_is_used_whatever_the_sizes(file: Path, good: bytes) -> None:
    assert compilations("90") == 2
    file.write_bytes(good)
    assert itf.load(file) == 8
    assert [compilations(arch) for arch in ("80", "90")] == [0, 0]
    assert compilations("90", "f4[70000, 3], f4[3], float") == 0
    assert compilations("90", "f8[9, 40], f8[40], float") == 2  # not in the file
    assert compilations("120") == 2


def test_machine_code_serves_later_architectures_of_its_major_version(
    file: Path, good: bytes
) -> None:
    file.write_bytes(good)
    itf.load(file)
    assert [compilations(arch) for arch in ("86", "89")] == [0, 0]
    assert [compilations(arch) for arch in ("75", "100")] == [2, 2]
    # Code for sm_80 is not what a file for sm_86 holds.
    ahead.build(scaled, [SIGNATURE], ["86"], file)
    assert itf.load(file) == 4


def test_equal_builds_are_equal_files(file: Path, good: bytes) -> None:
    ahead.build(scaled, [SIGNATURE], ["80", "sm_90"], file)
    ours, theirs = zipfile.ZipFile(file), zipfile.ZipFile(file.with_name("good.itf"), "w")
    theirs.close()
    file.with_name("good.itf").write_bytes(good)
    theirs = zipfile.ZipFile(file.with_name("good.itf"))
    assert ours.namelist() == theirs.namelist()
    manifest = json.loads(ours.read("manifest.json"))
    assert manifest["archs"] == ["sm_80", "sm_90"]
    assert manifest["signatures"] == [SIGNATURE]
    assert file.read_bytes() == good
    assert stat.S_IMODE(file.stat().st_mode) & 0o400


def test_what_is_built_already_is_in_the_file_too(file: Path) -> None:
    nvrtc.require()
    sizes = []
    for _ in range(2):  # the second time everything is in the process
        itf.compute(*scaled(*arguments(SIGNATURE)), engine="null")
        sizes.append(ahead.build(scaled, [SIGNATURE], ["90"], file))
    assert sizes == [4, 4]


@itf.fuse
def nested(given: Any, a: float = 2.0) -> dict[str, Any]:
    t = given * (a * 2 + 1) + given**2
    return {"t": t, "total": (t - a).max()}


def test_a_fused_functions_calls_ask_for_what_is_in_the_file(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cuda engine on a stand-in device: each code it asks for must be there."""
    nvrtc.require()
    if host_cpp.why_not():
        pytest.skip(host_cpp.why_not())
    ahead.build(nested, ["f4[n]", "f4[n], float"], ["90"], file)
    itf.load(file)
    asked: list[bool] = []

    def cubin(source: str, arch: str) -> bytes:
        asked.append(disk.name_of(*compiler._key(source, "sm_90", "cubin")) in disk._attached)
        return source.encode()

    with fake_cupy.installed() as cp, monkeypatch.context() as inside:
        inside.setattr(compiler, "cubin", cubin)
        for size, start in ((1000, 0), (1003, 0), (1001, 1)):  # aligned and not
            host = np.linspace(-2, 2, size, dtype="f4")
            x = cp.asarray(host)[start:]
            got = nested(x, 0.25)
            t = host[start:] * np.float32(1.5) + host[start:] ** 2
            assert_same(got["t"], t)
            assert_same(got["total"], (t - np.float32(0.25)).max())
            assert_same(nested(x)["t"], host[start:] * np.float32(5) + host[start:] ** 2)
        assert len(asked) >= 3
        assert all(asked)
        nested(cp.asarray(np.ones(10, "f8")))
        assert not all(asked)
    nested.clear()


AHEAD_CUB = """
import sys
import itfuse as itf
from itfuse import ahead, disk, engines
from itfuse.engines.cuda.compile import Count

def f(x, y):
    return itf.maximum(x * y, 0), (x * x).sum()

with itf.config(strategy="cub"):
    for path in sys.argv[1:]:
        assert ahead.build(f, ["f4[n], f4[n]"], ["80", "90"], path) == 4
        print(Count.compilations)
    assert itf.load(path) == 4
    assert all(code.startswith(b"CCCLPYS1") for code in disk._attached.values())
    with itf.config(arch="90", cache_dir="off"):
        for stage in itf.plan(*f(*ahead.calls("f4[3, n], f4[3, n]")[0][0])).stages:
            engines.engine_for("none").build_for_gpu(stage)
print(Count.compilations)
"""


def test_stages_of_cuda_compute(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvrtc.require()
    if stub_driver.why_not():
        pytest.skip(stub_driver.why_not())
    monkeypatch.setenv("ITFUSE_CACHE_DIR", str(file.parent / "cache"))
    code = f"import sys\nsys.argv[1:] = {[f'{file}{n}' for n in range(2)]!r}\n" + AHEAD_CUB
    done = stub_driver.run_with_stub(code, file.parent)
    assert done.returncode == 0, done.stderr
    first, second, third = map(int, done.stdout.split())
    assert first >= 8  # algorithms, and the functions in them
    assert first == second == third


def test_cuda_compute_that_cannot_be_imported(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvrtc.require()
    monkeypatch.setitem(sys.modules, "itfuse.engines.cuda.cub", None)
    with itf.config(strategy="cub"), pytest.raises(itf.DeviceError, match=r"libcuda\.so\.1"):
        ahead.build(lambda x: x * 2, ["f4[n]"], ["90"], file)
    assert not file.exists()


# ---- files that do not serve ----
def rewrite(content: bytes, path: Path, change: Callable[[str, bytes], bytes | None]) -> None:
    """Write a file with changed members."""
    path.write_bytes(content)
    with zipfile.ZipFile(path) as old:
        members = {name: old.read(name) for name in old.namelist()}
    with zipfile.ZipFile(path, "w") as new:
        for name, member in members.items():
            changed = change(name, member)
            if changed is not None:
                new.writestr(name, changed)


def edited(**changes: Any) -> Callable[[str, bytes], bytes | None]:
    def change(name: str, member: bytes) -> bytes | None:
        if name != "manifest.json":
            return member
        return json.dumps({**json.loads(member), **changes}).encode()

    return change


BROKEN: dict[str, Callable[[str, bytes], bytes | None]] = {
    "a flipped bit": lambda name, x: x if name == "manifest.json" else x[:-1] + bytes([x[-1] ^ 1]),
    "a code cut off": lambda name, x: x if name == "manifest.json" else x[:-9],
    "codes missing": lambda name, x: x if name == "manifest.json" else None,
    "manifest missing": lambda name, x: None if name == "manifest.json" else x,
    "manifest garbled": lambda name, x: b"{" if name == "manifest.json" else x,
    "manifest of another kind": lambda name, x: b"[]" if name == "manifest.json" else x,
    "names of another kind": edited(codes=["../../x"]),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_damaged_file(file: Path, good: bytes, what: str) -> None:
    rewrite(good, file, BROKEN[what])
    with pytest.raises(itf.CacheError, match=r"kernels\.itf is no file .* or damaged .*again"):
        itf.load(file)
    assert not disk._attached


def test_a_file_cut_anywhere_or_flipped_anywhere(file: Path, good: bytes) -> None:
    step = max(1, len(good) // 50)
    for at in range(0, len(good), step):
        file.write_bytes(good[:at])
        with pytest.raises(itf.CacheError, match="kernels"):
            itf.load(file)
    for at in range(0, len(good), step):
        file.write_bytes(good[:at] + bytes([good[at] ^ 4]) + good[at + 1 :])
        try:
            itf.load(file)
        except itf.CacheError:
            continue
        # A flip that nothing depends on, such as in a date: all codes are as they were.
    file.write_bytes(good)
    itf.load(file)
    with zipfile.ZipFile(file) as whole:
        for name, code in disk._attached.items():
            assert disk.pack(name, code) == whole.read(f"codes/{name}")


@pytest.mark.parametrize(("key", "value"), [("format", 0), ("itfuse", "99.0")])
def test_another_version(file: Path, good: bytes, key: str, value: Any) -> None:
    rewrite(good, file, edited(**{key: value}))
    with pytest.raises(itf.CacheError, match=rf"kernels\.itf has .*{value}.*build it again"):
        itf.load(file)
    assert not disk._attached


def test_gpus_that_cannot_run_it(file: Path, good: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_bytes(good)
    for here, fine in ((["sm_120"], False), (["sm_75", "sm_120"], False), (["sm_86"], True),
                       (["sm_75", "sm_90"], True), ([], True)):  # fmt: skip
        monkeypatch.setattr(nvml, "architectures", lambda here=here: here)
        if fine:
            assert itf.load(file) == 8
            continue
        wanted = ",".join(one[3:] for one in here)
        with pytest.raises(itf.CacheError, match=rf"sm_80, sm_90, .* --arch {wanted}$"):
            itf.load(file)
        assert not disk._attached


class FakeNvml:
    """NVML of a machine with an H200, a GPU that does not answer, and two A100."""

    found = ((9, 0), None, (8, 0), (8, 0))

    def __init__(self, fails: str = "") -> None:
        self.fails, self.open = fails, 0

    def nvmlInit_v2(self) -> int:  # noqa: N802
        self.open += self.fails != "nvmlInit_v2"
        return int(self.fails == "nvmlInit_v2")

    def nvmlShutdown(self) -> int:  # noqa: N802
        self.open -= 1
        return 0

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:  # noqa: N802
        count._obj.value = len(self.found)
        return int(self.fails == "nvmlDeviceGetCount_v2")

    def nvmlDeviceGetHandleByIndex_v2(self, number: int, device: Any) -> int:  # noqa: N802
        device._obj.value = number + 1
        return int(self.found[number] is None)

    def nvmlDeviceGetCudaComputeCapability(  # noqa: N802
        self, device: Any, major: Any, minor: Any
    ) -> int:
        major._obj.value, minor._obj.value = self.found[device.value - 1]  # type: ignore[misc]
        return 0


def test_architectures_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    for fails, found in (("", ["sm_80", "sm_90"]), ("nvmlInit_v2", []),
                         ("nvmlDeviceGetCount_v2", [])):  # fmt: skip
        fake = FakeNvml(fails)
        monkeypatch.setattr(nvml, "_open", lambda fake=fake: fake)
        assert nvml.architectures() == found
        assert fake.open == 0

    def none() -> Any:
        raise OSError("libnvidia-ml.so.1: cannot open shared object file")

    monkeypatch.setattr(nvml, "_open", none)
    assert nvml.architectures() == []
    monkeypatch.setattr(nvml, "_open", object)  # too old
    assert nvml.architectures() == []


def test_a_file_that_is_not_there(file: Path) -> None:
    with pytest.raises(FileNotFoundError, match="kernels"):
        itf.load(file)
    nvrtc.require()
    with pytest.raises(FileNotFoundError, match=r"nowhere/k\.itf"):
        ahead.build(lambda x: x * 2, ["f4[n]"], ["90"], file.parent / "nowhere" / "k.itf")


# ---- signatures ----
def test_signatures() -> None:
    x, y, z, s, a, b, c = arguments("f4[n, 1000], float64[m,n],i2[ ], f4, int, float,bool")
    n, m = x.shape[0], y.shape[0]
    assert [one.dtype for one in (x, y, z)] == ["float32", "float64", "int16"]
    assert (x.shape, y.shape, z.shape) == ((n, 1000), (m, n), ())
    assert n != m
    assert min(n, m) > 1000
    assert (type(s), type(a), type(b), type(c)) == (np.float32, int, float, bool)
    assert arguments("") == []
    with pytest.raises(itf.ShapeError):
        itf.plan(*[sum(arguments("f4[n], f4[m]"))])


def test_signatures_are_arguments_of_a_call() -> None:
    ((x, pair, state, two), named), = ahead.calls(
        "f4[n,], (f4[n], int), {'a': f4[], 'b': [f8[m, 3]]}, 2, mode='a[]', flag=True, eps=float,"
    )  # fmt: skip
    assert x.shape == pair[0].shape == (2048,) and pair[1] == 3 and two == 2
    assert state["a"].shape == () and state["b"][0].shape[1] == 3
    assert named == {"mode": "a[]", "flag": True, "eps": 0.5}
    assert ahead.calls("-1.5, None, 'f4[n]'") == [([-1.5, None, "f4[n]"], {})]
    flags = [(a, named["b"]) for (_, a), named in ahead.calls("f4[n], bool, b=bool")]
    assert sorted(flags) == [(False, False), (False, True), (True, False), (True, True)]


def test_every_kind_of_argument_is_built(file: Path) -> None:
    nvrtc.require()

    @itf.fuse(static="mode")
    def f(state: Any, flag: Any, *, mode: str, eps: Any) -> Any:
        total = state["x"] + eps if mode == "add" else state["x"] * eps
        return total + 1 if flag else total

    signature = "{'x': f4[n]}, bool, mode='add', eps=float"
    assert ahead.build(f, [signature], ["90"], file) == 4  # two flags, each of two alignments
    with pytest.raises(itf.ConfigError, match=r"f cannot be called with .*'mode'"):
        ahead.build(f, ["{'x': f4[n]}, bool, eps=float"], ["90"], file)


def fails(x: Any) -> Any:
    raise RuntimeError("mine")


@pytest.mark.parametrize(("function", "signature", "message"), [
    (itf.fuse(lambda x, y: x * y), "float, int", "give at least one array"),
    (fails, "f4[n]", "fails failed for 'f4.n.': RuntimeError: mine"),
    (itf.fuse(fails), "f4[n]", "fails failed for 'f4.n.': RuntimeError: mine"),
    (lambda x: x if x.sum() > 0 else -x, "f4[n]", "null engine runs nothing"),
    (itf.fuse(lambda x: x if x.sum() > 0 else -x), "f4[n]", r"bool\(sum\(x\) > 0"),
])  # fmt: skip
def test_functions_that_fail_are_told_in_a_line(
    file: Path, function: Any, signature: str, message: str
) -> None:
    with pytest.raises(itf.ItfuseError, match=message) as caught:
        ahead.build(function, [signature], ["90"], file)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("arch", ["999", "70", "sm_72"])
def test_an_architecture_that_nvrtc_does_not_know(file: Path, arch: str) -> None:
    nvrtc.require()
    from itfuse.engines.cuda.compile import architectures

    number = arch.removeprefix("sm_")
    if int(number) in architectures():
        pytest.skip("this NVRTC knows it")
    for build in (
        lambda: ahead.build(lambda x: x * 7.5, ["f4[n]"], [arch], file),
        lambda: itf.fuse(lambda x: x * 7.5).build(itf.spec((9,), "f4"), arch=arch),
    ):
        with pytest.raises(itf.ConfigError, match=rf"does not compile for sm_{number} .*sm_90"):
            build()


@pytest.mark.parametrize("ranks", [*range(1, 12), 30])
def test_named_axes_are_large_and_ask_for_no_wide_index(ranks: int) -> None:
    names = [f"n{k}" for k in range(ranks)]
    for text in (f"f4[{','.join(names)}]", f"f4[100, {','.join(names)}]",
                 ", ".join(f"f4[{name}, 1]" for name in names)):  # fmt: skip
        for array in arguments(text):
            assert min(array.shape) >= 1
            stage = itf.plan(array + 1).stages[0]
            assert not stage.wide or ranks == 30
    assert arguments("f4[n]")[0].shape == (2048,)


def test_signatures_that_are_not_understood() -> None:
    for text, message in (
        ("f4[n", "not understood"), ("f4[n] f4[n]", "not understood"), ("x9[n]", "x9"),
        ("f4[-1]", "'-1' is no axis"), ("f4[2*n]", "no axis"), ("O[n]", "object"), ("str", "str"),
        ("f4[n], n+1", r"'n .+ 1' is neither"), ("g(f4)", "neither"), ("f4[n], *x", "neither"),
        ("f4)(f4", "not understood"), ("{f4[n]: 1}", "neither"),
        ("a=f4, a=f4", "each name once"), ("**{}", "each name once"),
    ):  # fmt: skip
        with pytest.raises(itf.ConfigError, match=message):
            arguments(text)
    assert callable(ahead.find("itfuse.testing:assert_same"))


@pytest.mark.parametrize(("path", "message"), [
    ("os", "names no function"), (":f", "names no function"), ("os:", "names no function"),
    ("os:path", "is a module"), ("os:nothing", "os has no nothing"),
    (".relative:f", "importing .relative failed"), ("itfuse_broken_syntax:f", "SyntaxError"),
    ("itfuse_broken_import:f", "ValueError: mine"), ("itfuse_broken_exit:f", "SystemExit: 3"),
    ("itfuse_broken_other:f", "importing itfuse_broken_other failed: ModuleNotFoundError"),
    ("no_such_module:f", "No module named 'no_such_module'"), ("os.nothing:f", "No module named"),
])  # fmt: skip
def test_functions_that_are_none(
    path: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    for name, text in {
        "syntax": "def f(:\n", "import": "raise ValueError('mine')\n", "other": "import no_such\n",
        "exit": "raise SystemExit(3)\n",
    }.items():  # fmt: skip
        (tmp_path / f"itfuse_broken_{name}.py").write_text(text)
    with pytest.raises(itf.ConfigError, match=message):
        ahead.find(path)


def test_calls_that_do_not_fit(file: Path) -> None:
    for function, message in ((lambda: 1, "cannot be called with"), (lambda x: 1, "no itf.Array")):
        with pytest.raises(itf.ConfigError, match=message):
            ahead.build(function, ["f4[n]"], ["90"], file)
    with pytest.raises(itf.ConfigError, match="architecture"):
        ahead.build(lambda x: x, ["f4[n]"], ["9x"], file)


# ---- the commands ----
def test_commands(tmp_path: Path) -> None:
    nvrtc.require()
    (tmp_path / "mine.py").write_text(
        "import itfuse as itf\ndef double(x):\n    return x * 2\n"
        "@itf.fuse\ndef fused(x, a):\n    return x * a, x.sum()\n"
    )
    cache = tmp_path / "cache"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "ITFUSE_CACHE_DIR": str(cache)}

    def run(*arguments: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-m", "itfuse", *arguments],
            check=False, env=environment, cwd=tmp_path, capture_output=True, text=True,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    code, text = run("build", "mine:double", "--signature", "f4[n]", "--arch", "80,90", "-o", "k")
    assert (code, text.startswith("k: 4 compiled codes for 80,90, ")) == (0, True), text
    code, text = run(
        "build", "mine:fused", "--signature", "f4[n], float", "--arch", "90", "-o", "f"
    )
    assert (code, text.startswith("f: ")) == (0, True), text
    assert (itf.load(tmp_path / "k"), itf.load(tmp_path / "f")) == (4, 4)
    assert run("cache", "path") == (0, f"{cache}\n")
    assert "6, " in run("cache", "info")[1]  # x * 2 and x * a are one code
    assert run("cache", "clear") == (0, f"removed 6 entries from {cache}\n")
    (tmp_path / "broken.py").write_text("def f(:\n")
    for wrong in (
        ("nothing:double", "f4[n]"), ("mine:triple", "f4[n]"), ("mine:double", "f4["),
        ("mine:fused", "float, int"), (".mine:double", "f4[n]"), ("broken:f", "f4[n]"),
    ):  # fmt: skip
        code, text = run("build", wrong[0], "--signature", wrong[1], "-o", "w.itf")
        assert code == 1
        assert text.startswith("itfuse: ") and text.count("\n") == 1, text
        assert not (tmp_path / "w.itf").exists()


def test_a_new_process_with_everything_kept_compiles_nothing() -> None:
    nvrtc.require()
    from itfuse.bench import start

    empty, warm = start.measure("null")
    assert (empty.compilations, warm.compilations) == (5, 0)
    assert all(after < empty.seconds[name] for name, after in warm.seconds.items())
    assert all(0 < some < empty.seconds[name] for name, some in empty.compiling.items())
    assert not any(warm.compiling.values())
