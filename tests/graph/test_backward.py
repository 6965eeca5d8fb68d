"""Which layers run backward and which bottoms get a diff, against Caffe's rules worked out by hand."""

from __future__ import annotations

import pytest

from bpt.graph.layer_graph import LayerGraph
from tests.support.stand_ins import build

SOURCE = 'layer { name: "in" type: "Source" top: "x" top: "y" }'


def marks(graph: LayerGraph) -> str:
    """Each layer, then whether it runs backward (+ or -), and whether each of its bottoms gets a diff."""
    signs = {node.name: (node.needs_backward, *node.bottom_needs_diff) for node in graph.nodes}
    return " ".join(name + "".join("+" if sign else "-" for sign in each) for name, each in signs.items())


def layer(kind: str, name: str, bottoms: str, top: str = "", more: str = "") -> str:
    names = "".join(f' bottom: "{bottom}"' for bottom in bottoms.split())
    return f'layer {{ name: "{name}" type: "{kind}" {names} {f"top: {top!r}" if top else ""} {more} }}\n'


A = layer("Learner", "a", "x", "a")
LOSS = layer("Loss", "l", "a y")
FROZEN = "param { lr_mult: 0 }"
TWO_LEARNERS = A + layer("Learner", "b", "a", "b", "propagate_down: false") + layer("Loss", "l", "b y")
ASKED = TWO_LEARNERS.replace("top: 'a'", "top: 'a' propagate_down: true")


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        pytest.param(
            layer("Neuron", "n", "x", "n") + layer("Learner", "a", "n", "a") + layer("Neuron", "r", "a", "a") + LOSS,
            "in- n-- a+- r++ l++-",
            id="a chain stops at the first layer that learns",
        ),
        pytest.param(
            layer("Learner", "a", "x", "a", FROZEN * 2)
            + layer("Learner", "b", "a", "b", FROZEN)
            + layer("Statistics", "s", "b", "s")
            + layer("Loss", "l", "s y"),
            "in- a-- b+- s++ l++-",  # the second parameter of b learns
            id="lr_mult 0 freezes",
        ),
        pytest.param(
            layer("Statistics", "s", "x", "s") + layer("Loss", "l", "s y"), "in- s-- l---", id="statistics do not learn"
        ),
        pytest.param(
            A + layer("Learner", "b", "a", "b") + layer("Sink", "quiet", "b") + LOSS,
            "in- a+- a_a_0_split++ b-- quiet-- l++-",
            id="what does not lead to a loss is left out",
        ),
        pytest.param(A + layer("Loss", "l", "a y", more="loss_weight: 0"), "in- a-- l---", id="a weight of 0"),
        pytest.param(A + layer("Neuron", "n", "a", "n", "loss_weight: 2"), "in- a+- n++", id="any top can be a loss"),
        pytest.param(TWO_LEARNERS, "in- a-- b+- l++-", id="propagate_down: false cuts off what stands before"),
        pytest.param(ASKED, "in- a-- b+- l++-", id="a asks for a diff, but b hands nothing on"),
        pytest.param(ASKED.replace("false", "true"), "in- a++ b++ l++-", id="propagate_down: true asks for a diff"),
        pytest.param(
            A + layer("Join", "j", "a x", "j") + layer("Loss", "l", "j y"),
            "in- x_in_0_split-- a+- j++- l++-",
            id="one branch only",
        ),
        pytest.param(
            A + layer("Loss", "l", "a y", "l") + layer("Sink", "quiet", "l"),
            "in- a+- l++- quiet--",
            id="a loss counts even if a sink reads it",
        ),
    ],
)
def test_backward(layers: str, expected: str) -> None:
    assert marks(build(SOURCE + layers)) == expected


def test_force_backward_overrides_all_but_labels() -> None:
    assert marks(build(SOURCE + TWO_LEARNERS, force_backward=True)) == "in+ a++ b++ l++-"
