"""``build_graph``: structure as Caffe's, and every error with its place in the text."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bpt.graph.build import build_graph
from bpt.graph.layer_graph import AUTOMATIC, LayerGraph
from bpt.graph.source import layer_specs
from bpt.graph.spec import Arity
from bpt.graph.state import make_state
from bpt.layers import LAYERS
from bpt.proto import bpt_pb2 as pb
from bpt.proto.text import parse_text
from tests.golden_cases import GOLDEN
from tests.graph.stand_ins import TYPES, StandIn, build, error_of

# The cases about rules use types that serve as mere names.
CAFFES_TYPES = {name: LAYERS[name] for name in LAYERS} | {
    **{name: StandIn() for name in ("AbsVal", "BNLL", "Power", "ELU", "Exp")},
    "Reduction": StandIn(top=()),
}


def written_cases() -> list[Any]:
    """The recorded structures whose text stands in the recording (the others are nets of ``prototxt/``)."""
    cases = json.loads((GOLDEN / "structure" / "structure.json").read_text())
    return [
        pytest.param(case, id=f"{case['phase']}-{case['level']}-{''.join(case['stages'])}-{len(case['layers'])}")
        for case in cases
        if not case["prototxt"].startswith("nets/")
    ]


def blobs_of(graph: LayerGraph) -> list[list[Any]]:
    """Caffe's blobs in order: an in-place layer has none of its own, a top without a name has."""
    blobs: dict[Any, list[Any]] = {}
    for edge in graph.edges:
        key = (edge.blob, edge.index if edge.blob == AUTOMATIC else None)
        blobs[key] = [edge.blob, list(edge.shape), edge.loss_weight]
    return list(blobs.values())


@pytest.mark.parametrize("case", written_cases())
def test_structure_is_caffes(case: dict[str, Any]) -> None:
    param = parse_text(case["prototxt"], pb.NetParameter).message
    state = make_state(pb.Phase.Value(case["phase"]), case["level"], case["stages"])
    graph = build_graph(param.name, layer_specs(param), CAFFES_TYPES, state)
    assert [[node.name, node.type] for node in graph.nodes] == case["layers"]
    assert {node.name: list(node.spec.bottoms) for node in graph.nodes} == case["bottoms"]
    assert {node.name: list(node.spec.tops) for node in graph.nodes} == case["tops"]
    assert blobs_of(graph) == case["blobs"]
    assert list(graph.inputs) == case["inputs"]
    assert [edge.blob for edge in graph.outputs] == case["outputs"]
    params: dict[str, list[list[int]]] = {}
    for blob in graph.params:
        params.setdefault(graph.nodes[blob.layer].name, []).append(list(blob.shape))
    assert params == case["params"]


SMALL = """layer { name: "in" type: "Source" top: "x" top: "y" }
layer { name: "a" type: "Learner" bottom: "x" top: "a" }
layer { name: "r" type: "Neuron" bottom: "a" top: "a" }
layer { name: "l" type: "Loss" bottom: "a" bottom: "y" }
"""


def test_edges_have_one_writer_and_one_reader() -> None:
    graph = build(SMALL)
    assert [(edge.blob, edge.producer, edge.consumer) for edge in graph.edges] == [
        ("x", 0, 1),
        ("y", 0, 3),
        ("a", 1, 2),
        ("a", 2, 3),
        (AUTOMATIC, 3, None),
    ]
    assert [(node.bottoms, node.tops) for node in graph.nodes] == [((), (0, 1)), ((0,), (2,)), ((2,), (3,)), ((3, 1), (4,))]
    assert graph.blobs["a"].index == 3
    assert graph.outputs == ()
    assert [edge.index for edge in graph.losses] == [4]
    assert graph.num_parameters == 3 * 2 + 3


def test_a_layer_takes_the_phase_of_the_net_unless_it_has_one() -> None:
    text = SMALL.replace('name: "r"', 'name: "r" phase: TEST')
    assert [node.spec.param.phase for node in build(text).nodes] == [pb.TRAIN, pb.TRAIN, pb.TEST, pb.TRAIN]


def test_input_shapes_replace_those_of_the_text() -> None:
    text = """layer { name: "in" type: "Input" top: "x" top: "y" input_param { shape { dim: 2 dim: 3 } } }
        layer { name: "r" type: "ReLU" bottom: "x" top: "r" }"""
    graph = build(text, LAYERS, input_shapes={"x": (7, 3)})
    assert [edge.shape for edge in graph.edges] == [(7, 3), (2, 3), (7, 3)]


@pytest.mark.parametrize(
    ("weights", "expected"),
    [("", [1.0, 0.0]), ("loss_weight: 0", [0.0, 0.0]), ("loss_weight: 0.5 loss_weight: 2", [0.5, 2.0])],
)
def test_loss_weights_of_two_tops(weights: str, expected: list[float]) -> None:
    types = TYPES | {"Loss": StandIn(Arity(bottoms=(2, 2), tops=(1, 2), auto_tops=True), is_loss=True, top=())}
    tops = 'top: "l" top: "p"' if len(expected) == 2 and weights != "loss_weight: 0" else 'top: "l"'
    graph = build(SMALL.replace('bottom: "y" }', f'bottom: "y" {tops} {weights} }}'), types)
    assert [edge.loss_weight for edge in graph.edges[4:]] == expected[: len(graph.edges) - 4]


# Each case changes one thing in SMALL; columns count from 1.
ERRORS = {
    "unknown type": (
        ("Neuron", "Neurn"),
        '3:19: layer "r": unknown layer type "Neurn"; did you mean "Neuron"?',
    ),
    "too few bottoms": (
        (' bottom: "y" }', " }"),
        '4:31: layer "l": Loss takes 2 bottoms, given 1 (a)',
    ),
    "no bottoms": (
        (' bottom: "a" top: "a" }', ' top: "b" }'),
        '3:1: layer "r": Neuron takes 1 bottom, given none',
    ),
    "too many tops": (
        ('top: "a" }\nlayer { name: "r"', 'top: "a" top: "b" }\nlayer { name: "r"'),
        '2:45: layer "a": Learner takes 1 top, given 2 (a, b)',
    ),
    "a blob made twice": (
        ('bottom: "a" top: "a"', 'bottom: "a" top: "x"'),
        '3:46: layer "r": top "x" is already made by layer "in"',
    ),
    "one name for two tops": (
        ('top: "x" top: "y"', 'top: "x" top: "x"'),
        '1:45: layer "in": top "x" is named twice',
    ),
    "in place on a blob with another reader": (
        ('layer { name: "r"', 'layer { name: "s" type: "Sink" bottom: "a" }\nlayer { name: "r"'),
        '4:46: layer "r": cannot work in place on "a": other layers read what layer "a" made there; '
        "give the top a name of its own",
    ),
    "two layers of one name": (
        ('name: "r"', 'name: "a"'),
        '3:9: layer "a": another layer has the same name (net.prototxt:2:1)',
    ),
    "loss weights": (
        ('bottom: "y" }', 'bottom: "y" loss_weight: 1 loss_weight: 2 }'),
        '4:56: layer "l": loss_weight must be given once a top (1), not 2 times',
    ),
    "params": (
        ('top: "a" }\nlayer { name: "r"', 'top: "a" param {} param {} param {} }\nlayer { name: "r"'),
        '2:54: layer "a": 3 param blocks for 2 parameter blobs',
    ),
    "propagate_down": (
        ('bottom: "y" }', 'bottom: "y" propagate_down: true }'),
        '4:56: layer "l": propagate_down must be given once a bottom (2), not 1 times',
    ),
    "a diff for labels": (
        ('bottom: "y" }', 'bottom: "y" propagate_down: true propagate_down: true }'),
        '4:43: layer "l": Loss cannot give bottom "y" a diff, which layers before it or propagate_down ask for; '
        "set propagate_down: false for it",
    ),
}


class Named(dict[str, Any]):
    """A dict that explains unknown names as ``LAYERS`` does."""

    def __missing__(self, name: str) -> Any:
        return LAYERS[name]


@pytest.mark.parametrize(("change", "message"), ERRORS.values(), ids=ERRORS.keys())
def test_errors(change: tuple[str, str], message: str) -> None:
    assert SMALL.count(change[0]) == 1
    assert error_of(SMALL.replace(*change), Registered(TYPES)) == f"net.prototxt:{message}"
