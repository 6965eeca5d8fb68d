"""``build_graph``: structure as Caffe's, and every error with its place in the text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bpt.base.errors import LayerError, PrototxtError, UserError
from bpt.config.plan.nets import make_state
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.sources import read_net
from bpt.config.proto.text import parse_text
from bpt.config.proto.upgrade import upgrade_net
from bpt.graph.build import build_graph
from bpt.graph.layer_graph import AUTOMATIC, LayerGraph
from bpt.graph.layer_spec import Arity, LayerShapes, LayerSpec, Shape
from bpt.graph.layer_specs import layer_specs
from bpt.nn.layers import LAYERS
from tests.support.paths import GOLDEN
from tests.support.stand_ins import TYPES, StandIn, build, error_of, registry, unmarked

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


@pytest.mark.parametrize(
    ("written", "remedy"),
    [
        ("CPMData", "; a type that bpt does not have can be written as a Python layer (docs/python_layers.md)"),
        ("SOFTMAX_LOSS", '; "SOFTMAX_LOSS" belongs to the old format, "layers"; write "SoftmaxWithLoss"'),
        ("DATA", '; did you mean "Data"?'),
    ],
)
def test_remedies_for_unknown_types(written: str, remedy: str) -> None:
    message = error_of(f'layer {{ name: "r" type: "{written}" top: "y" }}', LAYERS)
    assert message.endswith(f'layer "r": unknown layer type "{written}"{remedy}')


@pytest.mark.parametrize(
    ("kind", "settings", "words"),
    [
        ("Flip", 'flip_param { "a" }', '1:19: layer "r": unknown layer type "Flip"; a type that bpt does'),
        ("TanH", "flip_param: < axis: [1, 2] b { } >", '2:1: layer "r": there are no settings "flip_param"'),
        ("TanH", "poling_param { pad: 1 };", '2:1: layer "r": there are no settings "poling_param"; did you mean'),
    ],
)
def test_a_strange_type_is_told_before_its_settings(kind: str, settings: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "net.prototxt"
    path.write_text(f'layer {{ name: "r" type: "{kind}" top: "y"\n{settings}\n top: "z" }}')
    source = read_net(path)
    assert list(source.param.layer[0].top) == ["y", "z"]
    with pytest.raises(LayerError) as caught:
        build_graph("", layer_specs(source.param, source.origins), LAYERS, make_state(pb.TEST))
    assert str(caught.value).startswith(f"{path}:{words}")


def test_settings_that_do_not_end(tmp_path: Path) -> None:
    path = tmp_path / "net.prototxt"
    path.write_text("layer { flip_param { a: <")
    with pytest.raises(PrototxtError, match=r'1:26: expected the ">" that closes the "<" of line 1, found: the end'):
        read_net(path)


@pytest.mark.parametrize("case", written_cases())
def test_structure_is_caffes(case: dict[str, Any]) -> None:
    param = parse_text(case["prototxt"], pb.NetParameter).message
    state = make_state(pb.Phase.Value(case["phase"]), case["level"], case["stages"])
    graph = build_graph(param.name, layer_specs(param), CAFFES_TYPES, state)
    assert [[node.name, node.type] for node in graph.nodes] == case["layers"]
    blob_of = [edge.blob for edge in graph.edges]
    assert {node.name: [blob_of[edge] for edge in node.bottoms] for node in graph.nodes} == case["bottoms"]
    assert {node.name: [blob_of[edge] for edge in node.tops] for node in graph.nodes} == case["tops"]
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
    assert [node.bottoms for node in graph.nodes] == [(), (0,), (2,), (3, 1)]
    assert [node.tops for node in graph.nodes] == [(0, 1), (2,), (3,), (4,)]
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
    graph = build(text, types=LAYERS, input_shapes={"x": (7, 3)})
    assert [edge.shape for edge in graph.edges] == [(7, 3), (2, 3), (7, 3)]


TWO_TOPS = registry(Loss=StandIn(Arity(bottoms=(2, 2), tops=(1, 2), auto_tops=True), is_loss=True, top=()))


@pytest.mark.parametrize(
    ("tops", "expected"),
    [
        ("", [1.0]),
        ("loss_weight: 0.25", [0.25]),
        ('top: "l"', [1.0]),
        ('top: "l" loss_weight: 0', [0.0]),
        ('top: "l" top: "p"', [1.0, 0.0]),
        ('top: "l" top: "p" loss_weight: 0.5 loss_weight: 2', [0.5, 2.0]),
    ],
)
def test_loss_weights(tops: str, expected: list[float]) -> None:
    graph = build(SMALL.replace('bottom: "y" }', f'bottom: "y" {tops} }}'), types=TWO_TOPS)
    assert [edge.loss_weight for edge in graph.edges] == [0, 0, 0, 0, *expected]


# Each case changes one thing in SMALL; § marks the place that the message must name.
ERRORS = {
    "unknown type": (
        ('type: "Neuron"', '§type: "Neurn"'),
        'layer "r": unknown layer type "Neurn"; did you mean "Neuron"?',
    ),
    "too few bottoms": (
        ('bottom: "a" bottom: "y" }', '§bottom: "a" }'),
        'layer "l": Loss takes 2 bottoms, given 1 (a)',
    ),
    "no bottoms": (
        ('layer { name: "r" type: "Neuron" bottom: "a" top: "a" }', '§layer { name: "r" type: "Neuron" top: "b" }'),
        'layer "r": Neuron takes 1 bottom, given none',
    ),
    "too many tops": (
        ('top: "a" }\nlayer { name: "r"', '§top: "a" top: "b" }\nlayer { name: "r"'),
        'layer "a": Learner takes 1 top, given 2 (a, b)',
    ),
    "a blob made twice": (
        ('bottom: "a" top: "a"', 'bottom: "a" §top: "x"'),
        'layer "r": top "x" is already made by layer "in"',
    ),
    "one name for two tops": (
        ('top: "x" top: "y"', 'top: "x" top: "y" §top: "x"'),
        'layer "in": top "x" is named twice',
    ),
    "in place on a blob with another reader": (
        (
            'layer { name: "r" type: "Neuron" bottom: "a" top: "a" }',
            'layer { name: "s" type: "Sink" bottom: "a" } layer { name: "r" type: "Neuron" bottom: "a" §top: "a" }',
        ),
        'layer "r": cannot work in place on "a", because other layers read what layer "a" wrote there; '
        "give the top a name of its own",
    ),
    "two layers of one name": (
        ('name: "r"', '§name: "a"'),
        'layer "a": another layer has the same name (net.prototxt:2:1), so the names of their parameters '
        "would be equal; rename one of them",
    ),
    "loss weights": (
        ('bottom: "y" }', 'bottom: "y" §loss_weight: 1 loss_weight: 2 }'),
        'layer "l": loss_weight must be given once a top (1), not 2 times',
    ),
    "params": (
        ('top: "a" }\nlayer { name: "r"', 'top: "a" §param {} param {} param {} }\nlayer { name: "r"'),
        'layer "a": 3 param blocks for 2 parameter blobs',
    ),
    "propagate_down": (
        ('bottom: "y" }', 'bottom: "y" §propagate_down: true }'),
        'layer "l": propagate_down must be given once a bottom (2), not 1 times',
    ),
    "a diff for labels": (
        ('bottom: "y" }', '§bottom: "y" propagate_down: true propagate_down: true }'),
        'layer "l": Loss cannot give bottom "y" a diff, but earlier layers or propagate_down need it; '
        "set propagate_down: false for it",
    ),
}


@pytest.mark.parametrize(("change", "message"), ERRORS.values(), ids=ERRORS.keys())
def test_errors(change: tuple[str, str], message: str) -> None:
    assert SMALL.count(change[0]) == 1
    text, place = unmarked(SMALL.replace(*change))
    assert error_of(text) == f"{place}: {message}"


def test_unequal_numbers_of_tops_and_bottoms() -> None:
    text, place = unmarked("""layer { name: "in" type: "Source" top: "x" }
        layer { name: "p" type: "Pairs" bottom: "x" §top: "a" top: "b" }""")
    assert error_of(text) == f'{place}: layer "p": Pairs takes as many tops as bottoms, given 2 and 1'


def test_bottoms_in_messages_are_those_of_the_text() -> None:
    text, place = unmarked("""layer { name: "in" type: "Source" top: "x" }
        layer { name: "a" type: "Neuron" bottom: "x" top: "a" }
        layer { name: "b" type: "Neuron" §bottom: "x" bottom: "a" top: "b" }""")
    assert error_of(text) == f'{place}: layer "b": Neuron takes 1 bottom, given 2 (x, a)'


@dataclass(eq=False)
class Misfit(StandIn):
    """Infers what cannot be, or refuses without knowing its place."""

    shapes: tuple[Shape, ...] = ()
    refusal: str = ""

    def infer(self, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        if self.refusal:
            raise UserError(self.refusal)
        return LayerShapes(self.shapes)


MISFITS = {
    "a negative extent": (
        {"Neuron": Misfit(shapes=((4, -1),))},
        '3:1: layer "r": bottoms (4, 2) are too small: they would give a blob of shape (4, -1)',
    ),
    "a negative extent in the text": (
        {"Source": Misfit(TYPES["Source"].arity, shapes=((4, -1), (4,)))},
        '1:1: layer "in": the text would give a blob of shape (4, -1)',
    ),
    "too few tops": ({"Neuron": Misfit()}, '3:46: layer "r": Neuron makes 0 tops, but the text names 1'),
    "an error without a place": ({"Neuron": Misfit(refusal="bad filler")}, '3:1: layer "r": bad filler'),
}


@pytest.mark.parametrize(("types", "message"), MISFITS.values(), ids=MISFITS.keys())
def test_shapes_that_cannot_be(types: dict[str, StandIn], message: str) -> None:
    assert error_of(SMALL, registry(**types)) == f"net.prototxt:{message}"


def test_without_a_text_an_error_has_no_place() -> None:
    layers = layer_specs(pb.NetParameter(layer=[pb.LayerParameter(name="a", type="Sigmoi")]))
    with pytest.raises(LayerError) as caught:
        build_graph("net", layers, LAYERS, make_state(pb.TRAIN))
    assert str(caught.value) == 'layer "a": unknown layer type "Sigmoi"; did you mean "Sigmoid"?'


def test_more_axes_than_caffe_has_are_refused() -> None:
    """Fuzzing: thousands of axes took minutes."""
    text = 'layer { name: "in" type: "Input" top: "x" input_param { shape { ' + "dim: 1 " * 33 + "} } }"
    assert error_of(text, LAYERS).endswith('layer "in": a blob of 33 axes; it can have at most 32')


def test_a_layer_needs_a_type() -> None:
    with pytest.raises(LayerError) as caught:
        build('layer { name: "a" top: "x" }')
    assert str(caught.value) == 'net.prototxt:1:1: layer "a": needs a type'
    with pytest.raises(LayerError) as caught:
        build('layer { name: "a"\ntype: "" top: "x" }')
    assert str(caught.value) == 'net.prototxt:2:1: layer "a": needs a type'


@pytest.mark.parametrize(("type_", "column"), [("type: NONE", 20), ("", 1)])
def test_a_layer_of_2014_needs_a_type(type_: str, column: int) -> None:
    parsed = parse_text(f'layers {{ name: "a" {type_} top: "x" }}', pb.NetParameter, "net.prototxt")
    upgrade_net(parsed.message, parsed.origins, parsed.path)
    with pytest.raises(LayerError) as caught:
        build_graph("net", layer_specs(parsed.message, parsed.origins), registry(), make_state(pb.TRAIN))
    assert str(caught.value) == f'net.prototxt:1:{column}: layer "a": needs a type'
