"""Runs bpt's commands one after the other in one launch: ``paper_ranks FOLDER "3 train --solver=S" "1 plan …"``.

The number says on how many of the ranks. What the first rank prints of line i goes to FOLDER/i.txt, whose last line is
"status 0", or what it raised. A line that fails on one rank fails on all: the launch goes on with the next one.
"""

from __future__ import annotations

import os
import shlex
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from bpt.apps.commands.job import Job
from bpt.cli.main import COMMANDS, make_parser
from bpt.system.comm import rank_failure
from bpt.system.comm.base import Communicator
from bpt.train.outer import serving


@contextmanager
def printing_to(path: Path) -> Iterator[None]:
    """Let this process print to a file, whatever prints."""
    kept = os.dup(1), os.dup(2)
    with path.open("wb") as file:
        for number in (1, 2):
            os.dup2(file.fileno(), number)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, copy in zip((1, 2), kept, strict=True):
            os.dup2(copy, number)
            os.close(copy)


def main(world: Communicator) -> None:
    folder = Path(sys.argv[1])
    for index, line in enumerate(sys.argv[2:]):
        number, *words = shlex.split(line)
        group = world.Split(int(world.rank >= int(number)))
        if world.rank < int(number):
            with printing_to(folder / (f"{index}.txt" if world.rank == 0 else f"{index}.{world.rank}.txt")):
                start = time.perf_counter()
                run(words, group)
                print(f"\nseconds {time.perf_counter() - start:.1f}")
        world.Barrier()


def run(words: list[str], group: Communicator) -> None:
    """Run one command, without the figures of the outer layer, which take seconds."""
    try:
        arguments = make_parser().parse_args(words)
        with mock.patch.object(serving, "draw", return_value=[]):
            COMMANDS[arguments.command].run(arguments, Job.enter(group))
    except Exception:
        traceback.print_exc()
    else:
        print("status 0")


if __name__ == "__main__":
    sys.exit(rank_failure.run(main))
