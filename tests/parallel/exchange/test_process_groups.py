"""Sums by torch.distributed: real groups of gloo among threads, and the choice of the library on pretended GPUs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from bpt.base.errors import LostRankError, RunError
from bpt.config.plan.run_plan import ParallelSpec
from bpt.config.proto import bpt_pb2 as pb
from bpt.parallel.exchange import EXCHANGES
from bpt.parallel.exchange.transport import process_groups
from bpt.parallel.exchange.transport.process_groups import ProcessGroups, backend_of
from bpt.system.comm.base import Communicator
from bpt.system.comm.process_group import explained
from bpt.system.device import CPU
from tests.support.doubles.seen import Seen
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.exchange_groups import Rank

BY_TORCH = replace(ParallelSpec(), transport=pb.ParallelParameter.TORCH_DISTRIBUTED)
CUDA = torch.device("cuda:0")


def summed(comm: Communicator, kind: str, param: ParallelSpec) -> tuple[dict[str, Any], dict[Any, Any]]:
    """What ranks with random gradients get, and what is counted of it."""
    rank = Rank(comm, partial(EXCHANGES[kind], param=param))
    generator = torch.Generator().manual_seed(comm.rank)
    for name, parameter in rank.parameters.items():
        if name != "b" or comm.rank:  # one rank has no gradient of b: it counts as zeros
            parameter.grad = torch.randn(parameter.shape, generator=generator)
    seen = Seen(comm)
    rank.run()
    calls = {key: (traffic.calls, traffic.sent, traffic.received) for key, traffic in seen.calls().items()}
    rank.exchange.close()
    return {name: parameter.grad for name, parameter in rank.parameters.items()}, calls


@pytest.mark.parametrize("kind", ["ALLREDUCE", "RING"])
@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("shares", [True, False], ids=["shared memory", "gloo"])
def test_sums_and_counted_bytes_are_those_of_the_communicator(
    kind: str, ranks: int, shares: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(comm: Communicator) -> None:
        raise RunError("the ranks on host a cannot share 4194432 bytes of memory")

    if not shares:
        monkeypatch.setattr(process_groups, "WindowSum", refuse)

    def run(comm: Communicator) -> None:
        grads, calls = summed(comm, kind, BY_TORCH)
        expected, counted = summed(comm, "ALLREDUCE", ParallelSpec())
        assert calls == counted
        for name, grad in grads.items():
            torch.testing.assert_close(grad, expected[name], rtol=1e-6, atol=1e-6)
        bits = comm.allgather([grad.numpy().tobytes() for grad in grads.values()])
        assert bits == [bits[0]] * comm.size

    run_ranks(ranks, run)
    assert ("gloo sums gradients, which is slower: the ranks on host a cannot share" in caplog.text) != shares


@pytest.mark.parametrize(
    ("gpus", "has_nccl", "backend"),
    [("ab", True, "nccl"), ("aa", True, "gloo"), ("ab", False, "gloo")],
    ids=["a GPU each", "one GPU", "a PyTorch without NCCL"],
)
def test_nccl_sums_where_each_rank_has_a_gpu_of_its_own(
    gpus: str, has_nccl: bool, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.distributed.is_nccl_available", lambda: has_nccl)
    monkeypatch.setattr("torch.cuda.get_device_properties", lambda device: SimpleNamespace(uuid=gpus[device.index]))
    assert run_ranks(2, lambda comm: backend_of(comm, torch.device("cuda", comm.rank))) == [backend] * 2
    assert run_ranks(2, lambda comm: backend_of(comm, CPU if comm.rank else CUDA)) == ["gloo"] * 2


class PretendedNccl:
    """What NCCL does as far as the host sees it: it enqueues, and the sum is there when the stream is."""

    def __init__(self, calls: list[str]) -> None:
        self.calls = calls

    def allreduce(self, tensors: list[torch.Tensor]) -> SimpleNamespace:
        self.calls.append("enqueue")
        tensors[0] *= 2
        return SimpleNamespace(wait=lambda: self.calls.append("stream waits"))

    def shutdown(self) -> None:
        self.calls.append("shutdown")


def test_nccl_sums_in_the_memory_of_the_device_and_the_host_reads_no_sum_before_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    places: list[torch.device] = []
    calls: list[str] = []
    monkeypatch.setattr(process_groups, "backend_of", lambda comm, device: "nccl")
    monkeypatch.setattr(process_groups, "_nccl", lambda comm: PretendedNccl(calls))

    def run(comm: Communicator) -> None:
        rank = Rank(comm, EXCHANGES["ALLREDUCE"])
        bucket = rank.bucket_of["c",]
        rank.give(c=3)
        pack = bucket.pack_gradients_on

        def pack_on(device: torch.device) -> list[torch.Tensor]:
            places.append(device)
            return pack(CPU)

        bucket.pack_gradients_on = pack_on  # type: ignore[method-assign]
        monkeypatch.setattr(
            "torch.cuda.current_stream", lambda device: SimpleNamespace(synchronize=lambda: calls.append("host waits"))
        )
        groups = ProcessGroups([bucket.comm, bucket.comm], CUDA)
        ((name, sum_up),) = groups.packed(bucket)
        sum_up()
        assert name == "c"
        groups.close()

    run_ranks(1, run)
    assert places == [CUDA]
    assert calls == ["enqueue", "stream waits", "host waits", "shutdown"]


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (
            "[pair.cc:553] Connection closed by peer [127.0.0.1]:25496",
            LostRankError,
            "another rank is gone (noticed in",
        ),
        ("Socket Timeout", RunError, "another rank is gone"),
        ("Invalid scalar type\nmore", RunError, "Allreduce of 3 ranks failed: Invalid scalar type"),
    ],
)
def test_errors_of_the_library_say_what_happened(text: str, kind: Callable[..., Exception], message: str) -> None:
    error = explained("Allreduce", 3, RuntimeError(text))
    assert isinstance(error, kind)  # type: ignore[arg-type]
    assert message in str(error)
    assert "more" not in str(error).split()
