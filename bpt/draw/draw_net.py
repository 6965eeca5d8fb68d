"""What ``bpt draw`` and ``tools/draw_net.py`` do: the picture of a network file."""

from __future__ import annotations

from dataclasses import dataclass

from bpt.draw.drawing import check_drawing, draw
from bpt.draw.drawing_boxes import Part, drawing_of
from bpt.graph.spec import Shape
from bpt.plan.net_file import NetFile, read_net_file
from bpt.proto import bpt_pb2 as pb

ALL = "ALL"
PHASES = ("TRAIN", "TEST", ALL)


@dataclass(frozen=True)
class Request:
    """What to draw, and how.

    Attributes:
        model: the network's text file.
        output: .svg, .png or .pdf.
        phase: one of PHASES; ``ALL`` draws both over each other.
        direction: TB, LR or BT.
        columns: that a long drawing is folded to; 0: as many as make a page.
        rates: show the multipliers of learning rates.
        shape: of a sample, to do without the data; ().
        level, stages: of the net.
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


def draw_net(request: Request) -> list[str]:
    """Write the picture; what there is to say about it.

    Raises:
        UserError: there is no matplotlib; the text is wrong.
        UsageError: pictures are not written to files of that kind.
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
    parts = [Part(name, net.layers, net.shapes) for name, net in zip(names, nets, strict=True)]
    drawing = drawing_of(parts, request.rates)
    title = nets[0].plan.source.param.name or request.model
    draw(drawing, request.output, title, _note(request, nets[0]), request.direction, request.columns)
    notes = list(dict.fromkeys(note for net in nets for note in net.notes))
    layers = {number for net in nets for number, _ in net.layers}
    return [*notes, f"{request.output}: {len(layers)} layers in {len(drawing.boxes)} boxes"]


def _note(request: Request, net: NetFile) -> str:
    """Phase, if that makes a difference, batch and parameters."""
    words = []
    if net.has_phases:
        words.append("training and test nets" if request.phase == ALL else f"{request.phase} net")
    graph = net.graph
    if graph is not None:
        first = next((edge.shape for edge in graph.edges if edge.shape), ())
        words += [f"batch of {first[0]}"] if first else []
        words.append(f"{graph.num_parameters:,} parameters")
    return ", ".join(words)
