"""Which kernels are tried, how they are timed, and when another algorithm than torch's is chosen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch

from bpt.config.precision import BFLOAT16
from bpt.config.proto import bpt_pb2 as pb
from bpt.engine import algorithm_trials as module
from bpt.engine.algorithm_cache import KernelTimes
from bpt.engine.algorithm_trials import (
    CALL,
    MARGIN,
    MOST,
    ROUNDS,
    ChosenKernel,
    TimedRun,
    algorithm_lines,
    choose,
    described,
    fastest,
    measure,
    num_disturbed,
    timed,
    tried_layers,
    use,
)
from bpt.graph.part import Part
from bpt.nn.kernels.algorithm import Algorithm, KernelRole
from bpt.nn.net import Net
from bpt.nn.pass_context import PassContext
from tests.support.golden_cases import graph_of
from tests.support.kernel_nets import CONV, IP, NET, times

LAST = pb.SolverParameter.CHANNELS_LAST
FORWARD, BY_DATA, BY_WEIGHTS = KernelRole
TORCH, OTHER, PATCHES = Algorithm.TORCH, Algorithm.OTHER_FORMAT, Algorithm.PATCHES


def net_of(text: str = NET, **context: Any) -> Net:
    return Net(graph_of(text), PassContext(**context))


class Runs:
    """Kernels that do nothing, and the times that they are said to take."""

    def __init__(self, **seconds: list[TimedRun]) -> None:
        self.calls: list[str] = []
        self._left = {name: iter(runs) for name, runs in seconds.items()}
        self.kernels = {Algorithm[name]: self._kernel(name) for name in seconds}

    def _kernel(self, name: str) -> Callable[[], object]:
        return lambda: self.calls.append(name)

    def time(self, run: Callable[[], object]) -> TimedRun:
        run()
        return next(self._left[self.calls[-1]])


def steady(seconds: float, number: int = MOST) -> list[TimedRun]:
    return [TimedRun(seconds, False)] * number


def test_the_fastest_run_counts_and_the_first_does_not() -> None:
    runs = Runs(
        TORCH=[TimedRun(s / 100, False) for s in (3, 2, 4)], PATCHES=[TimedRun(s / 100, False) for s in (2, 3, 2.5)]
    )
    assert fastest(runs.kernels, runs.time) == {TORCH: 0.02, PATCHES: 0.02}
    assert runs.calls == ["TORCH", "PATCHES"] * (1 + ROUNDS)  # in turn, and the first of each is not timed


def test_a_hopeless_one_is_timed_once() -> None:
    runs = Runs(TORCH=steady(0.01), OTHER_FORMAT=steady(0.011), PATCHES=steady(0.03))
    assert fastest(runs.kernels, runs.time) == {TORCH: 0.01, OTHER: 0.011, PATCHES: 0.03}
    assert runs.calls.count("PATCHES") == 2
    assert runs.calls.count("OTHER_FORMAT") == 1 + ROUNDS
    runs = Runs(TORCH=steady(1), PATCHES=steady(3))
    fastest(runs.kernels, runs.time)
    assert len(runs.calls) == 4  # nothing is left to compare with


def test_torch_is_timed_again_even_if_its_first_run_was_slow() -> None:
    runs = Runs(TORCH=[TimedRun(0.09, False), *steady(0.01)], PATCHES=steady(0.02))
    assert fastest(runs.kernels, runs.time)[TORCH] == 0.01


def test_short_kernels_run_more_often() -> None:
    runs = Runs(TORCH=steady(1e-6), PATCHES=steady(1e-6))
    fastest(runs.kernels, runs.time)
    assert len(runs.calls) == 2 * (1 + MOST)


def test_long_kernels_run_once() -> None:
    runs = Runs(TORCH=steady(1), PATCHES=steady(1))
    assert fastest(runs.kernels, runs.time) == {TORCH: 1, PATCHES: 1}
    assert len(runs.calls) == 2 * 2


def test_disturbed_runs_do_not_count() -> None:
    disturbed = TimedRun(0.005, True)
    runs = Runs(TORCH=[disturbed, disturbed, *steady(0.02)], PATCHES=[disturbed, *steady(0.019)])
    assert fastest(runs.kernels, runs.time) == {TORCH: 0.02, PATCHES: 0.019}
    runs = Runs(TORCH=[disturbed] * MOST, PATCHES=steady(0.001))
    assert fastest(runs.kernels, runs.time) == {}  # nothing to compare with
    runs = Runs(TORCH=steady(0.01), PATCHES=[TimedRun(0.01, True)] * MOST)
    assert fastest(runs.kernels, runs.time) == {TORCH: 0.01}


def test_a_run_by_the_clock() -> None:
    calls: list[int] = []
    run = timed(lambda: calls.append(1))
    assert calls == [1]
    assert run.seconds > 0


def test_a_clear_gain_is_chosen() -> None:
    ms = 1e-3
    assert choose([{CONV: times(10 * ms, 4 * ms)}]) == [ChosenKernel(CONV, FORWARD, PATCHES, 4 * ms, 10 * ms)]
    assert choose([{CONV: times(10 * ms, 10.01 * MARGIN * ms)}]) == []
    assert choose([{CONV: times(2 * CALL, 1.01 * CALL)}]) == []  # less than the calls cost
    assert choose([{CONV: {FORWARD: {}, BY_DATA: {PATCHES: 1.0}}}]) == []
    assert choose([{}]) == []


def test_what_a_layer_saves_is_counted_together() -> None:
    both = {**times(2 * CALL, 1.4 * CALL), **times(2 * CALL, 1.4 * CALL, BY_WEIGHTS)}
    assert [each.role for each in choose([{CONV: both}])] == [FORWARD, BY_WEIGHTS]


def test_the_slowest_rank_decides() -> None:
    """Ranks without the layer, or without CPUs, do not count; an algorithm that one has not tried is out."""
    fast, slow = times(1.0, 0.5), times(1.0, 2.0)
    assert [each.seconds for each in choose([{CONV: fast}, {}, {CONV: times(1.5, 0.7)}])] == [0.7]
    assert choose([{CONV: fast}, {CONV: slow}]) == []
    assert choose([{CONV: fast}, {CONV: {FORWARD: {TORCH: 1.0, OTHER: 0.1}}}]) == []
    assert choose([{CONV: fast}, {CONV: {}}]) == []
    assert [each.layer for each in choose([{CONV: fast}, {IP: fast}])] == [CONV, IP]  # stages of a pipeline


def test_which_layers_are_tried() -> None:
    assert [node.name for node in tried_layers(net_of())] == ["ip", "conv"]  # "small" is too small
    assert not tried_layers(net_of(precision=BFLOAT16))
    part = Part(layers=frozenset({0, IP, 3}))
    assert [node.name for node in tried_layers(Net(graph_of(NET), part=part))] == ["ip"]


@pytest.fixture
def _known_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """No kernel runs: TORCH takes 2 s and all others 1 s."""

    def made_up(kernels: Mapping[Algorithm, object]) -> dict[Algorithm, float]:
        return {each: 2.0 if each == TORCH else 1.0 for each in kernels}

    monkeypatch.setattr(module, "fastest", made_up)


@pytest.mark.usefixtures("_known_times")
def test_each_kernel_that_training_needs() -> None:
    known: dict[str, KernelTimes] = {}
    found = measure(net_of(), LAST, known)
    assert {layer: set(roles) for layer, roles in found.items()} == {
        CONV: {FORWARD, BY_WEIGHTS},  # its bottom is data
        IP: {FORWARD, BY_DATA, BY_WEIGHTS},
    }
    assert list(known) == [
        "InnerProduct, 32×8×16×16, 32, 32×2048, 32, engine 2, float32, forward, by data, by weights",
        "Convolution, 32×1×20×20, 5×5, 8, 8×1×5×5, 8, engine 2, float32, forward, by weights",
    ]


@pytest.mark.usefixtures("_known_times")
def test_what_is_known_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    known: dict[str, KernelTimes] = {}
    measure(net_of(), LAST, known)
    before = dict(known)
    monkeypatch.setattr(module, "fastest", None)
    assert set(measure(net_of(), LAST, known)) == {CONV, IP}
    assert known == before
    assert measure(net_of(), LAST, {}, limit=0) == {}  # there is no time


@pytest.mark.usefixtures("_known_times")
def test_micro_batches() -> None:
    known: dict[str, KernelTimes] = {}
    measure(net_of(), LAST, known, micro_batches=3)
    assert all("11×" in text for text in known)  # the larger parts of 32


def test_what_was_disturbed_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "fastest", lambda kernels: {})
    known: dict[str, KernelTimes] = {}
    found = measure(net_of(), LAST, known)
    assert not known
    assert choose([found]) == []
    assert num_disturbed(found) == 5


def test_trials_of_real_kernels_change_nothing() -> None:
    net = net_of()
    before = [value.clone() for value in net.parameters()]
    found = measure(net, LAST, {})
    assert found[CONV].keys() == {FORWARD, BY_WEIGHTS}
    assert all(torch.equal(old, new) for old, new in zip(before, net.parameters(), strict=True))
    assert all(value.grad is None for value in net.parameters())


def test_layers_use_them() -> None:
    net = net_of()
    conv, ip = (net.layer(net.graph.nodes[index]) for index in (CONV, IP))
    use(net, [(CONV, FORWARD, PATCHES), (CONV, BY_WEIGHTS, OTHER), (0, FORWARD, PATCHES)])
    assert conv.algorithms == {FORWARD: PATCHES, BY_WEIGHTS: OTHER}
    assert not ip.algorithms
    use(net, [])
    assert not conv.algorithms


def test_words() -> None:
    graph = graph_of(NET)
    chosen = [ChosenKernel(CONV, BY_WEIGHTS, PATCHES, 0.0007, 0.0028)]
    assert described(graph, chosen) == "conv by weights PATCHES (0.7 ms, TORCH 2.8 ms)"
    assert described(graph, []) == "TORCH for all kernels, since no other is clearly faster"
    assert described(graph, [], 3) == (
        "TORCH for all kernels, since no other is clearly faster; 3 could not be measured, since other programs took "
        "the cores"
    )
    head, *table = algorithm_lines(graph, chosen)
    assert head == "Algorithms other than TORCH, and their times in the trials:"
    assert [line.split() for line in table] == [
        ["layer", "kernel", "algorithm", "ms", "TORCH", "ms", "faster", "by"],
        ["conv", "by", "weights", "PATCHES", "0.700", "2.800", "75%"],
    ]
    assert list(algorithm_lines(graph, [])) == ["Algorithms: TORCH for all kernels, since no other is clearly faster."]
