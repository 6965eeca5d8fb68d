"""Fault injection for ``bpt check``: killed, stopped and slow ranks, and dropped links.

A rank is killed or stopped at a named instruction of an iteration. A rank is slow, or a link drops every message, from
an iteration on.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from bpt.base.errors import RunError, UsageError
from bpt.config.plan.run_plan import FaultSpec
from bpt.engine.instructions import Instruction
from bpt.system.comm.base import Communicator
from bpt.system.events.event import Event
from bpt.system.events.totals import Totals, total_busy_seconds
from bpt.train.runtime.runtime import Runtime


@dataclass(frozen=True)
class Fault:
    """A rank that is killed or stopped at an instruction.

    Attributes:
        rank: the rank's number in the job.
        iteration: the iteration, from 0.
        instruction: an instruction as a trace shows it, such as F0 or B2. A letter alone means the first instruction
            of its kind; "" means the first one of the iteration.
        kind: SIGKILL, or SIGSTOP, which stops the rank without ending it.
    """

    rank: int
    iteration: int
    instruction: str = ""
    kind: signal.Signals = signal.SIGKILL

    @classmethod
    def parse(cls, text: str, kind: signal.Signals = signal.SIGKILL) -> Fault:
        """Return the fault that ``RANK@ITERATION[:INSTRUCTION]`` describes, for argparse."""
        found = re.fullmatch(r"(\d+)@(\d+)(?::([A-Za-z]\d*))?", text)
        if not found:
            raise argparse.ArgumentTypeError(f'takes RANK@ITERATION or RANK@ITERATION:INSTRUCTION, found "{text}"')
        return cls(int(found[1]), int(found[2]), found[3] or "", kind)

    def __str__(self) -> str:
        return f"--{'kill' if self.kind == signal.SIGKILL else 'stop'} {self.rank}@{self.iteration}"

    def is_at(self, iteration: int, instruction: Instruction) -> bool:
        """Return whether the fault happens at this instruction of this iteration."""
        step = str(instruction.step)
        return iteration == self.iteration and self.instruction in ("", step, step.rstrip("0123456789"))


@dataclass(frozen=True)
class Slow:
    """A rank of the job that computes at a fraction of its speed from an iteration on.

    The rank waits after its instructions, in proportion to their time without waits for others. Its events record this
    wait as computing.
    """

    rank: int
    factor: float
    iteration: int

    @classmethod
    def parse(cls, text: str) -> Slow:
        """Return the slow rank that ``RANK=FACTOR@ITERATION`` describes, for argparse."""
        found = re.fullmatch(r"(\d+)=(\d*\.?\d+)@(\d+)", text)
        if not found or not 0 < float(found[2]) < 1:
            raise argparse.ArgumentTypeError(f'takes RANK=FACTOR@ITERATION, FACTOR between 0 and 1, found "{text}"')
        return cls(int(found[1]), float(found[2]), int(found[3]))

    def __str__(self) -> str:
        return f"--slow {self.rank}={self.factor:g}@{self.iteration}"

    def pause(self, iteration: int, computed: float) -> float:
        """Return the seconds to wait after the rank has ``computed`` for that many seconds."""
        return computed * (1 / self.factor - 1) if iteration >= self.iteration else 0.0


@dataclass(frozen=True)
class DroppedLink:
    """Two ranks of the job that receive no messages from each other from an iteration on.

    Messages between them are never posted. Both block in a collective call that includes both, because no library can
    complete it without their messages. Heartbeats still arrive.
    """

    ranks: tuple[int, int]
    iteration: int

    @classmethod
    def parse(cls, text: str) -> DroppedLink:
        """Return the link that ``RANK-RANK@ITERATION`` describes, for argparse."""
        found = re.fullmatch(r"(\d+)-(\d+)@(\d+)", text)
        if not found or found[1] == found[2]:
            raise argparse.ArgumentTypeError(f'takes RANK-RANK@ITERATION, of two ranks, found "{text}"')
        one, other = sorted((int(found[1]), int(found[2])))
        return cls((one, other), int(found[3]))

    def __str__(self) -> str:
        return f"--drop-link {self.ranks[0]}-{self.ranks[1]}@{self.iteration}"

    def block(self, comm: Communicator, method: str, peer: int | None) -> None:
        """Block a call between the two ranks from the iteration on; return at once for any other call.

        The communicator calls this hook before each of its calls.
        """
        members, flight = comm.world_ranks, comm.events.flight
        concerned = self.ranks if peer is None else (members[comm.rank], members[peer])
        if (
            set(concerned) != set(self.ranks)
            or not set(self.ranks) <= set(members)
            or members[comm.rank] not in self.ranks
            or method in _PASSING
            or flight is None
            or flight.iteration < self.iteration
        ):
            return
        while True:
            if loss := comm.loss():
                raise loss
            time.sleep(_POLL_INTERVAL)


_PASSING = ("Recv", "Irecv", "Agree", "wait")  # receives get nothing anyway; Agree uses other links; memory is no link
_POLL_INTERVAL = 0.01  # seconds


AnyFault = Fault | Slow | DroppedLink


def drop_links(world: Communicator, faults: Sequence[AnyFault]) -> None:
    """Drop the messages of dropped links in ``world`` and in all communicators that are made from it."""
    links = [fault for fault in faults if isinstance(fault, DroppedLink)]

    def block(comm: Communicator, method: str, peer: int | None) -> None:
        for link in links:
            link.block(comm, method, peer)

    if links:
        world.fault_hook = block


@contextmanager
def injected(runtime: Runtime, faults: Sequence[AnyFault]) -> Iterator[None]:
    """Inject the faults of this rank; the rank reports nothing, as after a failure of the machine."""
    own = runtime.world.world_ranks[runtime.world.rank]
    ends = [fault for fault in faults if isinstance(fault, Fault) and fault.rank == own]
    slow = [fault for fault in faults if isinstance(fault, Slow) and fault.rank == own]
    totals = Totals()
    before: list[Instruction] = []

    def pause(iteration: int) -> None:
        computed, start = total_busy_seconds(totals.take()), time.perf_counter()
        time.sleep(sum(fault.pause(iteration, computed) for fault in slow))
        if before:
            here = runtime.events
            here.emit(Event(before[0], start, time.perf_counter(), here.rank, threading.current_thread().name))
            totals.take()

    def inject(iteration: int, instruction: Instruction) -> None:
        if slow:
            pause(iteration)
            before[:] = [instruction]
        for fault in ends:
            if fault.is_at(iteration, instruction):
                sys.stderr.flush()
                os.kill(os.getpid(), fault.kind)

    if ends or slow:
        runtime.passes.executor.before = inject
    if slow:
        runtime.events.add(totals)
    try:
        yield
    finally:
        runtime.events.remove(totals)


def check(faults: Sequence[AnyFault], ranks: int, iterations: int, tolerant: bool, param: FaultSpec) -> None:
    """Raise a UsageError unless all these ranks and iterations exist, and some ranks remain."""
    for fault in faults:
        if max(_ranks_of(fault)) >= ranks:
            there = (
                f"are {ranks} ranks, from 0 to {ranks - 1}" if ranks > 1 else "is only rank 0; start it with mpirun -n"
            )
            raise UsageError(f"{fault}: there {there}")
        if fault.iteration >= iterations:
            more = fault.iteration + 1
            raise UsageError(f"{fault}: there are {iterations} iterations, from 0 on; --iterations {more}")
    ends = [fault for fault in faults if isinstance(fault, Fault)]
    links = [fault for fault in faults if isinstance(fault, DroppedLink)]
    if ends and len({fault.rank for fault in ends}) == ranks:
        raise UsageError(f"{ends[-1]}: all {ranks} ranks would be lost; leave at least one rank without a fault")
    still = [fault for fault in ends if fault.kind == signal.SIGSTOP]
    if still and not (param.heals and param.timeout):
        raise UsageError(
            f"{still[0]}: the run would wait forever; it needs fault_param {{ timeout }} and on_loss: HEAL"
        )
    if links and not param.timeout:
        raise UsageError(f"{links[0]}: the run would wait forever; it needs fault_param {{ timeout }}")
    if ends and not tolerant:
        raise UsageError(f"{ends[0]}: without fault tolerance the job ends with a rank: mpirun --with-ft ulfm …")


def check_happened(faults: Sequence[AnyFault], left: Sequence[int]) -> None:
    """Raise a RunError if a fault did not happen, because its rank never reached the instruction."""
    for fault in faults:
        if isinstance(fault, Fault) and fault.rank in left:
            raise RunError(
                f"{fault}:{fault.instruction}: rank {fault.rank} never reached it; --trace shows the instructions of "
                "a rank"
            )
        if isinstance(fault, DroppedLink) and set(fault.ranks) <= set(left):
            raise RunError(f"{fault}: these two ranks never exchanged a message; --trace shows which ranks do")


def _ranks_of(fault: AnyFault) -> tuple[int, ...]:
    return fault.ranks if isinstance(fault, DroppedLink) else (fault.rank,)
