"""LOCAL by hand: gradients that stay with their replica, and averages of weights and moments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from bpt.config.plan.run_plan import LocalSpec, OuterSpec, ParallelSpec
from bpt.config.proto import bpt_pb2 as pb
from bpt.engine.scheduler import Synchronous
from bpt.parallel.exchange import EXCHANGES
from bpt.parallel.exchange.averaging_context import Replicas, TrainingProgress
from bpt.parallel.exchange.local import Local
from bpt.parallel.exchange.local_steps import LocalSteps, LocalUpdates
from bpt.system.comm.base import Communicator
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.exchange_groups import Rank

KEEP, RESET = pb.LocalParameter.KEEP, pb.LocalParameter.RESET
PLAIN = OuterSpec()
SAMPLES = (3, 1, 4)  # of a batch of 8


class Replica(Rank):
    """A rank with one moment, and an average over iterations, for each parameter: 10 and 20 times its number."""

    def __init__(
        self, comm: Communicator, settings: LocalSpec, iterations: Callable[[], int], outer: OuterSpec = PLAIN
    ) -> None:
        def part(replicas: Sequence[int]) -> float:
            return sum(SAMPLES[replica] for replica in replicas) / sum(SAMPLES[: comm.size])

        spec = ParallelSpec(exchange=pb.ParallelParameter.LOCAL, local_param=settings, outer_param=outer)
        super().__init__(comm, partial(EXCHANGES["LOCAL"], param=spec, replicas=Replicas(comm.size, comm.rank, part)))
        self.moments = {p: torch.full_like(p.detach(), 10.0 * comm.rank) for p in self.parameters.values()}
        self.averages = {p: torch.full_like(p.detach(), 20.0 * comm.rank) for p in self.parameters.values()}
        self.exchange.follow(TrainingProgress(iterations, self._optimizer_state))

    def _optimizer_state(self, parameter: nn.Parameter) -> tuple[list[Tensor], list[Tensor]]:
        return [self.moments[parameter]], [self.averages[parameter]]

    @property
    def values(self) -> tuple[float, float, float]:
        """Of a weight, its moment and its average; all are alike."""
        weight = self.parameters["c"]
        return weight[0].item(), self.moments[weight][0].item(), self.averages[weight][0].item()


def test_a_gradient_is_that_of_the_mean_over_the_replicas_own_samples() -> None:
    """3 of 4 samples: what is 1.5 as a summand of the batch's mean is 2 as a mean."""

    def run(comm: Communicator) -> list[float] | None:
        rank = Replica(comm, LocalSpec(steps=2), lambda: 0)
        rank.give(a=1.5 if comm.rank == 0 else 0.5, b=None, c=0.0)
        rank.run()
        assert rank.gradients["b"] is None
        return rank.gradients["a"]

    assert run_ranks(2, run) == [[2.0] * 3, [2.0] * 3]


def test_before_it_begins_gradients_are_summed() -> None:
    def run(comm: Communicator) -> list[float] | None:
        rank = Replica(comm, LocalSpec(start_iter=5), lambda: 4)
        rank.give(a=1.0 + comm.rank, b=0.0, c=0.0)
        rank.run()
        assert not rank.exchange.replicas_diverged and not rank.exchange.state()
        return rank.gradients["a"]

    assert run_ranks(2, run) == [[3.0] * 3] * 2


@pytest.mark.parametrize(
    ("momentum", "moments"), [(pb.LocalParameter.AVERAGE, [11.25] * 3), (KEEP, [0.0, 10.0, 20.0]), (RESET, [0.0] * 3)]
)
def test_an_average(momentum: int, moments: list[float]) -> None:
    """Of 2, 102 and 202, which count by 3/8, 1/8 and 4/8; averages over iterations of 0, 20 and 40."""

    def run(comm: Communicator) -> tuple[float, float, float]:
        rank = Replica(comm, LocalSpec(steps=2, momentum=momentum), lambda: 1)
        rank.exchange.average()
        return rank.values

    assert run_ranks(3, run) == [(114.5, moment, 22.5) for moment in moments]


def test_a_step_of_an_outer_optimizer() -> None:
    """From 100 to averages of 114.5, and again: the changes are 14.5 and -8.5, with momentum 0.5 and lr 2.

    Versions: 100 + 2 (7.25 + 14.5) = 143.5; from there the average is 135, the momentum 7.25 - 8.5 = -1.25, and the
    version 143.5 + 2 (-0.625 - 8.5) = 125.25. A rank that continues from the state makes the same step.
    """
    outer = OuterSpec(type=pb.OuterParameter.NESTEROV, lr=2, momentum=0.5)

    def run(comm: Communicator) -> list[float]:
        found: list[float] = []
        done, own = [0], (2.0, 102.0, 202.0)[comm.rank]
        first = rank = Replica(comm, LocalSpec(steps=2), lambda: done[0], outer)
        for average in (114.5, 135.0):
            with torch.no_grad():
                rank.parameters["c"].fill_(143.5 if found else 100.0)
            rank.give(a=0.0, b=0.0, c=0.0)
            rank.run()
            done[0] = 2 * len(found) + 1
            with torch.no_grad():
                rank.parameters["c"].fill_(own + average - 114.5)
            if found:
                rank = Replica(comm, LocalSpec(steps=2), lambda: done[0], outer)
                rank.exchange.load(first.exchange.state())
            rank.exchange.average()
            found.append(rank.values[0])
        return found

    assert run_ranks(3, run) == [[143.5, 125.25]] * 3


def test_hosts_average_what_their_ranks_sum() -> None:
    """Two replicas of a host add their summands, 3/8 and 1/8 of a batch: 1.5 and 0.5 are 2 / (4/8)."""

    def run(comm: Communicator) -> tuple[list[float] | None, float]:
        rank = Replica(comm, LocalSpec(sum_within_hosts=True), lambda: 0)
        rank.give(a=[1.5, 0.5, 3.0][comm.rank], b=0.0, c=0.0)
        rank.run()
        with torch.no_grad():
            rank.parameters["c"].fill_(10.0 if comm.rank < 2 else 30.0)
        rank.exchange.average()
        return rank.gradients["a"], rank.values[0]

    found = run_ranks(3, run, hosts=["north", "north", "south"])
    assert found == [([4.0] * 3, 20.0), ([4.0] * 3, 20.0), ([6.0] * 3, 20.0)]


def test_on_one_host_there_is_nothing_to_average() -> None:
    def run(comm: Communicator) -> bool:
        return Replica(comm, LocalSpec(sum_within_hosts=True), lambda: 1).exchange.local is None

    assert run_ranks(2, run) == [True, True]


def test_for_a_while_all_have_the_averages() -> None:
    """And know meanwhile what they go on with. Kept moments are averaged, too: others may go on from there."""

    def run(comm: Communicator) -> tuple[tuple[float, float, float], float]:
        rank = Replica(comm, LocalSpec(steps=2, momentum=KEEP), lambda: 1)
        own = rank.values
        with rank.exchange.whole(), rank.exchange.whole():
            inside, told = rank.values, rank.exchange.state()["c"][0].item()
        assert rank.values == own
        return inside, told

    assert run_ranks(3, run) == [((114.5, 11.25, 22.5), weight) for weight in (2.0, 102.0, 202.0)]


def test_what_a_rank_goes_on_with() -> None:
    def run(comm: Communicator) -> None:
        done = 1
        rank = Replica(comm, LocalSpec(steps=2, momentum=KEEP), lambda: done)
        assert isinstance(rank.exchange, Local)
        state = {name: value + 1 for name, value in rank.exchange.state().items()}
        before = rank.values
        rank.exchange.load(state)
        assert rank.values == tuple(value + 1 for value in before)
        done = 2  # at an average weights are everybody's, moments are not
        rank.exchange.load({name: value + 1 for name, value in state.items()})
        assert rank.values == (before[0] + 1, before[1] + 2, before[2] + 1)
        assert rank.exchange.state().keys() == {"a moment 0", "b moment 0", "c moment 0"}

    run_ranks(2, run)


def test_iterations_that_end_with_an_average() -> None:
    """From iteration 2 on, each third update: those of iterations 4, 7, …"""
    updates = LocalUpdates(Synchronous(1), LocalSteps(3, 2))
    told = [" ".join(map(str, updates.training(iteration, 0))) for iteration in range(9)]
    assert {iteration for iteration, each in enumerate(told) if each == "F0 B0 X0 W U A"} == {4, 7}
    assert {each for iteration, each in enumerate(told) if iteration not in (4, 7)} == {"F0 B0 X0 W U"}


def test_between_averages_replicas_are_apart() -> None:
    local = LocalSteps(3, 2)
    assert [done for done in range(10) if local.replicas_diverged(done)] == [3, 4, 6, 7, 9]
    assert [iteration for iteration in range(4) if local.is_local(iteration)] == [2, 3]
    assert not any(LocalSteps(1).replicas_diverged(done) for done in range(5))
