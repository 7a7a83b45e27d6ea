"""An axis that is not there is NumPy's AxisError everywhere, and the message names the call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import itfuse as itf

X = np.arange(12.0).reshape(3, 4)

CALLS: dict[str, Any] = {
    "moveaxis": lambda m, x: m.moveaxis(x, 5, 0),
    "moveaxis to": lambda m, x: m.moveaxis(x, 0, -3),
    "roll": lambda m, x: m.roll(x, 1, 5),
    "flip": lambda m, x: m.flip(x, 2),
    "expand_dims": lambda m, x: m.expand_dims(x, 9),
    "expand_dims -": lambda m, x: m.expand_dims(x, -4),
    "squeeze": lambda m, x: m.squeeze(x, 2),
    "concatenate": lambda m, x: m.concatenate([x, x], 2),
    "stack": lambda m, x: m.stack([x, x], 4),
    "take": lambda m, x: m.take(x, [0], axis=2),
    "repeat": lambda m, x: m.repeat(x, 2, axis=-3),
    "diff": lambda m, x: m.diff(x, axis=2),
    "swapaxes": lambda m, x: m.swapaxes(x, 0, 2),
    "unstack": lambda m, x: m.unstack(x, axis=2),
    "take_along_axis": lambda m, x: m.take_along_axis(x, np.array([[0]]), axis=2),
    "transpose": lambda m, x: m.transpose(x, (0, 2)),
    "diagonal": lambda m, x: m.diagonal(x, 0, 0, 2),
    "sum": lambda m, x: m.sum(x, axis=2),
    "argmax": lambda m, x: m.argmax(x, axis=2),
    "sort": lambda m, x: m.sort(x, axis=2),
    "cumsum": lambda m, x: m.cumsum(x, axis=2),
    "compress": lambda m, x: m.compress([True], x, axis=2),
}


@pytest.mark.parametrize("name", CALLS)
def test_axis_errors_are_numpys(name: str) -> None:
    call = CALLS[name]
    if hasattr(np, name.split(maxsplit=1)[0]):
        with pytest.raises(np.exceptions.AxisError):
            call(np, X)
    with pytest.raises(itf.AxisError) as caught:
        call(itf, itf.asarray(X) + 1)
    assert isinstance(caught.value, (ValueError, IndexError, np.exceptions.AxisError))
    said = str(caught.value)
    shown = {"transpose": "permute_dims", "concatenate": "concat"}.get(
        name, name.split(maxsplit=1)[0]
    )
    assert said.startswith(f"{shown}(") and "a + 1" in said, said


def test_the_number_of_axes_is_that_of_what_has_them() -> None:
    x = itf.asarray(np.ones(3))
    with pytest.raises(itf.AxisError, match=r"expand_dims\(a, 9\): .*9.* the 2 axes of the result"):
        itf.expand_dims(x, 9)
    with pytest.raises(itf.AxisError, match=r"stack\(\[a, a\]\): .*3.* the 2 axes of the result"):
        itf.stack([x, x], 3)
    with pytest.raises(itf.AxisError, match=r"flip\(a, 1\): .*1.* the 1 axes of the expression"):
        itf.flip(x, 1)
    with pytest.raises(TypeError, match=r"flip\(a, 0.5\): axis=0.5 is no integer"):
        itf.flip(x, 0.5)


def test_tile_and_empty_joins() -> None:
    x = itf.asarray(np.ones(3))
    with pytest.raises(itf.ShapeError, match=r"tile\(a, -1\): .*negative"):
        itf.tile(x, -1)
    for call in (itf.stack, itf.concat):
        with pytest.raises(itf.ShapeError, match="at least one array"):
            call([])
    with pytest.raises(itf.ShapeError, match=r"concat\(.*itf\.stack"):
        itf.concat([x.sum(), x.sum()])


def test_more_axes_than_an_array_has_is_an_error_at_once() -> None:
    x = itf.asarray(np.ones((1,) * 60))
    for name, call in (
        ("expand_dims", lambda: itf.expand_dims(x, tuple(range(6)))),
        ("None", lambda: x[(None,) * 6]),
        ("reshape", lambda: x.reshape((1,) * 65)),
        ("zeros|full", lambda: itf.zeros((1,) * 65)),
        ("broadcast_to", lambda: itf.broadcast_to(x, (1,) * 65)),
        ("sliding_window_view", lambda: itf.sliding_window_view(x, (1,) * 60)),
        ("take", lambda: itf.take(x, np.zeros((1,) * 10, int), 0)),
    ):
        with pytest.raises(itf.ShapeError, match=rf"(?s)({name}).* axes, and .* 64 at most"):
            call()
    assert itf.expand_dims(x, (0, 1, 2, 3)).compute().ndim == 64
