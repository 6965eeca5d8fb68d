"""From a solver and a cluster file to outcomes: strategies, refusals, tables, files and the figure."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from bpt.base.errors import PrototxtError, UsageError, WriteError
from bpt.perf.simulate.simulation import PAPER_STRATEGIES, SimulationResult, Strategy, simulate_solver, strategies_of
from bpt.perf.simulate.simulation_report import draw, lines, node_rows, strategy_rows, write_csv
from tests.support.small_solver import small_solver
from tests.support.typed import at

CLUSTER = """
node { name: "fast" count: 2 samples_per_second: 40 }
node { name: "slow" samples_per_second: 20 latency: 0.5 fails: FAILS }
"""
AGWU = Strategy("AGWU", "IDPA")
OUTER = "parallel_param { exchange: AGWU balance: IDPA balance_param { num_batches: 2 } }"


def run(folder: Path, *overrides: str, strategies: tuple[Strategy, ...] = (), fails: float = 1e6) -> SimulationResult:
    """Batches of 8 and 80 samples, so 50 iterations are 5 passes."""
    (folder / "c.prototxt").write_text(CLUSTER.replace("FAILS", str(fails)))
    source = small_solver(folder, "max_iter: 50", *overrides)
    return simulate_solver(source, str(folder / "c.prototxt"), strategies, samples=80)


def test_the_solvers_own_strategy(tmp_path: Path) -> None:
    """K = 5 and A = 2, so K' = 2 + ⌊5 - 3/2⌋ = 5, and 307 weights of 4 bytes go there and back."""
    simulated = run(tmp_path, OUTER)
    assert simulated.passes == 5
    (outcome,) = simulated.outcomes.values()
    assert list(simulated.outcomes) == [AGWU]
    assert [node.name for node in outcome.nodes] == ["fast", "fast", "slow"]
    assert sum(node.samples for node in outcome.nodes) == 80
    assert outcome.weight_bytes == outcome.predicted_bytes == 2 * 307 * 4 * 3 * 5
    assert outcome.data_bytes == 0


def test_iter_size_makes_iterations_larger(tmp_path: Path) -> None:
    simulated = run(tmp_path, OUTER, "iter_size: 2 max_iter: 25")
    assert (simulated.facts.batch, simulated.passes) == (16, 5)


def test_the_server_may_compute_as_well(tmp_path: Path) -> None:
    """Then nothing travels to the first node."""
    both = run(tmp_path, OUTER, "parallel_param { server: COLOCATED }")
    assert both.outcomes[AGWU].weight_bytes == 2 * 307 * 4 * 2 * 5


def test_the_seed_is_the_solvers(tmp_path: Path) -> None:
    noisy = "node { samples_per_second: 10 noise: 0.2 count: 3 spread: 0.2 }"
    (tmp_path / "n.prototxt").write_text(noisy)

    def seconds(seed: int) -> float:
        source = small_solver(tmp_path, OUTER, f"random_seed: {seed} max_iter: 50")
        (outcome,) = simulate_solver(source, str(tmp_path / "n.prototxt"), samples=80).outcomes.values()
        return outcome.seconds

    assert seconds(1) == seconds(1) != seconds(2)


def test_strategies_are_compared_whatever_the_solver_says(tmp_path: Path) -> None:
    simulated = run(tmp_path, "parallel_param { balance: STATIC }", strategies=strategies_of("all"))
    assert list(map(str, simulated.outcomes)) == ["SGWU+UDPA", "SGWU+IDPA", "AGWU+UDPA", "AGWU+IDPA"]
    samples = {str(name): [node.samples for node in outcome.nodes] for name, outcome in simulated.outcomes.items()}
    assert samples["SGWU+UDPA"] == samples["AGWU+UDPA"] == [27, 27, 26]
    assert samples["SGWU+IDPA"] == [32, 32, 16]


def test_samples_migrate_only_with_idpa(tmp_path: Path) -> None:
    """Two nodes of the three become slower after 20 s; UDPA, which samples cannot leave, is compared as it is."""
    slower = "node { samples_per_second: 10 count: 2 change { at: 20 factor: 0.25 } } node { samples_per_second: 10 }"

    def seconds(migrate: str) -> dict[str, float]:
        source = small_solver(
            tmp_path, f"max_iter: 100 parallel_param {{ balance: IDPA balance_param {{ {migrate} }} }}"
        )
        (tmp_path / "s.prototxt").write_text(slower)
        outcomes = simulate_solver(source, str(tmp_path / "s.prototxt"), strategies_of("all"), samples=80).outcomes
        return {str(strategy): outcome.seconds for strategy, outcome in outcomes.items()}

    without, with_ = seconds(""), seconds("migrate: true")
    assert without["SGWU+UDPA"] == with_["SGWU+UDPA"] and without["AGWU+UDPA"] == with_["AGWU+UDPA"]
    assert with_["SGWU+IDPA"] < 0.85 * without["SGWU+IDPA"] and with_["AGWU+IDPA"] < without["AGWU+IDPA"]


@pytest.mark.parametrize(
    ("text", "strategies"),
    [
        ("", ()),
        ("all", PAPER_STRATEGIES),
        ("ASGD+IDPA,SGWU+UDPA,", (Strategy("ASGD", "IDPA"), Strategy("SGWU", "UNIFORM"))),
        ("AGWU+IDPA,AGWU+IDPA", (AGWU,)),
    ],
)
def test_strategies_by_name(text: str, strategies: tuple[Strategy, ...]) -> None:
    assert strategies_of(text) == strategies


def test_an_unknown_strategy() -> None:
    with pytest.raises(UsageError, match=r'unknown strategy "AGWU\+IDPR"; did you mean "AGWU\+IDPA"\? \(known: all, S'):
        strategies_of("SGWU+UDPA,AGWU+IDPR")


@pytest.mark.parametrize(
    ("overrides", "column", "message"),
    [
        ("", 0, "parallel_param: exchange: ALLREDUCE (the default) cannot be simulated, only SGWU, AGWU and ASGD"),
        ("parallel_param { exchange: CGDP }", 18, "parallel_param: exchange: CGDP cannot be simulated"),
        ("parallel_param { exchange: AGWU balance: STATIC }", 33, "parallel_param: balance: STATIC divides the"),
        (
            "parallel_param { exchange: AGWU balance: IDPA balance_param { num_batches: 9 } }", 63,
            "balance_param: num_batches is 9, but the data are trained only 5 times",
        ),
        (
            "parallel_param { exchange: AGWU agwu_param { max_staleness: 1 } }", 46,
            "agwu_param: max_staleness is 1, but of 3 workers",
        ),
    ],
)  # fmt: skip
def test_what_is_refused(overrides: str, column: int, message: str, tmp_path: Path) -> None:
    with pytest.raises(PrototxtError) as caught:
        run(tmp_path, overrides)
    where, what = ("", at(column)) if column else (r"solver\.prototxt:1:1: ", "")
    assert re.search(f"{where}{re.escape(message)}{what}", str(caught.value))


def test_the_rest_of_the_solver_is_checked_too(tmp_path: Path) -> None:
    with pytest.raises(PrototxtError, match="^iter_size is 0; it must be at least 1" + at(1)):
        run(tmp_path, "iter_size: 0", strategies=PAPER_STRATEGIES)


def test_table_of_one_strategy(tmp_path: Path) -> None:
    simulated = run(tmp_path, OUTER)
    (outcome,) = simulated.outcomes.values()
    head, _, names, values, _, kinds, fast, slow, *_ = lines(simulated)
    assert head.startswith("small: 307 parameters (0.001228 MB), ")
    assert head.endswith(" MFLOP a sample; 80 samples, K = 5 passes in batches of 8; 3 nodes")
    assert names.split()[:5] == ["strategy", "time", "s", "computing", "waiting"]
    assert values.split()[:2] == ["AGWU+IDPA", f"{outcome.seconds:.6g}"]
    assert values.split()[-1] == "100.0%"
    assert kinds.split() == ["nodes", "samples/s", "samples", "passes", "computing", "waiting", "idle", "died"]
    assert fast.split()[:4] == ["fast", "x", "2", "40"]
    assert slow.split()[:4] == ["slow", "x", "1", "20"]


def test_the_dead_are_told(tmp_path: Path) -> None:
    simulated = run(tmp_path, OUTER, fails=2)
    slow = next(line for line in lines(simulated) if line.startswith("slow"))
    assert slow.split()[-1] == "1"


def test_rows_of_strategies_and_nodes(tmp_path: Path) -> None:
    simulated = run(tmp_path, strategies=PAPER_STRATEGIES)
    head, *rows = strategy_rows(simulated)
    assert [str(row[0]) for row in rows] == list(map(str, PAPER_STRATEGIES))
    sgwu = dict(zip(head, rows[0], strict=True))
    outcome = simulated.outcomes[PAPER_STRATEGIES[0]]
    assert (sgwu["seconds"], sgwu["updates"], sgwu["eq11_bytes"]) == (outcome.seconds, 5, 2 * 307 * 4 * 3 * 5)
    assert sgwu["computing"] + sgwu["waiting"] + sgwu["idle"] == pytest.approx(1)  # type: ignore[operator]
    head, *rows = node_rows(simulated)
    assert len(rows) == 4 * 3
    last = dict(zip(head, rows[-1], strict=True))
    expected = ("AGWU+IDPA", 2, "slow", 20)
    assert (str(last["strategy"]), last["node"], last["kind"], last["samples_per_second"]) == expected
    assert all(len(row) == len(head) for row in rows)


def test_csv(tmp_path: Path) -> None:
    simulated = run(tmp_path, OUTER)
    path = tmp_path / "nodes.csv"
    write_csv(str(path), node_rows(simulated))
    with path.open(newline="") as file:
        read = list(csv.DictReader(file))
    assert [row["kind"] for row in read] == ["fast", "fast", "slow"]
    assert [float(row["computing_seconds"]) for row in read] == [
        node.computing for node in simulated.outcomes[AGWU].nodes
    ]
    with pytest.raises(WriteError):
        write_csv(str(tmp_path / "no" / "folder.csv"), [])


@pytest.mark.parametrize("count", [2, 100])
def test_figure(count: int, tmp_path: Path) -> None:
    """Nodes as bars, and as an area where they are many."""
    pytest.importorskip("matplotlib")
    (tmp_path / "c.prototxt").write_text(f"node {{ count: {count} samples_per_second: 10 spread: 0.3 }}")
    source = small_solver(tmp_path, "max_iter: 600")
    simulated = simulate_solver(source, str(tmp_path / "c.prototxt"), PAPER_STRATEGIES[:2], samples=800)
    draw(str(tmp_path / "out.png"), simulated)
    content = (tmp_path / "out.png").read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    assert len(content) > 10_000
