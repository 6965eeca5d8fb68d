"""Which layers run backward and which bottoms get a diff, against Caffe's rules worked out by hand."""

from __future__ import annotations

from bpt.graph.layer_graph import LayerGraph
from tests.support.stand_ins import build

SOURCE = 'layer { name: "in" type: "Source" top: "x" top: "y" }'


def marks(graph: LayerGraph) -> dict[str, tuple[bool, ...]]:
    """Layer → whether it runs backward, then whether each of its bottoms gets a diff."""
    return {node.name: (node.needs_backward, *node.bottom_needs_diff) for node in graph.nodes}


def test_a_chain_stops_at_the_first_layer_that_learns() -> None:
    graph = build(f"""{SOURCE}
        layer {{ name: "n" type: "Neuron" bottom: "x" top: "n" }}
        layer {{ name: "a" type: "Learner" bottom: "n" top: "a" }}
        layer {{ name: "r" type: "Neuron" bottom: "a" top: "a" }}
        layer {{ name: "l" type: "Loss" bottom: "a" bottom: "y" }}""")
    assert marks(graph) == {
        "in": (False,),
        "n": (False, False),
        "a": (True, False),
        "r": (True, True),
        "l": (True, True, False),
    }


def test_lr_mult_0_freezes() -> None:
    frozen = "param { lr_mult: 0 } param { lr_mult: 0 }"
    graph = build(f"""{SOURCE}
        layer {{ name: "a" type: "Learner" bottom: "x" top: "a" {frozen} }}
        layer {{ name: "b" type: "Learner" bottom: "a" top: "b" param {{ lr_mult: 0 }} }}
        layer {{ name: "s" type: "Statistics" bottom: "b" top: "s" }}
        layer {{ name: "l" type: "Loss" bottom: "s" bottom: "y" }}""")
    assert marks(graph) == {
        "in": (False,),
        "a": (False, False),
        "b": (True, False),  # its second parameter learns
        "s": (True, True),
        "l": (True, True, False),
    }


def test_statistics_do_not_learn() -> None:
    graph = build(f"""{SOURCE}
        layer {{ name: "s" type: "Statistics" bottom: "x" top: "s" }}
        layer {{ name: "l" type: "Loss" bottom: "s" bottom: "y" }}""")
    assert marks(graph) == {"in": (False,), "s": (False, False), "l": (False, False, False)}


def test_what_does_not_lead_to_a_loss_is_left_out() -> None:
    graph = build(f"""{SOURCE}
        layer {{ name: "a" type: "Learner" bottom: "x" top: "a" }}
        layer {{ name: "b" type: "Learner" bottom: "a" top: "b" }}
        layer {{ name: "quiet" type: "Sink" bottom: "b" }}
        layer {{ name: "l" type: "Loss" bottom: "a" bottom: "y" }}""")
    assert marks(graph) == {
        "in": (False,),
        "a": (True, False),
        "a_a_0_split": (True, True),
        "b": (False, False),
        "quiet": (False, False),
        "l": (True, True, False),
    }


def test_loss_weight_0_is_no_loss() -> None:
    graph = build(f"""{SOURCE}
        layer {{ name: "a" type: "Learner" bottom: "x" top: "a" }}
        layer {{ name: "l" type: "Loss" bottom: "a" bottom: "y" loss_weight: 0 }}""")
    assert not any(any(mark) for mark in marks(graph).values())


def test_any_top_can_be_a_loss() -> None:
    graph = build(f"""{SOURCE}
        layer {{ name: "a" type: "Learner" bottom: "x" top: "a" }}
        layer {{ name: "n" type: "Neuron" bottom: "a" top: "n" loss_weight: 2 }}""")
    assert marks(graph) == {"in": (False,), "a": (True, False), "n": (True, True)}


TWO_LEARNERS = f"""{SOURCE}
    layer {{ name: "a" type: "Learner" bottom: "x" top: "a" }}
    layer {{ name: "b" type: "Learner" bottom: "a" top: "b" propagate_down: false }}
    layer {{ name: "l" type: "Loss" bottom: "b" bottom: "y" }}"""


def test_propagate_down_false_cuts_off_what_stands_before() -> None:
    assert marks(build(TWO_LEARNERS)) == {
        "in": (False,),
        "a": (False, False),
        "b": (True, False),
        "l": (True, True, False),
    }


def test_propagate_down_true_asks_for_a_diff_of_data() -> None:
    graph = build(TWO_LEARNERS.replace('top: "a"', 'top: "a" propagate_down: true'))
    assert marks(graph)["a"] == (False, False)  # b still hands nothing on
    graph = build(TWO_LEARNERS.replace('top: "a"', 'top: "a" propagate_down: true').replace("false", "true"))
    assert marks(graph)["a"] == (True, True)


def test_force_backward_overrides_all_but_labels() -> None:
    assert marks(build(TWO_LEARNERS, force_backward=True)) == {
        "in": (True,),
        "a": (True, True),
        "b": (True, True),
        "l": (True, True, False),
    }


def test_one_branch_only() -> None:
    graph = build(f"""{SOURCE}
        layer {{ name: "a" type: "Learner" bottom: "x" top: "a" }}
        layer {{ name: "j" type: "Join" bottom: "a" bottom: "x" top: "j" }}
        layer {{ name: "l" type: "Loss" bottom: "j" bottom: "y" }}""")
    assert marks(graph) == {
        "in": (False,),
        "x_in_0_split": (False, False),
        "a": (True, False),
        "j": (True, True, False),
        "l": (True, True, False),
    }


def test_a_loss_counts_even_if_a_sink_reads_it() -> None:
    graph = build(f"""{SOURCE}
        layer {{ name: "a" type: "Learner" bottom: "x" top: "a" }}
        layer {{ name: "l" type: "Loss" bottom: "a" bottom: "y" top: "l" }}
        layer {{ name: "quiet" type: "Sink" bottom: "l" }}""")
    assert marks(graph) == {"in": (False,), "a": (True, False), "l": (True, True, False), "quiet": (False, False)}
