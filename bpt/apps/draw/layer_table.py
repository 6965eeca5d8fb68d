"""A table of a net's layers: shapes of tops, parameters, floating-point operations, memory."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bpt.base.log import columns
from bpt.config.precision import FLOAT32
from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_graph import LayerGraph, LayerNode
from bpt.graph.layer_spec import Shape, count

_MIB = 2**20


@dataclass(frozen=True)
class Line:
    """A layer's line of the table.

    Attributes:
        name: the layer's name.
        type: the layer's type.
        tops: the shapes of its tops.
        parameters: the number of elements of its parameters, without shared ones.
        shared: the number of elements of parameters that it shares with an earlier layer.
        flops: floating-point operations of a forward pass of the batch; a multiply-add counts as two.
        activations: bytes of its tops; 0 if it works in place, or its tops are views of its bottom.
        memory: bytes of the parameters, without shared ones.
    """

    name: str
    type: str
    tops: tuple[Shape, ...]
    parameters: int
    shared: int
    flops: int
    activations: int
    memory: int


@dataclass(frozen=True)
class Summary:
    """A net's layers, without the Splits that bpt inserts, and their totals."""

    name: str
    phase: str
    batch: int
    lines: tuple[Line, ...]

    @property
    def parameters(self) -> int:
        return sum(line.parameters for line in self.lines)

    @property
    def flops(self) -> int:
        return sum(line.flops for line in self.lines)

    @property
    def activations(self) -> int:
        return sum(line.activations for line in self.lines)

    @property
    def memory(self) -> int:
        return sum(line.memory for line in self.lines)


def summary_of(graph: LayerGraph, types: Mapping[str, str] | None = None) -> Summary:
    """Return the summary of ``graph``; ``types`` gives, by name, the original types of replaced layers."""
    batch = next((edge.shape[0] for edge in graph.edges if edge.shape), 0)
    lines = tuple(_line(graph, node, types or {}) for node in graph.nodes if not _is_automatic(graph, node))
    return Summary(graph.name, "TRAIN" if graph.phase == pb.TRAIN else "TEST", batch, lines)


def _is_automatic(graph: LayerGraph, node: LayerNode) -> bool:
    """Return whether ``insert_splits`` made the layer: it names a Split after the blob that the Split copies."""
    if node.type != "Split":
        return False
    copied = graph.edges[node.bottoms[0]]
    maker = graph.nodes[copied.producer]
    return node.name == f"{copied.blob}_{maker.name}_{maker.tops.index(copied.index)}_split"


def _line(graph: LayerGraph, node: LayerNode, types: Mapping[str, str]) -> Line:
    bottoms = {graph.edges[edge].blob for edge in node.bottoms}
    tops = [graph.edges[edge] for edge in node.tops]
    fresh = [top for top in tops if top.blob not in bottoms and not node.layer_type.is_view]
    own = [graph.params[index] for index in node.params]
    parameters = sum(count(param.shape) for param in own if not param.shared)
    return Line(
        node.name,
        types.get(node.name, node.type),
        tuple(top.shape for top in tops),
        parameters=parameters,
        shared=sum(count(param.shape) for param in own if param.shared),
        flops=node.flops,
        activations=FLOAT32.compute.itemsize * sum(count(top.shape) for top in fresh),
        memory=FLOAT32.master.itemsize * parameters,
    )


def text_lines(summary: Summary) -> Iterator[str]:
    """Yield the table, with units, and the totals."""
    yield f"{summary.name or 'the net'}, {summary.phase}, batch of {summary.batch}"
    yield ""
    rows = [("layer", "type", "tops", "parameters", "MFLOP", "blobs MiB", "parameters MiB")]
    for line in summary.lines:
        shapes = ", ".join("×".join(map(str, shape)) or "1" for shape in line.tops) or "-"
        note = f"{line.parameters:,}" + (f" (+{line.shared:,} shared)" if line.shared else "")
        rows.append((line.name, line.type, shapes, note, *_numbers(line.flops, line.activations, line.memory)))
    total = ("total", "", "", f"{summary.parameters:,}", *_numbers(summary.flops, summary.activations, summary.memory))
    shown = list(columns([*rows, total], 3))
    yield shown[0]
    yield "-" * max(map(len, shown))
    yield from shown[1:-1]
    yield "-" * max(map(len, shown))
    yield shown[-1]
    yield ""
    yield "FLOP: of a forward pass of the batch; a multiply-add counts as two. Blobs: tops, in float32. Training needs"
    yield "as much again for the gradients of blobs and parameters, and the parameters' size for each solver history."


def csv_text(summary: Summary) -> str:
    """Return the table as CSV, in elements, operations and bytes; the last line is the total."""
    content = io.StringIO()
    writer = csv.writer(content, lineterminator="\n")
    writer.writerow(
        ("layer", "type", "tops", "parameters", "shared_parameters", "flops", "blob_bytes", "parameter_bytes")
    )
    for line in summary.lines:
        shapes = " ".join("x".join(map(str, shape)) or "1" for shape in line.tops)
        writer.writerow(
            (line.name, line.type, shapes, line.parameters, line.shared, line.flops, line.activations, line.memory)
        )
    shared = sum(line.shared for line in summary.lines)
    writer.writerow(("total", "", "", summary.parameters, shared, summary.flops, summary.activations, summary.memory))
    return content.getvalue()


def _numbers(flops: int, activations: int, memory: int) -> tuple[str, str, str]:
    return f"{flops / 1e6:,.3f}", f"{activations / _MIB:,.3f}", f"{memory / _MIB:,.3f}"
