"""Outputs of a net as those of the whole batch: sums added up, rows in the order of the batch, slaves left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import pytest
import torch

from bpt.config.proto import bpt_pb2 as pb
from bpt.nn.net import Net
from bpt.nn.pass_context import PassContext
from bpt.system.comm.base import Communicator
from bpt.system.comm.serial import SerialCommunicator
from bpt.train.runtime.outputs import Outputs
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.golden_cases import graph_of
from tests.support.layer_ranks import rows_of, shares_of

T = TypeVar("T")

# Outputs: accuracy and by_class (of 3 classes), loss, p (the probabilities), quiet (rows that no layer reads).
NET = """
layer { name: "in" type: "Input" top: "x" top: "y" input_param { shape { dim: 6 dim: 3 } shape { dim: 6 } } }
layer { name: "other" type: "Input" top: "quiet" input_param { shape { dim: 6 dim: 2 dim: 2 } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "x" bottom: "y" top: "loss" top: "p" }
layer { name: "accuracy" type: "Accuracy" bottom: "x" bottom: "y" top: "accuracy" top: "by_class" }
"""
COUNTS = (3, 1, 2)


def edge_of(net: Net, blob: str) -> int:
    return net.graph.blobs[blob].index


def on_ranks(function: Callable[[Net, Outputs, int], T], phase: int = pb.TRAIN, rotation: float = 0.0) -> list[T]:
    """What ``function`` returns for the net, its outputs, and each rank."""

    def run(comm: Communicator) -> T:
        share = shares_of(COUNTS)[comm.rank]
        context = PassContext(ranks=comm.size, split=lambda samples: share, rotation=rotation)
        net = Net(graph_of(NET, phase), context)
        return function(net, Outputs(net, comm), comm.rank)

    return run_ranks(len(COUNTS), run)


def row_numbers(rows: Sequence[int], *shape: int) -> torch.Tensor:
    """A row of ``shape`` for each number, filled with it."""
    return torch.tensor(rows, dtype=torch.float32).view(-1, *[1] * len(shape)).expand(-1, *shape)


def values_on(net: Net, rank: int, rotation: float = 0.0) -> dict[int, torch.Tensor]:
    rows = rows_of(shares_of(COUNTS)[rank], rotation)
    found = {
        "loss": torch.tensor(10.0**rank),
        "accuracy": torch.tensor(0.25 * rank),
        "by_class": torch.tensor([1.0, 10.0, 100.0]) * rank,
        "p": row_numbers(rows, 3),
        "quiet": row_numbers(rows, 2, 2),
    }
    return {edge_of(net, blob): value for blob, value in found.items()}


WHOLE = {
    "loss": torch.tensor(111.0),  # 1 + 10 + 100
    "accuracy": torch.tensor(0.75),  # 0 + 0.25 + 0.5
    "by_class": torch.tensor([3.0, 30.0, 300.0]),  # (0 + 1 + 2) times
    "p": row_numbers(range(6), 3),
    "quiet": row_numbers(range(6), 2, 2),
}


def check(found: dict[str, torch.Tensor]) -> None:
    assert found.keys() == WHOLE.keys()
    for blob, expected in WHOLE.items():
        torch.testing.assert_close(found[blob], expected, rtol=0, atol=0)


@pytest.mark.parametrize(("phase", "rotation"), [(pb.TRAIN, 0.0), (pb.TRAIN, 0.6), (pb.TEST, 0.0)])
def test_all_ranks_get_the_whole_batch(phase: int, rotation: float) -> None:
    """Shares that are turned, as in later epochs, are turned back: 0.6 of 6 rows are 3."""
    for found in on_ranks(lambda net, o, rank: o.whole(values_on(net, rank, rotation)), phase, rotation):
        check(found)


def test_a_test_net_does_not_turn_back_what_the_training_net_has_turned() -> None:
    for found in on_ranks(lambda net, o, rank: o.whole(values_on(net, rank)), pb.TEST, rotation=0.6):
        check(found)


def test_a_rank_without_samples() -> None:
    def run(comm: Communicator) -> dict[str, torch.Tensor]:
        share = shares_of((6, 0))[comm.rank]
        net = Net(graph_of(NET), PassContext(ranks=2, split=lambda samples: share))
        values = {
            edge.index: torch.zeros(share.count, *edge.shape[1:]) if edge.blob in ("p", "quiet") else torch.tensor(1.0)
            for edge in net.graph.outputs
        }
        values[edge_of(net, "by_class")] = torch.ones(3)
        values[edge_of(net, "quiet")] = row_numbers(rows_of(share), 2, 2)
        return Outputs(net, comm).whole(values)

    for found in run_ranks(2, run):
        torch.testing.assert_close(found["quiet"], WHOLE["quiet"])
        assert found["p"].shape == (6, 3)
        assert found["loss"] == 2


def test_the_values_given_stay_what_they_are() -> None:
    """A test adds them up over its batches."""

    def look(net: Net, outputs: Outputs, rank: int) -> bool:
        values = values_on(net, rank)
        outputs.whole(values)
        return all(torch.equal(values[edge], value) for edge, value in values_on(net, rank).items())

    assert all(on_ranks(look))


@pytest.mark.parametrize("number", [torch.float32, torch.float64])
def test_precision(number: torch.dtype) -> None:
    """Blobs may be of double precision; what is shown never is."""
    found = on_ranks(lambda net, o, rank: o.whole({e: v.to(number) for e, v in values_on(net, rank).items()}))
    for outputs in found:
        assert {value.dtype for value in outputs.values()} == {torch.float32}
        check(outputs)


def test_rows_that_do_not_lie_side_by_side() -> None:
    def look(net: Net, outputs: Outputs, rank: int) -> torch.Tensor:
        values = values_on(net, rank)
        wide = torch.stack([values[edge_of(net, "p")]] * 2, dim=-1)[..., 0]
        assert not wide.numel() or not wide.is_contiguous()
        return outputs.whole(values | {edge_of(net, "p"): wide})["p"]

    for found in on_ranks(look):
        torch.testing.assert_close(found, WHOLE["p"])


def test_losses_in_all() -> None:
    assert on_ranks(lambda net, outputs, rank: outputs.total(10.0**rank)) == [111.0] * 3


def test_a_rank_that_is_alone_gives_what_it_has() -> None:
    net = Net(graph_of(NET))
    values = {edge.index: torch.rand(edge.shape) for edge in net.graph.outputs}
    for outputs in (Outputs(net), Outputs(net, SerialCommunicator())):
        found = outputs.whole(values)
        assert list(found) == ["accuracy", "by_class", "loss", "p", "quiet"]
        assert all(torch.equal(found[net.graph.edges[edge].blob], value) for edge, value in values.items())
        assert outputs.total(3.0) == 3.0


def test_a_slave_has_none() -> None:
    """Its master sums with other masters; it is in no call."""
    net = Net(graph_of(NET))
    outputs = Outputs(net, None, present=False)
    assert outputs.edges == ()
    assert outputs.whole({}) == {}
    assert outputs.total(3.0) == 0.0


@pytest.mark.parametrize("rest", ['top: "loss" } layer { name: "quiet" type: "Silence" bottom: "loss" }', "}"])
def test_the_loss_of_a_net_without_outputs(rest: str) -> None:
    """It is in the loss though nobody shows it: another layer reads it, or it has no name."""
    start = NET.splitlines()[1] + ' layer { name: "loss" type: "SoftmaxWithLoss" bottom: "x" bottom: "y" '
    net = Net(graph_of(start + rest))
    assert net.graph.outputs == ()
    assert run_ranks(2, lambda comm: Outputs(net, comm).total(1.0 + comm.rank)) == [3.0, 3.0]
    assert Outputs(net).total(1.5) == 1.5
