"""The selection kernel where inputs lie in vectors: a block's tile goes through shared memory.

One bulk copy brings a tile. It is read twice from there: for the flags, whose counts the tile
publishes at once, and for the values, which a warp packs over what it has read while others look
back. Little stays in registers, so many blocks of a multiprocessor have a tile on its way.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from itfuse.dtypes import DTYPES
from itfuse.lower.staged import BULK, TILES
from itfuse.lower.tile import Needs, by_layout, element_values, fixed_values, needs_of, program_text
from itfuse.plan.stages import Stage

BLOCK = 256
EACH = 32
"""Elements of a thread: a bit each of a word."""
TILE = BLOCK * EACH
PART = 32 * EACH

HEAD = f"constexpr int BLOCK = {BLOCK};\n{BULK}"


def _linear(stage: Stage) -> list[int]:
    return by_layout(stage, stage.element.slots, "linear")


def _places(stage: Stage) -> dict[int, int | None]:
    """Return for each output of values the input whose place its packed values take, or None."""
    free = _linear(stage)
    places: dict[int, int | None] = {}
    for at, part in enumerate(stage.parts):
        if part < 0:
            continue
        size = np.dtype(stage.outputs[at].dtype).itemsize
        same = (s for s in free if np.dtype(stage.inputs[s].dtype).itemsize == size)
        place = next(same, None)
        places[at] = place
        if place is not None:
            free.remove(place)
    return places


def bytes_of(stage: Stage) -> int:
    """Return the bytes of shared memory for the tiles of a block."""
    own = [at for at, place in _places(stage).items() if place is None]
    dtypes = [stage.inputs[s].dtype for s in _linear(stage)]
    dtypes += [stage.outputs[at].dtype for at in own]
    return sum(np.dtype(dtype).itemsize for dtype in dtypes) * TILE


def fits(stage: Stage, room: int) -> bool:
    """Return whether the inputs are such, and the tiles fit `room` bytes."""
    other = any(by_layout(stage, stage.element.slots, kind) for kind in ("strided", "index"))
    return not other and bool(_linear(stage)) and bytes_of(stage) <= room


def vector(stage: Stage) -> int:
    """Return the elements of a vector: 16 bytes of the widest input."""
    return 16 // max(np.dtype(stage.inputs[slot].dtype).itemsize for slot in _linear(stage))


def shape(stage: Stage) -> tuple[int, int]:
    """Return the elements of a thread, and of one of its vectors."""
    return EACH, vector(stage)


def needs(stage: Stage) -> Needs:
    """Return that every tile of every input starts at a whole piece of a bulk copy."""
    plain = needs_of(stage, stage.element.slots, vector(stage), outputs=False)
    return replace(plain, inputs=tuple((slot, offset, 15) for slot, offset, _ in plain.inputs))


def blocks(stage: Stage) -> int:
    """Return the blocks of a multiprocessor that there is shared memory and registers for."""
    fit = 3 if stage.flags > 1 or vector(stage) > 4 else 5
    return max(1, min(fit, TILES // bytes_of(stage)))


def bring(stage: Stage) -> str:
    """Bring the tile, if it is full; `in_x<slot>` and `packed<at>` are its first elements."""
    lines = ["  __shared__ unsigned long long arrived;\n", "  unsigned char* place = room;\n"]
    copies = ""
    for slot in _linear(stage):
        cpp = DTYPES[stage.inputs[slot].dtype].cpp
        lines += [
            f"  {cpp}* const in_x{slot} = reinterpret_cast<{cpp}*>(place);\n",
            f"  place += TILE * sizeof({cpp});\n",
        ]
        copies += f"    copy_in(in_x{slot}, s.x{slot} + base, TILE * sizeof({cpp}), &arrived);\n"
    for at, place in _places(stage).items():
        cpp = DTYPES[stage.outputs[at].dtype].cpp
        start = "place" if place is None else f"in_x{place}"
        lines.append(f"  {cpp}* const packed{at} = reinterpret_cast<{cpp}*>({start});\n")
        lines += [f"  place += TILE * sizeof({cpp});\n"] if place is None else []
    return "".join([
        *lines,
        "  const bool full = base + TILE <= s.n;\n  stage_begin(&arrived);\n",
        f"  if (full) {{\n{copies}  }}\n  stage_wait(&arrived);\n",
    ])  # fmt: skip


def piece(stage: Stage) -> str:
    """Write how a thread gets the results of its elements of chunk `c`."""
    flags = "".join(f" b[k].r{f} = 0;" for f in range(stage.flags))
    cpp = {slot: DTYPES[stage.inputs[slot].dtype].cpp for slot in _linear(stage)}
    return "".join([
        "  const auto piece = [&](int c, Item (&b)[V]) {\n    if (full) {\n",
        fixed_values(stage, stage.element.slots),
        "      const int at = warp * PART + c * 32 * V + lane * V;\n",
        *(f"      Vec<{name}, V> e{s};\n      load(e{s}, in_x{s} + at, true);\n"
          for s, name in cpp.items()),
        "#pragma unroll\n      for (int k = 0; k < V; ++k) {\n",
        element_values(stage, stage.element.slots),
        program_text(stage.element, "b[k].r{at} = {value};", "        "),
        "      }\n    } else {\n",
        "#pragma unroll\n      for (int k = 0; k < V; ++k) {\n",
        "        const long long i = mine + c * 32 * V + k;\n",
        f"        if (i < s.n) {{ b[k] = one(s, i); }} else {{{flags} }}\n",
        "      }\n    }\n  };\n",
    ])  # fmt: skip
