"""What a kernel over rows keeps from one walk to the next instead of its inputs.

softmax computes exp(x - max) to add it up, and again to divide it: the second time it is in the
registers that x was in.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from itfuse.plan.stages import Instr, Phase, Program


@dataclass(frozen=True)
class Kept:
    """A value that later phases take from registers.

    Attributes
    ----------
    phase, at : int
        Where it is computed: the phase, and its position in that phase's element program.
    dtype : str
        Its dtype.
    """

    phase: int
    at: int
    dtype: str


def keep(phases: tuple[Phase, ...], held: list[int]) -> tuple[tuple[Phase, ...], tuple[Kept, ...]]:
    """Replace inputs that are held for later phases by values computed from them.

    Parameters
    ----------
    phases : tuple of Phase
        The walks over a row.
    held : list of int
        Slots that are in registers.

    Returns
    -------
    tuple of tuples
        The phases, in which `kept` of slot k is value k, and these values. A value takes the place
        of one input of at least its size, which no later phase loads, so that registers do not
        grow.
    """
    kept: list[Kept] = []
    for p in range(len(phases) - 1):
        for slot in held:
            found = _instead(phases, p, slot)
            if found is None:
                continue
            after, value = found
            phases = phases[: p + 1] + tuple(
                _replaced(one, number, len(kept), value.dtype)
                for one, number in zip(phases[p + 1 :], after, strict=True)
            )
            kept.append(value)
    return phases, tuple(kept)


def _instead(phases: tuple[Phase, ...], p: int, slot: int) -> tuple[list[int | None], Kept] | None:
    """Return where each later phase has a value of phase p in place of all loads of a slot."""
    size = {i.slot: np.dtype(i.dtype).itemsize for i in phases[p].element.instrs if i.op == "load"}
    readers = [slot in phase.element.slots for phase in phases[p + 1 :]]
    if slot not in size or not any(readers):
        return None
    names: dict[tuple[object, ...], int] = {}
    own, *others = (_numbered(phase.element, names) for phase in phases[p:])
    program = phases[p].element
    for at in reversed(range(len(program.instrs))):
        instr = program.instrs[at]
        if not instr.args or instr.op == "gather" or np.dtype(instr.dtype).itemsize > size[slot]:
            continue
        after = [
            found.index(own[at]) if reads and own[at] in found else None
            for found, reads in zip(others, readers, strict=True)
        ]
        if all(
            not reads or (number is not None and not _loads(phase.element, slot, number))
            for phase, number, reads in zip(phases[p + 1 :], after, readers, strict=True)
        ):
            return after, Kept(p, at, instr.dtype)
    return None


def _numbered(program: Program, names: dict[tuple[object, ...], int]) -> list[int]:
    """Return a number for each value of a program: equal ones mean the same value of an element."""
    numbers: list[int] = []
    for instr in program.instrs:
        key = (instr.op, instr.dtype, instr.slot, tuple(numbers[arg] for arg in instr.args))
        numbers.append(names.setdefault(key, len(names)))
    return numbers


def _needed(program: Program, without: int) -> set[int]:
    """Return the values that the results need if the value `without` is given."""
    needed: set[int] = set()
    waiting = list(program.results)
    while waiting:
        at = waiting.pop()
        if at not in needed:
            needed.add(at)
            waiting += () if at == without else program.instrs[at].args
    return needed


def _loads(program: Program, slot: int, without: int) -> bool:
    needed = _needed(program, without)
    return any(program.instrs[at].op == "load" and program.instrs[at].slot == slot for at in needed)


def _replaced(phase: Phase, number: int | None, slot: int, dtype: str) -> Phase:
    """Return a phase whose value `number` is the kept one of this slot."""
    if number is None:
        return phase
    program = phase.element
    needed = sorted(_needed(program, number))
    place = {at: new for new, at in enumerate(needed)}
    instrs = tuple(
        Instr("kept", (), dtype, slot)
        if at == number
        else replace(program.instrs[at], args=tuple(place[a] for a in program.instrs[at].args))
        for at in needed
    )
    results = tuple(place[at] for at in program.results)
    return replace(phase, element=Program(instrs, results))
