"""``bpt train``: train in one synchronous loop of all ranks, or by the outer layer of BPT-CNN, as the solver says."""

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
from bpt.train.telemetry.status_sink import StatusSink
from bpt.train.telemetry.telemetry import Sink, Telemetry

if TYPE_CHECKING:
    from bpt.perf.forecast.drift import Drift, PlanAssumptions

# A net is cut into stages because it does not fit into memory otherwise. So larger blocks, such as a fully connected
# layer's gradients of micro-batches, are returned to the system, which costs a stage nearly no time.
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
    status: StatusSink | None = None,
) -> None:
    """Train as ``plan`` says; a collective call.

    Args:
        plan: the plan of the run.
        world: all ranks.
        device: the device of this rank.
        signals: the signals that are observed during training.
        resume: a solver state to resume from, or "auto".
        replay: a replay log of the outer layer whose run is repeated.
        trace: a file for the timelines of all ranks; docs/trace.md describes it.
        metrics: a file of JSON lines for losses, scores and loads of ranks; docs/metrics.md describes it.
        tensorboard: a folder for the same, for TensorBoard.
        status: keeps what a terminal shows of the run; on the first rank only.

    Raises:
        UserError: ``trace`` or ``metrics`` is not writable, or the run has no metrics.
        RunError: SIGTERM stopped the run, a replay ended before the recorded run, or the run failed.
    """
    if trace:
        from bpt.perf.trace.tracing import check_file  # noqa: PLC0415  only what this run needs; see docs/architecture.md

        outcome_of_first(world, None if world.rank else partial(check_file, trace))
    basis: PlanAssumptions | None = None
    if plan.parallel_param.auto and not plan.is_outer:  # the rules of the outer layer refuse auto
        from bpt.apps.commands.choosing import choose  # noqa: PLC0415  as above

        choice = choose(plan, world, device, resume)
        plan, basis = choice.plan, choice.basis
    sinks = [*_sinks(plan, world, metrics, tensorboard), *([status] if status else ())]
    keep_memory(plan.parallel_param)
    if replay and not plan.is_outer:
        exchange = pb.ParallelParameter.Exchange.Name(plan.parallel_param.exchange)
        raise UserError(
            f"--replay repeats a run of exchange: SGWU, AGWU or ASGD, but the solver says {exchange}; random_seed "
            "repeats such a run without a log"
        )
    with (
        announced(),
        stopping_in_order(world, signals, in_step=not plan.is_outer) as stop,
        _tracing(trace, world),
        held_by_first(plan, world),
    ):
        if plan.is_outer:
            from bpt.train.outer import train as train_outer  # noqa: PLC0415  as above
            from bpt.train.outer.roles import Roles  # noqa: PLC0415  as above
            from bpt.train.telemetry.outer_telemetry import OuterTelemetry  # noqa: PLC0415  as above

            with OuterTelemetry(
                plan, world.size, len(Roles.of(plan.parallel_param, world).workers), sinks
            ) as telemetry:
                outcome = train_outer(plan, world, device, signals, resume, replay, [telemetry])
        else:
            outcome = _train_in_step(plan, world, device, signals, resume, sinks, basis, stop)
    if outcome.terminated:
        state, saved = snapshot.state_path(plan, outcome.iterations), ""
        if plan.snapshot_after_train:
            saved = f"; wrote {state}; --snapshot {state} resumes from it"
        raise RunError(f"stopped by SIGTERM after {outcome.iterations} iterations{saved}")
    if outcome.short:
        raise RunError(
            f"{replay}: the replay ended at iteration {outcome.iterations} of {plan.max_iter}, before the recorded "
            "run did; the weights are not those of the whole run"
        )


def keep_memory(param: ParallelSpec) -> None:
    """Let the C library keep memory that training frees; a pipeline stage keeps only small blocks."""
    if param.depth > 1:
        keep_freed_memory(KEPT_BY_A_STAGE)
    else:
        keep_freed_memory()


def _tracing(path: str, world: Communicator) -> AbstractContextManager[None]:
    if not path:
        return nullcontext()
    from bpt.perf.trace.tracing import tracing  # noqa: PLC0415  as above

    return tracing(path, world)


def _sinks(plan: RunPlan, world: Communicator, metrics: str, tensorboard: str) -> list[Sink]:
    """Return the sinks of the metrics."""
    if not metrics and not tensorboard:
        return []
    from bpt.train.telemetry.metrics_file import MetricsFile, check_metrics_file  # noqa: PLC0415  as above
    from bpt.train.telemetry.tensorboard import TensorBoard  # noqa: PLC0415

    if metrics:
        outcome_of_first(world, None if world.rank else partial(check_metrics_file, metrics))
    return [*([MetricsFile(metrics)] if metrics else ()), *([TensorBoard(tensorboard)] if tensorboard else ())]


def _drift(basis: PlanAssumptions | None) -> Drift | None:
    if basis is None:
        return None
    from bpt.perf.forecast.drift import Drift  # noqa: PLC0415  as above

    return Drift(basis)


def _train_in_step(
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
        world = world.Dup()  # a lost rank revokes this communicator, and the one of the whole job stays valid
    with Telemetry(plan, sinks, _drift(basis)) as telemetry:
        listeners = [telemetry]
        solver = Solver(plan, TrainOptions(device, signals, resume), world=world, listeners=listeners)
        # Only from now on: a signal ends the program while the nets are built, because there is nothing to save.
        stop.unsaved = lambda: solver.unsaved
        with signals, solver:
            solver.solve()
    return RunOutcome(solver.iter, solver.terminated)
