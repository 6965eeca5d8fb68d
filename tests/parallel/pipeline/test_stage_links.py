"""Links: blobs come in the order in which they were sent, whatever the other stage does meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest
import torch

from bpt.engine.instructions import Send
from bpt.parallel.pipeline.stage_links import StageLinks
from bpt.system.comm.base import Communicator
from tests.support.doubles.thread_ranks import ThreadCommunicator, run_ranks

T = TypeVar("T")


@pytest.fixture(params=[True, False], autouse=True)
def concurrent(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Libraries that allow calls from several threads, and such that do not."""
    monkeypatch.setattr(ThreadCommunicator, "concurrent", request.param)


def on(stages: int, function: Callable[[StageLinks], T]) -> list[T]:
    def run(comm: Communicator) -> T:
        links = StageLinks(comm)
        result = function(links)
        links.wait()
        links.close()
        return result

    return run_ranks(stages, run, timeout=120)


def numbers(first: int, *shape: int) -> torch.Tensor:
    return torch.arange(first, first + torch.Size(shape).numel(), dtype=torch.float32).view(shape)


def test_blobs_of_a_way_come_in_order() -> None:
    def run(links: StageLinks) -> list[list[float]]:
        if links.stages.rank == 0:
            for first in (0, 10, 20):
                links.send(numbers(first, 2), 1, 7, Send(0, 0))
            return []
        links.expect(2, 0, 7, torch.float32)
        links.expect(2, 0, 7, torch.float32)
        assert links.expected(0, 7) == 2
        found = [links.receive(0, 7).tolist()]
        links.expect(2, 0, 7, torch.float32)
        found += [links.receive(0, 7).tolist() for _ in range(2)]
        assert links.expected(0, 7) == 0
        return found

    assert on(2, run)[1] == [[0, 1], [10, 11], [20, 21]]


def test_tags_and_stages_do_not_mix() -> None:
    def run(links: StageLinks) -> list[list[float]]:
        rank = links.stages.rank
        if rank < 2:
            links.send(numbers(10 * rank, 1), 2, 1, Send(0, 0))
            links.send(numbers(10 * rank + 5, 1), 2, 2, Send(1, 0))
            return []
        ways = [(1, 2), (0, 1), (1, 1), (0, 2)]
        for way in ways:
            links.expect(1, *way, torch.float32)
        assert links.expected(0, 3) == 0
        return [links.receive(*way).tolist() for way in ways]

    assert on(3, run)[2] == [[15], [0], [10], [5]]


def test_both_ways_at_once() -> None:
    """Neither waits until the other receives."""

    def run(links: StageLinks) -> list[float]:
        rank = links.stages.rank
        links.send(numbers(100 * rank, 50), 1 - rank, 3, Send(0, 0))
        links.expect(50, 1 - rank, 3, torch.float32)
        return links.receive(1 - rank, 3).tolist()

    first, second = on(2, run)
    assert second == list(range(50))
    assert first == list(range(100, 150))


def test_elements_travel_in_their_logical_order() -> None:
    """Whatever the layout; nothing, and double precision, too."""
    blob = numbers(0, 2, 3, 2, 2)

    def run(links: StageLinks) -> list[torch.Tensor]:
        if links.stages.rank == 0:
            links.send(blob.to(memory_format=torch.channels_last), 1, 1, Send(0, 0))
            links.send(blob[:, 1], 1, 1, Send(0, 0))
            links.send(blob[:0], 1, 1, Send(0, 0))
            links.send(torch.tensor([0.1], dtype=torch.float64), 1, 2, Send(0, 0))
            links.send(blob.requires_grad_() * 2, 1, 1, Send(0, 0))
            return []
        for count in (24, 8, 0, 24):
            links.expect(count, 0, 1, torch.float32)
        links.expect(1, 0, 2, torch.float64)
        return [links.receive(0, 1) for _ in range(4)] + [links.receive(0, 2)]

    whole, slice_, empty, double, number = on(2, run)[1]
    expected = numbers(0, 2, 3, 2, 2)
    assert torch.equal(whole, expected.flatten())
    assert torch.equal(slice_, expected[:, 1].flatten())
    assert empty.shape == (0,)
    assert torch.equal(double, 2 * expected.flatten())
    assert number.item() == 0.1


def test_what_is_expected_can_be_dropped() -> None:
    def run(links: StageLinks) -> list[float]:
        if links.stages.rank == 0:
            for first in range(4):
                links.send(numbers(first, 1), 1, first % 2, Send(0, 0))
            return []
        links.expect(1, 0, 0, torch.float32)
        links.expect(1, 0, 1, torch.float32)
        links.drop()
        found = []
        for tag in (0, 1):
            assert links.expected(0, tag) == 0
            links.expect(1, 0, tag, torch.float32)
            found += links.receive(0, tag).tolist()
        return found

    assert on(2, run)[1] == [2, 3]


def test_requests_do_not_pile_up() -> None:
    """What has left is forgotten, also where nobody waits for it."""

    def run(links: StageLinks) -> int:
        for first in range(10):
            if links.stages.rank == 0:
                links.send(numbers(first, 1), 1, 1, Send(0, 0))
                links.expect(1, 1, 2, torch.float32)
                links.receive(1, 2)
            else:
                links.expect(1, 0, 1, torch.float32)
                links.receive(0, 1)
                links.send(numbers(first, 1), 0, 2, Send(0, 0))
        return len(links._leaving)

    assert max(on(2, run)) <= 2
