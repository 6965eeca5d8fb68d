"""All checks, in order, each shown as soon as it is done; a watchdog ends them when ranks wait too long."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch

from bpt.apps.commands.job import Job
from bpt.apps.doctor.cluster_report import describe_cluster
from bpt.apps.doctor.findings import Attempt, Ranks, Section, Severity, attempt, count_of, note, problem, summary
from bpt.apps.doctor.hosts import check_hosts
from bpt.apps.doctor.leftovers import check_leftovers
from bpt.apps.doctor.library_versions import check_mpi, check_versions
from bpt.apps.doctor.link_speeds import check_links
from bpt.apps.doctor.outer_plan import check_outer_plan
from bpt.apps.doctor.parallel_plan import check_plan
from bpt.apps.doctor.read_files import check_inputs, check_snapshots, inputs_of, look_at
from bpt.apps.doctor.stored_data import check_stored_data, stored_at, stored_of_plan
from bpt.apps.doctor.texts import Texts, check_texts
from bpt.base.errors import UsageError
from bpt.config.plan.run_plan import RunPlan
from bpt.perf.speeds.ping_pong import MeasuredLinks, measure
from bpt.system.comm.base import Communicator
from bpt.system.device import CPU
from bpt.train.runtime.starting_point import state_to_resume
from bpt.train.state import read_state

SECONDS = 120.0
_LATER = 10.0  # seconds that the other ranks give the first to say it


class Watchdog:
    """Watches over steps that all ranks do together.

    Args:
        world: all ranks; ``Abort`` ends them.
        say: prints what happened.
        seconds: how long a step may take.
    """

    def __init__(self, world: Communicator, say: Callable[[str], object], seconds: float = SECONDS) -> None:
        self._world = world
        self._say = say
        self._seconds = seconds + (_LATER if world.rank else 0.0)

    @contextlib.contextmanager
    def during(self, step: str) -> Iterator[None]:
        """End the job unless what runs inside ends in time."""
        if self._world.size == 1:
            yield
            return
        timer = threading.Timer(self._seconds, self._give_up, (step,))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _give_up(self, step: str) -> None:
        world = self._world
        found = problem(
            f"{step}: not done after {self._seconds:.0f} s: rank {world.rank} on host {world.host} waits for another",
            "see whether all ranks still run (top), whether a file system hangs, and whether a firewall stands "
            "between the hosts",
        )
        self._say(f"{found.kind.value} {found.text}\n → {found.remedy}")
        world.Abort(1)


LOG = logging.getLogger("bpt")

Say = Callable[[str], object]


@dataclass(frozen=True)
class ExaminationRequest:
    """What is to be examined besides the ranks.

    Attributes:
        read: reads the solver, with all flags laid over it; ``None``: no solver is given.
        gpu: the flag's text.
        resume: a solver state to go on from, or "auto"; empty: the run starts anew.
        data: places of data to verify; empty: those of the run. ``None``: data are not verified.
        clean: whether what dead jobs have left is removed.
        cluster: a file that is to describe the job's nodes, for ``bpt plan``; empty: they are not measured.
    """

    read: Callable[[], RunPlan] | None = None
    gpu: str = ""
    resume: str = ""
    data: tuple[str, ...] | None = None
    clean: bool = False
    cluster: str = ""


@dataclass
class ExaminationReport:
    """What was found, the same on all ranks.

    Attributes:
        wrong: an error in what the user wrote, if it is there on all ranks.
    """

    sections: list[Section] = field(default_factory=list)
    wrong: Exception | None = None

    @property
    def problems(self) -> int:
        """How many there are."""
        return count_of(Severity.PROBLEM, self.sections)


def examine(job: Job, wanted: ExaminationRequest, say: Say, seconds: float = SECONDS) -> ExaminationReport:
    """Examine the ranks of ``job`` and what they are to do; all of them call it.

    Args:
        say: prints a line; called on rank 0, and on a rank that has waited too long for the others.
        seconds: that a check may take, before the job is ended.
    """
    return _Examination(job, wanted, say, seconds).run()


_NO_SNAPSHOT = Section("Resuming", (note("no snapshot is under snapshot_prefix yet: the run starts anew"),))


def _iteration(snapshot: str | None) -> int:
    """Return the iteration of a solver state; 0: there is none, or it cannot be read, which is told elsewhere."""
    return attempt(lambda: read_state(snapshot).iter if snapshot else 0).value or 0


class _Examination:
    """One examination; its methods are collective calls."""

    def __init__(self, job: Job, wanted: ExaminationRequest, say: Say, seconds: float) -> None:
        self._job = job
        self._world = job.world
        self._wanted = wanted
        self._say = say
        self._patience = Watchdog(job.world, say, seconds)
        self._report = ExaminationReport()
        self._prefix = ""

    def run(self) -> ExaminationReport:
        with self._patience.during("Hosts"):
            ranks = Ranks.meet(self._world)
        if self._job.is_first:
            self._say(ranks.described)
        with self._patience.during("MPI"):
            self._add(check_mpi(ranks))
        with self._patience.during("Versions"):
            section, same_program = check_versions(ranks)
            self._add(section)
        if same_program:
            self._go_on(ranks)
            self._look_around(ranks)
        else:  # another bpt might not understand what this one sends
            self._add(Section("Not checked", (note("hosts, files and plan: it takes the same bpt on all ranks"),)))
        if self._job.is_first:
            self._say(summary(self._report.sections))
        return self._report

    def _go_on(self, ranks: Ranks) -> None:
        read = self._wanted.read
        texts = Texts.read(read, self._world.rank) if read else None
        with self._patience.during("Hosts"):
            device = self._device(texts)
            solver = texts.solver.value if texts else None
            self._add(check_hosts(ranks, device, bool(solver and solver.is_outer), self._job.loads()))
        with self._patience.during("Connections"):
            measured = measure(ranks.world, ranks.hosts)
            self._add(check_links(ranks, measured))
        if texts is None:
            self._add(Section("Solver and networks", (note("not checked: none is given", "bpt doctor --solver S"),)))
        else:
            self._examine_run(ranks, texts, device.value or CPU, measured)

    def _look_around(self, ranks: Ranks) -> None:
        """Check what has to do with no run."""
        with self._patience.during("Leftovers"):
            if left := check_leftovers(ranks, self._prefix, self._wanted.clean):
                self._add(left)
        if self._wanted.data:
            places = self._wanted.data
            self._add(check_stored_data(ranks, lambda: [one for place in places for one in stored_at(place)]))

    def _device(self, texts: Texts | None) -> Attempt[torch.device]:
        """Return what this rank computes on. Nothing is logged from here on but warnings."""
        plan = texts.solver.value if texts else None
        # Ranks that are told a number of threads do not divide the cores with the others, which would wait for them.
        threads = self._world.allgather(plan.parallel_param.inner_param.num_threads if plan else 0)
        agreed = plan if len(set(threads)) == 1 else None
        device = attempt(lambda: self._job.begin(agreed, self._wanted.gpu))
        LOG.setLevel(max(LOG.level, logging.WARNING))
        misused = self._world.allgather(isinstance(device.error, UsageError))
        if all(misused):
            self._report.wrong = self._world.bcast(device.error)
        return device

    def _examine_run(self, ranks: Ranks, texts: Texts, device: torch.device, measured: MeasuredLinks) -> None:
        """Check what the texts ask for."""
        with self._patience.during("Solver and networks"):
            section, wrong = check_texts(ranks, texts)
            self._add(section, wrong)
            resume = self._world.bcast(attempt(lambda: self._resume(texts)))
        solver, plans = texts.solver.value, texts.plans.value
        self._prefix = solver.snapshot_prefix if solver else ""
        seen = {}
        if solver and plans:
            seen = look_at(inputs_of(plans, solver, resume.value or "", self._world.rank))
        with self._patience.during("Data and files"):
            self._add(check_inputs(ranks, seen))
            if self._wanted.resume == "auto" and not resume.value:
                self._add(_NO_SNAPSHOT)
        if self._wanted.data == ():  # as long as it takes
            rank = self._world.rank
            self._add(check_stored_data(ranks, lambda: stored_of_plan(plans, solver, rank) if solver and plans else []))
        if count_of(Severity.PROBLEM, [section]):
            self._add(
                Section("Plan", (note("not checked, nor are snapshots: it takes the same good texts on all ranks"),))
            )
            return
        assert solver and plans
        with self._patience.during("Plan"):
            told = [message for _, message in seen.values() if message]
            if solver.is_outer:
                checked = check_outer_plan(ranks, solver, plans, device, told, _iteration(resume.value))
            else:
                checked = check_plan(ranks, solver, plans, device, told, measured)
            self._add(checked.section, checked.wrong)
        with self._patience.during("Snapshots"):
            self._add(check_snapshots(ranks, solver, checked.snapshot))
        if self._wanted.cluster and not self._report.problems:
            with self._patience.during("Cluster"):
                self._add(describe_cluster(ranks, solver, device, self._wanted.cluster))

    def _resume(self, texts: Texts) -> str:
        """Return the solver state that the run goes on from, as rank 0 finds it."""
        solver = texts.solver.value
        return state_to_resume(solver, self._wanted.resume) if solver and self._world.rank == 0 else ""

    def _add(self, section: Section, wrong: Exception | None = None) -> None:
        """Take a section into the report, and show it on rank 0."""
        self._report.sections.append(section)
        self._report.wrong = self._report.wrong or wrong
        if self._job.is_first:
            for line in section.lines():
                self._say(line)
