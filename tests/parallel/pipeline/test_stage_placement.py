"""Placing: nets that cannot go in micro-batches or on so many devices are refused, at the layer or field."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bpt.base.errors import FileError, PrototxtError
from bpt.base.violation import refuse
from bpt.config.plan.run_plan import PipelineSpec
from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.staging import Staging
from bpt.nn.net_graph import build_graph_of
from bpt.parallel.balance.divisible_batches import gathering
from bpt.parallel.pipeline.placement.partition import TooManyStagesError
from bpt.parallel.pipeline.stage_placement import check_stage_count, described, manual_stages, stage, stage_kinds
from bpt.train.rules.violations import violations_of_net
from tests.support.golden_cases import graph_of
from tests.support.small_forecasts import BRANCHES, NORM
from tests.support.small_solver import NET, small_solver
from tests.support.typed import at


def staged(folder: Path, parallel: str, net: str = NET) -> Staging | None:
    source = small_solver(folder, f"parallel_param {{ {parallel} }}", net=net)
    graph = build_graph_of(source.train)
    refuse(source, violations_of_net(source, graph, ranks=1))
    return stage(source, graph)


def normalised(param: str) -> str:
    layer = f'layer {{ name: "bn" type: "BatchNorm" bottom: "conv" top: "conv" {param} }}'
    return NET.replace('layer { name: "ip"', layer + ' layer { name: "ip"')


def marked(**stages: int) -> str:
    net = NET
    for layer, number in stages.items():
        net = net.replace(f'name: "{layer}" type', f'name: "{layer}" parallel_param {{ stage: {number} }} type')
    return net


MANUAL = "num_stages: 2 pipeline_param { allocator: MANUAL "


def test_one_stage_is_none(tmp_path: Path) -> None:
    assert staged(tmp_path, "pipeline_param { micro_batches: 8 }") is None


def test_what_the_layers_say(tmp_path: Path) -> None:
    found = staged(tmp_path, MANUAL + "schedule: ONE_F_ONE_B micro_batches: 3 }", marked(ip=1))
    assert found == Staging(("data", "conv", "ip", "loss"), (0, 0, 1, 1), pb.PipelineParameter.ONE_F_ONE_B, (3,))
    assert found.micro_batches == 3
    assert str(found) == "pipeline ONE_F_ONE_B of 3 micro-batches"
    assert list(described(found)) == ["Stage 0: 2 layers, data … conv", "Stage 1: 2 layers, ip … loss"]
    assert list(described(found, ["a", "b"]))[1] == "Stage 1 (b): 2 layers, ip … loss"


@pytest.mark.parametrize(
    ("norm", "over", "cuts"), [("", "MICRO_BATCH", (1,)), (NORM, "MICRO_BATCH", (3,)), (NORM, "BATCH", (1,))]
)
def test_replicas_of_one_and_of_two_stages(norm: str, over: str, cuts: tuple[int, ...], tmp_path: Path) -> None:
    """The replica of one stage runs its share at once, unless a layer normalises by micro-batches."""
    text = f"replica {{ }} replica {{ num_stages: 2 }} pipeline_param {{ micro_batches: 3 batch_norm_over: {over} }}"
    plan = small_solver(tmp_path, f"parallel_param {{ {text} }}", net=BRANCHES.replace("NORM", norm))
    graph = build_graph_of(plan.train)
    whole, pipeline = stage_kinds(plan, graph, plan.parallel_param.layout(3))
    assert whole.of_kinds == pipeline.of_kinds == (whole.of_layers, pipeline.of_layers)
    assert set(whole.of_layers) == {0} and set(pipeline.of_layers) == {0, 1}
    assert (whole.cuts, pipeline.cuts) == (cuts, (3,))
    assert whole.gathers == pipeline.gathers
    assert whole.holders(graph) == tuple((0, stage) for stage in pipeline.of_layers)
    lines = list(described(whole))
    assert [line.split(": ")[:2] for line in lines] == [
        ["Replicas of 1 stage", "Stage 0"],
        ["Replicas of 2 stages", "Stage 0"],
        ["Replicas of 2 stages", "Stage 1"],
    ]


def test_delayed_batches_are_not_divided(tmp_path: Path) -> None:
    found = staged(tmp_path, MANUAL + "schedule: DELAYED micro_batches: 3 }", marked(loss=1))
    assert found is not None
    assert found.cuts == (1,)
    assert str(found) == "pipeline DELAYED"
    assert list(described(found))[1:] == [
        "Stage 1: layer loss",
        "Losses and outputs are shown 1 iteration late: no stage waits for them",
    ]


def test_delays_count_along_the_path_of_a_batch(tmp_path: Path) -> None:
    for marks, path, delays in (
        (marked(conv=1, ip=0), (1, 0), [0, 1]),
        (marked(conv=0, ip=1, loss=0), (0, 1, 0), [2, 1]),
    ):
        found = staged(tmp_path, MANUAL + "schedule: DELAYED }", marks)
        assert found is not None
        assert (found.path, [found.delay(stage) for stage in range(2)]) == (path, delays)


def test_no_place_for_a_stage(tmp_path: Path) -> None:
    with pytest.raises(PrototxtError, match=r"^pipeline_param: no layer runs on stage 1 \(device 1\)"):
        staged(tmp_path, MANUAL + "}")


def test_more_stages_than_layers(tmp_path: Path) -> None:
    """At the number, or at the file that tells it."""
    with pytest.raises(TooManyStagesError) as caught:
        staged(tmp_path, "pipeline_param { micro_batches: 2 } num_stages: 9")
    assert re.match(
        r"pipeline_param: the net can be cut into 3 stages at most, because data "
        r'layers stay with the first layer that computes \("data", "conv"\), but there are to be 9; set num_stages: 3 ',
        str(caught.value),
    )
    assert caught.value.possible == 3


@pytest.mark.parametrize("text", ["num_stages: 9", "replica { ranks: 9 num_stages: 9 } replica { ranks: 1 }"])
def test_the_number_of_stages_alone(text: str, tmp_path: Path) -> None:
    """It is checked before the number of ranks is, which says nothing about the net."""
    plan = small_solver(tmp_path, f"parallel_param {{ {text} }}")
    graph = build_graph_of(plan.train)
    words = "can be cut into 3 stages at most, .* but there are to be 9; set num_stages: 3 or less"
    with pytest.raises(TooManyStagesError, match=words):
        check_stage_count(plan, graph)
    check_stage_count(plan.with_parallel(num_stages=3, replica=()), graph)


def test_a_stage_that_there_is_not(tmp_path: Path) -> None:
    with pytest.raises(PrototxtError, match=r'layer "ip": .*there is no stage 2; the stages are 0 to 1'):
        staged(tmp_path, MANUAL + "}", marked(ip=2))


def test_layers_of_a_block_stay_together(tmp_path: Path) -> None:
    net = NET.replace('name: "conv"', 'name: "conv" parallel_param { block: "middle" }').replace(
        'name: "ip"', 'name: "ip" parallel_param { block: "middle" stage: 1 }'
    )
    with pytest.raises(PrototxtError, match=r'layer "ip": .*stage as layer "conv", with which it is of a block'):
        staged(tmp_path, MANUAL + "}", net)
    found = staged(tmp_path, "num_stages: 2", net)
    assert found is not None
    assert found.of_layers == (0, 0, 0, 1)
    with pytest.raises(TooManyStagesError, match=r'layers of a block stay together \("conv" to "ip"\)'):
        staged(tmp_path, "num_stages: 3", net)


def test_devices_with_too_little_memory(tmp_path: Path) -> None:
    (tmp_path / "d").write_text("node { gflops: 1 memory: 0.001 count: 2 }")
    with pytest.raises(PrototxtError, match=r"pipeline_param: devices: d: .*device kind0\.\d .* lacks" + at(49)):
        staged(tmp_path, 'num_stages: 2 pipeline_param { devices: "d" }')


def test_a_flag_that_names_devices_with_too_little_memory(tmp_path: Path) -> None:
    """Not the solver is to blame, which does not name them."""
    (tmp_path / "d").write_text("node { gflops: 1 memory: 0.001 count: 2 }")
    source = small_solver(tmp_path, "parallel_param { num_stages: 2 }").with_pipeline(devices="d")
    with pytest.raises(FileError, match=r"^d: allocator: BLOCK finds no cut that fits: device kind0\.\d .* lacks"):
        stage(source, build_graph_of(source.train))


def test_too_little_capacity(tmp_path: Path) -> None:
    """At the number of the stage that would get too much, or at the file of devices."""
    want = r": device 0 \(stage 0\) would get .* its capacity is 10\.00%"
    with pytest.raises(PrototxtError, match=rf"pipeline_param: allocator: BLOCK finds no cut .*{want}" + at(49)):
        staged(tmp_path, "num_stages: 2 pipeline_param { capacity: 0.1 capacity: 1 }")
    (tmp_path / "d").write_text("node { gflops: 1 capacity: 0.1 } node { gflops: 1 }")
    with pytest.raises(PrototxtError, match=r"pipeline_param: devices: d: .*kind0 .* its capacity is 10\.00%" + at(49)):
        staged(tmp_path, 'num_stages: 2 pipeline_param { devices: "d" }')


def memory_of(folder: Path, parallel: str, replicas: int) -> str:
    """What a stage that is too small lacks, as the message has it."""
    (folder / "d").write_text("node { gflops: 1 memory: 0.001 count: 2 }")
    source = small_solver(folder, f'parallel_param {{ num_stages: 2 {parallel} pipeline_param {{ devices: "d" }} }}')
    with pytest.raises(PrototxtError) as error:
        stage(source, build_graph_of(source.train), replicas)
    [need] = re.findall(r"its layers need ([\d,]+) bytes", str(error.value))
    return str(need)


def test_replicas_divide_the_batch(tmp_path: Path) -> None:
    """Unless each has one of its own."""
    alone = memory_of(tmp_path, "", 1)
    assert memory_of(tmp_path, "batch_scope: REPLICA", 2) == alone
    assert int(memory_of(tmp_path, "", 2).replace(",", "")) < int(alone.replace(",", ""))


def test_a_stage_with_next_to_no_work_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    staged(tmp_path, MANUAL + "}", marked(loss=1))
    assert "Pipeline: stage 1 (device 1) has 0.3% of the work and " in caplog.text
    caplog.clear()
    staged(tmp_path, MANUAL + "}", marked(ip=1))
    assert not caplog.records


def test_a_tiny_net_is_spread_where_nothing_overlaps(tmp_path: Path) -> None:
    """On links of which nothing is known, messages take longer than layers; but any cut has as many."""
    for schedule in ("SEQUENTIAL", "GPIPE", "ONE_F_ONE_B"):
        found = staged(tmp_path, f"num_stages: 2 pipeline_param {{ schedule: {schedule} }}")
        assert found is not None and found.of_layers == (0, 0, 1, 1)


def test_the_stages_that_layers_name() -> None:
    assert manual_stages(graph_of(marked(conv=0, ip=3))) == [None, 0, 3, None]


# Micro-batches


@pytest.mark.parametrize(
    ("param", "pipeline", "gathers"),
    [
        ("", "micro_batches: 2", False),  # each micro-batch by itself
        ("", "micro_batches: 2 batch_norm_over: BATCH", True),
        ("", "micro_batches: 2 batch_norm_over: BATCH schedule: ONE_F_ONE_B", True),
        ("", "micro_batches: 1 batch_norm_over: BATCH", False),
        ("", "schedule: DELAYED batch_norm_over: BATCH", False),
        ("batch_norm_param { use_global_stats: true }", "micro_batches: 2 batch_norm_over: BATCH", False),
    ],
)
@pytest.mark.parametrize("parallel", ["", "sync_batch_norm: true "])
def test_batch_norm(param: str, pipeline: str, gathers: bool, parallel: str, tmp_path: Path) -> None:
    net = normalised(param)
    found = staged(tmp_path, f"{parallel}num_stages: 2 pipeline_param {{ {pipeline} }}", net)
    assert found is not None
    assert [found.layers[layer] for layer in found.gathers] == ["bn"] * gathers
    assert not gathers or found.rule == pb.PipelineParameter.GPIPE  # there is no other order


LOSS = 'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "y" top: "loss"'


@pytest.mark.parametrize(
    ("param", "apart"),
    [
        ("loss_param { ignore_label: 1 }", False),  # the normaliser is VALID unless the text says otherwise
        ("loss_param { ignore_label: 1 normalization: VALID }", False),
        ("loss_param { ignore_label: 1 normalization: FULL }", True),
        ("loss_param { ignore_label: 1 normalization: BATCH_SIZE }", True),
        ("loss_param { ignore_label: 1 normalization: NONE }", True),
        ("loss_param { normalization: VALID }", True),
        ("", True),
    ],
)
def test_losses_that_leave_labels_out(param: str, apart: bool) -> None:
    assert gathering_in(NET.replace(LOSS, f"{LOSS} {param}")) == [] if apart else ["loss"]


@pytest.mark.parametrize(
    ("tops", "param", "gathers"),
    [
        ('top: "a"', "", []),
        ('top: "a"', "accuracy_param { ignore_label: 1 }", ["acc"]),
        ('top: "a" top: "b"', "", ["acc"]),  # the second one counts the labels of each class
    ],
)
def test_accuracies(tops: str, param: str, gathers: list[str]) -> None:
    """In the training net; tests are not divided into micro-batches."""
    accuracy = f'layer {{ name: "acc" type: "Accuracy" bottom: "ip" bottom: "y" {tops} {param} }}'
    assert gathering_in(f"{NET} {accuracy}") == gathers


def gathering_in(net: str) -> list[str]:
    """The layers that wait for all micro-batches."""
    graph = graph_of(net)
    return [graph.nodes[layer].name for layer in gathering(graph, PipelineSpec())]


def test_one_process_in_micro_batches() -> None:
    graph = graph_of(NET)
    alone = Staging.alone(graph, (2, 3))
    assert alone.stages(graph) == (0,) * 4
    assert alone.micro_batches == 6


def test_a_test_net_follows() -> None:
    staging = Staging(("data", "conv", "ip", "loss"), (0, 1, 2, 2), pb.PipelineParameter.GPIPE, (4,))
    test = graph_of(
        NET.replace(LOSS, 'layer { name: "relu" type: "ReLU" bottom: "conv" top: "relu" }\n' + LOSS), phase=pb.TEST
    )
    by_name = dict(zip((node.name for node in test.nodes), staging.stages(test), strict=True))
    assert by_name["relu"] == 1
    assert by_name["loss"] == 2
    assert staging.stages(graph_of(NET)) == (0, 1, 2, 2)
