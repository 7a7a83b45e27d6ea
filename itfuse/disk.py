"""Compiled code on disk: shared by processes, private to the user, never trusted.

An entry is one file, named by the SHA-256 of what decides its content. It is written beside its
place and moved there, so that a reader sees all of it or none. It is read only if the user owns it
and nobody else can write it, and used only if its own checksums hold; anything else is compiled
again. Without a usable directory everything works, compiled anew in each process.

Nothing waits for the disk (fsync): after a loss of power an entry may be cut or empty, its checksum
says so, and compiling it again costs less than waiting each time. There are no locks either, which
a killed process could leave behind: processes that miss at the same time compile the same twice.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import stat
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from itfuse.config import setting
from itfuse.errors import CacheError

MAGIC = b"itfuse-cache-1\n"
_BEGIN = MAGIC.rstrip(b"0123456789\n")
_DIGEST = hashlib.sha256().digest_size
_HEAD = len(MAGIC) + 2 * _DIGEST
_STALE = 3600.0
"""Seconds after which a file that was being written is litter of a killed process."""
_KEEP = 0.9
"""Share of the size cap that is left after the least recently used entries were removed."""
_LOOK = 1 / 64
"""Share of the size cap that a process writes before it looks again how full the directory is."""
_BINARY = getattr(os, "O_BINARY", 0)
_READING = os.O_RDONLY | _BINARY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
"""Neither through links, nor waiting for a writer where somebody put a pipe."""
_TEMPORARY = re.compile(r"\.[0-9a-f]{16}-[0-9]+-[0-9a-f]{8}")
_ENTRY = re.compile(rf"[0-9a-f]{{{2 * _DIGEST}}}")


def directory() -> Path | None:
    """Return where entries are kept, or None: the setting `cache_dir` is `off`, or names no home.

    By default `itfuse` in the user's cache directory: `$XDG_CACHE_HOME`, `~/.cache`, on macOS
    `~/Library/Caches`, on Windows `%LOCALAPPDATA%`.
    """
    wished = setting("cache_dir")
    if wished == "off":
        return None
    try:
        if wished:
            return Path(wished).expanduser()
        home = Path.home()
    except RuntimeError:  # no home directory, or not of that user
        return None
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or str(home / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = str(home / "Library" / "Caches")
    else:
        base = os.environ.get("XDG_CACHE_HOME", "")
        if not os.path.isabs(base):  # to be ignored, says the XDG specification
            base = str(home / ".cache")
    return Path(base) / "itfuse"


class CacheWarning(UserWarning):
    """The cache directory is not safe to use."""


@dataclass(frozen=True)
class Info:
    """State of the cache on disk.

    Attributes
    ----------
    path : str
        The directory, or why there is none.
    usable : bool
        Whether entries can be read and written there.
    entries, size, limit : int
        Number of entries, their bytes, and the cap in bytes.
    """

    path: str
    usable: bool
    entries: int
    size: int
    limit: int


def _private(status: os.stat_result) -> bool:
    """Whether only this user can have written what has this status."""
    if not hasattr(os, "geteuid"):  # no such owners on this system
        return True
    return status.st_uid == os.geteuid() and not status.st_mode & 0o022


@functools.cache
def _warn_once(path: str) -> None:
    warnings.warn(
        f"the cache directory {path} is not private (another owner, or others can write it); "
        "nothing is kept there. Make it yours and mode 0700, or set ITFUSE_CACHE_DIR",
        CacheWarning,
        stacklevel=2,
    )


def _usable(path: Path) -> bool:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        own, status = path.lstat(), path.stat()
    except (OSError, ValueError):  # no such place, or read-only, or a file: nothing to warn of
        return False
    # The user's own link to another disk is fine, anybody else's is not.
    theirs = stat.S_ISLNK(own.st_mode) and hasattr(os, "geteuid") and own.st_uid != os.geteuid()
    if theirs or not _private(status):
        _warn_once(str(path))
        return False
    return True


def name_of(*key: object) -> str:
    """Return the name of the entry that `key` (strings, numbers, bytes) decides."""
    return hashlib.sha256(repr(key).encode()).hexdigest()


def pack(name: str, payload: bytes) -> bytes:
    """Return the bytes of an entry."""
    return b"".join((MAGIC, bytes.fromhex(name), hashlib.sha256(payload).digest(), payload))


def unpack(name: str, entry: bytes) -> bytes:
    """Return the payload of an entry.

    Raises
    ------
    CacheError
        If it is not the entry of this name, whole and undamaged.
    """
    head, payload = entry[:_HEAD], entry[_HEAD:]
    expected = MAGIC + bytes.fromhex(name)
    if head[:-_DIGEST] != expected or head[-_DIGEST:] != hashlib.sha256(payload).digest():
        raise CacheError(f"cache entry {name[:12]}... is damaged or another format's")
    return payload


def load(name: str) -> bytes | None:
    """Return the payload kept under `name`, or None."""
    path = directory()
    if path is None or not _usable(path):
        return None
    file = path / name
    try:
        handle = os.open(file, _READING)
    except OSError:
        return None
    try:
        with os.fdopen(handle, "rb") as stream:
            status = os.fstat(stream.fileno())
            if not stat.S_ISREG(status.st_mode) or not _private(status):
                return None
            payload = unpack(name, stream.read())
        with contextlib.suppress(OSError):
            os.utime(file)  # it was used: the least recently used goes first
        return payload
    except (OSError, CacheError):
        return None


def save(name: str, payload: bytes) -> bool:
    """Keep `payload` under `name`; return whether it was kept (a full disk is no error)."""
    path = directory()
    entry = pack(name, payload)
    if path is None or len(entry) > setting("cache_size") << 20 or not _usable(path):
        return False
    temporary = path / f".{name[:16]}-{os.getpid()}-{os.urandom(4).hex()}"
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, 0o600)
        with os.fdopen(handle, "wb") as stream:
            stream.write(entry)
        os.replace(temporary, path / name)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        return False
    _trim_at_times(path, len(entry))
    return True


_written: dict[Path, int] = {}
"""Bytes that this process has written to a directory since it looked how full it is."""


def _trim_at_times(path: Path, written: int) -> None:
    limit = setting("cache_size") << 20
    since = _written.get(path, limit) + written  # the first time it always looks
    if since > _LOOK * limit:
        _trim(path)
        since = 0
    _written[path] = since


def _files(path: Path) -> Iterator[tuple[os.DirEntry[str], os.stat_result]]:
    with contextlib.suppress(OSError, ValueError), os.scandir(path) as found:
        for entry in found:
            with contextlib.suppress(OSError):
                yield entry, entry.stat(follow_symlinks=False)


def _is_entry(entry: os.DirEntry[str], status: os.stat_result) -> bool:
    """Whether this is an entry of a cache, in a directory that may hold other files as well."""
    if not _ENTRY.fullmatch(entry.name) or not stat.S_ISREG(status.st_mode):
        return False
    with contextlib.suppress(OSError), open(entry.path, "rb", opener=_opened) as file:
        return file.read(len(_BEGIN)) == _BEGIN
    return False


def _opened(path: str, _: int) -> int:
    return os.open(path, _READING)


def _is_temporary(entry: os.DirEntry[str], status: os.stat_result) -> bool:
    return bool(_TEMPORARY.fullmatch(entry.name)) and stat.S_ISREG(status.st_mode)


def _trim(path: Path) -> None:
    """Remove litter, and the least recently used entries beyond the size cap."""
    limit = setting("cache_size") << 20
    entries, total = [], 0
    for entry, status in _files(path):
        if _is_entry(entry, status):
            entries.append((status.st_mtime, status.st_size, entry.path))
            total += status.st_size
        elif _is_temporary(entry, status) and time.time() - status.st_mtime > _STALE:
            with contextlib.suppress(OSError):
                os.unlink(entry.path)
    if total <= limit:
        return
    for _, size, file in sorted(entries):
        with contextlib.suppress(OSError):
            os.unlink(file)
        total -= size
        if total <= _KEEP * limit:
            return


def clear() -> int:
    """Remove every entry; return how many there were. Other files are left alone."""
    path = directory()
    count = 0
    for entry, status in _files(path) if path is not None else ():
        kept = _is_entry(entry, status)
        if kept or _is_temporary(entry, status):
            with contextlib.suppress(OSError):
                os.unlink(entry.path)
                count += kept
    return count


def info() -> Info:
    """Return where the cache is, whether it is usable, and what it holds."""
    path, limit = directory(), setting("cache_size") << 20
    if path is None:
        return Info(f"none: {absent()}", False, 0, 0, limit)
    sizes = [status.st_size for entry, status in _files(path) if _is_entry(entry, status)]
    usable = _usable(path) and os.access(path, os.W_OK)
    return Info(str(path), usable, len(sizes), sum(sizes), limit)


def absent() -> str:
    """Return why there is no directory."""
    wished = setting("cache_dir")
    if wished == "off":
        return "turned off (cache_dir=off)"
    return f"no home directory for {wished}" if wished else "no home directory"


_recording: ContextVar[dict[str, bytes] | None] = ContextVar("itfuse_recording", default=None)


@contextlib.contextmanager
def recording() -> Iterator[dict[str, bytes]]:
    """Collect the code that is asked for inside the `with` block, by name."""
    found: dict[str, bytes] = {}
    token = _recording.set(found)
    try:
        yield found
    finally:
        _recording.reset(token)


_attached: dict[str, bytes] = {}


def attach(entries: dict[str, bytes]) -> None:
    """Add payloads that are looked up before the disk: what `itfuse.load` found in a file."""
    _attached.update(entries)


Key = tuple[object, ...]


def compiled(
    key: Key,
    versions: Callable[[], tuple[str, ...]],
    build: Callable[[], bytes],
    final: bool = True,
    instead: Iterable[Key] = (),
) -> bytes:
    """Return the code that `key` decides: attached, kept on disk, or built now and kept.

    Parameters
    ----------
    key : tuple
        What the code is made of and for.
    versions : callable
        Returns the compiler's: code on disk is another compiler's after an update, code that was
        attached is used whatever compiler is here, and none need be.
    build : callable
        Compiles it.
    final : bool
        Whether it is what runs, which `recording` collects, or only goes into that.
    instead : iterable of tuple
        Keys of code that would do as well, if it is attached.
    """
    recorder = _recording.get()
    found = None
    if _attached and recorder is None:
        names = (name_of(*one) for one in (key, *instead))
        found = next((_attached[name] for name in names if name in _attached), None)
    if found is None:
        name = name_of(*key, *versions())
        found = load(name)
        if found is None:
            found = build()
            save(name, found)
    if recorder is not None and final:
        recorder[name_of(*key)] = found
    return found
