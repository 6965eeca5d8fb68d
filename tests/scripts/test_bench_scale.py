"""``scripts/bench scale``: what ranks send is counted, and what a rank sends in an iteration hardly grows."""

from __future__ import annotations

import numpy as np
import pytest

from scripts.benches import scale
from scripts.benches.scale import Costs, Sent, count_sent, row
from tests.support.bench_arguments import parse
from tests.support.mpirun import needs_mpi


def test_messages_and_collectives_count() -> None:
    class Comm:
        def _Isend(self, buffer: object, dest: int, tag: int) -> str:  # noqa: N802
            return "sent"

        def _do(self, method: str, *arguments: object) -> str:
            return method

    sent = count_sent(Comm)
    comm = Comm()
    assert comm._Isend(np.zeros(3, np.float32), 1, 0) == "sent"
    assert comm._do("Allreduce", -1, [np.zeros(2), "type"], "sum") == "Allreduce"
    assert comm._do("Barrier") == "Barrier"
    assert sent == Sent(messages=3, nbytes=28)


def test_a_line_has_means_and_the_most_messages() -> None:
    one, other = (
        Costs(1.0 * n, 0.5 * n, 10 * n, 1e2 * n, 2e-3 * n, 1e-3 * n, 4.0 * n, 2e3 * n, 20 * n) for n in (1, 3)
    )
    assert row(2, [one, other]) == ("2", "2.0", "1.00", "200", "4.0", "2.0", "8.0", "4", "30", "40")


@needs_mpi
@pytest.mark.slow
def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    """Two messages of gradients, of 1.6 MB in two chunks and of 0.1 MB, go along a tree: 2 (P - 1) / P for each rank.

    The third sum, of a few numbers, is the library's.
    """
    scale.run(parse(scale, "--ranks", "8", "--iterations", "2"))
    _, head, line = capsys.readouterr().out.splitlines()
    assert "".join(head.split()) == "".join(scale.HEAD).replace(" ", "")
    cells = line.split()
    assert cells[0] == "8"
    assert float(cells[scale.HEAD.index("messages")]) == pytest.approx(1 + (2 + 1) * 2 * 7 / 8, abs=0.06)
