"""A blob whose maker a rule left out: the error names the layer, its rule, and the flags that admit it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bpt.apps.pictures.fed_net import fed_net
from bpt.base.errors import LayerError, UserError
from bpt.config.plan.nets import file_plan, make_state
from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.build import build_graph
from bpt.graph.left_out import admitting_state
from bpt.graph.state import is_in
from bpt.nn.net_graph import build_graph_of
from tests.support.stand_ins import registry, specs_of

pytestmark = pytest.mark.usefixtures("command_line")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def error_of(rules: str, state: pb.NetState) -> LayerError:
    layers = specs_of(f'layer {{ name: "in" type: "Input" top: "x" {rules} }}\nlayer {{ name: "r" bottom: "x" }}')
    with pytest.raises(LayerError) as caught:
        build_graph("net", layers, registry(), state)
    return caught.value


@pytest.mark.parametrize(
    ("rules", "state", "flags"),
    [
        ("include { phase: TEST }", make_state(pb.TRAIN), "--phase TEST"),
        ("include { phase: TRAIN }", make_state(pb.TEST), "--phase TRAIN"),
        ('include { stage: "full" }', make_state(pb.TRAIN), "--stage full"),
        ('include { stage: "a" stage: "b" }', make_state(pb.TRAIN, 0, ["c"]), "--stage c,a,b"),
        ('include { not_stage: "c" }', make_state(pb.TRAIN, 0, ["c"]), "no stage c"),
        ("include { min_level: 2 }", make_state(pb.TRAIN), "--level 2"),
        ("include { max_level: -1 }", make_state(pb.TRAIN), "--level -1"),
        ("exclude { phase: TRAIN }", make_state(pb.TRAIN), "--phase TEST"),
        ('exclude { stage: "c" }', make_state(pb.TRAIN, 0, ["c"]), "no stage c"),
        ('exclude { not_stage: "c" }', make_state(pb.TRAIN), "--stage c"),
        ("exclude { min_level: 1 }", make_state(pb.TRAIN, 3), "--level 0"),
        ("exclude { max_level: 1 }", make_state(pb.TRAIN), "--level 2"),
        ('exclude { max_level: 1 } exclude { not_stage: "c" }', make_state(pb.TRAIN), "--level 2 and --stage c"),
        ('include { phase: TEST stage: "s" } include { stage: "t" }', make_state(pb.TRAIN), "--stage t"),
        ('include { phase: TEST stage: "s" }', make_state(pb.TRAIN), "--phase TEST and --stage s"),
    ],
)
def test_the_flags_that_admit_the_maker(rules: str, state: pb.NetState, flags: str) -> None:
    error = error_of(rules, state)
    assert error.layer == "r" and error.origin is not None and error.origin.line == 2
    assert 'layer "in" (line 1)' in error.why and rules in error.why
    assert f": {flags}" in error.why


def test_the_state_that_is_found_admits_the_layer() -> None:
    (layer,) = specs_of('layer { name: "a" exclude { stage: "s" } exclude { stage: "t" min_level: 1 } }')
    state = make_state(pb.TEST, 1, ["s", "t"])
    found = admitting_state(layer, state)
    assert found is not None and is_in(layer, found)
    assert (found.phase, found.level, list(found.stage)) == (pb.TEST, 1, [])


@pytest.mark.parametrize("rules", ['include { stage: "a" not_stage: "a" }', "exclude { }"])
def test_a_layer_that_no_state_admits(rules: str) -> None:
    assert "change its rule" in error_of(rules, make_state(pb.TRAIN)).why


def test_many_stages_take_no_time() -> None:
    rules = " ".join(f'exclude {{ not_stage: "s{index}" }}' for index in range(2000))
    assert "change its rule" in error_of(rules, make_state(pb.TRAIN)).why


def test_of_several_makers_the_one_that_is_nearest() -> None:
    layers = specs_of(
        'layer { name: "far" top: "x" include { phase: TEST stage: "s" } }'
        'layer { name: "near" top: "x" include { stage: "u" } }'
        'layer { name: "in place" bottom: "x" top: "x" include { min_level: 1 } }'
        'layer { name: "r" bottom: "x" }'
    )
    with pytest.raises(LayerError) as caught:
        build_graph("net", layers, registry(), make_state(pb.TRAIN))
    assert 'layer "near"' in caught.value.why and "--stage u" in caught.value.why


def test_a_later_maker_is_no_reason() -> None:
    layers = specs_of('layer { name: "r" bottom: "x" } layer { name: "late" top: "x" include { phase: TEST } }')
    with pytest.raises(LayerError, match="this is the first layer"):
        build_graph("net", layers, registry(), make_state(pb.TRAIN))


def test_a_net_of_which_nothing_is_left() -> None:
    Path("none.prototxt").write_text('layer { name: "a" type: "Input" top: "x" include { phase: TRAIN } }')
    with pytest.raises(UserError, match=r'layer "a" has include { phase: TRAIN }: --phase TRAIN'):
        build_graph_of(file_plan("none.prototxt", pb.TEST))


STAGED = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 3 dim: 8 dim: 8 } } }
layer { name: "c" type: "Pooling" bottom: "data" top: "c" include { stage: "full" } pooling_param { kernel_size: 2 } }
layer { name: "r" type: "ReLU" bottom: "c" top: "r" }
"""


def test_a_net_that_its_caller_feeds_names_the_rule_too() -> None:
    Path("staged.prototxt").write_text(STAGED)
    told = fed_net(file_plan("staged.prototxt", pb.TEST)).left_out_words
    assert 'layer "c" (line 3)' in told and "--stage full" in told
    assert not fed_net(file_plan("staged.prototxt", pb.TEST, 0, ("full",))).left_out_words


def test_a_fed_net_whose_input_is_left_out() -> None:
    Path("input.prototxt").write_text(STAGED.replace('top: "data"', 'top: "data" include { stage: "in" }'))
    with pytest.raises(UserError, match=r'layer "data" has include { stage: "in" }: --stage in'):
        fed_net(file_plan("input.prototxt", pb.TEST))
