"""The device that a process computes on: which it is, its streams and events, and host memory that it can copy from."""

from bpt.device.base import Event, Stream
from bpt.device.choose import CPU, choose_device, clock_of, describe_devices, finish, memory_of, synchronize, use_line
from bpt.device.pinned import pin
from bpt.device.streams import computing_stream, new_stream

__all__ = [
    "CPU",
    "Event",
    "Stream",
    "choose_device",
    "clock_of",
    "computing_stream",
    "describe_devices",
    "finish",
    "memory_of",
    "new_stream",
    "pin",
    "synchronize",
    "use_line",
]
