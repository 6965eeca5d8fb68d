"""The table of ``bpt time``, after the lines that ``caffe time`` prints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bpt.graph.layer_graph import LayerGraph
from bpt.graph.spec import count
from bpt.operators.timing import LayerTimes, PassTimes, Times

HEAD = ("layer", "type", "forward ms", "backward ms", "parameters", "MFLOP", "GFLOP/s")


def caffe_lines(layers: Sequence[LayerTimes], passes: PassTimes) -> Iterator[str]:
    """Mean times in the lines of ``caffe time``."""
    yield "Average time per layer: "
    for layer in layers:
        yield f"{layer.node.name:>10}\tforward: {_ms(layer.forward.mean)} ms."
        yield f"{layer.node.name:>10}\tbackward: {_ms(layer.backward.mean)} ms."
    yield f"Average Forward pass: {_ms(passes.forward.mean)} ms."
    yield f"Average Backward pass: {_ms(passes.backward.mean)} ms."
    if passes.update:
        yield f"Average Update: {_ms(passes.update.mean)} ms."
    yield f"Average Forward-Backward: {_ms(passes.iteration.mean)} ms."
    yield f"Total Time: {_ms(sum(passes.iteration.samples))} ms."


def table(graph: LayerGraph, layers: Sequence[LayerTimes], passes: PassTimes) -> Iterator[str]:
    """A line a layer: median ± spread of its times, parameters, work and speed; then the whole net."""
    rows = [HEAD, *(_row(graph, layer) for layer in layers)]
    rows.append(_totals("sum of layers", graph, [l.forward for l in layers], [l.backward for l in layers]))
    rows.append(_totals("whole net", graph, [passes.forward], [passes.backward]))
    if passes.update:
        rows.append(("update", "", _range(passes.update), "", "", "", ""))
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    for row in rows:
        cells = [
            cell.ljust(width) if column < 2 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()


def _row(graph: LayerGraph, layer: LayerTimes) -> tuple[str, ...]:
    node = layer.node
    parameters = sum(count(graph.params[index].shape) for index in node.params)
    return (
        node.name,
        node.type,
        _range(layer.forward),
        _range(layer.backward),
        str(parameters) if parameters else "",
        f"{node.flops / 1e6:.2f}" if node.flops else "",
        f"{node.flops / layer.forward.median / 1e9:.1f}" if node.flops else "",
    )


def _totals(name: str, graph: LayerGraph, forward: Sequence[Times], backward: Sequence[Times]) -> tuple[str, ...]:
    ahead, back = sum(t.median for t in forward), sum(t.median for t in backward)
    if len(forward) == 1:
        shown = _range(forward[0]), _range(backward[0])
    else:
        shown = f"{_ms(ahead)}", f"{_ms(back)}"
    return (
        name, "", *shown, str(graph.num_parameters), f"{graph.flops / 1e6:.2f}", f"{graph.flops / ahead / 1e9:.1f}"
    )  # fmt: skip


def _range(times: Times) -> str:
    return f"{_ms(times.median)} ± {_ms(times.spread)}"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.4g}"
