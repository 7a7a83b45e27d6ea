"""What a result must say of the machine: processor, driver, versions, free memory, caches."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from importlib import metadata
from pathlib import Path

# What decides results or speed, as distributions are called. CUDA 12 wheels carry a suffix.
_PACKAGES = {
    "numpy": ("numpy",),
    "cupy": ("cupy-cuda13x", "cupy-cuda12x", "cupy"),
    "cuda-cccl": ("cuda-cccl",),
    "cuda-core": ("cuda-core",),
    "cuda-bindings": ("cuda-bindings",),
    "nvrtc": ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12"),
    "nvjitlink": ("nvidia-nvjitlink", "nvidia-nvjitlink-cu12"),
}
_PEERS = ("torch", "triton", "jax", "numexpr")


def packages() -> dict[str, str]:
    """Return the version of each package that matters, `""` for one that is not installed."""
    return {name: _version(candidates) for name, candidates in _PACKAGES.items()}


def peer_packages() -> dict[str, str]:
    """Return the versions of the installed libraries that are only compared with."""
    found = {name: _version((name,)) for name in _PEERS}
    return {name: version for name, version in found.items() if version}


def _version(candidates: tuple[str, ...]) -> str:
    for candidate in candidates:
        try:
            return metadata.version(candidate)
        except metadata.PackageNotFoundError:
            continue
    return ""


def _first_match(path: str, pattern: str) -> str:
    try:
        found = re.search(pattern, Path(path).read_text(errors="replace"), re.MULTILINE)
    except OSError:
        return ""
    return found[1].strip() if found else ""


def driver() -> str:
    """Return the version of the NVIDIA kernel driver, `""` where it cannot be read."""
    return _first_match("/proc/driver/nvidia/version", r"^NVRM version:.*?\s(\d+\.[\d.]+)\s")


def gpu_clocks(number: int) -> str:
    """Return what nvidia-smi reads of a GPU's clocks, `""` where it cannot be asked."""
    fields = "clocks.sm,clocks.mem,temperature.gpu,power.draw"
    command = ["nvidia-smi", f"--id={number}", f"--query-gpu={fields}", "--format=csv,noheader"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    parts = [part.strip() for part in found.stdout.strip().split(",")]
    if found.returncode or len(parts) != len(fields.split(",")):
        return ""
    sm, memory, heat, power = parts
    return f"SM {sm}, memory {memory}, {heat} C, {power}"


def clock() -> str:
    """Return the processor's clock now, `""` where it cannot be read."""
    found = _first_match("/proc/cpuinfo", r"^cpu MHz\s*:\s*([\d.]+)$")
    return f"{float(found):,.0f} MHz" if found else ""


def processor() -> str:
    """Return the processor's name."""
    name = _first_match("/proc/cpuinfo", r"^model name\s*:\s*(.+)$")
    return name or platform.processor() or platform.machine()


def cores() -> int:
    """Return the number of processors this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        return os.cpu_count() or 1


def last_level_cache() -> int:
    """Return the bytes of the processor's largest cache; 64 MiB where it cannot be read."""
    sizes = []
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        found = _first_match(str(path), r"^(\d+)K$")
        if found:
            sizes.append(int(found) << 10)
    return max(sizes, default=64 << 20)


def free_memory() -> int:
    """Return the bytes of main memory that can still be had, a container's limit included."""
    kib = _first_match("/proc/meminfo", r"^MemAvailable:\s*(\d+) kB")
    free = int(kib) << 10 if kib else os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    limit = _first_match("/sys/fs/cgroup/memory.max", r"^(\d+)$")
    used = _first_match("/sys/fs/cgroup/memory.current", r"^(\d+)$")
    # The page cache counts as used there and can be given back.
    cached = _first_match("/sys/fs/cgroup/memory.stat", r"^inactive_file (\d+)$")
    if limit and used:
        free = min(free, int(limit) - int(used) + int(cached or 0))
    return max(free, 0)


def host() -> dict[str, str]:
    """Return processor, cores, Python and operating system."""
    return {
        "processor": processor(),
        "cores": str(cores()),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
    }
