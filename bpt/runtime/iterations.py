"""Makes what runs a rank's training iterations."""

from __future__ import annotations

from bpt.context import RunContext
from bpt.events.bus import EventBus
from bpt.exchange import Exchange
from bpt.execute.delayed_iteration import DelayedIteration
from bpt.execute.iteration import Iteration
from bpt.execute.local import LocalOperator
from bpt.execute.staged import StagedOperator
from bpt.execute.staged_iteration import StagedIteration
from bpt.execute.status import Status
from bpt.plan.staging import Staging
from bpt.proto import bpt_pb2 as pb


def make_iteration(
    operator: LocalOperator,
    staging: Staging | None,
    exchange: Exchange,
    status: Status,
    context: RunContext,
    events: EventBus,
) -> Iteration | StagedIteration:
    """What executes the instructions of a rank that runs the whole net, or a stage of it."""
    if staging is None or not isinstance(operator, StagedOperator):
        return Iteration(operator, exchange, status, context, events)
    kind = DelayedIteration if staging.rule == pb.PipelineParameter.DELAYED else StagedIteration
    return kind(operator, staging.rule, exchange, status, context, events)
