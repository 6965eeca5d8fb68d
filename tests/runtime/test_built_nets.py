"""The nets of a run on one of its ranks: what it holds of them, how they are cut, what they share."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
import torch

from bpt.config.plan.nets import file_plan
from bpt.config.precision import FLOAT32
from bpt.config.proto import bpt_pb2 as pb
from bpt.engine.operator import Operator
from bpt.nn.net import Net
from bpt.nn.net_graph import build_graph_of
from bpt.parallel.model_parallel.peer import Peer
from bpt.train.runtime.built_nets import Builder, Built
from bpt.train.runtime.parallel import Parallel
from bpt.train.runtime.train_options import DEFAULT_OPTIONS, TrainOptions
from tests.runtime.parallels import NET, PEER, named, on_ranks

T = TypeVar("T")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.prototxt").write_text(NET)


def builder_of(parallel: Parallel, observable: bool = False, options: TrainOptions = DEFAULT_OPTIONS) -> Builder:
    return Builder(4, FLOAT32, parallel, observable, options)


def build(
    builder: Builder, phase: int = pb.TRAIN, shared: dict[tuple[str, int], torch.nn.Parameter] | None = None
) -> Built:
    plan = file_plan("net.prototxt", phase)
    return builder.build("net from", plan, build_graph_of(plan), shared)


def on_peers(function: Callable[[Parallel], T]) -> list[T]:
    return on_ranks(2, function, PEER)


def test_each_peer_holds_its_slice_of_the_same_weights() -> None:
    def weights(parallel: Parallel) -> torch.Tensor:
        built = build(builder_of(parallel))
        assert isinstance(built.operator.collectives, Peer)
        return named(built.operator.net)["fc/0"].detach()

    first, second = on_peers(weights)
    (whole,) = on_ranks(1, lambda parallel: named(build(builder_of(parallel)).operator.net)["fc/0"].detach())
    assert [len(first), len(second)] == [3, 2]
    assert torch.equal(torch.cat([first, second]), whole)


def test_a_test_net_shares_its_parameters() -> None:
    def look(parallel: Parallel) -> None:
        builder = builder_of(parallel)
        train = build(builder)
        test = build(builder, pb.TEST, train.operator.net.values_by_name())
        ours, theirs = (built.operator.net.values_by_name() for built in (train, test))
        assert ours.keys() == theirs.keys()
        assert all(theirs[key] is value for key, value in ours.items())

    on_peers(look)
    on_ranks(1, look)


def test_only_training_nets_are_cut_to_overlap_the_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bpt.train.runtime.parallel.SEGMENT", 25)

    def cuts(parallel: Parallel) -> list[int]:
        builder = builder_of(parallel)
        return [len(build(builder, phase).operator.segments) for phase in (pb.TRAIN, pb.TEST)]

    assert on_ranks(2, cuts) == [[3, 1]] * 2
    assert on_ranks(1, cuts) == [[1, 1]]


def test_observable_nets_have_a_segment_a_layer() -> None:
    def cut(parallel: Parallel) -> tuple[type, int]:
        operator = build(builder_of(parallel, observable=True)).operator
        return type(operator), len(operator.segments)

    assert on_ranks(2, cut) == [(Operator, 8)] * 2


def test_operators_of_ones_own() -> None:
    class Own(Operator):
        pass

    def look(parallel: Parallel) -> type:
        options = TrainOptions(make_operator=lambda net, device: Own(net, device=device))
        return type(build(builder_of(parallel, options=options)).operator)

    assert on_ranks(1, look) == [Own]


def test_a_slave_shows_no_outputs() -> None:
    def blobs(parallel: Parallel) -> list[str]:
        return [edge.blob for edge in build(builder_of(parallel)).outputs.edges]

    assert on_ranks(2, blobs, "num_shards: 2 fc_param { scheme: MASTER_SLAVE }") == [["loss"], []]


def test_what_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """Of the whole net, whatever this rank holds of it."""
    with caplog.at_level(logging.INFO, "bpt"):
        on_peers(lambda parallel: build(builder_of(parallel)))
    said = ["Creating net from net file: net.prototxt", "small: 8 layers, 80 parameters, outputs loss"]
    assert sorted(caplog.messages) == sorted(said * 2)


def test_the_net_knows_the_run() -> None:
    def look(parallel: Parallel) -> None:
        net: Net = build(builder_of(parallel)).operator.net
        assert net.context.seed == 4
        assert net.context.ranks == 2

    on_ranks(2, look)
