"""``bpt train``: train or fine-tune a model."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from bpt.base.errors import UsageError
from bpt.base.terminal import say
from bpt.base.version import VERSION
from bpt.cli.options import Parser, add_gpu, add_solver, add_state, add_weights, need, plan_of

if TYPE_CHECKING:
    from bpt.apps.commands.job import Job

HELP = "train or fine-tune a model"
DESCRIPTION = """\
Trains the network that a solver names. It starts from weights that the fillers draw, from the weights of a model
(--weights), or from the state of an earlier run (--snapshot).

  bpt train --solver solver.prototxt
  bpt train --solver solver.prototxt --set 'base_lr: 0.001 max_iter: 2000'
  bpt train --solver solver.prototxt --snapshot lenet_iter_500.solverstate
  bpt train --solver solver.prototxt --weights lenet_iter_500.caffemodel

The log goes to stderr, in lines that Caffe's log parsers read. If stderr is a terminal, the terminal shows the progress
of the run instead, and at the end its best score, its files and the next commands. The log then goes to
<snapshot_prefix>_<time>.log; --log FILE names another file, and --log - leaves the log on the terminal.

Every "snapshot" iterations and at the end, the weights go to <snapshot_prefix>_iter_<N>.caffemodel, and the rest of the
state to a .solverstate beside it. Under mpirun, it trains on all ranks as parallel_param says, and only the first rank
logs and writes:

  mpirun -n 4 bpt train --solver solver.prototxt

Without MPI, PyTorch's launcher starts the ranks (docs/parallel.md says what differs):

  torchrun --nproc-per-node 4 -m bpt train --solver solver.prototxt

With parallel_param { exchange: AGWU } (or SGWU, ASGD) the first rank is a server. The other ranks train independently
between submissions. Reports of the run go to <snapshot_prefix>_run/.

Ctrl-C writes both files and stops with status 0, unless --sigint_effect says otherwise; SIGTERM does so with status 1.
Ctrl-C at mpirun ends mpirun with status 1, but the ranks continue until both files are written. "bpt stop" stops a run
from another terminal.

--trace records a timeline of every rank; open the file at ui.perfetto.dev:

  mpirun -n 4 bpt train --solver solver.prototxt --trace trace.json.gz
"""
EFFECTS = ("snapshot", "stop", "none")


def add_arguments(parser: Parser) -> None:
    """Add the flags of ``bpt train``."""
    add_solver(parser)
    parser.flag(
        "snapshot",
        'resume from this solver state; "auto": from the undamaged one under snapshot_prefix with the most '
        "iterations, if there is one",
        metavar="FILE|auto",
        default="",
    )
    add_weights(parser, "start from these weights, layer by layer of the same name; not together with --snapshot")
    parser.flag(
        "replay",
        "repeat the run of exchange: SGWU, AGWU or ASGD that wrote this log (<snapshot_prefix>_run/replay.jsonl), with "
        "the same updates in the same order; the weights are equal bit by bit",
        metavar="FILE",
        default="",
    )
    parser.flag(
        "trace",
        "write a timeline of every rank to this file: .json or .json.gz in Chrome's trace format, .pftrace in "
        "Perfetto's; ui.perfetto.dev opens both",
        metavar="FILE",
        default="",
    )
    parser.flag(
        "metrics",
        "write losses, outputs, scores, speed and the work of each rank to this file, a line of JSON for each "
        "displayed iteration, test and snapshot; bpt watch shows it while the run continues",
        metavar="FILE.jsonl",
        default="",
    )
    parser.flag(
        "log",
        "write the log to this file; --snapshot appends to it. If stderr is no terminal, it gets the log, too. "
        '"-": leave the log on stderr, also if it is a terminal',
        metavar="FILE|-",
        default="",
    )
    parser.flag("tensorboard", "write the same to this folder, for TensorBoard", metavar="DIR", default="")
    add_gpu(parser, default="what solver_mode says, if it is set, else the CPU")
    add_state(parser)
    for signal, name, effect in (("sigint", "Ctrl-C", "stop"), ("sighup", "SIGHUP (a closed terminal)", "snapshot")):
        help = (
            f"what {name} does: write a snapshot and continue (snapshot), write one and stop (stop), "
            "or nothing (none); default %(default)s"
        )
        parser.flag(f"{signal}_effect", help, choices=EFFECTS, default=effect, metavar="EFFECT")
    parser.set_defaults(started=time.monotonic())  # arguments are added once the command has begun


def greet(arguments: argparse.Namespace) -> None:
    """Tell a terminal that the run begins, before the libraries are loaded, which takes seconds."""
    from bpt.base.live_block import is_live
    from bpt.system.comm.launch import launchers_rank

    if arguments.solver and not launchers_rank() and is_live(arguments.log):
        say(f"bpt {VERSION}: training by {arguments.solver}\n")


def run(arguments: argparse.Namespace, job: Job) -> None:
    """Run ``bpt train``: train or fine-tune a model."""
    need(arguments, "solver", "the text file that says what to train and how")
    if arguments.snapshot and arguments.weights:
        raise UsageError("--snapshot resumes a run, --weights starts a new one from a model: give one of them")

    # Imported here so that --help does not wait for torch.
    from bpt.apps.commands.training import train
    from bpt.apps.commands.training_terminal import TrainingTerminal
    from bpt.base.signals import SignalAction, SignalActions

    plan = plan_of(arguments)
    with TrainingTerminal(plan, job, arguments.log, bool(arguments.snapshot), arguments.started) as terminal:
        device = job.begin(plan, arguments.gpu, terminal.places)
        signals = SignalActions(SignalAction(arguments.sigint_effect), SignalAction(arguments.sighup_effect))
        with terminal.showing():
            job.report_neighbours()
            train(
                plan,
                job.world,
                device,
                signals,
                arguments.snapshot,
                arguments.replay,
                arguments.trace,
                arguments.metrics,
                arguments.tensorboard,
                terminal.sink,
            )
    terminal.summarize()
