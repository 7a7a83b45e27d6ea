"""numexpr: strings compiled to blocked loops on the CPU, on all cores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from itfuse.bench.case import Case
from itfuse.bench.peers.base import NotForThis, Peer


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
            raise NotForThis("no numexpr form of this case has been written")
        names = dict(zip("xyzw", inputs, strict=False))
        text = case.numexpr
        target = None if out is None or out.ndim == 0 else out
        return lambda: numexpr.evaluate(text, names, out=target, casting="same_kind")


PEERS = (NumExpr(),)
