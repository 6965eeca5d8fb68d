"""The numbers of batches, and the iterations in which they began."""

from __future__ import annotations

import pytest

from bpt.engine.batch_counter import BatchCounter


def test_batches_are_counted_from_the_iteration_at_which_a_run_begins() -> None:
    counter = BatchCounter(delay=1)
    assert [(counter.begin(iteration), counter.batch, counter.first) for iteration in (0, 1, 2)] == [
        (False, 0, 0), (True, 1, 0), (True, 2, 0),
    ]  # fmt: skip
    # Another iteration is the first of another run, whose older batches do not come back.
    assert (counter.begin(7), counter.batch, counter.first) == (False, 7, 7)
    with pytest.raises(KeyError):
        counter.iteration_of(2)


@pytest.mark.parametrize("delay", [0, 2])
def test_iterations_are_known_until_a_batch_has_come_back(delay: int) -> None:
    counter = BatchCounter(delay)
    for iteration in range(5):
        counter.begin(iteration)
    assert [counter.iteration_of(batch) for batch in range(4 - delay, 5)] == list(range(4 - delay, 5))
    with pytest.raises(KeyError):
        counter.iteration_of(3 - delay)


def test_iterations_may_be_renumbered_while_a_run_is_under_way() -> None:
    counter = BatchCounter(delay=2)
    counter.renumber(5)
    assert not counter.begin(5)  # none was under way
    counter.renumber(0)
    assert (counter.begin(0), counter.batch, counter.first) == (True, 6, 5)
    assert [counter.iteration_of(batch) for batch in (5, 6)] == [5, 0]
    counter.forget()
    counter.renumber(9)
    assert (counter.begin(9), counter.batch) == (False, 9)
