"""Task DAGs by hand: levels, critical path, Algorithm 4.2's assignment, and replays on a virtual clock."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpt.parallel.task_dag.dag_replay import replay
from bpt.parallel.task_dag.task_dag import Dispatcher, Task, TaskDag, Timeline

# a (2) ── b (3) ── d (1) ── f (2)
#    └──── c (4) ── e (1) ──┘        g (5) needs nothing, nothing needs it
DIAMOND = TaskDag(
    [
        Task("a", 2),
        Task("b", 3, (0,)),
        Task("c", 4, (0,)),
        Task("d", 1, (1,)),
        Task("e", 1, (2,)),
        Task("f", 2, (3, 4)),
        Task("g", 5),
    ]
)


def lanes(timeline: Timeline) -> dict[str, tuple[int, float, float]]:
    names = [task.name for task in timeline.dag.tasks]
    return {names[event.task]: (event.lane, event.start, event.end) for event in timeline.events}


def test_levels_and_priorities() -> None:
    assert DIAMOND.levels == (0, 1, 1, 2, 2, 3, 0)
    # The entrance tasks have the maximum; those of a level are equal.
    assert DIAMOND.priorities == (4, 3, 3, 2, 2, 1, 4)
    assert DIAMOND.followers == ((1, 2), (3,), (4,), (5,), (5,), (), ())


def test_the_critical_path() -> None:
    assert DIAMOND.critical_path() == (9, (0, 2, 4, 5))
    assert DIAMOND.critical_path([1, 9, 1, 1, 1, 1, 1]) == (12, (0, 1, 3, 5))
    assert DIAMOND.critical_path([0, 0, 0, 0, 0, 0, 1]) == (1, (6,))
    assert TaskDag([]).critical_path() == (0, ())
    assert DIAMOND.work == 18


def test_a_level_is_the_longest_way_to_a_task() -> None:
    assert TaskDag([Task("a"), Task("b", needs=(0,)), Task("c", needs=(0, 1))]).levels == (0, 1, 2)


def test_ready_tasks_go_to_the_thread_with_the_least_work() -> None:
    """5 to thread 0; 4 to thread 1; 3 to thread 1 (4 < 5), which has 7 then; 2 to thread 0."""
    dag = TaskDag([Task(str(cost), cost) for cost in (5, 4, 3, 2)])
    dispatcher = Dispatcher(dag, 2)
    assert [dispatcher.next(lane) for lane in (0, 0, 1, 1)] == [0, 3, 1, 2]
    assert dispatcher.next(0) is dispatcher.next(1) is None


def test_tasks_of_a_higher_priority_are_assigned_first() -> None:
    """When "a" is complete "b" is ready, below "g", which was ready before; one thread runs "g" first."""
    assert [DIAMOND.tasks[event.task].name for event in replay(DIAMOND, 1).events] == list("agbcdef")


def test_replay_on_two_threads() -> None:
    """At 0 "a" goes to thread 0 and "g" to thread 1. At 2 thread 0 has no work: it gets "b" (3), and "c", too, as it
    has 3 and thread 1 still counts 5. At 5 both are free: thread 0 goes on with "c", thread 1 gets "d"."""
    timeline = replay(DIAMOND, 2)
    assert lanes(timeline) == {
        "a": (0, 0, 2),
        "g": (1, 0, 5),
        "b": (0, 2, 5),
        "c": (0, 5, 9),
        "d": (1, 5, 6),
        "e": (0, 9, 10),
        "f": (0, 10, 12),
    }
    assert timeline.seconds == 12
    assert timeline.busy == (12, 6)
    assert timeline.balance == 0.75
    assert timeline.waiting == 6
    assert timeline.critical_path == (9, (0, 2, 4, 5))


def test_of_threads_with_equal_work_the_one_that_made_the_input_is_taken() -> None:
    """Two chains: each stays on its thread, so that what it made is in that core's cache."""
    dag = TaskDag([Task("a0", 1), Task("b0", 1), Task("b1", 1, (1,)), Task("a1", 1, (0,))])
    assert {name: lane for name, (lane, _, _) in lanes(replay(dag, 2)).items()} == {"a0": 0, "a1": 0, "b0": 1, "b1": 1}


def test_a_thread_without_work_takes_what_waits_for_another() -> None:
    """ "x" was thought to take 10, so that "y" and "z" were given to thread 1; but it takes 1."""
    dag = TaskDag([Task("x", 10), Task("y", 4), Task("z", 4)])
    timeline = replay(dag, 2, [1, 4, 4])
    assert lanes(timeline) == {"x": (0, 0, 1), "y": (1, 0, 4), "z": (0, 1, 5)}
    assert timeline.seconds == 5


def test_pinned_tasks_run_on_the_callers_lane_in_order() -> None:
    dag = TaskDag([Task("p", 2, pinned=True), Task("q", 1), Task("r", 1, (1,), pinned=True)])
    timeline = replay(dag, 1)
    assert lanes(timeline) == {"q": (0, 0, 1), "p": (1, 0, 2), "r": (1, 2, 3)}
    assert timeline.busy == (1,)
    assert timeline.balance == 1


def test_nothing_to_do() -> None:
    timeline = replay(TaskDag([]), 3)
    assert (timeline.seconds, timeline.events, timeline.balance, timeline.waiting) == (0, (), 1, 0)


@pytest.mark.parametrize("needs", [(1,), (0, 0), (-1,)])
def test_a_task_needs_earlier_ones_each_once(needs: tuple[int, ...]) -> None:
    with pytest.raises(AssertionError):
        TaskDag([Task("a"), Task("b", 1, needs)])


@st.composite
def dags(draw: st.DrawFn) -> TaskDag:
    tasks = []
    for index in range(draw(st.integers(1, 20))):
        needs = draw(st.sets(st.integers(0, index - 1), max_size=3)) if index else set()
        cost = draw(st.sampled_from([0.0, 0.5, 1.0, 3.0]))
        tasks.append(Task(str(index), cost, tuple(sorted(needs)), draw(st.booleans()) and draw(st.booleans())))
    return TaskDag(tasks)


@given(dags(), st.integers(1, 4))
def test_every_task_runs_once_after_what_it_needs_and_alone_on_its_lane(dag: TaskDag, threads: int) -> None:
    timeline = replay(dag, threads)
    at = {event.task: event for event in timeline.events}
    assert sorted(at) == list(range(len(dag)))
    assert len(timeline.events) == len(dag)
    for index, task in enumerate(dag.tasks):
        assert at[index].end - at[index].start == pytest.approx(task.cost)
        assert all(at[need].end <= at[index].start for need in task.needs)
        assert (at[index].lane == threads) == task.pinned
    for lane in range(threads + 1):
        own = sorted((e.start, e.end) for e in timeline.events if e.lane == lane)
        assert all(first[1] <= second[0] for first, second in pairwise(own))
    assert timeline.seconds >= timeline.critical_path[0] - 1e-9
    # No thread is ever idle while a task of any other could run: Graham's bound for lists without pinned tasks.
    if not any(task.pinned for task in dag.tasks):
        assert timeline.seconds <= dag.work / threads + dag.critical_path()[0] + 1e-9
