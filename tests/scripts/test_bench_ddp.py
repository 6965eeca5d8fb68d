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
    ddp.run(parse(ddp, "--nets", "lenet", "--rounds", "1"))
    _, head, lenet = capsys.readouterr().out.splitlines()
    assert head.split()[:8] == ["net", "batch", "eager", "ms", "fused", "ms", "bpt", "ms"]
    name, batch, eager, fused, ours, to_eager, to_fused, _ = lenet.split()
    assert (name, batch) == ("lenet", "64")
    assert float(to_eager) == pytest.approx(float(ours) / float(eager), rel=0.05)
    assert float(to_fused) == pytest.approx(float(ours) / float(fused), rel=0.05)
