"""Faults by injection: ranks that kill or stop themselves at a named instruction of an iteration, and not by luck."""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from bpt.errors import RunError, UsageError
from bpt.plan.spec import FaultSpec
from bpt.runtime.runtime import Runtime
from bpt.schedule.instructions import Instruction


@dataclass(frozen=True)
class Fault:
    """What becomes of a rank of the job, and where.

    Attributes:
        rank: of the job.
        iteration: from 0.
        instruction: as a trace shows it, such as F0 or B2, or its letter alone: the first one of its kind; "": the
            first one of the iteration.
        kind: SIGKILL, or SIGSTOP, by which it stands still.
    """

    rank: int
    iteration: int
    instruction: str = ""
    kind: signal.Signals = signal.SIGKILL

    @classmethod
    def parse(cls, text: str, kind: signal.Signals = signal.SIGKILL) -> Fault:
        """``RANK@ITERATION[:INSTRUCTION]``, for argparse."""
        found = re.fullmatch(r"(\d+)@(\d+)(?::([A-Za-z]\d*))?", text)
        if not found:
            raise argparse.ArgumentTypeError(f'takes RANK@ITERATION or RANK@ITERATION:INSTRUCTION, found "{text}"')
        return cls(int(found[1]), int(found[2]), found[3] or "", kind)

    def __str__(self) -> str:
        return f"--{'kill' if self.kind == signal.SIGKILL else 'stop'} {self.rank}@{self.iteration}"

    def is_at(self, iteration: int, instruction: Instruction) -> bool:
        """Whether it is there."""
        step = str(instruction.step)
        return iteration == self.iteration and self.instruction in ("", step, step.rstrip("0123456789"))


def inject(runtime: Runtime, faults: Sequence[Fault]) -> None:
    """Let this rank fail where it is to; nothing is told, as after a failure of the machine."""
    own = runtime.world.world_ranks[runtime.world.rank]
    mine = [fault for fault in faults if fault.rank == own]

    def look(iteration: int, instruction: Instruction) -> None:
        for fault in mine:
            if fault.is_at(iteration, instruction):
                sys.stderr.flush()
                os.kill(os.getpid(), fault.kind)

    if mine:
        runtime.executor.before = look


def check(faults: Sequence[Fault], ranks: int, iterations: int, tolerant: bool, param: FaultSpec) -> None:
    """Raise a UsageError unless all of these ranks and iterations are there, and others outlive them."""
    for fault in faults:
        if fault.rank >= ranks:
            raise UsageError(f"{fault}: there are {ranks} ranks, from 0 to {ranks - 1}")
        if fault.iteration >= iterations:
            more = fault.iteration + 1
            raise UsageError(f"{fault}: there are {iterations} iterations, from 0 on; --iterations {more}")
    if faults and len({fault.rank for fault in faults}) == ranks:
        raise UsageError(f"{faults[-1]}: all {ranks} ranks would be lost, and nobody be left to go on")
    still = [fault for fault in faults if fault.kind == signal.SIGSTOP]
    if still and not (param.heals and param.timeout):
        raise UsageError(f"{still[0]}: nobody would end it; it takes fault_param {{ timeout }} and on_loss: HEAL")
    if faults and not tolerant:
        raise UsageError(f"{faults[0]}: without fault tolerance the job ends with a rank: mpirun --with-ft ulfm …")


def check_happened(faults: Sequence[Fault], left: Sequence[int]) -> None:
    """Raise a RunError if a rank is left that was to be lost: it never came to the place."""
    for fault in faults:
        if fault.rank in left:
            raise RunError(
                f"{fault}:{fault.instruction}: rank {fault.rank} never came there; --trace shows which instructions "
                "a rank has"
            )
