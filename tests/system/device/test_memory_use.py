"""How much memory there is, from files as the kernel writes them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bpt.system.device import memory_use as room
from bpt.system.device.memory_use import Memory, available_memory, installed_memory

MIB = 2**20
CPU = torch.device("cpu")


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with 1000 MiB available; ``proc`` and ``cgroup`` are its files."""
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "cgroup").mkdir()
    (tmp_path / "proc/meminfo").write_text(f"MemTotal: 9999999 kB\nMemAvailable:   {1000 * 1024} kB\n")
    (tmp_path / "proc/self/status").write_text(f"Name:\tbpt\nVmHWM:\t  {300 * 1024} kB\nVmRSS:\t  {250 * 1024} kB\n")
    monkeypatch.setattr(room, "_PROC", tmp_path / "proc")
    monkeypatch.setattr(room, "_CGROUP", tmp_path / "cgroup")
    return tmp_path


def cgroup(folder: Path, version: int, limit: object, usage: int, stat: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    names = ("memory.max", "memory.current") if version == 2 else ("memory.limit_in_bytes", "memory.usage_in_bytes")
    (folder / names[0]).write_text(f"{limit}\n")
    (folder / names[1]).write_text(f"{usage}\n")
    (folder / "memory.stat").write_text(stat)


def test_the_machine(system: Path) -> None:
    assert available_memory() == 1000 * MIB
    (system / "proc/self/cgroup").write_text("0::/\n3:cpu:/x\n")
    assert available_memory() == 1000 * MIB


def test_version_2_of_cgroups(system: Path) -> None:
    (system / "proc/self/cgroup").write_text("0::/outer/inner\n")
    cgroup(system / "cgroup/outer", 2, 600 * MIB, 500 * MIB, f"anon 7\ninactive_file {50 * MIB}\n")
    cgroup(system / "cgroup/outer/inner", 2, "max", 100 * MIB, "inactive_file 0\n")
    assert available_memory() == 150 * MIB  # 600 - 500 + 50; the inner one has no limit
    assert installed_memory() == 600 * MIB


def test_version_1_of_cgroups(system: Path) -> None:
    (system / "proc/self/cgroup").write_text("4:cpu,memory:/job\n1:cpu:/\n")
    stat = f"inactive_file 1\ntotal_inactive_file {10 * MIB}\n"
    cgroup(system / "cgroup/memory", 1, 9223372036854771712, 900 * MIB, stat)
    cgroup(system / "cgroup/memory/job", 1, 400 * MIB, 350 * MIB, stat)
    assert available_memory() == 60 * MIB


def test_a_cgroup_that_is_mounted_as_the_root(system: Path) -> None:
    """In a container /proc/self/cgroup names a path that cannot be seen there."""
    (system / "proc/self/cgroup").write_text("0::/docker/0123\n")
    cgroup(system / "cgroup", 2, 300 * MIB, 310 * MIB, "inactive_file 0\n")
    assert available_memory() == 0


def test_a_system_that_does_not_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "_PROC", tmp_path)
    monkeypatch.setattr(room, "memory_of", lambda device: 512)
    assert available_memory() == 256
    assert (Memory(CPU).peak, Memory(CPU).room) == (0, 256)
    Memory(CPU).reset()


def test_room_is_divided_among_those_who_share_it(system: Path) -> None:
    assert Memory(CPU).peak == 300 * MIB
    assert Memory(CPU).room == 950 * MIB  # 50 of the peak have been given back: the process will want them again
    assert Memory(CPU, processes=4).room == 200 * MIB


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux")
def test_a_process() -> None:
    """In one of its own: where a peak cannot be forgotten, that of earlier tests would hide what this one takes."""
    count = 64 * MIB // 4
    text = f"""
import torch
from bpt.system.device.memory_use import Memory
memory = Memory(torch.device("cpu"))
memory.reset()
before = memory.peak
tensor = torch.ones({count})
print(memory.peak - before, int(tensor.sum()), memory.room)
"""
    output = subprocess.run([sys.executable, "-c", text], check=True, capture_output=True, text=True).stdout
    taken, total, room = map(int, output.split())
    assert taken >= 32 * MIB
    assert total == count
    assert 0 < room < 2**50


@pytest.mark.gpu
def test_a_gpu() -> None:
    device = torch.device("cuda", 0)
    memory = Memory(device)
    memory.reset()
    tensor = torch.ones(64 * MIB // 4, device=device)
    assert 64 * MIB <= memory.peak < 128 * MIB
    free, total = torch.cuda.mem_get_info(device)
    assert free <= memory.room <= total
    assert Memory(device, processes=2).room < memory.room
    del tensor
