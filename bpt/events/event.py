"""Event: something that a rank did, from when to when."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    import numpy as np


class ActionStep(Protocol):
    """What time and traffic are summed by: an action without its micro-batch. Hashable; prints as in a trace."""

    @property
    def phase(self) -> str:
        """The phase of an iteration that its time counts to; "" outside of iterations."""


class Action(Protocol):
    """Something that a rank does: an instruction of the engine, or an Activity. Prints as in a trace."""

    @property
    def phase(self) -> str:
        """The phase of an iteration that its time counts to; "" outside of iterations."""

    @property
    def step(self) -> ActionStep:
        """The action without its micro-batch."""


class Activity(Enum):
    """What a rank does beside the instructions of its iterations; prints as in a trace."""

    BETWEEN = "between iterations"
    TEST = "test"
    SNAPSHOT = "snapshot"
    DISPLAY = "display"
    MERGE = "merge"  # what workers have submitted into the global weights
    WAIT_FOR_DATA = "wait for data"
    MAKE_BATCH = "make batch"
    WRITE = "write"
    WEIGHTS = "weights"  # of the outer layer, between server and workers: what BPT-CNN's Eq. 11 is about
    RECORDS = "records"  # of samples that the server sends to workers
    CONTROL = "control"  # reports and orders of the outer layer
    WITHIN = "within a worker"  # commands, weights and records within a worker of several ranks

    def __str__(self) -> str:
        return self.value

    @property
    def phase(self) -> str:
        """None of an iteration's."""
        return ""

    @property
    def step(self) -> Activity:
        """What sums are taken by."""
        return self


class Event(NamedTuple):
    """An instruction or activity, or a call to other ranks within one. Times are of ``time.perf_counter``, in seconds.

    Attributes:
        what: what was executed, or what the call belongs to; ``None``: a call outside of all that.
        rank, thread: who did it.
        method: of the communicator, for a call; "": what is meant is ``what`` itself.
        message: the parameters or the blob that a call is for, where ``what`` has several messages.
        calls: 0: goes on with a call that was counted before.
        sent, received: bytes, see Traffic.
        peer: of a message from one to one, the other rank of the job.
        dtype: of what was sent.
        flow: of a message from one to one where it leaves; where it arrives, the same below 0. 0: neither happens.
        within: the instruction or activity around ``what``, if that is meant itself.
        layers: what the segment is made of that ``what`` is about, in few words, if that is meant itself.
    """

    what: Action | None
    start: float
    end: float
    rank: int = 0
    thread: str = ""
    method: str = ""
    message: str = ""
    calls: int = 0
    sent: int = 0
    received: int = 0
    peer: int | None = None
    dtype: np.dtype[Any] | None = None
    flow: int = 0
    within: Action | None = None
    layers: str = ""

    @property
    def step(self) -> ActionStep | None:
        """``what`` without its micro-batch."""
        return None if self.what is None else self.what.step

    @property
    def segment(self) -> int | None:
        """The segment of the net that it is about."""
        return getattr(self.what, "segment", None)

    @property
    def micro(self) -> int | None:
        """The micro-batch that it is about."""
        return getattr(self.what, "micro", None)
