"""``scripts/bench healing``: the tables, and a job that loses a rank."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.benches import healing
from tests.support.bench_arguments import parse
from tests.support.mpirun import needs_mpi


def test_a_row_has_medians_and_what_each_run_took_together() -> None:
    runs = [
        {"detect": 0.1, "find": 0.2, "rebuild": 0.3, "repeat": 0.4, "iteration": 0.5},  # 1.0 together
        {"detect": 0.3, "find": 0.1, "rebuild": 0.9, "repeat": 0.5, "iteration": 0.6},  # 1.8
        {"detect": 0.2, "find": 0.3, "rebuild": 0.5, "repeat": 0.2, "iteration": 0.7},  # 1.2
    ]
    cells = healing.loss_row("RING", runs).split()
    assert cells == ["RING", "0.200", "0.200", "0.500", "0.400", "1.200", "1.000", "-", "1.800", "0.600"]


@needs_mpi
@pytest.mark.slow
def test_a_small_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = "--net lenet --batch 8 --ranks 3 --exchanges ALLREDUCE --losses 1 --rounds 2 --iterations 1"
    healing.run(parse(healing, *words.split()))
    title, _, head, row, _, _, stop, heal, copies = capsys.readouterr().out.splitlines()
    assert title.startswith("lenet, batch 8, 3 ranks of 1 threads")
    assert head.split()[:6] == ["exchange", "detect", "find", "rebuild", "repeat", "together"]
    numbers = [float(cell) for cell in row.split()[1:6]]
    assert all(number > 0 for number in numbers) and numbers[4] == pytest.approx(sum(numbers[:4]), abs=0.01)
    assert [line.split()[1].rstrip(",") for line in (stop, heal, copies)] == ["STOP", "HEAL", "HEAL"]
    assert float(copies.split()[4]) > 0
