"""Cores and power of ranks."""

from __future__ import annotations

import math
import threading
from pathlib import Path

import pytest

from bpt.base.errors import UserError
from bpt.system.comm import cores
from bpt.system.comm.base import Communicator
from bpt.system.comm.cores import cpu_time, frequency, longest_sleep, physical_cores, power, powers, share_cores
from bpt.system.comm.serial import SerialCommunicator
from tests.support.doubles.thread_ranks import run_ranks

V1 = "30 23 0:26 {at} /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
V2 = "30 23 0:26 {at} /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
OTHER = (
    "22 1 254:0 / / rw,relatime - ext4 /dev/root rw\n31 23 0:27 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
)


def system(root: Path, mounts: str, groups: str, **files: str) -> Path:
    """A made-up system; a file is named by its path under /sys/fs/cgroup."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/mountinfo").write_text(OTHER + mounts)
    (root / "proc/self/cgroup").write_text(groups)
    for name, text in files.items():
        file = root / "sys/fs/cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")
    return root


def v1(folder: str, quota: int, period: int = 100_000) -> dict[str, str]:
    return {f"{folder}cpu.cfs_quota_us": str(quota), f"{folder}cpu.cfs_period_us": str(period)}


def test_version_1_limits_of_a_group_and_of_those_around_it(tmp_path: Path) -> None:
    groups = "9:cpuset:/\n2:cpu,cpuacct:/jobs/a\n0::/\n"
    files = v1("cpu,cpuacct/", -1) | v1("cpu,cpuacct/jobs/", 400_000) | v1("cpu,cpuacct/jobs/a/", 150_000)
    assert cpu_time(system(tmp_path / "1", V1.format(at="/"), groups, **files)) == 1.5
    files |= v1("cpu,cpuacct/jobs/", 50_000, period=200_000)
    assert cpu_time(system(tmp_path / "2", V1.format(at="/"), groups, **files)) == 0.25
    files |= v1("cpu,cpuacct/jobs/", -1) | v1("cpu,cpuacct/jobs/a/", -1)
    assert cpu_time(system(tmp_path / "3", V1.format(at="/"), groups, **files)) == math.inf


def test_version_2(tmp_path: Path) -> None:
    files = {"jobs/a/cpu.max": "150000 100000", "jobs/cpu.max": "max 100000"}
    assert cpu_time(system(tmp_path / "1", V2.format(at="/"), "0::/jobs/a\n", **files)) == 1.5
    files["jobs/cpu.max"] = "25000 100000"
    assert cpu_time(system(tmp_path / "2", V2.format(at="/"), "0::/jobs/a\n", **files)) == 0.25
    assert cpu_time(system(tmp_path / "3", V2.format(at="/"), "0::/elsewhere\n", **files)) == math.inf


def test_in_a_container_the_mount_shows_the_container_s_own_group_as_the_root(tmp_path: Path) -> None:
    files = v1("cpu,cpuacct/", 200_000)
    assert cpu_time(system(tmp_path / "1", V1.format(at="/docker/7"), "2:cpu,cpuacct:/docker/7\n", **files)) == 2
    assert cpu_time(system(tmp_path / "2", V2.format(at="/"), "0::/\n", **{"cpu.max": "300000 100000"})) == 3


def test_without_control_groups_there_is_no_limit(tmp_path: Path) -> None:
    assert cpu_time(tmp_path) == math.inf
    assert cpu_time(system(tmp_path / "1", "", "2:cpu:/a\n0::/\n")) == math.inf


def test_hardware_threads_of_one_core_count_once(tmp_path: Path) -> None:
    for cpu, siblings in {0: "0,4", 4: "0,4", 1: "1,5", 5: "1,5"}.items():
        folder = tmp_path / f"sys/devices/system/cpu/cpu{cpu}/topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(siblings + "\n")
    assert physical_cores({0, 4, 1, 5}, tmp_path) == 2
    assert physical_cores({0, 5}, tmp_path) == 2
    assert physical_cores({0, 4}, tmp_path) == 1
    assert physical_cores({7, 8}, tmp_path) == 2  # not told


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[str, set[int]]]:
    """Rank → host and the CPUs that it may run on; each CPU is a core."""
    ranks: dict[str, tuple[str, set[int]]] = {}
    monkeypatch.setattr(cores, "allowed_cpus", lambda: frozenset(ranks[threading.current_thread().name][1]))
    monkeypatch.setattr(cores, "physical_cores", len)
    monkeypatch.setattr(cores, "cpu_time", lambda: math.inf)
    monkeypatch.setattr(Communicator, "host", property(lambda comm: ranks[threading.current_thread().name][0]))
    return ranks


def threads(node: dict[str, tuple[str, set[int]]], *places: tuple[str, set[int]], **environment: str) -> list[int]:
    node |= {f"rank {rank}": place for rank, place in enumerate(places)}
    return run_ranks(len(places), lambda comm: share_cores(comm, environment))


def test_ranks_share_the_cores_of_their_node(node: dict[str, tuple[str, set[int]]]) -> None:
    eight, four = set(range(8)), set(range(4))
    assert threads(node, ("a", eight)) == [8]
    assert threads(node, ("a", eight), ("a", eight)) == [4, 4]
    assert threads(node, ("a", eight), ("a", eight), ("a", eight)) == [2, 2, 2]
    assert threads(node, ("a", eight), ("b", four), ("a", eight)) == [4, 4, 4]
    assert threads(node, *[("a", {0, 1})] * 5) == [1] * 5


def test_cores_that_a_rank_is_bound_to_are_its_own(node: dict[str, tuple[str, set[int]]]) -> None:
    assert threads(node, ("a", {0, 1, 2}), ("a", {3})) == [3, 1]
    first, second = {0, 1, 2, 3}, {4, 5, 6, 7}
    assert threads(node, ("a", first), ("a", first), ("a", second)) == [2, 2, 4]


def test_a_container_s_cpu_time_counts_like_cores(
    node: dict[str, tuple[str, set[int]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cores, "cpu_time", lambda: 2.5)
    assert threads(node, ("a", set(range(8)))) == [3]
    assert threads(node, *[("a", set(range(8)))] * 2) == [1, 1]
    assert threads(node, *[("a", set(range(8)))] * 4) == [1] * 4


def test_the_user_s_number_of_threads_counts(node: dict[str, tuple[str, set[int]]]) -> None:
    eight = ("a", set(range(8)))
    assert threads(node, eight, OMP_NUM_THREADS="3") == [3]
    assert threads(node, eight, eight, OMP_NUM_THREADS="12") == [12, 12]
    assert threads(node, eight, OMP_NUM_THREADS="2,1") == [2]
    assert threads(node, eight, OMP_NUM_THREADS=" ") == [8]
    for wrong in ("0", "-1", "two", "1.5"):
        with pytest.raises(UserError, match=f'OMP_NUM_THREADS is "{wrong}"'):
            threads(node, eight, OMP_NUM_THREADS=wrong)


def test_waits_sleep_where_they_would_take_cores_from_computing(
    node: dict[str, tuple[str, set[int]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    node[threading.current_thread().name] = ("a", {0, 1})
    assert [longest_sleep(ranks) for ranks in (1, 2, 3, 4, 16, 64)] == [0, 0, 5e-4, 5e-4, 2e-3, 8e-3]
    monkeypatch.setattr(cores, "cpu_time", lambda: 1.5)
    assert [longest_sleep(ranks) for ranks in (1, 2, 3, 6, 24)] == [5e-4, 5e-4, 5e-4, 1e-3, 4e-3]


def test_this_machine() -> None:
    assert cores.allowed_cpus()
    assert 1 <= physical_cores(cores.allowed_cpus()) <= len(cores.allowed_cpus())
    assert cpu_time() > 0
    assert share_cores(SerialCommunicator(), {}) >= 1


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
    monkeypatch.setattr(cores, "allowed_cpus", lambda: frozenset(mine))
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

    monkeypatch.setattr(cores, "allowed_cpus", lambda: frozenset(places[rank()]))
    monkeypatch.setattr(cores, "cpu_time", lambda root: math.inf)

    def work(comm: Communicator) -> list[float | None]:
        return powers(comm, environment=NONE, root=tmp_path)

    assert run_ranks(4, work, hosts=["a", "a", "b", "a"]) == [[4000, 3000, 4000, 4000]] * 4
    monkeypatch.setattr(cores, "cpu_time", lambda root: 1.5)
    assert run_ranks(4, work, hosts=["a", "a", "b", "a"]) == [[1000, 1500, 3000, 1000]] * 4


def test_the_power_of_this_machine() -> None:
    found = power()
    assert found is None or found > 0
