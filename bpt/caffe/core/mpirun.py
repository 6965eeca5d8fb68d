"""``bpt.launch``: start training on many ranks from a process that is not a rank, such as a notebook."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path as FilePath

from bpt.apps.arguments import Path, checked_count, several
from bpt.apps.plot.history import History
from bpt.apps.plot.training_log import parse_log
from bpt.base.errors import RunError, UserError
from bpt.config.proto.sources import read_solver
from bpt.system.comm.launch import find_mpirun, launched

_ERROR = "error: "


def launch(
    solver: Path,
    ranks: int,
    overrides: str | Sequence[str] = (),
    *,
    flags: Sequence[str] = (),
    mpirun: Sequence[str] = (),
    quiet: bool = False,
) -> History:
    """Run ``mpirun -n RANKS bpt train``, show its log on stderr, and wait for its end.

    ::

        run = bpt.launch("solver.prototxt", ranks=4, overrides="parallel_param { exchange: RING }")
        print(run.test[-1].values["accuracy"])
        run.plot("curve.png")

    Weights and state are in the snapshots that the solver writes.

    Args:
        solver: the solver's text file.
        ranks: number of ranks.
        overrides: snippets of text format merged over the solver's text, like those of ``bpt train --set``.
        flags: further flags of ``bpt train``: ``["--metrics", "run.jsonl"]``.
        mpirun: flags of mpirun: ``["--hostfile", "hosts"]``, ``["--oversubscribe"]`` for more ranks than cores.
        quiet: do not show the log.

    Returns:
        The losses, outputs of the nets and rates in the log.

    Raises:
        UserError: mpirun is missing, this process is itself a rank of a job, or the solver's text or a flag is wrong.
        RunError: the job has failed; the message is the job's own.
    """
    if launched():
        raise UserError("bpt.launch starts ranks, and this process is one already: bpt.Solver trains on all of them")
    if checked_count(ranks, "launch: ranks") < 1:
        raise UserError("launch: ranks must be 1 or more")
    pieces = several(overrides)
    read_solver(os.fspath(solver), pieces)  # an error in the text is raised here, and not by each rank
    command = [_mpirun(), *mpirun, "-n", str(ranks), sys.executable, "-m", "bpt", "train"]
    command += [f"--solver={os.fspath(solver)}", *(f"--set={piece}" for piece in pieces), *flags]
    lines: list[str] = []
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace"
    ) as job:
        assert job.stderr
        try:
            for line in job.stderr:
                lines.append(line)
                if not quiet:
                    print(line, end="", file=sys.stderr, flush=True)
        except KeyboardInterrupt:  # the ranks act on SIGINT as the solver's text says: snapshot, stop
            job.send_signal(signal.SIGINT)
            lines += job.stderr.readlines()
    if job.returncode:
        told = next((line.removeprefix(_ERROR).strip() for line in lines if line.startswith(_ERROR)), "see its log")
        wrong = job.returncode == UserError.exit_status
        raise (UserError if wrong else RunError)(told if wrong else f"the job on {ranks} ranks has failed: {told}")
    log = parse_log(lines, FilePath(solver).stem)
    return History(log.name, log.train, log.test, log.losses, log.weighted)


def _mpirun() -> str:
    found = find_mpirun()
    if found is None:
        raise UserError("mpirun is missing: pip install 'bpt[mpi]' brings one; on a cluster load its MPI module")
    return found
