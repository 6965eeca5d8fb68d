"""The tables of ``bpt time``: the lines that ``caffe time`` prints, and bpt's own table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bpt.base.log import columns, number
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.layer_spec import count
from bpt.perf.timing.layer_times import LayerTimes, PassTimes, RepetitionTimes

HEAD = ("layer", "type", "forward ms", "backward ms", "parameters", "MFLOP", "GFLOP/s")
LEFT = 2  # columns of text; the others are numbers


def caffe_lines(layers: Sequence[LayerTimes], passes: PassTimes) -> Iterator[str]:
    """Yield mean times in the lines of ``caffe time``."""
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


def table(
    graph: LayerGraph, layers: Sequence[LayerTimes], passes: PassTimes, readers: Sequence[str] = ()
) -> Iterator[str]:
    """Yield a line for each layer: median ± spread of its times, parameters, work and speed; then the whole net.

    Args:
        readers: the names of layers that read a data set.
    """
    yield f"Median ± half the distance of the quartiles, over {len(passes.iteration.samples)} passes:"
    rows = [HEAD, *(_row(graph, layer) for layer in layers)]
    rows.append(_sums(graph, layers))
    rows.append(("whole net", "", *_cells(passes.forward, passes.backward, graph.num_parameters, graph.flops)))
    if passes.update:
        rows.append(("update", "", _range(passes.update), "", "", "", ""))
    yield from columns(rows, LEFT)
    yield "MFLOP: floating-point operations of a forward pass, in millions; a multiply-add counts as two."
    if readers:
        yield f"{', '.join(readers)}: forward is the wait for a batch, which another thread prepares."


def _row(graph: LayerGraph, layer: LayerTimes) -> tuple[str, ...]:
    node = layer.node
    parameters = sum(count(graph.params[index].shape) for index in node.params)
    return node.name, node.type, *_cells(layer.forward, layer.backward, parameters, node.flops)


def _sums(graph: LayerGraph, layers: Sequence[LayerTimes]) -> tuple[str, ...]:
    forward, backward = sum(l.forward.median for l in layers), sum(l.backward.median for l in layers)
    work = _work(graph.num_parameters, graph.flops, forward)
    return "sum of layers", "", f"{forward * 1e3:.3f}", f"{backward * 1e3:.3f}", *work


def _cells(forward: RepetitionTimes, backward: RepetitionTimes, parameters: int, flops: int) -> tuple[str, ...]:
    return _range(forward), _range(backward), *_work(parameters, flops, forward.median)


def _work(parameters: int, flops: int, seconds: float) -> tuple[str, str, str]:
    """Return cells for parameters, work and speed, which are empty if there are none or no measurable time."""
    return (
        str(parameters) if parameters else "",
        f"{flops / 1e6:.3f}" if flops else "",
        f"{flops / seconds / 1e9:.1f}" if flops and seconds else "",
    )


def _range(times: RepetitionTimes) -> str:
    return f"{times.median * 1e3:.3f} ± {times.spread * 1e3:.3f}"


def _ms(seconds: float) -> str:
    return number(seconds * 1e3)
