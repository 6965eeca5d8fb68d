"""Ranks that are killed, by the system's own signal: the others go on, and come to the weights of one process."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.support.mpirun import mpirun, needs_mpi
from tests.support.spread_runs import set_up

pytestmark = needs_mpi

COPIES = "fault_param { copies: 1 }"
WHOLE = "pipeline_param { micro_batches: 1 }"  # BatchNorm normalises batches, as one process does


@pytest.mark.parametrize(
    ("ranks", "kills", "parallel"),
    [
        # Two at once, of them the first, whose places one spare and nobody take; and one in turn.
        pytest.param(5, ["0@3:W", "2@3:B", "3@7:F"], "fault_param { spares: 1 }", marks=pytest.mark.slow),
        pytest.param(4, ["1@4:X", "0@6"], f"num_stages: 2 exchange: RING {COPIES} {WHOLE}", marks=pytest.mark.slow),
        # Of a whole net beside a pipeline: first a stage, whose replica gets shorter, then the whole net.
        pytest.param(3, ["2@4:X", "0@7"], f"replica {{ }} replica {{ num_stages: 2 }} {WHOLE}", marks=pytest.mark.slow),
        pytest.param(3, ["0@3:U"], f"exchange: TREE {COPIES}", marks=pytest.mark.slow),
        pytest.param(4, ["1@3:G0", "0@5:U"], f"update: SHARDED {COPIES}", marks=pytest.mark.slow),
        pytest.param(3, ["1@3:X", "0@5:W"], "exchange: CGDP cgdp_param { chunk_size: 1 }", marks=pytest.mark.slow),
        pytest.param(4, ["3@5:W"], f"num_shards: 2 num_stages: 2 {COPIES} {WHOLE}", marks=pytest.mark.slow),
    ],
)
def test_the_others_come_to_the_same(ranks: int, kills: list[str], parallel: str, tmp_path: Path) -> None:
    set_up(tmp_path)
    words = ["check", "--solver=solver.prototxt", *(f"--kill={kill}" for kill in kills)]
    words += [f"--set=parallel_param {{ {parallel} }}"] if parallel else []
    done = mpirun(ranks, [sys.executable, "-c", program(tmp_path), *words], timeout=120, options=("--with-ft", "ulfm"))
    assert done.returncode == 0, done.stderr
    assert "All ranks and one process agree: no relative difference is above 1e-05" in done.stderr
    assert_lost(done.stderr, kills)


def test_a_rank_that_stands_still_is_named_and_ended(tmp_path: Path) -> None:
    set_up(tmp_path)
    words = [
        "check",
        "--solver=solver.prototxt",
        "--stop=1@3:W",
        "--set=parallel_param { fault_param { timeout: 10 } }",
    ]
    argv = [sys.executable, "-c", program(tmp_path), *words]
    done = mpirun(3, argv, timeout=120, options=("--with-ft", "ulfm"))
    assert done.returncode == 0, done.stderr
    assert "All ranks and one process agree" in done.stderr
    # What it was at was heard up to a beat before.
    still = r"error: rank 1 \(host .*\) stands still: nothing was heard of it for (.*) s; .*; it is killed"
    told = re.search(still, done.stderr)
    assert told and float(told[1]) >= 4
    assert_lost(done.stderr, ["1"])


@pytest.mark.slow
@pytest.mark.parametrize("time", [1, 2])
def test_a_rank_that_stands_still_while_nets_are_made(time: int, tmp_path: Path) -> None:
    """Nobody watched then, once: neither at the start, where the job ends, nor where a run is bound after a loss."""
    set_up(tmp_path)
    script = Path(__file__).with_name("stopping_ranks.py")
    argv = [sys.executable, str(script), str(time), str(tmp_path), "train", "--solver=solver.prototxt"]
    argv += ["--set=parallel_param { fault_param { timeout: 10 } }"]
    done = mpirun(3, argv, timeout=120, options=("--with-ft", "ulfm"))
    assert (done.returncode == 0) == (time == 2), done.stderr
    assert re.search(
        r"error: rank 1 \(host .*\) stands still: nothing was heard of it for .*; it is killed", done.stderr
    )
    if time == 2:
        assert "Lost: rank 1 (" in done.stderr and "Optimization Done." in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("exchange", "heals"), [("RING", True), ("ALLREDUCE", False)])
def test_a_link_that_is_dead(exchange: str, heals: bool, tmp_path: Path) -> None:
    """Of two that wait for messages of each other one leaves; in a collective of the library nobody knows who."""
    set_up(tmp_path)
    net = tmp_path / "net.prototxt"  # without BatchNorm, whose sums are the library's
    net.write_text("".join(line for line in net.read_text().splitlines(keepends=True) if "BatchNorm" not in line))
    fault = f"--set=parallel_param {{ exchange: {exchange} fault_param {{ timeout: 10 }} }}"
    words = ["check", "--solver=solver.prototxt", "--drop-link=0-2@3", fault]
    done = mpirun(3, [sys.executable, "-c", program(tmp_path), *words], timeout=120, options=("--with-ft", "ulfm"))
    assert (done.returncode == 0) == heals, done.stderr
    told = tmp_path / f"small_flight_recorder_rank_{2 if heals else 0}.txt"
    if heals:
        assert "All ranks and one process agree" in done.stderr
        assert_lost(done.stderr, ["2"])
        assert re.search(r"rank 0 \(host .*\) waits for rank 2 \(host .*\) in Irecv with rank 2, X0", told.read_text())
    else:
        assert re.search(
            r"rank 0 .*, rank 1 .*, rank 2 .* all wait in Allreduce, X0 .* in iteration 3", told.read_text()
        )


def program(folder: Path) -> str:
    return f"import os; os.chdir({str(folder)!r}); from bpt.cli.main import main; raise SystemExit(main())"


def assert_lost(log: str, kills: list[str]) -> None:
    lost = re.findall(r"rank (\d) \(host", " ".join(re.findall(r"Lost: (.*); going on", log)))
    assert sorted(lost) == sorted(kill[0] for kill in kills)
