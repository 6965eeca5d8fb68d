"""``bpt <command> <flags>``: find the command, and turn errors into one line and an exit status.

Exit status: 0 done; 1 failed while running; 2 the command line or a file the user wrote is wrong.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bpt.base.caller import on_command_line
from bpt.base.errors import BptError
from bpt.base.garbage_collection import importing
from bpt.base.malloc_settings import keep_freed_memory
from bpt.base.terminal import reopen_std_streams
from bpt.base.version import VERSION
from bpt.cli import (
    check,
    classify,
    compare,
    completion,
    convert,
    deploy,
    detect,
    device_query,
    doctor,
    draw,
    example,
    explain,
    export,
    help,
    join,
    new,
    plan,
    plot,
    report,
    run,
    simulate,
    stop,
    summary,
    test,
    time,
    train,
    watch,
)
from bpt.cli.options import NO_PYTHON_LAYERS, Parser, add_no_python_layers
from bpt.system.comm.proxy import fork_proxy

if TYPE_CHECKING:
    from bpt.system.comm.base import Communicator

COMMANDS = {
    "new": new,
    "train": train,
    "test": test,
    "time": time,
    "check": check,
    "doctor": doctor,
    "simulate": simulate,
    "plan": plan,
    "classify": classify,
    "detect": detect,
    "explain": explain,
    "deploy": deploy,
    "export": export,
    "draw": draw,
    "plot": plot,
    "report": report,
    "watch": watch,
    "convert": convert,
    "summary": summary,
    "example": example,
    "device_query": device_query,
    "completion": completion,
    "help": help,
}

ABOUT_JOBS = {"compare": compare, "run": run, "join": join, "stop": stop}
"""Commands that start or stop jobs. They run outside MPI."""

SAVE_AT_THE_END = ("train",)
"""Commands that must save something when a signal ends the launcher of their ranks."""

BUILD_NETS = (
    "train", "test", "time", "check", "doctor", "simulate", "plan", "classify", "detect", "explain", "deploy", "export",
    "summary", "draw",
)  # fmt: skip

DESCRIPTION = """\
Trains and tests convolutional networks described in Caffe's prototxt.

  bpt new photos/                                        make a network for your own pictures, sorted by class
  bpt train --solver prototxt/lenet/solver.prototxt      train, with snapshots and log as Caffe's
  bpt train --solver S --snapshot auto                   resume from the newest snapshot
  bpt train --solver S --weights W.caffemodel            fine-tune
  bpt train --solver S --set 'max_iter: 100'             override any field of the solver
  bpt test  --model M --weights W --iterations 100       score a model
  bpt time  --model M                                    time every layer
  mpirun -n 4 bpt train --solver S                       train on 4 ranks, as parallel_param says
  bpt run -- mpirun -n 4 bpt train --solver S --snapshot auto   start a job again when it fails
  bpt compare --solver S --strategies DATA,CGDP --output D       train with several strategies, and compare them
  bpt stop --solver S                                    let a run write a snapshot and stop
  mpirun -n 4 bpt check --solver S                       compare 4 ranks with one process
  mpirun -n 4 bpt doctor --solver S                      examine ranks, machines and files before a run
  bpt classify --model M --weights W cat.jpg             classify pictures
  bpt detect --model M --weights W street.jpg            find objects in pictures
  bpt explain --model M --weights W --input scan.nii.gz  show which regions of an input support a class
  bpt deploy --model M --output deploy.prototxt          write a network's deploy text from its train text
  bpt export --model M --weights W --output net.onnx     write a net as ONNX, and check it
  bpt simulate --solver S --cluster C                    predict a run with SGWU, AGWU or ASGD on a cluster
  bpt plan --solver S --devices D                        place layers on the devices of a pipeline
  bpt summary --model M                                  list the layers of a network, and what they cost
  bpt draw --model M --output net.svg                    draw a network
  bpt watch --metrics run.jsonl                          show the progress of a run that writes --metrics
  bpt plot --output curves.png --log train.log           plot loss, accuracy and learning rate of runs
  bpt report run.jsonl --output run.html                 write a page of results of runs that wrote --metrics
  bpt convert --weights W --output W.safetensors         convert weights between formats
  bpt convert imageset images/ train.txt train_lmdb      convert data sets to LMDBs
  bpt example lenet                                      copy an example network into this folder

"bpt <command> --help" explains a command's flags, which may be written -solver S, --solver S or --solver=S.
Commands take glog's flags: --logtostderr, --minloglevel N, --log_dir D, --alsologtostderr, --stderrthreshold N.
Exit status: 0 done; 1 failed while running; 2 the command line or a file that you wrote is wrong.
"""


def make_parser() -> Parser:
    """Return the parser of the whole command line."""
    parser = Parser(prog="bpt", description=DESCRIPTION)
    parser.add_argument(
        "-V", "-version", "--version", action="version", version=f"bpt version {VERSION}", help="show the version"
    )
    commands = parser.add_subparsers(dest="command", metavar="<command>", title="commands")
    for name, module in {**COMMANDS, **ABOUT_JOBS}.items():
        command = commands.add_parser(name, help=module.HELP, description=module.DESCRIPTION)
        module.add_arguments(command)
        if name in BUILD_NETS:
            add_no_python_layers(command)
    parser.set_defaults(whole=parser)  # for the commands help and completion
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status.

    Args:
        argv: the words of the command line. ``None``: those of this process, which ends after the command.
    """
    reopen_std_streams()
    try:
        with on_command_line():
            status = _main(argv)
    except KeyboardInterrupt:  # raised while modules are imported, or before MPI has started
        status = _interrupted(ends=argv is None)
    if argv is None:  # the command is done: a further Ctrl-C must not disturb the end of the interpreter
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    return status


def _main(argv: Sequence[str] | None) -> int:
    parser = make_parser()
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        parser.check_begins_with_command(words)
        arguments = parser.parse_args(["--version"] if words == ["version"] else argv)
        if arguments.command in ABOUT_JOBS:
            return int(ABOUT_JOBS[arguments.command].run(arguments))
    except BptError as error:
        from bpt.system.comm.rank_failure import report_before_start  # only now: it imports numpy

        return report_before_start(error)
    if arguments.command is None:
        parser.print_help()
        return 0
    return _run(arguments)


def _interrupted(ends: bool) -> int:
    """Report an interrupt. If the process ``ends``, end it at once: half-imported modules could fail at exit."""
    if ends:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stderr.write("error: interrupted\n")
    sys.stderr.flush()
    if ends:
        os._exit(1)
    return 1


def _run(arguments: argparse.Namespace) -> int:
    if arguments.command in SAVE_AT_THE_END:
        fork_proxy()
    # torch would otherwise read the metadata of each installed package to find backends of other devices.
    os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    with importing():  # only now, so that --help does not wait for numpy and torch
        from bpt.system.comm.launch import ignore_torchruns_threads

        ignore_torchruns_threads()
        from bpt.system.comm.neighbours import CpuTime
        from bpt.system.comm.openmp_waiting import set_omp_wait_policy, spin_while_cores_are_free

        set_omp_wait_policy()
        started = CpuTime.now()
        if arguments.command == "train":
            train.greet(arguments)
        import torch

        from bpt.apps.commands.job import Job
        from bpt.base.log import check_log
        from bpt.system.comm import rank_failure

    keep_freed_memory()
    if getattr(arguments, "no_python_layers", False):
        os.environ[NO_PYTHON_LAYERS] = "1"

    def command(world: Communicator) -> None:
        COMMANDS[arguments.command].run(arguments, Job.enter(world, started))
        check_log()

    with spin_while_cores_are_free(started, torch.get_num_threads):
        return rank_failure.run(command)


if __name__ == "__main__":
    sys.exit(main())
