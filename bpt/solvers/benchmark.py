"""What ``bpt time`` does: time a network, or the net and update of a solver, and log the tables."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import torch

from bpt.device import choose_device
from bpt.net import Net
from bpt.operators.timing import time_layers, time_passes
from bpt.proto import bpt_pb2 as pb
from bpt.proto.solver import read_solver
from bpt.report.timetable import caffe_lines, table
from bpt.solvers import lr_policy
from bpt.solvers.nets import file_plan
from bpt.solvers.solver import Solver

LOG = logging.getLogger("bpt")


def time_model(path: str, phase: str, level: int, stages: tuple[str, ...], iterations: int, gpu: str) -> None:
    """Time the network text at ``path``."""
    device = choose_device(gpu=gpu)
    net = Net(file_plan(path, pb.Phase.Value(phase), level, stages).graph()).to(device)
    try:
        _time(net, device, iterations)
    finally:
        net.close()


def time_solver(path: str, overrides: Sequence[str], iterations: int, gpu: str) -> None:
    """Time the training net of the solver at ``path`` and its update; nothing is tested or saved."""
    source = read_solver(path, overrides)
    device = choose_device(source.param, gpu)
    with Solver(source, device=device) as solver:
        rate = lr_policy.learning_rate(solver.param, 0)
        _time(solver.net, device, iterations, lambda: solver.rule.update(rate, 0))


def _time(net: Net, device: torch.device, iterations: int, update: Callable[[], object] | None = None) -> None:
    LOG.info("*** Benchmark begins ***")
    LOG.info("Testing for %d iterations.", iterations)
    layers = time_layers(net, device, iterations)
    passes = time_passes(net, device, iterations, update)
    for line in caffe_lines(layers, passes):
        LOG.info("%s", line)
    LOG.info("*** Benchmark ends ***")
    LOG.info("Median ± half the distance of the quartiles, over %d passes:", iterations)
    for line in table(net.graph, layers, passes):
        LOG.info("%s", line)
