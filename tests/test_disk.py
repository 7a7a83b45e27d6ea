"""Compiled code on disk: shared, private, capped, verified; and files built ahead of time."""

from __future__ import annotations

import os
import random
import signal
import stat
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import nvrtc

import itfuse as itf
from itfuse import ahead, disk
from itfuse.cache import BUILT

ROOT = Path(itf.__file__).parents[1]


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Path]:
    with itf.config(cache_dir=tmp_path / "cache"):
        yield tmp_path / "cache"


def compile_once(payload: bytes = b"code", **key: object) -> tuple[bytes, int]:
    """Ask for code; return it and how often it was built."""
    built = []
    found = disk.compiled((sorted(key.items()),), ("v1",), lambda: built.append(1) or payload)
    return found, len(built)


def test_built_once_and_kept(cache: Path) -> None:
    assert compile_once(a=1) == (b"code", 1)
    assert compile_once(a=1) == (b"code", 0)
    assert compile_once(a=2) == (b"code", 1)
    assert disk.info().entries == 2
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in cache.iterdir())
    assert disk.clear() == 2
    assert compile_once(a=1) == (b"code", 1)


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "longer", "other", "link", "writable"])
def test_a_damaged_or_foreign_entry_is_built_again(cache: Path, damage: str) -> None:
    compile_once(a=1)
    (file,) = cache.iterdir()
    entry = file.read_bytes()
    if damage == "other":  # a valid entry under the wrong name
        compile_once(b"other", a=2)
        second = next(one for one in cache.iterdir() if one != file)
        file.write_bytes(second.read_bytes())
        second.unlink()
    elif damage == "link":
        elsewhere = cache.parent / "elsewhere"
        elsewhere.write_bytes(entry)
        file.unlink()
        file.symlink_to(elsewhere)
    elif damage == "writable":
        file.chmod(0o666)
    else:
        flipped = entry[:-1] + bytes([entry[-1] ^ 1])
        file.write_bytes({"cut": entry[:-2], "flip": flipped, "empty": b"",
                          "longer": entry + b"x"}[damage])  # fmt: skip
    assert compile_once(a=1) == (b"code", 1)
    assert compile_once(a=1) == (b"code", 0)  # replaced by a good one


def test_a_directory_that_others_can_write_is_not_used(cache: Path) -> None:
    cache.mkdir()
    cache.chmod(0o777)
    with pytest.warns(disk.CacheWarning, match="not private"):
        assert compile_once(a=1) == (b"code", 1)
    assert compile_once(a=1) == (b"code", 1)  # and no second warning
    assert not list(cache.iterdir())
    assert not disk.info().usable


def test_without_a_directory_everything_works(tmp_path: Path) -> None:
    with itf.config(cache_dir="off"):
        assert compile_once(a=1) == (b"code", 1)
        assert compile_once(a=1) == (b"code", 1)
    (tmp_path / "file").touch()
    with itf.config(cache_dir=tmp_path / "file" / "below"):
        assert compile_once(a=1) == (b"code", 1)
        assert not disk.info().usable


def test_a_full_disk_is_no_error(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(disk.os, "replace", full)
    assert compile_once(a=1) == (b"code", 1)
    assert not list(cache.iterdir())  # nothing half-written stays


def test_the_least_recently_used_go_first(cache: Path) -> None:
    with itf.config(cache_size=1):
        for number in range(3):
            compile_once(bytes(300_000), n=number)
        old = time.time() - 100
        for file in cache.iterdir():
            os.utime(file, (old, old))
        compile_once(bytes(300_000), n=1)  # used now
        compile_once(bytes(300_000), n=3)  # too much: two of the oldest go
        assert compile_once(bytes(300_000), n=1)[1] == 0
        assert disk.info().size <= 1 << 20
        assert compile_once(bytes(2 << 20), n=9)[1] == 1  # larger than the cap: not kept
        assert compile_once(bytes(300_000), n=1)[1] == 0


def test_litter_of_killed_processes_is_removed(cache: Path) -> None:
    compile_once(a=1)
    litter = cache / ".0123-1-abc"
    litter.touch()
    compile_once(a=2)
    assert litter.exists()  # somebody may be writing it
    os.utime(litter, (0, 0))
    compile_once(a=3)
    assert not litter.exists()


WORKER = """
import hashlib, random, sys, time
import itfuse as itf
from itfuse import disk
with itf.config(cache_dir=sys.argv[1], cache_size=1):
    print("ready", flush=True)
    for turn in range(int(sys.argv[2])):
        n = random.randrange(12)
        want = hashlib.sha256(str(n).encode()).digest() * 5_000
        assert disk.compiled((n,), ("v",), lambda: want) == want
"""


def start(cache: Path, turns: int) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", WORKER, str(cache), str(turns)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE)


def intact(cache: Path) -> bool:
    for file in cache.iterdir():
        if not file.name.startswith("."):
            disk.unpack(file.name, file.read_bytes())
    return True


def test_many_processes_share_it(cache: Path) -> None:
    workers = [start(cache, 200) for _ in range(8)]
    assert [worker.wait() for worker in workers] == [0] * 8
    assert intact(cache)


@pytest.mark.slow
def test_processes_killed_at_any_moment_leave_it_intact(cache: Path) -> None:
    for _ in range(25):  # of 8: 200 killed
        workers = [start(cache, 10**9) for _ in range(8)]
        for worker in workers:
            assert worker.stdout is not None
            worker.stdout.readline()
        time.sleep(random.random() / 20)
        for worker in workers:
            worker.send_signal(signal.SIGKILL)
        assert all(worker.wait() == -signal.SIGKILL for worker in workers)
        assert intact(cache)
    assert start(cache, 50).wait() == 0


def scaled(x: itf.Array, bias: itf.Array, a: float) -> tuple[itf.Array, itf.Array]:
    return itf.relu(x * a + bias), itf.sqrt((x * x).sum())


SIGNATURE = "f4[rows, n], f4[n], float"


def compilations() -> int:
    from itfuse.engines.cuda.compile import Count

    return Count.compilations


def test_a_warm_cache_compiles_nothing(cache: Path) -> None:
    nvrtc.require()
    for expected in (2, 0):
        BUILT.clear()
        before = compilations()
        itf.compute(*scaled(*ahead.arguments(SIGNATURE)), engine="null")
        assert compilations() - before == expected
    BUILT.clear()


def test_built_ahead_of_time_and_loaded(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvrtc.require()
    monkeypatch.setattr(disk, "_attached", {})
    file = cache.parent / "kernels.itf"
    assert ahead.build(scaled, [SIGNATURE], ["80", "sm_90"], file) == 8  # 2 passes, 2 variants
    disk.clear()
    BUILT.clear()
    with itf.config(cache_dir="off"):
        assert itf.load(file) == 8
        before = compilations()
        for arch in ("80", "90"):
            with itf.config(arch=arch):
                itf.compute(*scaled(*ahead.arguments("f4[9, 40], f4[40], float")), engine="null")
        assert compilations() == before
        BUILT.clear()
        with itf.config(arch="120"):  # not in the file
            itf.compute(*scaled(*ahead.arguments(SIGNATURE)), engine="null")
        assert compilations() == before + 2
    BUILT.clear()


def test_files_that_are_none(tmp_path: Path) -> None:
    file = tmp_path / "no.itf"
    with pytest.raises(FileNotFoundError):
        itf.load(file)
    file.write_bytes(b"PK nothing")
    with pytest.raises(itf.CacheError, match="no file of itfuse build, or damaged"):
        itf.load(file)


def test_signatures_that_are_not_understood() -> None:
    for text, message in (
        ("f4", "needs its axes"), ("f4[n", "not understood"), ("f4[n] f4[n]", "not understood"),
        ("x9[n]", "x9"), ("f4[-1]", "-1"), ("O[n]", "O"),
    ):  # fmt: skip
        with pytest.raises(itf.ItfuseError, match=message):
            ahead.arguments(text)
    with pytest.raises(itf.ItfuseError, match="names no function"):
        ahead.find("os")


def test_commands(cache: Path, tmp_path: Path) -> None:
    nvrtc.require()
    (tmp_path / "mine.py").write_text("def double(x):\n    return x * 2\n")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "ITFUSE_CACHE_DIR": str(cache)}

    def run(*arguments: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-m", "itfuse", *arguments],
            check=False, env=environment, cwd=tmp_path, capture_output=True, text=True,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    made = run("build", "mine:double", "--signature", "f4[n]", "--arch", "80,90", "-o", "k.itf")
    assert made == (0, "k.itf: 4 compiled codes for 80,90\n")
    assert run("cache", "path") == (0, f"{cache}\n")
    assert "4, " in run("cache", "info")[1]
    assert run("cache", "clear") == (0, f"removed 4 entries from {cache}\n")
    for wrong in (("nothing:double", "f4[n]"), ("mine:triple", "f4[n]"), ("mine:double", "f4")):
        code, text = run("build", wrong[0], "--signature", wrong[1], "-o", "w.itf")
        assert code == 1
        assert text.startswith("itfuse: ")
        assert not (tmp_path / "w.itf").exists()


@pytest.fixture(autouse=True)
def _warn_again() -> Iterator[None]:
    disk._warn_once.cache_clear()
    with warnings.catch_warnings():
        yield
