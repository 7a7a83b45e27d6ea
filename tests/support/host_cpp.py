"""Run generated CUDA C++ device functions on the host, over NumPy arrays.

The source is compiled by the host's C++ compiler behind `host_shim.h`, together with a driver that
loops over the index. Every run also checks that each function writes all fields of its result and
nothing behind it, and that the state block stays as it was. A pointer in the state is an ordinary
address, so a function that reads outside its arrays is as undefined as in any C++.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import re
import shlex
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from itfuse.lower.row_shapes import MEET

FLAGS = ("-O1", "-std=c++17", "-ffp-contract=off", "-fwrapv", "-fno-fast-math",
         "-fno-strict-aliasing", "-fno-gnu-unique", "-fPIC", "-shared", "-pthread")  # fmt: skip
"""No contraction and no fast math: each operation rounds to its own type, as NumPy's does. Nor
unique symbols: shared memory of two libraries would be one, although their kernels differ."""

LIMIT = 4096
"""Largest result of one call, in bytes."""

_DYNAMIC = re.compile(r"extern __shared__ (.*)\[\];")
"""Shared memory whose size the launch gives; here there is enough for all."""

_SHIM = Path(__file__).with_name("host_shim.h")

_DRIVER = f"""
namespace itf_host {{
typedef void (*Call)(void*, void*, void*);
// Where a function writes: filled before each call, with a guard behind it.
struct Result {{
  alignas(64) unsigned char at[{LIMIT} + 64];
}};
struct Run {{
  Call element, combine, finish;
  void *state, *finish_state;
  long long item, out;  // bytes of an element's (or accumulator's) and of the epilogue's result
  int fill;
  bool overrun;

  void call(Call function, void* a, void* b, Result& result, long long size) {{
    memset(result.at, fill, size + 64);
    function(a, b, result.at);
    for (int k = 0; k < 64; ++k) overrun |= result.at[size + k] != fill;
  }}
  void one(long long i, Result& result) {{ call(element, state, &i, result, item); }}
  // Halves, so that both operands of `combine` are totals of many elements, as on a device.
  void total(long long begin, long long end, Result& result) {{
    if (end - begin == 1) return one(begin, result);
    const long long middle = begin + (end - begin) / 2;
    Result left, right;
    total(begin, middle, left);
    total(middle, end, right);
    call(combine, left.at, right.at, result, item);
  }}
}};
}}  // namespace itf_host

extern "C" int itf_host_transform(itf_host::Run* run, long long n, unsigned char* out) {{
  itf_host::Result result;
  for (long long i = 0; i < n; ++i) {{
    run->one(i, result);
    memcpy(out + i * run->item, result.at, run->item);
  }}
  return run->overrun;
}}

extern "C" int itf_host_reduce(itf_host::Run* run, long long n, const unsigned char* init,
                               unsigned char* out) {{
  itf_host::Result first, total, result;
  memcpy(first.at, init, run->item);
  if (n > 0) {{
    run->total(0, n, total);
    run->call(run->combine, first.at, total.at, result, run->item);
  }} else {{
    result = first;
  }}
  run->call(run->finish, run->finish_state, result.at, total, run->out);
  memcpy(out, total.at, run->out);
  return run->overrun;
}}
"""


class HostError(RuntimeError):
    """A generated function does not compile, is missing, or breaks the ABI."""


class _Run(ctypes.Structure):
    _fields_ = (
        ("element", ctypes.c_void_p),
        ("combine", ctypes.c_void_p),
        ("finish", ctypes.c_void_p),
        ("state", ctypes.c_void_p),
        ("finish_state", ctypes.c_void_p),
        ("item", ctypes.c_longlong),
        ("out", ctypes.c_longlong),
        ("fill", ctypes.c_int),
        ("overrun", ctypes.c_bool),
    )


def why_not() -> str:
    """Return why nothing can be compiled for the host here, or an empty string."""
    program = _compiler()[0]
    return "" if shutil.which(program) else f"{program} is not installed"


class HostLibrary:
    """The device functions of `source`, compiled for the host.

    Parameters
    ----------
    source : str
        One translation unit that defines, for a stage called `name`,
        `extern "C" __device__ void <name>_element(void* state, void* index, void* result)` and for
        a reduction `<name>_combine(void* a, void* b, void* result)` and
        `<name>_finish(void* state, void* accumulator, void* result)`.

    Raises
    ------
    HostError
        If it does not compile: with the source and the compiler's log.
    """

    def __init__(self, source: str) -> None:
        self.source = _DYNAMIC.sub(r"__shared__ \1[1 << 18];", source).replace(MEET, "")
        self.path = _build(self.source)
        self._library = ctypes.CDLL(str(self.path))

    def transform(
        self, name: str, state_bytes: bytes, n: int, result_dtype: npt.DTypeLike
    ) -> npt.NDArray[Any]:
        """Call `<name>_element` for the indices 0 to n - 1.

        Parameters
        ----------
        name : str
            The stage's name.
        state_bytes : bytes
            The packed state block.
        n : int
            Number of elements.
        result_dtype : dtype
            Of one result; a struct has C's alignment, `np.dtype([...], align=True)`.

        Returns
        -------
        ndarray of shape (n,)

        Raises
        ------
        HostError
            If the function is missing or breaks the ABI.
        """
        item = _layout(result_dtype)

        def once(fill: int) -> npt.NDArray[Any]:
            run = self._prepare(fill, item, element=f"{name}_element")
            out = np.zeros(n, item)
            with _State(run, "state", state_bytes):
                overrun = self._library.itf_host_transform(
                    ctypes.byref(run), ctypes.c_longlong(n), ctypes.c_void_p(out.ctypes.data)
                )
            if overrun:
                raise HostError(f"{name}_element writes behind its {item.itemsize}-byte result")
            return out

        return _same_twice(once, f"{name}_element")

    def reduce(  # noqa: PLR0917 - a reduction has these parts
        self,
        name: str,
        state_bytes: bytes,
        n: int,
        acc_dtype: npt.DTypeLike,
        init: Any,
        finish_state: bytes,
        out_dtype: npt.DTypeLike,
    ) -> npt.NDArray[Any]:
        """Reduce the elements 0 to n - 1 with `<name>_combine`, then call `<name>_finish`.

        The order is a binary tree over halves, then `init` on the left.

        Parameters
        ----------
        name, state_bytes, n
            As in `transform`.
        acc_dtype : dtype
            Of an element's result and of the accumulator.
        init : scalar, tuple or ndarray
            First accumulator, of `acc_dtype`; the result of no elements.
        finish_state : bytes
            The packed state block of the epilogue.
        out_dtype : dtype
            Of the epilogue's result.

        Returns
        -------
        ndarray of shape ()

        Raises
        ------
        HostError
            If a function is missing or breaks the ABI.
        """
        item, final = _layout(acc_dtype), _layout(out_dtype)
        first = np.zeros((), item)
        first[()] = init

        def once(fill: int) -> npt.NDArray[Any]:
            symbols = {role: f"{name}_{role}" for role in ("element", "combine", "finish")}
            run = self._prepare(fill, item, final, **symbols)
            out = np.zeros((), final)
            with _State(run, "state", state_bytes), _State(run, "finish_state", finish_state):
                overrun = self._library.itf_host_reduce(
                    ctypes.byref(run),
                    ctypes.c_longlong(n),
                    ctypes.c_void_p(first.ctypes.data),
                    ctypes.c_void_p(out.ctypes.data),
                )
            if overrun:
                raise HostError(f"a function of {name} writes behind its result")
            return out

        return _same_twice(once, name)

    def launch(self, symbol: str, state: bytes, blocks: int, threads: int) -> None:
        """Run a kernel: its blocks one after another, the threads of a block in turns.

        Parameters
        ----------
        symbol : str
            The kernel; the source has `ITF_HOST_LAUNCH(symbol, State)` behind it.
        state : bytes
            Its argument.
        blocks, threads : int
            Blocks of the grid and threads of a block, a multiple of 32.

        Raises
        ------
        HostError
            If threads wait for each other forever, or the state block is written to.
        """
        run = _Run()
        launch = self._library[f"{symbol}_launch"]
        with _State(run, "state", state):
            sizes = ctypes.c_longlong(blocks), ctypes.c_longlong(threads)
            if launch(ctypes.c_void_p(run.state), *sizes):
                raise HostError(f"the threads of {symbol} wait for each other forever")

    def _prepare(
        self, fill: int, item: np.dtype[Any], out: np.dtype[Any] | None = None, **symbols: str
    ) -> _Run:
        run = _Run(item=item.itemsize, out=out.itemsize if out else 0, fill=fill)
        for role, symbol in symbols.items():
            try:
                function = self._library[symbol]
            except AttributeError:
                raise HostError(f"the source does not define {symbol}\n{self.source}") from None
            setattr(run, role, ctypes.cast(function, ctypes.c_void_p).value)
        return run


class _State:
    """A state block for the time of a run; it must come back unchanged."""

    def __init__(self, run: _Run, field: str, state: bytes) -> None:
        self.before = state
        # 16 bytes of slack give the alignment that the device's parameter block has.
        self.room = ctypes.create_string_buffer(len(state) + 16)
        address = ctypes.addressof(self.room)
        self.address = address + -address % 16
        ctypes.memmove(self.address, state, len(state))
        setattr(run, field, self.address)

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        if ctypes.string_at(self.address, len(self.before)) != self.before:
            raise HostError("a function changed its state block, which all threads share")


def _same_twice(once: Any, name: str) -> npt.NDArray[Any]:
    """Run over two different fillings; what depends on the filling was never written."""
    one, two = once(0xA5), once(0x5A)
    for field in one.dtype.names or (None,):
        a, b = (one, two) if field is None else (one[field], two[field])
        if a.tobytes() != b.tobytes():
            where = "its result" if field is None else f"field {field!r} of its result"
            raise HostError(f"{name} does not write all of {where}, or reads it before")
    return np.asarray(one)


def _layout(spec: npt.DTypeLike) -> np.dtype[Any]:
    """Return the dtype, checked to be laid out as the C++ struct is."""
    dtype = np.dtype(spec)
    if dtype.names is not None:
        natural = np.dtype([(name, dtype[name]) for name in dtype.names], align=True)
        if dtype != natural or dtype.itemsize != natural.itemsize:
            raise ValueError(f"{dtype} is not laid out as in C; use np.dtype(..., align=True)")
    if not 0 < dtype.itemsize <= LIMIT:
        raise ValueError(f"a result has 1 to {LIMIT} bytes, not {dtype.itemsize}")
    return dtype


def _compiler() -> list[str]:
    return shlex.split(os.environ.get("CXX", "g++"))


@functools.cache
def _version() -> str:
    done = subprocess.run([*_compiler(), "--version"], capture_output=True, text=True, check=True)
    return done.stdout


@functools.cache
def _directory() -> Path:
    """Return a directory for compiled libraries that only this user can write."""
    path = Path(tempfile.gettempdir(), f"itfuse-host-{os.getuid()}")
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        found = path.lstat()
    except OSError:
        return Path(tempfile.mkdtemp(prefix="itfuse-host-"))
    private = stat.S_ISDIR(found.st_mode) and stat.S_IMODE(found.st_mode) & 0o077 == 0
    if private and found.st_uid == os.getuid():
        return path
    return Path(tempfile.mkdtemp(prefix="itfuse-host-"))


def _build(source: str) -> Path:
    clusters = "#define ITF_HOST_CLUSTERS\n" if "__cluster_dims__" in source else ""
    text = (
        f'{clusters}{_SHIM.read_text()}\n#line 1 "generated"\n{source}\n#line 1 "driver"\n{_DRIVER}'
    )
    key = "\0".join((*_compiler(), _version(), *FLAGS, text))
    library = _directory() / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.so"
    if library.exists():
        return library
    # Compiled aside and moved into place: other processes use the same directory.
    with tempfile.TemporaryDirectory(dir=library.parent) as scratch:
        unit, built = Path(scratch, "unit.cpp"), Path(scratch, "unit.so")
        unit.write_text(text)
        command = [*_compiler(), *FLAGS, "-o", str(built), str(unit)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            numbered = "\n".join(f"{at:4} {line}" for at, line in enumerate(source.split("\n"), 1))
            raise HostError(f"{' '.join(command)}\n{done.stderr}\n{numbered}")
        built.replace(library)
    return library
