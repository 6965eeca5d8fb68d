"""Stages and micro-batches: every blob and diff of every edge is that of one process on the whole batch."""

from __future__ import annotations

import pytest
import torch

from bpt.config.proto import bpt_pb2 as pb
from bpt.engine import instructions as do
from bpt.engine.executor import PassExecutor
from bpt.engine.operator import Operator
from bpt.graph.segments import cut, whole
from bpt.graph.stages import borders, part_of
from bpt.graph.transfers import transfers
from bpt.nn.net import Net
from bpt.nn.pass_context import PassContext
from bpt.parallel.pipeline.stage import Stage
from bpt.parallel.pipeline.stage_links import StageLinks
from bpt.system.comm.base import Communicator
from tests.parallel.pipeline.stages import SEED, Job, Result, assert_equal, batches_of
from tests.support.cut_nets import layer
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.golden_cases import graph_of
from tests.support.sharded_operators import conv, fc

RULES = {
    name: pb.PipelineParameter.Schedule.Value(name) for name in ("SEQUENTIAL", "GPIPE", "ONE_F_ONE_B", "ZERO_BUBBLE")
}
BATCH = 5
DATA = f"""layer {{ name: "in" type: "DummyData" top: "x" top: "y"
    dummy_data_param {{ shape {{ dim: {BATCH} dim: 2 dim: 5 dim: 5 }} shape {{ dim: {BATCH} }}
      data_filler {{ type: "gaussian" }} data_filler {{ type: "constant" value: 1 }} }} }}"""
CHAIN = "\n".join(
    [
        DATA,
        conv("c", "x"),
        layer("ReLU", "c", "c"),
        fc("a", "c", 6),
        layer("Dropout", "a", "a"),
        fc("b", "a", 3),
        layer("SoftmaxWithLoss", "b y", "l"),
    ]
)
# "c" is read by three layers, "x" and "y" by two; a head near the bottom; a top that nobody reads but is a loss, too.
TREE = "\n".join(
    [
        DATA,
        conv("c", "x"),
        layer("Dropout", "c", "d"),
        fc("h", "c", 3),
        layer("SoftmaxWithLoss", "h y", "e", "loss_weight: 0.3"),
        fc("a", "c", 4),
        fc("p", "d", 4),
        layer("Eltwise", "a p", "s"),
        fc("i", "x", 2),
        layer("Concat", "s i h", "j"),
        layer("Sigmoid", "j", "g", "loss_weight: 0.1"),
        fc("b", "j", 3),
        layer("SoftmaxWithLoss", "b y", "l"),
    ]
)
SIZES = {text: len(graph_of(text)) for text in (CHAIN, TREE)}


def split_evenly(text: str, stages: int) -> list[int]:
    return [layer * stages // SIZES[text] for layer in range(SIZES[text])]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("stages", "micro_batches", "passes"), [(1, 3, 1), (2, 1, 2), (3, 2, 2), (4, 5, 1)])
@pytest.mark.parametrize("text", [CHAIN, TREE], ids=["chain", "tree"])
def test_blobs_diffs_and_gradients_are_those_of_one_process(
    text: str, stages: int, micro_batches: int, passes: int, rule: str
) -> None:
    job = Job(text, split_evenly(text, stages), RULES[rule], micro_batches, passes)
    assert_equal(job.staged(), job.alone(), "values", "grads", "ends")


@pytest.mark.parametrize("rule", RULES)
def test_stages_without_order(rule: str) -> None:
    """Each layer on another stage than the one before it."""
    job = Job(TREE, [layer * 2 % 3 for layer in range(SIZES[TREE])], RULES[rule], 2, 2)
    assert_equal(job.staged(), job.alone(), "values", "grads", "ends")


@pytest.mark.parametrize("text", [CHAIN, TREE], ids=["chain", "tree"])
def test_diffs(text: str) -> None:
    """Those of several edges of a transfer come back as one sum."""
    job = Job(text, split_evenly(text, 3), micro_batches=2)
    ours, alone = job.staged(), job.alone()
    summed = summed_on_the_way(job)
    for edge, diff in alone.diffs.items():
        if edge not in summed:
            assert torch.allclose(ours.diffs[edge], diff, rtol=1e-5, atol=1e-7), edge


def summed_on_the_way(job: Job) -> set[int]:
    """Edges of transfers that have several: each has a diff where it is read; on the other stage the first has all."""
    graph = job.graph
    found = transfers(graph, cut(graph, range(len(graph)), sources_apart=True), job.stages)
    return {edge for transfer in found if len(transfer.edges) > 1 for edge in transfer.edges}


@pytest.mark.parametrize("micro_batches", [6, 8])
def test_micro_batches_without_samples(micro_batches: int) -> None:
    job = Job(TREE, split_evenly(TREE, 3), RULES["ONE_F_ONE_B"], micro_batches)
    assert_equal(job.staged(), job.alone(), "values", "grads", "ends")


def test_channels_last() -> None:
    job = Job(CHAIN, split_evenly(CHAIN, 3), micro_batches=2, engine=pb.SolverParameter.CHANNELS_LAST)
    assert_equal(job.staged(), job.alone(), "values", "grads", "ends")


@pytest.mark.parametrize("rule", RULES)
def test_memory_is_let_go(rule: str) -> None:
    """Of a micro-batch nothing is left on a stage when its last segment there has run backward, and been sent."""
    job = Job(CHAIN, split_evenly(CHAIN, 2), RULES[rule], micro_batches=4)
    most = [0, 0]

    def look(operator: Operator, instruction: object) -> None:
        graph = operator.net.graph
        ends = {edge.index for edge in (*graph.outputs, *graph.losses)}
        assert operator.stage is not None
        stage = operator.stage.number
        most[stage] = max(
            most[stage], sum(bool(state.segments) for state in batches_of(operator).under_way.states.values())
        )
        assert isinstance(operator.stage, Stage)
        first = operator.stage.of_segments.index(stage) + (stage == 0)  # layer 0 is drawn
        is_last = isinstance(instruction, do.Send) and instruction.diff
        if stage == 0:
            is_last = isinstance(instruction, do.Backward | do.BackwardWeights) and instruction.segment == first
        if is_last and (stage == 0 or rule != "ZERO_BUBBLE"):  # there gradients of weights are due when a diff is sent
            state = batches_of(operator).under_way.states[instruction.micro]  # type: ignore[attr-defined]
            assert not state.segments or (stage, *state.segments) == (0, 0)
            assert set(state.values) <= ends
            assert not state.diffs
        if isinstance(instruction, do.Wait):
            assert not batches_of(operator).under_way.states
            assert set(operator.values) <= ends

    job.staged(look)
    assert most == {"SEQUENTIAL": [1, 1], "GPIPE": [4, 4], "ONE_F_ONE_B": [2, 1], "ZERO_BUBBLE": [2, 2]}[rule]


@pytest.mark.parametrize("rotation", [0.0, 0.4])
def test_a_pass_without_a_schedule(rotation: float) -> None:
    """As in a test: the whole batch, forward only; twice, since the second must not see what the first has left."""
    graph = graph_of(TREE)
    stages = split_evenly(TREE, 3)
    of_two = PassContext(SEED, ranks=2)  # whose shares would be rotated

    def run(comm: Communicator) -> list[Result]:
        net = Net(graph, of_two, part=part_of(graph, stages, comm.rank))
        net.next_rotation = lambda: rotation  # type: ignore[method-assign]
        segments = cut(graph, sorted(borders(stages)), sources_apart=True)
        links = StageLinks(comm)
        executor = PassExecutor(Operator(net, segments, stage=Stage(links, stages, lambda edge: torch.float32)))
        results = []
        for number in range(2):
            loss = executor.evaluate(0, number)
            results.append(Result(loss, ends=dict(executor.operator.values)))
        links.close()
        return results

    by_stage = run_ranks(3, run, timeout=120)
    alone = Operator(Net(graph, of_two), whole(graph))
    alone.net.next_rotation = lambda: rotation  # type: ignore[method-assign]
    for number in range(2):
        alone.begin_pass(0, number)
        alone.forward(0, grad=False)
        assert sum(results[number].loss for results in by_stage) == pytest.approx(alone.loss().item(), rel=1e-6)
        found = {edge: value for results in by_stage for edge, value in results[number].ends.items()}
        for edge in graph.outputs:
            assert torch.allclose(found[edge.index], alone.values[edge.index], rtol=1e-6)


def test_masks_follow_the_samples() -> None:
    """A micro-batch's masks are those of its rows of the whole batch, in each of the passes."""
    text = "\n".join([DATA, conv("c", "x"), layer("Dropout", "c", "d"), fc("b", "d", 3)])
    job = Job(text + layer("SoftmaxWithLoss", "b y", "l"), [0, 0, 1, 1, 1], micro_batches=3, passes=2)
    ours, alone = job.staged(), job.alone()
    top = job.graph.nodes[2].tops[0]
    assert torch.equal(ours.values[top] == 0, alone.values[top] == 0)
    assert 0 < (ours.values[top] == 0).float().mean() < 1


def test_shared_parameters() -> None:
    """Two layers of a stage have one weight, whose gradient adds up over them and the micro-batches."""
    tied = 'param { name: "w" } param { name: "v" }'
    text = "\n".join(
        [
            DATA,
            fc("a", "x", 4),
            fc("b", "a", 4, tied),
            layer("TanH", "b", "t"),
            fc("d", "t", 4, tied),
            fc("e", "d", 3),
            layer("SoftmaxWithLoss", "e y", "l"),
        ]
    )
    for stages in ([0, 0, 1, 1, 1, 2, 2], [0, 1, 0, 0, 0, 1, 1]):
        job = Job(text, stages, RULES["ONE_F_ONE_B"], 3, 2)
        assert_equal(job.staged(), job.alone(), "values", "grads", "ends")


def test_outputs_of_all_kinds() -> None:
    """Rows are put one behind the other, sums are added up; of the last pass, and of data that nobody reads."""
    text = "\n".join([DATA, fc("a", "x", 3), layer("Softmax", "a", "s"), layer("SoftmaxWithLoss", "a y", "l")])
    text += DATA.replace('"in"', '"more"').replace('"x"', '"m"').replace('"y"', '"n"')
    graph = graph_of(text)
    names = [edge.blob for edge in graph.outputs]
    assert set(names) == {"s", "l", "m", "n"}
    stages = [1 if node.name in ("a", "a_a_0_split") else 0 for node in graph.nodes]
    job = Job(text, stages, RULES["GPIPE"], 2, 2)
    assert_equal(job.staged(), job.alone(), "ends", "grads")


def test_cut_anew() -> None:
    """As the search for chunks does, between iterations: transfers are found anew."""
    graph = graph_of(CHAIN)
    stages = split_evenly(CHAIN, 2)
    border = stages.index(1)

    def run(comm: Communicator) -> list[tuple[tuple[int, ...], list[int | None]]]:
        net = Net(graph, PassContext(SEED), part=part_of(graph, stages, comm.rank))
        stage = Stage(StageLinks(comm), stages, lambda edge: torch.float32)
        operator = Operator(net, cut(graph, [0, border], True), stage=stage)
        found = []
        for starts in ([0, border], [0, 2, border]):
            operator.cut_into(cut(graph, starts, True))
            found.append((stage.of_segments, [transfer.source for transfer in stage.transfers]))
        return found

    assert run_ranks(2, run) == [[((0, 1), [None, 0]), ((0, 0, 1), [None, 1])]] * 2


def test_an_output_that_is_no_loss_may_be_infinite() -> None:
    """It was multiplied by its weight, 0, and made the loss NaN."""
    text = CHAIN + layer("Power", "b", "i", "power_param { power: -1 scale: 0 } propagate_down: false")
    job = Job(text, [0, 0, 0, 0, 0, 0, 1, 1, 1])
    losses: list[float] = []

    def look(operator: Operator, instruction: object) -> None:
        del instruction
        losses.extend(float(value.sum()) for values in batches_of(operator).outputs._made.values() for value in values)

    assert job.staged(look).loss == pytest.approx(job.alone().loss)
    assert float("inf") in losses
