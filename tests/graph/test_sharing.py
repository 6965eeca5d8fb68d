"""Parameters shared by name, and every way in which sharers can disagree."""

from __future__ import annotations

import pytest

from tests.support.stand_ins import build, error_of, unmarked

SOURCE = 'layer { name: "in" type: "Source" top: "x" top: "y" }'


def pair(first: str, second: str, types: tuple[str, str] = ("Learner", "Learner")) -> str:
    """Two layers, one after the other, with the given ``param`` blocks."""
    return f"""{SOURCE}
layer {{ name: "a" type: "{types[0]}" bottom: "x" top: "a" {first} }}
layer {{ name: "b" type: "{types[1]}" bottom: "a" top: "b" {second} }}"""


def test_nothing_shared() -> None:
    graph = build(pair("", 'param { name: "w" } param { lr_mult: 2 decay_mult: 0 }'))
    assert [(p.index, p.layer, p.blob, p.name, p.owner) for p in graph.params] == [
        (0, 1, 0, "", 0),
        (1, 1, 1, "", 1),
        (2, 2, 0, "w", 2),
        (3, 2, 1, "", 3),
    ]
    assert [(p.lr_mult, p.decay_mult) for p in graph.params] == [(1, 1), (1, 1), (1, 1), (2, 0)]
    assert [node.params for node in graph.nodes] == [(), (0, 1), (2, 3)]
    assert graph.learnable == graph.params


def test_the_first_of_a_name_owns() -> None:
    graph = build(pair('param { name: "w" } param { name: "b" }', 'param { name: "w" } param { name: "b" }'))
    assert [(p.owner, p.shared) for p in graph.params] == [(0, False), (1, False), (0, True), (1, True)]
    assert [p.index for p in graph.learnable] == [0, 1]
    assert graph.num_parameters == 3 * 2 + 3


def test_a_layer_may_share_with_itself() -> None:
    # The two blobs of a Learner have shapes (3, 2) and (3,): only their names can clash.
    text, place = unmarked(pair('param { name: "w" } §param { name: "w" }', ""))
    assert error_of(text) == f'{place}: layer "a": shared param "w" has shape (3,) here but (3, 2) in layer "a"'


@pytest.mark.parametrize("first", ["lr_mult: 3 decay_mult: 0", "lr_mult: 3", ""])
def test_a_multiplier_that_one_sharer_states_holds_for_all(first: str) -> None:
    graph = build(pair(f'param {{ name: "w" {first} }}', 'param { name: "w" lr_mult: 3 decay_mult: 0 }'))
    shared = [p for p in graph.params if p.name == "w"]
    assert [(p.lr_mult, p.decay_mult) for p in shared] == [(3, 0), (3, 0)]


def test_lr_mult_0_of_a_later_sharer_freezes_the_first() -> None:
    frozen = "param { lr_mult: 0 }"
    graph = build(
        pair(f'param {{ name: "w" }} {frozen}', f'param {{ name: "w" lr_mult: 0 }} {frozen}')
        + '\nlayer { name: "l" type: "Loss" bottom: "b" bottom: "y" }'
    )
    assert [node.needs_backward for node in graph.nodes] == [False, False, False, False]


def test_permissive_compares_counts() -> None:
    permissive = 'param { name: "w" share_mode: PERMISSIVE }'
    graph = build(pair('param { name: "w" }', permissive, ("Learner", "Wide")))
    assert [(p.shape, p.owner) for p in graph.params] == [((3, 2), 0), ((3,), 1), ((2, 3), 0)]


ERRORS = {
    "shape": (
        ('param { name: "w" }', '§param { name: "w" }', ("Learner", "Wide")),
        'layer "b": shared param "w" has shape (2, 3) here but (3, 2) in layer "a"',
    ),
    "count": (
        ('param { name: "w" }', 'param {} §param { name: "w" share_mode: PERMISSIVE }', ("Learner", "Learner")),
        'layer "b": shared param "w" has shape (3,) here but (3, 2) in layer "a"',
    ),
    # The share_mode of the first is not asked, as in Caffe.
    "permissive first": (
        ('param { name: "w" share_mode: PERMISSIVE }', '§param { name: "w" }', ("Learner", "Wide")),
        'layer "b": shared param "w" has shape (2, 3) here but (3, 2) in layer "a"',
    ),
    "lr_mult": (
        ('param { name: "w" lr_mult: 2 }', '§param { name: "w" lr_mult: 0.5 }', ("Learner", "Learner")),
        'layer "b": shared param "w" has lr_mult 0.5 here but 2 before',
    ),
    "decay_mult": (
        ('param { name: "w" decay_mult: 1 }', '§param { name: "w" decay_mult: 0 }', ("Learner", "Learner")),
        'layer "b": shared param "w" has decay_mult 0 here but 1 before',
    ),
    "too many": (("", "§param {} param {}", ("Learner", "Wide")), 'layer "b": 2 param blocks for 1 parameter blob'),
}


@pytest.mark.parametrize(("texts", "message"), ERRORS.values(), ids=ERRORS.keys())
def test_errors(texts: tuple[str, str, tuple[str, str]], message: str) -> None:
    text, place = unmarked(pair(*texts))
    assert error_of(text) == f"{place}: {message}"
