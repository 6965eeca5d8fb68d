"""A rank that falls silent is named, with what it did; ranks that are busy are not."""

from __future__ import annotations

import threading

from bpt.comm.base import Communicator
from bpt.runtime.heartbeat import Heartbeat
from tests.doubles.thread_ranks import run_ranks

TIMEOUT = 3.0


def test_a_silent_rank_is_named() -> None:
    """Rank 1 says what it does, and then nothing any more: its thread stands still, as after SIGSTOP."""
    named, said = threading.Event(), threading.Event()
    found: list[tuple[str, int | None]] = []

    def run(comm: Communicator) -> None:
        asked = 0

        def doing() -> str:
            nonlocal asked
            asked += 1
            if comm.rank == 1 and asked > 2:
                said.set()
                named.wait(60)
            return f"X{comm.rank} (conv)"

        def end(message: str, process: int | None) -> None:
            found.append((message, process))
            named.set()

        beat = Heartbeat(comm, TIMEOUT, doing, end)
        assert named.wait(60)
        beat.close(failed=True)

    run_ranks(3, run, timeout=120)
    assert said.is_set()
    (message, process), *_ = found
    assert message.startswith("rank 1 (host ") and "stands still: nothing was heard of it for " in message
    assert message.endswith(" s; when it was last heard of, it was at X1 (conv)")
    assert process is not None


def test_it_ends_with_the_run() -> None:
    """Nothing stays under way, and the communicator is given back."""

    def run(comm: Communicator) -> None:
        for _ in range(3):
            Heartbeat(comm, 300.0, lambda: "F0").close()

    run_ranks(3, run)
    assert not [thread for thread in threading.enumerate() if thread.name == "heartbeat"]


def test_a_rank_that_ends_later() -> None:
    """Its neighbours' last beats came while it was at work: nobody waits for them again."""
    heard = threading.Event()

    def run(comm: Communicator) -> None:
        beat = Heartbeat(comm, 1.0, lambda: "F0")  # a beat every tenth of a second
        if comm.rank == 0:
            assert heard.wait(60)
            while any(neighbour.watched for neighbour in beat._neighbours):
                heard.wait(0)
        else:
            heard.set()
        beat.close()

    run_ranks(3, run)
