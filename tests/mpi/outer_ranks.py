"""Runs bpt as its command line does, with each argument in turn: ``outer_ranks "3 train --solver=S" "2 train …"``.

The number says on how many of the ranks; the others wait. It is all one launch, since every rank takes seconds to
start, and no run draws figures, which takes seconds, too, but for one with a plus: ``3+``. When all ranks are there,
each prints "at <time>".
"""

from __future__ import annotations

import shlex
import sys
import time
from unittest import mock

from bpt.apps.commands.job import Job
from bpt.cli.main import COMMANDS, make_parser
from bpt.system.comm import rank_failure
from bpt.system.comm.base import Communicator
from bpt.train.outer import serving
from bpt.train.outer.report import RunRecord
from bpt.train.outer.report.figures import draw


def no_figures(record: RunRecord, folder: str) -> list[str]:
    return []


def main(world: Communicator) -> None:
    world.Barrier()
    print("at", time.time(), flush=True)
    for line in sys.argv[1:]:
        number, *words = shlex.split(line)
        ranks = int(number.rstrip("+"))
        arguments = make_parser().parse_args(words)
        group = world.Split(world.rank // ranks)
        if world.rank < ranks:
            with mock.patch.object(serving, "draw", draw if "+" in number else no_figures):
                COMMANDS[arguments.command].run(arguments, Job.enter(group))


if __name__ == "__main__":
    sys.exit(rank_failure.run(main))
