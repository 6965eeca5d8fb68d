"""Times a rank's part of a training iteration, without the exchange, with any number of samples."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from statistics import median

import torch
from torch import nn

from bpt.base.malloc_settings import release_free_memory
from bpt.config.plan.run_plan import RunPlan
from bpt.engine.memory_format_choice import MemoryFormatChoice
from bpt.engine.operator import Operator
from bpt.engine.optim.rules import UpdateRule, make_rule
from bpt.graph.autocast import blob_itemsizes
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.layer_spec import count
from bpt.graph.segments import Segment, cut, starts_by_chunks, trained_layers
from bpt.graph.share import Share
from bpt.nn.layers.base import batch_of
from bpt.nn.net import Net
from bpt.nn.pass_context import PassContext
from bpt.system.device import synchronize
from bpt.system.device.memory_use import Memory
from bpt.train.runtime.net_on_device import make_net

# This rate is too low to change weights, which hundreds of updates from batches of one sample could drive to infinity.
# It is not 0, because torch's fast updates cannot use 0.
RATE = 1e-9
NEVER_CLIP = 1e30  # training computes the norm of the gradients, but never clips them or logs it


class StepBenchmark:
    """The work of one of many ranks in training, without the exchange and without a change of weights.

    Samples come from the net's own data layers. As in training, reading and decoding them counts only if it is slower
    than the net.

    Args:
        graph: the training net.
        ranks: the number of ranks that will share a batch.
        on_device: the number of processes that share the memory of ``device``.
        agree: a collective call that returns the largest of all ranks' seconds, so that all choose the same memory
            layout.

    Attributes:
        samples: the samples of a pass.
        updating: seconds of the last iteration's update.
    """

    def __init__(
        self,
        graph: LayerGraph,
        plan: RunPlan,
        device: torch.device,
        ranks: int = 1,
        on_device: int = 1,
        agree: Callable[[float], float] = lambda seconds: seconds,
    ) -> None:
        self._graph = graph
        clip = NEVER_CLIP if plan.optim.clip_gradients >= 0 else plan.optim.clip_gradients
        self._optim = replace(plan.optim, clip_gradients=clip)
        self._precision = plan.precision
        self._device = device
        self._ranks = ranks
        self._agree = agree
        self._batch = batch_of(graph)
        self._memory = Memory(device, on_device)
        self._values: Mapping[tuple[str, int], nn.Parameter] = {}
        self._positions: dict[str, int] = {}
        self._operator: Operator | None = None
        self._rule: UpdateRule | None = None
        self._iteration = 0
        self.samples = 0
        self.updating = 0.0

    @property
    def blob_bytes(self) -> tuple[int, int]:
        """Bytes of a sample of the largest blob, and of all blobs."""
        itemsizes = blob_itemsizes(self._graph, self._precision)
        edges = zip(self._graph.edges, itemsizes, strict=True)
        sizes = [count(edge.shape) * itemsize // self._batch for edge, itemsize in edges]
        return max(sizes), sum(sizes)

    def resize(self, samples: int) -> None:
        """Set the samples of a pass, or 0 for none; weights and the position in the data do not change."""
        self._close_net()
        self.samples = samples
        self._memory.reset()
        if not samples:
            return
        context = PassContext(precision=self._precision, split=self._split, ranks=self._ranks)
        net = make_net(self._graph, self._device, context, self._values)
        for name, position in self._positions.items():
            net.data_layers()[name].position = position
        self._operator = Operator(net, device=self._device)
        self._values = net.values_by_name()
        if self._rule is None:
            self._rule = make_rule(self._optim, net)

    def settle(self, choice: MemoryFormatChoice) -> None:
        """Run iterations until all ranks have chosen the memory layout in ``choice``; a collective call."""
        while not choice.settled:
            self.use(choice.engine)
            choice.record(self._agree(self.run()))
        self.use(choice.engine)

    def cut(self, number: int) -> int:
        """Cut the net into ``number`` segments, or as many as possible, for later iterations; return their number."""
        assert self._operator is not None
        trained = len(trained_layers(self._graph))
        if not trained:
            return 1
        length = -(-trained // max(number, 1))
        lengths = [length] * (trained // length) + ([trained % length] if trained % length else [])
        self._operator.cut_into(cut(self._graph, starts_by_chunks(self._graph, lengths)))
        return len(self._operator.segments)

    def segment_seconds(self, segments: Sequence[Segment], repeats: int) -> tuple[float, ...]:
        """Return the seconds until the gradients of each segment, the last one first, and until all; and the update's.

        Args:
            segments: how to cut the net, for later iterations, too.
            repeats: the number of iterations, of which medians are taken, after one that does not count.
        """
        assert self._operator is not None
        self._operator.cut_into(segments)
        laps: list[list[float]] = []
        for _ in range(1 + repeats):
            moments: list[float] = []

            def note(moments: list[float] = moments, start: float = time.perf_counter()) -> None:
                synchronize(self._device)
                moments.append(time.perf_counter() - start)

            self.run(note)
            laps.append([*moments, moments[-1], self.updating])
        return tuple(median(each) for each in zip(*laps[1:], strict=True))

    def use(self, engine: int) -> None:
        """Compute in the memory layout ``engine``."""
        if self._operator is not None and self._operator.engine != engine:
            self._operator.engine = engine
            release_free_memory()  # as in training

    def run(self, behind: Callable[[], object] = lambda: None) -> float:
        """Run an iteration; return its seconds, 0 without samples.

        Args:
            behind: function to call after the last backward pass of each segment, where an exchange would begin.
        """
        if self._operator is None:
            return 0.0
        assert self._rule is not None
        start = time.perf_counter()
        for number in range(self._optim.iter_size):
            self._operator.begin_pass(self._iteration, number)
            segments = range(len(self._operator.segments))
            for segment in segments:
                self._operator.forward(segment)
            self._operator.loss().item()
            for segment in reversed(segments):
                self._operator.backward(segment)
                if number == self._optim.iter_size - 1:
                    behind()
        synchronize(self._device)
        computed = time.perf_counter()
        self._rule.update(RATE, self._iteration)
        synchronize(self._device)
        self._iteration += 1
        end = time.perf_counter()
        self.updating = end - computed
        return end - start

    @property
    def peak(self) -> int:
        """Peak of the memory with the current number of samples, in bytes."""
        return self._memory.peak

    @property
    def room(self) -> int:
        """Bytes of memory that are still free."""
        return self._memory.room

    def close(self) -> None:
        """Stop prefetching and close all data sources."""
        self._close_net()

    def _split(self, samples: int) -> Share:
        """Return the share of a data layer's batch that is the whole of it, reduced like the rank's share."""
        own = -(-samples * self.samples // self._batch)
        return Share(0, own, own)

    def _close_net(self) -> None:
        if self._operator is not None:
            net: Net = self._operator.net
            for name, layer in net.data_layers().items():
                with suppress(NotImplementedError):
                    self._positions[name] = layer.position
            net.close()
        self._operator = None
