"""``scripts/bench forecast``: what its rows say together, that nothing is measured again, and a small run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bpt.config.plan.resolve import read_plan
from bpt.nn.net_graph import build_graph_of
from bpt.train.rules.violations import violations_in_step, violations_of_net, violations_of_ranks
from scripts.benches.forecast import bench, memory, ranks, results
from scripts.benches.forecast.cases import ACCURACY, AUTO, CASES, CHOSEN, MEMORY, PLAIN, QUICK, WAYS, Case, Place
from scripts.benches.forecast.nets import write_solver
from scripts.benches.forecast.results import Held, Row
from scripts.benches.harness.nets import Images
from scripts.testbeds.hosts import parse_hosts
from scripts.testbeds.link import parse_bandwidth
from tests.support.bench_arguments import parse
from tests.support.doubles.thread_ranks import run_ranks


def row(way: str, predicted: float, measured: float, net: str = "lenet", part: str = ACCURACY) -> Row:
    return Row(part, "a:1.0,b:0.5 at 1gbit", net, way, "", predicted, measured, 0.0, 4, "4 4", "5 3")


ROWS = [
    row(PLAIN, 1.0, 1.0),
    row("RING", 1.05, 1.08),  # differs by less than 10 % from the one above
    row("TREE", 0.9, 1.2),  # is slower than both, and was to be faster
    row(PLAIN, 3.0, 2.5, net="alexnet"),
]


def test_what_the_cases_are() -> None:
    """More than 60 configurations of 5 nets on 1 to 8 ranks, and 8 cases of auto, in other places or of other nets."""
    accuracy = [case for case in CASES if case.part == ACCURACY]
    assert sum(len(case.ways) for case in accuracy) >= 60
    assert len({case.net for case in accuracy}) == 5
    assert {case.place.ranks for case in accuracy} == {1, 2, 3, 4, 8}
    auto = [case for case in CASES if case.part == AUTO]
    assert len(auto) == 8
    assert not {case.net for case in auto} & {case.net for case in accuracy}
    assert len({case.name for case in CASES}) == len(CASES)
    for place in {case.place for case in CASES if case.place.hosts}:
        hosts = parse_hosts(place.hosts)
        assert sum(host.slots for host in hosts) == place.ranks
        assert sum(host.share for host in hosts) <= 2  # of the cores that the bench is for
        assert parse_bandwidth(place.bandwidth) in (1e8, 1e9)


@pytest.mark.parametrize("cases", [QUICK, pytest.param(CASES, marks=pytest.mark.slow)])
def test_all_cases_are_allowed(cases: tuple[Case, ...], tmp_path: Path) -> None:
    known: dict[tuple[str, Images], Any] = {}
    for case in cases:
        key = case.net, case.images
        if key not in known:
            solver = write_solver(*key, tmp_path)
            known[key] = solver, build_graph_of(read_plan(solver).train)
        solver, graph = known[key]
        for way in case.ways:
            plan = read_plan(solver, [f"parallel_param {{ {WAYS[way]} balance_param {{ profile: 'p' }} }}"])
            found = [
                *violations_in_step(plan),
                *violations_of_ranks(plan, case.place.ranks),
                *violations_of_net(plan, graph, (), case.place.ranks),
            ]
            assert not found, f"{case.name}, {way}: {found[0]}"


def test_accuracy() -> None:
    """Errors of 0, -2.8, -25 and 20 %; of 5 pairs that differ two are wrong, those of TREE."""
    assert list(results.accuracy(ROWS)) == [
        "4 configurations: mean |error| 11.9%, goal 5%: missed",
        "worst error -25.0% (lenet, TREE, a:1.0,b:0.5 at 1gbit), goal 15%: missed",
        "order of all pairs that differ by more than 10%: 3 of 5 right, 60.0%, goal 98%: missed",
        "order of pairs of one net in one place that differ by more than 10%: 0 of 2 right, 0.0%, goal 98%: missed",
    ]
    assert list(results.accuracy(ROWS[:2]))[:2] == [
        "2 configurations: mean |error| 1.4%, goal 5%: met",
        "worst error -2.8% (lenet, RING, a:1.0,b:0.5 at 1gbit), goal 15%: met",
    ]
    assert list(results.accuracy([])) == []


def test_of_several_rounds_the_middle_counts() -> None:
    """1.0, 1.1 and 1.5 s, of which 1.2, 1.0 and 1.1 s were predicted: both have a median of 1.1 s.

    Pairs are 10/11, 10/15 and 11/15 of each other, so 9.1, 33.3 and 26.7 % apart; predictions 20, 9.1 and 9.1 %.
    """
    times = ((1, 1.2, 1.0), (2, 1.0, 1.1), (3, 1.1, 1.5))
    turns = [replace(row(PLAIN, told, seen), turn=turn) for turn, told, seen in times]
    (found,) = results.middle(turns)
    assert (found.predicted, found.measured, found.turn) == (1.1, 1.1, 3)
    *_, last = results.accuracy(turns)
    assert last == (
        "the same measured twice: 23.0% apart in the mean, 33.3% at worst; predicted from what was measured twice: "
        "12.7%"
    )


def chosen(measured: float, *others: float) -> list[Row]:
    """Of auto, plain and others."""
    ways = (CHOSEN, PLAIN, "RING", "CGDP")
    return [row(way, 1.0, each, part=AUTO) for way, each in zip(ways, (measured, *others), strict=False)]


def test_what_auto_chooses() -> None:
    """1.0 s, beside the best of 0.8 s and plain data parallelism of 1.3 s."""
    found = chosen(1.0, 1.3, 0.8)
    assert list(results.auto(found)) == [
        "auto: within 5% of the best measured in 0 of 1 cases, at worst 25.0% behind (lenet, a:1.0,b:0.5 at 1gbit): "
        "missed",
        "auto: where hosts are unlike or links slow, at least 30.0% faster than plain data parallelism (lenet, "
        "a:1.0,b:0.5 at 1gbit), goal 20%: met",
    ]
    here = [replace(each, place="1 host, 2 ranks") for each in chosen(1.0, 1.0)]  # where nothing need be gained
    assert [line.rsplit(": ", 1)[1] for line in results.auto(here)] == ["met"]
    assert list(results.auto(found[1:])) == []  # what it chooses is not measured yet


def test_memory_and_tables(tmp_path: Path) -> None:
    mib = 2.0**20
    held = [Held("vgg16", 2, PLAIN, rank, own * mib, 200 * mib, 1.0) for rank, own in ((0, 190.0), (1, 230.0))]
    (line,) = results.memory(held)
    assert line == (
        "memory of 2 ranks: mean |error| 10.0%, worst +15.0% (vgg16, ALLREDUCE, rank 1 of 2), goal 10%: missed"
    )
    text = list(results.tables([*ROWS, *chosen(1.0, 1.3)], held))
    assert "| a:1.0,b:0.5 at 1gbit | lenet | TREE | 900 | 1,200 | -25.0% |" in text
    assert "| a:1.0,b:0.5 at 1gbit | lenet | `` | 1,000 | auto | 1,000 | 1,300 | +30.0% |" in text
    assert "| vgg16 | 2 | ALLREDUCE | 1 | 230 | 200 | +15.0% |" in text
    assert f"- {line}" in text
    results.append(tmp_path / "m.csv", *held)
    results.append(tmp_path / "t.csv", ROWS[0])
    results.append(tmp_path / "t.csv", *ROWS[1:])
    assert results.read(tmp_path / "t.csv", Row) == ROWS
    assert results.read(tmp_path / "m.csv", Held) == held
    assert results.read(tmp_path / "none.csv", Row) == []


CASE = Case(ACCURACY, Place(2), "lenet", Images(28, 8), (PLAIN, "RING"))


def test_what_is_measured_is_not_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def run(module: str, order: Any, folder: Path, number: int) -> None:
        asked.append((number, [(case["net"], list(case["ways"])) for case in order["cases"]]))
        rows = [
            Row(case["part"], case["place"], case["net"], way, "", 1.0, 1.0, 0.0, 4, turn=order["turn"])
            for case in order["cases"]
            for way in case["ways"]
        ]
        results.append(Path(order["rows"]), *rows[:1])  # and then it breaks off

    monkeypatch.setattr(bench, "run_worker", run)
    for turn in (1, 1, 1, 2):
        bench.measure_times([CASE], tmp_path / "t.csv", 1.0, tmp_path, turn)
    both = (2, [("lenet", [PLAIN, "RING"])])
    assert asked == [both, (2, [("lenet", ["RING"])]), both]


def test_which_cases_are_asked_for() -> None:
    def names(*words: str) -> list[str]:
        cases, memories = bench.asked_for(parse(bench, *words))
        return [case.name for case in cases] + [case.name for case in memories]

    assert len(names()) == len(CASES) + len(MEMORY)
    assert names("--accuracy", "--cases", "vgg16 on 1 host, 1 rank") == ["accuracy: vgg16 on 1 host, 1 rank"]
    assert all(name.startswith("memory") for name in names("--memory"))
    assert len(names("--quick", "--auto")) == 1
    with pytest.raises(SystemExit, match="there is no such case; --list prints all"):
        bench.asked_for(parse(bench, "--cases", "vgg17"))


def test_the_forecast_of_memory_is_that_of_the_plan(tmp_path: Path) -> None:
    """Of two stages one has the fully connected layers, and so most parameters."""
    case = next(case for case in MEMORY if case.way == "2 stages" and case.net == "alexnet")
    first, second = memory.held(case, write_solver(case.net, case.images, tmp_path))
    assert first != second


@pytest.mark.parametrize("part", [ACCURACY, AUTO])
def test_ranks_measure_forecast_and_train(part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bpt.perf.speeds.job_cluster.SECONDS", 0.0)
    monkeypatch.setattr("bpt.perf.speeds.job_cluster._LINKS", 0.01)
    monkeypatch.setattr(ranks, "FEWEST", 2)
    monkeypatch.setattr(ranks, "PASSES", 1)
    solver = str(write_solver("lenet", Images(28, 8), tmp_path))
    ways = {PLAIN: ""} | ({CHOSEN: ""} if part == AUTO else {})
    asked = {"part": part, "place": "here", "net": "lenet", "solver": solver, "ways": ways}
    order = {"rows": str(tmp_path / "t.csv"), "seconds": 0.0, "cases": [asked], "turn": 2}
    assert run_ranks(2, lambda comm: ranks.work(order, comm), hosts=["a", "b"]) == [len(ways)] * 2
    found = results.read(tmp_path / "t.csv", Row)
    assert [each.way for each in found] == list(ways)
    assert (found[0].seen, found[0].turn) == ("4 4", 2)
    assert all(each.predicted > 0 and each.measured > 0 and each.iterations == 2 for each in found)
