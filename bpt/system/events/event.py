"""Events: the actions of a rank, with their begin and end."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    import numpy as np


class ActionStep(Protocol):
    """The unit of sums of time and traffic: an action without its micro-batch. Hashable; prints as in a trace."""

    @property
    def phase(self) -> str:
        """The phase of an iteration to which its time counts; "" outside of iterations."""


class Action(Protocol):
    """An action of a rank: an instruction of the engine, or an Activity. It prints as in a trace."""

    @property
    def phase(self) -> str:
        """The phase of an iteration to which its time counts; "" outside of iterations."""

    @property
    def step(self) -> ActionStep:
        """The action without its micro-batch."""


class Activity(Enum):
    """An action of a rank outside the instructions of its iterations; it prints as in a trace."""

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
        """Always "": an activity belongs to no phase of an iteration."""
        return ""

    @property
    def step(self) -> Activity:
        """The key of its sums: the activity itself."""
        return self


class Event(NamedTuple):
    """An instruction or activity, or a call to other ranks within one. Times are of ``time.perf_counter``, in seconds.

    Attributes:
        what: the action that was executed, or the one that the call belongs to; ``None``: a call outside of all
            actions.
        rank, thread: the rank and its thread.
        method: the communicator's method, for a call; "" if the event is ``what`` itself.
        message: the parameters or the blob of a call, where ``what`` has several messages.
        calls: the number of calls; 0 if the event continues a call that was counted before.
        sent, received: bytes, as in Traffic.
        peer: the other rank of the job, for a point-to-point message.
        dtype: the number type that was sent.
        flow: the number of a point-to-point message where it leaves; the same number, negative, where it arrives;
            otherwise 0.
        within: the instruction or activity around ``what``, if the event is ``what`` itself.
        layers: a short description of the layers of the segment of ``what``, if the event is ``what`` itself.
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
        """The segment of the net to which the event belongs."""
        return getattr(self.what, "segment", None)

    @property
    def micro(self) -> int | None:
        """The micro-batch to which the event belongs."""
        return getattr(self.what, "micro", None)
