"""``bpt.launch``: training on many ranks, started from a process that is none of them, such as a notebook's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path as FilePath

from bpt.arguments import Path, checked_count, several
from bpt.comm.launch import find_mpirun, launched
from bpt.errors import RunError, UserError
from bpt.plot.history import History
from bpt.plot.training_log import parse_log
from bpt.proto.sources import read_solver

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
    """Run ``mpirun -n RANKS bpt train`` and wait for its end; its log appears on stderr as it comes.

    ::

        run = bpt.launch("solver.prototxt", ranks=4, overrides="parallel_param { exchange: RING }")
        print(run.test[-1].values["accuracy"])
        run.plot("curve.png")

    Weights and state are in the snapshots that the solver writes.

    Args:
        solver: the solver's text file.
        ranks: how many.
        overrides: snippets of text format merged over it, like those of ``bpt train --set``.
        flags: further ones of ``bpt train``: ``["--metrics", "run.jsonl"]``.
        mpirun: further ones of mpirun: ``["--hostfile", "hosts"]``, ``["--oversubscribe"]`` for more ranks than cores.
        quiet: show no log.

    Returns:
        What its log tells: losses, outputs of the nets, rates.

    Raises:
        UserError: there is no mpirun, this is a rank of a job itself, or the solver's text or a flag is wrong.
        RunError: the job has failed; the message is its own.
    """
    if launched():
        raise UserError("bpt.launch starts ranks, and this process is one: bpt.Solver trains on all of them")
    if checked_count(ranks, "launch: ranks") < 1:
        raise UserError("launch: ranks must be 1 or more")
    pieces = several(overrides)
    read_solver(os.fspath(solver), pieces)  # what is wrong with it is told here, and once
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
        except KeyboardInterrupt:  # as the solver's text says: snapshot, stop
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
        raise UserError("there is no mpirun: pip install 'bpt[mpi]' brings one; on a cluster load its MPI's module")
    return found
