"""The error that tells why a pipeline stands still."""

from __future__ import annotations

from collections.abc import Sequence

from bpt.schedule.instructions import Instruction, Recv, Send
from bpt.schedule.pipeline.simulation.channel import Network


class DeadlockError(ValueError):
    """No stage can go on, and some have not reached their ends. The message says who waits for what."""


def explain(streams: Sequence[Sequence[Instruction]], steps: Sequence[int], network: Network) -> DeadlockError:
    """The error for stages that stand before their instructions ``steps``."""
    stages = (_describe(streams, steps, network, stage) for stage in range(len(streams)))
    return DeadlockError(f"deadlock: {'; '.join(stages)}")


def _describe(streams: Sequence[Sequence[Instruction]], steps: Sequence[int], network: Network, stage: int) -> str:
    step, stream = steps[stage], streams[stage]
    if step == len(stream):
        return f"stage {stage} has done all of its {step} instructions"
    awaited = stream[step]
    assert isinstance(awaited, Recv), awaited  # nothing else can stop a stage
    what = f"the {'diff' if awaited.diff else 'values'} of flow {awaited.transfer}, micro-batch {awaited.micro}"
    cause = _cause(streams, steps, network, awaited)
    return f"stage {stage} waits at {awaited} (instruction {step}) for {what}, {cause}"


def _cause(streams: Sequence[Sequence[Instruction]], steps: Sequence[int], network: Network, awaited: Recv) -> str:
    ahead = network.next(awaited)
    if ahead is not None:
        return f"but {ahead} was sent before it and is not received yet"
    wanted = Send(awaited.transfer, awaited.micro, awaited.diff)
    for stage, stream in enumerate(streams):
        if wanted in stream[steps[stage] :]:
            return f"which stage {stage} sends later (instruction {stream.index(wanted, steps[stage])})"
    return "which no stage is going to send"
