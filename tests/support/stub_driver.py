"""A `libcuda.so.1` that has no device, so that cuda.compute builds where there is no driver.

cuda.compute's bindings are linked against the driver: without that library they cannot even be
imported, although building for a named architecture calls nothing in it. The stub exports the
functions they ask for; each returns CUDA_ERROR_NO_DEVICE, so a call meant for a GPU fails as it
does on a machine without one.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SONAME = "libcuda.so.1"

_NO_DEVICE = 100


@functools.cache
def why_not() -> str:
    """Return why the stub cannot be built or used here, or an empty string."""
    if _package() is None:
        return "cuda-cccl is not installed"
    for tool in (_compiler()[0], "nm"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed"
    return ""


@functools.cache
def symbols() -> tuple[str, ...]:
    """Return the driver functions that cuda.compute's libraries import, sorted."""
    package = _package()
    if package is None:
        raise RuntimeError("cuda-cccl is not installed")
    # The wheel holds one pair of libraries for each CUDA version; the union serves both.
    libraries = sorted(str(path) for path in package.rglob("*.so*"))
    listing = subprocess.run(
        ["nm", "-D", "--undefined-only", *libraries], capture_output=True, text=True, check=True
    )
    found = sorted(set(re.findall(r"\bU (cu[A-Z]\w*)", listing.stdout)))
    if not found:
        raise RuntimeError(f"no driver functions are imported by {libraries}")
    return tuple(found)


def build(directory: str | os.PathLike[str]) -> Path:
    """Build the stub in `directory`, which is made if missing, and return the library's path."""
    target = Path(directory) / SONAME
    target.parent.mkdir(parents=True, exist_ok=True)
    source = "".join(f"int {name}(void) {{ return {_NO_DEVICE}; }}\n" for name in symbols())
    # Built aside and moved into place: another process may be loading the library.
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        text, library = Path(scratch, "stub.c"), Path(scratch, SONAME)
        text.write_text(source)
        options = ["-shared", "-fPIC", f"-Wl,-soname,{SONAME}", "-o", str(library)]
        subprocess.run([*_compiler(), *options, str(text)], check=True)
        library.replace(target)
    return target


def run_with_stub(
    code: str, directory: str | os.PathLike[str], timeout: float = 300.0
) -> subprocess.CompletedProcess[str]:
    """Run Python code in a process that finds the stub first.

    Parameters
    ----------
    code : str
        A program; it imports what this process can import.
    directory : path
        Holds the stub; it is built there if missing.
    timeout : float
        Seconds until `subprocess.TimeoutExpired`.

    Returns
    -------
    subprocess.CompletedProcess
        With the exit status, and output as text. A failure does not raise.
    """
    directory = Path(directory).resolve()
    if not (directory / SONAME).exists():
        build(directory)
    before = os.environ.get("LD_LIBRARY_PATH")
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": f"{directory}{os.pathsep}{before}" if before else str(directory),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=environment,
        check=False,
    )


def _package() -> Path | None:
    # Only the spec: importing the package is what needs the stub.
    try:
        spec = importlib.util.find_spec("cuda.compute")
    except ImportError:
        return None
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent


def _compiler() -> list[str]:
    return shlex.split(os.environ.get("CC", "gcc"))
