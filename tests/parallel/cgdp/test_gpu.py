"""CGDP on a GPU that two ranks share: gradients that a kernel makes late are sent when they are there."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from bpt.parallel.exchange import EXCHANGES, Bucket
from bpt.system.comm.base import Communicator
from bpt.system.comm.comm_thread import CommThread
from tests.support.doubles.thread_ranks import run_ranks

pytestmark = pytest.mark.gpu

CUDA = torch.device("cuda", 0)
SIZE = 2**20
KERNEL = 50_000_000  # clock ticks: tens of milliseconds


def test_sums_of_gradients_that_are_made_late() -> None:
    def run(comm: Communicator) -> list[torch.Tensor]:
        with torch.cuda.stream(torch.cuda.Stream(CUDA)):  # threads of one process would share the default stream
            parameters = [nn.Parameter(torch.zeros(SIZE, device=CUDA)) for _ in range(2)]
            own = comm.Dup()
            buckets = [[Bucket([(f"p{number}", p)], own)] for number, p in enumerate(parameters)]
            exchange = EXCHANGES["CGDP"](buckets, CommThread(comm), CUDA)
            found = []
            for iteration in range(5):
                for number in (1, 0):
                    torch.cuda._sleep(KERNEL)
                    values = torch.arange(SIZE, device=CUDA, dtype=torch.float32) % 1000
                    parameters[number].grad = values * (comm.rank + 1) + number + iteration
                    exchange.start(number)
                exchange.wait()
                found += [p.grad.clone() for p in parameters if p.grad is not None]
            torch.cuda.synchronize(CUDA)
            result = [each.cpu() for each in found]
            exchange.close()
            return result

    indices = torch.arange(SIZE, dtype=torch.float32) % 1000
    for found in run_ranks(2, run):
        for iteration in range(5):
            for number in range(2):
                # Ranks have 1 and 2 times the index, and both the two numbers.
                expected = indices * 3 + 2 * (number + iteration)
                assert torch.equal(found[2 * iteration + number], expected), (iteration, number)
