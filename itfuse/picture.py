"""Pictures of a plan: its passes as boxes, their operations inside. It reads and decides nothing.

Text for Graphviz (`dot`) and SVG are made here, so that both are there without Graphviz. PNG and
PDF are made by Graphviz's program, or without it by matplotlib, which draws the SVG's shapes.
"""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from collections import defaultdict
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from itfuse.errors import ConfigError, Unsupported
from itfuse.explain import bytes_text
from itfuse.expr import Node
from itfuse.ops import INPUT
from itfuse.plan.stages import Phase, Plan, Program, Stage
from itfuse.wording import leaf_names, text, toposort

_MOST = 60
"""Operations of one walk that are drawn one by one; a longer walk is one box."""
_OUTSIDE = -1


@dataclass
class _Graph:
    """Boxes with their pass (`_OUTSIDE` for arrays), a label and a kind; arrows between them."""

    labels: list[str] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    passes: list[int] = field(default_factory=list)
    arrows: list[tuple[int, int]] = field(default_factory=list)

    def add(self, label: str, kind: str, number: int, sources: list[int]) -> int:
        self.labels.append(label)
        self.kinds.append(kind)
        self.passes.append(number)
        at = len(self.labels) - 1
        self.arrows += [(source, at) for source in dict.fromkeys(sources)]
        return at


class Picture:
    """A plan as a picture: `dot` and `svg` are texts, `save` writes a file, notebooks show it.

    Attributes
    ----------
    dot : str
        For Graphviz: a cluster for each pass.
    svg : str
        The same, laid out, for light and dark backgrounds.
    """

    def __init__(self, plan: Plan, path: str | None = None) -> None:
        titles = [_title(number, stage) for number, stage in enumerate(plan.stages)]
        graph = _build(plan)
        self.dot = _dot(graph, titles)
        self.svg = _svg(graph, titles)
        if path is not None:
            self.save(path)

    def __str__(self) -> str:
        return self.dot

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str) -> None:
        """Write the picture; the name says how: `.svg`, `.dot` or `.gv`, `.png`, `.pdf`.

        Parameters
        ----------
        path : str
            Where to.

        Raises
        ------
        ConfigError
            For another kind of file.
        Unsupported
            For PNG and PDF with neither Graphviz's `dot` program nor matplotlib.
        OSError
            If it cannot be written.
        """
        kind = Path(path).suffix.lstrip(".").lower()
        if kind in ("svg", "dot", "gv"):
            Path(path).write_text(self.svg if kind == "svg" else self.dot)
        elif kind in ("png", "pdf"):
            Path(path).write_bytes(self._graphviz(kind))
        else:
            raise ConfigError(f"{path}: a picture is .svg, .dot, .gv, .png or .pdf")

    def _graphviz(self, kind: str) -> bytes:
        program = shutil.which("dot")
        if program is None:
            return _drawn(self.svg, kind)
        command = [program, f"-T{kind}"]
        done = subprocess.run(command, input=self.dot.encode(), capture_output=True, check=False)
        if done.returncode:
            raise Unsupported(f"dot failed: {done.stderr.decode(errors='replace').strip()}")
        return done.stdout


def _title(number: int, stage: Stage) -> str:
    return (
        f"pass {number + 1}: {stage.primitive} over {list(stage.shape)} by "
        f"{stage.strategy or 'no strategy yet'}, reads {bytes_text(stage.bytes_read)}, writes "
        f"{bytes_text(stage.bytes_written)}"
    )


# ---- plan -> graph ----
def _build(plan: Plan) -> _Graph:
    graph = _Graph()
    names = leaf_names(node for node in toposort(plan.asked or plan.roots) if node.op is INPUT)
    leaves: dict[Node, int] = {}
    written: dict[tuple[int, int], int] = {}
    asked = set(plan.results)
    for number, stage in enumerate(plan.stages):
        inputs: list[int] = []
        for one in stage.inputs:
            if isinstance(one.source, tuple):
                inputs.append(written[one.source])
            elif one.kind == "scalar":
                inputs.append(graph.add(_number(one.source.arg.item()), "scalar", number, []))
            else:
                if one.source not in leaves:
                    label = f"{names.get(one.source, 'array')}: {one.dtype}"
                    label += str(list(one.source.shape))
                    leaves[one.source] = graph.add(label, "array", _OUTSIDE, [])
                inputs.append(leaves[one.source])
        for at, place in enumerate(_stage(graph, number, stage, inputs)):
            output = stage.outputs[at]
            kind = "result" if (number, at) in asked else "carried"
            label = f"{text(output.node, names, 40)}: {output.dtype}{list(output.shape)}"
            written[number, at] = graph.add(label, kind, number, [place])
    return graph


def _number(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else repr(value)


def _stage(graph: _Graph, number: int, stage: Stage, inputs: list[int]) -> list[int]:
    """Add a pass; return the box that each of its outputs comes from."""
    row: list[int] = []
    results: list[int] = []
    if stage.how is not None:
        results = _program(
            graph, number, stage.element, {"load": inputs, "scalar": inputs}, _OUTSIDE
        )
        whole = [one for one, i in zip(inputs, stage.inputs, strict=True) if i.layout == "whole"]
        box = graph.add(stage.primitive, "combine", number, [*results, *whole])
        return [box] * len(stage.outputs)
    for phase in stage.phases:
        results, made = _phase(graph, number, phase, inputs, row)
        row += made
    if stage.by_rows:
        count = stage.element_outputs
        elements = results[len(results) - count :] if count else []
        return elements + [row[at] for at in stage.written]
    return row if stage.finish is not None else results


def _phase(
    graph: _Graph, number: int, phase: Phase, inputs: list[int], row: list[int]
) -> tuple[list[int], list[int]]:
    sources = {"load": inputs, "scalar": inputs, "row": row}
    results = _program(graph, number, phase.element, sources, _OUTSIDE)
    combined = _OUTSIDE
    if phase.combine:
        label = "combine " + ", ".join(dict.fromkeys(one.op for one in phase.combine))
        combined = graph.add(label, "combine", number, results)
    if phase.finish is None:
        return results, []
    return results, _program(graph, number, phase.finish, sources, combined)


def _program(
    graph: _Graph, number: int, program: Program, sources: dict[str, list[int]], combined: int
) -> list[int]:
    steps = [i for i in program.instrs if i.op not in (*sources, "combined", "constant")]
    if len(steps) > _MOST:
        used = [sources[i.op][i.slot] for i in program.instrs if i.op in sources]
        used += [combined] if combined != _OUTSIDE else []
        whole = graph.add(f"{len(steps)} operations", "op", number, used)
        return [whole] * len(program.results)
    values: list[int] = []
    for instr in program.instrs:
        if instr.op in sources:
            values.append(sources[instr.op][instr.slot])
        elif instr.op == "combined":
            values.append(combined)
        elif instr.op == "constant":
            values.append(graph.add(str(instr.slot), "scalar", number, []))
        else:
            values.append(graph.add(instr.op, "op", number, [values[a] for a in instr.args]))
    return [values[at] for at in program.results]


# ---- graph -> text ----
_SHAPES = {"array": "cylinder", "scalar": "plaintext", "op": "ellipse", "combine": "hexagon",
           "result": "cylinder", "carried": "note"}  # fmt: skip


def _quoted(label: str) -> str:
    return '"' + label.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _dot(graph: _Graph, titles: list[str]) -> str:
    lines = ["digraph plan {", "  rankdir=TB;", '  node [fontname="sans-serif" fontsize=11];']

    def box(at: int, pad: str) -> str:
        return f"{pad}n{at} [label={_quoted(graph.labels[at])} shape={_SHAPES[graph.kinds[at]]}];"

    members = range(len(graph.labels))
    lines += [box(at, "  ") for at in members if graph.passes[at] == _OUTSIDE]
    for number, title in enumerate(titles):
        lines += [f"  subgraph cluster_{number} {{", f"    label={_quoted(title)};"]
        lines += [box(at, "    ") for at in members if graph.passes[at] == number]
        lines.append("  }")
    lines += [f"  n{a} -> n{b};" for a, b in graph.arrows]
    return "\n".join([*lines, "}", ""])


_ROW, _TALL, _WIDE, _SPACE, _PAD = 54, 26, 7.2, 18, 14

_STYLE = """
.back { fill: none; stroke: #8a93a3; stroke-width: 1.5; }
text { font: 12px system-ui, sans-serif; fill: #1b1d21; } .title { font-weight: 600; }
.box { fill: #eef2f8; stroke: #5b6576; } .combine .box { fill: #fdeccf; stroke: #9a6a00; }
.result .box { fill: #d9f2e3; stroke: #0b6b3a; } .array .box { fill: #dbe8fb; stroke: #1e5fb4; }
.scalar .box { fill: none; stroke: none; } .arrow { fill: none; stroke: #5b6576; }
.head { fill: #5b6576; }
@media (prefers-color-scheme: dark) {
text { fill: #e9ebef; } .box { fill: #262b34; stroke: #a9b0bc; }
.combine .box { fill: #473511; stroke: #e6b84d; } .result .box { fill: #143d28; stroke: #4fd18b; }
.array .box { fill: #182f52; stroke: #7db4ff; } .scalar .box { fill: none; stroke: none; }
.arrow { stroke: #a9b0bc; } .head { fill: #a9b0bc; } }
"""


def _ranks(graph: _Graph, count: int) -> list[int]:
    """Return a rank for each box: below its sources, and a pass below the passes before it."""
    ranks = [0] * len(graph.labels)
    sources: dict[int, list[int]] = defaultdict(list)
    for a, b in graph.arrows:
        sources[b].append(a)
    floor = 1
    for number in range(count):
        members = [at for at, where in enumerate(graph.passes) if where == number]
        for at in members:  # made after their sources
            ranks[at] = max([floor, *(ranks[a] + 1 for a in sources[at])])
        users: dict[int, list[int]] = defaultdict(list)
        for a, b in graph.arrows:
            users[a].append(b)
        for at in members:
            if graph.kinds[at] == "scalar" and users[at]:  # beside its user, not at the top
                ranks[at] = max(floor, min(ranks[b] for b in users[at]) - 1)
        floor = max([floor, *(ranks[at] + 1 for at in members)])
    return ranks


def _places(graph: _Graph, ranks: list[int]) -> tuple[list[float], float]:
    """Return the middle of each box from left to right, and the width of the picture."""
    widths = [max(40.0, _WIDE * len(label) + 16) for label in graph.labels]
    sources: dict[int, list[int]] = defaultdict(list)
    for a, b in graph.arrows:
        sources[b].append(a)
    levels: dict[int, list[int]] = defaultdict(list)
    for at, rank in enumerate(ranks):
        levels[rank].append(at)
    spans = {r: sum(widths[at] + _SPACE for at in level) - _SPACE for r, level in levels.items()}
    total = max(spans.values(), default=0.0)
    middle = [0.0] * len(ranks)
    for rank in sorted(levels):
        level = levels[rank]
        # Under the mean of their sources, as far as they do not overlap.
        level.sort(key=lambda at: _mean([middle[a] for a in sources[at]], total / 2))
        x = (total - spans[rank]) / 2
        for at in level:
            middle[at] = x + widths[at] / 2
            x += widths[at] + _SPACE
    return middle, total


def _mean(values: list[float], default: float) -> float:
    return sum(values) / len(values) if values else default


def _svg(graph: _Graph, titles: list[str]) -> str:
    ranks = _ranks(graph, len(titles))
    middle, width = _places(graph, ranks)
    width = max([width, *(_WIDE * len(title) + 20 for title in titles)])
    shift = (width - max(middle, default=0) - min(middle, default=0)) / 2
    # Each pass begins with a line for its title.
    top = [0.0] * (max(ranks, default=0) + 1)
    y, frames = float(_PAD), []
    rank_pass = {ranks[at]: number for at, number in enumerate(graph.passes) if number >= 0}
    for rank in range(len(top)):
        number = rank_pass.get(rank, _OUTSIDE)
        if number != _OUTSIDE and rank_pass.get(rank - 1) != number:
            frames.append((number, y))
            y += 30
        top[rank] = y
        y += _ROW
        if number != _OUTSIDE and rank_pass.get(rank + 1) != number:
            frames[-1] = (*frames[-1], y - _ROW + _TALL + _PAD)  # type: ignore[assignment]
            y += _PAD
    parts = []
    for number, start, end in frames:  # type: ignore[misc]
        parts.append(
            f'<rect class="back" x="4" y="{start:.0f}" width="{width + 2 * _PAD - 8:.0f}" '
            f'height="{end - start:.0f}" rx="8"/>'
            f'<text class="title" x="{_PAD}" y="{start + 18:.0f}">{escape(titles[number])}</text>'
        )
    spot = [(middle[at] + shift + _PAD, top[ranks[at]]) for at in range(len(ranks))]
    for a, b in graph.arrows:
        (x1, y1), (x2, y2) = spot[a], spot[b]
        y1, half = y1 + _TALL, (y2 - y1 - _TALL) / 2
        if ranks[b] - ranks[a] > 1:  # around what lies between
            side = max(x1, x2) + 30 + 12 * (ranks[b] - ranks[a])
            side = min(side, width + _PAD)
            parts.append(
                f'<path class="arrow" marker-end="url(#head)" d="M{x1:.1f} {y1:.1f} C{side:.1f} '
                f'{y1 + 20:.1f} {side:.1f} {y2 - 40:.1f} {x2 + 6:.1f} {y2 - 2:.1f}"/>'
            )
            continue
        parts.append(
            f'<path class="arrow" marker-end="url(#head)" d="M{x1:.1f} {y1:.1f} C{x1:.1f} '
            f'{y1 + half:.1f} {x2:.1f} {y2 - half:.1f} {x2:.1f} {y2 - 2:.1f}"/>'
        )
    for at, label in enumerate(graph.labels):
        x, level = spot[at]
        wide = max(40.0, _WIDE * len(label) + 16)
        parts.append(
            f'<g class="{graph.kinds[at]}"><rect class="box" x="{x - wide / 2:.1f}" '
            f'y="{level:.1f}" width="{wide:.1f}" height="{_TALL}" rx="6"/><text x="{x:.1f}" '
            f'y="{level + 17:.1f}" text-anchor="middle">{escape(label)}</text></g>'
        )
    head = (
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path class="head" d="M0 0 L8 4 L0 8 z"/></marker></defs>'
    )
    about = "; ".join(titles) or "nothing to run"
    wide, tall = width + 2 * _PAD, y + _PAD
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:.0f} {tall:.0f}" '
        f'width="{wide:.0f}" height="{tall:.0f}" role="img" aria-label="{escape(about, True)}">'
        f"<style>{_STYLE}</style>{head}{''.join(parts)}</svg>"
    )


# ---- SVG -> PNG or PDF ----
_COLOURS = {"combine": ("#fdeccf", "#9a6a00"), "result": ("#d9f2e3", "#0b6b3a"),
            "array": ("#dbe8fb", "#1e5fb4"), "scalar": ("none", "none")}  # fmt: skip
_SVG = "{http://www.w3.org/2000/svg}"
_DPI = 96  # a pixel of the SVG is a pixel of the picture


def _drawn(svg: str, kind: str) -> bytes:
    """Return the picture of an SVG of this module, drawn by matplotlib."""
    try:
        from matplotlib.figure import Figure
        from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
        from matplotlib.path import Path as Line
    except ImportError:
        raise Unsupported(
            f".{kind} needs Graphviz's program `dot` or matplotlib, and neither is installed; save "
            ".svg, which needs nothing, or pip install 'itfuse[plot]'"
        ) from None

    root = ET.fromstring(svg)
    wide, tall = float(root.get("width", 1)), float(root.get("height", 1))
    figure = Figure(figsize=(wide / _DPI, tall / _DPI))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, wide), ylim=(tall, 0))
    axes.axis("off")

    def draw(element: ET.Element, group: str) -> None:
        tag, own = element.tag.removeprefix(_SVG), element.get("class", "")
        if tag == "g":
            group = own
        elif tag == "rect":
            face, edge = _COLOURS.get(group, ("#eef2f8", "#5b6576"))
            if own == "back":
                face, edge = "none", "#8a93a3"
            x, y, width, height = (
                float(element.get(name, 0)) for name in ("x", "y", "width", "height")
            )
            style = f"round,pad=0,rounding_size={element.get('rx', 0)}"
            axes.add_patch(
                FancyBboxPatch((x, y), width, height, style, facecolor=face, edgecolor=edge)
            )
        elif tag == "path" and own == "arrow":
            found = [float(one) for one in re.findall(r"-?[\d.]+", element.get("d", ""))]
            points = list(zip(found[::2], found[1::2], strict=True))
            curve = Line(points, [Line.MOVETO, *[Line.CURVE4] * (len(points) - 1)])
            head = "-|>,head_length=4,head_width=2.5"
            axes.add_patch(
                FancyArrowPatch(path=curve, arrowstyle=head, edgecolor="#5b6576",
                                facecolor="#5b6576", shrinkA=0, shrinkB=0)
            )  # fmt: skip
        elif tag == "text":
            middle = element.get("text-anchor") == "middle"
            axes.text(float(element.get("x", 0)), float(element.get("y", 0)), element.text or "",
                      ha="center" if middle else "left", va="baseline", fontsize=9,
                      color="#1b1d21", weight="bold" if own == "title" else "normal",
                      parse_math=False)  # fmt: skip
        for child in element:
            if tag != "defs":
                draw(child, group)

    draw(root, "")
    out = io.BytesIO()
    figure.savefig(out, format=kind, dpi=_DPI)
    return out.getvalue()
