"""``scripts/bench mpifc``: what its ways send, its jobs on ranks that are threads, its tables and figures."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

from bpt.data.datum import encode_datum
from bpt.data.lmdb_file import LmdbWriter
from scripts.benches.harness import curve as curve_file
from scripts.benches.mpifc import bench, figures
from scripts.benches.mpifc.bench import curve_rows
from scripts.benches.mpifc.layer_times import Timed, differing, layer_rows, layer_table
from scripts.benches.mpifc.ranks import work
from scripts.benches.mpifc.ways import MASTER_SLAVE, PEER, WHOLE, Way, ways_of
from scripts.make_synthetic import images
from tests.support.bench_arguments import parse
from tests.support.doubles.thread_ranks import run_ranks

LAP = {"forward": 0.002, "backward": 0.003, "update": 0.001, "total": 0.007}


def test_arguments() -> None:
    assert parse(bench, "--slaves", "4,1,4", "--outputs", "10").slaves == [1, 4]
    quick = parse(bench, "--quick")
    bench.made_quick(quick)
    assert (quick.slaves, quick.nets) == ([1, 2], ["lenet", "cifar10_quick"])
    with pytest.raises(SystemExit):
        parse(bench, "--slaves", "0")


def test_ways() -> None:
    """3 inputs, 6 outputs, 4 samples. Table 1: 4 (2 x 3 + 6). Two peers: 2 x 3 inputs and 2 x 3 outputs each way."""
    ways = ways_of([1, 2], 4)
    assert [(way.scheme, way.slaves, way.ranks) for way in ways[::2]] == [
        (WHOLE, 1, 1), (MASTER_SLAVE, 1, 2), (MASTER_SLAVE, 2, 3), (PEER, 2, 2),
    ]  # fmt: skip
    assert [(way.batch, way.passes) for way in ways[:2]] == [(4, 1), (1, 4)]
    assert [way.elements(3, 6) for way in ways] == [0, 0, 36, 36, 48, 48, 24, 24]
    assert len(ways_of([1], 1)) == 2


@pytest.mark.parametrize("way", [way for way in ways_of([2, 3], 6) if way.scheme != WHOLE], ids=figures.label)
def test_a_layer_sends_what_its_way_says(way: Way) -> None:
    order = {"ways": [asdict(way)], "inputs": 5, "outputs": [12], "rounds": 1, "iterations": 2}
    first, *others = run_ranks(way.ranks, lambda comm: work(order, comm))
    (found,) = first
    assert found["elements"] == [way.elements(5, 12)] * 2 + [0]
    # Table 1: B n_b n_t / K forward, and n_b n_t / K for the update. Backward has two such products: of the weights'
    # gradient and of the bottom's diff.
    forward = 6 * 5 * 12 / way.slaves
    assert found["multiply_adds"] == [forward, 2 * forward, 5 * 12 / way.slaves]
    assert len(found["laps"]) == 2
    assert all(0 < lap["forward"] + lap["backward"] < lap["total"] for lap in found["laps"])
    assert [other[0]["elements"] for other in others] == [found["elements"]] * (way.ranks - 1)


def test_accuracy_is_the_same_in_all_ways(tmp_path: Path) -> None:
    for part, name in enumerate(("train", "test")):
        with LmdbWriter(tmp_path / f"{name}_lmdb") as writer:
            for image, label in images(16, (1, 32, 32), 10, seed=1, part=part):
                writer.put(encode_datum(image, label))

    def curve(way: Way) -> list[tuple[int, float, float]]:
        path = tmp_path / "solver.prototxt"
        curve_file.write_solver("lenet", [way.parallel], tmp_path, way.batch, 16, path, way.passes, "MpiFc")
        order = {"solver": str(path), "iterations": 2, "every": 1}
        found: list[tuple[int, float, float]] = run_ranks(way.ranks, lambda comm: curve_file.work(order, comm))[0]
        return found

    alone = curve(Way(WHOLE, 1, 4))
    assert [point[0] for point in alone] == [0, 1, 2]
    assert 0 == alone[0][1] < alone[1][1] < alone[2][1]
    for way in (Way(MASTER_SLAVE, 2, 4), Way(PEER, 2, 4), Way(MASTER_SLAVE, 2, 1, 4)):
        assert [point[::2] for point in curve(way)] == [pytest.approx(point[::2]) for point in alone]


def timed(scheme: str, k: int, *elements: float, batch: int = 4, factor: float = 1.0) -> Timed:
    lap = {name: seconds * factor for name, seconds in LAP.items()}
    return Timed(Way(scheme, k, batch, 4 // batch), 6, [lap, lap], (elements[0], elements[1], 0.0), (36, 72, 9))


LAYERS = [timed(WHOLE, 1, 0, 0), timed(MASTER_SLAVE, 2, 48, 48, factor=2), timed(PEER, 2, 24, 24, factor=0.5)]


def test_rows() -> None:
    rows = list(layer_rows("here", 3, LAYERS))
    assert rows[1] == (
        "here", MASTER_SLAVE, 2, 4, 1, 3, 6, 0.004, 0.006, 0.002, 0.014, 0.5, 48, 48, 0.0, 48, 36, 36.0, 72, 9, 9.0,
    )  # fmt: skip
    assert [row[11] for row in rows] == [1, 0.5, 2]
    assert differing(rows) == []
    lines = list(layer_table(rows))
    assert lines[2].split() == ["6", "MASTER_SLAVE", "2", "1", "x", "4", "4.00", "6.00", "0.50", "48", "48", "48"]
    (wrong,) = differing(layer_rows("here", 3, [LAYERS[0], timed(MASTER_SLAVE, 2, 48, 47)]))
    assert wrong[13] == 47


def test_figures(tmp_path: Path) -> None:
    layers = [*LAYERS, *(timed(t.way.scheme, t.way.slaves, 0, 0, batch=1) for t in LAYERS)]
    figures.draw_layers(tmp_path / "one_host", "here", layers)
    curves = {Way(WHOLE, 1, 4): [(0, 0.0, 0.1), (1, 2.0, 0.5)], Way(WHOLE, 1, 1, 4): [(0, 0.0, 0.1), (1, 9.0, 0.5)]}
    figures.draw_curves(tmp_path / "lenet.png", "lenet", curves)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "lenet.png", "one_host_by_outputs.png", "one_host_by_slaves.png",
    ]  # fmt: skip
    assert list(curve_rows("lenet", curves))[1] == ("lenet", WHOLE, 1, 4, 1, 1, 2.0, 0.5)


def test_the_experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """All of it, with jobs that are threads; no network is trained."""
    monkeypatch.setattr(
        bench,
        "run_worker",
        lambda module, order, folder, ranks, threads: run_ranks(ranks, lambda comm: work(order, comm))[0],
    )
    words = ["--slaves", "1", "--inputs", "4", "--outputs", "4", "--batch", "2", "--rounds", "1", "--iterations", "1"]
    arguments = parse(bench, *words, "--output", str(tmp_path))
    arguments.nets = []
    bench.run(arguments)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "layers.csv", "one_host_by_outputs.png", "one_host_by_slaves.png",
    ]  # fmt: skip
    assert "4    MASTER_SLAVE  1  1 x 2" in capsys.readouterr().out
