"""The power of a rank: made-up /proc and /sys."""

from __future__ import annotations

import math
import threading
from pathlib import Path

import pytest

from bpt.comm import power as module
from bpt.comm.base import Communicator
from bpt.comm.power import frequency, power, powers
from bpt.errors import UserError
from tests.comm.test_cores import V1, system, v1
from tests.doubles.thread_ranks import run_ranks

NONE: dict[str, str] = {}  # an environment


def clocks(root: Path, **khz: dict[int, int]) -> Path:
    """A system whose drivers tell CPU → kHz in files of these names."""
    for name, values in khz.items():
        for cpu, value in values.items():
            folder = root / f"sys/devices/system/cpu/cpu{cpu}/cpufreq"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(f"{value}\n")
    return root


def cpuinfo(root: Path, *entries: str) -> Path:
    (root / "proc").mkdir(parents=True, exist_ok=True)
    (root / "proc/cpuinfo").write_text("\n\n".join(entries) + "\n\n")
    return root


def entry(cpu: int, mhz: str) -> str:
    return f"processor\t: {cpu}\nvendor_id\t: GenuineIntel\ncpu MHz\t\t: {mhz}\ncache size\t: 1 KB"


@pytest.fixture
def cpus(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """The CPUs that this process may run on."""
    mine: set[int] = set()
    monkeypatch.setattr(module, "allowed", lambda: frozenset(mine))
    return mine


def test_the_frequency_is_the_mean_of_the_cpus_greatest(tmp_path: Path) -> None:
    clocks(tmp_path, cpuinfo_max_freq={0: 3_000_000, 1: 2_000_000, 2: 1_000_000}, base_frequency={0: 2_400_000})
    assert frequency({0}, tmp_path) == 3000
    assert frequency({0, 1}, tmp_path) == 2500
    assert frequency({0, 1, 2}, tmp_path) == 2000


def test_where_the_driver_tells_no_greatest_its_base_counts_and_else_the_moment_s(tmp_path: Path) -> None:
    clocks(tmp_path, base_frequency={0: 2_400_000}, scaling_cur_freq={1: 800_000})
    cpuinfo(tmp_path, entry(0, "1234.5"), "processor\t: 7\nmodel\t: without", entry(1, "2100.000"))
    assert frequency({0}, tmp_path) == 2400
    assert frequency({1}, tmp_path) == 2100
    assert frequency({0, 1}, tmp_path) == 2250
    assert frequency({7}, tmp_path) is None
    assert frequency({1, 7}, tmp_path) is None


def test_a_frequency_of_0_or_of_no_number_is_not_known(tmp_path: Path) -> None:
    assert frequency({0}, tmp_path) is None
    assert frequency({0}, cpuinfo(tmp_path / "1", entry(0, "0.000"))) is None
    assert frequency({0}, clocks(tmp_path / "2", cpuinfo_max_freq={0: 0})) is None
    mute = clocks(tmp_path / "3", cpuinfo_max_freq={0: 5})
    (mute / "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq").write_text("<unknown>\n")
    assert frequency({0}, mute) is None
    assert frequency({0}, cpuinfo(mute, entry(0, "100.5"))) == 100.5
    assert frequency(set(), tmp_path) is None


def test_power_is_frequency_times_the_cores_of_a_rank(tmp_path: Path, cpus: set[int]) -> None:
    clocks(tmp_path, cpuinfo_max_freq=dict.fromkeys(range(8), 2_000_000))
    cpus.update(range(8))
    assert power(environment=NONE, root=tmp_path) == 2000 * 8
    assert power(ranks=2, sharing=2, environment=NONE, root=tmp_path) == 2000 * 4
    assert power(ranks=4, sharing=3, environment=NONE, root=tmp_path) == 2000 * 8 / 3
    for cpu in range(8):  # two hardware threads a core
        folder = tmp_path / f"sys/devices/system/cpu/cpu{cpu}/topology"
        folder.mkdir()
        (folder / "thread_siblings_list").write_text(f"{cpu % 4},{cpu % 4 + 4}\n")
    assert power(environment=NONE, root=tmp_path) == 2000 * 4


def test_a_container_s_cpu_time_counts_like_cores_and_in_fractions(tmp_path: Path, cpus: set[int]) -> None:
    cpus.update(range(8))
    root = system(tmp_path, V1.format(at="/"), "2:cpu,cpuacct:/a\n", **v1("cpu,cpuacct/a/", 25_000))
    clocks(root, cpuinfo_max_freq=dict.fromkeys(range(8), 2_000_000))
    assert power(environment=NONE, root=root) == 500
    assert power(ranks=2, environment=NONE, root=root) == 250


def test_omp_num_threads_is_the_most_that_counts(tmp_path: Path, cpus: set[int]) -> None:
    clocks(tmp_path, cpuinfo_max_freq=dict.fromkeys(range(4), 2_000_000))
    cpus.update(range(4))
    found = [power(environment={"OMP_NUM_THREADS": number}, root=tmp_path) for number in ("1", "3", "4", "12", " ")]
    assert found == [2000, 6000, 8000, 8000, 8000]
    with pytest.raises(UserError, match="OMP_NUM_THREADS"):
        power(environment={"OMP_NUM_THREADS": "all"}, root=tmp_path)


def test_without_a_frequency_there_is_no_power_but_that_of_a_device(tmp_path: Path, cpus: set[int]) -> None:
    cpus.add(0)
    assert power(environment=NONE, root=tmp_path) is None
    assert power(device=1980.0 * 132, root=tmp_path) == 1980 * 132
    assert power(device=0.0, root=clocks(tmp_path, cpuinfo_max_freq={0: 1})) is None


def test_ranks_learn_each_other_s_power(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two share four cores of host a, one is bound to a fifth; host b has two cores for one rank."""
    clocks(tmp_path, cpuinfo_max_freq=dict.fromkeys(range(4), 2_000_000) | {4: 3_000_000})
    places = [{0, 1, 2, 3}, {4}, {0, 1}, {0, 1, 2, 3}]

    def rank() -> int:
        return int(threading.current_thread().name.removeprefix("rank "))

    monkeypatch.setattr(module, "allowed", lambda: frozenset(places[rank()]))
    monkeypatch.setattr(module, "cpu_time", lambda root: math.inf)

    def work(comm: Communicator) -> list[float | None]:
        return powers(comm, environment=NONE, root=tmp_path)

    assert run_ranks(4, work, hosts=["a", "a", "b", "a"]) == [[4000, 3000, 4000, 4000]] * 4
    monkeypatch.setattr(module, "cpu_time", lambda root: 1.5)
    assert run_ranks(4, work, hosts=["a", "a", "b", "a"]) == [[1000, 1500, 3000, 1000]] * 4


def test_this_machine() -> None:
    found = power()
    assert found is None or found > 0
