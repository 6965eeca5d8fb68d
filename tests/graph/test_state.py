"""Which layers a NetState admits (the cases of Caffe's FilterNet tests that the recordings do not show)."""

from __future__ import annotations

import pytest

from bpt.base.errors import LayerError
from bpt.config.plan.nets import make_state
from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.state import filter_layers
from tests.support.stand_ins import specs_of


def admitted(rules: str, phase: int = pb.TRAIN, level: int = 0, stages: tuple[str, ...] = ()) -> bool:
    layer = specs_of(f'layer {{ name: "a" type: "ReLU" {rules} }}')
    return bool(filter_layers(layer, make_state(phase, level, stages)))


def test_no_rules() -> None:
    assert admitted("", pb.TEST, 5, ("A",))


def test_order_is_kept() -> None:
    layers = specs_of(
        'layer { name: "a" } layer { name: "b" include { phase: TEST } } layer { name: "c" } layer { name: "d" }'
    )
    assert [spec.name for spec in filter_layers(layers, make_state(pb.TRAIN))] == ["a", "c", "d"]


@pytest.mark.parametrize(
    ("level", "inside"), [(1, False), (2, True), (4, True), (5, False)], ids=["below", "least", "most", "above"]
)
def test_levels_are_inclusive(level: int, inside: bool) -> None:
    assert admitted("include { min_level: 2 max_level: 4 }", level=level) is inside
    assert admitted("exclude { min_level: 2 max_level: 4 }", level=level) is not inside


@pytest.mark.parametrize(
    ("stages", "met"),
    [((), False), (("A",), False), (("A", "B"), True), (("B", "A", "Z"), True), (("A", "B", "C"), False)],
)
def test_a_rule_wants_all_stages_and_no_not_stage(stages: tuple[str, ...], met: bool) -> None:
    rule = '{ stage: "A" stage: "B" not_stage: "C" not_stage: "D" }'
    assert admitted(f"include {rule}", stages=stages) is met
    assert admitted(f"exclude {rule}", stages=stages) is not met


def test_several_rules_are_alternatives() -> None:
    include = 'include { phase: TEST min_level: 2 } include { stage: "C" }'
    assert admitted(include, pb.TEST, 2)
    assert admitted(include, pb.TRAIN, stages=("C",))
    assert not admitted(include, pb.TEST, 1)
    exclude = 'exclude { phase: TEST min_level: 2 } exclude { stage: "C" }'
    assert not admitted(exclude, pb.TEST, 2)
    assert not admitted(exclude, pb.TRAIN, stages=("C",))
    assert admitted(exclude, pb.TEST, 1)


def test_an_empty_rule_is_always_met() -> None:
    assert admitted("include {}")
    assert not admitted("exclude {}")


def test_both_kinds_of_rules() -> None:
    layers = specs_of('layer { name: "a"\n  include { phase: TRAIN }\n  exclude { stage: "A" }\n}')
    with pytest.raises(LayerError) as caught:
        filter_layers(layers, make_state(pb.TRAIN))
    assert str(caught.value) == 'net.prototxt:3:3: layer "a": use "include" or "exclude" rules, not both'
