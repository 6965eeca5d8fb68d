"""Ranks that are killed, by the system's own signal: the others go on, and come to the weights of one process."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.mpi.mpirun import mpirun, needs_mpi
from tests.solver.spread_runs import set_up

pytestmark = needs_mpi

COPIES = "fault_param { copies: 1 }"
WHOLE = "pipeline_param { micro_batches: 1 }"  # BatchNorm normalises batches, as one process does


@pytest.mark.parametrize(
    ("ranks", "kills", "parallel"),
    [
        (4, ["0@3:W", "2@3:B", "3@7:F"], ""),  # two at once, of them the first; and one in turn
        (4, ["1@4:X", "0@6"], f"num_stages: 2 exchange: RING {COPIES} {WHOLE}"),
        pytest.param(3, ["0@3:U"], f"exchange: TREE {COPIES}", marks=pytest.mark.slow),
        pytest.param(3, ["1@3:X", "0@5:W"], "exchange: CGDP cgdp_param { chunk_size: 1 }", marks=pytest.mark.slow),
        pytest.param(
            4,
            ["3@5:W"],
            f"num_shards: 2 num_stages: 2 {COPIES} {WHOLE}",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_the_others_come_to_the_same(ranks: int, kills: list[str], parallel: str, tmp_path: Path) -> None:
    set_up(tmp_path)
    words = ["check", "--solver=solver.prototxt", *(f"--kill={kill}" for kill in kills)]
    words += [f"--set=parallel_param {{ {parallel} }}"] if parallel else []
    program = f"import os; os.chdir({str(tmp_path)!r}); from bpt.cli.main import main; raise SystemExit(main())"
    done = mpirun(ranks, [sys.executable, "-c", program, *words], timeout=120, options=("--with-ft", "ulfm"))
    assert done.returncode == 0, done.stderr
    assert "All ranks and one process agree: no relative difference is above 1e-05" in done.stderr
    lost = re.findall(r"rank (\d) \(host", " ".join(re.findall(r"Lost: (.*); going on", done.stderr)))
    assert sorted(lost) == sorted(kill[0] for kill in kills)
