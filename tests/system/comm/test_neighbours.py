"""What a run sees of others on its machine; the numbers of the system are files made here."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from bpt.system.comm.neighbours import CpuTime, MachineLoad, host_loads, load_since, remarks

ALONE = MachineLoad("a", "m", 4, 4.0, 4, busy=3.0, own=3.0)


def test_times_are_read_as_the_system_tells_them(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "stat").write_text("cpu  100 20 30 4000 500 6 7 80 90 10\ncpu0 1 1 1 1 1 1 1 1 1 1\n")
    found = CpuTime.now(tmp_path)
    assert found is not None
    assert found.machine == (100 + 20 + 30 + 6 + 7) / os.sysconf("SC_CLK_TCK")
    assert CpuTime.now(tmp_path / "elsewhere") is None


def test_a_short_time_tells_nothing() -> None:
    now = CpuTime.now()
    for start in (None, now):
        load = load_since(start, "a", 2)
        assert (load.host, load.threads, load.busy, load.own) == ("a", 2, 0.0, 0.0)
    if now is not None:
        load = load_since(replace(now, moment=now.moment - 100, machine=now.machine - 50, own=now.own - 10), "a", 2)
        assert (load.busy, load.own) == (pytest.approx(0.5, abs=0.01), pytest.approx(0.1, abs=0.01))


def test_a_run_that_is_alone_is_told_nothing() -> None:
    assert not list(remarks([ALONE]))
    assert not list(remarks([replace(ALONE, busy=3.4)]))  # somebody moves a mouse
    assert not list(remarks([replace(ALONE, threads=2, busy=5.0)]))  # others, but there is room for all


def test_others_are_told_by_the_cpus_that_they_take() -> None:
    (line,) = remarks([replace(ALONE, busy=4.0, own=2.5)])
    assert line.startswith("host a is busy: other programs keep 1.5 of its 4 CPUs at work: ")


def test_ranks_are_no_others_even_where_hosts_share_a_machine() -> None:
    """As on a test bed: four CPUs, of which two hosts' ranks take one each."""
    two = [replace(ALONE, host=host, cores=1.0, threads=1, busy=2.0, own=1.0) for host in "ab"]
    assert [load.others for load in host_loads(two)] == [0, 0]
    assert [load.others for load in host_loads([replace(load, machine="") for load in two])] == [1, 1]


def test_more_threads_than_cores() -> None:
    (line,) = remarks([replace(ALONE, cores=2.0, threads=1, busy=0, own=0)] * 3)
    assert line.startswith("host a has 2 cores for 3 threads, which slow each other: ")
