"""Run all checks in order, and show each result at once. A watchdog ends the job when ranks wait too long."""

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
from bpt.apps.doctor.read_files import check_inputs, check_snapshots, inputs_of, read_inputs
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
_LATER = 10.0  # seconds that other ranks wait longer, so that the first rank reports the problem


class Watchdog:
    """Ends the job if a collective step takes too long.

    Args:
        world: all ranks; ``Abort`` ends them.
        say: prints the problem.
        seconds: the longest time of a step.
    """

    def __init__(self, world: Communicator, say: Callable[[str], object], seconds: float = SECONDS) -> None:
        self._world = world
        self._say = say
        self._seconds = seconds + (_LATER if world.rank else 0.0)

    @contextlib.contextmanager
    def during(self, step: str) -> Iterator[None]:
        """End the job unless the context ends in time."""
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
            "check whether all ranks still run (top), whether a file system hangs, and whether a firewall is between "
            "the hosts",
        )
        self._say(f"{found.kind.value} {found.text}\n → {found.remedy}")
        world.Abort(1)


LOG = logging.getLogger("bpt")

Say = Callable[[str], object]


@dataclass(frozen=True)
class ExaminationRequest:
    """The objects to examine in addition to the ranks.

    Attributes:
        read: reads the solver with all flags applied; ``None``: no solver is given.
        gpu: the text of the flag.
        resume: a solver state to resume from, or "auto"; empty: the run starts from the beginning.
        data: paths of data to verify; empty: the data of the run; ``None``: data are not verified.
        clean: whether to remove the leftovers of dead jobs.
        cluster: the cluster file to write, for ``bpt plan``; empty: nodes are not measured.
    """

    read: Callable[[], RunPlan] | None = None
    gpu: str = ""
    resume: str = ""
    data: tuple[str, ...] | None = None
    clean: bool = False
    cluster: str = ""


@dataclass
class ExaminationReport:
    """The findings, which are the same on all ranks.

    Attributes:
        sections: the findings of each check.
        wrong: the error of the user's texts, if all ranks have it.
    """

    sections: list[Section] = field(default_factory=list)
    wrong: Exception | None = None

    @property
    def problems(self) -> int:
        """The number of problems."""
        return count_of(Severity.PROBLEM, self.sections)


def examine(job: Job, wanted: ExaminationRequest, say: Say, seconds: float = SECONDS) -> ExaminationReport:
    """Examine the ranks of ``job`` and the run; a collective call.

    Args:
        job: the ranks.
        wanted: the objects to examine.
        say: prints a line; called on rank 0, and on a rank that has waited too long for the others.
        seconds: the longest time of a check; then the job ends.
    """
    return _Examination(job, wanted, say, seconds).run()


_NO_SNAPSHOT = Section("Resuming", (note("no snapshot is under snapshot_prefix yet: the run starts from iteration 0"),))


def _iteration(snapshot: str | None) -> int:
    """Return the iteration of a solver state; 0 if it is missing or unreadable, which another check reports."""
    return attempt(lambda: read_state(snapshot).iter if snapshot else 0).value or 0


class _Examination:
    """One examination; its methods are collective calls."""

    def __init__(self, job: Job, wanted: ExaminationRequest, say: Say, seconds: float) -> None:
        self._job = job
        self._world = job.world
        self._wanted = wanted
        self._say = say
        self._watchdog = Watchdog(job.world, say, seconds)
        self._report = ExaminationReport()
        self._prefix = ""

    def run(self) -> ExaminationReport:
        with self._watchdog.during("Hosts"):
            ranks = Ranks.meet(self._world)
        if self._job.is_first:
            self._say(ranks.described)
        with self._watchdog.during("MPI"):
            self._add(check_mpi(ranks))
        with self._watchdog.during("Versions"):
            section, same_program = check_versions(ranks)
            self._add(section)
        if same_program:
            self._examine_ranks(ranks)
            self._examine_files(ranks)
        else:  # another version of bpt might not understand the messages
            self._add(Section("Not checked", (note("hosts, files and plan: they need the same bpt on all ranks"),)))
        if self._job.is_first:
            self._say(summary(self._report.sections))
        return self._report

    def _examine_ranks(self, ranks: Ranks) -> None:
        read = self._wanted.read
        texts = Texts.read(read, self._world.rank) if read else None
        with self._watchdog.during("Hosts"):
            device = self._device(texts)
            solver = texts.solver.value if texts else None
            self._add(check_hosts(ranks, device, bool(solver and solver.is_outer), self._job.loads()))
        with self._watchdog.during("Connections"):
            measured = measure(ranks.world, ranks.hosts)
            self._add(check_links(ranks, measured))
        if texts is None:
            self._add(Section("Solver and networks", (note("not checked: none is given", "bpt doctor --solver S"),)))
        else:
            self._examine_run(ranks, texts, device.value or CPU, measured)

    def _examine_files(self, ranks: Ranks) -> None:
        """Check leftovers and the data that the user names, which belong to no run."""
        with self._watchdog.during("Leftovers"):
            if left := check_leftovers(ranks, self._prefix, self._wanted.clean):
                self._add(left)
        if self._wanted.data:
            places = self._wanted.data
            self._add(check_stored_data(ranks, lambda: [one for place in places for one in stored_at(place)]))

    def _device(self, texts: Texts | None) -> Attempt[torch.device]:
        """Return the device of this rank. From here on only warnings are logged."""
        plan = texts.solver.value if texts else None
        # Ranks with a given number of threads do not take part in the collective division of the cores.
        threads = self._world.allgather(plan.parallel_param.inner_param.num_threads if plan else 0)
        agreed = plan if len(set(threads)) == 1 else None
        device = attempt(lambda: self._job.begin(agreed, self._wanted.gpu))
        LOG.setLevel(max(LOG.level, logging.WARNING))
        misused = self._world.allgather(isinstance(device.error, UsageError))
        if all(misused):
            self._report.wrong = self._world.bcast(device.error)
        return device

    def _examine_run(self, ranks: Ranks, texts: Texts, device: torch.device, measured: MeasuredLinks) -> None:
        """Check the run that the texts describe."""
        with self._watchdog.during("Solver and networks"):
            section, wrong = check_texts(ranks, texts)
            self._add(section, wrong)
            resume = self._world.bcast(attempt(lambda: self._resume(texts)))
        solver, plans = texts.solver.value, texts.plans.value
        self._prefix = solver.snapshot_prefix if solver else ""
        seen = {}
        if solver and plans:
            seen = read_inputs(inputs_of(plans, solver, resume.value or "", self._world.rank))
        with self._watchdog.during("Data and files"):
            self._add(check_inputs(ranks, seen))
            if self._wanted.resume == "auto" and not resume.value:
                self._add(_NO_SNAPSHOT)
        if self._wanted.data == ():  # without the watchdog, because this may take long
            rank = self._world.rank
            self._add(check_stored_data(ranks, lambda: stored_of_plan(plans, solver, rank) if solver and plans else []))
        if count_of(Severity.PROBLEM, [section]):
            self._add(
                Section("Plan", (note("not checked, nor are snapshots: they need the same good texts on all ranks"),))
            )
            return
        assert solver and plans
        with self._watchdog.during("Plan"):
            reported = [message for _, message in seen.values() if message]
            if solver.is_outer:
                checked = check_outer_plan(ranks, solver, plans, device, reported, _iteration(resume.value))
            else:
                checked = check_plan(ranks, solver, plans, device, reported, measured)
            self._add(checked.section, checked.wrong)
        with self._watchdog.during("Snapshots"):
            self._add(check_snapshots(ranks, solver, checked.snapshot))
        if self._wanted.cluster and not self._report.problems:
            with self._watchdog.during("Cluster"):
                self._add(describe_cluster(ranks, solver, device, self._wanted.cluster))

    def _resume(self, texts: Texts) -> str:
        """Return the solver state from which the run resumes, as rank 0 finds it."""
        solver = texts.solver.value
        return state_to_resume(solver, self._wanted.resume) if solver and self._world.rank == 0 else ""

    def _add(self, section: Section, wrong: Exception | None = None) -> None:
        """Add a section to the report, and show it on rank 0."""
        self._report.sections.append(section)
        self._report.wrong = self._report.wrong or wrong
        if self._job.is_first:
            for line in section.lines():
                self._say(line)
