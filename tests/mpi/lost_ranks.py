"""A server, rank 0, and workers that talk to it alone, of which two are killed; inside of ``rank_failure.run``.

Rank 1 kills itself between two rounds, rank 2 is killed while it computes. The others go on for many rounds, shrink,
agree, and end one after the other; the last thing that each does is to write a file, "<rank>", in the folder that the
first argument names.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from bpt.base.errors import LostRankError
from bpt.system.comm import rank_failure
from bpt.system.comm.base import Communicator, Request

ROUNDS = 40
DEATHS = {1: 5, 2: 8}  # rank → round
FLOATS = 2**20  # 4 MiB
LARGE = 2**23  # 32 MiB: cannot have been sent before the other rank receives it


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def sent(rank: int, number: int) -> int:
    """What a worker's buffer consists of in a round."""
    return 1000 * rank + number


def serve(comm: Communicator) -> None:
    """Answer each buffer with its double, until all workers have had their rounds or are gone."""
    workers = range(1, comm.size)
    buffers = {rank: np.zeros(FLOATS, np.float32) for rank in workers}
    awaited = {rank: comm.Irecv(buffers[rank], rank) for rank in workers}
    to_be_lost = {rank: comm.Isend(np.zeros(LARGE, np.float32), rank, tag=1) for rank in DEATHS}
    rounds = dict.fromkeys(workers, 0)
    while awaited:
        for rank, request in list(awaited.items()):
            try:
                if not request.Test():
                    continue
                assert (buffers[rank] == sent(rank, rounds[rank])).all(), (rank, rounds)
                comm.Send(2 * buffers[rank], rank)
                rounds[rank] += 1
                del awaited[rank]
                if rounds[rank] < ROUNDS:
                    awaited[rank] = comm.Irecv(buffers[rank], rank)
            except LostRankError as error:
                del awaited[rank]
                say("lost", rank, rounds[rank], time.time(), rank in error.ranks)
                say("sending", rank, outcome(to_be_lost[rank]))
                say("again", rank, outcome(request), outcome(to_be_lost[rank]), outcome(comm.Irecv(np.zeros(1), rank)))
        time.sleep(0.001)
    say("rounds", *rounds.values())


def outcome(request: Request) -> str:
    try:
        request.Wait()
    except LostRankError as error:
        return ",".join(map(str, error.ranks))
    return "done"


def work(comm: Communicator) -> None:
    buffer, answer = np.zeros(FLOATS, np.float32), np.zeros(FLOATS, np.float32)
    for number in range(ROUNDS):
        if DEATHS.get(comm.rank) == number:
            say("dies", comm.rank, time.time())
            if comm.rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            subprocess.Popen(["sh", "-c", f"sleep 0.3; kill -9 {os.getpid()}"])
            while True:
                sum(range(1000))
        buffer[:] = sent(comm.rank, number)
        comm.Send(buffer, 0)
        comm.Recv(answer, 0)
        assert (answer == 2 * buffer).all()


def main(comm: Communicator) -> None:
    group = comm.Dup()
    serve(comm) if comm.rank == 0 else work(comm)
    # Rank 3 comes to the collective when others wait, not in Shrink, but for what rank 1 should do.
    if comm.rank == 4:
        say("revoked", outcome(group.Irecv(np.zeros(1), 3)))
    survivors = group.Shrink()
    say("survivor", comm.rank, survivors.rank, *survivors.allgather(comm.rank), comm.Agree(0b1100 | 1 << comm.rank))
    time.sleep(0.2 * survivors.rank)
    Path(sys.argv[1], str(comm.rank)).write_text("whole")


if __name__ == "__main__":
    sys.exit(rank_failure.run(main))
