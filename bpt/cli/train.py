"""``bpt train``: train or fine-tune a model."""

from __future__ import annotations

import argparse

from bpt.cli.options import Parser, add_gpu, add_solver, add_state, add_weights, need, words
from bpt.errors import UsageError

HELP = "train or fine-tune a model"
DESCRIPTION = """\
Trains the network that a solver names. The log goes to stderr in Caffe's shape.

  bpt train --solver solver.prototxt
  bpt train --solver solver.prototxt --snapshot lenet_iter_500.solverstate
  bpt train --solver solver.prototxt --set 'base_lr: 0.001 max_iter: 2000'

Ctrl-C writes a snapshot and stops, unless --sigint_effect says otherwise.
"""
EFFECTS = ("snapshot", "stop", "none")


def add_arguments(parser: Parser) -> None:
    add_solver(parser)
    parser.flag(
        "snapshot",
        'go on from this solver state; "auto": from the newest good one under snapshot_prefix, if any',
        metavar="FILE|auto",
        default="",
    )
    add_weights(parser, "start from these weights (fine-tuning); not together with --snapshot")
    add_gpu(parser)
    add_state(parser)
    for signal, name, effect in (("sigint", "Ctrl-C", "stop"), ("sighup", "SIGHUP", "snapshot")):
        help = f"what {name} does: %(choices)s (default %(default)s)"
        parser.flag(f"{signal}_effect", help, choices=EFFECTS, default=effect)


def run(arguments: argparse.Namespace) -> None:
    need(arguments, "solver", "the text file that says what to train and how")
    if arguments.snapshot and arguments.weights:
        raise UsageError("--snapshot resumes a run, --weights starts a new one from a model: give one of them")

    # Imported here so that --help does not wait for torch.
    from bpt.device import choose_device
    from bpt.proto.solver import read_solver
    from bpt.report.log import start_logging
    from bpt.solvers.signals import Action, SignalActions
    from bpt.solvers.solver import Solver

    source = read_solver(arguments.solver, arguments.set)
    if arguments.weights:
        source.param.weights[:] = words(arguments.weights)
    if arguments.level:
        source.param.train_state.level = arguments.level
    source.param.train_state.stage.extend(words(arguments.stage))
    start_logging()
    device = choose_device(source.param, arguments.gpu)
    with (
        SignalActions(Action(arguments.sigint_effect), Action(arguments.sighup_effect)) as signals,
        Solver(source, device=device, signals=signals, resume=arguments.snapshot) as solver,
    ):
        solver.solve()
