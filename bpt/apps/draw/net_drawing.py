"""The picture of a network file: a box for each layer, an arrow for each blob, with its shape. SVG, PNG or PDF."""

from __future__ import annotations

import io
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bpt.apps.draw.drawing_boxes import COLOURS, KINDS, Box, NetDrawing, PhaseDrawing, drawing_of
from bpt.apps.draw.net_layout import LayoutLink
from bpt.apps.draw.net_layout_geometry import Geometry, Point, Rectangle, Style, geometry
from bpt.base.atomic import atomic_file, check_place
from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_spec import Shape
from bpt.nn.net_file import NetFile, read_net_file
from bpt.train.outer.report.style import check_picture, without_glyph_warnings

if TYPE_CHECKING:
    from matplotlib.axes import Axes


FORMATS = (".svg", ".png", ".pdf")
# Lengths and font sizes are in points, 1/72 inch.
DOTS = 200  # dots per inch of a PNG; fewer if the picture is huge
_MOST = 12000  # largest number of dots along a side
_PAGE = 700.0  # longer drawings are folded into columns
_MARGIN = 14.0
_NAME, _DETAIL, _ROW, _LABEL, _TITLE = 7.0, 6.0, 5.6, 5.6, 9.0  # font sizes
_NAME_LINE, _DETAIL_LINE, _ROW_LINE = 9.0, 8.0, 8.6  # heights of lines
_WIDEST = 150.0  # largest width of a box's text
_INK, _GREY, _WIRE = "#222222", "#666666", "#777777"


def check_drawing(path: str) -> None:
    """Raise a UserError if no drawing can be written to ``path``, before the work is done."""
    check_picture(path, FORMATS, f"{path}: drawings are written to files that end in {', '.join(FORMATS)}")
    check_place(path)


@without_glyph_warnings()
def draw(
    drawing: NetDrawing, path: str, title: str = "", note: str = "", direction: str = "TB", columns: int = 0
) -> None:
    """Write the picture of ``drawing``; the suffix of ``path`` chooses the format.

    Args:
        drawing: the boxes and arrows.
        path: the file to write.
        title: a large text above the picture.
        note: a small text below the title.
        direction: the direction of the arrows: ``TB`` downwards, ``BT`` upwards, ``LR`` from left to right.
        columns: the number of columns that a long drawing is folded into; 0: as many as fill a page.

    Raises:
        WriteError: the file could not be written.
    """
    boxes = [*drawing.boxes]
    outputs: list[str] = []
    links: list[LayoutLink] = []
    labels: dict[tuple[int, str], str] = {}
    for arrow in drawing.arrows:
        target = arrow.target
        if target is None:
            target = len(boxes) + len(outputs)
            outputs.append(arrow.label)
        else:
            labels[arrow.source, arrow.blob] = arrow.label
        links.append(LayoutLink(arrow.source, target, arrow.blob))
    across = direction == "LR"
    width = max([_box_width(box) for box in boxes], default=0.0)
    sizes = [(width, _box_height(box)) for box in boxes]
    sizes += [(_width(label, _LABEL) + 8, 11.0) for label in outputs]
    widest = max([_width(label, _LABEL) for label in labels.values()], default=0.0)
    style = Style(widest + 22, widest + 8, 1.9 * _PAGE, 1.5) if across else Style(32.0, 12.0, _PAGE, 1.35)
    found = geometry([size if across else size[::-1] for size in sizes], links, style, columns)
    present = {kind for box in boxes for kind in (box.kind, *(row.kind for row in box.rows))}
    picture = _Picture(found, direction, title, note, sorted(present, key=KINDS.index))
    picture.write(path, boxes, outputs, labels)


class _Picture:
    """A page of the right size, with methods that draw on it."""

    def __init__(self, found: Geometry, direction: str, title: str, note: str, kinds: list[str]) -> None:
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415  an extra, and slow to import
        from matplotlib.figure import Figure  # noqa: PLC0415

        self.found, self.direction = found, direction
        self.size = (found.length, found.width) if direction == "LR" else (found.width, found.length)
        legend = _legend(kinds, max(self.size[0], 150.0))
        head = _TITLE + 14 if title else 0.0
        foot = 13.0 * (legend[-1][2] + 1) + 10 if legend else 0.0
        texts = max(_width(title, _TITLE, True), _width(note, _DETAIL), 150.0)
        page = max(self.size[0], texts) + 2 * _MARGIN, self.size[1] + 2 * _MARGIN + head + foot + (9 if note else 0)
        self.left = (page[0] - self.size[0]) / 2
        self.top = page[1] - _MARGIN - head - (9 if note else 0)
        self.figure = Figure(figsize=(page[0] / 72, page[1] / 72), dpi=min(DOTS, _MOST * 72 / max(page)))
        FigureCanvasAgg(self.figure)
        self.axes: Axes = self.figure.add_axes((0, 0, 1, 1))
        self.axes.set_axis_off()
        self.axes.set_xlim(0, page[0])
        self.axes.set_ylim(0, page[1])
        if title:
            self._text((_MARGIN, page[1] - _MARGIN - 4), title, _TITLE, weight="bold", ha="left")
        if note:
            self._text((_MARGIN, page[1] - _MARGIN - head + 4), note, _DETAIL, color=_GREY, ha="left")
        for kind, x, row in legend:
            at = _MARGIN + x, _MARGIN + foot - 16 - 13 * row
            self._rectangle((at[0], at[1] - 3.5), (9, 7), COLOURS[kind], COLOURS[kind], 1.5)
            self._text((at[0] + 13, at[1]), kind, _DETAIL, ha="left", color=_GREY)

    def write(self, path: str, boxes: list[Box], outputs: list[str], labels: dict[tuple[int, str], str]) -> None:
        for curve in self.found.curves:
            self._curve(curve)
        for head in self.found.heads:
            self._head(head)
        for label in self.found.labels:
            self._label(label.at, labels.get((label.box, label.blob), ""))
        for at, rectangle in enumerate(self.found.rectangles):
            corner, size = self._placed(rectangle)
            if at < len(boxes):
                self._box(corner, size, boxes[at])
            else:
                self._rectangle(corner, size, "white", _GREY, size[1] / 2, linewidth=0.6)
                self._text((corner[0] + size[0] / 2, corner[1] + size[1] / 2), outputs[at - len(boxes)], _LABEL)
        from matplotlib import rc_context  # noqa: PLC0415  see __init__

        content = io.BytesIO()
        kind = Path(path).suffix.lower()[1:]
        dated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}  # a date would make equal drawings differ
        with rc_context({"svg.hashsalt": "bpt"}):
            self.figure.savefig(content, format=kind, metadata=dated.get(kind))
        with atomic_file(path) as file:
            file.write(content.getvalue())

    def _at(self, point: Point) -> Point:
        along, across = point
        if self.direction == "LR":
            return self.left + along, self.top - across
        return self.left + across, self.top - (self.found.length - along if self.direction == "BT" else along)

    def _placed(self, box: Rectangle) -> tuple[Point, Point]:
        """Return the lower left corner of a box, and its width and height."""
        one = self._at((box.along, box.across))
        other = self._at((box.along + box.length, box.across + box.width))
        corner = min(one[0], other[0]), min(one[1], other[1])
        return corner, (abs(one[0] - other[0]), abs(one[1] - other[1]))

    def _curve(self, curve: list[tuple[int, Point]]) -> None:
        from matplotlib.patches import PathPatch  # noqa: PLC0415  see __init__
        from matplotlib.path import Path as Line  # noqa: PLC0415

        codes, points = zip(*curve, strict=True)
        line = Line([self._at(point) for point in points], codes)
        self.axes.add_patch(PathPatch(line, facecolor="none", edgecolor=_WIRE, linewidth=0.8, snap=False))

    def _head(self, at: Point) -> None:
        from matplotlib.patches import Polygon  # noqa: PLC0415  see __init__

        corners = [at, (at[0] - 4.5, at[1] - 2.1), (at[0] - 4.5, at[1] + 2.1)]
        self.axes.add_patch(Polygon([self._at(corner) for corner in corners], facecolor=_WIRE, linewidth=0))

    def _label(self, at: Point, text: str) -> None:
        if not text:
            return
        x, y = self._at(at)
        if self.direction == "LR":
            self._text((x + 4, y + 4), text, _LABEL, ha="left", color=_GREY)
        else:
            y += 8 if self.direction == "BT" else -8
            self._text((x, y), text, _LABEL, color=_GREY, bbox={"facecolor": "white", "linewidth": 0, "pad": 0.8})

    def _box(self, corner: Point, size: Point, box: Box) -> None:
        (x, y), (width, height) = corner, size
        self._rectangle(corner, size, _tint(COLOURS[box.kind], 0.14), COLOURS[box.kind], 3.0, linewidth=0.8)
        top = y + height - 3
        middle = x + width / 2
        room = width - 8
        self._text((middle, top - _NAME_LINE / 2), _cut(box.name, _NAME, True, room), _NAME, weight="bold")
        top -= _NAME_LINE
        self._text((middle, top - _DETAIL_LINE / 2), _cut(box.detail, _DETAIL, False, room), _DETAIL, color=_GREY)
        top -= _DETAIL_LINE + 2
        for row in box.rows:
            at, span = (x + 4, top - _ROW_LINE + 0.8), (width - 8, _ROW_LINE - 1.2)
            self._rectangle(at, span, _tint(COLOURS[row.kind], 0.38), "none", 2.0)
            self._text((middle, top - _ROW_LINE / 2), _cut(row.text, _ROW, False, room), _ROW)
            top -= _ROW_LINE

    def _rectangle(self, corner: Point, size: Point, face: str, edge: str, radius: float, **more: Any) -> None:
        from matplotlib.patches import FancyBboxPatch  # noqa: PLC0415  see __init__

        style = f"round,pad=0,rounding_size={radius}"
        self.axes.add_patch(FancyBboxPatch(corner, *size, boxstyle=style, facecolor=face, edgecolor=edge, **more))

    def _text(self, at: Point, text: str, size: float, color: str = _INK, ha: str = "center", **more: Any) -> None:
        va = "center_baseline"
        self.axes.text(*at, text, fontsize=size, color=color, ha=ha, va=va, parse_math=False, **more)


def _box_width(box: Box) -> float:
    texts = [_width(box.name, _NAME, True), _width(box.detail, _DETAIL)]
    return min(max([*texts, *(_width(row.text, _ROW) for row in box.rows)]), _WIDEST) + 12


def _box_height(box: Box) -> float:
    return _NAME_LINE + _DETAIL_LINE + 6 + (_ROW_LINE * len(box.rows) + 2 if box.rows else 0)


def _legend(kinds: list[str], width: float) -> list[tuple[str, float, int]]:
    """Return for each kind its name, its x within a row, and the row's number."""
    found: list[tuple[str, float, int]] = []
    x, row = 0.0, 0
    for kind in kinds:
        own = _width(kind, _DETAIL) + 26
        if x and x + own - 10 > width:
            x, row = 0.0, row + 1
        found.append((kind, x, row))
        x += own
    return found


def _cut(text: str, size: float, bold: bool, room: float) -> str:
    if _width(text, size, bold) <= room:
        return text
    while text and _width(f"{text}…", size, bold) > room:
        text = text[:-1]
    return f"{text}…"


@cache
def _width(text: str, size: float, bold: bool = False) -> float:
    from matplotlib.font_manager import FontProperties  # noqa: PLC0415  see _Picture
    from matplotlib.textpath import text_to_path  # noqa: PLC0415

    properties = FontProperties(size=size, weight="bold" if bold else "normal")
    width, _, _ = text_to_path.get_text_width_height_descent(text, properties, ismath=False)
    return float(width)


def _tint(colour: str, strength: float) -> str:
    """Return ``colour`` with an opacity of ``strength`` on white."""
    parts = [int(colour[at : at + 2], 16) for at in (1, 3, 5)]
    return "#" + "".join(f"{round(255 - strength * (255 - part)):02x}" for part in parts)


ALL = "ALL"
PHASES = ("TRAIN", "TEST", ALL)


@dataclass(frozen=True)
class DrawRequest:
    """The net to draw, and the settings of the drawing.

    Attributes:
        model: the network's text file.
        output: the file to write: .svg, .png or .pdf.
        phase: one of PHASES; ``ALL`` draws both over each other.
        direction: TB, LR or BT.
        columns: the number of columns that a long drawing is folded into; 0: as many as fill a page.
        rates: show the multipliers of learning rates.
        shape: the shape of a sample, instead of the data set's; (): the data set's.
        level: the network's level.
        stages: the network's stages.
    """

    model: str
    output: str
    phase: str = "TRAIN"
    direction: str = "TB"
    columns: int = 0
    rates: bool = False
    shape: Shape = ()
    level: int = 0
    stages: tuple[str, ...] = ()


def draw_net(request: DrawRequest) -> list[str]:
    """Write the picture, and return remarks about it.

    Raises:
        UserError: matplotlib is missing, or the text is wrong.
        UsageError: the file's suffix is none of FORMATS.
        WriteError: the file could not be written.
    """
    check_drawing(request.output)
    names = PHASES[:2] if request.phase == ALL else (request.phase,)
    nets = [
        read_net_file(
            request.model, pb.Phase.Value(name), request.level, request.stages, shape=request.shape, needs_shapes=False
        )
        for name in names
    ]  # fmt: skip
    parts = [PhaseDrawing(name, net.layers, net.shapes) for name, net in zip(names, nets, strict=True)]
    drawing = drawing_of(parts, request.rates)
    title = nets[0].plan.source.param.name or request.model
    draw(drawing, request.output, title, _note(request, nets[0]), request.direction, request.columns)
    notes = list(dict.fromkeys(note for net in nets for note in net.notes))
    layers = {number for net in nets for number, _ in net.layers}
    return [*notes, f"{request.output}: {len(layers)} layers in {len(drawing.boxes)} boxes"]


def _note(request: DrawRequest, net: NetFile) -> str:
    """Return the phase, if the layers depend on it, the batch and the number of parameters, as the picture's note."""
    words = []
    if net.has_phases:
        words.append("training and test nets" if request.phase == ALL else f"{request.phase} net")
    graph = net.graph
    if graph is not None:
        first = next((edge.shape for edge in graph.edges if edge.shape), ())
        words += [f"batch of {first[0]}"] if first else []
        words.append(f"{graph.num_parameters:,} parameters")
    return ", ".join(words)
