"""The device that a process computes on, and its streams: with threads on a CPU, the device's own on CUDA."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import torch

from bpt.base.caller import set_in_solver
from bpt.base.errors import UsageError, UserError
from bpt.config.proto import bpt_pb2 as pb
from bpt.system.device.cuda import CurrentStream, SideStream
from bpt.system.device.streams import NullStream, Stream, ThreadStream

if TYPE_CHECKING:
    from bpt.config.plan.run_plan import RunPlan

CPU = torch.device("cpu")


def choose_device(plan: RunPlan | None = None, gpu: str = "", local_rank: int = 0, local_size: int = 1) -> torch.device:
    """Return the device that ``--gpu`` or else the solver requests.

    As in ``caffe train`` a GPU is used if ``--gpu`` is given or the solver *sets* ``solver_mode: GPU`` (the field's
    default does not count). ``device_id`` then selects it. Ranks on one machine take the devices in turn: those of
    ``--gpu``, or else all from ``device_id`` on.

    Args:
        gpu: the flag's text: "", "all", or numbers separated by commas.
        local_rank: the number of this rank among the ranks of this machine.
        local_size: the number of these ranks.

    Raises:
        UserError: no such device, or more devices than ranks.
    """
    if gpu:
        wanted = gpu
        source, remedy = f"--gpu {gpu}", "leave --gpu out to compute on the CPU"
    elif plan is not None and plan.given("solver_mode") and plan.solver_mode == pb.SolverParameter.GPU:
        first = plan.device_id
        count = min(local_size, max(torch.cuda.device_count() - first, 1))
        wanted = ",".join(str(first + number) for number in range(count))
        source, remedy = "solver_mode: GPU", f"{set_in_solver('solver_mode: CPU')} to compute on the CPU"
    else:
        return CPU
    available = torch.cuda.device_count()
    numbers = _numbers(wanted, available)
    if not available:
        raise UserError(f"{source}: this machine has no usable CUDA device; {remedy}")
    for number in numbers:
        if not 0 <= number < available:
            raise UserError(f"{source}: no CUDA device {number}; there are {available} (bpt device_query lists them)")
    if len(numbers) > local_size:
        raise UsageError(
            f"{source}: that is {len(numbers)} devices, but one process computes on one. Start as many: "
            f"mpirun -n {len(numbers)} bpt …, or name one: --gpu {numbers[0]}"
        )
    return torch.device("cuda", numbers[local_rank % len(numbers)])


def _numbers(wanted: str, available: int) -> list[int]:
    """Return the device numbers that the flag names, each once."""
    if wanted == "all":
        return list(range(available))
    try:
        return list(dict.fromkeys(int(word) for word in wanted.split(",")))
    except ValueError:
        raise UsageError(f'--gpu {wanted}: give "all" or device numbers separated by commas') from None


def use_line(device: torch.device) -> str:
    """Return the line in which Caffe logs its device."""
    return "Use CPU." if device.type == "cpu" else f"Use GPU with device ID {device.index}"


def clock_of(device: torch.device) -> float | None:
    """Return MHz × multiprocessors of a GPU, a rough measure of its power; ``None`` for a CPU, 0 if unreadable."""
    if device.type != "cuda":
        return None
    properties = torch.cuda.get_device_properties(device)
    kilohertz = float(getattr(properties, "clock_rate", 0))  # old versions of torch do not have it
    return kilohertz / 1000 * properties.multi_processor_count


def memory_of(device: torch.device) -> int:
    """Return the device's total memory in bytes, used or not."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def synchronize(device: torch.device) -> None:
    """Wait until the device has done all work queued so far. A CPU has nothing to wait for."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def finish(device: torch.device) -> None:
    """Wait until the device has done the work that the calling thread has queued. Other streams may continue."""
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()


def describe_devices(only: torch.device | None = None) -> list[str]:
    """Return one line for each device of this machine, or for ``only``."""
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
            lines.append(f"CUDA: {_why_no_cuda()}")
        lines.append(f"CPU: {torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}")
    return lines


def _why_no_cuda() -> str:
    if torch.version.cuda is None:
        return "no usable device: this PyTorch is built without CUDA"
    return "no usable device"


def computes_apart(device: torch.device) -> bool:
    """Return whether ``device`` computes while the host continues, which then waits for it when it reads a value."""
    return device.type == "cuda"


def computing_stream(device: torch.device) -> Stream:
    """Return the stream on which ``device`` computes for the calling thread.

    On a CPU that is the caller itself: work is done at once, events are reached when recorded, ``after`` waits. On CUDA
    it is torch's current stream: work enqueues, and ``after`` lets the device wait, not the caller. In both cases
    errors of work or ``after`` are raised in the caller.
    """
    return CurrentStream(device) if device.type == "cuda" else NullStream()


def new_stream(device: torch.device, name: str) -> Stream:
    """Return a stream beside the one on which ``device`` computes.

    A thread, started at the first ``run`` or ``after``, does the work, without recording for gradients. On CUDA it
    enqueues to its own stream of the device, so copies run while the device computes.

    Args:
        device: the device on which this process computes.
        name: the first part of the thread's name, before the name of the calling thread: "D2H of MainThread".
    """
    return SideStream(device, name) if device.type == "cuda" else ThreadStream(name)
