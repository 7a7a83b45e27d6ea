"""`itfuse doctor`: what is here, what works, and why the rest does not."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

import itfuse as itf
from itfuse import disk, engines
from itfuse.bench import machine
from itfuse.bench.timing import copy_bandwidth, open_device
from itfuse.config import SETTINGS, setting
from itfuse.errors import ConfigError
from itfuse.explain import bytes_text

_COPIED = {"cuda": 1 << 30, "cpu": 1 << 27}  # bytes, well above the caches
_REPEATS = 9


def doctor(console: Console) -> None:
    """Print device, driver, versions, engines, cache location and copy bandwidth."""
    statuses = engines.available()
    host = machine.host()
    _section(console, f"itfuse {itf.__version__}", {**host, "NVIDIA driver": _driver()})
    _section(console, "packages", {k: v or "not installed" for k, v in machine.packages().items()})
    _section(console, "settings other than the default", _settings())
    _section(
        console,
        "engines",
        {
            status.name: "available" if status.available else f"not available: {status.reason}"
            for status in statuses
        },
    )
    for status in statuses:
        if status.details and status.name == "cuda":
            _section(console, "CUDA libraries", status.details)
    _section(console, "cache of compiled code", _cache())
    _section(
        console,
        "copy bandwidth, bytes read and written",
        {s.name: _copy(s.name) for s in statuses if s.available and s.name in _COPIED},
    )


def _settings() -> dict[str, str]:
    found = {}
    for name, row in SETTINGS.items():
        try:
            value = setting(name)
        except ConfigError as why:
            found[name] = f"not valid: {why}"
            continue
        if value != row.default:
            found[name] = str(value)
    return found or {"none": ""}


def _cache() -> dict[str, str]:
    try:
        return cache_lines()
    except ConfigError as why:
        return {"location": f"not known: {why}"}


def cache_lines() -> dict[str, str]:
    """Return what `itfuse cache info` and the doctor say of the cache."""
    state = disk.info()
    limit = f"of {bytes_text(state.limit)}" if state.limit else "of none: cache_size is 0"
    return {
        "location": state.path,
        "usable": "yes" if state.usable and state.limit else "no: what is compiled is not kept",
        "entries": f"{state.entries:,}, {bytes_text(state.size)} {limit}",
    }


def _driver() -> str:
    return machine.driver() or "none found"


def _copy(engine: str) -> str:
    try:
        device = open_device(engine)
        nbytes = min(_COPIED[engine], device.free_memory() // 4)
        speed = copy_bandwidth(device, nbytes, _REPEATS)
    except Exception as why:  # a doctor reports what fails, whatever it is
        return f"not measured: {type(why).__name__}: {why}"
    return (
        f"{speed / 2**30:,.1f} GiB/s on {device.describe()['name']}, "
        f"{device.copy_name} of {nbytes >> 20} MiB"
    )


def _section(console: Console, title: str, values: dict[str, str]) -> None:
    console.print(title, style="bold")
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column()
    for name, value in values.items():
        table.add_row(f"  {name}", value)
    console.print(table)
