"""`itf.visualize`: a picture of several expressions that are computed together."""

from __future__ import annotations

from typing import Any

from itfuse.array import plan
from itfuse.picture import Picture


def visualize(*arrays: Any, path: str | None = None, **options: Any) -> Picture:
    """Return a picture of what `compute(*arrays)` would run: passes as boxes, operations inside.

    Parameters
    ----------
    *arrays : Array, or containers of them
        Expressions, as for `compute`.
    path : str, optional
        Also save it there: `.svg`, `.dot`, and with Graphviz's program or matplotlib `.png` and
        `.pdf`.
    **options
        As for `plan`.

    Returns
    -------
    Picture
        Notebooks show it; `dot` and `svg` are texts, `save(path)` writes a file.

    Raises
    ------
    ConfigError, Unsupported, OSError
        If it cannot be saved as `path`.

    Examples
    --------
    >>> import itfuse as itf
    >>> picture = itf.visualize(abs(itf.spec((1024,), "float32")).sum())
    >>> [line.strip() for line in picture.dot.splitlines() if "absolute" in line][0]
    'n1 [label="absolute" shape=ellipse];'
    """
    return Picture(plan(*arrays, **options), path)
