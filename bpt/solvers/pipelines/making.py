"""Makes what runs a rank's training iterations."""

from __future__ import annotations

from bpt.comm.counters import Counters
from bpt.context import RunContext
from bpt.exchange import Exchange
from bpt.operators.local import LocalOperator
from bpt.operators.staged import StagedOperator
from bpt.proto import bpt_pb2 as pb
from bpt.solvers.clock import Clock
from bpt.solvers.iteration import Iteration
from bpt.solvers.pipelines.delayed import DelayedIteration
from bpt.solvers.pipelines.iteration import StagedIteration
from bpt.solvers.pipelines.staging import Staging
from bpt.solvers.status import Status


def make_iteration(
    operator: LocalOperator,
    staging: Staging | None,
    exchange: Exchange,
    status: Status,
    context: RunContext,
    clock: Clock,
    counters: Counters,
) -> Iteration | StagedIteration:
    """What executes the instructions of a rank that runs the whole net, or a stage of it."""
    if staging is None or not isinstance(operator, StagedOperator):
        return Iteration(operator, exchange, status, context, clock, counters)
    kind = DelayedIteration if staging.rule == pb.PipelineParameter.DELAYED else StagedIteration
    return kind(operator, staging.rule, exchange, status, context, clock, counters)
