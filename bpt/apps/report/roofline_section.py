"""The part of a report about a network's layers: their times under the roofs of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import torch

from bpt.apps.report.markup import drawing
from bpt.base.errors import UsageError
from bpt.base.log import plural
from bpt.config.plan.nets import file_plan
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.sources import SolverSource
from bpt.engine.operator import Operator
from bpt.graph.segments import per_layer
from bpt.nn.net_graph import build_graph_of
from bpt.perf.timing.benchmark import itemsizes_of
from bpt.perf.timing.layer_times import time_layers
from bpt.perf.timing.peaks import PeakMeter
from bpt.perf.timing.roofline import points
from bpt.perf.timing.roofline_figure import draw_roofline
from bpt.train.outer.report.style import check_matplotlib
from bpt.train.runtime.net_on_device import make_net

ITERATIONS = 10  # timed passes


def roofline_section(solver: SolverSource) -> Iterator[str]:
    """Time the training net of a solver, and yield the HTML of its roofline.

    Raises:
        UsageError: the network is not in a file of its own.
        UserError: a text is wrong, or matplotlib is missing.
    """
    check_matplotlib()
    param = solver.param
    model = param.net or param.train_net
    if not model:
        raise UsageError("--roofline needs a solver whose network is a file (net: or train_net:)")
    device = torch.device("cpu")
    with closing(make_net(build_graph_of(file_plan(model, pb.TRAIN)), device)) as net:
        meter = PeakMeter(device, net.precision.multiply_type)
        meter.measure()
        layers = time_layers(Operator(net, per_layer(net.graph), device), ITERATIONS)
        meter.measure()
        found, peaks = points(net.graph, layers, itemsizes_of(net), meter.peaks()), meter.peaks()
        threads = plural(torch.get_num_threads(), "thread")
        title = f"{net.graph.name}, {net.context.precision.name}, {threads}"
    yield "<h2>Layers</h2>\n<p>The layers under the roofs of the machine that wrote this page."
    yield "A dot is a pass of a layer. Its area is the time above the roof, which a faster layer could save."
    yield "The number of a dot is also behind the name of its layer on the right, where the passes with most time above"
    yield "the roof are. Other dots have no number, nor have dots that overlap one with a lower number.</p>"
    yield drawing(lambda path: draw_roofline(found, peaks, title, path))
