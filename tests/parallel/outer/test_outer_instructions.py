"""Instructions as lines of text."""

from __future__ import annotations

import json
import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bpt.base.errors import UserError
from bpt.parallel.outer.outer_instructions import (
    ApplyGradient,
    AverageSubmitted,
    CutShort,
    Discard,
    Lost,
    Merge,
    Migrated,
    Order,
    OuterInstruction,
    SendOrder,
    Settled,
    from_line,
    to_line,
)
from bpt.parallel.outer.outer_step import OuterStep
from bpt.parallel.outer.staleness import Correction
from bpt.parallel.outer.update_factors import AgwuUpdate

numbers = st.integers(0, 2**53)
parts = st.fractions(0, 1000)
factors = st.floats(0, allow_nan=False, allow_infinity=False)
updates = st.builds(AgwuUpdate, numbers, numbers, numbers, factors, factors, factors, factors)
runs = st.lists(st.tuples(numbers, numbers), max_size=5).map(tuple)
orders = st.builds(Order, numbers, numbers, parts, parts, runs, numbers, st.booleans(), st.booleans(), numbers)
corrections = st.builds(Correction, factors, st.lists(st.tuples(numbers, factors), max_size=3).map(tuple))
steps = st.none() | st.builds(OuterStep, factors, factors, st.booleans())
instructions = st.one_of(
    st.builds(Merge, updates, corrections, steps),
    st.builds(ApplyGradient, updates, parts, corrections),
    st.builds(Discard, updates),
    st.builds(AverageSubmitted, st.lists(numbers).map(tuple), st.lists(factors).map(tuple), numbers, steps),
    st.builds(SendOrder, orders),
    st.builds(CutShort, numbers, parts, numbers),
    st.builds(Settled, numbers, numbers),
    st.builds(Lost, st.lists(numbers).map(tuple)),
)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(instructions)
def test_there_and_back(instruction: OuterInstruction) -> None:
    line = to_line(instruction)
    assert "\n" not in line
    back = from_line(line + "\n")
    assert back == instruction and type(back) is type(instruction)
    assert repr(back) == repr(instruction)  # 1 is not 1.0, nor a list a tuple


@pytest.mark.parametrize(
    ("instruction", "line"),
    [
        (
            Merge(AgwuUpdate(2, 3, 4, 0.1, 2 / 3)),
            '{"Merge": {"update": {"worker": 2, "base": 3, "newest": 4, "gamma": 0.1, '
            '"accuracy": 0.6666666666666666, "share": 1.0}}}',
        ),
        (
            Merge(AgwuUpdate(2, 3, 4, 0.5, 1.0, 1.0, 0.25), Correction(table=((0, 0.5),)), OuterStep(0.7, 0.9, False)),
            '{"Merge": {"update": {"worker": 2, "base": 3, "newest": 4, "gamma": 0.5, "accuracy": 1.0, "share": 1.0, '
            '"damping": 0.25}, "correction": {"compensation": 0.0, "table": [[0, 0.5]]}, "step": {"lr": 0.7, '
            '"momentum": 0.9, "uses_momentum": false}}}',
        ),
        (CutShort(1, Fraction(7, 3), 4), '{"Cut": {"worker": 1, "passes": "7/3", "iterations": 4}}'),
        (Lost((1, 2)), '{"Lost": {"workers": [1, 2], "taken_over": true}}'),
        (
            SendOrder(Order(1, 5, Fraction(3), Fraction(5, 2), ((0, 4), (9, 12)), 2, batch=3)),
            '{"Send": {"order": {"worker": 1, "version": 5, "until": "3", "passes": "5/2", "runs": [[0, 4], [9, 12]], '
            '"iterations": 2, "weights": true, "stop": false, "batch": 3}}}',
        ),
        (
            SendOrder(Order(1, 5, Fraction(3), Fraction(2), gives=((4, 6),))),
            '{"Send": {"order": {"worker": 1, "version": 5, "until": "3", "passes": "2", "runs": [], "iterations": 0, '
            '"weights": true, "stop": false, "batch": 0, "gives": [[4, 6]]}}}',
        ),
        (
            Migrated(2, 0, 14, (0.1, 0.4, 0.0, 0.1), (16.0, 5.5)),
            '{"Migrated": {"giver": 2, "taker": 0, "samples": 14, "times": [0.1, 0.4, 0.0, 0.1], '
            '"longest": [16.0, 5.5]}}',
        ),
    ],
)
def test_what_lines_look_like(instruction: OuterInstruction, line: str) -> None:
    """Logs of today can be read tomorrow."""
    assert to_line(instruction) == line
    assert from_line(line) == instruction


def test_updates_of_logs_without_shares_of_samples() -> None:
    line = '{"Merge": {"update": {"worker": 2, "base": 3, "newest": 4, "gamma": 0.1, "accuracy": 0.5}}}'
    assert from_line(line) == Merge(AgwuUpdate(2, 3, 4, 0.1, 0.5))


def test_infinite_and_undefined_numbers() -> None:
    """Of a worker that diverged."""
    assert from_line(to_line(Merge(AgwuUpdate(0, 0, 0, math.inf, 0.0)))) == Merge(AgwuUpdate(0, 0, 0, math.inf, 0.0))
    back = from_line(to_line(Merge(AgwuUpdate(0, 0, 0, math.nan, 0.0))))
    assert isinstance(back, Merge) and math.isnan(back.update.gamma)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "garbage",
        "{",
        "[]",
        "{}",
        "5",
        "null",
        '"Merge"',
        '{"Merge": {}, "Lost": {"workers": []}}',
        '{"Explode": {}}',
        '{"Merge": 5}',
        '{"Merge": {"update": {"worker": 1}}}',
        '{"Merge": {"update": {"worker": 2, "base": 3, "newest": 4, "gamma": 0.1, "accuracy": 1, "more": 1}}}',
        '{"Lost": {"workers": 5}}',
        '{"Cut": {"worker": 1, "passes": "1/0", "iterations": 4}}',
        '{"Cut": {"worker": 1, "passes": "half", "iterations": 4}}',
        '{"Cut": {"worker": 1, "passes": Infinity, "iterations": 4}}',
        '{"Cut": {"worker": 1, "passes": NaN, "iterations": 4}}',
        '{"Send": {"order": {"worker": 1, "version": 5, "until": "3", "passes": "1", "runs": [[0, 4, 5]]}}}',
        '{"Send": {"order": {"worker": 1, "version": 5, "until": "3", "passes": "1", "runs": [[0, Infinity]]}}}',
        '{"Settled": {"worker": 1, "engine": 2, "more": 3}}',
        '{"Settled": [1, 2]}',
        '{"Cut": ' * 100_000,
        "[" * 100_000,
    ],
)
def test_garbage(line: str) -> None:
    with pytest.raises(UserError) as caught:
        from_line(line)
    assert str(caught.value) == f"this is no instruction of a replay log: {line[:80]!r}"


def test_a_line_that_was_cut_off() -> None:
    """Wherever; also shown no longer than it is useful."""
    line = to_line(SendOrder(Order(1, 5, Fraction(3), Fraction(5, 2), ((0, 4), (9, 12)))))
    for length in range(len(line)):
        with pytest.raises(UserError):
            from_line(line[:length])
    with pytest.raises(UserError) as caught:
        from_line(json.dumps("x" * 1000))
    assert len(str(caught.value)) < 150
