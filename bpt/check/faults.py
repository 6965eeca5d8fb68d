"""Faults by injection: ranks that end themselves at a named instruction of a named iteration, and not by luck."""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from bpt.errors import UsageError
from bpt.runtime.runtime import Runtime
from bpt.schedule.instructions import Instruction


@dataclass(frozen=True)
class Kill:
    """A rank of the job, and where it dies.

    Attributes:
        rank: of the job.
        iteration: from 0.
        instruction: as a trace shows it, such as F0 or B2, or its letter alone: the first one of its kind; "": the
            first one of the iteration.
    """

    rank: int
    iteration: int
    instruction: str = ""

    @classmethod
    def parse(cls, text: str) -> Kill:
        """``RANK@ITERATION[:INSTRUCTION]``, for argparse."""
        found = re.fullmatch(r"(\d+)@(\d+)(?::([A-Za-z]\d*))?", text)
        if not found:
            raise argparse.ArgumentTypeError(f'takes RANK@ITERATION or RANK@ITERATION:INSTRUCTION, found "{text}"')
        return cls(int(found[1]), int(found[2]), found[3] or "")

    def is_at(self, iteration: int, instruction: Instruction) -> bool:
        """Whether it is there that the rank dies."""
        step = str(instruction.step)
        return iteration == self.iteration and self.instruction in ("", step, step.rstrip("0123456789"))


def inject(runtime: Runtime, kills: Sequence[Kill]) -> None:
    """Let this rank kill itself where it is to; nothing is told, as after a failure of the machine."""
    own = runtime.world.world_ranks[runtime.world.rank]
    mine = [kill for kill in kills if kill.rank == own]

    def look(iteration: int, instruction: Instruction) -> None:
        if any(kill.is_at(iteration, instruction) for kill in mine):
            sys.stderr.flush()
            os.kill(os.getpid(), signal.SIGKILL)

    if mine:
        runtime.executor.before = look


def check(kills: Sequence[Kill], ranks: int, iterations: int, tolerant: bool) -> None:
    """Raise a UsageError unless all of these ranks and iterations are there, and others outlive them."""
    for kill in kills:
        name = f"--kill {kill.rank}@{kill.iteration}"
        if kill.rank >= ranks:
            raise UsageError(f"{name}: there are {ranks} ranks, from 0 to {ranks - 1}")
        if kill.iteration >= iterations:
            raise UsageError(f"{name}: there are {iterations} iterations, from 0 on; --iterations {kill.iteration + 1}")
    if kills and len({kill.rank for kill in kills}) == ranks:
        raise UsageError(f"--kill: all {ranks} ranks would be killed, and nobody be left to go on")
    if kills and not tolerant:
        raise UsageError("--kill: without fault tolerance the job ends with a rank: mpirun --with-ft ulfm …")
