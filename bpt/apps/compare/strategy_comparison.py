"""Runs the trials of ``bpt compare`` in turn, each as a job of its own, and writes the table and the figure."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from bpt.apps.compare.comparison_figure import draw
from bpt.apps.compare.comparison_table import markdown, write_csv_text
from bpt.apps.compare.trial_checks import check_mpirun, check_trials, missing_flag
from bpt.apps.compare.trial_result import TrialResult, read_metrics, read_reports
from bpt.apps.compare.trials import TrainingTrial
from bpt.base.atomic import write_text
from bpt.base.errors import FileError, UsageError, UserError
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.sources import SolverSource, read_solver
from bpt.system.comm.launch import die_with_parent, find_mpirun, launched

SEED = 1
"""The seed of all runs if the solver's text sets none."""
_NO_BEST = 'snapshot_best: ""'
_ERROR = "error: "
_SEARCH = "the time includes the search for chunks; set cgdp_param { chunk_size }"
_OUTER = (pb.ParallelParameter.SGWU, pb.ParallelParameter.AGWU, pb.ParallelParameter.ASGD)


@dataclass(frozen=True)
class StrategyComparison:
    """What to compare.

    Attributes:
        solver: the solver's text file.
        overrides: texts that override the solver's in all runs.
        trials: the runs.
        ranks: the number of ranks of each run.
        launcher: the words before the command that a rank runs; see ``launcher_of``.
        output: the folder of all that is written.
    """

    solver: str
    overrides: Sequence[str]
    trials: Sequence[TrainingTrial]
    ranks: int
    launcher: Sequence[str]
    output: Path

    def run(self) -> int:
        """Train each trial, print the table, write table and figure, and return the exit status: 1 if a run failed.

        Raises:
            UserError: a text is wrong, a trial cannot run, or mpirun needs further flags. No run has begun then.
            FileError: the folder cannot be written to.
        """
        self._check_folder()
        settings = [self._settings(trial) for trial in self.trials]
        check_trials(
            [(trial.name, source) for trial, (_, source) in zip(self.trials, settings, strict=True)], self.ranks
        )
        check_mpirun(self.launcher)
        self._make_folder()
        if any(_NO_BEST in pieces for pieces, _ in settings):
            print("snapshot_best has no effect in bpt compare, which needs no best snapshot", file=sys.stderr)
        results = []
        for number, (trial, (pieces, source)) in enumerate(zip(self.trials, settings, strict=True), 1):
            print(f"{number} of {len(self.trials)}: {trial.name} …", file=sys.stderr, flush=True)
            start = time.monotonic()
            result = self._train(trial, pieces, source.param.parallel_param.exchange in _OUTER)
            outcome = f"failed: {result.failure}" if result.failure else f"{result.measure} {result.final:.4g}"
            print(f"    {outcome} ({time.monotonic() - start:.1f} s)", file=sys.stderr, flush=True)
            results.append(result)
            self._write_tables(results)  # what is known so far stays if a later run is interrupted
        print(markdown(results), end="")
        self._draw(results)
        return 1 if any(result.failure for result in results) else 0

    def _check_folder(self) -> None:
        if self.output.exists() and (not self.output.is_dir() or any(self.output.iterdir())):
            raise UsageError(f"--output {self.output}: is there already; name another folder, or delete this one")

    def _make_folder(self) -> None:
        try:
            self.output.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileError(self.output, error.strerror or str(error)) from None

    def _settings(self, trial: TrainingTrial) -> tuple[list[str], SolverSource]:
        """Return the texts for ``--set``, and the solver with them."""
        prefix = str(self.output / trial.name / "run").replace("\\", "\\\\").replace('"', '\\"')
        pieces = [*self.overrides, trial.settings.replace("{ranks}", str(self.ranks))]
        pieces.append(f'snapshot_prefix: "{prefix}"')
        solver = read_solver(self.solver, pieces).param
        if not solver.HasField("random_seed"):
            pieces.append(f"random_seed: {SEED}")
        stops = solver.early_stopping_param
        if solver.snapshot_best and (stops.output or not solver.HasField("early_stopping_param")):
            pieces.append(_NO_BEST)  # otherwise it names the output that decides about stopping
        return pieces, read_solver(self.solver, pieces)

    def _train(self, trial: TrainingTrial, pieces: Sequence[str], is_outer: bool) -> TrialResult:
        folder = self.output / trial.name
        folder.mkdir()
        metrics, log = folder / "metrics.jsonl", folder / "train.log"
        command = [*self.launcher, sys.executable, "-m", "bpt", "train", f"--solver={self.solver}"]
        command += [f"--set={piece}" for piece in pieces]
        command.append(f"--metrics={metrics}")
        with log.open("w", encoding="utf-8") as file:
            print(f"# {shlex.join(command)}", file=file, flush=True)
            status = _wait(command, file.fileno())
        if status:
            return TrialResult(trial, self.ranks, failure=_reason(log, status))
        try:
            if is_outer:  # the reports count bytes, which the metrics do not
                return read_reports(folder / "run_run", trial, self.ranks)
            return replace(read_metrics(metrics, trial, self.ranks), remark=remark_of(log))
        except FileError as error:
            return TrialResult(trial, self.ranks, failure=str(error))

    def _write_tables(self, results: Sequence[TrialResult]) -> None:
        write_text(self.output / "comparison.csv", write_csv_text(results))
        write_text(self.output / "comparison.md", markdown(results))

    def _draw(self, results: Sequence[TrialResult]) -> None:
        if all(result.failure for result in results):
            return
        try:
            draw(results, self.output / "comparison.png")
        except UserError as error:  # there is no matplotlib
            print(f"comparison.png is left out: {error}", file=sys.stderr)


def launcher_of(ranks: int, mpirun: Sequence[str] = (), launcher: Sequence[str] = ()) -> list[str]:
    """Return the words that start ``ranks`` processes of the command after them: none for one process.

    Args:
        ranks: of each run.
        mpirun: flags of mpirun.
        launcher: a command in the place of mpirun, whose own words say how many ranks it starts.

    Raises:
        UsageError: the flags contradict each other.
        UserError: there is no such command.
    """
    if launched():
        raise UsageError("bpt compare starts the ranks itself: run it without mpirun, with --ranks N")
    if launcher and mpirun:
        raise UsageError("--launcher starts the ranks in the place of mpirun: give either --launcher or --mpirun")
    if launcher and ranks == 1:
        raise UsageError("--launcher needs --ranks N, the number of ranks that it starts; one rank needs no launcher")
    if ranks == 1:
        return []
    if launcher:
        if shutil.which(launcher[0]) is None:
            raise UserError(f"--launcher: there is no command {launcher[0]}; check its name, or give its whole path")
        return list(launcher)
    found = find_mpirun()
    if found is None:
        raise UserError("mpirun is missing: pip install 'bpt[mpi]' brings one; on a cluster load its MPI module")
    return [found, *mpirun, "-n", str(ranks)]


def _wait(command: Sequence[str], log: int) -> int:
    """Run a job whose output goes to ``log``, and return its exit status. Ctrl-C stops the job first."""
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,  # so that it gets a Ctrl-C once, from this process
        preexec_fn=partial(die_with_parent, signal.SIGTERM),  # noqa: PLW1509  there are no threads here
    ) as job:
        try:
            return job.wait()
        except KeyboardInterrupt:
            job.send_signal(signal.SIGINT)
            job.wait()
            raise


def remark_of(log: Path) -> str:
    """Return what the ``log`` of a run tells about its time: that it includes a search; "" if it does not."""
    text = log.read_text(encoding="utf-8", errors="replace")
    return _SEARCH if "Chunks: searching" in text or "Chunks: measuring" in text else ""


def _reason(log: Path, status: int) -> str:
    """Return why the job with this ``log`` failed, in one line."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    for line in lines:
        if line.startswith(_ERROR):
            return line.removeprefix(_ERROR)
    return missing_flag(lines[1:]) or f"exit status {status}; see {os.fspath(log)}"
