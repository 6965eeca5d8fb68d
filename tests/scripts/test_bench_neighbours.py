"""``scripts/bench neighbours``: sides train at once, and the table says how that compares."""

from __future__ import annotations

import time

import pytest

from scripts.benches import neighbours
from scripts.benches.harness.turns import Side
from tests.support.bench_arguments import parse


class Meeting(Side):
    """A side whose turn ends when the other's has begun."""

    def __init__(self, begun: list[Side]) -> None:
        super().__init__([], [])
        self._begun = begun

    def train(self, iterations: int, count: bool = True) -> None:
        self._begun.append(self)
        end = time.monotonic() + 120
        while len(self._begun) < 2:
            assert time.monotonic() < end, "the other has not begun"
        self.last = {"seconds": [1.0] * iterations}


def test_sides_train_at_once() -> None:
    begun: list[Side] = []
    sides = [Meeting(begun) for _ in range(2)]
    neighbours.at_once(sides, 3)
    assert [side.last["seconds"] for side in sides] == [[1.0] * 3] * 2


@pytest.mark.slow
def test_the_table(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GOMP_SPINCOUNT", "KMP_BLOCKTIME"):
        monkeypatch.setenv(name, "1")  # the bench takes it away
    monkeypatch.setitem(neighbours.BATCHES, "lenet", 4)
    monkeypatch.setitem(neighbours.ITERATIONS, "lenet", 3)
    neighbours.run(parse(neighbours, "--rounds", "1", "--threads", "1"))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[0] for line in lines] == [
        "1", *("lenet,", "bpt", "defaults", "plain"), *("lenet,", "bpt,", "defaults,", "plain,")
    ]  # fmt: skip
    for _, alone, at_once, ratio, *verdict in lines[2:5]:
        assert float(ratio) == pytest.approx(float(at_once) / float(alone), abs=0.02)
        assert not verdict or verdict[-1] == ("reached" if float(ratio) <= neighbours.GOAL else "missed")
