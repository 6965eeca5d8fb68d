"""The streams of a device: the same program runs on a CPU, with threads, and on CUDA, with the device's streams."""

from __future__ import annotations

import torch

from bpt.device.base import Stream
from bpt.device.cuda import CurrentStream, SideStream
from bpt.device.host import NullStream, ThreadStream


def computing_stream(device: torch.device) -> Stream:
    """The stream on which ``device`` computes for the calling thread.

    On a CPU that is the caller itself: work is done at once, events are reached when recorded, ``after`` waits. On CUDA
    it is torch's current stream: work enqueues, and ``after`` lets the device wait, not the caller. In both cases
    what work or ``after`` raises is raised in the caller.
    """
    return CurrentStream(device) if device.type == "cuda" else NullStream()


def new_stream(device: torch.device, name: str) -> Stream:
    """A stream beside the one on which ``device`` computes.

    A thread, started at the first ``run`` or ``after``, does the work, without recording for gradients. On CUDA it
    enqueues to a stream of the device that is the stream's own, so copies go on while the device computes.

    Args:
        device: the device that this process computes on.
        name: what the thread is called, before the name of the thread that calls this: "D2H of MainThread".
    """
    return SideStream(device, name) if device.type == "cuda" else ThreadStream(name)
