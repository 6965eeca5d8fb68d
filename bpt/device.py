"""The device that a process computes on."""

from __future__ import annotations

import torch

from bpt.errors import UsageError, UserError
from bpt.proto import bpt_pb2 as pb

CPU = torch.device("cpu")


def choose_device(param: pb.SolverParameter | None = None, gpu: str = "") -> torch.device:
    """The device that ``--gpu`` or else the solver asks for.

    As in ``caffe train`` a GPU is used if ``--gpu`` is given or the solver *sets* ``solver_mode: GPU``
    (the field's default does not count); ``device_id`` then tells which.

    Args:
        gpu: the flag's text: "", "all", or numbers separated by commas.

    Raises:
        UserError: no such device, or more than one (one process computes on one device).
    """
    if gpu:
        number = _one_number(gpu)
        source, remedy = f"--gpu {gpu}", "leave --gpu out to compute on the CPU"
    elif param is not None and param.HasField("solver_mode") and param.solver_mode == pb.SolverParameter.GPU:
        number = param.device_id
        source, remedy = "solver_mode: GPU", "add --set 'solver_mode: CPU' to compute on the CPU"
    else:
        return CPU
    available = torch.cuda.device_count()
    if not available:
        raise UserError(f"{source}: this machine has no usable CUDA device; {remedy}")
    if not 0 <= number < available:
        raise UserError(f"{source}: no CUDA device {number}; there are {available} (bpt device_query lists them)")
    return torch.device("cuda", number)


def _one_number(gpu: str) -> int:
    if gpu == "all":
        gpu = ",".join(map(str, range(torch.cuda.device_count()))) or "0"
    try:
        numbers = [int(word) for word in gpu.split(",")]
    except ValueError:
        raise UsageError(f'--gpu {gpu}: give "all" or device numbers separated by commas') from None
    if len(numbers) > 1:
        raise UsageError(f"--gpu {gpu}: one process trains on one device; training on several is not available yet")
    return numbers[0]


def synchronize(device: torch.device) -> None:
    """Wait until the device has done all work queued so far; nothing to wait for on a CPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def describe_devices(only: torch.device | None = None) -> list[str]:
    """One line for each device of this machine, or for ``only``."""
    lines = []
    for number in range(torch.cuda.device_count()):
        if only is None or only.index == number:
            seen = torch.cuda.get_device_properties(number)
            lines.append(
                f"CUDA device {number}: {seen.name}, compute capability {seen.major}.{seen.minor}, "
                f"{seen.total_memory / 2**30:.1f} GiB, {seen.multi_processor_count} multiprocessors"
            )
    if only is None:
        if not lines:
            lines.append("CUDA: no usable device")
        lines.append(f"CPU: {torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}")
    return lines
