"""What cannot be spread over the ranks there are is refused at its place, on all ranks alike."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch

from bpt.base.errors import BptError, FileError, LayerError, PrototxtError
from bpt.config.plan.nets import file_plan
from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.part import WHOLE
from bpt.nn.net_graph import build_graph_of
from bpt.parallel.balance import Static, Uniform
from bpt.system.comm.base import Communicator
from bpt.system.device import CPU
from bpt.train.runtime.parallel_setup import setup_parallelism
from bpt.train.runtime.train_options import TrainOptions
from bpt.train.solver.solver import Solver
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.small_solver import NET, SOLVER, small_solver
from tests.train.runtime.static_balance import facts_of, write

MASTER = "num_shards: 2 fc_param { scheme: MASTER_SLAVE }"


def solver_with(parallel: str) -> str:
    """The small solver with ``parallel_param`` on its second line."""
    return f"{SOLVER}parallel_param {{ {parallel} }}\n"


def refusal(folder: Path, ranks: int, parallel: str = "", net: str = NET, more: str = "") -> BptError:
    """What all ranks raise."""
    source = small_solver(folder, net=net, text=solver_with(parallel) + more)

    def run(comm: Communicator) -> BptError:
        with pytest.raises(BptError) as caught:
            setup_parallelism(source, build_graph_of(source.train), comm)
        return caught.value

    refusals = run_ranks(ranks, run)
    assert len({str(each) for each in refusals}) == 1
    return refusals[0]


@pytest.mark.parametrize(
    ("ranks", "parallel", "message"),
    [
        (1, "num_shards: 2", "1 rank cannot be divided into num_stages 1 × num_shards 2 = 2 ranks a replica: 1 / 2 is "
         "not whole; start a multiple of 2 ranks (mpirun -n 2), "
        "or change num_shards"),
        (3, "num_shards: 2", "3 ranks cannot be divided into num_stages 1 × num_shards 2 = 2 ranks a replica: 3 / 2 "
         "is not whole; start a multiple of 2 ranks (mpirun -n 2), "
        "or change num_shards"),
    ],
)  # fmt: skip
def test_ranks_that_do_not_divide(tmp_path: Path, ranks: int, parallel: str, message: str) -> None:
    error = refusal(tmp_path, ranks, parallel)
    assert isinstance(error, PrototxtError)
    assert str(error) == f"{tmp_path}/solver.prototxt:2:1: parallel_param: {message}"


ALONG_THE_SAMPLES = """
layer { name: "mixing" type: "Softmax" bottom: "conv" top: "p" softmax_param { axis: 0 } }
layer { name: "quiet" type: "Silence" bottom: "p" }
"""


def test_a_layer_that_mixes_samples(tmp_path: Path) -> None:
    error = refusal(tmp_path, 2, net=NET + ALONG_THE_SAMPLES)
    assert isinstance(error, LayerError)
    line = NET.count("\n") + 2
    assert str(error).startswith(f'{tmp_path}/net.prototxt:{line}:1: layer "mixing": ')
    told = ", so its batch cannot be divided over ranks; train on one process"
    setting = "parallel_param { batch_scope: REPLICA }"
    assert str(error).endswith(f"{told}, or set {setting}: then each rank trains whole batches")
    error = refusal(tmp_path, 2, "batch_scope: REPLICA balance: STATIC", NET + ALONG_THE_SAMPLES)
    assert str(error).endswith(f"{told}, or leave out balance: then each rank trains whole batches")
    master = "set fc_param { scheme: MASTER_SLAVE }"
    error = refusal(tmp_path, 2, "num_shards: 2", NET + ALONG_THE_SAMPLES)
    assert str(error).endswith(f"{told}, or {master}: then batches stay whole")
    error = refusal(tmp_path, 4, "num_shards: 2", NET + ALONG_THE_SAMPLES)
    assert str(error).endswith(f"{told}, or set {setting} and {master}: then each rank trains whole batches")
    error = refusal(tmp_path, 4, "batch_scope: REPLICA num_stages: 2 balance: STATIC", NET + ALONG_THE_SAMPLES)
    assert str(error).endswith(f"{told}, or leave out balance: then each rank trains whole batches")


@pytest.mark.parametrize(
    ("ranks", "parallel"),
    [
        (2, MASTER),
        (2, "num_stages: 2 pipeline_param { micro_batches: 1 }"),
        (2, "num_stages: 2 pipeline_param { schedule: DELAYED }"),
        (4, f"{MASTER} batch_scope: REPLICA"),
    ],
)
def test_ranks_that_have_whole_batches(ranks: int, parallel: str, tmp_path: Path) -> None:
    source = small_solver(tmp_path, net=NET + ALONG_THE_SAMPLES, text=solver_with(parallel))

    def run(comm: Communicator) -> tuple[int, ...]:
        with setup_parallelism(source, build_graph_of(source.train), comm) as made:
            return tuple(share.count // made.batches.batch_factor for share in made.batches.shares(4))

    replicas = 2 if ranks == 4 else 1
    assert run_ranks(ranks, run) == [(4 // replicas,) * replicas] * ranks


@pytest.mark.parametrize(
    "mixing",
    [
        'type: "Filter" bottom: "ip" bottom: "y"',
        'type: "Reshape" bottom: "loss" reshape_param { shape { dim: 1 } }',
    ],
)
def test_what_no_rank_may_have_alone(mixing: str, tmp_path: Path) -> None:
    """How many samples there are, or a number of all samples, is not a matter of one rank's batch."""
    net = NET + f'layer {{ name: "mixing" top: "p" {mixing} }} layer {{ name: "quiet" type: "Silence" bottom: "p" }}'
    error = refusal(tmp_path, 2, "batch_scope: REPLICA", net)
    assert 'layer "mixing": ' in str(error) and str(error).endswith("; train on one process")


def test_on_one_process_samples_may_mix(tmp_path: Path) -> None:
    source = small_solver(tmp_path, net=NET + ALONG_THE_SAMPLES)
    assert run_ranks(1, lambda comm: setup_parallelism(source, build_graph_of(source.train), comm).is_alone) == [True]


def test_a_layer_of_a_test_net_that_writes_whole_batches(tmp_path: Path) -> None:
    only_in_tests = """
layer { name: "mixing" type: "HDF5Output" bottom: "conv" bottom: "ip" include { phase: TEST }
  hdf5_output_param { file_name: "%s" } }
""" % (tmp_path / "out.h5")  # fmt: skip
    tested = "test_iter: 1 test_interval: 2 snapshot_after_train: false"
    source = small_solver(tmp_path, tested, net=NET + only_in_tests)

    def run(comm: Communicator) -> str:
        with pytest.raises(LayerError) as caught, Solver(source, world=comm):
            pass
        return str(caught.value)

    (message,) = set(run_ranks(2, run))
    assert 'layer "mixing": ' in message
    with Solver(source) as alone:
        assert len(alone.runtime.nets.tests) == 1


def test_a_layer_that_cannot_be_split(tmp_path: Path) -> None:
    net = NET.replace("convolution_param {", "parallel_param { mode: MODEL }\n convolution_param {")
    error = refusal(tmp_path, 2, "num_shards: 2", net)
    assert isinstance(error, LayerError)
    place = f"{tmp_path}/net.prototxt:7:26"
    assert str(error).startswith(f'{place}: layer "conv": mode: MODEL splits InnerProduct layers only, not Convolution')


def test_nothing_to_split(tmp_path: Path) -> None:
    net = NET.replace('top: "ip"', 'top: "ip" parallel_param { mode: DATA }')
    error = refusal(tmp_path, 2, "batch_scope: REPLICA num_shards: 2", net)
    assert isinstance(error, PrototxtError)
    column = solver_with("batch_scope: REPLICA num_shards: 2").splitlines()[1].index("num_shards") + 1
    assert str(error).startswith(
        f'{tmp_path}/solver.prototxt:2:{column}: parallel_param: net "small" ({tmp_path}/net.prototxt) has no layer '
        "that num_shards could split"
    )


STATIC = 'balance: STATIC balance_param { profile: "speed.json" }'


def test_static_balance_without_a_profile(tmp_path: Path) -> None:
    error = refusal(tmp_path, 2, STATIC)
    assert isinstance(error, FileError)
    assert str(error).startswith("speed.json: cannot be read: No such file or directory. ")
    assert str(error).endswith("--profile speed.json")


def test_balances(tmp_path: Path) -> None:
    source = small_solver(tmp_path, text=solver_with(STATIC))
    write(source, facts_of(source, 2))
    graph = build_graph_of(source.train)
    static = run_ranks(2, lambda comm: setup_parallelism(source, graph, comm))
    assert [type(parallel.batches.balance) for parallel in static] == [Static, Static]
    # As in tests/train/runtime/test_balancing.py: 5 samples at 1 s and 3 at 2 s.
    assert [[share.count for share in parallel.batches.shares(8)] for parallel in static] == [[5, 3]] * 2
    source = small_solver(tmp_path)
    uniform = run_ranks(2, lambda comm: setup_parallelism(source, graph, comm))
    assert [type(parallel.batches.balance) for parallel in uniform] == [Uniform, Uniform]


def test_a_profile_without_exchanges(tmp_path: Path) -> None:
    source = small_solver(tmp_path, text=solver_with(STATIC.replace('"speed.json"', '"speed.json" by: ITERATION')))
    write(source, facts_of(source, 2))
    graph = build_graph_of(source.train)
    with pytest.raises(FileError, match=r"has no times of segments and exchanges, .* Measure on these hosts"):
        run_ranks(2, lambda comm: setup_parallelism(source, graph, comm))


def test_static_balance_of_masters_is_by_their_own_speeds(tmp_path: Path) -> None:
    """Ranks take 1, 2, 3 and 4 seconds a sample; the masters are the first and the third."""
    source = small_solver(tmp_path, text=solver_with(f"{STATIC} {MASTER}"))
    write(source, facts_of(source, 4))
    graph = build_graph_of(source.train)
    found = run_ranks(
        4, lambda comm: [share.count for share in setup_parallelism(source, graph, comm).batches.shares(8)]
    )
    assert found == [[6, 2]] * 4  # 6 · 1 s and 2 · 3 s


def test_it_is_told_how_a_run_is_spread(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = small_solver(tmp_path, text=solver_with("num_shards: 2"))
    graph = build_graph_of(source.train)
    with caplog.at_level(logging.INFO, "bpt"):
        run_ranks(2, lambda comm: setup_parallelism(source, graph, comm))
    line = "Parallel: 2 ranks = 1 replica × 2 shards; ALLREDUCE, balance UNIFORM, model-parallel layers PEER"
    assert caplog.messages.count(line) == 2  # of which the log shows the first rank's
    caplog.clear()
    alone = small_solver(tmp_path)
    parallel = run_ranks(1, lambda comm: setup_parallelism(alone, graph, comm))[0]
    assert caplog.messages == []
    assert parallel.parts(graph) == (WHOLE,)


def test_a_batch_factor_is_handed_on(tmp_path: Path) -> None:
    source = small_solver(tmp_path)
    graph = build_graph_of(file_plan(f"{tmp_path}/net.prototxt", pb.TRAIN))
    assert run_ranks(
        1,
        lambda comm: (
            setup_parallelism(source, graph, comm, options=TrainOptions(batch_factor=3)).batches.shares(8)[0].total
        ),
    ) == [24]


@pytest.mark.parametrize(
    ("parallel", "remark"),
    [
        ("fc_param { scheme: MASTER_SLAVE }", "fc_param has no effect without num_shards above 1"),
        ("cgdp_param { chunk_size: 3 }", "cgdp_param has no effect without exchange: CGDP"),
        ("tree_param { sends: LIBRARY }", "tree_param has no effect without exchange: TREE"),
        ("exchange: TREE tree_param { sends: LIBRARY }", ""),
        ("compression_param { ratio: 0.1 }", "compression_param has no effect without codec"),
        (
            "compression_param { codec: BF16 rank: 3 links: ALL }",
            "compression_param { rank } has no effect without codec: POWERSGD",
        ),
        ("compression_param { codec: TOPK ratio: 0.1 links: ALL }", ""),
        (
            'exchange: CGDP cgdp_param { chunk_size: 3 choice: "c" }',
            "cgdp_param { choice } has no effect with chunk_size: nothing is searched",
        ),
        (
            "exchange: CGDP cgdp_param { chunk_size: 3 interval: 7 }",
            "cgdp_param { interval } has no effect with chunk_size: nothing is searched",
        ),
        (
            "exchange: CGDP cgdp_param { chunking: MODEL range: 1 }",
            "cgdp_param { range } has no effect with chunking: MODEL: the cost model says what is tried",
        ),
        ("exchange: CGDP cgdp_param { chunking: MODEL interval: 5 }", ""),
        ('exchange: CGDP cgdp_param { choice: "c" step: 3 range: 1 }', ""),
        ("agwu_param { local_epochs: 2 }", "agwu_param has no effect without exchange: SGWU, AGWU or ASGD"),
        ("agwu_param { push: 2 fetch: 2 }", "agwu_param has no effect without exchange: SGWU, AGWU or ASGD"),
        ("server: COLOCATED", "server has no effect without exchange: SGWU, AGWU or ASGD"),
        ("ship_data: true", "ship_data has no effect without exchange: SGWU, AGWU or ASGD"),
        ("pipeline_param { micro_batches: 2 }", "pipeline_param has no effect without num_stages above 1"),
        ('balance_param { profile: "p" }', "balance_param { profile } has no effect without balance: STATIC"),
        ("balance_param { rule: PAPER }", "balance_param { rule } has no effect without balance: IDPA"),
        ("balance_param { num_batches: 2 }", "balance_param { num_batches } has no effect without balance: IDPA"),
        ("balance_param { by: ITERATION }", "balance_param { by } has no effect without balance: STATIC or DYNAMIC"),
        (
            "balance: DYNAMIC exchange: TREE balance_param { by: ITERATION }",
            "balance_param { by } has no effect with exchange: TREE",
        ),
        ("balance: DYNAMIC exchange: CGDP balance_param { by: ITERATION }", ""),
        ("update: SHARDED", "update has no effect on one rank, which updates all weights"),
        ("balance_param { normalizer: UNIFORM } sync_batch_norm: true batch_scope: REPLICA exchange: TREE", ""),
    ],
)
def test_what_has_no_effect_is_told(
    tmp_path: Path, parallel: str, remark: str, caplog: pytest.LogCaptureFixture
) -> None:
    source = small_solver(tmp_path, text=solver_with(parallel))
    graph = build_graph_of(source.train)
    with caplog.at_level(logging.WARNING, "bpt"):
        run_ranks(1, lambda comm: setup_parallelism(source, graph, comm))
    assert caplog.messages == ([f"parallel_param: {remark}"] if remark else [])


@pytest.mark.parametrize(("pieces", "told"), [(4, False), (5, True)])
def test_more_pieces_than_samples_are_told(
    tmp_path: Path, pieces: int, told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Each of two ranks has 4 of the 8 samples."""
    source = small_solver(tmp_path, text=solver_with(f"num_shards: 2 fc_param {{ pieces: {pieces} }}"))
    graph = build_graph_of(source.train)
    with caplog.at_level(logging.WARNING, "bpt"):
        run_ranks(2, lambda comm: setup_parallelism(source, graph, comm))
    words = f"parallel_param: fc_param {{ pieces: {pieces} }} makes only 4 pieces: no rank has more samples of a batch"
    assert caplog.messages == [words] * 2 * told


@pytest.mark.parametrize(
    ("ranks", "more", "device", "remark"),
    [
        (1, "", CPU, ""),
        (1, "", torch.device("cuda"), "on a GPU"),
        (2, "num_shards: 2", CPU, ""),
    ],
)
def test_where_auto_can_only_be_the_library(
    tmp_path: Path, ranks: int, more: str, device: torch.device, remark: str, caplog: pytest.LogCaptureFixture
) -> None:
    source = small_solver(tmp_path, text=solver_with(f"inner_param {{ engine: AUTO }} {more}"))
    graph = build_graph_of(source.train)
    with caplog.at_level(logging.WARNING, "bpt"):
        run_ranks(ranks, lambda comm: setup_parallelism(source, graph, comm, options=TrainOptions(device)))
    told = f"parallel_param: inner_param {{ engine: AUTO }} is LIBRARY {remark}"
    assert caplog.messages == [told] * ranks * bool(remark)


def test_looking_at_every_layer_of_many_ranks_shows_the_first_ones_samples(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = small_solver(tmp_path, text=solver_with("") + "debug_info: true\n")
    graph = build_graph_of(source.train)
    with caplog.at_level(logging.WARNING, "bpt"):
        run_ranks(1, lambda comm: setup_parallelism(source, graph, comm))
        assert caplog.messages == []
        run_ranks(2, lambda comm: setup_parallelism(source, graph, comm))
    told = "debug_info: blobs, and gradients before the exchange, are those of the first rank's samples"
    assert caplog.messages == [told] * 2  # of which the log shows the first rank's
