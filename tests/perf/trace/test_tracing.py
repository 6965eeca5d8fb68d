"""Traces of whole runs, on ranks that are threads; and of runs that fail."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bpt.base.errors import FileError, UsageError
from bpt.config.plan.resolve import read_plan
from bpt.engine.instructions import Forward
from bpt.perf.trace.tracing import check_file, tracing
from bpt.system.comm.base import Communicator
from bpt.system.comm.serial import SerialCommunicator
from bpt.system.device import CPU
from bpt.system.events.event import Activity
from bpt.train import outer
from bpt.train.solver.solver import Solver
from tests.chaos.losses import Kill, Kills, injected
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.read_trace import read_chrome, read_perfetto
from tests.support.spread_runs import set_up

READ = {".json": read_chrome, ".json.gz": read_chrome, ".pftrace": read_perfetto}
ONE_PASS = "iter_size: 1 max_iter: 8 "


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    set_up(tmp_path)
    return tmp_path


def train(ranks: int, path: str, text: str) -> None:
    def run(comm: Communicator) -> None:
        plan = read_plan("solver.prototxt", [ONE_PASS + text])
        with tracing(path, comm):
            if "AGWU" in text:
                outer.train(plan, comm, CPU)
            else:
                with Solver(plan, world=comm) as solver:
                    solver.solve()

    run_ranks(ranks, run)


@pytest.mark.parametrize("suffix", READ)
def test_ranks_that_go_in_step(suffix: str) -> None:
    train(3, f"t{suffix}", "parallel_param { exchange: ALLREDUCE }")
    trace = READ[suffix](Path(f"t{suffix}"))
    assert list(trace.processes) == [0, 1, 2]
    assert trace.processes[1].startswith("rank 1 (")
    assert {f"clock error of rank {rank} (us)" for rank in range(3)} <= set(trace.about)
    for rank in range(3):
        trace.check_compute(rank, dict.fromkeys("FBXWU", 8))
        names = [bar.name for bar in trace.tracks[rank, "compute"]]
        # At 0, 4 and the end; the snapshot at the end.
        assert (names.count("test"), names.count("snapshot")) == (3, 1)
        assert trace.tracks[rank, "compute"][0].name == "test"
        first = next(bar for bar in trace.tracks[rank, "compute"] if bar.name == "F0")
        assert first.details == {"layers": "data … loss"}
        sent = [bar for (of, _), bars in trace.tracks.items() if of == rank for bar in bars if bar.name == "Allreduce"]
        own = [bar.details for bar in sent if bar.details.get("for") == "X0"]
        # conv 72, fc 7 · 64 + 7 and ip 24 numbers: 551 floats, of which a ring of 3 sends 4 / 3.
        assert (
            own
            == [
                {
                    "for": "X0",
                    "parameters": "conv/0 … ip/1",
                    "bytes sent": 2938,
                    "bytes received": 2938,
                    "dtype": "float32",
                }
            ]
            * 8
        )
    assert [bar.name for bar in trace.tracks[0, "disk"]] == ["write"]


def test_gradients_that_are_summed_by_chunks() -> None:
    train(2, "t.json", "parallel_param { exchange: CGDP cgdp_param { chunk_size: 1 } }")
    trace = read_chrome(Path("t.json"))
    for rank in range(2):
        trace.check_compute(rank, {"F": 24, "B": 24, "X": 24, "W": 8, "U": 8})
        names = {bar.name for (of, _), bars in trace.tracks.items() if of == rank for bar in bars}
        assert {"D2H", "accumulate", "H2D"} <= names


@pytest.mark.parametrize("suffix", [".json", ".pftrace"])
def test_a_pipeline(suffix: str) -> None:
    stages = "sync_batch_norm: false num_stages: 2 pipeline_param { micro_batches: 3 }"
    train(2, f"t{suffix}", f"parallel_param {{ {stages} }}")
    trace = READ[suffix](Path(f"t{suffix}"))
    for rank in range(2):
        trace.check_compute(rank, {"F": 24, "B": 24, "W": 8, "U": 8})
        assert {"F", "B"} <= {bar.name[0] for bar in trace.tracks[rank, "compute"] if bar.name.endswith(".2")}
    trace.check_flows(8 * 3 * 2)  # a blob up and a diff down, at least


def test_stages_that_do_not_go_in_step() -> None:
    """The last batch does not come back to the first stage."""
    train(2, "t.json", "clip_gradients: -1 parallel_param { num_stages: 2 pipeline_param { schedule: DELAYED } }")
    trace = read_chrome(Path("t.json"))
    trace.check_compute(0, {"F": 8, "B": 7, "W": 8, "U": 8})
    trace.check_compute(1, {"F": 8, "B": 8, "W": 8, "U": 8})
    trace.check_flows(8 + 7)


def test_the_first_rank_is_lost() -> None:
    """The others waited for it at the end once, and a run that had healed ended with status 1."""

    def run(comm: Communicator) -> None:
        plan = read_plan("solver.prototxt", [ONE_PASS])
        with tracing("t.json", comm), Solver(plan, world=comm.Dup()) as solver:
            solver.solve()

    with injected(Kills([Kill(0, 3, "B")])):
        run_ranks(3, run, tolerant=True)
    trace = read_chrome(Path("t.json"))
    assert list(trace.processes) == [1, 2] and trace.about["ranks missing"] == {"0": "it was lost"}
    for rank in (1, 2):
        assert [bar.name for bar in trace.tracks[rank, "compute"]].count("U") == 8
    assert trace.about["clock error of rank 1 (us)"] == 0


def test_a_server_and_its_workers() -> None:
    train(3, "t.json", "parallel_param { exchange: AGWU }")
    trace = read_chrome(Path("t.json"))
    for rank in (1, 2):
        bars = trace.tracks[rank, "compute"]
        counts = [sum(bar.name.startswith(letter) for bar in bars) for letter in "FBXWU"]
        assert len(set(counts)) == 1 and counts[0] > 0
        trace.check_compute(rank, {})
        assert any(bar.details.get("for") == "weights" for bar in trace.tracks[rank, "messages"])
    names = [bar.name for (rank, _), bars in trace.tracks.items() if rank == 0 for bar in bars]
    assert {"merge", "test", "snapshot", "write"} <= set(names)
    trace.check_flows(4)


def test_a_run_that_fails_leaves_what_the_first_rank_did() -> None:
    def fail(comm: Communicator) -> None:
        with tracing("t.json", comm):
            with comm.events.during(Forward(0)):
                comm.Barrier()
            raise ZeroDivisionError

    def run(comm: Communicator) -> None:
        with pytest.raises(ZeroDivisionError):
            fail(comm)

    run_ranks(2, run)
    trace = read_chrome(Path("t.json"))
    assert list(trace.processes) == [0]
    (track,) = (bars for (_, name), bars in trace.tracks.items() if name.startswith("compute"))
    assert [bar.name for bar in track] == ["F0"]
    assert trace.about["ranks missing"] == {"1": "the run failed"}


def test_no_trace_costs_nothing() -> None:
    comm = SerialCommunicator()
    with tracing("", comm):
        assert comm.events.during(Activity.TEST) is comm.events.during(Forward(0))  # nothing is noted
    assert not list(Path().glob("t.*"))


@pytest.mark.parametrize("name", ["t", "t.txt", "t.gz", "json", "t.JSON"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match=r"--trace .*: the name must end in \.json or \.json\.gz"):
        check_file(name)


def test_so_is_a_file_that_cannot_be_written() -> None:
    with pytest.raises(FileError, match='there is no folder "nowhere"'):
        check_file("nowhere/t.json")


def test_names_of_hosts_and_parameters_may_have_any_character() -> None:
    """JSON is written without escaping, in UTF-8."""
    comm = SerialCommunicator()
    with tracing("t.json", comm), comm.events.part_of(Forward(0), 'a "b" … µ\n'), comm.events.call("Send", 1, 0):
        pass
    assert json.loads(Path("t.json").read_text("utf-8"))
    ((bar,),) = read_chrome(Path("t.json")).tracks.values()
    assert bar.details["parameters"] == 'a "b" … µ\n'
