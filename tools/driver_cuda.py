"""Print the major version of the CUDA that the NVIDIA driver supports, 0 without a driver.

The Makefile chooses the CUDA extra by it. It asks libcuda, then nvidia-smi, and needs no package.
"""

from __future__ import annotations

import ctypes
import re
import subprocess


def from_libcuda() -> int:
    """Return what libcuda answers; 0 if there is none."""
    version = ctypes.c_int(0)
    try:
        failed = ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
    except (OSError, AttributeError):
        return 0
    return 0 if failed else version.value // 1000


def from_nvidia_smi() -> int:
    """Return what nvidia-smi prints; 0 if there is none."""
    try:
        run = subprocess.run(["nvidia-smi"], capture_output=True, text=True, check=False)
    except OSError:
        return 0
    found = re.search(r"CUDA[^|:]*Version:\s*(\d+)", run.stdout)
    return int(found[1]) if found and run.returncode == 0 else 0


if __name__ == "__main__":
    print(from_libcuda() or from_nvidia_smi())
