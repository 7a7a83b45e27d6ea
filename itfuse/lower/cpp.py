"""Stage -> C++ element functions: pure text, no compiler, no device.

For every stage the same functions are written; a strategy takes the ones that it calls:

`<name>_element(state, index, result)`
    The fused map at an index: an iterator's dereference.
`<name>_map([state,] x0, [x1,] result)`
    The fused map of loaded elements, for plain pointers; without `state` where nothing is in it.
`<name>_copy(value, result)`
    The identity on the map's results.
`<name>_combine(a, b, result)`, `<name>_finish(state, accumulator, result)`
    The operator and the epilogue of a reduction.

All take untyped pointers, as cuda.compute's RawOp asks. Results are structs with one member for
each value, in order, so a single value is just itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from itfuse.dtypes import DTYPES
from itfuse.expr import template_of
from itfuse.lower.layout import StateLayout, state_layout
from itfuse.ops import OPS
from itfuse.plan.stages import Instr, Program, Stage


@dataclass(frozen=True)
class Function:
    """One device function: its symbol and a complete translation unit that defines it."""

    symbol: str
    source: str


@dataclass(frozen=True)
class Lowered:
    """The C++ of a stage.

    Attributes
    ----------
    name : str
        Prefix of all symbols.
    functions : dict of str to Function
        By role: `element`, `map` (where plain pointers are possible), `copy` of a transform,
        `combine` and `finish` of a reduction.
    state, map_state, finish_state : StateLayout
        The blocks of `element`, `map` and `finish`.
    pointers : tuple of int
        The stage inputs that `map` takes as elements.
    """

    name: str
    functions: dict[str, Function]
    state: StateLayout
    map_state: StateLayout
    finish_state: StateLayout
    pointers: tuple[int, ...]

    @property
    def source(self) -> str:
        """Everything as one translation unit, for people, tests and the null engine."""
        units = [function.source for function in self.functions.values()]
        prelude, _, _ = units[0].partition(_MARK)
        return prelude + "".join(unit.partition(_MARK)[2] for unit in units)


_MARK = "// ---- functions ----\n"


def lower(stage: Stage, name: str) -> Lowered:
    """Write the C++ of `stage`, with symbols that start with `name`."""
    element_slots = stage.element.slots
    # `map` can take linear inputs as elements; the rest (one element, scalars) stays state.
    pointers = tuple(s for s in element_slots if stage.inputs[s].layout == "linear")
    rest = tuple(s for s in element_slots if s not in pointers)
    on_pointers = all(stage.inputs[s].layout in ("linear", "fixed") for s in element_slots)
    finish_slots = stage.finish.slots if stage.finish else ()
    state = state_layout(stage, element_slots)
    map_state = state_layout(stage, rest, filler=False)
    finish_state = state_layout(stage, finish_slots)

    head = prelude(stage) + struct_text("Item", _members(stage.element.result_dtypes))
    if stage.finish:
        head += struct_text("Out", _members(stage.finish.result_dtypes))
    functions: dict[str, Function] = {}

    def add(role: str, text: str) -> None:
        symbol = f"{name}_{role}"
        unit = head + _MARK + text.replace("SYMBOL", symbol)
        functions[role] = Function(symbol, unit)

    add("element", _element(stage, state))
    if on_pointers and pointers:
        add("map", _map(stage, map_state, pointers))
    if stage.finish is None:
        add("copy", _COPY)
    else:
        add("combine", _combine(stage))
        add("finish", _finish(stage, finish_state))
    return Lowered(name, functions, state, map_state, finish_state, pointers)


def prelude(stage: Stage) -> str:
    """Write the helpers of the ops that the stage uses, each once."""
    used = [i.op for p in (stage.element, stage.finish) if p for i in p.instrs if i.op in OPS]
    used += [c.op for c in stage.combine]
    helpers = dict.fromkeys(OPS[op].helper for op in used if OPS[op].helper)
    return "".join(text.lstrip("\n") for text in helpers)


def struct_text(name: str, members: Sequence[str]) -> str:
    """Write a struct of these members."""
    return f"struct {name} {{\n" + "".join(f"  {member}\n" for member in members) + "};\n"


def _members(names: Sequence[str]) -> list[str]:
    return [f"{DTYPES[name].cpp} r{at};" for at, name in enumerate(names)]


def expression(op: str, operands: Sequence[str], dtypes: Sequence[str], result: str) -> str:
    """Fill the C++ template of a row: `operands` are C++ expressions without side effects."""
    template = template_of(OPS[op], dtypes, result)
    last = DTYPES[dtypes[-1]]
    # The first integer operand decides in which width arithmetic and shifts happen.
    first = DTYPES[dtypes[0]]
    single = "float32" in (result, last.name)
    return template.format(
        *operands,
        T=DTYPES[result].cpp,
        A=last.cpp,
        W=first.wide or last.wide,
        bits=first.bits,
        s="f" if single else "",
        p="f" if single else "d",
    )


def statements(program: Program, values: dict[int, str]) -> list[str]:
    """One statement a node; `values` gives the C++ of loads, scalars and combined values."""
    lines: list[str] = []
    written: list[str] = []
    for at, instr in enumerate(program.instrs):
        if instr.op in ("load", "scalar", "combined"):
            values.setdefault(at, _source(instr))
            written.append(values[at])
            continue
        if instr.op == "gather":
            cpp = DTYPES[instr.dtype].cpp
            place = address(cpp, f"s.x{instr.slot}", values[instr.args[0]])
            lines.append(f"  const {cpp} v{at} = {place};\n")
            values[at] = f"v{at}"
            continue
        operands = [values[arg] for arg in instr.args]
        dtypes = [program.instrs[arg].dtype for arg in instr.args]
        code = expression(instr.op, operands, dtypes, instr.dtype)
        note = f"{instr.op}({', '.join(operands)})"
        lines.append(f"  const {DTYPES[instr.dtype].cpp} v{at} = {code};  // {note}\n")
        values[at] = f"v{at}"
    return lines


def _source(instr: Instr) -> str:
    return {"load": f"x{instr.slot}", "scalar": f"s.k{instr.slot}"}.get(
        instr.op, f"a.r{instr.slot}"
    )


def _body(program: Program, result: str) -> str:
    values: dict[int, str] = {}
    lines = statements(program, values)
    for at, value in enumerate(program.results):
        lines.append(f"  result->r{at} = {values[value]};\n")
    return "".join(lines)


def _state_struct(layout: StateLayout, name: str) -> str:
    return struct_text(name, [declaration for declaration, _ in layout.fields])


def _state(name: str) -> str:
    return f"  const {name}& s = *static_cast<const {name}*>(state);\n"


def _element(stage: Stage, layout: StateLayout) -> str:
    lines = [_state_struct(layout, "ElementState")]
    lines.append('extern "C" __device__ void SYMBOL(void* state, void* index, void* out) {\n')
    lines.append(_state("ElementState"))
    lines.append("  const long long i = *static_cast<const long long*>(index);\n")
    lines.append("  Item* const result = static_cast<Item*>(out);\n")
    if layout.rank:
        lines.append(index_text(layout.rank, narrow=layout.narrow))
    for slot in layout.slots:
        lines.append(load_text(stage, slot, layout.rank))
    lines.append(_body(stage.element, "result"))
    lines.append("}\n")
    return "".join(lines)


def index_text(rank: int, index: str = "i", narrow: bool = False, const: str = "const ") -> str:
    """Decode the flat index into one index an axis, the last axis fastest.

    `narrow`: in 32 bits, by the stage's `dividers` instead of divisions.
    """
    if not narrow:
        lines = [f"  long long rest = {index};\n"]
        for axis in range(rank - 1, 0, -1):
            lines.append(f"  {const}long long i{axis} = rest % s.size[{axis}];\n")
            lines.append(f"  rest /= s.size[{axis}];\n")
        lines.append(f"  {const}long long i0 = rest;\n")
        return "".join(lines)
    lines = [f"  unsigned rest = (unsigned)({index});\n"]
    for axis in range(rank - 1, 0, -1):
        product = f"((unsigned long long)rest * s.divider[{axis}])"
        lines.append(f"  const unsigned q{axis} = (unsigned)({product} >> 32) >> "
                     f"s.divider[{rank + axis}];\n")  # fmt: skip
        lines.append(f"  {const}int i{axis} = (int)(rest - q{axis} * (unsigned)s.size[{axis}]);\n")
        lines.append(f"  rest = q{axis};\n")
    lines.append(f"  {const}int i0 = (int)rest;\n")
    return "".join(lines)


def load_text(stage: Stage, slot: int, rank: int) -> str:
    """Load input `slot` at the index; a scalar is in the state, a gather is the program's."""
    source = stage.inputs[slot]
    if source.kind == "scalar" or source.layout == "gathered":
        return ""
    cpp = DTYPES[source.dtype].cpp
    place = {"linear": f"s.x{slot}[i]", "fixed": f"*s.x{slot}"}.get(source.layout)
    if place is None:
        offset = " + ".join(f"i{axis} * s.step{slot}[{axis}]" for axis in range(rank))
        place = address(cpp, f"s.x{slot}", offset)
        if source.layout == "index":
            place = f"s.x{slot} + {offset}"
    return f"  const {cpp} x{slot} = {place};\n"


def address(cpp: str, base: str, offset: str) -> str:
    """Write the element that lies `offset` bytes behind a pointer."""
    return f"*reinterpret_cast<const {cpp}*>(reinterpret_cast<const char*>({base}) + ({offset}))"


def _map(stage: Stage, layout: StateLayout, pointers: tuple[int, ...]) -> str:
    lines = []
    state = ""
    if layout.fields:
        lines.append(_state_struct(layout, "MapState"))
        state = "void* state, "
    arguments = ", ".join(f"void* e{slot}" for slot in pointers)
    lines.append(f'extern "C" __device__ void SYMBOL({state}{arguments}, void* out) {{\n')
    if state:
        lines.append(_state("MapState"))
    lines.append("  Item* const result = static_cast<Item*>(out);\n")
    for slot in pointers:
        cpp = DTYPES[stage.inputs[slot].dtype].cpp
        lines.append(f"  const {cpp} x{slot} = *static_cast<const {cpp}*>(e{slot});\n")
    for slot in layout.slots:
        lines.append(load_text(stage, slot, 0))
    lines.append(_body(stage.element, "result"))
    lines.append("}\n")
    return "".join(lines)


_COPY = """extern "C" __device__ void SYMBOL(void* value, void* out) {
  *static_cast<Item*>(out) = *static_cast<const Item*>(value);
}
"""


def _combine(stage: Stage) -> str:
    lines = [
        'extern "C" __device__ void SYMBOL(void* x, void* y, void* out) {\n',
        "  const Item a = *static_cast<const Item*>(x);\n",
        "  const Item b = *static_cast<const Item*>(y);\n",
        "  Item* const result = static_cast<Item*>(out);\n",
    ]
    for at, one in enumerate(stage.combine):
        code = expression(one.op, [f"a.r{at}", f"b.r{at}"], [one.dtype] * 2, one.dtype)
        lines.append(f"  result->r{at} = {code};  // {one.op}\n")
    lines.append("}\n")
    return "".join(lines)


def _finish(stage: Stage, layout: StateLayout) -> str:
    assert stage.finish is not None
    lines = [
        _state_struct(layout, "FinishState"),
        'extern "C" __device__ void SYMBOL(void* state, void* accumulator, void* out) {\n',
        _state("FinishState"),
        "  const Item a = *static_cast<const Item*>(accumulator);\n",
        "  Out* const result = static_cast<Out*>(out);\n",
    ]
    for slot in layout.slots:
        lines.append(load_text(stage, slot, 0))
    lines.append(_body(stage.finish, "result"))
    lines.append("}\n")
    return "".join(lines)
