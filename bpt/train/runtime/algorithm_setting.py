"""AlgorithmSetting: the algorithms of the kernels of each layer, which all ranks choose together."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from bpt.config.plan.run_plan import RunPlan
from bpt.config.proto import bpt_pb2 as pb
from bpt.engine.algorithm_cache import AlgorithmCache, KernelTimes
from bpt.engine.algorithm_trials import (
    ITERATIONS,
    LEAST,
    ChosenKernel,
    choose,
    described,
    measure,
    num_disturbed,
    tried_layers,
    use,
)
from bpt.engine.measured_choice import MeasuredChoice
from bpt.engine.operator import Operator
from bpt.nn.kernels.algorithm import Algorithm, KernelRole
from bpt.nn.layers import LAYERS
from bpt.system.comm.base import Communicator
from bpt.train.runtime.tuned_settings import MemoryFormatSetting

LOG = logging.getLogger("bpt")

MARGIN = 0.98  # the fraction of an iteration's time by TORCH above which the whole net keeps TORCH


class KernelChoice(IntEnum):
    """The algorithms of all kernels of a net."""

    TORCH = 0
    FASTEST = 1  # of each kernel by itself
    AUTO = 2

    @classmethod
    def Name(cls, number: int) -> str:  # noqa: N802 (as the enums of protobuf)
        """Return the name of a value."""
        return cls(number).name


class AlgorithmsChoice(MeasuredChoice):
    """The comparison of whole iterations: a kernel in a net may be slower than in a trial by itself."""

    names = KernelChoice
    candidates = (KernelChoice.TORCH, KernelChoice.FASTEST)
    auto = KernelChoice.AUTO
    trials = 3

    def _best(self) -> int:
        torch, fastest = map(self.fastest, self.candidates)
        return KernelChoice.FASTEST if fastest < MARGIN * torch else KernelChoice.TORCH


class _RankTimes(NamedTuple):
    """What a rank has measured.

    Attributes:
        times: the times of its layers' kernels, by the index of the layer.
        seconds: the time of its last iteration.
    """

    host: str
    times: dict[int, KernelTimes]
    seconds: float


class AlgorithmSetting:
    """The algorithms of the training net's kernels.

    They are tried under ``engine: AUTO`` on CPUs, after the memory format is chosen, and kept in snapshots. Any other
    ``engine`` means that nothing is tried, because a run then repeats bit for bit. A run that continues from a state
    uses the algorithms of the state, or torch's if it has none. Test nets run by torch's.

    The trials are made between two iterations. If they find faster algorithms, ten iterations compare these with
    torch's. The times of kernels are kept for other runs on this machine, which need no trials then.

    Args:
        plan: the run.
        operator: the operator of the training net.
        memory_format: the choice that is made first.
        world: the ranks that choose together. The constructor is a collective call if ``plan`` allows a choice.
    """

    name = "algorithms"  # in a TrainState

    def __init__(
        self, plan: RunPlan, operator: Operator, memory_format: MemoryFormatSetting, world: Communicator
    ) -> None:
        self._operator, self._format, self._world = operator, memory_format, world
        self._kernels: list[tuple[int, KernelRole, Algorithm]] = []
        self._found: list[ChosenKernel] = []
        self._disturbed = 0  # kernels
        self._choice: AlgorithmsChoice | None = None
        by_library = plan.parallel_param.inner_param.engine == pb.InnerParameter.LIBRARY
        allowed = plan.engine == pb.SolverParameter.AUTO and by_library
        self._settled = not (allowed and any(world.allgather(self._has_choice)))

    @property
    def _has_choice(self) -> bool:
        """Whether this rank has kernels to try."""
        return self._operator.device.type == "cpu" and bool(tried_layers(self._operator.net))

    @property
    def settled(self) -> bool:
        """Whether the choice is final."""
        return self._settled or self._format.is_loaded

    def record(self, seconds: float) -> bool:
        """Continue the trials after an iteration of this rank; return whether the choice is final now.

        A collective call.
        """
        if self._choice is None:
            self._try(seconds)
        elif self._choice.record(max(self._world.allgather(seconds))):
            self._end()
        else:
            self._use(self._found if self._choice.engine == KernelChoice.FASTEST else [])
        return self.settled

    def _try(self, seconds: float) -> None:
        """Time the kernels of this rank, and choose with all ranks.

        Args:
            seconds: the time of this rank's last iteration.
        """
        operator, cache = self._operator, AlgorithmCache.of_user()
        times: dict[int, KernelTimes] = {}
        if self._has_choice:
            limit = max(ITERATIONS * seconds, LEAST)
            times = measure(operator.net, operator.engine, cache.times, limit, operator.micro_batches)
        self._disturbed = num_disturbed(times)
        everybody: list[_RankTimes] = self._world.allgather(_RankTimes(self._world.host, times, seconds))
        if [rank.host for rank in everybody].index(self._world.host) == self._world.rank:
            cache.write()
        found, iteration = choose([rank.times for rank in everybody]), max(rank.seconds for rank in everybody)
        saved = operator.micro_batches * sum(each.by_torch - each.seconds for each in found)
        self._found = found if saved >= (1 - MARGIN) * iteration else []
        self._choice = AlgorithmsChoice(KernelChoice.AUTO)
        if not self._found:
            self._choice.settle(KernelChoice.TORCH)
            self._end()

    def _end(self) -> None:
        """Make the choice final."""
        assert self._choice is not None
        is_better = self._choice.engine == KernelChoice.FASTEST
        self._settled = True
        self._use(self._found if is_better else [])
        graph = self._operator.net.graph
        if is_better or not self._found:
            LOG.info("Algorithms: %s", described(graph, self._found, self._disturbed))
        else:
            LOG.info("Algorithms: %s, not %s", self._choice, described(graph, self._found))

    def state(self) -> tuple[int, ...]:
        """Return layer, role and algorithm of each kernel that does not run by TORCH, one after the other."""
        return tuple(int(number) for kernel in self._kernels for number in kernel) if self.settled else ()

    def load(self, state: Sequence[int]) -> None:
        """Continue with the choice of an earlier run, which is its ``state()``; a final choice stays."""
        if self._settled:
            return
        nodes = self._operator.net.graph.nodes
        kernels = []
        for layer, role, algorithm in zip(state[::3], state[1::3], state[2::3], strict=True):
            known = layer < len(nodes) and role in set(KernelRole) and algorithm in set(Algorithm)
            if known and LAYERS[nodes[layer].type].chooses_kernels:
                kernels.append((layer, KernelRole(role), Algorithm(algorithm)))
            else:
                LOG.warning(
                    "the snapshot has algorithm %d for kernel %d of layer %d, which this net or this bpt does not "
                    "know: that kernel runs by torch's, and rounds differently",
                    algorithm,
                    role,
                    layer,
                )
        self._settled = True
        self._run_by(kernels)

    def settle(self) -> None:
        """Stop the trials; if they were not finished, all kernels run by torch's algorithms."""
        if not self._settled:
            self._settled = True
            self._use([])

    def _use(self, kernels: Sequence[ChosenKernel]) -> None:
        self._run_by([(each.layer, each.role, each.algorithm) for each in kernels])

    def _run_by(self, kernels: list[tuple[int, KernelRole, Algorithm]]) -> None:
        self._kernels = kernels
        if self._operator.device.type == "cpu":
            use(self._operator.net, kernels)
            self._operator.compute.reset()  # a recorded pass would keep the old ones
