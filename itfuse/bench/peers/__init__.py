"""What itfuse is compared with: one file each, found at run time, none of them needed.

A peer binds a case to arrays and gives back a call. Its answer is checked before it is timed.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterable

from itfuse.bench.cases import nearest
from itfuse.bench.peers.base import NotForThis, Peer

FILES = ("own", "library", "cupy_fuse", "cupy_kernels", "cuda_compute", "cuda_cpp", "torch_peers",
         "jax_jit", "triton_peer", "numexpr_peer")  # fmt: skip
"""Modules of this package. A peer is added by one file and its name here."""


@functools.cache
def registry() -> dict[str, Peer]:
    """Return every peer by name, in the order in which they are shown."""
    found: dict[str, Peer] = {}
    for file in FILES:
        module = importlib.import_module(f"itfuse.bench.peers.{file}")
        found.update((peer.name, peer) for peer in module.PEERS)
    return found


def choose(names: Iterable[str]) -> list[Peer]:
    """Return the peers called `names`, which may be joined by commas; all of them for no names.

    `all` stands for every one.

    Raises
    ------
    ConfigError
        For a name that is no peer's, with the nearest one.

    Examples
    --------
    >>> [peer.name for peer in choose(["Torch"])]
    ['itfuse', 'torch']
    """
    known = registry()
    split = [one.strip() for many in names for one in many.split(",") if one.strip()]
    wanted = {nearest("peer", name, known) for name in split if name.lower() != "all"}
    if any(name.lower() == "all" for name in split):
        return list(known.values())
    return [p for p in known.values() if not wanted or p.name in wanted or p.name == "itfuse"]


__all__ = ["NotForThis", "Peer", "choose", "registry"]
