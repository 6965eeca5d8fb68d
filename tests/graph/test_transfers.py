"""Transfers, worked by hand: what crosses between stages, once, and straight to where it is read."""

from __future__ import annotations

import pytest

from bpt.graph.layer_graph import LayerGraph
from bpt.graph.segments import cut
from bpt.graph.stages import borders
from bpt.graph.transfers import Transfer, transfers, wants_diff
from tests.support.stand_ins import build

SOURCE = 'layer { name: "in" type: "Source" top: "x" top: "y" }\n'


def layer(kind: str, name: str, bottoms: str, more: str = "") -> str:
    names = "".join(f' bottom: "{bottom}"' for bottom in bottoms.split())
    top = "" if kind in ("Sink", "Loss") else f' top: "{name}"'
    return f'layer {{ name: "{name}" type: "{kind}"{names}{top} {more} }}\n'


def graph_and_transfers(text: str, stages: dict[str, int]) -> tuple[LayerGraph, tuple[Transfer, ...]]:
    """Each layer on its stage; one that is not named on that of the layer before it."""
    graph = build(text)
    of_layers: list[int] = []
    for node in graph.nodes:
        of_layers.append(stages.get(node.name, of_layers[-1] if of_layers else 0))
    segments = cut(graph, sorted(borders(of_layers)), sources_apart=True)
    return graph, transfers(graph, segments, [of_layers[segment.start] for segment in segments])


def told(text: str, stages: dict[str, int]) -> list[str]:
    """Each transfer in a line: ``blobs: source segment → target segment, from stage → to stage``, and its diff."""
    graph, found = graph_and_transfers(text, stages)
    assert [transfer.index for transfer in found] == list(range(len(found)))
    assert all(transfer.shape == graph.edges[edge].shape for transfer in found for edge in transfer.edges)
    lines = []
    for t in found:
        readers = (graph.edges[edge].consumer for edge in t.edges)
        names = " ".join(graph.nodes[reader].name for reader in readers if reader is not None)
        maker = graph.nodes[graph.edges[t.edges[0]].producer].name
        source = "data" if t.source is None else t.source
        lines.append(f"{maker} → {names}: F{source} → F{t.target}, {t.from_stage} → {t.to_stage}{' diff' * t.diff}")
    return lines


LEARNERS = SOURCE + layer("Learner", "a", "x") + layer("Learner", "b", "a") + layer("Loss", "l", "b y")
ALONE = SOURCE + layer("Learner", "a", "x") + layer("Loss", "l", "a y")
SKIP = (
    SOURCE
    + layer("Learner", "a", "x")
    + layer("Learner", "b", "a")
    + layer("Learner", "c", "b")
    + layer("Join", "j", "c a")
    + layer("Loss", "l", "j y")
)
IN_PLACE = ALONE.replace(
    LOSS := layer("Loss", "l", "a y"), 'layer { name: "r" type: "Neuron" bottom: "a" top: "a" }\n' + LOSS
)
TWO_LOSSES = LEARNERS.replace(second := layer("Learner", "b", "a"), layer("Loss", "early", "a y") + second)
# The layers, the stages of some, and what crosses.
CASES: dict[str, tuple[str, dict[str, int], list[str]]] = {
    "one stage": (ALONE, {}, []),
    "a chain; the label goes straight from the first stage to the last, and no diff with it": (
        LEARNERS,
        {"b": 1, "l": 2},
        ["in → l: Fdata → F2, 0 → 2", "a → b: F0 → F1, 0 → 1 diff", "b → l: F1 → F2, 1 → 2 diff"],
    ),
    "nothing learns before the border": (
        SOURCE + layer("Neuron", "a", "x") + layer("Learner", "b", "a") + layer("Loss", "l", "b y"),
        {"b": 1},
        ["in → l: Fdata → F1, 0 → 1", "a → b: F0 → F1, 0 → 1"],
    ),
    "a reader that hands no diff back": (
        LEARNERS.replace('top: "b" ', 'top: "b" propagate_down: false '),
        {"b": 1},
        ["in → l: Fdata → F1, 0 → 1", "a → b: F0 → F1, 0 → 1"],
    ),
    "a skip goes straight over a stage": (
        SKIP,
        {"b": 1, "c": 2},
        [
            "in → l: Fdata → F2, 0 → 2",
            "a_a_0_split → b: F0 → F1, 0 → 1 diff",
            "a_a_0_split → j: F0 → F2, 0 → 2 diff",
            "b → c: F1 → F2, 1 → 2 diff",
        ],
    ),
    "readers in several segments of a stage, before and after what another does: the first is the target": (
        SKIP,
        {"b": 1, "c": 0, "j": 1},
        [
            "in → l: Fdata → F3, 0 → 1",
            "a_a_0_split → b j: F0 → F1, 0 → 1 diff",
            "b → c: F1 → F2, 1 → 0 diff",
            "c → j: F2 → F3, 0 → 1 diff",
        ],
    ),
    "one of several readers wants the diff": (
        SKIP.replace('top: "b" ', 'top: "b" propagate_down: false '),
        {"b": 1},
        ["in → l: Fdata → F1, 0 → 1", "a_a_0_split → b j: F0 → F1, 0 → 1 diff"],
    ),
    "a blob that comes back": (
        LEARNERS,
        {"in": 2, "b": 1, "l": 0},
        ["in → a: Fdata → F0, 0 → 2", "a → b: F0 → F1, 2 → 1 diff", "b → l: F1 → F2, 1 → 0 diff"],
    ),
    "data that several stages read; a Split of data is a layer like any other": (
        SOURCE + layer("Learner", "a", "x") + layer("Join", "b", "a x") + layer("Loss", "l", "b y"),
        {"a": 1, "b": 2},
        [
            "in → l: Fdata → F2, 0 → 2",
            "x_in_0_split → a: F0 → F1, 0 → 1",
            "x_in_0_split → b: F0 → F2, 0 → 2",
            "a → b: F1 → F2, 1 → 2 diff",
        ],
    ),
    "no diff goes back to data under force_backward": (
        "force_backward: true " + ALONE,
        {"a": 1, "l": 1},
        ["in → a: Fdata → F1, 0 → 1", "in → l: Fdata → F1, 0 → 1"],
    ),
    "a source in the middle runs on the first stage": (
        SOURCE
        + layer("Learner", "a", "x")
        + 'layer { name: "more" type: "Source" top: "z" }\n'
        + layer("Join", "j", "a z")
        + layer("Loss", "l", "j y"),
        {"a": 1, "more": 2, "l": 1},
        [
            "in → a: Fdata → F1, 0 → 1",
            "in → l: Fdata → F3, 0 → 1",
            "a → j: F1 → F2, 1 → 2 diff",
            "more → j: Fdata → F2, 0 → 2",
            "j → l: F2 → F3, 2 → 1 diff",
        ],
    ),
    "what the last of the layers in place has made": (
        IN_PLACE,
        {"l": 1},
        ["in → l: Fdata → F1, 0 → 1", "r → l: F0 → F1, 0 → 1 diff"],
    ),
    "before a layer in place": (IN_PLACE, {"r": 1}, ["in → l: Fdata → F1, 0 → 1", "a → r: F0 → F1, 0 → 1 diff"]),
    "two losses read the label": (
        TWO_LOSSES,
        {"b": 1},
        ["y_in_1_split → l: F0 → F1, 0 → 1", "a_a_0_split → b: F0 → F1, 0 → 1 diff"],
    ),
}


@pytest.mark.parametrize(("text", "stages", "expected"), CASES.values(), ids=CASES)
def test_what_crosses(text: str, stages: dict[str, int], expected: list[str]) -> None:
    assert told(text, stages) == expected


def test_several_readers_on_one_stage_get_one_message() -> None:
    """The first that reads it is where it is waited for, and where its diff is complete."""
    text = SKIP.replace('bottom: "c" bottom: "a"', 'bottom: "c" bottom: "a" bottom: "a"')
    graph, found = graph_and_transfers(text, {"b": 1})
    split = graph.nodes[graph.index_of["a_a_0_split"]]
    assert [t.edges for t in found] == [(graph.nodes[0].tops[1],), split.tops]
    assert told(text, {"b": 1})[1] == "a_a_0_split → b j j: F0 → F1, 0 → 1 diff"


def test_an_output_that_nobody_reads_stays() -> None:
    text = SOURCE + layer("Learner", "a", "x") + layer("Neuron", "shown", "a") + layer("Loss", "l", "a y")
    found = told(text, {"l": 1})
    assert len(found) == 2
    assert not any(line.startswith("shown") for line in found)


def test_which_readers_want_a_diff() -> None:
    graph = build(SKIP)
    wants = {(graph.nodes[e.producer].name, e.index): wants_diff(graph, e.index) for e in graph.edges}
    assert [name for (name, _), wanted in wants.items() if wanted] == [
        "a", "a_a_0_split", "a_a_0_split", "b", "c", "j",
    ]  # fmt: skip
