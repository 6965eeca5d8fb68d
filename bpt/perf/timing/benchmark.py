"""Times a network text, or a solver's net and update, and logs the tables; ``bpt time``."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch

from bpt.base.log import log_lines, log_results, number
from bpt.config.plan.nets import file_plan
from bpt.config.plan.run_plan import RunPlan
from bpt.config.proto import bpt_pb2 as pb
from bpt.engine.algorithm_cache import AlgorithmCache
from bpt.engine.algorithm_trials import (
    ChosenKernel,
    algorithm_lines,
    choose,
    measure,
    num_disturbed,
    tried_layers,
    use,
)
from bpt.engine.executor import PassExecutor
from bpt.engine.memory_format_choice import MemoryFormatChoice
from bpt.engine.operator import Operator
from bpt.engine.optim import lr_policy
from bpt.graph.segments import per_layer
from bpt.nn.layers.prefetching import PrefetchingDataLayer
from bpt.nn.net import Net
from bpt.nn.net_graph import build_graph_of
from bpt.perf.timing.inner_times import log_inner_times
from bpt.perf.timing.layer_times import LayerTimes, PassTimes, RepetitionTimes, choose_layout, time_layers, time_passes
from bpt.perf.timing.peaks import PeakMeter, Peaks
from bpt.perf.timing.roofline import Itemsizes, points
from bpt.perf.timing.roofline_figure import draw_roofline
from bpt.perf.timing.roofline_table import roofline_lines
from bpt.perf.timing.timetable import caffe_lines, table
from bpt.system.device import use_line
from bpt.train.runtime.binding import bind
from bpt.train.runtime.half_precision import net_in
from bpt.train.runtime.train_options import TrainOptions

LOG = logging.getLogger("bpt")


class _Algorithms(NamedTuple):
    chosen: Sequence[ChosenKernel]
    disturbed: int


def time_model(
    path: str,
    phase: str,
    level: int,
    stages: tuple[str, ...],
    device: torch.device,
    iterations: int,
    roofline: str | None = None,
    precision: str = "FLOAT32",
) -> None:
    """Time the network text at ``path``, in the memory layout that training would choose.

    Args:
        roofline: also compare the layers with this machine's roofs, and draw them to this file; empty: draw nothing.
    """
    LOG.info("%s", use_line(device))
    net = net_in(precision, build_graph_of(file_plan(path, pb.Phase.Value(phase), level, stages)), device)
    try:
        _time(net, device, iterations, pb.SolverParameter.AUTO, roofline=roofline)
    finally:
        net.close()


def time_solver(plan: RunPlan, device: torch.device, iterations: int, roofline: str | None = None) -> None:
    """Time the training net of a solver and its update, in its ``engine``, and its inner layer if it has one.

    It runs no tests, and writes only the picture of the ``roofline`` (see ``time_model``).
    """
    plan = plan.measured()
    if plan.is_outer:
        plan = plan.standalone()  # a worker of the outer layer trains by itself
    with bind(plan, None, None, TrainOptions(device)) as runtime:
        rate = lr_policy.learning_rate(plan.optim, 0)
        tries = plan.parallel_param.inner_param.engine == pb.InnerParameter.LIBRARY
        update = partial(runtime.updater.rule.update, rate, 0)
        _time(runtime.net, device, iterations, plan.engine, update, roofline, tries)
        log_inner_times(runtime, iterations)


def _time(
    net: Net,
    device: torch.device,
    iterations: int,
    engine: int,
    update: Callable[[], object] | None = None,
    roofline: str | None = None,
    tries_algorithms: bool = True,
) -> None:
    by_layer = Operator(net, per_layer(net.graph), device)
    whole = Operator(net, device=device)
    _try_once(by_layer)
    layout = MemoryFormatChoice(engine)
    choose_layout(whole, layout, update)
    by_layer.engine = layout.engine
    LOG.info("Engine: %s", layout)
    choice: _Algorithms | None = None
    if tries_algorithms and engine == pb.SolverParameter.AUTO and device.type == "cpu" and tried_layers(net):
        choice = _choose_algorithms(net, layout.engine)

    meter = PeakMeter(device, net.precision.multiply_type) if roofline is not None else None
    if meter:
        LOG.info("Measuring the roofs of %s.", _unit(device))
        meter.measure()

    LOG.info("*** Benchmark begins ***")
    LOG.info("Testing for %d iterations.", iterations)
    readers = [layer for layer in net.data_layers().values() if isinstance(layer, PrefetchingDataLayer)]
    waits: list[float] = []

    def each(index: int, seconds: float) -> None:
        waits.append(sum(layer.waited for layer in readers))
        _log_pass(index, seconds)

    passes = time_passes(whole, iterations, update, each)
    layers = time_layers(by_layer, iterations)
    log_lines(LOG, caffe_lines(layers, passes))
    LOG.info("*** Benchmark ends ***")
    log_results(LOG, table(net.graph, layers, passes, list(net.data_layers())))
    if choice is not None:
        log_results(LOG, algorithm_lines(net.graph, *choice))
    if readers:
        log_results(LOG, [_wait(RepetitionTimes(tuple(waits)), passes.iteration)])
    if meter:
        meter.measure()
        _log_roofline(net, layers, passes, meter.peaks(), _unit(device), roofline or "")


def _choose_algorithms(net: Net, engine: int) -> _Algorithms:
    """Let the layers of ``net`` run by the fastest algorithms; training then compares whole iterations, too."""
    cache = AlgorithmCache.of_user()
    times = measure(net, engine, cache.times)
    cache.write()
    chosen = choose([times])
    use(net, [(each.layer, each.role, each.algorithm) for each in chosen])
    return _Algorithms(chosen, num_disturbed(times))


def _wait(waits: RepetitionTimes, passes: RepetitionTimes) -> str:
    """Return the line about the time that a pass of the whole net waits for its batches."""
    median, spread = waits.median * 1e3, waits.spread * 1e3
    return f"Wait for data: {median:.3f} ± {spread:.3f} ms of a pass, {waits.median / passes.median:.1%} of its time."


def _log_roofline(
    net: Net, layers: Sequence[LayerTimes], passes: PassTimes, peaks: Peaks, unit: str, picture: str
) -> None:
    precision = net.context.precision
    found = points(net.graph, layers, itemsizes_of(net), peaks)
    sources = [node.name for node in net.graph.nodes if not node.bottoms]
    log_results(LOG, roofline_lines(found, peaks, passes, precision.name, unit, sources))
    if picture:
        LOG.info("Picture: %s", draw_roofline(found, peaks, f"{net.graph.name}, {precision.name}, {unit}", picture))
    else:
        LOG.info("For a picture give --roofline a file that ends in .png or .svg.")


def itemsizes_of(net: Net) -> Itemsizes:
    """Return the bytes of the elements of a net's blobs and parameters, in its precision."""
    edges = tuple(net.precision.type_of(edge.index).itemsize for edge in net.graph.edges)
    return Itemsizes(edges, net.context.precision.master.itemsize)


def _unit(device: torch.device) -> str:
    """Return the name of the GPU, or the number of threads."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"{threads} thread{'s' * (threads != 1)}"


def _try_once(operator: Operator) -> None:
    """Run one pass before the timing, as Caffe does; it shows errors and the initial loss."""
    debug, executor = operator.net.graph.debug_info, PassExecutor(operator)
    LOG.info("Performing Forward")
    LOG.info("Initial loss: %s", number(executor.evaluate(0, 0, grad=True, debug=debug)))
    LOG.info("Performing Backward")
    executor.backward(debug)
    operator.net.zero_grad(set_to_none=True)


def _log_pass(index: int, seconds: float) -> None:
    LOG.info("Iteration: %d forward-backward time: %s ms.", index, number(seconds * 1e3))
