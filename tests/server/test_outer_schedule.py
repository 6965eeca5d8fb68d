"""Numbers that do not fit a run are refused where they stand, or as defaults."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from bpt.server.outer_schedule import schedule_of

from bpt.errors import PrototxtError
from bpt.schedule.outer.strategies import Agwu
from tests.server.test_legality import outer


def refusal(folder: Path, text: str, samples: int = 100, passes: int = 9) -> str:
    source = outer(folder, text)
    with pytest.raises(PrototxtError) as caught:
        schedule_of(source, source.param.parallel_param, samples, 3, Fraction(passes))
    return str(caught.value).removeprefix(f"{folder}/solver.prototxt:")


def test_what_fits(tmp_path: Path) -> None:
    source = outer(tmp_path, "balance: IDPA")
    assert isinstance(schedule_of(source, source.param.parallel_param, 100, 3, Fraction(9)), Agwu)


def test_a_number_that_is_written(tmp_path: Path) -> None:
    assert refusal(tmp_path, "balance: IDPA balance_param { num_batches: 5 }", passes=2) == (
        "3:31: parallel_param: balance_param: num_batches is 5, but the data are trained only 2 times; use "
        "num_batches: 2 or fewer"
    )
    assert refusal(tmp_path, "agwu_param { max_staleness: 1 }").startswith(
        "3:14: parallel_param: agwu_param: max_staleness is 1, but of 3 workers"
    )


def test_a_default(tmp_path: Path) -> None:
    """At what is nearest around it."""
    assert refusal(tmp_path, "balance: IDPA", passes=2).startswith(
        "2:1: parallel_param: balance_param: num_batches is 4 (the default), but the data are trained only 2 times; use"
    )
    assert refusal(tmp_path, "balance: IDPA", samples=3).startswith(
        "2:1: parallel_param: balance_param: num_batches is 4 (the default), but there are only 3 samples to hand out"
    )
