"""Which nets a solver trains and tests: Caffe's rules in InitTrainNet and InitTestNets."""

from __future__ import annotations

from pathlib import Path

import pytest

from bpt.base.errors import PrototxtError
from bpt.config.plan import nets
from bpt.config.plan.resolve import read_plan
from bpt.config.plan.run_plan import RunPlan
from bpt.config.proto import bpt_pb2 as pb
from bpt.nn.net_graph import build_graph_of

pytestmark = pytest.mark.usefixtures("command_line")

INPUT = 'layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 } } }'
NETS = {
    "a": INPUT + 'layer { name: "t" type: "ReLU" bottom: "x" top: "y" include { phase: TEST stage: "deep" } }',
    "b": 'state { level: 1 stage: "own" } name: "b"' + INPUT,
}
BASE = 'base_lr: 0.1 lr_policy: "fixed" max_iter: 1\n'


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in NETS.items():
        (tmp_path / f"{name}.prototxt").write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def solver(text: str) -> RunPlan:
    Path("solver.prototxt").write_text(BASE + text)
    return read_plan("solver.prototxt")


def described(plan: nets.NetPlan) -> tuple[str, str, int, list[str]]:
    """Caffe's words for where the net comes from, and the state it is filtered by."""
    state = plan.state
    return plan.described_by, pb.Phase.Name(state.phase), state.level, list(state.stage)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('net: "a.prototxt"', ("net file: a.prototxt", "TRAIN", 0, [])),
        ('train_net: "a.prototxt"', ("train_net file: a.prototxt", "TRAIN", 0, [])),
        (f"net_param {{ {NETS['a']} }}", ("net_param", "TRAIN", 0, [])),
        (f"train_net_param {{ {NETS['b']} }}", ("train_net_param", "TRAIN", 1, ["own"])),
        # The net's own state first, then the solver's.
        ('net: "b.prototxt" train_state { level: 3 stage: "s" }', ("net file: b.prototxt", "TRAIN", 3, ["own", "s"])),
    ],
)
def test_the_net_to_train(text: str, expected: tuple[str, str, int, list[str]]) -> None:
    assert described(solver(text).train) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('net: "a.prototxt"', []),
        ('net: "a.prototxt" test_interval: 5', []),
        ('net: "a.prototxt" test_iter: 3 test_interval: 5', [("net file: a.prototxt", "TEST", 0, [])]),
        # One test of the net for each test_iter that is left over.
        (
            'net: "a.prototxt" test_net: "b.prototxt" test_iter: 1 test_iter: 2 test_iter: 3 test_interval: 5',
            [("test_net file: b.prototxt", "TEST", 1, ["own"]), *[("net file: a.prototxt", "TEST", 0, [])] * 2],
        ),
        # Texts in the solver come before files, whatever their order there.
        (
            f'train_net: "a.prototxt" test_net: "b.prototxt" test_net_param {{ {NETS["a"]} }} '
            "test_iter: 1 test_iter: 2 test_interval: 5",
            [("test_net_param", "TEST", 0, []), ("test_net file: b.prototxt", "TEST", 1, ["own"])],
        ),
        (
            'net: "b.prototxt" test_iter: 1 test_iter: 2 test_interval: 5 test_state { } '
            'test_state { level: 4 stage: "deep" }',
            [("net file: b.prototxt", "TEST", 1, ["own"]), ("net file: b.prototxt", "TEST", 4, ["own", "deep"])],
        ),
    ],
)
def test_the_nets_to_test(text: str, expected: list[tuple[str, str, int, list[str]]]) -> None:
    assert [described(plan) for plan in solver(text).tests] == expected


FIELDS = "net, net_param, train_net, train_net_param"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", f"1:1: name the net to train by one of {FIELDS}: none of them is set"),
        (
            'net: "a.prototxt" train_net: "b.prototxt"',
            f"2:19: name the net to train by one of {FIELDS}: net and train_net are set",
        ),
    ],
)
def test_exactly_one_net_is_trained(text: str, message: str) -> None:
    with pytest.raises(PrototxtError) as caught:
        assert solver(text).train
    assert str(caught.value) == f"solver.prototxt:{message}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            'train_net: "a.prototxt" test_iter: 3 test_interval: 5',
            "2:25: test_iter must be given once for each test net: 0 wanted, 1 given",
        ),
        (
            'net: "a.prototxt" test_net: "b.prototxt" test_interval: 5',
            "1:1: test_iter must be given once for each test net: 1 wanted, 0 given",
        ),
        (
            'net: "a.prototxt" test_iter: 3 test_interval: 5 test_state { } test_state { }',
            "2:49: test_state must be given once for each test net: 1 wanted, 2 given",
        ),
        (
            'net: "a.prototxt" test_iter: 3',
            "2:19: test_iter asks for tests, but test_interval is 0; set it to the iterations between tests",
        ),
    ],
)
def test_tests_that_do_not_fit(text: str, message: str) -> None:
    with pytest.raises(PrototxtError) as caught:
        assert solver(text).tests
    assert str(caught.value) == f"solver.prototxt:{message}"


def test_the_state_chooses_the_layers() -> None:
    def names(*stages: str, phase: int = pb.TEST) -> list[str]:
        return [node.name for node in build_graph_of(nets.file_plan("a.prototxt", phase, 0, stages)).nodes]

    assert names("deep") == ["in", "t"]
    assert names() == names("other") == names("deep", phase=pb.TRAIN) == ["in"]


def test_a_net_file_is_also_looked_for_beside_the_solver(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    solver('net: "a.prototxt"')
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    assert read_plan("../solver.prototxt").train.source.path == "../a.prototxt"


def test_a_mistake_in_a_text_within_the_solver_has_its_place() -> None:
    source = solver('net_param {\n  layer { name: "a" type: "Warp" }\n}')
    with pytest.raises(PrototxtError, match=r'^solver\.prototxt:3:21: layer "a": unknown layer type "Warp"'):
        build_graph_of(source.train)


def test_input_shapes_can_be_replaced() -> None:
    graph = build_graph_of(nets.file_plan("a.prototxt", pb.TRAIN), {"x": (5, 6)})
    assert graph.blobs["x"].shape == (5, 6)


def test_a_state_without_layers_is_a_mistake() -> None:
    Path("c.prototxt").write_text('layer { name: "a" type: "Silence" include { min_level: 5 } }')
    with pytest.raises(PrototxtError) as caught:
        build_graph_of(nets.file_plan("c.prototxt", pb.TEST, 2, ("s", "t")))
    assert str(caught.value) == (
        "c.prototxt:1:1: the net has no layer for phase TEST and level 2 and stage s, t; "
        'layer "a" has include { min_level: 5 }: --level 5'
    )


def test_a_net_that_is_in_neither_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither where bpt was called nor beside the solver; both are named."""
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    (there / "solver.prototxt").write_text('net: "nets/a.prototxt" base_lr: 1')
    monkeypatch.chdir(here)
    plan = read_plan("../there/solver.prototxt")
    with pytest.raises(PrototxtError) as caught:
        build_graph_of(plan.train)
    assert str(caught.value).endswith(f"(looked for {here}/nets/a.prototxt and {there}/nets/a.prototxt)")
