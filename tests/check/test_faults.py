"""Where ranks are to be killed: how it is written, and what is refused."""

from __future__ import annotations

import argparse

import pytest

from bpt.check import faults
from bpt.check.faults import Kill
from bpt.errors import UsageError
from bpt.schedule import instructions as do


def test_how_it_is_written() -> None:
    assert Kill.parse("2@5") == Kill(2, 5)
    assert Kill.parse("0@12:X2") == Kill(0, 12, "X2")
    for text in ("", "2", "@5", "2@", "2@5:", "2@5:2", "a@b", "-1@5"):
        with pytest.raises(argparse.ArgumentTypeError, match="takes RANK@ITERATION or RANK@ITERATION:INSTRUCTION"):
            Kill.parse(text)


def test_where_it_is() -> None:
    assert Kill(1, 5).is_at(5, do.Forward(2)) and not Kill(1, 5).is_at(6, do.Forward(2))
    assert Kill(1, 5, "F").is_at(5, do.Forward(2)) and Kill(1, 5, "F2").is_at(5, do.Forward(2))
    assert not Kill(1, 5, "F1").is_at(5, do.Forward(2)) and not Kill(1, 5, "B").is_at(5, do.Forward(2))
    assert Kill(1, 5, "U").is_at(5, do.Update())


@pytest.mark.parametrize(
    ("kills", "tolerant", "message"),
    [
        ([Kill(3, 0)], True, "--kill 3@0: there are 3 ranks, from 0 to 2"),
        ([Kill(1, 10)], True, "--kill 1@10: there are 10 iterations, from 0 on; --iterations 11"),
        ([Kill(0, 1), Kill(1, 1), Kill(2, 2)], True, "--kill: all 3 ranks would be killed"),
        ([Kill(1, 1)], False, "--kill: without fault tolerance the job ends with a rank: mpirun --with-ft ulfm"),
    ],
)
def test_what_is_refused(kills: list[Kill], tolerant: bool, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        faults.check(kills, 3, 10, tolerant)
    assert str(caught.value).startswith(message)
