"""numexpr: strings compiled to blocked loops on the CPU, on all cores."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from itfuse.bench.case import Case
from itfuse.bench.peers.base import NotForThis, Peer


def in_dtype(text: str, dtype: Any) -> tuple[str, dict[str, Any]]:
    """Return the string with names for its numbers, and those numbers in `dtype`.

    numexpr takes 0.4 as a double, and computes `0.4 * x` of float32 in float64.

    Examples
    --------
    >>> in_dtype("x + 0.4 * y", "float32")
    ('x + c0 * y', {'c0': np.float32(0.4)})
    """
    # Each number once: numexpr takes some thirty inputs.
    found = list(dict.fromkeys(re.findall(r"\d+\.\d+", text)))
    names = {number: f"c{at}" for at, number in enumerate(found)}
    text = re.sub(r"\d+\.\d+", lambda match: names[match[0]], text)
    return text, {name: np.dtype(dtype).type(number) for number, name in names.items()}


class NumExpr(Peer):
    """The case as a numexpr string."""

    name = "numexpr"
    title = "numexpr"
    library = "numexpr"
    engines = ("cpu",)

    def bind(self, case: Case, inputs: tuple[Any, ...], out: Any, device: Any) -> Callable[[], Any]:
        """Return an evaluation of the string."""
        import numexpr

        if not case.numexpr:
            what = (
                "numexpr has no erf" if "erf(" in case.meaning else "no numexpr form of this case"
            )
            raise NotForThis(what)
        text, numbers = in_dtype(case.numexpr, inputs[0].dtype)
        names = {**dict(zip("xyzw", inputs, strict=False)), **numbers}
        target = None if out is None or out.ndim == 0 else out
        return lambda: numexpr.evaluate(text, names, out=target, casting="same_kind")

    def may_have(self, case: Case) -> bool:
        """Return whether a string has been written."""
        return bool(case.numexpr)

    def moves(self, case: Case, inputs: tuple[Any, ...], least: int) -> int | None:
        """Return every input and result once: what lies between stays in the caches."""
        return least


PEERS = (NumExpr(),)
