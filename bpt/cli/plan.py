"""``bpt plan``: place layers on the devices of a pipeline, and predict the time of an iteration."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from bpt.base.errors import UsageError
from bpt.cli.options import (
    Parser,
    add_gpu,
    add_shape,
    add_solver,
    add_state,
    need,
    need_one_process,
    plan_of,
    positive,
)

if TYPE_CHECKING:
    from bpt.apps.commands.job import Job
    from bpt.config.plan.run_plan import RunPlan

HELP = "place the layers of a network on the devices of a pipeline"
DESCRIPTION = """\
Cuts the training net into the stages of a pipeline, by the allocator that parallel_param { pipeline_param } names. Then
it simulates an iteration by the schedule on a virtual clock. It shows the layers, load and memory of each device, the
messages between devices, the time of an iteration, and the time that devices wait (the bubble). For comparison it shows
one device alone, and an even split, which is the best one for equal devices. It trains nothing.

  bpt plan --solver prototxt/googlenet/solver.prototxt --devices 4 --shape 3x224x224
  bpt plan --solver prototxt/lenet/solver.prototxt --devices prototxt/clusters/two_unlike.prototxt --figure plan.png
  bpt plan --solver S --devices D --set 'parallel_param { pipeline_param { allocator: GABRA schedule: ONE_F_ONE_B } }'

A cluster file describes devices that differ; its first node runs the first stage. Memory is in MiB, bandwidth in
Mbit/s, latency in seconds. A profile that mpirun ... bpt time --profile has written does so, too.

  node { name: "large" gflops: 100 memory: 4096 bandwidth: 1000 latency: 0.0002 }
  node { name: "small" gflops: 40 memory: 2048 bandwidth: 1000 latency: 0.0002 }

The cost of a layer is its number of floating-point operations, or its time if it was measured on this machine:

  bpt plan --solver S --measure costs.json --devices D
  bpt plan --solver S --devices D --set 'parallel_param { pipeline_param { costs: "costs.json" } }'

--auto searches all synchronous exchanges, pipelines, shards and balances for the fastest plan on the ranks of a
cluster. It prints the plan as text for the solver, with its reasons. --dry-run forecasts the solver's own plan for all
ranks, on one process:

  bpt plan --solver S --auto --cluster C --top 5
  bpt plan --solver S --dry-run --cluster 8

Training with the same pipeline_param { devices, costs, ... } makes the same choice. docs/plan.md explains the output.
"""
ITERATIONS = 10
TOP = 5


def add_arguments(parser: Parser) -> None:
    """Add the flags of ``bpt plan``."""
    add_solver(parser)
    parser.flag(
        "devices",
        "the devices, one a stage: a cluster file, a profile, or the number of equal devices; default: "
        "pipeline_param { devices }, else num_stages equal devices",
        metavar="FILE|N",
        default="",
    )
    add_shape(parser)
    parser.flag(
        "figure",
        "draw the layers by stage, and a timeline of each device, to this file (.png or .svg)",
        metavar="FILE",
        default="",
    )
    parser.flag(
        "measure",
        "time each layer on this machine, write the times to this file and plan by them; without devices, only write "
        "them",
        metavar="FILE",
        default="",
    )
    parser.flag(
        "iterations",
        f"passes that --measure times; default {ITERATIONS}",
        metavar="N",
        type=positive,
        default=None,
    )
    parser.flag("auto", "search for the fastest plan", action="store_true")
    parser.flag("dry-run", "forecast the solver's own plan", action="store_true")
    parser.flag(
        "cluster",
        "for --auto and --dry-run: a cluster file, or the number of equal ranks",
        metavar="FILE|N",
        default="",
    )
    parser.flag("top", f"number of plans that --auto shows; default {TOP}", metavar="N", type=positive, default=None)
    add_gpu(parser, default="with --measure, what solver_mode says, if it is set, else the CPU")
    add_state(parser)


def run(arguments: argparse.Namespace, job: Job) -> None:
    """Run ``bpt plan``: plan which device runs which layers, and predict the time of an iteration."""
    _check(arguments, job)
    if arguments.auto or arguments.dry_run:
        _search(arguments)
        return

    # Imported here so that --help does not wait for torch.
    from bpt.perf.planner.given_devices import choose_devices, naming_devices_flag
    from bpt.perf.planner.plan_figure import draw
    from bpt.perf.planner.plan_layers import plan_solver, rehearse
    from bpt.perf.planner.plan_tables import lines

    run, stages, remarks = choose_devices(plan_of(arguments), arguments.devices)
    if not stages and not arguments.measure:
        forecasts = "; --dry-run --cluster FILE forecasts the replicas that it lists" * bool(run.parallel_param.replica)
        raise UsageError(
            "bpt plan needs to know the devices: --devices FILE or --devices N, or num_stages in the solver's "
            f"parallel_param{forecasts}"
        )
    if arguments.measure:
        if stages:
            with naming_devices_flag(arguments.devices):
                rehearse(run)
        run = _measure(arguments, job, run)
        if not stages:
            return
        print()
    with naming_devices_flag(arguments.devices):
        plan = plan_solver(run, arguments.shape)
    for remark in (*remarks, *plan.remarks):
        print(f"warning: {remark}", file=sys.stderr)
    for line in lines(plan):
        print(line)
    if arguments.figure:
        print(f"\nWrote {draw(plan, arguments.figure)}")


def _search(arguments: argparse.Namespace) -> None:
    """Run ``--auto`` or ``--dry-run``."""
    # Imported here so that --help does not wait for torch.
    from bpt.config.plan.chosen import text_of
    from bpt.perf.forecast.forecast import forecast
    from bpt.perf.planner.auto import auto_lines, dry_lines, dry_run, planning_task
    from bpt.perf.planner.plan_figure import draw_forecast

    what = planning_task(plan_of(arguments), arguments.cluster, arguments.shape)
    if arguments.dry_run:
        made = dry_run(what)
        lines = list(dry_lines(what, made))
    else:
        found, lines = auto_lines(what, arguments.top or TOP)
        made = found.best[0]
    for line in lines:
        print(line)
    if arguments.figure:
        made = made if made.bars else forecast(made.plan, what.costs, what.cluster, bars=True)
        print(f"\nWrote {draw_forecast(made, f'{what.graph.name}: {text_of(made.plan)}', arguments.figure)}")


def _check(arguments: argparse.Namespace, job: Job) -> None:
    """Refuse flags that contradict each other, and files that cannot be written."""
    need(arguments, "solver", "what to train")
    need_one_process(arguments, job)
    if arguments.measure and arguments.shape:
        raise UsageError("--measure trains on the data set, --shape replaces the data set: leave one of them out")
    if arguments.auto and arguments.dry_run:
        raise UsageError("--auto searches for a plan, --dry-run forecasts the solver's: give one of them")
    searching = arguments.auto or arguments.dry_run
    for flag in ("cluster", "top"):
        if getattr(arguments, flag) and not searching:
            raise UsageError(f"--{flag} goes with --auto{' or --dry-run' * (flag == 'cluster')}")
    for flag in ("devices", "measure"):
        if getattr(arguments, flag) and searching:
            raise UsageError(f"--{flag} goes with one pipeline; --auto and --dry-run need --cluster")
    for flag in ("gpu", "iterations"):
        if getattr(arguments, flag) and not arguments.measure:
            raise UsageError(f"--{flag} goes with --measure")

    # Imported here so that --help does not wait for torch.
    from bpt.base.atomic import check_place
    from bpt.train.outer.report.style import check_figure

    if arguments.figure:
        check_figure("figure", arguments.figure)
    if arguments.measure:
        check_place(arguments.measure)


def _measure(arguments: argparse.Namespace, job: Job, plan: RunPlan) -> RunPlan:
    """Measure the costs of layers, and return the plan that names their file."""
    # Imported here so that --help does not wait for torch.
    from bpt.perf.planner.measure import measure

    device = job.begin(plan, arguments.gpu)
    costs = measure(plan, device, arguments.iterations or ITERATIONS, arguments.measure)
    print(
        f"{arguments.measure}: {len(costs.layers)} layers of {costs.net or 'the net'} in batches of {costs.batch}: "
        f"forward {costs.forward * 1e3:.4g} ms, backward {costs.backward * 1e3:.4g} ms, update "
        f"{costs.update * 1e3:.4g} ms ({costs.machine}, threads: {costs.threads})"
    )
    return plan.with_pipeline(costs=arguments.measure)
