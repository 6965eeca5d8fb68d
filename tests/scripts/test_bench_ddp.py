"""``scripts/bench ddp``: the sides take turns, and the table says how they compare."""

from __future__ import annotations

import pytest

from scripts.benches import ddp
from tests.support.bench_arguments import parse
from tests.support.mpirun import needs_mpi


@needs_mpi
@pytest.mark.slow
def test_the_table(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ddp.ITERATIONS, "lenet", 3)
    ddp.run(parse(ddp, "--nets", "lenet", "--rounds", "1", "--sides", "eager,bpt,gloo"))
    _, head, lenet = capsys.readouterr().out.splitlines()
    assert " ".join(head.split()) == "net batch eager ms bpt ms gloo ms bpt/eager gloo/bpt layout chosen"
    name, batch, eager, bpt, gloo, to_eager, to_bpt, _ = lenet.split()
    assert (name, batch) == ("lenet", "64")
    assert float(to_eager) == pytest.approx(float(bpt) / float(eager), rel=0.05)
    assert float(to_bpt) == pytest.approx(float(gloo) / float(bpt), rel=0.05)
