"""``bpt doctor``: examine ranks, machines and files before a run."""

from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING

from bpt.base.errors import RunError, UsageError
from bpt.cli.options import Parser, add_gpu, add_solver, add_state, add_weights, plan_of, weights_of

if TYPE_CHECKING:
    from bpt.apps.commands.job import Job

HELP = "examine ranks, machines and files before a run"
DESCRIPTION = """\
Finds what would stop a run or slow it down. It shows the MPI library, the hosts, cores, memory and devices of the
ranks, and the speed of their messages; it checks whether all ranks have the same programs. With --solver it also checks
whether all ranks read the same solver, networks and data, how a batch is divided, and whether snapshots can be
written. Give it the flags that bpt train will get. It trains nothing, and leaves no files behind.

  mpirun -n 4 bpt doctor
  mpirun -n 4 bpt doctor --solver prototxt/lenet/solver.prototxt
  bpt doctor --data train_lmdb                                      # is it what was written?
  bpt doctor --data train.txt                                       # can all its pictures be decoded?
  mpirun -n 4 bpt doctor --solver S --cluster nodes.prototxt        # then bpt plan --solver S --auto --cluster …

Each finding is "ok", a "note" (good to know), a "warning" (works, but not well) or a "PROBLEM" (will not work). The
text after an arrow says what to do. Without mpirun, the command examines one process.

Exit status: 0 no PROBLEM; 1 at least one PROBLEM; 2 the command line, the solver or a network is wrong.
"""


def add_arguments(parser: Parser) -> None:
    """Add the flags of ``bpt doctor``."""
    add_solver(parser)
    help = 'also check whether all ranks can resume from this solver state; "auto": from the newest, as bpt train does'
    parser.flag("snapshot", help, metavar="FILE|auto", default="")
    add_weights(parser, "also examine these weights, from which the run is to start")
    parser.flag(
        "data",
        "also verify all checksums of the data that the run reads, or of each PATH; this can take long. PATH is an "
        "LMDB, an HDF5 file, a list of them, or a network's text. Data without checksums are read completely: all "
        "pictures of an image list, a window file or a folder with its folders, all volumes of a list, and the clips "
        "of a VideoData layer if PATH is the network's text",
        metavar="PATH",
        nargs="*",
        default=None,
    )
    parser.flag(
        "clean",
        "remove what your dead jobs left on the hosts: shared memory, Open MPI's folders, bpt's temporary files; with "
        "--solver also a stale lock and half-written snapshots under snapshot_prefix",
        action="store_true",
    )
    parser.flag(
        "cluster",
        "with --solver: time some iterations and links of all ranks, and write their nodes to this file, for bpt plan "
        "and bpt simulate",
        metavar="FILE",
        default="",
    )
    add_gpu(parser, default="what solver_mode says, if it is set, else the CPU")
    add_state(parser)


def run(arguments: argparse.Namespace, job: Job) -> None:
    """Run ``bpt doctor``: check whether ranks, machines and files are fit for a run."""
    for flag in ("set", "snapshot", "weights", "level", "stage", "cluster"):
        if getattr(arguments, flag) and not arguments.solver:
            raise UsageError(f"--{flag} goes with --solver")
    if arguments.snapshot and arguments.weights:
        raise UsageError("--snapshot resumes a run, --weights starts a new one from a model: give one of them")
    if arguments.data == [] and not arguments.solver:
        raise UsageError("--data goes with --solver, or with what to verify: --data train_lmdb")
    weights_of(arguments)  # refuses --weights if it names no file

    # Imported here so that --help does not wait for torch.
    from bpt.apps.doctor.examine import ExaminationRequest, examine
    from bpt.base.log import plural

    if arguments.cluster:
        from bpt.base.atomic import check_place
        from bpt.system.comm.agreement import outcome_of_first

        outcome_of_first(job.world, None if job.world.rank else partial(check_place, arguments.cluster))
    data = None if arguments.data is None else tuple(arguments.data)
    read = (lambda: plan_of(arguments)) if arguments.solver else None
    wanted = ExaminationRequest(read, arguments.gpu, arguments.snapshot, data, arguments.clean, arguments.cluster)
    report = examine(job, wanted, lambda line: print(line, flush=True))
    if report.wrong is not None:
        raise report.wrong
    if report.problems:
        raise RunError(f"{plural(report.problems, 'problem')} found: see PROBLEM above")
