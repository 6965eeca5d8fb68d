"""``bpt time --profile`` from end to end, with a small net and ranks that are threads."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from pathlib import Path

import pytest

from bpt.base.errors import FileError, PrototxtError
from bpt.nn.net_graph import build_graph_of
from bpt.parallel.balance.profile import Profile, check, read_profile, static_from
from bpt.parallel.balance.rank_facts import facts
from bpt.perf.speeds import profiling
from bpt.perf.speeds.profiling import profile, whole_batch
from bpt.perf.speeds.survey import SurveyLimits
from bpt.system.comm.base import Communicator
from bpt.system.comm.serial import SerialCommunicator
from bpt.system.device import CPU
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.small_solver import small_solver

QUICK = SurveyLimits(precision=10.0, run=0.001, repeats=2, seconds=0.01)


def test_two_ranks(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    solver = small_solver(tmp_path)
    path = str(tmp_path / "speed.json")
    with caplog.at_level(logging.INFO, logger="bpt"):
        first, second = run_ranks(2, lambda comm: profile(solver, CPU, comm, path, QUICK))
    assert first == second == read_profile(path)
    assert first.batch == 8
    assert first.name == "small"
    assert [rank.host for rank in first.facts.ranks] == [os.uname().nodename] * 2
    assert first.facts.ranks[0].device.startswith("cpu (")
    assert first.facts.solver == {"engine": "CONTIGUOUS", "type": "SGD", "iter_size": 1}
    for speed in first.speeds:
        assert {1, 2, 4} <= speed.points.keys() <= set(range(1, 9))
        assert all(0 < point.seconds < 60 for point in speed.points.values())
        assert speed.cap >= 8
    assert "Profile: measuring 2 ranks, for batches of 8 samples in all" in caplog.text
    assert "Balance: rank 1 trains" in caplog.text
    assert f"Profile: written to {path}" in caplog.text


def test_segments_and_exchanges(tmp_path: Path) -> None:
    """The small net is one segment: seconds until its gradients are ready, until all is computed, and of the update."""
    solver = small_solver(tmp_path, "parallel_param { balance: STATIC balance_param { profile: 'p' by: ITERATION } }")
    path = str(tmp_path / "speed.json")
    made, _ = run_ranks(2, lambda comm: profile(solver, CPU, comm, path, QUICK))
    assert made == read_profile(path)
    (exchange,) = made.exchanges
    assert exchange > 0
    for speed in made.speeds:
        assert {1, max(speed.points)} <= speed.segments.keys() <= speed.points.keys()
        for ready, computed, update in speed.segments.values():
            assert 0 < ready == computed
            assert update > 0
    assert sum(share.count for share in static_from(made, by_iteration=True).shares(8, 2)) == 8


def test_a_profile_is_of_the_run_it_was_made_in(tmp_path: Path) -> None:
    solver = small_solver(tmp_path)
    path = str(tmp_path / "speed.json")
    made = profile(solver, CPU, SerialCommunicator(), path, QUICK)
    now = facts(solver, build_graph_of(solver.train), CPU, SerialCommunicator())
    assert now == made.facts
    check(read_profile(path), now, path, solver.path)
    with pytest.raises(FileError, match="type was SGD, now Adam"):
        check(made, replace(now, solver={**now.solver, "type": "Adam"}), path, solver.path)


@pytest.mark.parametrize(
    ("where", "problem"),
    [
        ("no/speed.json", 'there is no folder ".*/no"'),
        ("folder", "cannot be written: it is a folder"),
    ],
)
def test_a_file_that_cannot_be_written_shows_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, problem: str
) -> None:
    (tmp_path / "folder").mkdir()
    monkeypatch.setattr(profiling, "measure_speed", None)

    def on_each(comm: Communicator) -> Profile:
        return profile(small_solver(tmp_path), CPU, comm, str(tmp_path / where), QUICK)

    with pytest.raises(FileError, match=problem):
        run_ranks(2, on_each)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 8),
        ("batch_scope: REPLICA", 32),
        ("batch_scope: REPLICA num_shards: 2", 16),
        ("num_shards: 2", 8),
    ],
)
def test_the_whole_batch_of_four_ranks(tmp_path: Path, text: str, expected: int) -> None:
    solver = small_solver(tmp_path, f"parallel_param {{ {text} }}")
    assert whole_batch(build_graph_of(solver.train), solver.parallel_param, 4) == expected


@pytest.mark.parametrize(
    ("text", "even"),
    [("num_stages: 2", 4), ("num_shards: 2 fc_param { scheme: MASTER_SLAVE }", 4), ("num_shards: 2", 2)],
)
def test_sizes_are_those_that_ranks_may_get_as_the_net_is_divided(tmp_path: Path, text: str, even: int) -> None:
    """8 samples and 4 ranks: two of them share the samples of a replica, or divide them."""
    solver = small_solver(tmp_path, f"parallel_param {{ {text} }}")
    made = run_ranks(4, lambda comm: profile(solver, CPU, comm, str(tmp_path / "speed.json"), QUICK))[0]
    assert all({1, even} <= speed.points.keys() for speed in made.speeds)
    assert {max(speed.points) >= even for speed in made.speeds} == {True}


def test_a_net_without_data(tmp_path: Path) -> None:
    net = 'layer { name: "s" type: "DummyData" top: "s" dummy_data_param { shape { } } }'
    with pytest.raises(PrototxtError, match="no layer that makes batches"):
        profile(small_solver(tmp_path, net=net), CPU, SerialCommunicator(), str(tmp_path / "speed.json"), QUICK)
