"""What is said of cores, threads, memory and devices."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from typing import Any

import pytest
import torch

from bpt.apps.doctor import hosts
from bpt.apps.doctor.findings import Attempt, Section, Severity, attempt
from bpt.apps.doctor.hosts import RankPlace, check_hosts, place_here
from bpt.base.errors import UserError
from bpt.system.comm.neighbours import MachineLoad
from tests.apps.doctor.world import on_hosts, same, texts_of, this_rank

FOUR = frozenset(range(4))
PLACE = RankPlace(FOUR, FOUR, 1.0, math.inf, 2, 8 * 2**30, 6 * 2**30, "cpu", "", (), "/work")
CPU = attempt(lambda: torch.device("cpu"))


def check(monkeypatch: pytest.MonkeyPatch, names: str, *places: RankPlace, outer: bool = False) -> Section:
    """The section where rank r is on the host ``names[r]`` at ``places[r]``."""
    monkeypatch.setattr(hosts, "place_here", lambda device: places[this_rank()])
    return same(on_hosts(names, lambda ranks: check_hosts(ranks, CPU, outer)))


def at(**changes: Any) -> RankPlace:
    return replace(PLACE, **changes)


def test_hosts_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    section = check(monkeypatch, "aab", PLACE, PLACE, at(cpus=frozenset({0, 1}), launcher_cpus=frozenset({0, 1})))
    assert section.table == (
        "host  ranks  cores  threads a rank   memory     free  computes on",
        "a     0-1        4               2  8.0 GiB  6.0 GiB          cpu",
        "b     2          2               2  8.0 GiB  6.0 GiB          cpu",
    )
    assert texts_of(section, Severity.OK) == [
        "host a: 2 ranks with 4 threads in all for 4 cores",
        "host b: 1 rank with 2 threads for 2 cores",
    ]
    assert len(section.findings) == 2


def test_too_many_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    section = check(monkeypatch, "aaa", PLACE, PLACE, PLACE)
    (finding,) = section.findings
    assert finding.kind is Severity.WARNING
    assert finding.text == "host a: 3 ranks with 6 threads in all for 4 cores: they will hinder each other"
    assert finding.remedy == "give each rank fewer threads: mpirun -x OMP_NUM_THREADS=1 …"


def test_too_many_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    (finding,) = check(monkeypatch, "aaaaa", *[at(threads=1)] * 5).findings
    assert finding.remedy == "start at most 4 ranks on this host"


def test_a_quota_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container of 4 CPUs that may use 1.5 of them."""
    (finding,) = check(monkeypatch, "aa", *[at(quota=1.5)] * 2).findings
    assert finding.text == "host a: 2 ranks with 4 threads in all for 1.5 cores: they will hinder each other"
    (finding,) = check(monkeypatch, "a", at(quota=0.25, threads=1)).findings  # a rank cannot have less than a thread
    assert finding.kind is Severity.OK


def test_hardware_threads_are_no_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    section = check(monkeypatch, "a", at(cpus_a_core=2.0))
    assert texts_of(section, Severity.OK) == ["host a: 1 rank with 2 threads for 2 cores"]


def test_idle_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    section = check(monkeypatch, "a", at(threads=1))
    assert texts_of(section, Severity.NOTE) == ["host a: idle: 3 cores"]


@pytest.mark.parametrize(("cpus", "text"), [
    ({0}, "ranks 0-1 on host a: bound to 1 core by the launcher, although 2 are available"),
    ({0, 1}, "ranks 0-1 on host a: more threads than cores for the rank"),
])  # fmt: skip
def test_bound_ranks(monkeypatch: pytest.MonkeyPatch, cpus: set[int], text: str) -> None:
    section = check(monkeypatch, "aa", *[at(cpus=frozenset(cpus), threads=1 if cpus == {0} else 3)] * 2)
    assert texts_of(section, Severity.WARNING)[0] == text
    assert "--bind-to none" in section.findings[0].remedy


def test_bound_as_wide_as_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    bound = [at(cpus=frozenset({core}), threads=1) for core in range(4)]
    assert [finding.kind for finding in check(monkeypatch, "aaaa", *bound).findings] == [Severity.OK]


def test_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (at(device=f"cuda:{number}", gpus=("H", "H")) for number in (0, 1))
    section = check(monkeypatch, "aab", first, second, at(gpus=("H",), threads=4))
    assert section.table[1].endswith("cuda:0 (H), cuda:1 (H)")
    assert texts_of(section, Severity.NOTE) == [
        "host b has 1 CUDA device, but its ranks compute on the CPU",
        "the ranks compute on different devices: H, cpu",
    ]
    section = check(monkeypatch, "aaa", first, second, replace(first, threads=0))
    assert texts_of(section, Severity.WARNING) == ["ranks 0, 2 on host a share the one device cuda:0"]


def test_unlike_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    section = check(monkeypatch, "abb", at(threads=4), at(threads=2), at(threads=2))
    assert texts_of(section, Severity.NOTE) == ["the ranks have from 2 to 4 cores each"]
    section = check(monkeypatch, "ab", at(quota=0.8, threads=1), at(quota=0.4, threads=1))
    assert texts_of(section, Severity.NOTE) == ["the ranks have from 0.4 to 0.8 cores each"]
    assert "balance: STATIC" in section.findings[-1].remedy
    section = check(monkeypatch, "ab", at(quota=0.8, threads=1), at(quota=0.4, threads=1), outer=True)
    assert "exchange: AGWU balance: IDPA" in section.findings[-1].remedy  # where STATIC is refused
    mixed = (at(device="cuda:0", gpus=("Tesla", "H")), at(device="cuda:1", gpus=("Tesla", "H")))
    section = check(monkeypatch, "aa", *mixed)
    assert texts_of(section, Severity.NOTE) == ["the ranks compute on different devices: H, Tesla"]


def test_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    section = check(monkeypatch, "ab", PLACE, at(device="", device_error="no usable CUDA device"))
    assert texts_of(section, Severity.PROBLEM) == ["rank 1 on host b: no usable CUDA device"]


def test_other_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    section = check(monkeypatch, "abc", PLACE, PLACE, at(folder="/root"))
    (text,) = texts_of(section, Severity.WARNING)
    assert text.endswith("ranks 0-1 on hosts a, b: /work; rank 2 on host c: /root")


def test_this_process() -> None:
    def refuse() -> torch.device:
        raise UserError("no")

    place = place_here(Attempt(torch.device("cuda", 1), None))
    assert place.cpus == os.sched_getaffinity(0)
    assert place.cpus <= place.launcher_cpus
    assert (place.device, place.device_error, place.folder) == ("cuda:1", "", os.getcwd())
    assert 0 < place.free <= place.memory
    assert place_here(attempt(refuse)).device_error == "no"


def test_a_process_that_no_launcher_has_started_gets_no_advice_for_mpirun(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = at(is_launched=False)
    for place, remedy in (
        (replace(alone, threads=1), "more threads a rank (OMP_NUM_THREADS=4 bpt …) or more ranks would use more"),
        (replace(alone, threads=9, quota=2.0), "give each rank fewer threads: OMP_NUM_THREADS=2 bpt …"),
        (replace(alone, threads=5), "set OMP_NUM_THREADS to the cores: OMP_NUM_THREADS=4 bpt …"),
    ):
        assert remedy in [finding.remedy for finding in check(monkeypatch, "a", place).findings]


def test_a_busy_host_is_not_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was told to use more threads and to use fewer."""
    monkeypatch.setattr(hosts, "place_here", lambda device: at(threads=1))
    load = MachineLoad("a", "m", 4, 4.0, 1, busy=4.4, own=1.0)
    section = same(on_hosts("a", lambda ranks: check_hosts(ranks, CPU, loads=[load])))
    assert texts_of(section, Severity.NOTE) == []
    (finding,) = [finding for finding in section.findings if finding.kind is Severity.WARNING]
    assert finding.remedy == "top shows these programs; start when they have ended"


def test_a_host_on_which_others_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "place_here", lambda device: PLACE)
    busy = [MachineLoad("a", "m", 4, 4.0, 2, busy=3.5, own=0.5)]
    section = same(on_hosts("a", lambda ranks: check_hosts(ranks, CPU, loads=busy)))
    assert texts_of(section, Severity.WARNING) == ["host a is busy: other programs keep 3 of its 4 CPUs at work"]
