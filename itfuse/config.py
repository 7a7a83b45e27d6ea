"""Settings: defaults, then `ITFUSE_<NAME>` in the environment, then `with itf.config(...)`.

A setting is one `Setting` row; nothing else needs to know about it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from itfuse.errors import ConfigError


def _choice(*allowed: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in allowed:
            raise ValueError(f"one of {', '.join(allowed)}")
        return text

    return parse


def _count(least: int) -> Callable[[Any], int]:
    def parse(value: Any) -> int:
        number = int(value) if str(value).strip().lstrip("+-").isdecimal() else least - 1
        if number < least or isinstance(value, bool):
            raise ValueError(f"an integer of at least {least}")
        return number

    return parse


def _flag(value: Any) -> bool:
    words = {"1": True, "true": True, "on": True, "0": False, "false": False, "off": False}
    found = words.get(str(value).lower())
    if found is None:
        raise ValueError("true or false")
    return found


def _optional(parse: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None or value == "" else parse(value)


def _positive(value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = 0.0
    if not 0 < number < float("inf"):
        raise ValueError("a positive number")
    return number


def _directory(value: Any) -> str:
    text = os.fspath(value) if isinstance(value, os.PathLike) else str(value)
    if not isinstance(text, str) or "\0" in text:
        raise ValueError("a path without NUL, or off")
    return text


def _arch(value: Any) -> str:
    text = str(value).removeprefix("sm_").replace(".", "")
    if not text.isdigit() or not 70 <= int(text) <= 999:
        raise ValueError("an architecture such as sm_90 or 9.0")
    return f"sm_{text}"


@dataclass(frozen=True)
class Setting:
    """One setting: its name, default, parser (raises `ValueError` saying what it takes), doc."""

    name: str
    default: Any
    parse: Callable[[Any], Any]
    doc: str


SETTINGS: dict[str, Setting] = {
    row.name: row
    for row in (
        Setting("engine", "auto", _choice("auto", "cuda", "cpu", "null"),
                "which engine runs plans; `auto` follows the arrays"),
        Setting("strategy", "auto", _choice("auto", "cub", "cub.pointers", "cub.iterator", "tile"),
                "device strategy; `auto` follows the rules in plan/primitives.py"),
        Setting("determinism", "guaranteed", _choice("guaranteed", "not_guaranteed"),
                "`not_guaranteed` allows what may give other bits on every run"),
        Setting("max_passes", None, _optional(_count(1)),
                "a plan of more passes is an error"),
        Setting("threads", None, _optional(_count(1)),
                "threads of the CPU engine; all usable cores by default"),
        Setting("arch", "sm_90", _arch,
                "architecture the null engine compiles for"),
        Setting("bandwidth", None, _optional(_positive),
                "memory bandwidth in GB/s for floor times; asked of the engine by default"),
        Setting("bounds_check", False, _flag,
                "check index arrays on a GPU in a pass of their own before they are used, waiting "
                "for it; the CPU engine always checks"),
        Setting("cache_dir", None, _optional(_directory),
                "directory of compiled code; `off` keeps none on disk"),
        Setting("cache_size", 512, _count(0),
                "cap of compiled code on disk, in MiB"),
        Setting("debug", 0, _count(0),
                "1 prints each pass, 2 the plan, 3 the generated source, all to stderr"),
    )
}  # fmt: skip


class _Overrides(dict[str, Any]):
    """The settings changed in a context, and the key of all once it was asked for."""

    __slots__ = ("key",)

    key: int


overrides: ContextVar[_Overrides | None] = ContextVar("itfuse_config", default=None)
_environment: dict[str, Any] = {}


def _parse(name: str, value: Any, origin: str) -> Any:
    row = SETTINGS.get(name)
    if row is None:
        raise ConfigError(f"{origin}: no setting {name!r}; there are {', '.join(SETTINGS)}")
    try:
        return row.parse(value)
    except (ValueError, TypeError) as why:
        raise ConfigError(f"{origin}: {name}={value!r} is not valid; expected {why}") from None


def setting(name: str) -> Any:
    """Return the value of setting `name` in the current context."""
    changed = overrides.get()
    if changed is not None and name in changed:
        return changed[name]
    if name not in _environment:
        variable = f"ITFUSE_{name.upper()}"
        text = os.environ.get(variable)
        default = SETTINGS[name].default
        _environment[name] = default if text is None else _parse(name, text, variable)
    return _environment[name]


def option(name: str, value: Any) -> Any:
    """Return `value`, given to one call for the setting `name`; by default the setting's own."""
    return setting(name) if value is None else _parse(name, value, "this call")


def settings_key() -> int:
    """Return a number for all settings in force: part of the key of what is made under them."""
    global _unchanged_key  # noqa: PLW0603
    changed = overrides.get()
    if changed is None:
        if _unchanged_key < 0:
            _unchanged_key = _number()
        return _unchanged_key
    try:
        return changed.key
    except AttributeError:
        changed.key = _number()
        return changed.key


_numbers: dict[tuple[Any, ...], int] = {}
_next = itertools.count()
_unchanged_key = -1


def _number() -> int:
    values = tuple([setting(name) for name in SETTINGS])
    return _numbers.setdefault(values, next(_next))


def config(**settings: Any) -> contextlib.AbstractContextManager[None]:
    """Change settings inside a `with` block, in this thread or task only.

    Parameters
    ----------
    **settings
        Any of `engine`, `strategy`, `max_passes`, `threads`, `arch`, `bandwidth`,
        `bounds_check`, `cache_dir`, `cache_size`, `debug`.
        Each is also read once from the environment variable `ITFUSE_<NAME>`.

    Raises
    ------
    ConfigError
        If a name is unknown or a value is not valid; nothing is changed then.

    Examples
    --------
    >>> import itfuse as itf, numpy as np
    >>> with itf.config(max_passes=1):
    ...     float((itf.asarray(np.ones(4)) + 1).sum().compute())
    8.0
    """
    parsed = {name: _parse(name, value, "itf.config") for name, value in settings.items()}
    return _changed(parsed)


@contextlib.contextmanager
def _changed(parsed: dict[str, Any]) -> Iterator[None]:
    token = overrides.set(_Overrides({**(overrides.get() or {}), **parsed}))
    try:
        yield
    finally:
        overrides.reset(token)
