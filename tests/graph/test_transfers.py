"""Transfers, worked by hand: what crosses between stages, once, and straight to where it is read."""

from __future__ import annotations

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


def test_one_stage() -> None:
    assert told(SOURCE + layer("Learner", "a", "x") + layer("Loss", "l", "a y"), {}) == []


def test_a_chain() -> None:
    """The label goes straight from the first stage to the last, and no diff with it."""
    text = SOURCE + layer("Learner", "a", "x") + layer("Learner", "b", "a") + layer("Loss", "l", "b y")
    assert told(text, {"b": 1, "l": 2}) == [
        "in → l: Fdata → F2, 0 → 2",
        "a → b: F0 → F1, 0 → 1 diff",
        "b → l: F1 → F2, 1 → 2 diff",
    ]


def test_nothing_learns_before_the_border() -> None:
    text = SOURCE + layer("Neuron", "a", "x") + layer("Learner", "b", "a") + layer("Loss", "l", "b y")
    assert told(text, {"b": 1}) == ["in → l: Fdata → F1, 0 → 1", "a → b: F0 → F1, 0 → 1"]


def test_a_reader_that_hands_no_diff_back() -> None:
    text = SOURCE + layer("Learner", "a", "x") + layer("Learner", "b", "a", "propagate_down: false")
    assert told(text + layer("Loss", "l", "b y"), {"b": 1}) == ["in → l: Fdata → F1, 0 → 1", "a → b: F0 → F1, 0 → 1"]


SKIP = (
    SOURCE
    + layer("Learner", "a", "x")
    + layer("Learner", "b", "a")
    + layer("Learner", "c", "b")
    + layer("Join", "j", "c a")
    + layer("Loss", "l", "j y")
)


def test_a_skip_goes_straight_over_a_stage() -> None:
    assert told(SKIP, {"b": 1, "c": 2}) == [
        "in → l: Fdata → F2, 0 → 2",
        "a_a_0_split → b: F0 → F1, 0 → 1 diff",
        "a_a_0_split → j: F0 → F2, 0 → 2 diff",
        "b → c: F1 → F2, 1 → 2 diff",
    ]


def test_several_readers_on_one_stage_get_one_message() -> None:
    """The first that reads it is where it is waited for, and where its diff is complete."""
    text = SKIP.replace('bottom: "c" bottom: "a"', 'bottom: "c" bottom: "a" bottom: "a"')
    graph, found = graph_and_transfers(text, {"b": 1})
    split = graph.nodes[graph.index_of["a_a_0_split"]]
    assert [t.edges for t in found] == [(graph.nodes[0].tops[1],), split.tops]
    assert told(text, {"b": 1})[1] == "a_a_0_split → b j j: F0 → F1, 0 → 1 diff"


def test_readers_in_several_segments_of_one_stage() -> None:
    """Stage 1 reads "a" before and after what stage 0 does in between: the first of both is the target."""
    assert told(SKIP, {"b": 1, "c": 0, "j": 1}) == [
        "in → l: Fdata → F3, 0 → 1",
        "a_a_0_split → b j: F0 → F1, 0 → 1 diff",
        "b → c: F1 → F2, 1 → 0 diff",
        "c → j: F2 → F3, 0 → 1 diff",
    ]


def test_one_of_several_readers_wants_the_diff() -> None:
    text = SKIP.replace('top: "b" ', 'top: "b" propagate_down: false ')
    assert told(text, {"b": 1})[1] == "a_a_0_split → b j: F0 → F1, 0 → 1 diff"


def test_a_blob_that_comes_back() -> None:
    """Stages need not be in order."""
    text = SOURCE + layer("Learner", "a", "x") + layer("Learner", "b", "a") + layer("Loss", "l", "b y")
    assert told(text, {"in": 2, "b": 1, "l": 0}) == [
        "in → a: Fdata → F0, 0 → 2",
        "a → b: F0 → F1, 2 → 1 diff",
        "b → l: F1 → F2, 1 → 0 diff",
    ]


def test_data_that_several_stages_read() -> None:
    """A Split of data is a layer like any other; what it copies goes on from its stage."""
    text = SOURCE + layer("Learner", "a", "x") + layer("Join", "b", "a x") + layer("Loss", "l", "b y")
    assert told(text, {"a": 1, "b": 2}) == [
        "in → l: Fdata → F2, 0 → 2",
        "x_in_0_split → a: F0 → F1, 0 → 1",
        "x_in_0_split → b: F0 → F2, 0 → 2",
        "a → b: F1 → F2, 1 → 2 diff",
    ]


def test_no_diff_goes_back_to_data_under_force_backward() -> None:
    text = "force_backward: true " + SOURCE + layer("Learner", "a", "x") + layer("Loss", "l", "a y")
    assert told(text, {"a": 1, "l": 1}) == ["in → a: Fdata → F1, 0 → 1", "in → l: Fdata → F1, 0 → 1"]


def test_a_source_in_the_middle_runs_on_the_first_stage() -> None:
    text = (
        SOURCE
        + layer("Learner", "a", "x")
        + 'layer { name: "more" type: "Source" top: "z" }\n'
        + layer("Join", "j", "a z")
        + layer("Loss", "l", "j y")
    )
    assert told(text, {"a": 1, "more": 2, "l": 1}) == [
        "in → a: Fdata → F1, 0 → 1",
        "in → l: Fdata → F3, 0 → 1",
        "a → j: F1 → F2, 1 → 2 diff",
        "more → j: Fdata → F2, 0 → 2",
        "j → l: F2 → F3, 2 → 1 diff",
    ]


def test_layers_in_place() -> None:
    """What the last of them has made crosses."""
    relu = 'layer { name: "r" type: "Neuron" bottom: "a" top: "a" }\n'
    text = SOURCE + layer("Learner", "a", "x") + relu + layer("Loss", "l", "a y")
    assert told(text, {"l": 1}) == ["in → l: Fdata → F1, 0 → 1", "r → l: F0 → F1, 0 → 1 diff"]
    assert told(text, {"r": 1}) == ["in → l: Fdata → F1, 0 → 1", "a → r: F0 → F1, 0 → 1 diff"]


def test_two_losses_read_the_label() -> None:
    text = (
        SOURCE
        + layer("Learner", "a", "x")
        + layer("Loss", "early", "a y")
        + layer("Learner", "b", "a")
        + layer("Loss", "late", "b y")
    )
    assert told(text, {"b": 1}) == ["y_in_1_split → late: F0 → F1, 0 → 1", "a_a_0_split → b: F0 → F1, 0 → 1 diff"]


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
