"""Which stage runs which layers: of the training net as a placement says, and of a test net."""

from __future__ import annotations

import pytest

from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.part import Part
from bpt.graph.stages import borders, inseparable_runs, layer_stages, part_of, stages_by_name
from tests.support.stand_ins import build

#  0 in → x y    1 a    2 a_split    3 b    4 l(oss)    5 c
TEXT = """layer { name: "in" type: "Source" top: "x" top: "y" }
    layer { name: "a" type: "Learner" bottom: "x" top: "a" }
    layer { name: "b" type: "Learner" bottom: "a" top: "b" }
    layer { name: "l" type: "Loss" bottom: "b" bottom: "y" }
    layer { name: "c" type: "Neuron" bottom: "a" top: "c" }"""


def learner(name: str, bottom: str, *shared: str) -> str:
    params = "".join(f' param {{ name: "{param}" }}' for param in shared)
    return f'layer {{ name: "{name}" type: "Learner" bottom: "{bottom}" top: "{name}"{params} }}\n'


def test_partitions_spread_over_layers() -> None:
    graph = build(TEXT)
    assert layer_stages(graph, [0, 3, 5], [1, 0, 1]) == (1, 1, 1, 0, 0, 1)
    assert layer_stages(graph, [0], [0]) == (0,) * 6


@pytest.mark.parametrize(
    ("stages", "expected"), [([], set()), ([0, 0, 0], {0}), ([1, 1, 0, 1, 1], {0, 2, 3}), ([2, 1, 0], {0, 1, 2})]
)
def test_borders(stages: list[int], expected: set[int]) -> None:
    assert borders(stages) == expected


def test_a_stage_holds_its_layers_and_the_first_one_the_sources() -> None:
    graph = build(TEXT)
    stages = (1, 1, 1, 0, 2, 2)
    assert part_of(graph, stages, 0) == Part(frozenset({0, 3}))  # "in" is run by stage 0
    assert part_of(graph, stages, 1) == Part(frozenset({1, 2}))
    assert part_of(graph, stages, 2) == Part(frozenset({4, 5}))


def test_a_source_in_the_middle() -> None:
    graph = build(
        learner("a", "x").replace("layer {", 'layer { name: "in" type: "Source" top: "x" }\n layer {', 1)
        + 'layer { name: "more" type: "Source" top: "z" }'
        + 'layer { name: "j" type: "Join" bottom: "a" bottom: "z" top: "j" }'
    )
    stages = (0, 0, 1, 1)
    assert part_of(graph, stages, 0) == Part(frozenset({0, 1, 2}))
    assert part_of(graph, stages, 1) == Part(frozenset({3}))


def test_parts_tile_the_net() -> None:
    graph, stages = build(TEXT), (2, 0, 0, 1, 1, 2)
    own = [part_of(graph, stages, stage) for stage in range(3)]
    for node in graph.nodes:
        assert sum(part.runs(node.index) for part in own) == 1
    for param in graph.learnable:
        assert sum(part.holds(param) for part in own) == 1


# A test net

TRAINING = {"in": 0, "a": 0, "a_a_0_split": 0, "b": 1, "l": 2, "c": 1}


def staged(text: str, stage_of: dict[str, int]) -> dict[str, int]:
    graph = build(text, pb.TEST)
    return dict(zip((node.name for node in graph.nodes), stages_by_name(graph, stage_of), strict=True))


def test_the_same_layers_on_the_same_stages() -> None:
    assert list(staged(TEXT, TRAINING).values()) == [0, 0, 0, 1, 2, 1]


def test_other_layers_go_where_the_last_of_their_bottoms_is_made() -> None:
    """A Split that only this net has, too."""
    more = TEXT + '\nlayer { name: "accuracy" type: "Loss" bottom: "b" bottom: "y" }'
    found = staged(more, {"in": 0, "a": 0, "a_a_0_split": 0, "b": 2, "l": 1, "c": 1})
    assert found["accuracy"] == 2
    assert found["b_b_0_split"] == 2
    assert found["y_in_1_split"] == 0
    assert found["l"] == 1


def test_another_source() -> None:
    """It stands in the run of the layer before it; the first one on stage 0."""
    late = 'layer { name: "late" type: "Source" top: "t" } layer { name: "s" type: "Sink" bottom: "t" } '
    text = TEXT.replace('"in"', '"other"').replace('layer { name: "l"', late + 'layer { name: "l"')
    found = staged(text, TRAINING)
    assert found["other"] == 0
    assert found["late"] == found["b"] == 1
    assert found["s"] == 1


def test_a_net_without_layers_of_the_training_net() -> None:
    assert set(staged(TEXT, {}).values()) == {0}


def test_another_layer_stays_with_the_owner_of_its_parameters() -> None:
    """A stage has no parameters of another one."""
    text = 'layer { name: "in" type: "Source" top: "x" }\n' + learner("a", "x", "w", "v") + learner("b", "a")
    found = staged(text + learner("again", "b", "w", "v"), {"in": 0, "a": 0, "b": 1})
    assert found["again"] == 0


# What must stay together


def bound(text: str) -> list[tuple[str, ...]]:
    graph = build(text)
    return [tuple(node.name for node in graph.nodes[start:end]) for start, end in inseparable_runs(graph)]


START = 'layer { name: "in" type: "Source" top: "x" }\n'


def test_a_chain_is_bound_nowhere() -> None:
    assert bound(START + learner("a", "x") + learner("b", "a")) == []


def test_a_split_stays_with_what_it_copies() -> None:
    text = START + learner("a", "x") + learner("b", "a") + learner("c", "a") + learner("d", "x")
    first, second = bound(text)
    assert first[0] == "in"
    assert second[0] == "a"
    assert "split" in first[1]
    assert "split" in second[1]
    assert len(first) == len(second) == 2


def test_layers_with_common_parameters_stay_together_with_all_between() -> None:
    text = START + learner("a", "x", "w") + learner("b", "a") + learner("c", "b", "w") + learner("d", "c")
    assert bound(text) == [("a", "b", "c")]


def test_the_second_parameter_counts_too() -> None:
    assert bound(START + learner("a", "x", "", "v") + learner("b", "a", "", "v") + learner("d", "b")) == [("a", "b")]


def test_what_overlaps_is_one() -> None:
    text = START + learner("a", "x", "w") + learner("b", "a", "v") + learner("c", "b", "w") + learner("d", "c", "v")
    assert bound(text + learner("e", "d")) == [("a", "b", "c", "d")]
    nested = START + learner("a", "x", "w") + learner("b", "a", "v") + learner("c", "b", "v") + learner("d", "c", "w")
    assert bound(nested) == [("a", "b", "c", "d")]


def test_what_only_touches_is_two() -> None:
    text = START + learner("a", "x", "w") + learner("b", "a", "w") + learner("c", "b", "v") + learner("d", "c", "v")
    assert bound(text) == [("a", "b"), ("c", "d")]
