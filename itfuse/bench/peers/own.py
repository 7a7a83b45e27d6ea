"""itfuse itself: expressions built at each call, and `itf.fuse`, traced once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import itfuse as itf
from itfuse.bench.case import LATENCY, Case
from itfuse.bench.peers.base import NotForThis, Peer
from itfuse.bench.spaces import LAZY
from itfuse.errors import DTypeError, NeedsBuffer, Unsupported


def expressions(case: Case, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the lazy results of a case.

    Raises
    ------
    NotForThis
        If itfuse does not have what the case needs, saying what.
    """
    try:
        lazy = tuple(itf.asarray(x) for x in inputs)
        made = case.fused(*lazy) if case.fused else case.form(LAZY, *lazy)
    except (Unsupported, NeedsBuffer, DTypeError) as why:
        raise NotForThis(str(why).splitlines()[0]) from None
    except AttributeError as why:
        raise NotForThis(f"itfuse has no {why.name or why}") from None
    except TypeError as why:
        if "not subscriptable" not in str(why):
            raise
        raise NotForThis("itfuse has no indexing") from None
    return tuple(itf.asarray(one) for one in (made if isinstance(made, tuple) else (made,)))


class Own(Peer):
    """Expressions built, planned (from the cache) and queued at each call."""

    name = "itfuse"
    title = "itfuse: the expression, built and computed at each call"
    engines = ("cuda", "cpu")

    def bind(self, case: Case, inputs: tuple[Any, ...], out: Any, device: Any) -> Callable[[], Any]:
        """Return a call that builds and computes the expression of lazy inputs."""
        plan(case, inputs)
        form, lazy = own_form(case), tuple(itf.asarray(x) for x in inputs)
        if case.results > 1:
            return lambda: itf.compute(*form(*lazy))
        if out is None:
            return lambda: form(*lazy).compute()
        return lambda: form(*lazy).compute(out=out)


class Wrapping(Own):
    """The same, with the inputs wrapped at each call as well."""

    name = "itfuse from arrays"
    title = "itfuse: arrays wrapped, the expression built and computed at each call"
    kinds = (LATENCY,)

    def bind(self, case: Case, inputs: tuple[Any, ...], out: Any, device: Any) -> Callable[[], Any]:
        """Return a call that wraps the inputs, and builds and computes the expression."""
        plan(case, inputs)
        form, wrap = own_form(case), itf.asarray
        if out is None:
            return lambda: form(*map(wrap, inputs)).compute()
        return lambda: form(*map(wrap, inputs)).compute(out=out)


def own_form(case: Case) -> Callable[..., Any]:
    """Return the function of lazy inputs that a case is."""
    form = case.form
    return case.fused or (lambda *lazy: form(LAZY, *lazy))


def plan(case: Case, inputs: tuple[Any, ...]) -> Any:
    """Return the plan of a case, or raise `NotForThis`."""
    made = expressions(case, inputs)
    try:
        return itf.plan(*made)
    except (Unsupported, NeedsBuffer) as why:
        raise NotForThis(str(why).splitlines()[0]) from None


class Traced(Peer):
    """A function under `itf.fuse`: what a program that calls it often does."""

    name = "itf.fuse"
    title = "itfuse: the same under @itf.fuse, traced once"
    engines = ("cuda", "cpu")
    kinds = (LATENCY,)

    def bind(self, case: Case, inputs: tuple[Any, ...], out: Any, device: Any) -> Callable[[], Any]:
        """Return a call of the traced function."""
        plan(case, inputs)
        fused = traced(case, len(inputs))
        if out is None:
            return lambda: fused(*inputs)
        return lambda: fused(*inputs, out=out)


class Named(Traced):
    """The same, called with keywords."""

    name = "itf.fuse by keyword"
    title = "itfuse: the function under @itf.fuse, its arguments by name"

    def bind(self, case: Case, inputs: tuple[Any, ...], out: Any, device: Any) -> Callable[[], Any]:
        """Return a call of the traced function."""
        plan(case, inputs)
        fused = traced(case, len(inputs))
        named = dict(zip("xyzw", inputs, strict=False))
        if out is None:
            return lambda: fused(**named)
        return lambda: fused(**named, out=out)


def traced(case: Case, count: int) -> Callable[..., Any]:
    """Return the fused function of a case with `count` inputs."""
    own = own_form(case)
    forms: tuple[Callable[..., Any], ...] = (
        lambda x: own(x),  # noqa: PLW0108 - a signature of its own
        lambda x, y: own(x, y),  # noqa: PLW0108
        lambda x, y, z: own(x, y, z),  # noqa: PLW0108
        lambda x, y, z, w: own(x, y, z, w),  # noqa: PLW0108
    )
    return itf.fuse(forms[count - 1])


PEERS = (Own(), Wrapping(), Traced(), Named())
