"""Computing nodes of several ranks: against a worker alone, against one process, and against each other."""

from __future__ import annotations

import logging
import re
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from bpt.base.errors import LayerError, LostRankError, PrototxtError
from bpt.base.signals import SignalAction, SignalActions
from bpt.config.plan.resolve import read_plan
from bpt.config.precision import FLOAT64
from bpt.config.proto import bpt_pb2 as pb
from bpt.system.comm.base import Communicator
from bpt.system.comm.serial import SerialCommunicator
from bpt.system.device import CPU
from bpt.train.outer import train, worker_ranks
from bpt.train.outer.report import read_csv
from bpt.train.solver.solver import RunOutcome, Solver
from tests.support.doubles.thread_ranks import Killed, ThreadCommunicator, run_ranks
from tests.support.marks import slow
from tests.support.spread_runs import NET, ROWS
from tests.train.outer.outer_runs import one_thread

pytestmark = pytest.mark.usefixtures("folder")

Weights = dict[str, list[NDArray[np.float32]]]
UNWEIGHED = "weigh_by_accuracy: false"
PLAIN = re.sub(r'layer \{ name: "bn".*\n', "", NET)  # micro-batches are normalised one by one
TWO = "num_stages: 2 pipeline_param { allocator: MANUAL micro_batches: 1 }"
CUT = "pipeline_param { allocator: MANUAL schedule: GPIPE micro_batches: 3 }"
GPIPE = f"num_stages: 2 {CUT}"
LOCAL = "parallel_param { sync_batch_norm: false }"
SYNC = "sync_batch_norm: true"
MASTER = "fc_param { scheme: MASTER_SLAVE }"
CHUNKS = "worker_exchange: CGDP } cgdp_param { chunk_size: 2"


def put(net: str, *first: str) -> None:
    """Write the net. These layers are the first ones of stages 1, 2 and so on."""
    for stage, name in enumerate(first, 1):
        net = net.replace(f'name: "{name}" type', f'name: "{name}" parallel_param {{ stage: {stage} }} type', 1)
    Path("net.prototxt").write_text(net)


class Signalled(SignalActions):
    """Gets SIGTERM, so to speak, when it is asked for the ``at``-th time; touches none of the process's handlers."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self._left = at

    def __enter__(self) -> Signalled:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def take(self) -> SignalAction:
        self._left -= 1
        self.terminated |= self._left == 0
        return SignalAction.STOP if self._left == 0 else SignalAction.NONE


def outer(ranks: int, parallel: str, *overrides: str, replay: str = "", signalled: int = -1) -> list[RunOutcome]:
    """Train on so many ranks; returns what each of those that live comes to. A rank that misses another one dies."""

    def run(world: Communicator) -> RunOutcome:
        text = [LOCAL, f"parallel_param {{ {parallel} }}", *overrides]
        signals = Signalled(7) if world.rank == signalled else None
        plan = replace(read_plan("solver.prototxt", text), asked_precision=FLOAT64)
        try:
            with one_thread():
                return train(plan, world, CPU, signals, replay=replay)
        except LostRankError:
            raise Killed from None  # as comm.failure does in the end

    return [run(SerialCommunicator())] if ranks == 1 else run_ranks(ranks, run)


def alone(*overrides: str) -> None:
    """Train in one process, without an outer layer."""
    plan = replace(read_plan("solver.prototxt", [LOCAL, *overrides]), asked_precision=FLOAT64)
    with one_thread(), Solver(plan) as solver:
        solver.solve()


def weights(iteration: int = 9, prefix: str = "small") -> Weights:
    net = pb.NetParameter.FromString(Path(f"{prefix}_iter_{iteration}.caffemodel").read_bytes())
    return {layer.name: [np.array(blob.data, np.float32) for blob in layer.blobs] for layer in net.layer if layer.blobs}


def assert_equal(one: Weights, other: Weights, tolerance: float = 0.0) -> None:
    assert one.keys() == other.keys()
    for name, blobs in one.items():
        for mine, others in zip(blobs, other[name], strict=True):
            np.testing.assert_allclose(mine, others, rtol=tolerance, atol=tolerance, err_msg=name)


@pytest.mark.parametrize("exchange", ["AGWU", "SGWU", "ASGD"])
def test_one_pipeline_trains_as_one_process(exchange: str) -> None:
    """Momentum, clipping by the norm of all stages, dropout, and statistics of a BatchNorm that nobody trains."""
    put(NET, "bn")
    alone()
    expected = weights()
    outer(3, f"exchange: {exchange} agwu_param {{ {UNWEIGHED} }} {TWO}")
    assert_equal(weights(), expected, 1e-6)


@pytest.mark.parametrize("stages", [2, 3])
@pytest.mark.parametrize("exchange", ["AGWU", "SGWU", "ASGD"])
def test_batches_under_way_go_on_with_a_worker(exchange: str, stages: int) -> None:
    """Delayed gradients of one worker are those of the same pipeline without a server: passes end with batches under
    way. On the path of two stages there are three blocks. A server updates all that it has not got a gradient of by
    its moments and by decay, so these are left out, as well as steps of the learning rate."""
    put(NET, "drop", "ip")
    if stages == 2:
        Path("net.prototxt").write_text(Path("net.prototxt").read_text().replace("{ stage: 2 }", "{ stage: 0 }"))
    pipeline = f"num_stages: {stages} pipeline_param {{ allocator: MANUAL schedule: DELAYED }}"
    plain = ["clip_gradients: -1 iter_size: 1"]
    plain += ['momentum: 0 weight_decay: 0 lr_policy: "fixed"'] if exchange == "ASGD" else []

    def in_step(world: Communicator) -> None:
        plan = read_plan("solver.prototxt", [LOCAL, f"parallel_param {{ {pipeline} }}", *plain])
        with Solver(replace(plan, asked_precision=FLOAT64), world=world) as solver:
            solver.solve()

    run_ranks(stages, in_step)
    expected = weights()
    outer(1 + stages, f"exchange: {exchange} agwu_param {{ {UNWEIGHED} }} {pipeline}", *plain)
    assert_equal(weights(), expected, 1e-6)


@pytest.mark.parametrize("arrangement", [TWO, "num_shards: 2", "servers: 2 num_shards: 2"])
def test_the_server_s_rank_is_a_worker_s_as_well(arrangement: str, caplog: pytest.LogCaptureFixture) -> None:
    put(NET, "bn")
    alone()
    expected = weights()
    ranks = 4 if "servers" in arrangement else 2
    with caplog.at_level(logging.INFO, "bpt"):
        outer(ranks, f"exchange: AGWU server: COLOCATED {SYNC} agwu_param {{ {UNWEIGHED} }} {arrangement}")
    assert_equal(weights(), expected, 1e-6)
    assert "server on rank 0, which computes as well" in caplog.text


def test_two_workers_of_which_one_is_the_server_s() -> None:
    """2 x 2 ranks: two replicas of two stages, delayed gradients in each and asynchronous updates between them."""
    put(NET, "drop")
    delayed = "num_stages: 2 pipeline_param { allocator: GABRA schedule: DELAYED }"
    outcomes = outer(
        4, f"exchange: ASGD server: COLOCATED {delayed}", "max_iter: 20 momentum: 0 clip_gradients: -1 iter_size: 1"
    )
    assert [outcome.iterations for outcome in outcomes] == [20] * 4
    nodes = read_csv("small_run").nodes
    assert sum(node.samples_allocated for node in nodes) == ROWS
    assert nodes[0].bytes_sent == 0 < nodes[1].bytes_sent


def test_a_server_that_computes_with_others_takes_threads_that_communicate(monkeypatch: pytest.MonkeyPatch) -> None:
    put(NET, "bn")
    monkeypatch.setattr(ThreadCommunicator, "concurrent", False)
    with pytest.raises(
        PrototxtError, match=r"COLOCATED with workers of 2 ranks takes an MPI library .*THREAD_MULTIPLE"
    ):
        outer(2, f"exchange: AGWU server: COLOCATED {TWO}")


@pytest.mark.parametrize(
    ("ranks", "exchange", "arrangement"),
    [
        (2, "AGWU", f"num_shards: 2 {SYNC} agwu_param {{ {UNWEIGHED} }}"),
        (2, "ASGD", f"num_shards: 2 {SYNC}"),
        slow(2, "ASGD", f"num_shards: 2 {SYNC} agwu_param {{ worker_exchange: TREE }}"),
        slow(2, "AGWU", f"num_shards: 2 {MASTER} agwu_param {{ {UNWEIGHED} }}"),
        (4, "ASGD", f"num_shards: 2 {SYNC} {MASTER} agwu_param {{ ranks: 4 worker_exchange: RING }}"),
        (4, "SGWU", f"num_shards: 2 {SYNC} agwu_param {{ {UNWEIGHED} ranks: 4 {CHUNKS} }}"),
        (4, "AGWU", f"{TWO} {SYNC} agwu_param {{ {UNWEIGHED} ranks: 4 worker_exchange: TREE }}"),
        slow(4, "ASGD", f"{TWO} {SYNC} agwu_param {{ ranks: 4 {CHUNKS} }}"),
        slow(4, "AGWU", f"{TWO} {SYNC} num_shards: 2 agwu_param {{ {UNWEIGHED} }}"),
        (4, "ASGD", f"{TWO} {SYNC} num_shards: 2 {MASTER} agwu_param {{ worker_exchange: RING }}"),
        *(
            slow(2, exchange, f"{SYNC} agwu_param {{ {UNWEIGHED} ranks: 2 {inside} }}")
            for exchange in ("AGWU", "ASGD")
            for inside in ("worker_exchange: TREE", "worker_exchange: RING", CHUNKS)
        ),
        *(
            (2, exchange, f"{SYNC} agwu_param {{ {UNWEIGHED} ranks: 2 worker_exchange: ALLREDUCE }}")
            for exchange in ("AGWU", "ASGD")
        ),
    ],
)
def test_one_worker_of_several_ranks_trains_as_one_process(ranks: int, exchange: str, arrangement: str) -> None:
    """Statistics of a BatchNorm over all ranks, masks by sample, shares that are rotated, clipping by one norm."""
    put(NET, "fc")
    alone()
    expected = weights()
    outer(1 + ranks, f"exchange: {exchange} {arrangement}")
    assert_equal(weights(), expected, 1e-6)


@pytest.mark.parametrize("exchange", ["AGWU", "ASGD"])
def test_q_counts_over_replicas_and_micro_batches(exchange: str) -> None:
    put(PLAIN, "drop")
    outer(2, f"exchange: {exchange}")
    expected, told = weights(), read_csv("small_run")
    outer(5, f"exchange: {exchange} {GPIPE} agwu_param {{ ranks: 4 }}")
    assert_equal(weights(), expected, 1e-6)
    record = read_csv("small_run")
    assert [row.accuracy for row in record.updates] == [row.accuracy for row in told.updates]
    assert any(0 < row.accuracy < 1 for row in record.updates)
    np.testing.assert_allclose([row.loss for row in record.updates], [row.loss for row in told.updates], rtol=1e-6)


@pytest.mark.parametrize(
    ("exchange", "arrangement"),
    [
        ("AGWU", "num_shards: 2 balance: IDPA balance_param { num_batches: 2 }"),
        ("SGWU", "agwu_param { ranks: 2 worker_exchange: RING }"),
        ("ASGD", f"agwu_param {{ ranks: 2 {CHUNKS} }}"),
    ],
)
@pytest.mark.slow
def test_two_workers_of_two_ranks(exchange: str, arrangement: str) -> None:
    """Samples come in parts, too: all ranks of a worker take them at the same place of its stream."""
    put(PLAIN)
    outcomes = outer(5, f"exchange: {exchange} {arrangement}", "max_iter: 20")
    assert [outcome.iterations for outcome in outcomes] == [20] * 5
    record = read_csv("small_run")
    assert [node.worker for node in record.nodes] == [0, 1]
    assert sum(node.samples_allocated for node in record.nodes) == ROWS
    assert record.facts["node"].startswith("a grid of 2 ranks = ")
    if exchange != "ASGD":  # every pass moves whole weights once: what ranks send each other is not in it
        assert sum(n.bytes_sent + n.bytes_received for n in record.nodes) == record.bytes_expected()


@pytest.mark.slow
def test_a_replay_of_workers_of_replicas_ends_bit_for_bit_equal() -> None:
    put(PLAIN)
    parallel = "exchange: ASGD num_shards: 2 agwu_param { ranks: 4 }"
    outer(9, parallel)
    expected = weights()
    Path("small_run").rename("first_run")
    outer(9, parallel, "snapshot_prefix: 'again'", replay="first_run/replay.jsonl")
    assert_equal(weights(prefix="again"), expected)


@pytest.mark.parametrize(("exchange", "stages"), [("AGWU", 2), ("ASGD", 2), ("ASGD", 3)])
def test_micro_batches_train_as_a_worker_alone(exchange: str, stages: int) -> None:
    """Q counts over micro-batches, on the last stage: under AGWU it is in every update."""
    put(PLAIN, *("drop", "ip")[: stages - 1])
    outer(2, f"exchange: {exchange}")
    expected, told = weights(), read_csv("small_run")
    outer(1 + stages, f"exchange: {exchange} num_stages: {stages} {CUT}")
    assert_equal(weights(), expected, 1e-6)
    record = read_csv("small_run")
    assert [row.accuracy for row in record.updates] == [row.accuracy for row in told.updates]
    assert any(0 < row.accuracy < 1 for row in record.updates)
    np.testing.assert_allclose([row.loss for row in record.updates], [row.loss for row in told.updates], rtol=1e-6)


def test_two_pipelines_are_two_computing_nodes(caplog: pytest.LogCaptureFixture) -> None:
    """Bytes are those of Eq. 11 for two nodes: what stages send each other is not in it."""
    put(PLAIN, "drop")
    with caplog.at_level(logging.INFO, "bpt"):
        outcomes = outer(5, f"exchange: AGWU balance: IDPA balance_param {{ num_batches: 2 }} {GPIPE}", "max_iter: 20")
    assert [outcome.iterations for outcome in outcomes] == [20] * 5
    record = read_csv("small_run")
    assert [node.worker for node in record.nodes] == [0, 1]
    assert sum(node.samples_allocated for node in record.nodes) == ROWS
    assert sum(n.bytes_sent + n.bytes_received for n in record.nodes) == record.bytes_expected()
    assert record.facts["node"] == "a pipeline of 2 ranks"
    assert record.title.endswith("AGWU + IDPA, 2 nodes (pipelines of 2 ranks)")
    log = caplog.text
    assert "server on rank 0; 2 computing nodes, each a pipeline of 2 ranks" in log
    assert "Each computing node is a pipeline GPIPE of 3 micro-batches" in log and "Stage 1: " in log
    assert "worker 1 (ranks 3 to 4, host " in log


@pytest.mark.slow
def test_two_pipelines_learn() -> None:
    """Dropout left out: the loss of the last pushes is far below log 3, that of guessing."""
    put(re.sub(r'layer \{ name: "drop".*\n', "", PLAIN), "fc")
    settings = 'max_iter: 120 momentum: 0 base_lr: 0.1 lr_policy: "fixed" clip_gradients: -1 weight_decay: 0'
    outer(5, f"exchange: ASGD {GPIPE}", settings)
    losses = [row.loss for row in read_csv("small_run").updates]
    assert np.mean(losses[:4]) > 0.9 and np.mean(losses[-10:]) < 0.3


def test_a_replay_ends_bit_for_bit_equal() -> None:
    put(PLAIN, "drop")
    parallel = f"exchange: ASGD {GPIPE}"
    outer(5, parallel)
    expected = weights()
    Path("small_run").rename("first_run")
    outer(5, parallel, "snapshot_prefix: 'again'", replay="first_run/replay.jsonl")
    assert_equal(weights(prefix="again"), expected)


@pytest.mark.parametrize("rank", [1, 2])  # a leader, and one that follows
@pytest.mark.parametrize("arrangement", [TWO, "agwu_param { ranks: 2 }"])
def test_a_signal_to_any_rank_stops_the_run(rank: int, arrangement: str) -> None:
    put(NET, "bn")
    outcomes = outer(3, f"exchange: ASGD {arrangement}", "max_iter: 500", signalled=rank)
    assert len(set(outcomes)) == 1
    assert outcomes[0].terminated and 0 < outcomes[0].iterations < 500
    assert weights(outcomes[0].iterations)


@pytest.mark.parametrize("rank", [3, 4])  # a leader, and one that follows
@pytest.mark.parametrize(
    "arrangement", [TWO, slow("num_shards: 2"), slow("agwu_param { ranks: 2 worker_exchange: RING }")]
)
def test_a_worker_that_misses_a_rank_is_lost(
    rank: int, arrangement: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The second of two; its samples go to the first, and the run goes on to its end."""
    commands = 0

    class Mortal(worker_ranks.WorkerRanks):
        def _exchange_words(self, words: NDArray[np.float64]) -> tuple[int, ...]:
            nonlocal commands
            if threading.current_thread().name == f"rank {rank}":
                commands += 1
                if commands == 9:
                    raise Killed
            return super()._exchange_words(words)

    put(NET, "bn")
    monkeypatch.setattr("bpt.train.outer.outer_training.WorkerRanks", Mortal)
    with caplog.at_level(logging.INFO, "bpt"):
        outcomes = outer(5, f"exchange: AGWU {arrangement}", "max_iter: 20")
    assert [outcome.iterations for outcome in outcomes] == [20] * 3
    assert "Lost: worker 1 (ranks 3 to 4, host " in caplog.text
    assert "its 11 samples go to the other workers" in caplog.text
    assert read_csv("small_run").nodes[0].samples_allocated == ROWS
    assert weights(20)


def test_chunks_are_searched_before_the_first_pass() -> None:
    """The search trains, but nothing is left of it."""
    put(NET)
    alone()
    expected = weights()
    searched = "worker_exchange: CGDP } cgdp_param { interval: 1 step: 1 range: 1"
    outer(3, f"exchange: AGWU {SYNC} agwu_param {{ {UNWEIGHED} ranks: 2 {searched} }}")
    assert_equal(weights(), expected, 1e-6)


def test_what_cannot_be_divided_over_the_ranks_of_a_worker_is_refused() -> None:
    mixing = """layer { name: "mixed" type: "InnerProduct" bottom: "fc" top: "mixed" include { phase: TRAIN }
  inner_product_param { num_output: 2 axis: 0 } }
layer { name: "unread" type: "Silence" bottom: "mixed" include { phase: TRAIN } }
"""
    put(NET + mixing)
    outer(2, "exchange: ASGD")
    with pytest.raises(LayerError, match=r'layer "mixed": .* so its batch cannot be divided over ranks'):
        outer(3, "exchange: ASGD agwu_param { ranks: 2 }")


@pytest.mark.parametrize("exchange", ["AGWU", "ASGD"])
def test_micro_batches_are_gathered_to_normalise_by_the_batch(exchange: str) -> None:
    put(NET, "fc")
    alone()
    expected = weights()
    over_batch = "parallel_param { pipeline_param { batch_norm_over: BATCH } }"
    outer(3, f"exchange: {exchange} agwu_param {{ {UNWEIGHED} }} {GPIPE}", over_batch)
    assert_equal(weights(), expected, 1e-6)


@pytest.mark.parametrize(
    ("ranks", "stages", "message"),
    [
        (1, 2, "1 rank is not 1 + 2 k: start 3 (mpirun -n 3), or change num_stages"),
        (4, 2, "4 ranks are not 1 + 2 k: start 3 or 5 (mpirun -n 5), or change num_stages"),
        (2, 3, "2 ranks are not 1 + 3 k: start 4 (mpirun -n 4), or change num_stages"),
    ],
)
def test_ranks_that_do_not_divide(ranks: int, stages: int, message: str) -> None:
    with pytest.raises(PrototxtError) as caught:
        outer(ranks, f"exchange: ASGD num_stages: {stages}")
    told, *_ = str(caught.value).splitlines()  # below it a mark, where that was typed
    assert told.endswith(
        f"parallel_param: exchange: ASGD with num_stages: {stages} needs rank 0, which serves, and {stages} ranks for "
        f"each pipeline; {message}"
    )
