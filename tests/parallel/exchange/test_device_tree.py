"""TREE between devices: the protocol on memory of threads, which all of them can read; on GPUs where there are."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from bpt.config.plan.resolve import read_plan
from bpt.parallel.exchange import EXCHANGES, device_tree
from bpt.parallel.exchange.device_tree import DeviceTree
from bpt.system.comm.base import Communicator
from bpt.system.device import CPU
from bpt.train.runtime.binding import bind
from tests.support.doubles.seen import Seen
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.exchange_groups import Rank
from tests.support.mpirun import mpirun, needs_mpi

TREE = EXCHANGES["TREE"]


@pytest.fixture
def readable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handle is the tensor itself, since ranks are threads here; and the device takes part though it is a CPU."""
    monkeypatch.setattr(device_tree, "share", lambda tensor: tensor)
    monkeypatch.setattr(device_tree, "open_shared", lambda tensor: tensor)
    made = DeviceTree.made
    monkeypatch.setattr(DeviceTree, "made", lambda bucket, device: made(bucket, CPU))


class Meta:
    """A device that is none of a CPU's by name; parameters stay where they are."""

    type = "cuda"


def run_on(ranks: int, device: object, hosts: list[str] | None = None) -> list[tuple[object, object, object]]:
    def run(comm: Communicator) -> tuple[object, object, object]:
        rank = Rank(comm, TREE, device=device)  # type: ignore[arg-type]
        found = []
        seen = Seen(comm)
        for iteration in range(3):  # again and again, with no rank in step
            rank.exchange.broadcast()
            rank.exchange.broadcast()
            rank.give(a=1.0 + comm.rank, b=10.0 * comm.rank + iteration, c=0.5 if comm.rank else None)
            rank.run()
            found.append(rank.gradients)
        methods = {method for _, method in seen.calls()}
        weights = rank.weights
        rank.exchange.close()
        return found, weights, methods

    return run_ranks(ranks, run, hosts=hosts)


@pytest.mark.usefixtures("readable")
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 7])
def test_sums_and_weights(ranks: int) -> None:
    """Ranks bring 1, 2, … and 0, 10, … and 0, 0.5, 0.5, …"""
    (found, weights, methods), *others = run_on(ranks, Meta())
    total = ranks * (ranks - 1) / 2
    expected = [
        {"a": [total + ranks] * 3, "b": [10 * total + ranks * iteration] * 2, "c": [(ranks - 1) / 2] * 4}
        for iteration in range(3)
    ]
    assert found == (expected if ranks > 1 else [{**each, "c": None} for each in expected])
    assert [other[0] for other in others] == [[{"a": None, "b": None, "c": None}] * 3] * (ranks - 1)
    assert [other[1] for other in others] == [weights] * (ranks - 1)
    assert methods == ({"D2D", "Send", "Recv"} if ranks > 1 else set())


def test_bytes_by_link(readable: None) -> None:
    def run(comm: Communicator) -> dict[str, tuple[int, int]]:
        rank = Rank(comm, TREE, device=Meta())  # type: ignore[arg-type]
        seen = Seen(comm)
        rank.exchange.wait()
        return {label: (t.sent, t.received) for (label, method), t in seen.calls().items() if method == "D2D"}

    first, second = run_ranks(2, run)
    assert first == {"X1 c": (0, 16), "X0 a … b": (0, 20)}
    assert second == {"X1 c": (16, 0), "X0 a … b": (20, 0)}


@pytest.mark.parametrize("what", ["nothing can be shared", "it reads as something else", "one rank cannot open it"])
def test_where_memory_cannot_be_read_messages_go_through_the_host(
    what: str, readable: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if what == "nothing can be shared":
        monkeypatch.setattr(device_tree, "open_shared", lambda tensor: None)
    elif what == "it reads as something else":
        monkeypatch.setattr(device_tree, "open_shared", lambda tensor: tensor + 1)
    else:
        monkeypatch.setattr(device_tree, "open_shared", lambda tensor: None if (tensor == 0).all() else tensor)
    (found, _, methods), *_ = run_on(3, Meta())
    assert found[0] == {"a": [6, 6, 6], "b": [30, 30], "c": [1] * 4}  # type: ignore[index]
    assert methods == {"Isend", "Irecv"}


def test_hosts_apart_send_messages(readable: None) -> None:
    assert run_on(3, Meta(), ["a", "a", "b"])[0][2] == {"Isend", "Irecv"}


@needs_mpi
@pytest.mark.gpu
def test_processes_that_share_a_gpu(tmp_path: Path) -> None:
    """They train as one process does, without the host between them."""
    solver = small_text(tmp_path, "parallel_param { exchange: TREE }\n")
    words = [sys.executable, "-m", "bpt", "check", "--solver", str(solver), "--iterations", "2", "--gpu", "0"]
    done = mpirun(2, words)
    assert done.returncode == 0, done.stderr
    words[3] = "time"
    done = mpirun(2, words)
    assert " D2D " in done.stderr + done.stdout


def small_text(folder: Path, more: str) -> Path:
    """The solver of a small net on images that are drawn."""
    (folder / "net.prototxt").write_text(NET)
    path = folder / "solver.prototxt"
    path.write_text(f'net: "{folder}/net.prototxt" base_lr: 0.01 lr_policy: "fixed" max_iter: 9 random_seed: 1\n{more}')
    return path


NET = """
layer { name: "data" type: "DummyData" top: "data" top: "label"
  dummy_data_param { shape { dim: 4 dim: 3 dim: 5 dim: 5 } shape { dim: 4 }
    data_filler { type: "gaussian" std: 1 } data_filler { type: "constant" value: 1 } } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
  inner_product_param { num_output: 6 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""


def test_the_text_of_the_gpu_test(tmp_path: Path) -> None:
    """On CPUs, so that what the test above trains is known to train."""
    plan = read_plan(str(small_text(tmp_path, "parallel_param { exchange: TREE }\n")))
    with bind(plan) as runtime:
        assert runtime.iterate() > 0


@pytest.mark.gpu
def test_on_a_gpu() -> None:
    """Ranks that are threads of one process, of which torch knows that they share memory."""
    device = torch.device("cuda", 0)

    def run(comm: Communicator) -> tuple[object, set[str]]:
        with torch.cuda.stream(torch.cuda.Stream(device)):
            rank = Rank(comm, TREE, device=device)
            for parameter in rank.parameters.values():
                parameter.data = parameter.data.to(device)
            seen = Seen(comm)
            rank.exchange.broadcast()
            rank.give(a=1.0 + comm.rank, b=10.0 * comm.rank, c=0.5 if comm.rank else None)
            rank.run()
            result = rank.gradients, {method for _, method in seen.calls()}
            rank.exchange.close()
            return result

    (gradients, methods), *_ = run_ranks(3, run)
    assert gradients == {"a": [6, 6, 6], "b": [30, 30], "c": [1] * 4}
    assert "D2D" in methods
