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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from itfuse.dtypes import DTYPES
from itfuse.expr import signature_of, template_of
from itfuse.lower import numbers
from itfuse.lower.layout import StateLayout, state_layout
from itfuse.ops import FOLDS, ROWS
from itfuse.plan.stages import Combine, Instr, Program, Stage
from itfuse.wording import call_of


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
    if stage.primitive == "select" and stage.strategy == "cub.pointers":
        flag = stage.element.results[: stage.flags]  # CUB moves the values itself
        stage = replace(stage, element=replace(stage.element, results=flag))
    element_slots = stage.element.slots
    # `map` can take linear inputs as elements; the rest (one element, scalars) stays state.
    pointers = tuple(s for s in element_slots if stage.inputs[s].layout == "linear")
    rest = tuple(s for s in element_slots if s not in pointers)
    on_pointers = all(stage.inputs[s].layout in ("linear", "fixed") for s in element_slots)
    on_pointers = on_pointers and not places(stage.element)
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
    if stage.how is not None:
        if stage.combine:
            add("combine", _combine(stage))
    elif stage.finish is None:
        add("copy", _COPY)
    else:
        add("combine", _combine(stage))
        add("finish", _finish(stage, finish_state))
    return Lowered(name, functions, state, map_state, finish_state, pointers)


def value_dtypes(stage: Stage) -> tuple[str, ...]:
    """Return the dtypes of all values that the stage's programs and operators handle."""
    names: dict[str, None] = {}
    for phase in stage.phases:
        for program in (phase.element, phase.finish):
            names.update(dict.fromkeys(i.dtype for i in program.instrs) if program else {})
        names.update(dict.fromkeys(name for one in phase.combine for name, _ in one.fields))
    return tuple(names)


def prelude(stage: Stage) -> str:
    """Write what the stage's functions need: number types, and each op's helpers once."""
    helpers: dict[str, None] = {}

    def use(op: str, operands: Sequence[str], result: str) -> None:
        if op in ROWS:
            signature = signature_of(ROWS[op].helper, operands, result)
            texts = ROWS[op].helper[signature] if signature else ()
            helpers.update(dict.fromkeys(texts))

    for phase in stage.phases:
        for program in (phase.element, phase.finish):
            for instr in program.instrs if program else ():
                assert program is not None
                use(instr.op, [program.instrs[at].dtype for at in instr.args], instr.dtype)
        for one in phase.combine:
            if one.op in FOLDS:
                for texts in FOLDS[one.op].helper.values():
                    helpers.update(dict.fromkeys(texts))
            else:
                use(one.op, [one.dtype] * 2, one.dtype)
    types = numbers.definitions(value_dtypes(stage))
    return types + "".join(text.lstrip("\n") for text in helpers)


def struct_text(name: str, members: Sequence[str]) -> str:
    """Write a struct of these members."""
    return f"struct {name} {{\n" + "".join(f"  {member}\n" for member in members) + "};\n"


def _members(names: Sequence[str]) -> list[str]:
    return [f"{DTYPES[name].cpp} r{at};" for at, name in enumerate(names)]


def expression(op: str, operands: Sequence[str], dtypes: Sequence[str], result: str) -> str:
    """Fill the C++ template of a row: `operands` are C++ expressions without side effects."""
    template = template_of(ROWS[op], dtypes, result)
    last, first, to = DTYPES[dtypes[-1]], DTYPES[dtypes[0]], DTYPES[result]
    single = "float" in (to.computes or to.cpp, last.computes or last.cpp)
    operands = [
        f"({DTYPES[dtype].computes}){operand}" if DTYPES[dtype].narrow else operand
        for operand, dtype in zip(operands, dtypes, strict=True)
    ]
    code = template.format(
        *operands,
        T=to.computes or to.cpp,
        A=last.computes or last.cpp,
        # The first integer operand decides in which width arithmetic and shifts happen.
        W=first.wide or last.wide,
        bits=first.bits,
        F=DTYPES[to.part].cpp if to.part else "",
        s="f" if single else "",
        p="f" if single else "d",
    )
    return f"{to.cpp}({code})" if to.narrow else code


def comment(program: Program, target: str) -> str:
    """Say in NumPy's words what the program computes; `target` takes the result's number `at`."""
    said: list[str] = []
    for instr in program.instrs:
        if instr.op in ROWS:
            said.append(call_of(ROWS[instr.op], [said[arg] for arg in instr.args], instr.dtype))
            said[-1] = said[-1] if len(said[-1]) <= _SAID else f"{ROWS[instr.op].shown}(...)"
        elif instr.op == "gather":
            said.append(f"x{instr.slot}[...]")
        else:
            said.append(_source(instr).removeprefix("s."))
    names = [target.format(at=at) for at in range(len(program.results))]
    return "".join(
        f"// {name} = {said[value]}\n" for name, value in zip(names, program.results, strict=True)
    )


_SAID = 80
UNDIVIDED: Mapping[int, int] = MappingProxyType({})
"""No division has a divisor of its own."""


def combine_lines(combine: tuple[Combine, ...], a: str, b: str, to: str) -> list[str]:
    """Write statements that combine members of `a` and `b` into those of `to`, a copy of `a`."""
    lines = []
    at = 0
    for one in combine:
        count = len(one.fields)
        if one.op in FOLDS:
            mine, other = (", ".join(f"{what}r{at + k}" for k in range(count)) for what in (to, b))
            code = FOLDS[one.op].cpp["merge"].format(a=mine, b=other)
            lines.append(f"  {code};  // {one.shown}\n")
        else:
            code = expression(one.op, [f"{a}r{at}", f"{b}r{at}"], [one.dtype] * 2, one.dtype)
            lines.append(f"  {to}r{at} = {code};  // {one.shown}\n")
        at += count
    return lines


def statements(
    program: Program, values: dict[int, str], divided: Mapping[int, int] = UNDIVIDED
) -> list[str]:
    """One statement a node; `values` gives the C++ of loads, scalars and combined values.

    A division in `divided` is by the divisor of this number.
    """
    lines: list[str] = []
    written: list[str] = []
    for at, instr in enumerate(program.instrs):
        if instr.op == "gather":
            cpp = DTYPES[instr.dtype].cpp
            base = f"reinterpret_cast<const char*>(s.x{instr.slot})"
            at_place = f"*reinterpret_cast<const {cpp}*>({base} + {values[instr.args[0]]})"
            lines.append(f"  const {cpp} v{at} = {at_place};\n")
            values[at] = f"v{at}"
            continue
        if instr.op not in ROWS:
            values.setdefault(at, _source(instr))
            written.append(values[at])
            continue
        operands = [values[arg] for arg in instr.args]
        dtypes = [program.instrs[arg].dtype for arg in instr.args]
        code = expression(instr.op, operands, dtypes, instr.dtype)
        if at in divided:
            code = f"divide({operands[0]}, by{divided[at]})"
        note = f"{ROWS[instr.op].shown}({', '.join(operands)})"
        lines.append(f"  const {DTYPES[instr.dtype].cpp} v{at} = {code};  // {note}\n")
        values[at] = f"v{at}"
    return lines


def _source(instr: Instr) -> str:
    return {
        "load": f"x{instr.slot}",
        "scalar": f"s.k{instr.slot}",
        "combined": f"a.r{instr.slot}",
        "row": f"q{instr.slot}",
        "kept": f"c{instr.slot}",
        "constant": f"({DTYPES[instr.dtype].cpp}){instr.slot}",
        "position": "position",
    }[instr.op]


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
    lines = [_state_struct(layout, "ElementState"), comment(stage.element, "r{at}")]
    lines.append('extern "C" __device__ void SYMBOL(void* state, void* index, void* out) {\n')
    lines.append(_state("ElementState"))
    lines.append("  const long long i = *static_cast<const long long*>(index);\n")
    lines.append("  Item* const result = static_cast<Item*>(out);\n")
    if places(stage.element):
        lines.append("  const long long position = i;\n")
    lines.append(index_text(stage, layout.rank))
    for slot in layout.slots:
        lines.append(load_text(stage, slot))
    lines.append(_body(stage.element, "result"))
    lines.append("}\n")
    return "".join(lines)


def places(program: Program) -> bool:
    """Whether a program asks for the place of its element."""
    return any(instr.op == "position" for instr in program.instrs)


def index_type(stage: Stage) -> str:
    """Return the C++ type of an index along an axis."""
    return "long long" if stage.wide else "int"


def index_text(stage: Stage, rank: int, index: str = "i") -> str:
    """Decode the flat index into one index an axis, the last axis fastest; in 32 bits if it can."""
    if not rank:
        return ""
    if stage.wide:
        lines = [f"  long long rest = {index};\n"]
        for axis in range(rank - 1, 0, -1):
            lines.append(f"  long long i{axis} = rest % s.size[{axis}];\n")
            lines.append(f"  rest /= s.size[{axis}];\n")
        return "".join([*lines, "  long long i0 = rest;\n"])
    lines = [f"  unsigned rest = (unsigned)({index});\n"]
    for axis in range(rank - 1, 0, -1):
        # Divided by a multiplication; see `Stage.dividers`.
        product = f"((unsigned long long)rest * s.divider[{axis}])"
        shift = f"s.divider[{rank + axis}]"
        lines.append(f"  const unsigned d{axis} = (unsigned)({product} >> 32) >> {shift};\n")
        lines.append(f"  int i{axis} = (int)(rest - d{axis} * (unsigned)s.size[{axis}]);\n")
        lines.append(f"  rest = d{axis};\n")
    return "".join([*lines, "  int i0 = (int)rest;\n"])


def map_text(stage: Stage, slot: int, index: str = "i") -> str:
    """Write the sum of step * index of an input with an index map."""
    kind = index_type(stage)
    terms = [
        f"(long long){index}{axis} * ({kind})s.step{slot}[{axis}]"
        for axis, moves in enumerate(stage.inputs[slot].moves)
        if moves
    ]
    return " + ".join(terms) or "0"


def place(stage: Stage, slot: int) -> str:
    """Write the address of a strided input's element at the indices."""
    return f"reinterpret_cast<const char*>(s.x{slot}) + ({map_text(stage, slot)})"


def load_text(stage: Stage, slot: int) -> str:
    """Load input `slot` at the index; a scalar is in the state already."""
    source = stage.inputs[slot]
    if source.kind == "scalar" or source.layout == "gathered":  # the latter is the program's
        return ""
    cpp = DTYPES[source.dtype].cpp
    if source.layout == "index":
        return f"  const {cpp} x{slot} = s.x{slot} + {map_text(stage, slot)};\n"
    at = {"linear": f"s.x{slot}[i]", "fixed": f"*s.x{slot}"}.get(source.layout)
    if at is None:
        at = f"*reinterpret_cast<const {cpp}*>({place(stage, slot)})"
    return f"  const {cpp} x{slot} = {at};\n"


def single_index(stage: Stage, slots: Sequence[int]) -> str:
    """Write the index that the epilogue of a whole reduction reads arrays of one element at."""
    linear = any(stage.inputs[slot].layout == "linear" for slot in slots)
    return "  const long long i = 0;\n" if linear else ""


def _map(stage: Stage, layout: StateLayout, pointers: tuple[int, ...]) -> str:
    lines = []
    state = ""
    if layout.fields:
        lines.append(_state_struct(layout, "MapState"))
        state = "void* state, "
    lines.append(comment(stage.element, "r{at}"))
    arguments = ", ".join(f"void* e{slot}" for slot in pointers)
    lines.append(f'extern "C" __device__ void SYMBOL({state}{arguments}, void* out) {{\n')
    if state:
        lines.append(_state("MapState"))
    lines.append("  Item* const result = static_cast<Item*>(out);\n")
    for slot in pointers:
        cpp = DTYPES[stage.inputs[slot].dtype].cpp
        lines.append(f"  const {cpp} x{slot} = *static_cast<const {cpp}*>(e{slot});\n")
    for slot in layout.slots:
        lines.append(load_text(stage, slot))
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
    if any(one.op in FOLDS for one in stage.combine):
        lines.append("  *result = a;\n")
    lines += [*combine_lines(stage.combine, "a.", "b.", "result->"), "}\n"]
    return "".join(lines)


def _finish(stage: Stage, layout: StateLayout) -> str:
    assert stage.finish is not None
    lines = [
        _state_struct(layout, "FinishState"),
        comment(stage.finish, "r{at}"),
        'extern "C" __device__ void SYMBOL(void* state, void* accumulator, void* out) {\n',
        _state("FinishState"),
        "  const Item a = *static_cast<const Item*>(accumulator);\n",
        "  Out* const result = static_cast<Out*>(out);\n",
        single_index(stage, layout.slots),
    ]
    for slot in layout.slots:
        lines.append(load_text(stage, slot))
    lines.append(_body(stage.finish, "result"))
    lines.append("}\n")
    return "".join(lines)
