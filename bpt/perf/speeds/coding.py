"""Measures the seconds of a codec without its messages: coding, decoding, and keeping residuals."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean, median

import torch
from torch import Tensor

from bpt.config.plan.run_plan import RunPlan
from bpt.config.proto import bpt_pb2 as pb
from bpt.engine.instructions import Wait
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.layer_spec import count
from bpt.parallel.cluster.cluster import Cluster
from bpt.parallel.exchange.buckets import LARGE
from bpt.parallel.exchange.codec.base import CODECS, Codec
from bpt.parallel.exchange.transport.transport import LIBRARY
from bpt.system.comm.base import Communicator
from bpt.system.comm.comm_thread import CommThread
from bpt.system.comm.serial import AbsentRanks

NUMBERS = 2**24  # largest number of gradients that are coded at a time
SECONDS = 0.2  # time for repetitions, after a first one that does not count
_MOST = 5  # largest number of repetitions

Message = dict[str, Tensor]


def with_coding(cluster: Cluster, plan: RunPlan, graph: LayerGraph, world: Communicator) -> Cluster:
    """Return the cluster with each node's seconds of the plan's codec while all ranks code; a collective call."""
    codings = world.allgather(_coding_here(plan, graph, world))
    nodes = []
    for number, node in enumerate(cluster.nodes):
        own = [coding for coding, host in zip(codings, cluster.hosts, strict=True) if host == number]
        coding = tuple((codec, fmean(each[codec] for each in own)) for codec in own[0])
        nodes.append(replace(node, coding=coding))
    return replace(cluster, nodes=tuple(nodes))


def _coding_here(plan: RunPlan, graph: LayerGraph, world: Communicator) -> dict[int, float]:
    """Return the seconds in which this rank codes one number of its gradients, by codec; empty without a codec.

    As in training, a separate thread codes; it codes random numbers. Threads have separate heaps, which affect times.
    """
    param = plan.parallel_param.compression_param
    hosts = world.allgather(world.host)
    ranks = len(hosts if param.links == pb.CompressionParameter.ALL else set(hosts))
    messages = _messages(graph, plan.precision.wire) if param.name and ranks > 1 else ()
    if not messages:
        return {}
    codec = CODECS[param.name](replace(param, warm_up=0))
    found: list[float] = []
    thread = CommThread(world)
    world.Barrier()
    try:
        while len(found) < 2 or (len(found) <= _MOST and sum(found[1:]) < SECONDS):
            thread.submit(partial(_time_sum, found, codec, messages, AbsentRanks(ranks)), Wait())
            thread.wait()
    finally:
        thread.close()
    return {param.codec: median(found[1:]) / sum(each.numel() for message in messages for each in message.values())}


def _messages(graph: LayerGraph, dtype: torch.dtype) -> Sequence[Message]:
    """Return messages as in training, one for each large gradient, and one for all others; some rows of large nets."""
    shapes = {str(param.index): param.shape or (1,) for param in graph.learnable if param.lr_mult}
    whole = {name: count(shape) for name, shape in shapes.items()}
    part = min(1.0, NUMBERS / max(sum(whole.values()), 1))
    room = {name: torch.empty(max(1, int(rows * part)), *rest, dtype=dtype) for name, (rows, *rest) in shapes.items()}
    small = {name: tensor for name, tensor in room.items() if whole[name] < LARGE}
    large = [{name: tensor} for name, tensor in room.items() if name not in small]
    return [small, *large] if small else large


def _time_sum(found: list[float], codec: Codec, messages: Sequence[Message], others: Communicator) -> None:
    """Sum all messages once, and append the seconds to ``found``."""
    generator, seconds = torch.Generator().manual_seed(0), 0.0
    for message in messages:
        for tensor in message.values():
            tensor.uniform_(-1.0, 1.0, generator=generator)
        start = time.perf_counter()
        codec.sum(message, others, LIBRARY)
        seconds += time.perf_counter() - start
    found.append(seconds)
