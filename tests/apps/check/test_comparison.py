"""``bpt check``: training on many ranks is compared with one process, and a mistake anywhere in it is found."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from bpt.apps.check import comparison
from bpt.apps.check.comparison import Compared, compare
from bpt.base.errors import LayerError
from bpt.config.plan.resolve import read_plan
from bpt.config.precision import FLOAT32, FLOAT64, Precision
from bpt.graph.share import Share
from bpt.graph.staging import Staging
from bpt.nn.net import Net
from bpt.nn.net_graph import build_graph_of
from bpt.parallel.balance import Uniform, rank_facts
from bpt.parallel.balance.batch_shares import tile
from bpt.parallel.balance.profile import Profile, RankSpeed, write_profile
from bpt.parallel.balance.speed import Estimate
from bpt.parallel.exchange import Bucket
from bpt.parallel.exchange.local import Local
from bpt.parallel.exchange.tree import Tree
from bpt.parallel.pipeline import Pipeline
from bpt.system.comm.base import Communicator
from bpt.system.device import CPU
from bpt.train.runtime.parameter_sync import ParameterSync
from tests.support.compared import gradient_in
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.golden_cases import graph_of
from tests.support.small_solver import NET, SOLVER, small_solver

TOLERANCE = 1e-5
WITH_BATCH_NORM = NET.replace(
    'layer { name: "ip"',
    'layer { name: "bn" type: "BatchNorm" bottom: "conv" top: "conv" }\n'
    'layer { name: "drop" type: "Dropout" bottom: "conv" top: "conv" }\n'
    'layer { name: "ip"',
)


def compared(
    folder: Path, ranks: int, *overrides: str, net: str = NET, precision: Precision = FLOAT64
) -> list[Compared]:
    """What ``ranks`` ranks and one process make of 4 iterations."""
    path = small_solver(folder, net=net, text=SOLVER).path

    def run(comm: Communicator) -> list[Compared]:
        result, _ = compare(read_plan(path, overrides), CPU, comm, 4, precision)
        assert comm.rank == 0 or result == []
        return result

    return run_ranks(ranks, run)[0]


def differing(found: list[Compared], tolerance: float = TOLERANCE) -> list[str]:
    return [line.name for line in found if not line.within(tolerance)]


ALL = ["conv/0", "conv/1", "ip/0", "ip/1"]
PARALLEL = {
    "alone": (1, ""),
    "stages of shards": (8, "parallel_param { num_stages: 2 num_shards: 2 pipeline_param { micro_batches: 2 } }"),
    "stages of shards, as tasks": (
        4,
        "parallel_param { num_stages: 2 num_shards: 2 fc_param { scheme: MASTER_SLAVE } "
        "pipeline_param { schedule: ONE_F_ONE_B } inner_param { engine: TASK_DAG num_threads: 2 } }",
    ),
    "allreduce": (3, "iter_size: 2 clip_gradients: 0.5"),
    "tree": (2, "parallel_param { exchange: TREE }"),
    "peers": (2, "clip_gradients: 0.5 parallel_param { num_shards: 2 }"),
    "masters": (4, "parallel_param { num_shards: 2 fc_param { scheme: MASTER_SLAVE } }"),
    "replica": (3, "parallel_param { batch_scope: REPLICA }"),
    "ring": (3, "parallel_param { exchange: RING }"),
    "cgdp": (2, "parallel_param { exchange: CGDP }"),
    "stages": (2, "parallel_param { num_stages: 2 pipeline_param { micro_batches: 2 } }"),
    "local": (3, "parallel_param { exchange: LOCAL local_param { steps: 3 } } clip_gradients: 0.05"),
    "local, moments kept": (
        2,
        "parallel_param { exchange: LOCAL local_param { steps: 2 start_iter: 1 momentum: KEEP } }",
    ),
    "local, moments reset": pytest.param(
        (
            3,
            "parallel_param { exchange: LOCAL local_param { steps: 2 momentum: RESET } "
            "balance_param { normalizer: UNIFORM } } average_param { decay: 0.5 }",
        ),
        marks=pytest.mark.slow,
    ),
    "local, stages of shards": pytest.param(
        (
            8,
            "parallel_param { exchange: LOCAL local_param { steps: 3 } num_stages: 2 num_shards: 2 "
            "pipeline_param { micro_batches: 2 } }",
        ),
        marks=pytest.mark.slow,
    ),
    "local, masters": pytest.param(
        (
            4,
            "parallel_param { exchange: LOCAL local_param { steps: 3 } num_shards: 2 fc_param { scheme: MASTER_SLAVE } "
            "batch_scope: REPLICA }",
        ),
        marks=pytest.mark.slow,
    ),
    "tasks": (2, "parallel_param { inner_param { engine: TASK_DAG num_threads: 2 } }"),
}


@pytest.mark.parametrize("ranks", PARALLEL.values(), ids=PARALLEL)
def test_many_ranks_train_like_one(ranks: tuple[int, str], tmp_path: Path) -> None:
    found = compared(tmp_path, *ranks)
    assert [line.name for line in found] == ALL
    assert all(gradient_in(line).size > 0 and line.weight.size > 0 for line in found)
    assert differing(found, 1e-12) == []  # anything in single precision on the way would be off by 1e-8


@pytest.mark.parametrize("settings", [pytest.param("", marks=pytest.mark.slow), "start_iter: 2"])
def test_replicas_of_hosts_that_update_by_themselves(settings: str, tmp_path: Path) -> None:
    """Ranks of a host sum gradients; the hosts have 5 and 3 of 8 samples."""
    path = small_solver(tmp_path).path
    text = f"parallel_param {{ exchange: LOCAL local_param {{ steps: 3 sum_within_hosts: true {settings} }} }}"

    def run(comm: Communicator) -> list[Compared]:
        return compare(read_plan(path, [text]), CPU, comm, 4)[0]

    found = run_ranks(5, run, hosts=["north", "south", "north", "south", "north"])[0]
    assert [line.name for line in found] == ALL
    assert differing(found, 1e-12) == []


def test_batch_norm_over_ranks(tmp_path: Path) -> None:
    """Without ``sync_batch_norm`` each normalises its own samples: another net, and it is found to be one."""
    sync = "parallel_param { sync_batch_norm: true }"
    found = compared(tmp_path, 2, sync, net=WITH_BATCH_NORM)
    assert differing(found) == []
    assert [line.name for line in found if line.excepted] == ["conv/1"]
    assert "ip/0" in differing(compared(tmp_path, 2, net=WITH_BATCH_NORM))


def test_batch_norm_of_micro_batches_on_shards(tmp_path: Path) -> None:
    """Each peer normalises its own samples; the one process took them for those of the whole replica."""
    net = WITH_BATCH_NORM.replace('layer { name: "drop" type: "Dropout" bottom: "conv" top: "conv" }\n', "")
    for scheme in ("PEER", "MASTER_SLAVE"):
        shards = f"num_shards: 2 fc_param {{ scheme: {scheme} }}"
        text = f"parallel_param {{ num_stages: 2 pipeline_param {{ micro_batches: 2 }} {shards} }}"
        assert differing(compared(tmp_path, 4, text, net=net)) == [], scheme


def test_batch_norm_over_replicas_and_micro_batches(tmp_path: Path) -> None:
    """All of them together is what one process does; some of each rank's samples are no micro-batch of its."""
    sync = "parallel_param {{ num_stages: 2 sync_batch_norm: true pipeline_param {{ micro_batches: 2 {} }} }}"
    assert differing(compared(tmp_path, 4, sync.format("batch_norm_over: BATCH"), net=WITH_BATCH_NORM)) == []
    with pytest.raises(LayerError, match=r'layer "bn": it normalises each micro-batch .*batch_norm_over: BATCH'):
        compared(tmp_path, 4, sync.format(""), net=WITH_BATCH_NORM)


def test_what_is_not_trained_is_left_out(tmp_path: Path) -> None:
    net = NET.replace('top: "conv"', 'top: "conv" param { lr_mult: 0 }')
    assert [line.name for line in compared(tmp_path, 2, net=net)] == ["conv/1", "ip/0", "ip/1"]


@pytest.mark.parametrize("precision", [FLOAT32, FLOAT64])
def test_precision(precision: Precision, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What torch makes without being told stays as it is: other threads of the process make tensors, too."""
    seen: set[torch.dtype] = set()
    default: set[torch.dtype] = set()
    run = Net.run

    def spy(net: Net, start: int, end: int, values: dict[int, Tensor], *more: object) -> None:
        run(net, start, end, values, *more)  # type: ignore[arg-type]
        default.add(torch.get_default_dtype())
        seen.update(value.dtype for value in (*values.values(), *net.parameters()))

    monkeypatch.setattr(Net, "run", spy)
    assert differing(compared(tmp_path, 2, precision=precision)) == []
    assert seen == {precision.compute}
    assert default == {torch.float32}


def test_without_a_seed_both_start_from_the_same_weights(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "bpt"):
        assert differing(compared(tmp_path, 1)) == []
    assert sum(message.startswith("random_seed is not set; using ") for message in caplog.messages) == 1
    assert "Now the same on one process" in caplog.messages


def test_nothing_is_tested_or_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    more = f'test_iter: 1 test_interval: 1 snapshot: 1 snapshot_prefix: "{tmp_path}/s"'
    with caplog.at_level(logging.INFO, "bpt"):
        assert differing(compared(tmp_path, 2, more)) == []
    assert not any("Test" in message or "Snapshotting" in message for message in caplog.messages)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["net.prototxt", "solver.prototxt"]


def test_what_the_solver_displays_does_not_disturb(tmp_path: Path) -> None:
    """Rows of double precision are shown, too: those of "p"."""
    net = NET.replace('top: "loss" }', 'top: "loss" top: "p" }')
    assert differing(compared(tmp_path, 2, "display: 1 parallel_param { exchange: TREE }", net=net)) == []


# Mistakes on purpose


def break_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """All ranks train the first samples."""
    monkeypatch.setattr(Uniform, "shares", lambda self, total, ranks: (Share(0, total // ranks, total),) * ranks)


def break_turning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Uneven shares that leave a gap."""

    def shares(self: Uniform, total: int, ranks: int) -> tuple[Share, ...]:
        first, *others = tile([total // ranks] * ranks)
        return Share(0, first.count - 1, total) if ranks > 1 else first, *others

    monkeypatch.setattr(Uniform, "shares", shares)


def forget_small_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes of the packed message is not used."""
    monkeypatch.setattr(Bucket, "unpack_gradients", lambda self: setattr(self, "_sent", []))


def forget_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """The biases of "conv" are not summed."""
    pack = Bucket.pack_gradients

    def without(bucket: Bucket) -> list[Any]:
        messages = pack(bucket)
        messages[0][108:112] = 0
        return messages

    monkeypatch.setattr(Bucket, "pack_gradients", without)


def average(monkeypatch: pytest.MonkeyPatch) -> None:
    """Means where sums are due."""
    unpack = Bucket.unpack_gradients

    def halved(bucket: Bucket) -> None:
        unpack(bucket)
        for parameter in bucket.parameters:
            assert parameter.grad is not None
            parameter.grad /= bucket.comm.size

    monkeypatch.setattr(Bucket, "unpack_gradients", halved)


def forget_broadcast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tree, "broadcast", lambda self: None)


def forget_norms_of_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rank clips by its own slices."""
    monkeypatch.setattr(ParameterSync, "sum_over_replica", lambda self, value: value)


def count_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """All peers count what all of them hold in the norm."""
    monkeypatch.setattr(ParameterSync, "counted", lambda self, net: frozenset(map(id, net.parameters())))


def forget_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses are divided by a rank's own number of samples."""
    monkeypatch.setattr("bpt.nn.layers.base.Layer.of_whole_batch", lambda self, number: number)


def forget_averages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Local, "average", lambda self: None)


def average_by_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    """One has three samples and the other has one."""
    monkeypatch.setattr(Uniform, "shares", lambda self, total, ranks: tile([total] if ranks == 1 else [6, 2]))
    average = Local._average

    def plain(self: Local, **what: bool) -> None:
        replicas, self.replicas = self.replicas, replace(self.replicas, part=lambda replicas: 0.5)
        average(self, **what)
        self.replicas = replicas

    monkeypatch.setattr(Local, "_average", plain)


CLIP = "clip_gradients: 0.05 "
LOCAL = "parallel_param { exchange: LOCAL local_param { steps: 2 } }"
PEERS = CLIP + "parallel_param { num_shards: 2 }"
TREE = "parallel_param { exchange: TREE }"


@pytest.mark.parametrize(
    ("mistake", "overrides", "found"),
    [
        (break_share, "", ALL),
        (break_turning, "", ALL),
        (forget_small_bucket, "", ALL),
        (forget_one_message, "", ["conv/1"]),
        (average, "", ALL),
        (average, TREE, ALL),
        (forget_broadcast, TREE, ALL),
        (forget_norms_of_slices, PEERS, ALL),
        (count_twice, PEERS, ALL),
        (forget_the_batch, "", ALL),
        (forget_averages, LOCAL, ALL),
        (average_by_replicas, LOCAL, ALL),
    ],
)
@pytest.mark.parametrize("precision", [FLOAT64, FLOAT32])
def test_a_mistake_is_found(
    mistake: Callable[[pytest.MonkeyPatch], None],
    overrides: str,
    found: list[str],
    precision: Precision,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mistake(monkeypatch)
    wrong = differing(compared(tmp_path, 2, overrides, precision=precision), 1e-4)
    # A wrong gradient of one parameter makes all weights wrong in the next iterations.
    assert set(found) <= set(wrong)


def test_a_gradient_of_a_later_iteration_shows_in_the_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    unpack = Bucket.unpack_gradients

    def late(bucket: Bucket) -> None:
        unpack(bucket)
        calls.append(1)
        if len(calls) > 2:  # past the first iteration of both ranks
            for parameter in bucket.parameters:
                parameter.grad = None

    monkeypatch.setattr(Bucket, "unpack_gradients", late)
    found = compared(tmp_path, 2)
    assert all(gradient_in(line).relative < TOLERANCE < line.weight.relative for line in found)


def excepted(net: str) -> dict[str, str]:
    graph = graph_of(net)
    names = {param.index: f"{graph.nodes[param.layer].name}/{param.blob}" for param in comparison.trained(graph)}
    found = {names[param.index]: comparison._excepted(graph, param) for param in comparison.trained(graph)}
    return {name: reason for name, reason in found.items() if reason}


def test_biases_before_batch_norm() -> None:
    assert excepted(NET) == {}
    assert excepted(WITH_BATCH_NORM) == {
        "conv/1": 'it is a bias before BatchNorm "bn"; its true gradient is 0, and the rest is rounding'
    }
    # With stored statistics a bias has a gradient like any other.
    assert excepted(WITH_BATCH_NORM.replace('top: "conv" }\nlayer { name: "drop"', (
        'top: "conv" batch_norm_param { use_global_stats: true } }\nlayer { name: "drop"'
    ))) == {}  # fmt: skip
    # Behind a ReLU it has one, too.
    assert excepted(WITH_BATCH_NORM.replace('layer { name: "bn"', (
        'layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }\nlayer { name: "bn"'
    ))) == {}  # fmt: skip


TASKS = "inner_param { engine: TASK_DAG num_threads: 2 }"


@pytest.mark.parametrize(
    ("ranks", "stages", "more"),
    [(2, 2, ""), (4, 2, "num_shards: 2"), (4, 2, "exchange: RING"), (3, 3, TASKS), (4, 2, f"num_shards: 2 {TASKS}")],
)
def test_delayed_gradients_are_compared_with_one_process_that_applies_them_as_late(
    ranks: int, stages: int, more: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = f"parallel_param {{ num_stages: {stages} pipeline_param {{ schedule: DELAYED }} {more} }}"
    with caplog.at_level(logging.INFO, "bpt"):
        found = compared(tmp_path, ranks, text)
    assert [line.name for line in found] == ALL
    assert all(gradient_in(line).size > 0 and line.weight.size > 0 for line in found)
    assert differing(found, 1e-12) == []
    assert "Now the same on one process, which applies gradients as late" in caplog.text


DELAYED = "parallel_param { num_stages: 2 pipeline_param { schedule: DELAYED } }"


def test_a_delay_that_is_off_by_one_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pipeline applies the gradients of its lower stage an iteration too late; the reference does not."""
    of_block, of_stage = Pipeline.delay, Staging.delay

    def later(exact: int) -> int:
        return exact + 1 if exact else 0

    monkeypatch.setattr(Pipeline, "delay", lambda self, block: later(of_block(self, block)))
    monkeypatch.setattr(Staging, "delay", lambda self, stage: later(of_stage(self, stage)))
    found = differing(compared(tmp_path, 2, DELAYED))
    assert {"conv/0", "conv/1"} <= set(found)


def test_a_profile_that_was_measured_with_engine_auto_is_taken(tmp_path: Path) -> None:
    """The two sides of a check computed by CONTIGUOUS instead, and the profile was said to be of another run."""
    text = SOLVER.replace("engine: CONTIGUOUS", "engine: AUTO")
    path = small_solver(tmp_path, text=text).path
    parallel = f'balance: STATIC balance_param {{ profile: "{tmp_path}/speed.json" }}'

    def measure(comm: Communicator) -> Profile:
        plan = read_plan(path)
        facts = rank_facts.facts(plan, build_graph_of(plan.train), CPU, comm)
        speeds = tuple(RankSpeed({1: Estimate(1.0 + rank, 0.0, 3)}, 100) for rank in range(comm.size))
        return Profile(facts, speeds, 8, "small", "")

    write_profile(run_ranks(2, measure)[0], f"{tmp_path}/speed.json")

    def check(comm: Communicator) -> list[Compared]:
        return compare(read_plan(path, [f"parallel_param {{ {parallel} }}"]), CPU, comm, 2)[0]

    assert differing(run_ranks(2, check)[0]) == []
