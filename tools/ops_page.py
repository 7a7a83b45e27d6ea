"""Write docs/ops.md, the page of every operation, from the op table.

Run `python tools/ops_page.py`; the tests check that the page is current.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np

import itfuse as itf
from itfuse.dtypes import DTYPES, kind
from itfuse.ops import OPS
from itfuse.rows.op import COMPOSITE, ELEMENTWISE, REDUCTION, STATISTIC, Op

PAGE = Path(__file__).parents[1] / "docs" / "ops.md"

HEAD = """\
# Operations

Generated from the op table by `tools/ops_page.py`.

Every operation means what NumPy 2's means; dtypes are promoted by NumPy's rules, Python scalars
being weak. *Takes* names the dtypes that an operand may have without a conversion by you:
`float` is float16, bfloat16, float32 and float64, `complex` complex64 and complex128. Where the
result's kind is another, it follows an arrow.

Of elementwise operations *Error* is the largest distance of any engine's result from the correctly
rounded one, in units in the last place; empty means that the result is exact: the same bits on
every engine. For complex numbers a unit is one of the result's magnitude. Where it says *of
max(|y|, 1)*, the function has zeros, near which only the absolute error is bounded. float16 and
bfloat16 are computed in float32 and rounded once more, as NumPy does, so that there the error is 1
at most. What is written in terms of others has their errors and, where it uses `exp`, `log`, `erf`
and the like, bits of the engine's own. Reductions and statistics combine in a fixed order
(determinism.md): the same bits on every engine, and not the correctly rounded sum.

- The error of a power of complex numbers grows with `|x2 log(x1)|`, and that of `exp2` with `|x|`;
  the bound given is for exponents up to 8.
- `log1p` of complex numbers is more accurate than NumPy's near zero.
- A product of complex numbers rounds each real product and sum. NumPy's own vector code fuses some
  of them, depending on the machine and the memory layout.
- The least or greatest of complex numbers of which several are NaN is one of these.
- The sign of a NaN that was computed is the machine's own.
- The conversion of a float that does not fit an integer is the machine's own, as in NumPy.
- bfloat16 needs the package ml_dtypes.
"""

SECTIONS = (
    (ELEMENTWISE, "Elementwise", "One pass; any number of them fuse."),
    (COMPOSITE, "Composite", "Written in terms of the others, with the errors of these."),
    (STATISTIC, "Statistics and rows", "Written in terms of the others, along any axes; they take "
     "the dtypes that those take."),
    (REDUCTION, "Reductions", "Of all elements, or along axes. float16 and bfloat16 accumulate in "
     "float32; the order is fixed, so that a result has the same bits on every run and engine."),
)  # fmt: skip

KINDS = {"b": "bool", "i": "int", "u": "uint", "f": "float", "c": "complex"}


def takes(op: Op) -> str:
    """Return the kinds of dtypes that a row takes, with what the result is."""
    if op.kind == STATISTIC:
        return ""  # what those take that they are written with
    found: dict[str, set[str]] = {}
    missing: list[str] = []
    for name, row in DTYPES.items():
        shape = (4,)
        operands = [itf.spec(shape, name) for _ in range(op.arity if op.kind != COMPOSITE else 1)]
        if op.name == "where":
            operands[0] = itf.spec(shape, "bool")
        if op.name == "ldexp":
            operands[1] = itf.spec(shape, "int32")
        if op.name in ("divmod", "isclose"):
            operands.append(operands[0])
        result = None
        with contextlib.suppress(itf.DTypeError, itf.Unsupported, TypeError):
            made = operands[0].astype(name) if op.name == "astype" else (
                getattr(itf, op.name)(*operands))  # fmt: skip
            result = made[0].dtype if isinstance(made, tuple) else made.dtype
        if result is None:
            missing.append(name)
        else:
            to = KINDS[kind(np.dtype(result))]
            found.setdefault(KINDS[row.kind], set()).add(to)
    parts = []
    for one, results in found.items():
        lacking = [name for name in missing if KINDS[DTYPES[name].kind] == one]
        text = one + (f" (not {', '.join(lacking)})" if lacking else "")
        other = sorted(results - {one})
        parts.append(text + (f" → {', '.join(other)}" if other else ""))
    return "; ".join(parts)


def error(op: Op) -> str:
    """Return a row's error bounds."""
    if op.kind != ELEMENTWISE:
        return ""
    parts = [f"{op.ulp:g}"] if op.ulp else []
    if op.scale:
        parts = [f"{op.ulp:g} of max(|y|, {op.scale:g})"]
    if op.ulp_c is not None and op.ulp_c != op.ulp:
        parts.append(f"complex {op.ulp_c:g}")
    return "; ".join(parts)


def row(op: Op) -> str:
    """Return a row's line."""
    names = f"`{op.name}`" + "".join(f", `{one}`" for one in op.aliases)
    if op.symbol:
        names += f" (`{op.symbol.replace('|', chr(92) + '|')}`)"
    doc = op.doc.replace("|", "\\|")
    return f"| {names} | {doc} | {takes(op)} | {error(op).replace('|', chr(92) + '|')} |\n"


def page() -> str:
    """Return the page's text."""
    text = HEAD
    for section, title, doc in SECTIONS:
        text += (
            f"\n## {title}\n\n{doc}\n\n| operation | meaning | takes | error |\n|---|---|---|---|\n"
        )
        text += "".join(row(op) for op in OPS.values() if op.kind == section)
    return text


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page())
