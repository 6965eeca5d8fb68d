"""``bpt train``: in one loop of all ranks together, or by the outer layer of BPT-CNN; the solver says which."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

import torch

from bpt.apps.commands.orderly_stop import OrderlyStop, stopping_in_order
from bpt.apps.commands.started_by_run import announced
from bpt.base.errors import RunError, UserError
from bpt.base.malloc_settings import keep_freed_memory
from bpt.base.signals import SignalActions
from bpt.config.plan.run_plan import ParallelSpec, RunPlan
from bpt.config.proto import bpt_pb2 as pb
from bpt.system.comm.agreement import outcome_of_first
from bpt.system.comm.base import Communicator
from bpt.train import state as snapshot
from bpt.train.runtime.run_facts import held_by_first
from bpt.train.runtime.train_options import TrainOptions
from bpt.train.solver.solver import RunOutcome, Solver
from bpt.train.telemetry.telemetry import Sink, Telemetry

if TYPE_CHECKING:
    from bpt.perf.forecast.drift import Drift, PlanAssumptions

# A net is cut into stages because it does not fit otherwise. So larger blocks, such as the gradients of a fully
# connected layer that are added up over micro-batches, go back to the system, which costs a stage next to no time.
KEPT_BY_A_STAGE = 32 * 2**20


def train(
    plan: RunPlan,
    world: Communicator,
    device: torch.device,
    signals: SignalActions,
    resume: str = "",
    replay: str = "",
    trace: str = "",
    metrics: str = "",
    tensorboard: str = "",
) -> None:
    """Train as ``plan`` says; a collective call.

    Args:
        device: where this rank computes.
        signals: noted while it trains.
        resume: a solver state to go on from, or "auto".
        replay: a replay log of the outer layer, to repeat its run.
        trace: a file that is to show what all ranks do when; see docs/trace.md.
        metrics: a file of JSON lines that is to hold losses, scores and loads of ranks; see docs/metrics.md.
        tensorboard: a folder that is to hold the same for TensorBoard.

    Raises:
        UserError: nothing can be written to ``trace`` or ``metrics``, or the run has no metrics.
        RunError: SIGTERM has stopped it, a replay could not go to the end of its run, or it failed.
    """
    if trace:
        from bpt.perf.trace.tracing import check_file  # noqa: PLC0415  only what this run needs; see docs/architecture.md

        outcome_of_first(world, None if world.rank else partial(check_file, trace))
    basis: PlanAssumptions | None = None
    if plan.parallel_param.auto and not plan.is_outer:  # which is refused where all else is
        from bpt.apps.commands.choosing import choose  # noqa: PLC0415  as above

        choice = choose(plan, world, device, resume)
        plan, basis = choice.plan, choice.basis
    sinks = _sinks(plan, world, metrics, tensorboard)
    keep_memory(plan.parallel_param)
    if replay and not plan.is_outer:
        exchange = pb.ParallelParameter.Exchange.Name(plan.parallel_param.exchange)
        raise UserError(
            f"--replay repeats a run of exchange: SGWU, AGWU or ASGD, and the solver says {exchange}, which needs no "
            "log to be repeated: random_seed does it"
        )
    with (
        announced(),
        stopping_in_order(world, signals, in_step=not plan.is_outer) as stop,
        _tracing(trace, world),
        held_by_first(plan, world),
    ):
        if plan.is_outer:
            from bpt.train.outer import train as train_outer  # noqa: PLC0415  as above

            outcome = train_outer(plan, world, device, signals, resume, replay)
        else:
            outcome = _together(plan, world, device, signals, resume, sinks, basis, stop)
    if outcome.terminated:
        state, saved = snapshot.state_path(plan, outcome.iterations), ""
        if plan.snapshot_after_train:
            saved = f"; wrote {state}; --snapshot {state} goes on from there"
        raise RunError(f"stopped by SIGTERM after {outcome.iterations} iterations{saved}")
    if outcome.short:
        raise RunError(
            f"{replay}: the replay ended at iteration {outcome.iterations} of {plan.max_iter}, before its run "
            "did; the weights are not those of the whole run"
        )


def keep_memory(param: ParallelSpec) -> None:
    """Let the C library keep what training frees: of a stage, what is small."""
    if param.num_stages > 1:
        keep_freed_memory(KEPT_BY_A_STAGE)
    else:
        keep_freed_memory()


def _tracing(path: str, world: Communicator) -> AbstractContextManager[None]:
    if not path:
        return nullcontext()
    from bpt.perf.trace.tracing import tracing  # noqa: PLC0415  as above

    return tracing(path, world)


def _sinks(plan: RunPlan, world: Communicator, metrics: str, tensorboard: str) -> list[Sink]:
    """Return where metrics go."""
    if not metrics and not tensorboard:
        return []
    from bpt.train.telemetry.metrics_file import MetricsFile, check_metrics_file  # noqa: PLC0415  as above
    from bpt.train.telemetry.tensorboard import TensorBoard  # noqa: PLC0415

    if plan.is_outer:
        raise UserError(
            "--metrics and --tensorboard tell of ranks that go in step; a run of exchange: SGWU, AGWU or ASGD leaves "
            "its own reports in <snapshot_prefix>_run/"
        )
    if metrics:
        outcome_of_first(world, None if world.rank else partial(check_metrics_file, metrics))
    return [*([MetricsFile(metrics)] if metrics else ()), *([TensorBoard(tensorboard)] if tensorboard else ())]


def _drift(basis: PlanAssumptions | None) -> Drift | None:
    if basis is None:
        return None
    from bpt.perf.forecast.drift import Drift  # noqa: PLC0415  as above

    return Drift(basis)


def _together(
    plan: RunPlan,
    world: Communicator,
    device: torch.device,
    signals: SignalActions,
    resume: str,
    sinks: Sequence[Sink],
    basis: PlanAssumptions | None,
    stop: OrderlyStop,
) -> RunOutcome:
    if world.tolerant:
        world = world.Dup()  # what is revoked there when a rank is lost leaves that of the whole job alone
    with Telemetry(plan, sinks, _drift(basis)) as telemetry:
        listeners = [telemetry]
        solver = Solver(plan, TrainOptions(device, signals, resume), world=world, listeners=listeners)
        # Only now: a signal that comes while the nets are built ends the program, since there is nothing to save.
        stop.unsaved = lambda: solver.unsaved
        with signals, solver:
            solver.solve()
    return RunOutcome(solver.iter, solver.terminated)
