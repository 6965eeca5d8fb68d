"""Which layers are split, what runs on their slices, where the graph is cut, and who holds what."""

from __future__ import annotations

import pytest

from bpt.config.proto import bpt_pb2 as pb
from bpt.engine.split_pass import SplitBlock
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.part import BlobSlice, Part
from bpt.nn.layers import LAYERS
from bpt.parallel.model_parallel.model_parallel import blocks, inside, parts, split_layers, starts, violations
from tests.support.stand_ins import build, unmarked

PEER, MASTER_SLAVE = pb.FcParameter.PEER, pb.FcParameter.MASTER_SLAVE
INPUT = """layer { name: "in" type: "Input" top: "x" top: "y"
                   input_param { shape { dim: 6 dim: 5 } shape { dim: 6 dim: 1 } } }
"""
DATA = "parallel_param { mode: DATA }"


def fc(name: str, bottom: str, num_output: int = 4, more: str = "", param: str = "") -> str:
    return f"""layer {{ name: "{name}" type: "InnerProduct" bottom: "{bottom}" top: "{name}" {more}
        inner_product_param {{ num_output: {num_output} {param} }} }}
"""


def layer(kind: str, bottom: str, top: str, more: str = "") -> str:
    return f'layer {{ name: "{kind}_{top}" type: "{kind}" bottom: "{bottom}" top: "{top}" {more} }}\n'


def loss(bottom: str) -> str:
    return f'layer {{ name: "l" type: "SoftmaxWithLoss" bottom: "{bottom}" bottom: "y" top: "l" }}\n'


def graph_of(*layers: str, phase: int = pb.TRAIN) -> LayerGraph:
    return build(INPUT + "".join(layers), phase, types=LAYERS)


# layers: 0 in, 1 a, 2 ReLU, 3 Dropout, 4 b, 5 TanH, 6 c, 7 ReLU, 8 d, 9 loss
CHAIN = (
    fc("a", "x", 8),
    layer("ReLU", "a", "a"),
    layer("Dropout", "a", "p"),
    fc("b", "p", 7),
    layer("TanH", "b", "t"),
    fc("c", "t", 5, DATA),
    layer("ReLU", "c", "c"),
    fc("d", "c", 3, param="transpose: true"),
    loss("d"),
)


def test_all_fully_connected_layers_are_split_but_those_with_mode_data() -> None:
    assert [node.name for node in split_layers(graph_of(*CHAIN))] == ["a", "b", "d"]
    chosen = graph_of(fc("a", "x", more="parallel_param { mode: MODEL }"), fc("b", "a", more="parallel_param {}"))
    assert [node.name for node in split_layers(chosen)] == ["a", "b"]


def test_mpi_fc_layers_are_split_unless_they_say_data() -> None:
    def mpi_fc(text: str) -> str:
        return text.replace("InnerProduct", "MpiFc")

    graph = graph_of(mpi_fc(fc("a", "x")), mpi_fc(fc("b", "a", more=DATA)), mpi_fc(fc("c", "b", 3)), loss("c"))
    assert [node.name for node in split_layers(graph)] == ["a", "c"]
    assert list(violations(graph)) == []
    along_samples = graph_of(mpi_fc(fc("a", "x", param="axis: 0")))
    assert [violation.layer for violation in violations(along_samples)] == ["a"]


def test_among_peers_a_block_takes_in_what_runs_on_slices() -> None:
    graph = graph_of(*CHAIN)
    assert [edge.blob for edge in graph.edges] == ["x", "y", "a", "a", "p", "b", "t", "c", "c", "d", "l"]
    assert blocks(graph, PEER) == (
        SplitBlock(1, 4, bottom=0, top=4, features=8, takes_slices=False, keeps_slices=True),
        SplitBlock(4, 6, bottom=4, top=6, features=7, takes_slices=True, keeps_slices=False),
        SplitBlock(8, 9, bottom=8, top=9, features=3, takes_slices=False, keeps_slices=False),
    )
    assert starts(graph, PEER) == (0, 1, 4, 6, 8, 9)
    assert inside(graph, PEER) == {2, 3, 5}


def test_a_slave_runs_split_layers_only() -> None:
    graph = graph_of(*CHAIN)
    assert blocks(graph, MASTER_SLAVE) == (
        SplitBlock(1, 2, bottom=0, top=2, features=8, takes_slices=False, keeps_slices=False),
        SplitBlock(4, 5, bottom=4, top=5, features=7, takes_slices=False, keeps_slices=False),
        SplitBlock(8, 9, bottom=8, top=9, features=3, takes_slices=False, keeps_slices=False),
    )
    assert starts(graph, MASTER_SLAVE) == (0, 1, 2, 4, 5, 8, 9)
    assert inside(graph, MASTER_SLAVE) == set()


def test_a_block_ends_where_a_blob_is_read_twice() -> None:
    graph = graph_of(fc("a", "x"), layer("ReLU", "a", "r"), fc("b", "r"), fc("c", "r"), loss("b"))
    assert [node.type for node in graph.nodes] == [
        "Input", "InnerProduct", "ReLU", "Split", "InnerProduct", "InnerProduct", "SoftmaxWithLoss",
    ]  # fmt: skip
    assert [(b.start, b.end, b.takes_slices, b.keeps_slices) for b in blocks(graph, PEER)] == [
        (1, 3, False, False),
        (4, 5, False, False),
        (5, 6, False, False),
    ]


def test_a_block_ends_where_its_top_is_an_output_or_is_read_later() -> None:
    graph = graph_of(fc("a", "x"), fc("b", "y"), layer("ReLU", "a", "r"), layer("Sigmoid", "b", "s", "loss_weight: 1"))
    assert [(b.start, b.end) for b in blocks(graph, PEER)] == [(1, 2), (2, 3)]


def test_slices_may_stay_for_a_block_further_behind() -> None:
    graph = graph_of(fc("a", "x"), fc("b", "y"), fc("c", "b"), fc("d", "a"))
    assert [(b.takes_slices, b.keeps_slices) for b in blocks(graph, PEER)] == [
        (False, True),
        (False, True),
        (True, False),
        (True, False),
    ]


def test_a_layer_with_parameters_of_its_own_is_not_cut() -> None:
    graph = graph_of(fc("a", "x"), layer("PReLU", "a", "a"), loss("a"))
    assert [(b.start, b.end) for b in blocks(graph, PEER)] == [(1, 2)]


def test_peers_hold_a_slice_each_and_all_other_layers() -> None:
    graph = graph_of(*CHAIN)
    a, b, c, d = (graph.nodes[index].params for index in (1, 4, 6, 8))
    assert (a, b, c, d) == ((0, 1), (2, 3), (4, 5), (6, 7))
    assert parts(graph, PEER, 3) == (
        Part(
            None,
            {
                0: BlobSlice(0, 0, 3), 1: BlobSlice(0, 0, 3), 2: BlobSlice(0, 0, 3), 3: BlobSlice(0, 0, 3),
                6: BlobSlice(1, 0, 1), 7: BlobSlice(0, 0, 1),
            },
        ),
        Part(
            None,
            {
                0: BlobSlice(0, 3, 6), 1: BlobSlice(0, 3, 6), 2: BlobSlice(0, 3, 5), 3: BlobSlice(0, 3, 5),
                6: BlobSlice(1, 1, 2), 7: BlobSlice(0, 1, 2),
            },
        ),
        Part(
            None,
            {
                0: BlobSlice(0, 6, 8), 1: BlobSlice(0, 6, 8), 2: BlobSlice(0, 5, 7), 3: BlobSlice(0, 5, 7),
                6: BlobSlice(1, 2, 3), 7: BlobSlice(0, 2, 3),
            },
        ),
    )  # fmt: skip


def test_the_master_holds_no_slice_and_a_slave_nothing_else() -> None:
    graph = graph_of(fc("a", "x", 5), layer("ReLU", "a", "a"), fc("b", "a", 2, param="bias_term: false"), loss("b"))
    ours = frozenset({1, 3})
    assert parts(graph, MASTER_SLAVE, 4) == (
        Part(frozenset({0, 2, 4}), {}),
        Part(ours, {0: BlobSlice(0, 0, 2), 1: BlobSlice(0, 0, 2), 2: BlobSlice(0, 0, 1)}),
        Part(ours, {0: BlobSlice(0, 2, 4), 1: BlobSlice(0, 2, 4), 2: BlobSlice(0, 1, 2)}),
        Part(ours, {0: BlobSlice(0, 4, 5), 1: BlobSlice(0, 4, 5), 2: BlobSlice(0, 2, 2)}),
    )


ERRORS = {
    "another type": (
        layer("ReLU", "x", "r", "parallel_param { §mode: MODEL }") + fc("a", "r"),
        'layer "ReLU_r": mode: MODEL splits InnerProduct layers only, not ReLU; set mode: DATA',
    ),
    "another axis": (
        fc("a", "x", param="§axis: 0", more="parallel_param { mode: MODEL }"),
        'layer "a": axis 0 of a bottom with 2 axes: num_shards splits InnerProduct layers with axis 1 only; '
        "keep it whole by parallel_param { mode: DATA }",
    ),
    "shared, the owner": (
        fc("a", "x", 5, 'param { §name: "w" }') + fc("b", "a", 5, 'param { name: "w" } ' + DATA),
        'layer "a": shares parameter "w" with layer "b" and cannot be split by num_shards; '
        "keep it whole by parallel_param { mode: DATA }",
    ),
    "shared, the other": (
        fc("a", "x", 5, 'param {} param { name: "w" } ' + DATA) + fc("b", "a", 5, 'param {} param { §name: "w" }'),
        'layer "b": shares parameter "w" with layer "a" and cannot be split by num_shards; '
        "keep it whole by parallel_param { mode: DATA }",
    ),
}


@pytest.mark.parametrize(("text", "message"), ERRORS.values(), ids=ERRORS.keys())
def test_errors(text: str, message: str) -> None:
    text, place = unmarked(INPUT + text)
    graph = build(text, types=LAYERS)
    first, *_ = violations(graph)
    assert str(first.error(lambda *_: None)) == f"{place}: {message}"


def test_axes_may_be_counted_from_the_last_and_a_whole_layer_may_have_any() -> None:
    graph = graph_of(fc("a", "x", param="axis: -1"), fc("b", "y", more=DATA, param="axis: 0"))
    assert [node.name for node in split_layers(graph)] == ["a"]
    unset = graph_of(fc("a", "x", param="axis: -1"), fc("b", "y", param="axis: 0"))
    assert [node.name for node in split_layers(unset)] == ["a"] and not list(violations(unset))


def test_a_net_that_is_trained_must_have_something_to_split() -> None:
    text = (fc("a", "x", more=DATA), loss("a"))
    (found,) = violations(graph_of(*text))
    assert found.field == ("parallel_param", "num_shards")
    assert found.message == (
        'parallel_param: net "net" has no layer that num_shards could split: InnerProduct layers are split, unless '
        "they say parallel_param { mode: DATA }; set num_shards: 1"
    )
    # A test net may be another one.
    assert parts(graph_of(*text, phase=pb.TEST), PEER, 2) == (Part(), Part())
    assert starts(graph_of(*text, phase=pb.TEST), PEER) == (0,)
