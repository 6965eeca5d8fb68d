"""Plans: placement, even split and one device alone, with times worked out by hand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bpt.base.errors import BptError
from bpt.config.plan.resolve import read_plan
from bpt.config.proto import bpt_pb2 as pb
from bpt.perf.planner.given_devices import choose_devices
from bpt.perf.planner.plan_layers import plan_solver, rehearse
from bpt.perf.planner.plan_tables import lines as tables
from tests.support.marks import slow
from tests.support.paths import ROOT
from tests.support.plans import two_unlike
from tests.support.small_solver import NET


def pipeline(text: str) -> str:
    return f"parallel_param {{ pipeline_param {{ {text} }} }}"


def test_by_hand(tmp_path: Path) -> None:
    """conv takes 2 s forward and 4 s backward, ip and loss 1 s and 2 s; half of that for a micro-batch.

    Three times as fast, conv and ip take the first device 0.5 s forward and 1 s backward, and loss takes the second
    as long: it forwards from 0.5 to 1.5, then hands diffs back at 2.5 and 3.5, and the first one is done at 4.5. If
    devices were alike, conv alone would be as much work as ip and loss. Then the first one forwards in 1/3 s, the
    second one from there on in 1 s, backward in 2 s each, up to 6 1/3, and the first one is done 2/3 s later.
    """
    plan = plan_solver(two_unlike(tmp_path))
    assert [device.name for device in plan.problem.devices] == ["fast", "slow"]
    assert [device.speed for device in plan.problem.devices] == pytest.approx([3, 1])
    chosen, even, alone = plan.chosen, plan.even, plan.alone
    assert [(segment.start, segment.end) for segment in chosen.segments] == [(0, 3), (3, 4)]
    assert chosen.stages == (0, 1)
    assert chosen.seconds == pytest.approx(4.5)
    assert chosen.busy == pytest.approx((3, 3))
    assert chosen.loads == pytest.approx((2 / 3, 2 / 3))
    assert chosen.bubble == pytest.approx(1 / 3)
    assert [(segment.start, segment.end) for segment in even.segments] == [(0, 2), (2, 4)]
    assert even.seconds == pytest.approx(7)
    assert even.busy == pytest.approx((2, 6))
    assert (alone.device, alone.seconds, alone.fits) == (0, pytest.approx(4), True)
    assert (plan.allocator, plan.schedule, plan.batch, plan.passes) == ("BLOCK", "GPIPE", 8, 1)
    assert plan.block is None
    assert (plan.measured, plan.described, plan.convergence) == ("host: cpu (Fast)", True, ())


def test_costs_of_other_micro_batches(tmp_path: Path) -> None:
    assert plan_solver(two_unlike(tmp_path, pipeline("micro_batches: 4"))).measured == (
        "host: cpu (Fast), in 2 micro-batches"
    )
    assert plan_solver(two_unlike(tmp_path, pipeline("schedule: DELAYED"))).measured == (
        "host: cpu (Fast), in 2 micro-batches"
    )


def test_what_travels(tmp_path: Path) -> None:
    """Labels cross from stage 0 to the loss, without diffs."""
    plan = plan_solver(two_unlike(tmp_path))
    label, ip = plan.chosen.transfers
    assert [plan.graph.edges[transfer.edges[0]].blob for transfer in (label, ip)] == ["y", "ip"]
    assert [(transfer.shape, transfer.diff) for transfer in (label, ip)] == [((8,), False), ((8, 3), True)]


def test_memory(tmp_path: Path) -> None:
    """Weights, gradients and momentum, 4 bytes each, of conv (4 x 27 and 4) and ip (3 x 64 and 3).

    And the gradient of the largest, of ip, which is added to that of the first micro-batch.
    """
    plan = plan_solver(two_unlike(tmp_path))
    assert plan.chosen.parameters == (12 * (112 + 195) + 4 * 192, 0)
    # Tops: of data, of conv, of ip; of loss, and what it receives.
    assert plan.chosen.activations == (4 * (8 * 108 + 8 + 8 * 64 + 8 * 3), 4 * (1 + 8 + 8 * 3))


def test_a_stage_with_next_to_no_work(tmp_path: Path) -> None:
    net = NET.replace('type: "SoftmaxWithLoss"', 'type: "SoftmaxWithLoss" parallel_param { stage: 1 }')
    text = pipeline('allocator: MANUAL costs: "" devices: ""')
    lines = list(tables(plan_solver(two_unlike(tmp_path, text, net=net))))
    [warning] = [line for line in lines if line.startswith("Warning: ")]
    assert re.match(r"Warning: stage 1 \(device 1\) has 0\.3% of the work and \d+\.\d% of the memory", warning)


def test_several_passes(tmp_path: Path) -> None:
    """The second pass starts when the first one is over, with GPIPE; alone, twice 4 s."""
    plan = plan_solver(two_unlike(tmp_path, "iter_size: 2"))
    assert plan.chosen.busy == pytest.approx((6, 6))
    assert plan.alone.seconds == pytest.approx(8)
    assert plan.passes == 2
    assert plan.chosen.seconds == pytest.approx(9)


def test_the_update_goes_where_parameters_are(tmp_path: Path) -> None:
    """6 s at speed 1, all of it on the first device. There an iteration of 12 s and 6 s takes 6 s, elsewhere 18 s."""
    cluster = f"node {{ samples_per_second: {8 / 6} }} node {{ samples_per_second: {8 / 18} }}"
    plan = plan_solver(two_unlike(tmp_path, cluster=cluster, update=6.0))
    assert [device.speed for device in plan.problem.devices] == pytest.approx([3, 1])
    assert plan.chosen.busy == pytest.approx((5, 3))
    assert plan.chosen.seconds == pytest.approx(6.5)
    assert plan.alone.seconds == pytest.approx(6)


def test_sequential(tmp_path: Path) -> None:
    """Two micro-batches, each 0.5 + 0.5 forward and 1 + 1 backward."""
    plan = plan_solver(two_unlike(tmp_path, pipeline("schedule: SEQUENTIAL")))
    assert plan.chosen.seconds == pytest.approx(6)


def test_delayed_in_its_steady_state(tmp_path: Path) -> None:
    """Both stages work 3 s for a whole batch, all the time."""
    plan = plan_solver(two_unlike(tmp_path, pipeline("schedule: DELAYED")))
    assert plan.chosen.seconds == pytest.approx(3)
    assert plan.chosen.bubble == pytest.approx(0)
    assert plan.problem.micro_batches == 1


def test_gabra_tells_how_it_converged(tmp_path: Path) -> None:
    """Under STEP_TIME, in milliseconds of a step, 4.5 s by the clock, too; under PROFIT, the profit rises."""
    plan = plan_solver(two_unlike(tmp_path, pipeline("allocator: GABRA gabra_param { generations: 20 }")))
    assert plan.objective == "step ms"
    generations, times = zip(*plan.convergence, strict=True)
    assert list(generations) == list(range(len(times)))
    assert list(times) == sorted(times, reverse=True)
    assert times[-1] == pytest.approx(4500)
    assert plan.chosen.busy == pytest.approx((3, 3))
    assert plan.block is not None
    assert plan.block.seconds == pytest.approx(4.5)
    text = "allocator: GABRA objective: PROFIT gabra_param { generations: 20 }"
    paper = plan_solver(two_unlike(tmp_path, pipeline(text)))
    assert paper.objective == "profit"
    values = [value for _, value in paper.convergence]
    assert values == sorted(values) and values[0] > 0


def test_manual(tmp_path: Path) -> None:
    net = NET.replace('type: "InnerProduct"', 'type: "InnerProduct" parallel_param { stage: 1 }')
    plan = plan_solver(two_unlike(tmp_path, pipeline("allocator: MANUAL"), net=net))
    assert len(plan.chosen.segments) == 2


def test_alone_in_too_little_memory(tmp_path: Path) -> None:
    """All of the net takes 9,252 bytes; each half of it fits."""
    cluster = 'node { name: "a" count: 2 samples_per_second: 1 memory: 0.0078125 }'
    assert not plan_solver(two_unlike(tmp_path, cluster=cluster)).alone.fits


def test_settings_without_effect_are_remarked(tmp_path: Path) -> None:
    assert not plan_solver(two_unlike(tmp_path)).remarks
    remarks = plan_solver(two_unlike(tmp_path, pipeline("partitions: 4 gabra_param { seed: 1 }"))).remarks
    assert [re.sub(r"has no effect .*", "", remark) for remark in remarks] == [
        "parallel_param: pipeline_param { partitions } ",
        "parallel_param: pipeline_param { gabra_param } ",
    ]


def test_a_rehearsal_refuses_what_a_plan_would_but_for_costs(tmp_path: Path) -> None:
    source = two_unlike(tmp_path)
    (tmp_path / "c.json").write_text("of another net")  # about to be written anew
    rehearse(source)
    assert source.parallel_param.pipeline_param.costs == "c.json"
    with pytest.raises(BptError, match="no layer runs on stage 1"):
        rehearse(two_unlike(tmp_path, pipeline("allocator: MANUAL")))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (pipeline("micro_batches: 0"), "micro_batches is 0; it must be at least 1"),
        (pipeline("schedule: DELAYED") + " iter_size: 2", "schedule: DELAYED applies the gradient of one batch"),
        (pipeline("allocator: GABRA partitions: 99"), "pipeline_param: partitions: 99: there are 2 stages"),
        (pipeline("allocator: MANUAL"), "no layer runs on stage 1"),
        ("base_lr: nan", "base_lr is nan; it must be finite"),
    ],
)
def test_what_is_refused(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(BptError, match=message):
        plan_solver(two_unlike(tmp_path, text))


def test_too_little_memory_names_the_device(tmp_path: Path) -> None:
    cluster = 'node { name: "big" samples_per_second: 1 } node { name: "tiny" samples_per_second: 9 memory: 1e-6 }'
    with pytest.raises(BptError, match="device tiny"):
        plan_solver(two_unlike(tmp_path, cluster=cluster))


def test_without_the_data(tmp_path: Path) -> None:
    net = NET.replace(
        'type: "DummyData" top: "x" top: "y"\n        dummy_data_param { shape { dim: 8 dim: 3 dim: 6 dim: 6 } shape '
        '{ dim: 8 }\n                           data_filler { type: "gaussian" } data_filler { type: "constant" } }',
        'type: "Data" top: "x" top: "y" data_param { source: "nowhere" batch_size: 8 }',
    )
    assert "nowhere" in net
    text = 'parallel_param { pipeline_param { costs: "" devices: "" } }'
    plan = plan_solver(two_unlike(tmp_path, text, net=net), (3, 6, 6))
    assert len(plan.chosen.segments) == 2
    assert (plan.measured, plan.described) == ("", False)


def test_the_schedules_names_are_those_of_the_schema(tmp_path: Path) -> None:
    for name in pb.PipelineParameter.DESCRIPTOR.enum_types_by_name["Schedule"].values_by_name:
        assert plan_solver(two_unlike(tmp_path, pipeline(f"schedule: {name}"))).schedule == name


RESATTNET = [("18_3d/solver_small", 32), ("18_3d/solver", 112), ("34_3d/solver", 112)]


@pytest.mark.parametrize(("solver", "size"), [RESATTNET[0], *(slow(*more) for more in RESATTNET[1:])])
def test_3d_resattnet_gains_from_stages(solver: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As shipped, on the eight devices that are, which all together are 5 times as fast as the first of them."""
    monkeypatch.chdir(ROOT)  # the nets' names start there
    run = read_plan(f"prototxt/resattnet{solver}_hybrid.prototxt")
    run, stages, remarks = choose_devices(run, "prototxt/clusters/eight_unlike.prototxt")
    assert stages == 8
    assert len(remarks) == 1  # that the flag has the last word
    plan = plan_solver(run, (1, size, size, size))
    assert sum(device.speed for device in plan.problem.devices) == pytest.approx(5 * plan.problem.devices[0].speed)
    assert 3 <= plan.alone.seconds / plan.chosen.seconds <= 5
    slowest = max(range(8), key=lambda stage: plan.chosen.busy[stage])
    assert plan.chosen.seconds >= plan.chosen.busy[slowest] * (1 - 0.02)
