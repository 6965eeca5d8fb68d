"""What is tried in a calibration, and the notes of it, with made-up times."""

from __future__ import annotations

from bpt.graph.segments import trained_layers
from bpt.parallel.cgdp.calibration import (
    Calibration,
    ChunkSegment,
    IterationKind,
    IterationSample,
    kinds_of,
    lap_of,
    layers_of_all,
    places_of,
)
from bpt.system.events.totals import Key, Traffic
from bpt.train.runtime.parallel import Parallel
from tests.support.doubles.seen import key_of
from tests.support.parallels import MASTER, NET, PEER, net_of, on_ranks

INSTRUCTIONS = {"F0": 9.0, "F1": 9.0, "F2": 9.0, "B0": 1.0, "B1": 2.0, "B2": 4.0, "X2": 0.5, "X1": 0.25, "X0": 0.125}
INSTRUCTIONS |= {"U": 9.0}
PLACES = (
    ChunkSegment((("c", 4),), frozenset({"c/0 … c/1", ""})),
    ChunkSegment((("b", 2),), frozenset({"b/0", "b/1"})),
    ChunkSegment((("a", 1),), frozenset({"a/0"})),
)


def totals(after_backward: bool, waited: float = 8.0) -> dict[Key, Traffic]:
    """Of layers whose stages are made up."""
    seconds = {
        ("X2 c/0 … c/1", "D2H"): 1.0,
        ("X2 c/0 … c/1", "wait"): 100.0,
        ("X2 c/0 … c/1", "accumulate"): 2.0,
        ("X2 c/0 … c/1", "H2D"): 3.0,
        ("X1 b/0", "D2H"): 4.0,
        ("X1 b/1", "D2H"): 5.0,
        ("X1 b/0", "Allreduce"): 6.0,
        ("X0 a/0", "H2D"): 7.0,
        ("W", "Allreduce"): 100.0,
        ("", "allgather"): 100.0,
    }
    if after_backward:
        seconds = {(f"X0{text[2:]}" if text[:1] == "X" else text, m): s for (text, m), s in seconds.items()}
    found = {key_of(*key): Traffic(1, 8, 8, value) for key, value in seconds.items()}
    times = INSTRUCTIONS | {"W": waited}
    return found | {key_of(name): Traffic(0, 0, 0, value) for name, value in times.items()}


def test_an_iteration_with_all_exchange_after_backward() -> None:
    """Waiting for others counts nowhere; messages of a layer add up."""
    lap = lap_of(totals(after_backward=True), PLACES)
    assert lap == IterationSample(
        backward=(4.0, 2.0, 1.0),
        started=0.875,
        waited=8.0,
        stages=((1.0, 2.0, 0.0, 3.0), (9.0, 0.0, 6.0, 0.0), (0.0, 0.0, 0.0, 7.0)),
    )
    assert lap.total == 15.875


def test_an_iteration_of_another_kind() -> None:
    lap = lap_of(totals(after_backward=False))
    assert lap == IterationSample((4.0, 2.0, 1.0), 0.875, 8.0, ((10.0, 2.0, 6.0, 10.0),))


def test_kinds() -> None:
    """The whole net, single layers apart and overlapped, and chunks of about sqrt(l); no kind twice."""
    assert kinds_of(10) == (
        IterationKind((10,)),
        IterationKind((1,) * 10, after_backward=True),
        IterationKind((1,) * 10),
        IterationKind((3, 3, 3, 1)),
    )
    assert kinds_of(2) == (IterationKind((2,)), IterationKind((1, 1), after_backward=True), IterationKind((1, 1)))
    assert kinds_of(1) == (IterationKind((1,)), IterationKind((1,), after_backward=True))


def test_kinds_take_turns_and_the_first_iteration_of_each_does_not_count() -> None:
    kinds = [IterationKind((3,)), IterationKind((1, 1, 1), after_backward=True)]
    calibration = Calibration(PLACES, kinds, rounds=2)
    assert calibration.iterations == 8
    seen = []
    for number in range(8):
        seen.append(calibration.kind)
        assert not calibration.done
        calibration.record(totals(calibration.kind.after_backward, waited=float(number)))
    assert calibration.done
    assert seen == [kinds[0], kinds[0], kinds[1], kinds[1]] * 2
    assert [lap.waited for lap in calibration.laps[kinds[0]]] == [1.0, 5.0]
    assert [lap.waited for lap in calibration.laps[kinds[1]]] == [3.0, 7.0]
    assert [len(lap.stages) for lap in calibration.laps[kinds[1]]] == [3, 3]


def test_layers_and_messages_of_single_layers() -> None:
    """What is not trained ("bn", "fixed") counts nowhere."""

    def places(parallel: Parallel) -> tuple[ChunkSegment, ...]:
        net = net_of(parallel)
        return places_of(parallel, net, trained_layers(net.graph))

    expected = (
        ChunkSegment((("last", 12),), frozenset({"last/0 … last/1", ""})),
        ChunkSegment((("fc", 25),), frozenset({"fc/0 … fc/1", ""})),
        ChunkSegment((("first", 28),), frozenset({"first/0 … first/1", ""})),
    )
    assert on_ranks(2, places) == [expected] * 2


def test_a_shared_parameter_counts_at_the_first_layer_that_uses_it() -> None:
    text = NET.replace('top: "b"\n', 'top: "b" param { name: "w" }\n', 1)
    text = text.replace(
        'layer { name: "relu"',
        """layer { name: "again" type: "InnerProduct" bottom: "bn" top: "e"
      param { name: "w" } inner_product_param { num_output: 5 bias_term: false } }
    layer { name: "silence" type: "Silence" bottom: "e" }
    layer { name: "relu" """,
    )

    def places(parallel: Parallel) -> tuple[ChunkSegment, ...]:
        net = net_of(parallel, text)
        return places_of(parallel, net, trained_layers(net.graph))

    (seen, _) = on_ranks(2, places)
    assert [place.layers for place in seen] == [(("last", 12),), (("fc", 25),), (("first", 28),)]


def test_model_parallel_layers() -> None:
    """All trained layers are there, in order, on all ranks; what no other rank holds is not exchanged."""

    def places(parallel: Parallel) -> tuple[ChunkSegment, ...]:
        net = net_of(parallel)
        return places_of(parallel, net, trained_layers(net.graph))

    # Under PEER "fc" has 5 rows of 5 numbers, "last" 2 of 6: the first shard has 3 and 1 of them. Masters have none.
    alone = [{"last": 0, "fc": 0, "first": 28}] * 2
    peers = [{"last": 6, "fc": 15, "first": 28}, {"last": 6, "fc": 10, "first": 28}]
    master_and_slave = [{"last": 0, "fc": 0, "first": 28}, {"last": 12, "fc": 25, "first": 0}]
    for ranks, scheme, expected in ((2, PEER, alone), (4, PEER, peers * 2), (4, MASTER, master_and_slave * 2)):
        seen = on_ranks(ranks, places, scheme)
        layers = [[layer for place in of_rank for layer in place.layers] for of_rank in seen]
        assert layers == [list(each.items()) for each in expected]
        largest = {name: max(each[name] for each in expected) for name in expected[0]}
        assert [layer for layers in layers_of_all(seen) for layer in layers] == list(largest.items())
