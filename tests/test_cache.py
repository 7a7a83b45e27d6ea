"""Compiled code in the process and on disk: shared, private, capped, verified."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support import nvrtc

import itfuse as itf
from itfuse import disk
from itfuse.cache import BUILT, BuildCache

ROOT = Path(itf.__file__).parents[1]


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Path]:
    with itf.config(cache_dir=tmp_path / "cache"):
        yield tmp_path / "cache"


@pytest.fixture(autouse=True)
def _anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(disk, "_written", {})
    disk._warn_once.cache_clear()
    with warnings.catch_warnings():
        yield


def versions() -> tuple[str, ...]:
    return ("v1",)


def compile_once(payload: bytes = b"code", **key: object) -> tuple[bytes, int]:
    """Ask for code; return it and how often it was built."""
    built = []
    found = disk.compiled((sorted(key.items()),), versions, lambda: built.append(1) or payload)
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


@pytest.mark.parametrize(
    "damage", ["cut", "flip", "magic", "empty", "longer", "other", "link", "writable", "owner"]
)
def test_a_damaged_or_foreign_entry_is_built_again(cache: Path, damage: str) -> None:
    compile_once(a=1)
    (file,) = cache.iterdir()
    entry = file.read_bytes()
    if damage == "owner":
        if os.geteuid():
            pytest.skip("only root gives files away")
        os.chown(file, 12345, -1)
    elif damage == "other":  # a valid entry under the wrong name
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
        damaged = {
            "cut": entry[:-2], "flip": entry[:-1] + bytes([entry[-1] ^ 1]), "empty": b"",
            "longer": entry + b"x", "magic": entry.replace(b"cache-1", b"cache-0"),
        }  # fmt: skip
        file.write_bytes(damaged[damage])
    assert compile_once(a=1) == (b"code", 1)
    assert compile_once(a=1) == (b"code", 0)  # replaced by a good one
    assert list(cache.iterdir()) == [file]


def test_a_directory_that_others_can_write_is_not_used(cache: Path) -> None:
    cache.mkdir()
    cache.chmod(0o777)
    with pytest.warns(disk.CacheWarning, match="not private"):
        assert compile_once(a=1) == (b"code", 1)
    assert compile_once(a=1) == (b"code", 1)  # and no second warning
    assert not list(cache.iterdir())
    assert not disk.info().usable


def test_a_directory_of_somebody_else_is_not_used(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_once(a=1)
    monkeypatch.setattr(disk.os, "geteuid", lambda: os.getuid() + 1)
    with pytest.warns(disk.CacheWarning, match="another owner"):
        assert compile_once(a=1) == (b"code", 1)


def test_the_directory_may_be_a_link_of_the_user(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir(mode=0o700)
    cache.symlink_to(tmp_path / "scratch")
    assert compile_once(a=1) == (b"code", 1)
    assert compile_once(a=1) == (b"code", 0)
    (tmp_path / "scratch").chmod(0o777)
    with pytest.warns(disk.CacheWarning):
        assert compile_once(a=1) == (b"code", 1)
    if not os.geteuid():
        (tmp_path / "scratch").chmod(0o700)
        os.chown(cache, 12345, -1, follow_symlinks=False)
        assert compile_once(a=1) == (b"code", 1)


def test_where_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if sys.platform in ("win32", "darwin"):
        pytest.skip("the XDG specification is for other systems")
    with itf.config(cache_dir=None):
        monkeypatch.setenv("HOME", "/home/me")
        monkeypatch.setenv("XDG_CACHE_HOME", "/scratch/me")
        assert disk.directory() == Path("/scratch/me/itfuse")
        monkeypatch.setenv("XDG_CACHE_HOME", "relative")
        assert disk.directory() == Path("/home/me/.cache/itfuse")
    with itf.config(cache_dir="~/kept"):
        assert disk.directory() == Path("/home/me/kept")


def test_without_a_directory_everything_works(tmp_path: Path) -> None:
    with itf.config(cache_dir="off"):
        assert compile_once(a=1) == (b"code", 1)
        assert compile_once(a=1) == (b"code", 1)
    (tmp_path / "file").touch()
    with itf.config(cache_dir=tmp_path / "file" / "below"):
        assert compile_once(a=1) == (b"code", 1)
        assert not disk.info().usable


def refuse(number: int) -> object:
    def raises(*args: object, **kwargs: object) -> None:
        raise OSError(number, os.strerror(number))

    return raises


def test_a_full_disk_is_no_error(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk.os, "replace", refuse(errno.ENOSPC))
    assert compile_once(a=1) == (b"code", 1)
    assert not list(cache.iterdir())  # nothing half-written stays


def test_a_disk_that_fills_while_writing_is_no_error(cache: Path) -> None:
    done = python(
        """
        import resource, signal, sys
        import itfuse as itf
        from itfuse import disk
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # writing fails half-way instead
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        with itf.config(cache_dir=sys.argv[1]):
            for size, kept in ((1000, True), (100_000, False), (5000, False)):
                assert disk.save(disk.name_of(size), bytes(size)) == kept
                assert (disk.load(disk.name_of(size)) == bytes(size)) == kept
        """,
        str(cache),
    )
    assert done.returncode == 0, done.stderr
    assert len(list(cache.iterdir())) == 1


def test_a_read_only_directory_is_read(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_once(a=1)
    opened = os.open

    def read_only(path: object, flags: int, *mode: int) -> int:
        if flags & os.O_CREAT:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return opened(path, flags, *mode)  # type: ignore[arg-type]

    monkeypatch.setattr(disk.os, "open", read_only)
    monkeypatch.setattr(disk.os, "utime", refuse(errno.EROFS))
    monkeypatch.setattr(disk.os, "unlink", refuse(errno.EROFS))
    assert compile_once(a=1) == (b"code", 0)
    assert compile_once(a=2) == (b"code", 1)
    assert compile_once(a=2) == (b"code", 1)


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
    litter = cache / ".0123456789abcdef-17-0a1b2c3d"
    litter.touch()
    disk._written.clear()  # as in a new process
    compile_once(a=2)
    assert litter.exists()  # somebody may be writing it
    os.utime(litter, (0, 0))
    disk._written.clear()
    compile_once(a=3)
    assert not litter.exists()


def test_the_litter_that_is_removed_is_what_a_kill_leaves(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def kill(*_: object) -> None:
        raise Killed

    monkeypatch.setattr(disk.os, "replace", kill)
    with pytest.raises(Killed):
        compile_once(a=1)
    (litter,) = cache.iterdir()
    assert disk._TEMPORARY.fullmatch(litter.name)
    assert disk.clear() == 0
    assert not list(cache.iterdir())


@pytest.mark.parametrize("how", ["clear", "trim"])
def test_files_of_the_user_in_the_directory_are_left_alone(cache: Path, how: str) -> None:
    cache.mkdir(mode=0o700)
    theirs = {".bashrc": b"", ".0123-1-abc": b"x", ".git/config": b"x", "notes.txt": b"x",
              "0" * 64: b"an object of another store", "1" * 64: b"", "a" * 63: b"x",
              ".0123456789abcdef-17-0a1b2c3d.txt": b"x", "2" * 64 + "/inside": b"x"}  # fmt: skip
    for name, content in theirs.items():
        file = cache / name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(content)
        os.utime(file, (0, 0))
    with itf.config(cache_size=1):
        for number in range(4):
            compile_once(bytes(400_000), n=number)
        assert disk.info().entries == 2  # those that are beyond the cap went
        if how == "clear":
            assert disk.clear() == 2
    for name, content in theirs.items():
        assert (cache / name).read_bytes() == content


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
def test_a_pipe_in_the_place_of_an_entry_is_not_waited_for(cache: Path) -> None:
    compile_once(a=1)
    (file,) = cache.iterdir()
    file.unlink()
    os.mkfifo(file, 0o600)
    done = python(
        """
        import sys
        import itfuse as itf
        from itfuse import disk
        with itf.config(cache_dir=sys.argv[1], cache_size=1):
            assert disk.load(sys.argv[2]) is None
            assert disk.info().entries == 0 and disk.clear() == 0
        """,
        str(cache), file.name, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert compile_once(a=1) == (b"code", 1)
    assert compile_once(a=1) == (b"code", 0)  # an entry is there now


@pytest.mark.parametrize(
    "odd", ["~nosuchuser/x", "/dev/null", "/dev/null/x", "/proc/x", "x" * 5000, "\udcff\ud800"]
)
def test_odd_directories_keep_nothing_and_stop_nothing(odd: str) -> None:
    with itf.config(cache_dir=odd):
        assert compile_once(a=1) == (b"code", 1)
        assert compile_once(a=1) == (b"code", 1)
        assert disk.clear() == 0
        assert not disk.info().usable
    with pytest.raises(itf.ConfigError, match=r"cache_dir=.* a path without NUL"):
        itf.config(cache_dir="a\0b")


def command(*arguments: str, **environment: str) -> tuple[int, str, str]:
    """Run `itfuse`; return its exit code, output and errors."""
    pytest.importorskip("typer")
    done = subprocess.run(
        [sys.executable, "-m", "itfuse", *arguments], check=False, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def test_commands_of_the_cache(cache: Path) -> None:
    place = {"ITFUSE_CACHE_DIR": str(cache)}
    code, out, err = command("cache", "info", ITFUSE_CACHE_SIZE="abc", **place)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith("itfuse: ITFUSE_CACHE_SIZE: cache_size='abc' is not valid")
    for size in ("abc", "1"):  # which neither of these needs
        assert command("cache", "path", ITFUSE_CACHE_SIZE=size, **place) == (0, f"{cache}\n", "")
        assert command("cache", "clear", ITFUSE_CACHE_SIZE=size, **place)[0] == 0
    code, out, err = command("cache", "path", ITFUSE_CACHE_DIR="off")
    assert (code, out, err.count("\n")) == (1, "", 1) and "turned off" in err
    assert command("cache", "clear", ITFUSE_CACHE_DIR="off")[:2] == (
        0, "nothing to remove: turned off (cache_dir=off)\n",
    )  # fmt: skip
    code, out, err = command("cache", "path", ITFUSE_CACHE_DIR="~nosuchuser/x")
    assert code == 1 and "no home directory for ~nosuchuser/x" in err
    code, out, _ = command("cache", "info", ITFUSE_CACHE_SIZE="0", **place)
    assert code == 0 and "cache_size is 0" in out and "usable    no" in out


def test_the_directory_is_not_looked_through_at_each_write(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = []
    trim = disk._trim
    monkeypatch.setattr(disk, "_trim", lambda path: looked.append(1) or trim(path))
    with itf.config(cache_size=1):
        for number in range(40):  # of the 1 KiB that 1/64 of the cap has 16
            compile_once(bytes(1000), n=number)
    assert len(looked) == 3


def python(
    code: str, *arguments: str, timeout: float | None = None
) -> subprocess.CompletedProcess[str]:
    import textwrap

    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", textwrap.dedent(code), *arguments]
    return subprocess.run(
        command, check=False, env=environment, capture_output=True, text=True, timeout=timeout
    )


ROUNDS = """
import hashlib, os, random, shutil, signal, sys, time
from pathlib import Path
import itfuse as itf
from itfuse import disk

path, rounds, kill = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "kill"
WANT = [hashlib.sha256(b"%d" % n).digest() * 5_000 for n in range(12)]

def ask(n):
    assert disk.compiled((n,), lambda: ("v",), lambda: WANT[n]) == WANT[n]

def work():
    code = 1
    try:
        random.seed()
        turns = 10**9 if kill else 100
        for _ in range(turns):
            ask(random.randrange(12))
        code = 0
    finally:
        os._exit(code)

entries = litter = 0
with itf.config(cache_dir=path, cache_size=1):  # half of what is asked for: entries come and go
    for _ in range(rounds):
        shutil.rmtree(path, ignore_errors=True)  # an empty cache
        children = []
        for _ in range(8):
            child = os.fork()
            if not child:
                work()
            children.append(child)
        if kill:
            time.sleep(random.random() / 20)
            for child in children:
                os.kill(child, signal.SIGKILL)
        codes = [os.waitpid(child, 0)[1] for child in children]
        assert codes == [signal.SIGKILL if kill else 0] * 8, codes
        for file in path.iterdir() if path.exists() else ():
            if file.name.startswith("."):
                litter += 1
            else:
                entries += 1
                disk.unpack(file.name, file.read_bytes())
        for n in range(12):
            ask(n)
print(entries, litter)
"""


def test_8_processes_share_an_empty_cache(cache: Path) -> None:
    done = python(ROUNDS, str(cache), "3", "wait")
    assert done.returncode == 0, done.stderr
    entries, litter = map(int, done.stdout.split())
    assert entries > 3
    assert litter == 0


@pytest.mark.parametrize("rounds", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_processes_killed_at_any_moment_leave_it_intact(cache: Path, rounds: int) -> None:
    done = python(ROUNDS, str(cache), str(rounds), "kill")
    assert done.returncode == 0, done.stderr
    entries, litter = map(int, done.stdout.split())
    assert entries > rounds
    assert litter > 0  # some were killed while they wrote


def compilations() -> int:
    from itfuse.engines.cuda.compile import Count

    return Count.compilations


def test_a_warm_cache_compiles_nothing(cache: Path) -> None:
    nvrtc.require()
    x, y = itf.spec((64, 1024), "float32"), itf.spec((1024,), "float32")
    for expected in (2, 0):
        BUILT.clear()
        before = compilations()
        itf.compute(itf.relu(x * 0.5 + y), itf.sqrt((y * y).sum()), engine="null")
        assert compilations() - before == expected
    BUILT.clear()


PIPELINES = """
import hashlib, sys
import itfuse as itf
from itfuse.engines.cuda.compile import Count

@itf.fuse
def two(x, y):
    return itf.relu(x * 0.5 + y), itf.sqrt((y * y).sum())

sys.stdin.readline()
built = two.build(itf.spec((64, 1024), "float32"), itf.spec((1024,), "float32"), arch="sm_90")
own = [name for name in sys.modules if name.split(".")[0] in ("cuda", "cupy")]
print(*(hashlib.sha256(one.cubin).hexdigest() for one in built), Count.compilations, len(own))
"""


@pytest.mark.slow
def test_8_processes_compile_at_once_on_an_empty_cache(cache: Path) -> None:
    nvrtc.require()

    def run(count: int, directory: str) -> list[list[str]]:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "ITFUSE_CACHE_DIR": directory}
        workers = [
            subprocess.Popen([sys.executable, "-c", PIPELINES], env=environment, text=True,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            for _ in range(count)
        ]  # fmt: skip
        with ThreadPoolExecutor(count) as pool:
            return [out.split() for out, _ in pool.map(lambda one: one.communicate("\n"), workers)]

    (right,) = run(1, "off")
    assert right[2] == "2"
    assert all(out[:2] == right[:2] for out in run(8, str(cache)))
    assert disk.info().entries == 2
    for file in cache.iterdir():
        assert hashlib.sha256(disk.unpack(file.name, file.read_bytes())).hexdigest() in right
    assert run(1, str(cache)) == [[*right[:2], "0", "0"]]  # neither compiled nor a compiler loaded


def test_threads_compile_once() -> None:
    nvrtc.require()
    BUILT.clear()
    before = compilations()
    x = itf.spec((1000,), "float32")
    barrier = threading.Barrier(8)

    def work(_: int) -> None:
        barrier.wait()
        itf.compute(x * 3 + x, engine="null")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert compilations() - before == 1
    assert BUILT.builds == 1
    BUILT.clear()


def test_a_build_that_fails_is_tried_again() -> None:
    built = BuildCache()

    def fail() -> int:
        raise ValueError("no")

    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            built.get("key", fail)
    assert built.get("key", lambda: 1) == 1
    assert built.get("key", fail) == 1
    assert (built.builds, len(built)) == (1, 1)


def test_a_fork_while_another_thread_builds() -> None:
    done = python(
        """
        import os, threading, warnings
        from itfuse.cache import BUILT
        warnings.simplefilter("ignore", DeprecationWarning)
        began, end = threading.Event(), threading.Event()
        def slow():
            began.set()
            end.wait()
            return "parent's"
        thread = threading.Thread(target=BUILT.get, args=("key", slow))
        thread.start()
        began.wait()
        child = os.fork()
        if not child:
            os._exit(0 if BUILT.get("key", lambda: "child's") == "child's" else 1)
        for _ in range(200):
            done, code = os.waitpid(child, os.WNOHANG)
            if done:
                break
            threading.Event().wait(0.05)
        else:
            os.kill(child, 9)
            code = "the child waits for a thread that it does not have"
        end.set()
        thread.join()
        assert code == 0, code
        """
    )
    assert done.returncode == 0, done.stderr
