"""Texts of options to values."""

from __future__ import annotations

import re

from itfuse.errors import ConfigError

_SUFFIXES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}
_LARGEST = 1 << 40
_EXAMPLES = "such as 2**26, 1e6, 64Mi or 1000"


def parse_size(text: str) -> int:
    """Return the number of elements that `text` means.

    Parameters
    ----------
    text : str
        `2**26` or `2^26`, `1e6`, `64Mi` (Ki, Mi, Gi are powers of 1024; k, M, G of 1000), `1000`.

    Raises
    ------
    ConfigError
        If it is no whole number from 1 to 2**40.

    Examples
    --------
    >>> parse_size("2**20") == parse_size("1Mi") == parse_size("1_048_576")
    True
    >>> parse_size("1.5k")
    1500
    """
    plain = text.strip().replace("_", "").replace(",", "")
    power = re.fullmatch(r"(\d{1,9})(?:\*\*|\^)(\d{1,2})", plain)
    number = re.fullmatch(r"(\d{1,20}(?:\.\d{1,20})?)(e\+?\d{1,2})?([kmg]i?)?", plain.lower())
    if power:
        value = float(power[1]) ** int(power[2])
    elif number:
        value = float(number[1] + (number[2] or "")) * _SUFFIXES[number[3] or ""]
    else:
        raise ConfigError(f"{text!r} is no size; give a number of elements {_EXAMPLES}")
    if not 1 <= value <= _LARGEST or value != int(value):
        raise ConfigError(
            f"{text!r} is no size; give a whole number of elements from 1 to 2**40, {_EXAMPLES}"
        )
    return int(value)
