"""Which device a command computes on; machines with GPUs are pretended."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from bpt.base.errors import UserError
from bpt.config.proto import bpt_pb2 as pb
from bpt.system.device import CPU, choose_device, describe_devices, memory_of, synchronize, use_line
from tests.support.training import solver_of

pytestmark = pytest.mark.usefixtures("command_line")

GPUS = [
    SimpleNamespace(name="Big", major=9, minor=0, total_memory=80 * 2**30, multi_processor_count=132),
    SimpleNamespace(name="Small", major=7, minor=5, total_memory=3 * 2**29, multi_processor_count=14),
]


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> int:
    """Pretends that there are so many GPUs."""
    number: int = request.param
    monkeypatch.setattr(torch.cuda, "device_count", lambda: number)
    return number


def number_of(param: str | None = None, gpu: str = "") -> int | None:
    """The CUDA device chosen; ``None``: the CPU."""
    chosen = choose_device(None if param is None else solver_of(param), gpu)
    return None if chosen == CPU else chosen.index


@pytest.mark.parametrize("gpus", [0, 2], indirect=True)
def test_the_cpu_unless_a_gpu_is_asked_for(gpus: int) -> None:
    assert number_of() is None
    assert number_of("max_iter: 1") is None  # solver_mode's default, GPU, does not count
    assert number_of("solver_mode: CPU device_id: 1") is None


@pytest.mark.parametrize("gpus", [2], indirect=True)
def test_a_gpu(gpus: int) -> None:
    assert number_of("solver_mode: GPU") == 0
    assert number_of("solver_mode: GPU device_id: 1") == 1
    assert number_of("solver_mode: CPU", "1") == 1
    assert number_of("solver_mode: GPU device_id: 1", "0") == 0
    assert number_of(gpu="1,1") == 1


@pytest.mark.parametrize("gpus", [1], indirect=True)
def test_all_of_one(gpus: int) -> None:
    assert number_of(gpu="all") == 0


NONE = "this machine has no usable CUDA device; "


@pytest.mark.parametrize(
    ("gpus", "param", "gpu", "message"),
    [
        (0, None, "0", f"--gpu 0: {NONE}leave --gpu out to compute on the CPU"),
        (0, None, "all", f"--gpu all: {NONE}leave --gpu out to compute on the CPU"),
        (0, None, "0,1", f"--gpu 0,1: {NONE}leave --gpu out to compute on the CPU"),
        (0, "solver_mode: GPU", "", f"solver_mode: GPU: {NONE}add --set 'solver_mode: CPU' to compute on the CPU"),
        (1, None, "1", "--gpu 1: no CUDA device 1; there are 1 (bpt device_query lists them)"),
        (2, None, "-1", "--gpu -1: no CUDA device -1; there are 2 (bpt device_query lists them)"),
        (1, "solver_mode: GPU device_id: 4", "",
         "solver_mode: GPU: no CUDA device 4; there are 1 (bpt device_query lists them)"),
        (3, None, "all", "--gpu all: that is 3 devices, but one process computes on one. Start as many: "
         "mpirun -n 3 bpt …, or name one: --gpu 0"),
        (3, None, "2,1", "--gpu 2,1: that is 2 devices, but one process computes on one. Start as many: "
         "mpirun -n 2 bpt …, or name one: --gpu 2"),
        (1, None, "x", '--gpu x: give "all" or device numbers separated by commas'),
        (1, None, "0,", '--gpu 0,: give "all" or device numbers separated by commas'),
    ],
    indirect=["gpus"],
)  # fmt: skip
def test_what_cannot_be_had(gpus: int, param: str | None, gpu: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        number_of(param, gpu)
    assert str(caught.value) == message


def numbers_of(ranks: int, param: str | None = None, gpu: str = "") -> list[int | None]:
    """The CUDA device of each of the ranks on a machine."""
    solver = None if param is None else solver_of(param)
    chosen = [choose_device(solver, gpu, rank, ranks) for rank in range(ranks)]
    return [None if each == CPU else each.index for each in chosen]


@pytest.mark.parametrize(
    ("gpus", "ranks", "param", "gpu", "expected"),
    [
        (4, 4, None, "all", [0, 1, 2, 3]),
        (2, 4, None, "all", [0, 1, 0, 1]),  # more ranks than devices share them
        (2, 3, None, "all", [0, 1, 0]),
        (4, 2, None, "3,1", [3, 1]),
        (4, 3, None, "3,1", [3, 1, 3]),
        (4, 2, None, "1", [1, 1]),
        (4, 2, None, "1,1", [1, 1]),
        (4, 2, "solver_mode: GPU", "", [0, 1]),
        (4, 2, "solver_mode: GPU device_id: 2", "", [2, 3]),
        (4, 3, "solver_mode: GPU device_id: 2", "", [2, 3, 2]),
        (1, 3, "solver_mode: GPU", "", [0, 0, 0]),
        (4, 2, "solver_mode: GPU device_id: 3", "", [3, 3]),
        (4, 2, "solver_mode: GPU", "2,3", [2, 3]),
        (4, 2, "solver_mode: CPU", "", [None, None]),
        (4, 2, None, "", [None, None]),
        (0, 2, None, "", [None, None]),
    ],
    indirect=["gpus"],
)
def test_ranks_take_devices_in_turn(
    gpus: int, ranks: int, param: str | None, gpu: str, expected: list[int | None]
) -> None:
    assert numbers_of(ranks, param, gpu) == expected


@pytest.mark.parametrize(
    ("gpus", "ranks", "param", "gpu", "message"),
    [
        (0, 2, "solver_mode: GPU", "", f"solver_mode: GPU: {NONE}add --set 'solver_mode: CPU' to compute on the CPU"),
        (0, 2, None, "all", f"--gpu all: {NONE}leave --gpu out to compute on the CPU"),
        (2, 2, "solver_mode: GPU device_id: 2", "",
         "solver_mode: GPU: no CUDA device 2; there are 2 (bpt device_query lists them)"),
        (2, 2, None, "1,2", "--gpu 1,2: no CUDA device 2; there are 2 (bpt device_query lists them)"),
        (4, 2, None, "all", "--gpu all: that is 4 devices, but one process computes on one. Start as many: "
         "mpirun -n 4 bpt …, or name one: --gpu 0"),
        (4, 2, None, "3,2,1", "--gpu 3,2,1: that is 3 devices, but one process computes on one. Start as many: "
         "mpirun -n 3 bpt …, or name one: --gpu 3"),
    ],
    indirect=["gpus"],
)  # fmt: skip
def test_what_ranks_cannot_have(gpus: int, ranks: int, param: str | None, gpu: str, message: str) -> None:
    for rank in range(ranks):
        with pytest.raises(UserError) as caught:
            choose_device(None if param is None else solver_of(param), gpu, rank, ranks)
        assert str(caught.value) == message


@pytest.mark.parametrize("gpus", [2], indirect=True)
def test_devices_are_described(gpus: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda number: GPUS[number])
    big = "CUDA device 0: Big, compute capability 9.0, 80.0 GiB, 132 multiprocessors"
    small = "CUDA device 1: Small, compute capability 7.5, 1.5 GiB, 14 multiprocessors"
    cpu = f"CPU: {torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}"
    assert describe_devices() == [big, small, cpu]
    assert describe_devices(torch.device("cuda", 1)) == [small]


@pytest.mark.parametrize("gpus", [0], indirect=True)
@pytest.mark.parametrize(
    ("built_with", "line"),
    [("12.4", "CUDA: no usable device"), (None, "CUDA: no usable device: this PyTorch is built without CUDA")],
)
def test_why_there_is_no_gpu(gpus: int, built_with: str | None, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", built_with)
    assert describe_devices()[0] == line


def test_caffes_words() -> None:
    assert use_line(CPU) == "Use CPU."
    assert use_line(torch.device("cuda", 2)) == "Use GPU with device ID 2"


def test_memory() -> None:
    with open("/proc/meminfo") as file:
        total = next(int(line.split()[1]) for line in file if line.startswith("MemTotal:"))
    assert memory_of(CPU) == total * 1024


def test_there_is_nothing_to_wait_for_on_a_cpu() -> None:
    synchronize(CPU)


def test_solver_mode_has_caffes_default() -> None:
    assert pb.SolverParameter().solver_mode == pb.SolverParameter.GPU
