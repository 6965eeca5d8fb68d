"""Nets that tests cut into segments."""

from __future__ import annotations

from bpt.nn.net import Net
from bpt.nn.pass_context import PassContext
from tests.support.golden_cases import graph_of

INPUT = """layer { name: "in" type: "Input" top: "x" top: "y"
                   input_param { shape { dim: 6 dim: 5 } shape { dim: 6 } } }"""


def inner_product(name: str, bottom: str, num_output: int = 4, more: str = "") -> str:
    return f"""layer {{ name: "{name}" type: "InnerProduct" bottom: "{bottom}" top: "{name}" {more}
        inner_product_param {{ num_output: {num_output} weight_filler {{ type: "xavier" }} }} }}"""


def layer(kind: str, bottoms: str, top: str = "", more: str = "") -> str:
    names = "".join(f' bottom: "{bottom}"' for bottom in bottoms.split())
    made = "".join(f' top: "{name}"' for name in top.split())
    return f'layer {{ name: "{kind}_{bottoms}_{top}" type: "{kind}" {names} {made} {more} }}'


CHAINS = {
    "chain": [
        inner_product("a", "x"),
        layer("Sigmoid", "a", "s"),
        inner_product("b", "s"),
        layer("SoftmaxWithLoss", "b y", "l"),
    ],
    "in place": [
        inner_product("a", "x"),
        layer("ReLU", "a", "a"),
        layer("Dropout", "a", "a"),
        inner_product("b", "a"),
        layer("Softmax", "b", "b"),
        layer("SoftmaxWithLoss", "b y"),
    ],
    "frozen in the middle": [
        inner_product("a", "x"),
        inner_product("b", "a", more="param { lr_mult: 0 } param { lr_mult: 0 }"),
        layer("TanH", "b", "t"),
        inner_product("c", "t", more="param { lr_mult: 0 }"),
        layer("SoftmaxWithLoss", "c y", "l"),
    ],
    "propagate_down false": [
        inner_product("a", "x"),
        inner_product("b", "a", more="propagate_down: false"),
        layer("ReLU", "b", "b"),
        inner_product("c", "b"),
        layer("SoftmaxWithLoss", "c y", "l"),
    ],
    "any blob as a loss": [inner_product("a", "x"), layer("Sigmoid", "a", "s", "loss_weight: 0.5")],
}


BRANCHES = {
    "branches that join": [
        inner_product("a", "x"),
        layer("ReLU", "a", "a"),
        inner_product("b", "a"),
        inner_product("c", "a"),
        layer("Eltwise", "b c a", "e", "eltwise_param { coeff: 1 coeff: 2 coeff: -1 }"),
        layer("SoftmaxWithLoss", "e y", "l"),
    ],
    "sliced and joined": [
        inner_product("a", "x", 6),
        layer("Slice", "a", "p q r"),
        layer("Sigmoid", "p", "p"),
        layer("Concat", "r p", "c"),
        layer("SoftmaxWithLoss", "c y", "l"),
        layer("Silence", "q"),
    ],
    "two losses": [
        inner_product("a", "x"),
        layer("SoftmaxWithLoss", "a y", "l", "loss_weight: 0.25"),
        layer("Flatten", "a", "f"),
        inner_product("b", "f"),
        layer("EuclideanLoss", "b a", "m"),
    ],
    "a loss that is read": [
        inner_product("a", "x"),
        layer("SoftmaxWithLoss", "a y", "l", "loss_weight: 2"),
        layer("Sigmoid", "l", "s", "loss_weight: 3"),
    ],
    "a loss of weight 1 by default that is read": [
        inner_product("a", "x"),
        layer("SoftmaxWithLoss", "a y", "l"),
        layer("Sigmoid", "l", "s", "loss_weight: 3"),
    ],
    "a loss that Silence reads": [inner_product("a", "x"), layer("SoftmaxWithLoss", "a y", "l"), layer("Silence", "l")],
    "a blob in the middle that is a loss": [
        inner_product("a", "x"),
        layer("ReLU", "a", "a", "loss_weight: 0.1"),
        inner_product("b", "a"),
        layer("SoftmaxWithLoss", "b y", "l"),
    ],
    "one branch without a diff": [
        inner_product("a", "x"),
        inner_product("b", "a"),
        layer("Eltwise", "a b", "e", "propagate_down: false propagate_down: true"),
        layer("SoftmaxWithLoss", "e y", "l"),
    ],
    "what leads to no loss": [
        inner_product("a", "x"),
        inner_product("b", "a"),
        layer("Silence", "b"),
        layer("Accuracy", "a y", "acc"),
        layer("SoftmaxWithLoss", "a y", "l"),
    ],
    "shared weights": [
        inner_product("a", "x", 5, 'param { name: "w" }'),
        layer("TanH", "a", "t"),
        inner_product("b", "t", 5, 'param { name: "w" }'),
        layer("SoftmaxWithLoss", "b y", "l"),
    ],
}


def make_net(layers: list[str], force_backward: bool = False) -> Net:
    return Net(graph_of("\n".join(["force_backward: true" * force_backward, INPUT, *layers])), PassContext(seed=1))
