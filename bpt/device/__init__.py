"""The device that a process computes on: which it is, its streams and events, and host memory that it can copy from."""

from bpt.device.choose import CPU, choose_device, describe_devices, memory_of, synchronize, use_line

__all__ = ["CPU", "choose_device", "describe_devices", "memory_of", "synchronize", "use_line"]
