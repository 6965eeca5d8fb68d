"""The device on which a process computes: its choice, its streams and events, and host memory for its copies."""

from bpt.system.device.choose import (
    CPU,
    choose_device,
    clock_of,
    computes_apart,
    computing_stream,
    describe_devices,
    finish,
    memory_of,
    new_stream,
    synchronize,
    use_line,
)
from bpt.system.device.pinned import pin
from bpt.system.device.streams import Stream, StreamEvent

__all__ = [
    "CPU",
    "Stream",
    "StreamEvent",
    "choose_device",
    "clock_of",
    "computes_apart",
    "computing_stream",
    "describe_devices",
    "finish",
    "memory_of",
    "new_stream",
    "pin",
    "synchronize",
    "use_line",
]
